"""The attentions of one text whose predictions stay within a distance, and how far away each is."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import expit, softmax, xlogy

TVD_MARGIN = 1e-12
"""How far inside ε a solution is sought, so that whoever recomputes its TVD finds it at most ε; at an ε below this,
how far rounding may take it."""


class Outer(NamedTuple):
    """A polytope around the region, as rows of a linear programme over the weights and some variables of its own:
    rows · v ≤ limits. `extra`: least and most of each of its own variables, which follow the weights."""

    rows: Float[np.ndarray, "rows variables"]
    limits: Float[np.ndarray, "rows"]
    extra: Float[np.ndarray, "more 2"]


@dataclass(frozen=True)
class Region(ABC):
    """One text, its content positions only. `shift[t]` is z_t minus the own attention's mean of z: for every a of mass
    `mass`, Σ a_t shift_t is by how much its logits differ from the model's."""

    alpha: Float[np.ndarray, "seq"]
    shift: Float[np.ndarray, "seq classes"]
    mass: float
    epsilon: float

    @abstractmethod
    def distance(self, moved: Float[np.ndarray, "*samples classes"]) -> Float[np.ndarray, "*samples"]:
        """How far a prediction is from the model's own, 0 to 1, given by how much the logits differ."""

    @abstractmethod
    def halfspaces(self) -> tuple[Float[np.ndarray, "seq constraints"], Float[np.ndarray, "constraints"]]:
        """Linear constraints on the weights alone that every attention of the region meets: a · odds ≤ room."""

    @abstractmethod
    def outer(self) -> Outer:
        """A tighter polytope around the region, with variables of its own."""

    @abstractmethod
    def linearised(
        self, moved: Float[np.ndarray, "classes"]
    ) -> tuple[Float[np.ndarray, "classes"], Float[np.ndarray, "seq classes"], float]:
        """q − p there, the effect of each weight on each probability, and what Σ |q − p| may be."""

    @abstractmethod
    def telling(self, logits: Float[np.ndarray, "*any classes"]) -> Float[np.ndarray, "*any classes"]:
        """The part of a change of the logits that the prediction notices."""

    def jsd(self, a: Float[np.ndarray, "*samples seq"]) -> Float[np.ndarray, "*samples"]:
        """Jensen-Shannon divergence from the model's attention, in nats."""
        return term(self.alpha, a).sum(-1)

    def feasible(self, a: Float[np.ndarray, "*samples seq"]) -> Bool[np.ndarray, "*samples"]:
        """Whether the prediction stays within ε."""
        return self.distance(a @ self.shift) <= max(self.epsilon - TVD_MARGIN / 2, TVD_MARGIN)

    def well_within(self, moved: Float[np.ndarray, "*samples classes"]) -> Bool[np.ndarray, "*samples"]:
        """Whether logits that differ by so much from the model's are feasible, whatever their last digits."""
        return self.distance(moved) <= max(self.epsilon - TVD_MARGIN, TVD_MARGIN / 2)

    @property
    def rounding(self) -> float:
        """What float64 may lose in the logits: the outer polytope is wider by so much, never narrower."""
        return 1e-12 * (1 + self.mass * float(np.abs(self.shift).max()))


class Incumbent:
    """The best feasible attention so far, at first the model's own."""

    def __init__(self, example: Region) -> None:
        self.example, self.attention, self.jsd = example, example.alpha, 0.0

    def offer_all(self, candidates: Float[np.ndarray, "samples seq"]) -> bool:
        """Keep the farthest feasible one of several if it is farther than what we have. Was any feasible?"""
        # what a solver left of the mass by rounding is judged and kept as it will be read: with all of it
        total = candidates.sum(-1, keepdims=True)
        candidates = candidates * np.divide(self.example.mass, total, out=np.ones_like(total), where=total > 0)
        values = np.where(self.example.feasible(candidates), self.example.jsd(candidates), -np.inf)
        if len(values) and values.max() > self.jsd:
            self.attention, self.jsd = candidates[values.argmax()], float(values.max())
        return bool((values > -np.inf).any())


def term(alpha: np.ndarray, a: np.ndarray) -> np.ndarray:
    """f(α, a) = ½ [α ln(2α/(α+a)) + a ln(2a/(α+a))], elementwise."""
    total = alpha + a
    return np.maximum(total * np.log(2) + xlogy(alpha, alpha) + xlogy(a, a) - xlogy(total, total), 0) / 2


