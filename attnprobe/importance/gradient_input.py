"""Gradient × input, signed."""

from dataclasses import dataclass
from typing import ClassVar

from captum.attr import InputXGradient
from jaxtyping import Float
from torch import Tensor

from attnprobe.importance.attribution import Attribution
from attnprobe.importance.base import Subject


@dataclass(frozen=True)
class GradientInput(Attribution):
    """Word vector · ∂target/∂word vector, signed, the attention reacting too (captum; Shrikumar et al. 2016).

    Note:
        The importance `gradient` is Jain & Wallace's: of probabilities, absolute, the attention held fixed.
    """

    name: ClassVar[str] = "gradient_input"
    title: ClassVar[str] = "gradient × input"
    colour: ClassVar[str] = "#88CCEE"

    def scores(self, subject: Subject) -> Float[Tensor, "batch seq"]:
        """Signed, 0 outside content."""
        explained = subject.cached(self.explained)
        inputs = explained.inputs.clone().requires_grad_()
        return self.per_word(
            InputXGradient(explained).attribute(inputs, additional_forward_args=explained.texts), subject
        )
