"""Attention times the length of what it attends to."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from attnprobe.importance.base import Importance, Subject


@dataclass(frozen=True)
class ValueNorm(Importance):
    """α_t ‖h_t‖, 0 or more: the size of what a position adds to the attended vector.

    Kobayashi et al. 2020, for one pooled layer.
    """

    name: ClassVar[str] = "value_norm"
    title: ClassVar[str] = "attention × norm"
    colour: ClassVar[str] = "#CC79A7"
    shares: ClassVar[bool] = True

    def is_defined(self, subject: Subject) -> bool:
        """Not of a model that does not show what it attends to."""
        return subject.outputs.hidden.shape[-1] > 0

    def scores(self, subject: Subject) -> Float[Tensor, "batch seq"]:
        """0 or more."""
        return subject.readout.attention * subject.outputs.hidden.detach().double().norm(dim=-1)
