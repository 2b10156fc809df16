"""A weighted linear model of what the prediction does as words are left out (Ribeiro et al. 2016)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from captum._utils.models.linear_model import SkLearnRidge
from captum.attr import Lime as CaptumLime
from captum.attr._core.lime import get_exp_kernel_similarity_function
from jaxtyping import Float
from torch import Tensor

from attnprobe.errors import UserError
from attnprobe.importance.attribution import Explained, Perturbation


@dataclass(frozen=True)
class Lime(Perturbation):
    """Coefficients of a ridge regression of the target on which words are kept, signed (captum).

    Each of `samples` texts keeps every word with probability 1/2; texts count by exp(−d² / 2 width²), d their cosine
    distance from the whole text.

    Attributes:
        samples: texts that are drawn.
        width: of the kernel (the authors' code for text: 25 on distances of 0 to 100).
        alpha: of the ridge (the authors' code: 1).
    """

    name: ClassVar[str] = "lime"
    title: ClassVar[str] = "LIME"
    colour: ClassVar[str] = "#BB5566"
    samples: int = 500
    width: float = 0.25
    alpha: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for setting in ("width", "alpha"):
            if getattr(self, setting) <= 0:
                raise UserError(f"importance.{self.name}.{setting}={getattr(self, setting)}: expected a number above 0")

    def of_text(self, explained: Explained, words: int) -> Float[Tensor, "words"]:
        """Scores of one text."""
        whole = torch.ones(1, words, device=explained.inputs.device, dtype=torch.float64)
        method = CaptumLime(
            explained.keeping,
            SkLearnRidge(alpha=self.alpha),
            get_exp_kernel_similarity_function("cosine", kernel_width=self.width),
        )
        return method.attribute(whole, n_samples=self.samples, perturbations_per_eval=self.samples)[0]
