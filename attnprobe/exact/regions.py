"""The attentions of one text whose predictions stay within a distance, and how far away each is."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import expit, softmax, xlogy

TVD_MARGIN = 1e-12
"""How far inside ε a solution is sought, so that whoever recomputes its TVD finds it at most ε; at
an ε below this, how far rounding may take it."""
TANGENTS = (0.0, 0.05, 0.15, 0.35, 0.65, 1.0)
"""Where exp is touched from below: at p_c + so much of ε."""
TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True)
class Region:
    """One text, its content positions only.

    Attributes:
        alpha: the model's attention, of which there is `mass`.
        shift: z_t minus the own attention's mean of z: for every a of that mass, Σ a_t shift_t is
            by how much its logits differ from the model's.
        own: the model's log probabilities; of labels its logits.
        exclusive: one of the classes; else labels, each a sigmoid of its own logit.
    """

    alpha: Float[np.ndarray, "seq"]
    shift: Float[np.ndarray, "seq classes"]
    mass: float
    epsilon: float
    own: Float[np.ndarray, "classes"]
    exclusive: bool

    def within(
        self, moved: Float[np.ndarray, "*samples classes"], *, well: bool = False
    ) -> Bool[np.ndarray, "*samples"]:
        """Whether predictions whose logits differ by so much stay within ε; `well`: whatever the
        logits' last digits."""
        if self.exclusive:
            apart = np.abs(softmax(self.own + moved, -1) - np.exp(self.own)).sum(-1) / 2
        else:
            apart = np.abs(expit(self.own + moved) - expit(self.own)).mean(-1)
        inside, least = (TVD_MARGIN, TVD_MARGIN / 2) if well else (TVD_MARGIN / 2, TVD_MARGIN)
        return apart <= max(self.epsilon - inside, least)

    def ranges(self) -> tuple[Float[np.ndarray, "classes"], Float[np.ndarray, "classes"], float]:
        """Least and largest ln(q_c / p_c) within ε, of labels least and largest change of each
        logit; infinite where there is no limit. And what float64 may lose in the logits: these and
        the outer polytope are wider by so much."""
        rounding = 1e-12 * (1 + self.mass * float(np.abs(self.shift).max()))
        if self.exclusive:
            p = np.exp(self.own)
            of_epsilon = np.log(self.epsilon) if self.epsilon else -np.inf
            positive = p > self.epsilon
            low = np.where(
                positive, np.log(np.where(positive, p - self.epsilon, 1)) - self.own, -np.inf
            )
            return (
                low - rounding,
                np.minimum(np.logaddexp(self.own, of_epsilon), 0) - self.own + rounding,
                rounding,
            )
        p = expit(self.own)
        q = expit(-self.own)
        budget = len(self.own) * self.epsilon
        # q is not 1 − p: it keeps its digits where p rounds to 1
        with np.errstate(divide="ignore", invalid="ignore"):
            low = np.where(
                p > budget, (np.log(p - budget) - np.log(q + budget)) - self.own, -np.inf
            )
            high = np.where(
                q > budget, (np.log(p + budget) - np.log(q - budget)) - self.own, np.inf
            )
        return np.minimum(low, 0) - rounding, np.maximum(high, 0) + rounding, rounding

    def halfspaces(
        self,
    ) -> tuple[Float[np.ndarray, "seq constraints"], Float[np.ndarray, "constraints"]]:
        """Linear constraints on the weights alone that every attention of the region meets, a ·
        odds ≤ room: the log-odds of every two classes; each label alone, where it is bounded."""
        low, high, _ = self.ranges()
        below = np.isfinite(low)
        above = np.isfinite(high)
        if self.exclusive:
            over, under = np.nonzero(below[None, :] & ~np.eye(len(low), dtype=bool))
            return self.shift[:, over] - self.shift[:, under], high[over] - low[under]
        return np.hstack([self.shift[:, above], -self.shift[:, below]]), np.r_[
            high[above], -low[below]
        ]

    def linearised(
        self, moved: Float[np.ndarray, "classes"]
    ) -> tuple[Float[np.ndarray, "classes"], Float[np.ndarray, "seq classes"], float]:
        """q − p there, the effect of each weight on each probability, and what Σ |q − p| may be."""
        if self.exclusive:
            q = softmax(self.own + moved)
            return (
                q - np.exp(self.own),
                q * (self.shift - self.shift @ q[:, None]),
                2 * self.epsilon,
            )
        q = expit(self.own + moved)
        effect = self.shift * (q * expit(-self.own - moved))
        return q - expit(self.own), effect, len(self.own) * self.epsilon

    def outer_of_classes(self) -> tuple[list[tuple[Any, Any]], Float[np.ndarray, "more 2"]]:
        """A tighter polytope around the region, as rows of a linear programme, row · v ≤ limit,
        over the weights and some variables of its own, which follow them; and the least and the
        most of each of these.

        Over (a, s, rises, falls): s is by how much the logarithm of the normaliser changes, rises
        and falls are the probabilities'. `attnprobe.exact.certified` has the proof."""
        seq, classes = self.shift.shape
        low, high, rounding = self.ranges()
        p = np.exp(self.own)
        x = np.zeros(
            (classes, seq + 1 + 3 * classes)
        )  # ln(q_c / p_c) as a function of the variables
        x[:, :seq], x[:, seq] = self.shift.T, -1
        q = np.zeros_like(x)
        rises = np.zeros_like(x)
        falls = np.zeros_like(x)
        for number, part in enumerate((q, rises, falls)):
            part[:, seq + 1 + number * classes : seq + 1 + (number + 1) * classes] = np.eye(classes)
        bounded = np.isfinite(low)
        # q_c ≤ chord: through the box's two ends, or its top where the bottom is 0
        width = np.where(bounded, high - low, 1)
        floor = np.exp(self.own + low)
        ceiling = np.exp(self.own + high)
        steep = np.where(bounded, floor * np.expm1(width) / width, 0)
        base = np.where(bounded, floor - steep * np.where(bounded, low, 0), ceiling)
        # q_c ≥ the tangents of exp(x_c). One, at p_c, says next to nothing of a class whose
        # probability is far below ε: it may grow a hundredfold
        tangents = []
        for share in TANGENTS:
            at = p + share * self.epsilon
            there = (at > TINY) & (at < 1)
            ratio = np.log(np.where(there, at, 1)) - self.own
            tangents.append(((at[:, None] * x - q)[there], (at * (ratio - 1))[there]))
        rows = [
            (x, high),
            (-x[bounded], -low[bounded]),
            *tangents,
            (q.sum(0), 1),
            (-(steep @ x), base.sum() - 1),  # Σ chords ≥ 1
            (q - rises, p),
            ((-steep[:, None] * x - falls)[bounded], (base - p)[bounded]),
            (rises.sum(0), self.epsilon),
            (falls.sum(0), self.epsilon),
        ]
        # |s| ≤ the largest change of a logit: the logarithm of Σ exp changes by no more
        largest = self.mass * np.abs(self.shift).max() + 1e-9
        moves = [0.0, self.epsilon + rounding]
        return rows, np.array(
            [[-largest, largest], *[[0.0, 1.0]] * classes, *[moves] * (2 * classes)]
        )

    def outer_of_labels(self) -> tuple[list[tuple[Any, Any]], Float[np.ndarray, "more 2"]]:
        """The same over (a, rises, falls): by how much each logit rises or falls.

        q_c = σ(own_c + x_c), and x_c = Σ a_t shift_tc is linear in the weights. A mean of ε over C
        labels lets no label move by more than Cε, which bounds each x_c. From x = 0 to such a bound
        the slope of the secant, (σ(own + x) − σ(own)) / x, is a mean of σ′ over an interval that
        grows from one end; σ′ rises and then falls, so the mean does too, and is smallest at an
        end: at 0 or at the bound. With this least slope m, |q_c − p_c| ≥ m |x_c|, and Σ m |x_c| ≤
        Cε is linear in |x_c|, split into rises and falls."""
        seq, labels = self.shift.shape
        low, high, rounding = self.ranges()
        # no attention moves a logit farther than this
        least, most = (self.mass * edge for edge in (self.shift.min(0), self.shift.max(0)))
        low = np.maximum(low, least - rounding)
        high = np.minimum(high, most + rounding)
        x = np.hstack([self.shift.T, np.zeros((labels, 2 * labels))])
        rises = np.zeros_like(x)
        falls = np.zeros_like(x)
        rises[:, seq : seq + labels] = falls[:, seq + labels :] = np.eye(labels)
        at_0 = slope(self.own, np.zeros(labels))
        upwards, downwards = (np.minimum(at_0, slope(self.own, end)) for end in (high, low))
        rows = [
            (x, high),
            (-x, -low),
            (x - rises, np.zeros(labels)),
            (-x - falls, np.zeros(labels)),
            (upwards @ rises + downwards @ falls, labels * self.epsilon),
        ]
        return rows, np.stack(
            [np.zeros(2 * labels), np.r_[np.maximum(high, 0), np.maximum(-low, 0)] + rounding], 1
        )


