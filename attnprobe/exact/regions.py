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
"""Shares of ε above p_c at which a tangent of exp bounds q_c from below."""
TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True)
class LogitBounds:
    """How far each logit may move while the prediction stays within ε.

    Attributes:
        low: least ln(q_c / p_c) of each class, or least change of each label's logit; −∞ where
            there is no limit.
        high: the greatest, likewise; ∞ where there is no limit.
        rounding: what float64 may lose in the logits. `low` and `high` are wider by it already,
            and the outer polytope is made wider by it too.
    """

    low: Float[np.ndarray, "classes"]
    high: Float[np.ndarray, "classes"]
    rounding: float


@dataclass(frozen=True)
class Linearisation:
    """The prediction near one point, as a linear function of the weights.

    Attributes:
        change: q − p at that point.
        effect: derivative of each probability by each weight.
        budget: what Σ |q − p| may be at most.
    """

    change: Float[np.ndarray, "classes"]
    effect: Float[np.ndarray, "seq classes"]
    budget: float


@dataclass(frozen=True)
class OuterPolytope:
    """A polytope around a region, over the weights and further variables that follow them.

    Attributes:
        constraints: pairs (rows, limits), each of which means rows · v ≤ limits.
        extra_bounds: the least and the greatest value of each further variable.
    """

    constraints: list[tuple[Any, Any]]
    extra_bounds: Float[np.ndarray, "extra 2"]


