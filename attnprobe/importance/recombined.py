"""Predictions of shortened texts from the unchanged text's states and the few that change."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from attnprobe.batch import Batch, Outputs
from attnprobe.models.attention import Attention
from attnprobe.models.classifier import AttentionClassifier
from attnprobe.models.encoders import TextEncoder
from attnprobe.models.shortened import Affine, ChangedStates, Encoded, View

SINGLE = 1e-6
"""Tolerance from which states are recomputed in float32: its rounding is well below, but depends on the batch, and in the
ranks of nearly equal distances that shows."""
LONG = 64
"""Content tokens from which derivatives are worth their cost; shorter texts end before they are of use."""


@dataclass(frozen=True)
class Changing:
    """The layers that a changed state comes from and goes through, in the precision that the tolerance asks for."""

    encoder: TextEncoder
    attention: Attention
    dtype: torch.dtype
    tolerance: float

    @classmethod
    def of(cls, classifier: AttentionClassifier, tolerance: float) -> "Changing":
        """Those of this classifier, which is left as it is."""
        own = classifier.embedding.weight.dtype
        # where the user lets float32 products be rounded to fewer bits (TF32, bfloat16) they are not good enough
        full = torch.get_float32_matmul_precision() == "highest"
        if own != torch.float64 or tolerance < SINGLE or not full:
            return cls(classifier.encoder, classifier.attention, own, tolerance)
        encoder, attention = deepcopy(classifier.encoder), deepcopy(classifier.attention)
        return cls(encoder.float(), attention.float(), torch.float32, tolerance)


class Attended(NamedTuple):
    """A softmax-weighted mean over some positions, in a form in which two of them can be put together.

    `weight` is the log-sum-exp of the positions' scores (−inf: no position), `mean` their values' weighted mean.
    """

    weight: Float[Tensor, "*any"]
    mean: Float[Tensor, "*any values"]


def merged(a: Attended, b: Attended) -> Attended:
    """The mean over both sets of positions; no cancellation, no overflow."""
    weight = torch.logaddexp(a.weight, b.weight)
    nothing = weight.isneginf()
    share_a, share_b = (torch.where(nothing, 0, (x.weight - weight).exp()).unsqueeze(-1) for x in (a, b))
    return Attended(weight, share_a * a.mean + share_b * b.mean)


def running(
    scores: Float[Tensor, "batch seq"], values: Float[Tensor, "batch seq values"], *, reverse: bool
) -> Attended:
    """The means over the positions before each position `[batch, seq + 1]`, or with `reverse` over those from each
    position on."""
    if reverse:
        weight, mean = running(scores.flip(1), values.flip(1), reverse=False)
        return Attended(weight.flip(1), mean.flip(1))
    weight, mean = F.pad(scores, (1, 0), value=-torch.inf), F.pad(values, (0, 0, 1, 0))
    reach = 1
    # every mean takes in the one `reach` before it, and then stands for twice as many positions
    while reach < weight.shape[1]:
        both = merged(Attended(weight[:, :-reach], mean[:, :-reach]), Attended(weight[:, reach:], mean[:, reach:]))
        weight = torch.cat([weight[:, :reach], both.weight], 1)
        mean = torch.cat([mean[:, :reach], both.mean], 1)
        reach *= 2
    return Attended(weight, mean)


class Gathered:
    """The softmax-weighted means of many texts, whose positions come in any order, in float64.

    Kept back until there are many: a few long operations instead of many short ones.
    """

    LIMIT = 2**20
    """Numbers that may be kept back."""

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

    def means(self) -> Attended:
        """Of all positions so far."""
        if self.waiting:
            self.collect()
        total = self.sums[:, :1]
        mean = torch.where(total > 0, self.sums[:, 1:] / total, 0)
        return Attended(total.squeeze(1).log() + self.top, mean)


def recombined(
    classifier: AttentionClassifier, changing: Changing, batch: Batch, outputs: Outputs
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Decode each text without each of its content tokens, from the unchanged scores and values and the changed ones.

    Returns:
        `(example [n], removed [n], logits [n, classes])`, n content tokens; None where the encoder has no short cut.
    """
    hidden = outputs.hidden.to(changing.dtype)
    query = None if outputs.query is None else outputs.query.to(changing.dtype)
    for_score, score_of = _attention_in_two(changing.attention, hidden)
    as_value = _value_layer(classifier, outputs.hidden)
    both = Affine(*(torch.cat([a, b.to(a.dtype)]) for a, b in zip(for_score, as_value, strict=True)))
    width = len(for_score.bias)
    distinct, which = batch.ids.unique(return_inverse=True)
    words = classifier.embed(distinct.unsqueeze(0)).squeeze(0).to(changing.dtype)
    texts = Encoded(words, which, batch.mask, batch.content, hidden)
    values = F.linear(outputs.hidden, *as_value).double()
    slopes = spare = None
    long = batch.content.sum(1, keepdim=True) >= LONG
    if classifier.decoder.linear and changing.tolerance > 0 and long.any():
        slopes = _slopes(score_of, F.linear(hidden, *both), values, outputs.attention, query, width)
        spare = torch.where(long, 1 - outputs.attention, -1).to(changing.dtype)
    changes = changing.encoder.without_each(texts, View(both, changing.tolerance, slopes, spare))
    if changes is None:
        return None
    example, removed = batch.content.nonzero(as_tuple=True)
    first, last = removed.clone(), removed.clone()
    gathered = Gathered(outputs.scores.double().amax(1)[example], len(as_value.bias))
    effects = values.new_zeros(len(example), len(as_value.bias) + 1)

    def kept(changes: Iterator[ChangedStates]) -> Iterator[tuple[Tensor, ...]]:
        for *states, settled, effect in changes:
            if settled is not None and effect is not None:
                effects.index_add_(0, settled, effect.double())
            yield tuple(states)

    for text, position, seen in _blocks(kept(changes)):
        of = example.index_select(0, text)
        score = score_of(seen[:, :width], None if query is None else query[of])
        gathered.add(text, score.masked_fill(~batch.content[of, position], -torch.inf), seen[:, width:])
        first.scatter_reduce_(0, text, position, "amin")
        last.scatter_reduce_(0, text, position, "amax")

    changed = gathered.means()
    scores = outputs.scores.double()
    before, behind = running(scores, values, reverse=False), running(scores, values, reverse=True)
    for side, at in ((before, first), (behind, last + 1)):
        changed = merged(changed, Attended(side.weight[example, at], side.mean[example, at]))
    if slopes is not None:
        unchanged = Attended(*(x[:, -1][example] for x in before))
        changed = Attended(changed.weight, _moved(changed, unchanged, effects))
    candidates = None if batch.candidates is None else batch.candidates[example]
    if classifier.decoder.linear:
        logits = changed.mean if candidates is None else changed.mean.masked_fill(~candidates, -torch.inf)
        return example, removed, logits
    question = None if outputs.query is None else outputs.query[example]
    attended = changed.mean.to(outputs.hidden.dtype).unsqueeze(1)
    return example, removed, classifier.decode(attended, torch.ones_like(attended[..., 0]), question, candidates)


