"""The region of several labels at once: the mean, over the labels, of by how much each probability changes.

*Outer polytope.* q_c = σ(own_c + x_c), and x_c = Σ a_t shift_tc is linear in the weights. A mean of ε over C labels lets no
label move by more than Cε, which bounds each x_c. From x = 0 to such a bound the slope of the secant,
(σ(own + x) − σ(own)) / x, is a mean of σ′ over an interval that grows from one end; σ′ rises and then falls, so the mean does
too, and is smallest at an end: at 0 or at the bound. With this least slope m, |q_c − p_c| ≥ m |x_c|, and Σ m |x_c| ≤ Cε is
linear in |x_c|, split into rises and falls.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import expit

from attnprobe.exact.region import Outer, Region


@dataclass(frozen=True)
class LabelRegion(Region):
    """`own`: the model's own logits, one per label."""

    own: Float[np.ndarray, "labels"]

    def distance(self, moved: Float[np.ndarray, "*samples labels"]) -> Float[np.ndarray, "*samples"]:
        """The mean of each label's total variation."""
        return np.abs(expit(self.own + moved) - expit(self.own)).mean(-1)

    @property
    def budget(self) -> float:
        """What Σ |q − p| may be."""
        return len(self.own) * self.epsilon

    def moves(self) -> tuple[Float[np.ndarray, "labels"], Float[np.ndarray, "labels"]]:
        """Least and largest x_c at which label c alone stays within the budget; ±∞ where it always does."""
        p, against = expit(self.own), expit(-self.own)  # not 1 − p: it keeps its digits where p rounds to 1
        with np.errstate(divide="ignore", invalid="ignore"):
            low = np.where(p > self.budget, _log_odds(p - self.budget, against + self.budget) - self.own, -np.inf)
            high = np.where(against > self.budget, _log_odds(p + self.budget, against - self.budget) - self.own, np.inf)
        return np.minimum(low, 0) - self.rounding, np.maximum(high, 0) + self.rounding

    def halfspaces(self) -> tuple[Float[np.ndarray, "seq constraints"], Float[np.ndarray, "constraints"]]:
        """Each label alone, where it is bounded."""
        low, high = self.moves()
        below, above = np.isfinite(low), np.isfinite(high)
        return np.hstack([self.shift[:, above], -self.shift[:, below]]), np.r_[high[above], -low[below]]

    def linearised(
        self, moved: Float[np.ndarray, "labels"]
    ) -> tuple[Float[np.ndarray, "labels"], Float[np.ndarray, "seq labels"], float]:
        """Of each sigmoid."""
        q = expit(self.own + moved)
        return q - expit(self.own), self.shift * (q * expit(-self.own - moved)), self.budget

    def telling(self, logits: Float[np.ndarray, "*any labels"]) -> Float[np.ndarray, "*any labels"]:
        """All of it."""
        return logits

    def outer(self) -> Outer:
        """Over (a, rises, falls): by how much each logit rises or falls."""
        seq, labels = self.shift.shape
        low, high = self.moves()
        # no attention moves a logit farther than this
        least, most = (self.mass * edge for edge in (self.shift.min(0), self.shift.max(0)))
        low, high = np.maximum(low, least - self.rounding), np.minimum(high, most + self.rounding)
        x = np.hstack([self.shift.T, np.zeros((labels, 2 * labels))])
        rises, falls = np.zeros_like(x), np.zeros_like(x)
        rises[:, seq : seq + labels] = falls[:, seq + labels :] = np.eye(labels)
        upwards, downwards = (np.minimum(self._slope(np.zeros(labels)), self._slope(end)) for end in (high, low))
        rows = [
            (x, high),
            (-x, -low),
            (x - rises, np.zeros(labels)),
            (-x - falls, np.zeros(labels)),
            (upwards @ rises + downwards @ falls, self.budget),
        ]
        limits = np.concatenate([np.atleast_1d(limit) for _, limit in rows]) + self.rounding
        extra = np.stack([np.zeros(2 * labels), np.r_[np.maximum(high, 0), np.maximum(-low, 0)] + self.rounding], 1)
        return Outer(np.vstack([np.atleast_2d(row) for row, _ in rows]), limits, extra)

    def _slope(self, x: Float[np.ndarray, "labels"]) -> Float[np.ndarray, "labels"]:
        """Of the secant of σ from the model's own logit to x farther; at 0, where it is hardly defined, of the tangent."""
        tangent = expit(self.own) * expit(-self.own)
        far = np.abs(x) > 1e-6
        secant = (expit(self.own + x) - expit(self.own)) / np.where(far, x, 1)
        # rounding must not make it steeper than it is
        return np.where(far, np.maximum(secant - 1e-9, 0), np.maximum(tangent - 1e-6, 0))


def _log_odds(p: np.ndarray, against: np.ndarray) -> np.ndarray:
    return np.log(p) - np.log(against)
