"""Early words are important: a floor that reads no word."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from attnprobe.importance.base import Importance, Subject


@dataclass(frozen=True)
class Position(Importance):
    """1 / (number of the position from 1), 0 to 1: the first item first."""

    name: ClassVar[str] = "position"
    title: ClassVar[str] = "position, first first"
    colour: ClassVar[str] = "#777777"
    shares: ClassVar[bool] = True

    def scores(self, subject: Subject) -> Float[Tensor, "batch seq"]:
        """0 to 1."""
        content = subject.outputs.content
        return (1 / content.long().cumsum(-1).clamp(min=1).double()).masked_fill(~content, 0)