def _blocks(items: Iterator[tuple[Tensor, ...]], rows: int = 1024) -> Iterator[tuple[Tensor, ...]]:
    """Items one behind the other, at least so many rows at a time: fewer operations, still within the cache."""
    waiting: list[tuple[Tensor, ...]] = []
    for item in items:
        waiting.append(item)
        if sum(len(text) for text, *_ in waiting) >= rows:
            yield tuple(torch.cat(column) for column in zip(*waiting, strict=True))
            waiting = []
    if waiting:
        yield tuple(torch.cat(column) for column in zip(*waiting, strict=True))


def _slopes(
    score_of: Callable[[Tensor, Tensor | None], Tensor],
    seen: Float[Tensor, "batch seq out"],
    values: Float[Tensor, "batch seq values"],
    attention: Float[Tensor, "batch seq"],
    query: Float[Tensor, "batch query"] | None,
    width: int,
) -> Float[Tensor, "batch seq sums out"]:
    """∂(Σ e^s, Σ e^s (z − m)) / ∂seen per position, in units of the unchanged text's Σ e^s; z are the values and m their
    mean in the unchanged text."""
    share = attention.detach().unsqueeze(-1)
    away = (values - (share * values).sum(1, keepdim=True)).to(seen.dtype)
    share = share.to(seen.dtype)
    with torch.enable_grad():
        inner = seen[..., :width].detach().flatten(0, 1).requires_grad_()
        of = None if query is None else query.detach().repeat_interleave(seen.shape[1], 0)
        (slope,) = torch.autograd.grad(score_of(inner, of).sum(), inner)
    of_score = slope.view(*seen.shape[:2], 1, width) * torch.cat([torch.ones_like(share), away], -1).unsqueeze(-1)
    of_value = F.pad(torch.eye(away.shape[-1], dtype=seen.dtype, device=seen.device), (0, 0, 1, 0))
    of_value = of_value.expand(*seen.shape[:2], *of_value.shape)
    return share.unsqueeze(-1) * torch.cat([of_score, of_value], -1)


def _moved(
    changed: Attended, unchanged: Attended, effects: Float[Tensor, "texts sums"]
) -> Float[Tensor, "texts values"]:
    """The mean after `effects` (see `_slopes`) were added to the sums."""
    # in units of the changed text's own sum of weights
    effects = effects * (unchanged.weight - changed.weight).exp().unsqueeze(1)
    more, moved = effects[:, :1], effects[:, 1:]
    return (changed.mean + moved + more * unchanged.mean) / (1 + more)


def _everything(hidden: Float[Tensor, "batch seq hidden"]) -> Affine:
    """The layer that shows a state as it is."""
    return Affine(
        torch.eye(hidden.shape[-1], dtype=hidden.dtype, device=hidden.device), hidden.new_zeros(hidden.shape[-1])
    )


def _attention_in_two(
    attention: Attention, hidden: Float[Tensor, "batch seq hidden"]
) -> tuple[Affine, Callable[[Tensor, Tensor | None], Tensor]]:
    """See `Attention.in_two`; the state as it is, where that gives none."""
    parts = attention.in_two()
    if parts is not None:
        return parts
    return _everything(hidden), lambda seen, query: attention(seen.unsqueeze(1), query).squeeze(1)


def _value_layer(classifier: AttentionClassifier, hidden: Float[Tensor, "batch seq hidden"]) -> Affine:
    """State → what the attention averages: position logits, or where the decoder is not linear the state itself."""
    everything = _everything(hidden)
    if not classifier.decoder.linear:
        return everything
    # with a linear decoder the mean of the positions' logits is the logits of the mean
    bias = classifier.decoder(everything.bias)
    return Affine((classifier.decoder(everything.weight) - bias).t(), bias)
