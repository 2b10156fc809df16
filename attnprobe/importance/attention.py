"""The model's own attention."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from attnprobe.importance.base import Importance, Subject


@dataclass(frozen=True)
class Attention(Importance):
    """α_t, 0 to 1."""

    name: ClassVar[str] = "attention"
    title: ClassVar[str] = "attention"
    colour: ClassVar[str] = "#E69F00"

    def scores(self, subject: Subject) -> Float[Tensor, "batch seq"]:
        """Weights that sum to 1 over the content."""
        return subject.readout.attention
