"""The attention's score of a single state, in two steps: a layer that is affine in the state, and what follows it."""

from collections.abc import Callable
from functools import singledispatch
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.importance.leave_one_out.changed import Affine
from attnprobe.models.attention import AdditiveAttention, Attention, DotAttention


class FactoredScore(NamedTuple):
    """A score as `score(layer(state), query)`.

    Attributes:
        layer: hidden → out.
        score: `(seen [n, out], query [n, query] or None) → scores [n]`.
    """

    layer: Affine
    score: Callable[[Tensor, Tensor | None], Float[Tensor, "n"]]


def factored_score(attention: Attention, like: Float[Tensor, "*any hidden"]) -> FactoredScore:
    """The attention's scores in two steps, equal to its own up to rounding; by its own class only, as for encoders.

    Args:
        attention: position-wise (`Attention.positionwise`).
        like: hidden states, for their size, precision and device.
    """
    return _factored.registry.get(type(attention), _single)(attention, like)


def _single(attention: Attention, like: Float[Tensor, "*any hidden"]) -> FactoredScore:
    """The state as it is, scored by the attention in a text of its own."""
    return FactoredScore(whole_state(like), lambda seen, query: attention(seen.unsqueeze(1), query).squeeze(1))


_factored = singledispatch(_single)


@_factored.register
def _additive(attention: AdditiveAttention, like: Tensor) -> FactoredScore:
    """The first layer, doubled, and v · (2σ(·) − 1): PyTorch computes σ several times faster than tanh."""
    weight = attention.score.weight.detach().squeeze(0)

    def score(seen: Tensor, query: Tensor | None) -> Tensor:
        if attention.question is not None:
            seen = seen + 2 * attention.question(query)
        return torch.addmv(-weight.sum(), seen.sigmoid(), weight, alpha=2)

    return FactoredScore(Affine(2 * attention.states.weight.detach(), 2 * attention.states.bias.detach()), score)


@_factored.register
def _dot(attention: DotAttention, like: Tensor) -> FactoredScore:
    """Without a question the score itself is affine in the state."""
    if attention.score is None:
        return _single(attention, like)
    weight = attention.score.weight.detach() / attention.scale
    return FactoredScore(Affine(weight, weight.new_zeros(1)), lambda seen, query: seen.squeeze(-1))


def whole_state(like: Float[Tensor, "*any hidden"]) -> Affine:
    """The layer that shows a state as it is."""
    size = like.shape[-1]
    return Affine(torch.eye(size, dtype=like.dtype, device=like.device), like.new_zeros(size))
