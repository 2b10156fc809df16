"""Which hidden states change, and to what, when one token is taken out of a text.

What the encoders' short cuts share.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import singledispatch
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnprobe.models.attention import AdditiveAttention, Attention, DotAttention
from attnprobe.models.encoders import AverageEncoder, NoEncoder, TextEncoder
from attnprobe.models.linearised_layers import Affine


@dataclass(frozen=True)
class EncodedTexts:
    """Texts and the states that an encoder gave them.

    Attributes:
        words: the distinct inputs of all the texts.
        which: of them is read at each token.
        content: tokens that are removed in turn.
        hidden: the states of the unchanged texts.
    """

    words: Float[Tensor, "distinct embed"]
    which: Int[Tensor, "batch tokens"]
    mask: Bool[Tensor, "batch tokens"]
    content: Bool[Tensor, "batch tokens"]
    hidden: Float[Tensor, "batch tokens hidden"]


class ChangedStates(NamedTuple):
    """States that are not those of the unchanged text, n of them, as the next layer sees them.

    The shortened texts are numbered in the order of `content.nonzero()`. In text `text[i]` the
    token at `position[i]` (counted in the unchanged text) has a state that the layer after the
    encoder maps to `seen[i]`. One item holds a text at most once, and all changed content positions
    of a text together with the removed one are a single stretch. The states beyond are taken for
    the unchanged text's: exactly they are, or for text `rejoined[j]` they differ from it by
    `skipped[j]` where they begin.
    """

    text: Int[Tensor, "changed"]
    position: Int[Tensor, "changed"]
    seen: Float[Tensor, "changed out"]
    rejoined: Int[Tensor, "rejoined"] | None = None
    skipped: Float[Tensor, "rejoined"] | None = None


@singledispatch
def changed_states(
    encoder: TextEncoder, texts: EncodedTexts, layer: Affine, tolerance: float
) -> Iterator[ChangedStates]:
    """The states that change when each content token in turn is taken out of its text.

    Register a function for an encoder that has a short cut; it is taken for exactly this class.

    Args:
        encoder: as the texts went through it.
        texts: with their states.
        layer: all that comes after the encoder sees of a state.
        tolerance: a state this close to the unchanged text's may be taken for it; 0 approximates
            nothing.
    """
    raise NotImplementedError(
        f"{type(encoder).__name__} has no short cut: encode the shortened texts"
    )


for without_context in (AverageEncoder, NoEncoder):  # no state changes
    changed_states.register(without_context, lambda *_: iter(()))


def factored_score(
    attention: Attention, like: Float[Tensor, "*any hidden"]
) -> tuple[Affine, Callable[[Tensor, Tensor | None], Float[Tensor, "n"]]]:
    """Split an attention's score of a state into two steps, equal to it up to rounding.

    By the attention's own class only, as for encoders.

    Args:
        attention: position-wise (`Attention.positionwise`).
        like: hidden states, for their size, precision and device.

    Returns:
        An affine layer, and `score(layer(state) [n, out], query [n, query])`.
    """
    if type(attention) is AdditiveAttention:
        # the first layer, doubled, and v · (2σ(·) − 1): PyTorch computes σ several times faster
        # than tanh
        vector = attention.score.weight.detach().squeeze(0)
        question = attention.question

        def score(seen: Tensor, query: Tensor | None) -> Tensor:
            if question is not None:
                seen = seen + 2 * question(query)
            return torch.addmv(-vector.sum(), seen.sigmoid(), vector, alpha=2)

        doubled = Affine(2 * attention.states.weight.detach(), 2 * attention.states.bias.detach())
        return doubled, score

    if type(attention) is DotAttention and attention.score is not None:
        weight = attention.score.weight.detach() / attention.scale
        return Affine(weight, weight.new_zeros(1)), lambda seen, query: seen.squeeze(-1)

    # the state as it is, scored by the attention in a text of its own
    size = like.shape[-1]
    identity = Affine(torch.eye(size, dtype=like.dtype, device=like.device), like.new_zeros(size))
    return identity, lambda seen, query: attention(seen.unsqueeze(1), query).squeeze(1)