def moved_term(alpha: np.ndarray, a: np.ndarray) -> np.ndarray:
    """f(α, a) − f(α, 0): what weight a adds to the JSD of an attention that leaves this position empty."""
    return term(alpha, a) - alpha * np.log(2) / 2


# The region of exclusive classes: total variation distance of two softmaxes (`attnprobe.exact.certified` has the proof).


TANGENTS = (0.0, 0.05, 0.15, 0.35, 0.65, 1.0)
"""Where exp is touched from below: at p_c + so much of ε."""
TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True)
class ClassRegion(Region):
    """`log_p`: the model's own log probabilities."""

    log_p: Float[np.ndarray, "classes"]

    def distance(self, moved: Float[np.ndarray, "*samples classes"]) -> Float[np.ndarray, "*samples"]:
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
        # q_c ≥ the tangents of exp(x_c). One, at p_c, says next to nothing of a class whose probability is far below ε:
        # it may grow a hundredfold
        tangents = []
        for share in TANGENTS:
            at = p + share * self.epsilon
            there = (at > TINY) & (at < 1)
            ratio = np.log(np.where(there, at, 1)) - self.log_p
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
        limits = np.concatenate([np.atleast_1d(limit) for _, limit in rows]) + self.rounding
        # |s| ≤ the largest change of a logit: the logarithm of Σ exp changes by no more
        largest = self.mass * np.abs(self.shift).max() + 1e-9
        moves = [0.0, self.epsilon + self.rounding]
        extra = np.array([[-largest, largest], *[[0.0, 1.0]] * classes, *[moves] * (2 * classes)])
        return Outer(np.vstack([np.atleast_2d(row) for row, _ in rows]), limits, extra)


# The region of several labels at once: the mean, over the labels, of by how much each probability changes.
#
# *Outer polytope.* q_c = σ(own_c + x_c), and x_c = Σ a_t shift_tc is linear in the weights. A mean of ε over C labels lets no
# label move by more than Cε, which bounds each x_c. From x = 0 to such a bound the slope of the secant, (σ(own + x) −
# σ(own)) / x, is a mean of σ′ over an interval that grows from one end; σ′ rises and then falls, so the mean does too,
# and is smallest at an end: at 0 or at the bound. With this least slope m, |q_c − p_c| ≥ m |x_c|, and Σ m |x_c| ≤ Cε is
# linear in |x_c|, split into rises and falls.


@dataclass(frozen=True)
class LabelRegion(Region):
    """`own`: the model's own logits, one per label."""

    own: Float[np.ndarray, "labels"]

    def distance(self, moved: Float[np.ndarray, "*samples labels"]) -> Float[np.ndarray, "*samples"]:
        return np.abs(expit(self.own + moved) - expit(self.own)).mean(-1)

    @property
    def budget(self) -> float:
        return len(self.own) * self.epsilon

    def moves(self) -> tuple[Float[np.ndarray, "labels"], Float[np.ndarray, "labels"]]:
        """Least and largest x_c at which label c alone stays within the budget; ±∞ where it always does."""
        p, against = expit(self.own), expit(-self.own)  # not 1 − p: it keeps its digits where p rounds to 1
        with np.errstate(divide="ignore", invalid="ignore"):
            low = np.where(
                p > self.budget, (np.log(p - self.budget) - np.log(against + self.budget)) - self.own, -np.inf
            )
            high = np.where(
                against > self.budget, (np.log(p + self.budget) - np.log(against - self.budget)) - self.own, np.inf
            )
        return np.minimum(low, 0) - self.rounding, np.maximum(high, 0) + self.rounding

    def halfspaces(self) -> tuple[Float[np.ndarray, "seq constraints"], Float[np.ndarray, "constraints"]]:
        """Each label alone, where it is bounded."""
        low, high = self.moves()
        below, above = np.isfinite(low), np.isfinite(high)
        return np.hstack([self.shift[:, above], -self.shift[:, below]]), np.r_[high[above], -low[below]]

    def linearised(
        self, moved: Float[np.ndarray, "labels"]
    ) -> tuple[Float[np.ndarray, "labels"], Float[np.ndarray, "seq labels"], float]:
        q = expit(self.own + moved)
        return q - expit(self.own), self.shift * (q * expit(-self.own - moved)), self.budget

    def telling(self, logits: Float[np.ndarray, "*any labels"]) -> Float[np.ndarray, "*any labels"]:
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