@dataclass(frozen=True)
class Region:
    """The attentions of one text that keep its prediction within ε; content positions only.

    Attributes:
        alpha: the model's attention, which sums to `mass`.
        shift: z_t minus the mean of z under the model's attention: for every attention a of that
            mass, Σ a_t shift_t is the difference between its logits and the model's.
        mass: total weight of the content positions.
        epsilon: greatest allowed total variation distance; of labels, greatest mean change.
        model_scores: the model's log probabilities; of labels, its logits.
        exclusive: whether one class is right; otherwise labels, each a sigmoid of its own logit.
    """

    alpha: Float[np.ndarray, "seq"]
    shift: Float[np.ndarray, "seq classes"]
    mass: float
    epsilon: float
    model_scores: Float[np.ndarray, "classes"]
    exclusive: bool

    def within(
        self, moved: Float[np.ndarray, "*samples classes"], *, well: bool = False
    ) -> Bool[np.ndarray, "*samples"]:
        """Whether predictions stay within ε.

        Args:
            moved: change of the logits.
            well: ask for a margin, so that the answer holds whatever the logits' last digits are.
        """
        if self.exclusive:
            distance = (
                np.abs(softmax(self.model_scores + moved, -1) - np.exp(self.model_scores)).sum(-1)
                / 2
            )
        else:
            distance = np.abs(expit(self.model_scores + moved) - expit(self.model_scores)).mean(-1)

        margin = TVD_MARGIN if well else TVD_MARGIN / 2
        smallest_limit = TVD_MARGIN / 2 if well else TVD_MARGIN
        return distance <= max(self.epsilon - margin, smallest_limit)

    def logit_bounds(self) -> LogitBounds:
        """How far each logit may move within ε, a little wider than float64 can tell."""
        rounding = 1e-12 * (1 + self.mass * float(np.abs(self.shift).max()))
        low, high = self._class_bounds() if self.exclusive else self._label_bounds()
        return LogitBounds(low - rounding, high + rounding, rounding)

    def _class_bounds(self) -> tuple[Float[np.ndarray, "classes"], Float[np.ndarray, "classes"]]:
        """ln((p_c − ε) / p_c) and ln(min(p_c + ε, 1) / p_c)."""
        p = np.exp(self.model_scores)
        bounded = p > self.epsilon
        low = np.where(
            bounded, np.log(np.where(bounded, p - self.epsilon, 1)) - self.model_scores, -np.inf
        )

        log_epsilon = np.log(self.epsilon) if self.epsilon else -np.inf
        high = np.minimum(np.logaddexp(self.model_scores, log_epsilon), 0) - self.model_scores
        return low, high

    def _label_bounds(self) -> tuple[Float[np.ndarray, "labels"], Float[np.ndarray, "labels"]]:
        """Changes of each logit that use up the whole budget.

        A mean of ε over C labels lets one label move by Cε.
        """
        budget = len(self.model_scores) * self.epsilon
        p = expit(self.model_scores)
        q = expit(-self.model_scores)  # not 1 − p: it keeps its digits where p rounds to 1
        with np.errstate(divide="ignore", invalid="ignore"):
            lowest_logit = np.log(p - budget) - np.log(q + budget)
            highest_logit = np.log(p + budget) - np.log(q - budget)
        low = np.where(p > budget, lowest_logit - self.model_scores, -np.inf)
        high = np.where(q > budget, highest_logit - self.model_scores, np.inf)
        return np.minimum(low, 0), np.maximum(high, 0)

    def halfspaces(
        self,
    ) -> tuple[Float[np.ndarray, "seq constraints"], Float[np.ndarray, "constraints"]]:
        """Linear constraints on the weights alone that every attention of the region meets.

        Returns:
            `odds` and `room` with a · odds ≤ room: the log-odds of every two classes, or each
            label's logit where it is bounded.
        """
        bounds = self.logit_bounds()
        has_low = np.isfinite(bounds.low)
        if self.exclusive:
            over, under = np.nonzero(has_low[None, :] & ~np.eye(len(bounds.low), dtype=bool))
            odds = self.shift[:, over] - self.shift[:, under]
            return odds, bounds.high[over] - bounds.low[under]

        has_high = np.isfinite(bounds.high)
        odds = np.hstack([self.shift[:, has_high], -self.shift[:, has_low]])
        return odds, np.r_[bounds.high[has_high], -bounds.low[has_low]]

    def linearised(self, moved: Float[np.ndarray, "classes"]) -> Linearisation:
        """The prediction as a linear function of the weights, where the logits have moved."""
        if self.exclusive:
            q = softmax(self.model_scores + moved)
            effect = q * (self.shift - self.shift @ q[:, None])
            return Linearisation(q - np.exp(self.model_scores), effect, 2 * self.epsilon)

        q = expit(self.model_scores + moved)
        effect = self.shift * (q * expit(-self.model_scores - moved))
        return Linearisation(
            q - expit(self.model_scores), effect, len(self.model_scores) * self.epsilon
        )

    def outer_polytope(self) -> OuterPolytope:
        """A polytope around the region that is tighter than `halfspaces`."""
        return self._outer_of_classes() if self.exclusive else self._outer_of_labels()

    def _outer_of_classes(self) -> OuterPolytope:
        """Over (a, s, q, rises, falls), for exclusive classes.

        s is the change of the normaliser's logarithm, q the probabilities, rises and falls by how
        much they go up and down. `attnprobe.exact.certified` has the proof.
        """
        seq, classes = self.shift.shape
        bounds = self.logit_bounds()
        p = np.exp(self.model_scores)

        # each of these selects, or computes, one number per class from the vector of variables
        log_ratio = np.zeros((classes, seq + 1 + 3 * classes))  # ln(q_c / p_c)
        log_ratio[:, :seq] = self.shift.T
        log_ratio[:, seq] = -1
        q = np.zeros_like(log_ratio)
        rises = np.zeros_like(log_ratio)
        falls = np.zeros_like(log_ratio)
        for number, selector in enumerate((q, rises, falls)):
            first = seq + 1 + number * classes
            selector[:, first : first + classes] = np.eye(classes)

        bounded = np.isfinite(bounds.low)
        steepness, base = self._chords(bounds)
        constraints = [
            (log_ratio, bounds.high),
            (-log_ratio[bounded], -bounds.low[bounded]),
            *self._tangents(log_ratio, q),
            (q.sum(0), 1),
            (-(steepness @ log_ratio), base.sum() - 1),  # Σ chords ≥ 1
            (q - rises, p),
            ((-steepness[:, None] * log_ratio - falls)[bounded], (base - p)[bounded]),
            (rises.sum(0), self.epsilon),
            (falls.sum(0), self.epsilon),
        ]
        return OuterPolytope(constraints, self._class_variable_bounds(bounds.rounding))

    def _class_variable_bounds(self, rounding: float) -> Float[np.ndarray, "extra 2"]:
        """The least and the greatest value of s, each q, each rise and each fall."""
        classes = len(self.model_scores)
        # |s| ≤ the largest change of a logit: the logarithm of Σ exp changes by no more
        largest = self.mass * np.abs(self.shift).max() + 1e-9
        move = [0.0, self.epsilon + rounding]
        return np.array([[-largest, largest]] + [[0.0, 1.0]] * classes + [move] * (2 * classes))

    def _chords(
        self, bounds: LogitBounds
    ) -> tuple[Float[np.ndarray, "classes"], Float[np.ndarray, "classes"]]:
        """Steepness and base of q_c ≤ base + steepness · ln(q_c / p_c).

        The chord of exp through the box's two ends; the box's top where its bottom is 0.
        """
        bounded = np.isfinite(bounds.low)
        width = np.where(bounded, bounds.high - bounds.low, 1)
        floor = np.exp(self.model_scores + bounds.low)
        ceiling = np.exp(self.model_scores + bounds.high)
        steepness = np.where(bounded, floor * np.expm1(width) / width, 0)
        base = np.where(bounded, floor - steepness * np.where(bounded, bounds.low, 0), ceiling)
        return steepness, base

    def _tangents(
        self,
        log_ratio: Float[np.ndarray, "classes variables"],
        q: Float[np.ndarray, "classes variables"],
    ) -> list[tuple[Any, Any]]:
        """q_c ≥ the tangents of exp at several points, as constraints.

        One tangent, at p_c, says next to nothing of a class whose probability is far below ε: it
        may grow a hundredfold.
        """
        p = np.exp(self.model_scores)
        constraints = []
        for share in TANGENTS:
            point = p + share * self.epsilon
            usable = (point > TINY) & (point < 1)
            point_ratio = np.log(np.where(usable, point, 1)) - self.model_scores
            rows = point[:, None] * log_ratio - q
            limits = point * (point_ratio - 1)
            constraints.append((rows[usable], limits[usable]))
        return constraints

    def _outer_of_labels(self) -> OuterPolytope:
        """Over (a, rises, falls): by how much each logit rises or falls.

        q_c = σ(own_c + x_c), and x_c = Σ a_t shift_tc is linear in the weights. A mean of ε over C
        labels lets no label move by more than Cε, which bounds each x_c. From x = 0 to such a bound
        the slope of the secant, (σ(own + x) − σ(own)) / x, is a mean of σ′ over an interval that
        grows from one end; σ′ rises and then falls, so the mean does too, and is smallest at an
        end: at 0 or at the bound. With this least slope m, |q_c − p_c| ≥ m |x_c|, and Σ m |x_c| ≤
        Cε is linear in |x_c|, split into rises and falls.
        """
        seq, labels = self.shift.shape
        bounds = self.logit_bounds()
        # no attention moves a logit farther than this
        least_move = self.mass * self.shift.min(0)
        greatest_move = self.mass * self.shift.max(0)
        low = np.maximum(bounds.low, least_move - bounds.rounding)
        high = np.minimum(bounds.high, greatest_move + bounds.rounding)

        # each of these selects, or computes, one number per label from the vector of variables
        change = np.hstack([self.shift.T, np.zeros((labels, 2 * labels))])
        rises = np.zeros_like(change)
        rises[:, seq : seq + labels] = np.eye(labels)
        falls = np.zeros_like(change)
        falls[:, seq + labels :] = np.eye(labels)

        slope_at_zero = secant_slope(self.model_scores, np.zeros(labels))
        upwards = np.minimum(slope_at_zero, secant_slope(self.model_scores, high))
        downwards = np.minimum(slope_at_zero, secant_slope(self.model_scores, low))
        constraints = [
            (change, high),
            (-change, -low),
            (change - rises, np.zeros(labels)),
            (-change - falls, np.zeros(labels)),
            (upwards @ rises + downwards @ falls, labels * self.epsilon),
        ]
        greatest = np.r_[np.maximum(high, 0), np.maximum(-low, 0)] + bounds.rounding
        return OuterPolytope(constraints, np.stack([np.zeros(2 * labels), greatest], 1))


