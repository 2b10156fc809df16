"""Shapley values by sampled orders of the words (Castro et al. 2009)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from captum.attr import ShapleyValueSampling
from jaxtyping import Float
from torch import Tensor

from attnprobe.importance.attribution import Explained, Perturbation


@dataclass(frozen=True)
class ShapleySampling(Perturbation):
    """Mean contribution of each word over `samples` random orders in which the words are added, signed (captum).

    Attributes:
        samples: orders that are drawn; each takes as many predictions as the text has words.
    """

    name: ClassVar[str] = "shapley_sampling"
    title: ClassVar[str] = "Shapley, sampled"
    colour: ClassVar[str] = "#997700"
    complete: ClassVar[bool] = True
    samples: int = 25

    def of_text(self, explained: Explained, words: int) -> Float[Tensor, "words"]:
        """Scores of one text."""
        whole = torch.ones(1, words, device=explained.inputs.device, dtype=torch.float64)
        method = ShapleyValueSampling(explained.keeping)
        return method.attribute(whole, n_samples=self.samples, perturbations_per_eval=words)[0]