@dataclass
class Incumbent:
    """The best feasible attention so far, at first the model's own."""

    example: Region
    attention: Float[np.ndarray, "seq"]
    jsd: float = 0.0

    def offer_all(self, candidates: Float[np.ndarray, "samples seq"]) -> bool:
        """Keep the farthest feasible one of several if it is farther than what we have. Was any
        feasible?"""
        # what a solver left of the mass by rounding is judged and kept as it will be read: with all
        # of it
        total = candidates.sum(-1, keepdims=True)
        candidates = candidates * np.divide(
            self.example.mass, total, out=np.ones_like(total), where=total > 0
        )
        feasible = self.example.within(candidates @ self.example.shift)
        values = np.where(feasible, term(self.example.alpha, candidates).sum(-1), -np.inf)
        if len(values) and values.max() > self.jsd:
            self.attention = candidates[values.argmax()]
            self.jsd = float(values.max())
        return bool((values > -np.inf).any())


def term(alpha: np.ndarray, a: np.ndarray) -> np.ndarray:
    """f(α, a) = ½ [α ln(2α/(α+a)) + a ln(2a/(α+a))], elementwise: the JSD's summands, in nats."""
    total = alpha + a
    return (
        np.maximum(total * np.log(2) + xlogy(alpha, alpha) + xlogy(a, a) - xlogy(total, total), 0)
        / 2
    )


def slope(
    own: Float[np.ndarray, "labels"], x: Float[np.ndarray, "labels"]
) -> Float[np.ndarray, "labels"]:
    """Of the secant of σ from the model's own logit to x farther; at 0, where it is hardly defined,
    of the tangent."""
    tangent = expit(own) * expit(-own)
    far = np.abs(x) > 1e-6
    secant = (expit(own + x) - expit(own)) / np.where(far, x, 1)
    # rounding must not make it steeper than it is
    return np.where(far, np.maximum(secant - 1e-9, 0), np.maximum(tangent - 1e-6, 0))
