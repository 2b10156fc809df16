"""The length of the gradient at each word's vector."""

from dataclasses import dataclass
from typing import ClassVar

from captum.attr import Saliency as CaptumSaliency
from jaxtyping import Float
from torch import Tensor

from attnprobe.importance.attribution import Attribution, per_word
from attnprobe.importance.base import Subject


@dataclass(frozen=True)
class Saliency(Attribution):
    """‖∂target/∂word vector‖, 0 or more, the attention reacting too (captum; Simonyan et al. 2014)."""

    name: ClassVar[str] = "saliency"
    title: ClassVar[str] = "gradient norm"
    colour: ClassVar[str] = "#CC6677"
    signed: ClassVar[bool] = False
    shares: ClassVar[bool] = True

    def scores(self, subject: Subject) -> Float[Tensor, "batch seq"]:
        """0 or more, 0 outside content."""
        explained = subject.cached(self.explained)
        inputs = explained.inputs.clone().requires_grad_()
        attributions = CaptumSaliency(explained).attribute(inputs, abs=False, additional_forward_args=explained.texts)
        return per_word(attributions.detach().double().square().sum(-1), subject).sqrt()
