"""Gradients at noisy copies of the text, averaged (Smilkov et al. 2017)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from captum.attr import InputXGradient, NoiseTunnel
from jaxtyping import Float
from torch import Tensor

from attnprobe.errors import UserError
from attnprobe.importance.attribution import Explained, Perturbation


@dataclass(frozen=True)
class SmoothGrad(Perturbation):
    """Mean of gradient × input over `samples` copies of the text with noise on its vectors, signed (captum).

    Attributes:
        samples: noisy copies.
        noise: standard deviation of the noise, as a share of the range of the text's own vectors (the paper's 10 to 20 %).
    """

    name: ClassVar[str] = "smooth_grad"
    title: ClassVar[str] = "SmoothGrad"
    colour: ClassVar[str] = "#DDCC77"
    samples: int = 25
    noise: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noise <= 0:
            raise UserError(f"importance.{self.name}.noise={self.noise}: expected a share of the range above 0")

    def of_text(self, explained: Explained, words: int) -> Float[Tensor, "words"]:
        """Scores of one text."""
        inputs = explained.inputs.clone().requires_grad_()
        spread = float((explained.inputs.max() - explained.inputs.min()) * self.noise)
        with torch.enable_grad():
            attributions = NoiseTunnel(InputXGradient(explained)).attribute(
                inputs, nt_samples=self.samples, stdevs=max(spread, 1e-12), additional_forward_args=explained.texts
            )
        at_words = explained.model.per_position(explained.batch, attributions.detach().sum(-1))
        return at_words[0, explained.batch.content[0]]
