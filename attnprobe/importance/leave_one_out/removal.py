"""Leave-one-out of one batch: by a short cut where there is one, a check of it, and by definition
where that fails."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from operator import add
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from attnprobe.core.batch import Batch, Outputs, Task, prediction_distance, probabilities
from attnprobe.core.errors import UserError
from attnprobe.core.settings import Count, Dropout
from attnprobe.data.batching import short_enough
from attnprobe.importance.base import Importance, Note, Scores, Subject
from attnprobe.importance.leave_one_out.recombine import Recombination, Removed, short_cut
from attnprobe.importance.word_removal import KnownTexts, keys_of, known_texts, removable
from attnprobe.models.base import Model, Unit

TOLERANCE = 1e-6
"""A state of a shortened text this close to the unchanged text's is taken for it, and states are
computed in float32."""
CHUNK = 8192
"""Hidden states at a time: keeps memory small whatever the length and the number of the texts."""
LIMIT = 1e-5
"""Largest error of a distance that a check may find, before the batch is measured again."""
SAMPLE = 8
"""Removals of a batch that are checked: half of them those with the largest skipped differences of
states, the others spread evenly over the batch."""
SECOND_SAMPLE = 64
"""The same where the batch failed its first check and was measured again."""


@dataclass(frozen=True)
class Removals:
    """The predictions without each token and with it, per position; NaN outside content and where
    no content token is left.

    Attributes:
        distance: `prediction_distance`.
        flips: 1 where the decision is another one, else 0.
        sampled: removals compared with texts that were encoded again in the model's own precision;
            0 where all were.
        error: largest difference of two of their distances, 0 to 1, of the numbers that are
            returned.
        rejected: the same of the first attempt, where that was over `LIMIT` and the batch was
            measured again; else None.
        reencoded: the numbers are from encoding every shortened text.
    """

    distance: Scores
    flips: Scores
    sampled: int
    error: float
    rejected: float | None
    reencoded: bool


def leave_one_out(
    classifier: Model,
    batch: Batch,
    outputs: Outputs,
    *,
    tolerance: float = TOLERANCE,
    chunk: int = CHUNK,
    shortcut: bool = True,
    known: KnownTexts | None = None,
) -> Removals:
    """Remove each content token in turn, encode what is left, attend and decode again; markers and
    question stay.

    Where the model has a short cut (`short_cut`) only what changes is computed. A sample of the
    removals is then encoded in full. If a distance is off by more than `LIMIT` the batch is
    measured again with tolerance 0, and if that does not help by encoding every shortened text.
    Without a short cut every shortened text is encoded. Raises `UserError` for a model of larger
    units.

    Args:
        tolerance: difference of states that is taken for none, see `recurrent_changes`; from 1e-6
            on, states are computed in float32 whatever the model's precision, in less than half the
            time. 0 approximates nothing.
        chunk: most hidden states that are worked on at a time (a single text may exceed it).
        shortcut: False encodes every shortened text.
        known: gets what is predicted of each text that was encoded from the start.

    Note:
        Jain & Wallace take |ŷ − ŷ₋ₜ| of one output in train mode; for two classes this is the total
        variation distance.
    """
    if classifier.unit is not Unit.WORD:
        raise UserError(
            "leave-one-out removes single tokens, and this model attends to larger units: leave it out"
        )
    task = classifier.task
    content = batch.content
    rejected = None
    original = probabilities(outputs.logits.detach().double(), task)
    with torch.no_grad():
        tolerances = sorted({tolerance, 0.0}, reverse=True) if shortcut else []
        ways = (short_cut(classifier, one) for one in tolerances)
        for way in (*(way for way in ways if way is not None), None):
            distance = torch.full(
                content.shape, torch.nan, dtype=torch.float64, device=content.device
            )
            flips = distance.clone()
            skipped = torch.zeros_like(distance)
            for example, removed, logits, difference in _without_each(
                classifier, batch, outputs, way, chunk
            ):
                other = probabilities(logits.double(), task)
                base = original[example]
                if known is not None and way is None:
                    gone = F.one_hot(removed, content.shape[1]).bool()
                    removal = getattr(classifier, "removal", "delete")
                    known.update(zip(keys_of(example, gone, removal), other, strict=True))
                decisions = [
                    one > 0.5 if task is Task.MULTI_LABEL else one.argmax(-1, True)
                    for one in (other, base)
                ]
                distance[example, removed] = prediction_distance(other, base, task)
                flips[example, removed] = (decisions[0] != decisions[1]).any(-1).double()
                skipped[example, removed] = difference
            if way is None:
                sampled = 0
                error = 0.0
                break
            sample = SAMPLE if rejected is None else SECOND_SAMPLE
            sampled, error = _checked(classifier, batch, original, distance, skipped, sample, chunk)
            if error <= LIMIT:
                break
            rejected = error if rejected is None else rejected
    alone = content.sum(1, keepdim=True) <= 1
    last = _last_of_equals(batch)
    distance, flips = (
        values.masked_fill(alone, torch.nan).gather(1, last) for values in (distance, flips)
    )
    return Removals(distance, flips, sampled, error, rejected, reencoded=way is None)


def _without_each(
    classifier: Model, batch: Batch, outputs: Outputs, way: Recombination | None, chunk: int
) -> Iterator[Removed]:
    """Every content token removed once, but for a text's only one where texts are encoded: nothing
    would be left."""
    if way is None:
        yield from reencoded(classifier, batch, *removable(batch), chunk)
        return
    for some in short_enough(batch.content.sum(1).cpu().numpy() - 2, most=chunk):
        rows = torch.tensor(some, device=batch.content.device)
        width = int(batch.mask[rows].sum(1).max())
        shortened = way.removed(batch.rows(rows).cut(width), outputs.rows(rows, width))
        yield shortened._replace(example=rows[shortened.example])


def reencoded(
    classifier: Model,
    batch: Batch,
    example: Int[Tensor, "texts"],
    removed: Int[Tensor, "texts"],
    chunk: int,
) -> Iterator[Removed]:
    """By definition: the texts of `example`, each without its token at `removed`, about `chunk`
    positions at a time."""
    lengths = batch.lengths[example].cpu().numpy()
    for some in short_enough(lengths - 2, most=chunk) if len(example) else ():
        rows = example[some]
        places = removed[some]
        text = classifier.without(batch, rows, places)
        logits = classifier(text.cut(int(text.mask.sum(1).max()))).logits
        yield Removed(rows, places, logits, torch.zeros_like(logits[:, 0], dtype=torch.float64))


def _checked(
    classifier: Model,
    batch: Batch,
    original: Float[Tensor, "batch classes"],
    distance: Scores,
    skipped: Scores,
    sample: int,
    chunk: int,
) -> tuple[int, float]:
    """How many removals were compared with texts encoded in full, and the largest difference of two
    distances: 1, the largest there can be, where either is not a number."""
    example, removed = removable(batch)
    if not len(example):
        return 0, 0.0
    largest = skipped[example, removed].sort(descending=True, stable=True).indices[: sample // 2]
    evenly = (
        ((torch.arange(sample // 2) + 0.5) * len(example) / (sample // 2)).long().to(example.device)
    )
    chosen = torch.cat([largest, evenly]).unique()
    errors = []
    for rows, places, logits, _ in reencoded(
        classifier, batch, example[chosen], removed[chosen], chunk
    ):
        exact = prediction_distance(
            probabilities(logits.double(), classifier.task), original[rows], classifier.task
        )
        errors.append((distance[rows, places] - exact).abs())
    return len(chosen), float(torch.cat(errors).nan_to_num(nan=1).amax())


def _last_of_equals(batch: Batch) -> Int[Tensor, "batch seq"]:
    """For each position the last of the equal tokens beside it. Without one or another of these the
    text is the same, and a rounding error must not rank them."""
    read: list[list[Any]] = batch.ids.tolist()
    if batch.pieces is not None and batch.piece_word is not None:
        # by their pieces: words that the vocabulary does not have share an id
        read = [[[] for _ in row] for row in read]
        for words, pieces, of_word in zip(
            read, batch.pieces.tolist(), batch.piece_word.tolist(), strict=True
        ):
            for piece, word in zip(pieces, of_word, strict=True):
                if word >= 0:
                    words[word].append(piece)
    equal = torch.tensor([[a == b for a, b in pairwise(row)] for row in read], dtype=torch.bool).to(
        batch.ids.device
    )
    equal &= batch.content[:, :-1] & batch.content[:, 1:]
    place = torch.arange(batch.ids.shape[1], device=batch.ids.device)
    # the nearest position, from here on, that the next one does not equal
    ends = torch.where(F.pad(equal, (0, 1)), len(place), place)
    return ends.flip(1).cummin(1).values.flip(1)


@dataclass(frozen=True)
class LeaveOneOut(Importance):
    """Total variation distance, 0 to 1, between the predictions without the token and with it; the
    text encoded again.

    NaN in a text of one word: nothing is left without it.

    Attributes:
        tolerance: an LSTM's state of a shortened text that is this close to the unchanged text's is
            taken for it, and from 1e-6 on states are computed in float32. What that does to the
            distances is checked, see `leave_one_out`.
        chunk: hidden states at a time; lower it where memory is short.
    """

    name = "leave_one_out"
    title = "leave-one-out"
    colour = "#332288"
    of_words = True
    tolerance: Dropout = TOLERANCE
    chunk: Count = CHUNK

    def removals(self, subject: Subject) -> Removals:
        return leave_one_out(
            subject.classifier,
            subject.batch,
            subject.outputs,
            tolerance=self.tolerance,
            chunk=self.chunk,
            known=subject.cached(known_texts),
        )

    def scores(self, subject: Subject) -> Scores:
        return subject.cached(self.removals).distance

    def notes(self, subject: Subject) -> Iterator[Note]:
        """How exact the batch's leave-one-out is: see `Removals`. Texts were measured again
        (`texts_remeasured`) because the error was too large at first (`largest_error_before`), or
        all encoded in full (`texts_reencoded`)."""
        found = subject.cached(self.removals)
        texts = len(subject.batch)
        yield Note("removals_checked", found.sampled, add)
        if found.sampled:
            yield Note("largest_error", found.error, max)
        if found.rejected is not None:
            yield Note("largest_error_before", found.rejected, max)
        yield Note("texts_remeasured", texts if found.rejected is not None else 0, add)
        yield Note("texts_reencoded", texts if found.reencoded else 0, add)
