"""What does the prediction lose with each single token? (Jain & Wallace 2019, section 4.1: leave-one-out)"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnprobe.batch import Batch, Outputs, Task, probabilities
from attnprobe.errors import UserError
from attnprobe.measures import total_variation
from attnprobe.models.classifier import AttentionClassifier
from attnprobe.models.shortened import ChangedStates

TOLERANCE = 1e-8
"""Where a shortened text's state counts as being back at the unchanged one's: predictions agree to 1e-7 or better."""
CHUNK = 2048
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
    is put together from the unchanged and the changed ones. Others re-encode every shortened text.

    Args:
        classifier: in eval mode; left as it is.
        outputs: its outputs for this batch.
        tolerance: see `Encoder.without_each`; 0 approximates nothing.
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
    with torch.no_grad():
        for example, removed, logits in _logits_without(classifier, batch, outputs, tolerance, chunk, shortcut):
            other, base = probabilities(logits.double(), classifier.task), original[example]
            left = (content.sum(1) > 1)[example]
            multi_label = classifier.task is Task.MULTI_LABEL
            apart = (other - base).abs().mean(-1) if multi_label else total_variation(other, base)
            flipped = ((other > 0.5) != (base > 0.5)).any(-1) if multi_label else other.argmax(-1) != base.argmax(-1)
            distance[example, removed] = torch.where(left, apart, torch.nan)
            flips[example, removed] = torch.where(left, flipped.double(), torch.nan)
    return Removals(distance, flips)


def _logits_without(
    classifier: AttentionClassifier, batch: Batch, outputs: Outputs, tolerance: float, chunk: int, shortcut: bool
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """`(example [n], removed [n], logits [n, classes])` until every content token was removed once."""
    for rows in _groups(batch.content, chunk):
        part, states = _rows(batch, rows), _rows_of_outputs(outputs, rows)
        width = int(part.mask.sum(1).max())
        part, states = _trimmed(part, width), _trimmed_outputs(states, width)
        changes = None
        if shortcut:
            embeddings = classifier.embed(part.ids)
            changes = classifier.encoder.without_each(embeddings, part.mask, part.content, states.hidden, tolerance)
        if changes is None:
            yield from ((rows[e], r, x) for e, r, x in _reencoded(classifier, part, states, chunk))
        else:
            example, removed, logits = _recombined(classifier, part, states, changes)
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
    order = range(scores.shape[1])
    total = Attended(torch.full_like(scores[:, 0], -torch.inf), torch.zeros_like(values[:, 0]))
    found = [total]
    for position in reversed(order) if reverse else order:
        total = merged(total, Attended(scores[:, position], values[:, position]))
        found.append(total)
    if reverse:
        found.reverse()
    return Attended(torch.stack([one.weight for one in found], 1), torch.stack([one.mean for one in found], 1))


def _recombined(
    classifier: AttentionClassifier, batch: Batch, outputs: Outputs, changes: Iterator[ChangedStates]
) -> tuple[Tensor, Tensor, Tensor]:
    """Logits without each content token from the unchanged scores and values and the changed ones."""
    linear = classifier.decoder.linear

    def values_of(hidden: Tensor) -> Tensor:
        # with a linear decoder the mean of the positions' logits is the logits of the mean
        return (classifier.decoder(hidden) if linear else hidden).double()

    example, removed = batch.content.nonzero(as_tuple=True)
    number = torch.full_like(batch.ids, -1)
    number[example, removed] = torch.arange(len(example), device=example.device)
    scores, values = outputs.scores.double(), values_of(outputs.hidden)
    changed = Attended(scores.new_full((len(example),), -torch.inf), scores.new_zeros(len(example), values.shape[-1]))
    first, last = removed.clone(), removed.clone()
    for item in changes:
        if not len(item.example):
            continue
        text = number[item.example, item.removed]
        kept = batch.content[item.example, item.position]
        query = None if outputs.query is None else outputs.query[item.example]
        score, _ = classifier.attend(item.hidden.unsqueeze(1), torch.ones_like(kept).unsqueeze(1), query)
        new = Attended(torch.where(kept, score.squeeze(1).double(), -torch.inf), values_of(item.hidden))
        together = merged(Attended(changed.weight[text], changed.mean[text]), new)
        changed.weight[text], changed.mean[text] = together
        first[text] = torch.minimum(first[text], item.position)
        last[text] = torch.maximum(last[text], item.position)

    before, behind = running(scores, values, reverse=False), running(scores, values, reverse=True)
    for side, at in ((before, first), (behind, last + 1)):
        changed = merged(changed, Attended(side.weight[example, at], side.mean[example, at]))
    candidates = None if batch.candidates is None else batch.candidates[example]
    if linear:
        logits = changed.mean if candidates is None else changed.mean.masked_fill(~candidates, -torch.inf)
        return example, removed, logits
    query = None if outputs.query is None else outputs.query[example]
    attended = changed.mean.to(outputs.hidden.dtype).unsqueeze(1)
    return example, removed, classifier.decode(attended, torch.ones_like(attended[..., 0]), query, candidates)


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
    """Some examples of a batch, in this order, as often as they are asked for."""
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
