"""Which hidden states change, and to what, when one token is taken out of a text: what the encoders' short cuts share.

A short cut belongs to one class, and to that class only: a subclass may read its texts in another way.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import singledispatch
from typing import NamedTuple

from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnprobe.models.encoders import AverageEncoder, NoEncoder, TextEncoder


class Affine(NamedTuple):
    """x → weight x + bias."""

    weight: Float[Tensor, "out hidden"]
    bias: Float[Tensor, "out"]


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


@dataclass(frozen=True)
class Projection:
    """All that the layers after the encoder see of a hidden state, and when a changed state is close enough.

    Attributes:
        layer: the first layer after the encoder. Where only half of a state changes, only that half is multiplied.
        tolerance: a state this close to the unchanged text's may be taken for it; 0 approximates nothing.
    """

    layer: Affine
    tolerance: float


class ChangedStates(NamedTuple):
    """States that are not those of the unchanged text, n of them, as the layer after the encoder sees them.

    The shortened texts are numbered in the order of `content.nonzero()`. In text `text[i]` the token at `position[i]`
    (counted in the unchanged text) has a state that the layer maps to `seen[i]`. One item holds a text at most once,
    and all changed content positions of a text together with the removed one are a single stretch. The states beyond
    are taken for the unchanged text's: exactly they are, or for text `rejoined[j]` they differ from it by `skipped[j]`
    where they begin.
    """

    text: Int[Tensor, "changed"]
    position: Int[Tensor, "changed"]
    seen: Float[Tensor, "changed out"]
    rejoined: Int[Tensor, "rejoined"] | None = None
    skipped: Float[Tensor, "rejoined"] | None = None


@singledispatch
def changed_states(encoder: TextEncoder, texts: EncodedTexts, projection: Projection) -> Iterator[ChangedStates]:
    """The states that change when each content token in turn is taken out of its text.

    Register a function for an encoder that has a short cut; `has_short_cut` tells whether there is one.

    Raises:
        TypeError: this encoder has none; the shortened texts have to be encoded.
    """
    raise TypeError(f"{type(encoder).__name__} has no short cut for leave-one-out: encode the shortened texts")


def has_short_cut(encoder: TextEncoder) -> bool:
    """Whether a function is registered for exactly this class. One of a base class is not taken: what a subclass adds
    to `forward` would be ignored without a word."""
    return type(encoder) in changed_states.registry


@changed_states.register(AverageEncoder)
@changed_states.register(NoEncoder)
def _none_changes(encoder: TextEncoder, texts: EncodedTexts, projection: Projection) -> Iterator[ChangedStates]:
    """Each state is a function of its own word vector."""
    return iter(())
