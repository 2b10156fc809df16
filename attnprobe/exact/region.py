"""The attentions of one text whose predictions stay within a distance, and how far away each is."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import xlogy

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
