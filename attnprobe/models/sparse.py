"""Attentions that give most positions exactly nothing: another map from scores to weights than the softmax."""

from collections.abc import Callable
from typing import ClassVar

import torch
from entmax import entmax15, sparsemax
from jaxtyping import Bool, Float
from torch import Tensor

from attnprobe.models.attention import AdditiveAttention

OUT_OF_REACH = 10.0
"""Scores this far below the largest one get no weight in either map: 1 (sparsemax) or 2 (entmax) would do."""


class SparsemaxAttention(AdditiveAttention):
    """Additive scores, and the point of the simplex that is nearest to them (Martins & Astudillo 2016)."""

    positionwise: ClassVar[bool] = False  # promises a softmax as well

    def weights(
        self, scores: Float[Tensor, "batch seq"], content: Bool[Tensor, "batch seq"]
    ) -> Float[Tensor, "batch seq"]:
        """argmin over the simplex of ‖a − scores‖²."""
        return sparse(sparsemax, scores, content)


class EntmaxAttention(AdditiveAttention):
    """Additive scores, and their 1.5-entmax, between softmax and sparsemax (Peters et al. 2019)."""

    positionwise: ClassVar[bool] = False  # promises a softmax as well

    def weights(
        self, scores: Float[Tensor, "batch seq"], content: Bool[Tensor, "batch seq"]
    ) -> Float[Tensor, "batch seq"]:
        """a_t = max(0, scores_t / 2 − τ)², τ such that they sum to 1."""
        return sparse(entmax15, scores, content)


def sparse(
    map_to_weights: Callable[..., Tensor], scores: Float[Tensor, "batch seq"], content: Bool[Tensor, "batch seq"]
) -> Float[Tensor, "batch seq"]:
    """A sparse map over `content` alone; 0 elsewhere. Finite scores stand for what is left out: −inf would make NaN."""
    largest = scores.masked_fill(~content, -torch.inf).amax(-1, keepdim=True).detach()
    weights = map_to_weights(torch.where(content, scores, largest - OUT_OF_REACH), dim=-1)
    return weights.masked_fill(~content, 0)
