"""What does the prediction lose with each single token? (Jain & Wallace 2019, section 4.1: leave-one-out)"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from attnprobe.batch import Batch, Outputs, Task, prediction_distance, probabilities
from attnprobe.errors import UserError
from attnprobe.models.attention import Attention
from attnprobe.models.classifier import AttentionClassifier
from attnprobe.models.encoders import TextEncoder
from attnprobe.models.shortened import Affine, ChangedStates, Encoded, View

TOLERANCE = 1e-6
"""How far off a state of a shortened text may be: on IMDB, predictions then agree to 9e-7."""
SINGLE = 1e-6
"""Tolerance from which states are recomputed in float32: its rounding is well below, but depends on the batch, and in the
ranks of nearly equal distances that shows."""
LONG = 64
"""Content tokens from which derivatives are worth their cost; shorter texts end before they are of use."""
CHUNK = 8192
"""Hidden states at a time: keeps memory small whatever the length and the number of the texts."""


@dataclass(frozen=True)
class Removals:
    """What became of the predictions, per position; NaN outside content and where no content token is left.

    Attributes:
        distance: between the predictions without the token and with it, 0 to 1: total variation distance, for
            multi-label tasks the mean over the labels.
        flips: 1 where the decision is another one without the token, else 0.
    """

    distance: Float[Tensor, "batch seq"]
    flips: Float[Tensor, "batch seq"]


def leave_one_out(
    classifier: AttentionClassifier,
    batch: Batch,
    outputs: Outputs,
    *,
    tolerance: float = TOLERANCE,
    chunk: int = CHUNK,
    shortcut: bool = True,
) -> Removals:
    """Remove each content token in turn, encode what is left, attend and decode anew; markers and question stay.

    Encoders that know which states change (`Encoder.without_each`) only recompute those; the softmax over all positions
    is put together from the unchanged and the changed ones, in float64. Others re-encode every shortened text.

    Args:
        classifier: in eval mode; left as it is.
        outputs: its outputs for this batch.
        tolerance: how far off a recomputed state may be, see `recurrent_changes`; from 1e-5 on, states are recomputed in
            float32 whatever the model's precision, in less than half the time. 0 approximates nothing.
        chunk: most hidden states that are worked on at a time (a single text may exceed it).
        shortcut: False re-encodes every shortened text, whatever the encoder.

    Raises:
        UserError: the model attends to something else than single tokens.

    Note:
        Jain & Wallace take |ŷ − ŷ₋ₜ| of one output in train mode; for two classes this is the total variation distance.
    """
    content = batch.content
    if outputs.content.shape != content.shape:
        raise UserError(
            "leave-one-out removes single tokens, but this model attends to larger units: leave the probe out"
        )
    distance = torch.full(content.shape, torch.nan, dtype=torch.float64, device=content.device)
    flips = distance.clone()
    original = probabilities(outputs.logits.detach().double(), classifier.task)
    changing = Changing.of(classifier, tolerance) if shortcut else None
    with torch.no_grad():
        for example, removed, logits in _logits_without(classifier, batch, outputs, changing, chunk):
            other, base = probabilities(logits.double(), classifier.task), original[example]
            left = (content.sum(1) > 1)[example]
            multi_label = classifier.task is Task.MULTI_LABEL
            apart = prediction_distance(other, base, classifier.task)
            flipped = ((other > 0.5) != (base > 0.5)).any(-1) if multi_label else other.argmax(-1) != base.argmax(-1)
            distance[example, removed] = torch.where(left, apart, torch.nan)
            flips[example, removed] = torch.where(left, flipped.double(), torch.nan)
    last = _last_of_equals(batch)
    return Removals(distance.gather(1, last), flips.gather(1, last))


def _last_of_equals(batch: Batch) -> Int[Tensor, "batch seq"]:
    """For each position the last of the equal tokens beside it. Without one or another of these the text is the same, and
    a rounding error must not rank them."""
    place = torch.arange(batch.ids.shape[1], device=batch.ids.device)
    equal = (batch.ids[:, :-1] == batch.ids[:, 1:]) & batch.content[:, :-1] & batch.content[:, 1:]
    # the nearest position, from here on, that the next one does not equal
    ends = torch.where(F.pad(equal, (0, 1)), len(place), place)
    return ends.flip(1).cummin(1).values.flip(1)


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


def _logits_without(
    classifier: AttentionClassifier, batch: Batch, outputs: Outputs, changing: Changing | None, chunk: int
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """`(example [n], removed [n], logits [n, classes])` until every content token was removed once."""
    for rows in _groups(batch.content, chunk):
        part, states = _rows(batch, rows), _rows_of_outputs(outputs, rows)
        width = int(part.mask.sum(1).max())
        part, states = _trimmed(part, width), _trimmed_outputs(states, width)
        found = None if changing is None else _recombined(classifier, changing, part, states)
        if found is None:
            yield from ((rows[e], r, x) for e, r, x in _reencoded(classifier, part, states, chunk))
        else:
            example, removed, logits = found
            yield rows[example], removed, logits


def _groups(content: Bool[Tensor, "batch seq"], chunk: int) -> Iterator[Int[Tensor, "rows"]]:
    """Examples in turn, so many at a time as have no more than `chunk` content tokens together."""
    group: list[int] = []
    total = 0
    for row, count in enumerate(content.sum(1).tolist()):
        if group and total + count > chunk:
            yield torch.tensor(group, device=content.device)
            group, total = [], 0
        group.append(row)
        total += count
    yield torch.tensor(group, device=content.device)


# --- short cut: only what changed -----------------------------------------------------------------------------


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


def _recombined(
    classifier: AttentionClassifier, changing: Changing, batch: Batch, outputs: Outputs
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Logits without each content token from the unchanged scores and values and the changed ones; None: the encoder
    has no short cut."""
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


