"""What each position says for the decision, exactly: linear decoders only."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from attnprobe.erasure.single import decision_margin
from attnprobe.importance.base import Importance, Subject


@dataclass(frozen=True)
class Contribution(Importance):
    """α_t (z_t[decision] − z_t[runner-up]), z the position logits, signed.

    With two classes this is the order of the smallest flipping set.
    """

    name: ClassVar[str] = "contribution"
    title: ClassVar[str] = "contribution"
    colour: ClassVar[str] = "#999933"
    signed: ClassVar[bool] = True

    def is_defined(self, subject: Subject) -> bool:
        """Position logits are known of linear decoders only."""
        return subject.readout.position_logits is not None

    def scores(self, subject: Subject) -> Float[Tensor, "batch seq"]:
        """Signed."""
        return subject.readout.attention * decision_margin(subject.readout)
