"""Lowest attention first: a control."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from attnprobe.importance.base import Importance, Subject


@dataclass(frozen=True)
class Ascending(Importance):
    """The attention upside down: what an importance must beat by far."""

    name: ClassVar[str] = "ascending"
    title: ClassVar[str] = "lowest attention"
    colour: ClassVar[str] = "#56B4E9"
    signed: ClassVar[bool] = True

    def scores(self, subject: Subject) -> Float[Tensor, "batch seq"]:
        """−α_t, −1 to 0."""
        return -subject.readout.attention