@dataclass
class Incumbent:
    """The farthest feasible attention found so far, at first the model's own.

    Attributes:
        example: the region that candidates have to lie in.
        attention: of content positions, with the mass of the region.
        jsd: its distance from the model's attention, in nats.
    """

    example: Region
    attention: Float[np.ndarray, "seq"]
    jsd: float = 0.0

    def offer_all(self, candidates: Float[np.ndarray, "samples seq"]) -> bool:
        """Keep the farthest feasible candidate if it is farther than the incumbent.

        Returns:
            Whether any candidate was feasible.
        """
        # solvers lose some of the mass by rounding: a candidate is judged, and kept, with all of it
        total = candidates.sum(-1, keepdims=True)
        rescaling = np.divide(self.example.mass, total, out=np.ones_like(total), where=total > 0)
        candidates = candidates * rescaling

        feasible = self.example.within(candidates @ self.example.shift)
        jsd = np.where(feasible, jsd_terms(self.example.alpha, candidates).sum(-1), -np.inf)
        if len(jsd) and jsd.max() > self.jsd:
            self.attention = candidates[jsd.argmax()]
            self.jsd = float(jsd.max())
        return bool((jsd > -np.inf).any())


def jsd_terms(alpha: np.ndarray, a: np.ndarray) -> np.ndarray:
    """The summands of the Jensen-Shannon divergence, elementwise, in nats.

    f(α, a) = ½ [α ln(2α/(α+a)) + a ln(2a/(α+a))], rearranged so that no quotient is 0/0.
    """
    total = alpha + a
    doubled = total * np.log(2) + xlogy(alpha, alpha) + xlogy(a, a) - xlogy(total, total)
    return np.maximum(doubled, 0) / 2


def secant_slope(
    logits: Float[np.ndarray, "labels"], x: Float[np.ndarray, "labels"]
) -> Float[np.ndarray, "labels"]:
    """Slope of the secant of σ from the model's own logit to x farther.

    Near 0, where the quotient loses its digits, it is the tangent's. Both are made a little less
    steep, so that rounding never makes them steeper than they are.
    """
    tangent = expit(logits) * expit(-logits)
    is_far = np.abs(x) > 1e-6
    secant = (expit(logits + x) - expit(logits)) / np.where(is_far, x, 1)
    return np.where(is_far, np.maximum(secant - 1e-9, 0), np.maximum(tangent - 1e-6, 0))
