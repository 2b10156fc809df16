"""Gradients at random points between the baseline and the text (Lundberg & Lee 2017; Erion et al. 2021)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from captum.attr import GradientShap as CaptumGradientShap
from jaxtyping import Float
from torch import Tensor

from attnprobe.errors import UserError
from attnprobe.importance.attribution import Explained, Perturbation


@dataclass(frozen=True)
class GradientShap(Perturbation):
    """Mean of gradient × (text − baseline) at points drawn evenly on the line between them, signed (captum). Scores of a text
    add up to target(text) − target(baseline) as the number of points grows.

    Note:
        There is one baseline, as for every method here, and not a sample of texts; without noise this is integrated
        gradients by drawing.

    Attributes:
        samples: points that are drawn.
        noise: standard deviation of the noise on the text's vectors, as a share of the range of these; 0: none.
    """

    name: ClassVar[str] = "gradient_shap"
    title: ClassVar[str] = "GradientSHAP"
    colour: ClassVar[str] = "#6F4E37"
    complete: ClassVar[bool] = True
    samples: int = 50
    noise: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.noise >= 0:
            raise UserError(f"importance.{self.name}.noise={self.noise}: expected a share of the range, 0 or more")

    def of_text(self, explained: Explained, words: int) -> Float[Tensor, "words"]:
        """Scores of one text."""
        inputs = explained.inputs.clone().requires_grad_()
        spread = float((explained.inputs.max() - explained.inputs.min()) * self.noise)
        with torch.enable_grad():
            attributions = CaptumGradientShap(explained).attribute(
                inputs,
                explained.baseline,
                n_samples=self.samples,
                stdevs=spread,
                additional_forward_args=explained.texts,
            )
        at_words = explained.model.per_position(explained.batch, attributions.detach().sum(-1))
        return at_words[0, explained.batch.content[0]]
