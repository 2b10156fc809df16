"""Which hidden states change, and to what, when one token is taken out of a text: what the encoders' short cuts share.

A short cut belongs to one class, and to that class only: a subclass may read its texts in another way.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import singledispatch
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from attnprobe.models.attention import AdditiveAttention, Attention, DotAttention
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
    return iter(())


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
    if attention.score is None:
        return _single(attention, like)
    weight = attention.score.weight.detach() / attention.scale
    return FactoredScore(Affine(weight, weight.new_zeros(1)), lambda seen, query: seen.squeeze(-1))


def whole_state(like: Float[Tensor, "*any hidden"]) -> Affine:
    """The layer that shows a state as it is."""
    size = like.shape[-1]
    return Affine(torch.eye(size, dtype=like.dtype, device=like.device), like.new_zeros(size))


class WeightedMean(NamedTuple):
    """A softmax-weighted mean over some positions, in a form in which two of them can be merged.

    `weight` is the log-sum-exp of the positions' scores (−inf: no position), `mean` their values' weighted mean.
    """

    weight: Float[Tensor, "*any"]
    mean: Float[Tensor, "*any values"]


def merge(a: WeightedMean, b: WeightedMean) -> WeightedMean:
    """The mean over both sets of positions; no cancellation, no overflow."""
    weight = torch.logaddexp(a.weight, b.weight)
    nothing = weight.isneginf()
    share_a, share_b = (torch.where(nothing, 0, (x.weight - weight).exp()).unsqueeze(-1) for x in (a, b))
    return WeightedMean(weight, share_a * a.mean + share_b * b.mean)


def prefix_means(
    scores: Float[Tensor, "batch seq"], values: Float[Tensor, "batch seq values"], *, reverse: bool = False
) -> WeightedMean:
    """The means over the positions before each position `[batch, seq + 1]`, or with `reverse` over those from each
    position on."""
    if reverse:
        weight, mean = prefix_means(scores.flip(1), values.flip(1))
        return WeightedMean(weight.flip(1), mean.flip(1))
    weight, mean = F.pad(scores, (1, 0), value=-torch.inf), F.pad(values, (0, 0, 1, 0))
    reach = 1
    # every mean takes in the one `reach` before it, and then stands for twice as many positions
    while reach < weight.shape[1]:
        both = merge(
            WeightedMean(weight[:, :-reach], mean[:, :-reach]), WeightedMean(weight[:, reach:], mean[:, reach:])
        )
        weight = torch.cat([weight[:, :reach], both.weight], 1)
        mean = torch.cat([mean[:, :reach], both.mean], 1)
        reach *= 2
    return WeightedMean(weight, mean)


class SoftmaxAccumulator:
    """The softmax-weighted means of many texts, whose positions come in any order, in float64.

    Positions wait until there are many: a few long operations instead of many short ones.
    """

    LIMIT = 2**20
    """Numbers that may wait."""

    def __init__(self, top: Float[Tensor, "texts"], values: int) -> None:
        """`top`: any finite score for a start, best the largest that is to be expected."""
        self.top = top
        self.sums = top.new_zeros(len(top), values + 1)
        self.waiting: list[tuple[Tensor, Tensor, Tensor]] = []
        self.count = 0

    def add(self, text: Int[Tensor, "new"], score: Float[Tensor, "new"], value: Float[Tensor, "new values"]) -> None:
        """One more position for each of these texts; a score of −inf adds nothing."""
        self.waiting.append((text, score, value))
        self.count += value.numel()
        if self.count > self.LIMIT:
            self.collect()

    def collect(self) -> None:
        """Take what waits into the sums, relative to the largest score so far: no overflow."""
        text, score, value = (torch.cat(column) for column in zip(*self.waiting, strict=True))
        score = score.double()
        top = self.top.scatter_reduce(0, text, score, "amax")
        weight = (score - top.index_select(0, text)).exp().unsqueeze(1)
        self.sums *= (self.top - top).exp().unsqueeze(1)
        self.sums.index_add_(0, text, torch.cat([weight, weight * value], 1))
        self.top, self.waiting, self.count = top, [], 0

    def means(self) -> WeightedMean:
        """Of all positions so far."""
        if self.waiting:
            self.collect()
        total = self.sums[:, :1]
        mean = torch.where(total > 0, self.sums[:, 1:] / total, 0)
        return WeightedMean(total.squeeze(1).log() + self.top, mean)


class Removed(NamedTuple):
    """Texts without one token each: the token at `removed` of `example`, and what is predicted then.

    `skipped` is the largest difference of states that was taken for none, 0 where there was none.
    """

    example: Int[Tensor, "texts"]
    removed: Int[Tensor, "texts"]
    logits: Float[Tensor, "texts classes"]
    skipped: Float[Tensor, "texts"]
