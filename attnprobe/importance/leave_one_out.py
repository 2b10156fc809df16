"""What does the prediction lose with each single token? (Jain & Wallace 2019, section 4.1: leave-one-out)"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from attnprobe.batch import Batch, Outputs, Task, prediction_distance, probabilities
from attnprobe.errors import UserError
from attnprobe.importance.recombined import Changing, recombined
from attnprobe.models.classifier import AttentionClassifier

TOLERANCE = 1e-6
"""How far off a state of a shortened text may be: on IMDB, predictions then agree to 9e-7."""
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
        tolerance: how far off a recomputed state may be, see `recurrent_changes`; from 1e-6 on, states are recomputed in
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


def _logits_without(
    classifier: AttentionClassifier, batch: Batch, outputs: Outputs, changing: Changing | None, chunk: int
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """`(example [n], removed [n], logits [n, classes])` until every content token was removed once."""
    for rows in _groups(batch.content, chunk):
        part, states = _rows(batch, rows), _rows_of_outputs(outputs, rows)
        width = int(part.mask.sum(1).max())
        part, states = _trimmed(part, width), _trimmed_outputs(states, width)
        found = None if changing is None else recombined(classifier, changing, part, states)
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
