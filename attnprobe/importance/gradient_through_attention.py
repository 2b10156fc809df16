"""Gradient × input at the word vectors, the attention reacting too."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from attnprobe.importance.base import Importance, Subject
from attnprobe.importance.gradient import gradients_of


@dataclass(frozen=True)
class GradientThroughAttention(Importance):
    """|word vector · ∂ŷ/∂word vector|, the gradient through the attention as well: see `attnprobe.importance.gradient`."""

    name: ClassVar[str] = "gradient_through_attention"
    title: ClassVar[str] = "gradient through attention"
    colour: ClassVar[str] = "#44AA99"
    shares: ClassVar[bool] = True
    of_words: ClassVar[bool] = True

    def scores(self, subject: Subject) -> Float[Tensor, "batch seq"]:
        """0 or more."""
        return subject.cached(gradients_of).embedding_through_attention.double()
