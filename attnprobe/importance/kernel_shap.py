"""Shapley values by a weighted regression on sampled sets of words (Lundberg & Lee 2017)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from captum.attr import KernelShap as CaptumKernelShap
from jaxtyping import Float
from torch import Tensor

from attnprobe.importance.attribution import Explained, Perturbation


@dataclass(frozen=True)
class KernelShap(Perturbation):
    """Estimates of the Shapley values of the words, signed (captum).

    Attributes:
        samples: sets of words that are drawn, the empty and the whole one among them.
    """

    name: ClassVar[str] = "kernel_shap"
    title: ClassVar[str] = "KernelSHAP"
    colour: ClassVar[str] = "#AA4499"
    complete: ClassVar[bool] = True
    samples: int = 500

    def of_text(self, explained: Explained, words: int) -> Float[Tensor, "words"]:
        """Scores of one text."""
        whole = torch.ones(1, words, device=explained.inputs.device, dtype=torch.float64)
        if words == 1:  # nothing to draw: a set of its own would be empty or whole
            return explained.keeping(whole) - explained.keeping(whole * 0)
        method = CaptumKernelShap(explained.keeping)
        return method.attribute(whole, n_samples=self.samples, perturbations_per_eval=self.samples)[0]
