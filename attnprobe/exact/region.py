"""The attentions of one text whose predictions stay within a total variation distance, and how far away each is."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import softmax, xlogy

TVD_MARGIN = 1e-12
"""How far inside ε a solution is sought, so that whoever recomputes its TVD finds it at most ε; at an ε below this,
how far rounding may take it."""


@dataclass(frozen=True)
class Region:
    """One text, its content positions only. `shift[t]` is z_t minus the own attention's mean of z: for every a of mass
    `mass`, Σ a_t shift_t is by how much its logits differ from the model's."""

    alpha: Float[np.ndarray, "seq"]
    shift: Float[np.ndarray, "seq classes"]
    log_p: Float[np.ndarray, "classes"]
    mass: float
    epsilon: float

    def jsd(self, a: Float[np.ndarray, "*samples seq"]) -> Float[np.ndarray, "*samples"]:
        """Jensen-Shannon divergence from the model's attention, in nats."""
        return term(self.alpha, a).sum(-1)

    def feasible(self, a: Float[np.ndarray, "*samples seq"]) -> Bool[np.ndarray, "*samples"]:
        """Whether the prediction stays within ε."""
        return self.tvd(a @ self.shift) <= max(self.epsilon - TVD_MARGIN / 2, TVD_MARGIN)

    def well_within(self, moved: Float[np.ndarray, "*samples classes"]) -> Bool[np.ndarray, "*samples"]:
        """Whether logits that differ by so much from the model's are feasible, whatever their last digits."""
        return self.tvd(moved) <= max(self.epsilon - TVD_MARGIN, TVD_MARGIN / 2)

    def tvd(self, moved: Float[np.ndarray, "*samples classes"]) -> Float[np.ndarray, "*samples"]:
        """Total variation distance from the model's prediction, given by how much the logits differ."""
        return np.abs(softmax(self.log_p + moved, -1) - np.exp(self.log_p)).sum(-1) / 2

    @property
    def rounding(self) -> float:
        """What float64 may lose in the logits: the outer polytope is wider by so much, never narrower."""
        return 1e-12 * (1 + self.mass * float(np.abs(self.shift).max()))

    def log_ratio_range(self) -> tuple[Float[np.ndarray, "classes"], Float[np.ndarray, "classes"]]:
        """Lowest and highest ln(q_c / p_c) within ε; −∞ where q_c may vanish."""
        p = np.exp(self.log_p)
        positive = p > self.epsilon
        low = np.where(positive, np.log(np.where(positive, p - self.epsilon, 1)) - self.log_p, -np.inf)
        high = np.minimum(np.logaddexp(self.log_p, np.log(self.epsilon) if self.epsilon else -np.inf), 0) - self.log_p
        return low - self.rounding, high + self.rounding


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
