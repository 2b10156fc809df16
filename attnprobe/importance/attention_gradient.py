"""How does the prediction react to each attention weight? (Serrano & Smith 2019, section 4)"""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from attnprobe.importance.base import Importance, Subject


@dataclass(frozen=True)
class AttentionGradient(Importance):
    """∂p/∂α_t, p the probability of the predicted class, signed: see `Readout.gradient`."""

    name: ClassVar[str] = "attention_gradient"
    title: ClassVar[str] = "weight gradient"
    colour: ClassVar[str] = "#009E73"
    signed: ClassVar[bool] = True

    def scores(self, subject: Subject) -> Float[Tensor, "batch seq"]:
        """Signed, 0 outside content."""
        return subject.readout.gradient().double()
