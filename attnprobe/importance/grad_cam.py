"""Class activation at the encoder's states (Selvaraju et al. 2017)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.importance.attribution import Attribution
from attnprobe.importance.base import Subject


@dataclass(frozen=True)
class GradCam(Attribution):
    """ReLU(Σ_k w_k h_tk), w_k the mean over the positions of ∂target/∂h_tk, 0 or more, the attention reacting too.

    h are the states that are attended to: of words, or of sentences.
    """

    name: ClassVar[str] = "grad_cam"
    title: ClassVar[str] = "Grad-CAM"
    colour: ClassVar[str] = "#EE8866"
    signed: ClassVar[bool] = False
    shares: ClassVar[bool] = True
    of_words: ClassVar[bool] = False

    def scores(self, subject: Subject) -> Float[Tensor, "batch seq"]:
        """0 or more, 0 outside content."""
        explained, content = subject.cached(self.explained), subject.outputs.content.unsqueeze(-1)
        with torch.enable_grad():
            outputs = subject.classifier.outputs_from(subject.batch, explained.inputs.clone().requires_grad_())
            (gradient,) = torch.autograd.grad(explained.number_of(outputs.logits).sum(), outputs.hidden)
        weight = (gradient * content).sum(1, keepdim=True) / content.sum(1, keepdim=True)
        return (weight * outputs.hidden.detach() * content).sum(-1).clamp(min=0).double()
