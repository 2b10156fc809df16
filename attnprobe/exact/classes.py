"""The region of exclusive classes: total variation distance of two softmaxes (`attnprobe.exact.certified` has the proof)."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import softmax

from attnprobe.exact.region import Outer, Region

TANGENTS = (0.0, 0.05, 0.15, 0.35, 0.65, 1.0)
"""Where exp is touched from below: at p_c + so much of ε."""
TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True)
class ClassRegion(Region):
    """`log_p`: the model's own log probabilities."""

    log_p: Float[np.ndarray, "classes"]

    def distance(self, moved: Float[np.ndarray, "*samples classes"]) -> Float[np.ndarray, "*samples"]:
        """Total variation distance."""
        return np.abs(softmax(self.log_p + moved, -1) - np.exp(self.log_p)).sum(-1) / 2

    def log_ratio_range(self) -> tuple[Float[np.ndarray, "classes"], Float[np.ndarray, "classes"]]:
        """Lowest and highest ln(q_c / p_c) within ε; −∞ where q_c may vanish."""
        p = np.exp(self.log_p)
        positive = p > self.epsilon
        low = np.where(positive, np.log(np.where(positive, p - self.epsilon, 1)) - self.log_p, -np.inf)
        high = np.minimum(np.logaddexp(self.log_p, np.log(self.epsilon) if self.epsilon else -np.inf), 0) - self.log_p
        return low - self.rounding, high + self.rounding

    def halfspaces(self) -> tuple[Float[np.ndarray, "seq constraints"], Float[np.ndarray, "constraints"]]:
        """The log-odds of every two classes."""
        low, high = self.log_ratio_range()
        over, under = np.nonzero((np.isfinite(low)[None, :]) & ~np.eye(len(low), dtype=bool))
        return self.shift[:, over] - self.shift[:, under], high[over] - low[under]

    def linearised(
        self, moved: Float[np.ndarray, "classes"]
    ) -> tuple[Float[np.ndarray, "classes"], Float[np.ndarray, "seq classes"], float]:
        """Of the softmax; a total variation of ε is Σ |q − p| = 2ε."""
        q = softmax(self.log_p + moved)
        return q - np.exp(self.log_p), q * (self.shift - self.shift @ q[:, None]), 2 * self.epsilon

    def telling(self, logits: Float[np.ndarray, "*any classes"]) -> Float[np.ndarray, "*any classes"]:
        """Their differences: what all logits have in common changes nothing."""
        return logits - logits.mean(-1, keepdims=True)

    def outer(self) -> Outer:
        """Over (a, s, rises, falls): s is by how much the logarithm of the normaliser changes, rises and falls are the
        probabilities'."""
        seq, classes = self.shift.shape
        low, high = self.log_ratio_range()
        p = np.exp(self.log_p)
        x = np.zeros((classes, seq + 1 + 3 * classes))  # ln(q_c / p_c) as a function of the variables
        x[:, :seq], x[:, seq] = self.shift.T, -1
        q, rises, falls = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
        for number, part in enumerate((q, rises, falls)):
            part[:, seq + 1 + number * classes : seq + 1 + (number + 1) * classes] = np.eye(classes)
        bounded = np.isfinite(low)
        # q_c ≤ chord: through the box's two ends, or its top where the bottom is 0
        width = np.where(bounded, high - low, 1)
        floor, ceiling = np.exp(self.log_p + low), np.exp(self.log_p + high)
        steep = np.where(bounded, floor * np.expm1(width) / width, 0)
        base = np.where(bounded, floor - steep * np.where(bounded, low, 0), ceiling)
        rows = [
            (x, high),
            (-x[bounded], -low[bounded]),
            *_tangents(self, x, q),
            (q.sum(0), 1),
            (-(steep @ x), base.sum() - 1),  # Σ chords ≥ 1
            (q - rises, p),
            ((-steep[:, None] * x - falls)[bounded], (base - p)[bounded]),
            (rises.sum(0), self.epsilon),
            (falls.sum(0), self.epsilon),
        ]
        limits = np.concatenate([np.atleast_1d(limit) for _, limit in rows]) + self.rounding
        # |s| ≤ the largest change of a logit: the logarithm of Σ exp changes by no more
        largest = self.mass * np.abs(self.shift).max() + 1e-9
        moves = [0.0, self.epsilon + self.rounding]
        extra = np.array([[-largest, largest], *[[0.0, 1.0]] * classes, *[moves] * (2 * classes)])
        return Outer(np.vstack([np.atleast_2d(row) for row, _ in rows]), limits, extra)


def _tangents(
    example: ClassRegion, x: Float[np.ndarray, "classes variables"], q: Float[np.ndarray, "classes variables"]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows that keep q_c above the tangents of exp(x_c), and their limits.

    One tangent, at p_c, says next to nothing of a class whose probability is far below ε: it may grow a hundredfold.
    """
    p = np.exp(example.log_p)
    tangents = []
    for share in TANGENTS:
        at = p + share * example.epsilon
        there = (at > TINY) & (at < 1)
        ratio = np.log(np.where(there, at, 1)) - example.log_p
        tangents.append(((at[:, None] * x - q)[there], (at * (ratio - 1))[there]))
    return tangents
