"""Gradient by the weight, times the weight."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from attnprobe.importance.base import Importance, Subject


@dataclass(frozen=True)
class GradientAttention(Importance):
    """α_t ∂p/∂α_t, p the probability of the predicted class, signed (Serrano & Smith 2019, section 4)."""

    name: ClassVar[str] = "gradient_attention"
    title: ClassVar[str] = "gradient × attention"
    colour: ClassVar[str] = "#D55E00"
    signed: ClassVar[bool] = True

    def scores(self, subject: Subject) -> Float[Tensor, "batch seq"]:
        """Signed."""
        return subject.scores("attention_gradient") * subject.scores("attention")