# --- any encoder: every shortened text -------------------------------------------------------------------------


def _reencoded(
    classifier: AttentionClassifier, batch: Batch, outputs: Outputs, chunk: int
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Logits of the shortened texts, encoded so many at a time as have no more than `chunk` positions."""
    # the only content token cannot be removed: nothing would be left to attend to
    removable = batch.content & (batch.content.sum(1, keepdim=True) > 1)
    each, every = removable.nonzero(as_tuple=True)
    size = max(1, chunk // batch.ids.shape[1])
    for example, removed in zip(each.split(size), every.split(size), strict=True):
        text = shortened(batch, example, removed)
        hidden = classifier.encode(text)
        query = None if outputs.query is None else outputs.query[example]
        _, attention = classifier.attend(hidden, classifier.content(text), query)
        yield example, removed, classifier.decode(hidden, attention, query, text.candidates)


def shortened(batch: Batch, example: Int[Tensor, "texts"], removed: Int[Tensor, "texts"]) -> Batch:
    """The texts of `example`, each without its token at `removed`."""
    place = torch.arange(batch.ids.shape[1] - 1, device=batch.ids.device)
    source = place + (place >= removed.unsqueeze(1)).long()
    text = _rows(batch, example)
    return replace(
        text,
        ids=text.ids.gather(1, source),
        mask=text.mask.gather(1, source),
        content=text.content.gather(1, source),
        sentence=None if text.sentence is None else text.sentence.gather(1, source),
    )


def _rows(batch: Batch, rows: Int[Tensor, "rows"]) -> Batch:
    """Some examples of a batch, in this order, as often as they are asked for: what a model reads of them."""
    optional = {
        "sentence": batch.sentence,
        "question": batch.question,
        "question_mask": batch.question_mask,
        "candidates": batch.candidates,
    }
    return Batch(
        ids=batch.ids[rows],
        mask=batch.mask[rows],
        content=batch.content[rows],
        labels=batch.labels[rows],
        example_id=batch.example_id[rows],
        **{name: None if value is None else value[rows] for name, value in optional.items()},
    )


def _trimmed(batch: Batch, width: int) -> Batch:
    """Without the columns that are padding in every row."""
    return replace(
        batch,
        ids=batch.ids[:, :width],
        mask=batch.mask[:, :width],
        content=batch.content[:, :width],
        sentence=None if batch.sentence is None else batch.sentence[:, :width],
        rationale=None if batch.rationale is None else batch.rationale[:, :width],
        teacher_attention=None if batch.teacher_attention is None else batch.teacher_attention[:, :width],
    )


def _rows_of_outputs(outputs: Outputs, rows: Int[Tensor, "rows"]) -> Outputs:
    """The outputs of some examples."""
    return replace(
        outputs,
        logits=outputs.logits[rows],
        attention=outputs.attention[rows],
        scores=outputs.scores[rows],
        hidden=outputs.hidden[rows],
        content=outputs.content[rows],
        query=None if outputs.query is None else outputs.query[rows],
    )


def _trimmed_outputs(outputs: Outputs, width: int) -> Outputs:
    """Without the columns that are padding in every row."""
    return replace(
        outputs,
        attention=outputs.attention[:, :width],
        scores=outputs.scores[:, :width],
        hidden=outputs.hidden[:, :width],
        content=outputs.content[:, :width],
    )
