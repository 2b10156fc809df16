"""Leave-one-out of one batch.

By a short cut where there is one, with a check of it; by definition where that fails.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from operator import add
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from attnprobe.core.batch import Batch, Outputs, Task, prediction_distance, probabilities
from attnprobe.core.clock import CLOCK
from attnprobe.core.settings import Count, Dropout
from attnprobe.data.batching import short_enough
from attnprobe.data.characters import ATTENDED
from attnprobe.importance.base import Importance, Note, Scores, Subject
from attnprobe.importance.leave_one_out.recombine import Recombination, Removed, short_cut
from attnprobe.importance.word_removal import (
    KnownTexts,
    deleted,
    keys_of,
    known_texts,
    removable,
    words_at,
)
from attnprobe.models.base import Model, Unit

TOLERANCE = 1e-6
"""Difference of states that is taken for none; states are computed in float32."""
CHUNK = 8192
"""Hidden states at a time: keeps memory small whatever the length and the number of the texts."""
LIMIT = 1e-5
"""Largest error of a distance that a check may find, before the batch is measured again."""
BLANK = re.compile(r"\s*")
BORDER = "\0"
"""Stands behind each text where its white space is looked for."""
SAMPLE = 8
"""Removals of a batch that are checked.

Half of them those with the largest skipped differences of states, the others spread evenly over the
batch.
"""
SECOND_SAMPLE = 64
"""The same where the batch failed its first check and was measured again."""


@dataclass(frozen=True)
class Removals:
    """The predictions without each token beside those with it, per position.

    NaN outside content and where no content token is left.

    Attributes:
        distance: `prediction_distance`, 0 to 1.
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


class Measured(NamedTuple):
    """`Removals.distance` and `flips`, and the difference of states that was skipped for each."""

    distance: Scores
    flips: Scores
    skipped: Scores


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
    """Remove each content token in turn, encode what is left, attend and decode again.

    Of a model that attends to sentences each sentence with all its words. Markers and question
    stay. Where the model has a short cut (`short_cut`) only what changes is
    computed. A sample of the removals is then encoded in full. If a distance is off by more than
    `LIMIT` the batch is measured again with tolerance 0, and if that does not help by encoding
    every shortened text. Without a short cut every shortened text is encoded; there is none for
    sentences.

    Args:
        classifier: in eval mode; is left as it is.
        batch: the texts.
        outputs: the classifier's for them.
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
    rejected = None
    shortcut = shortcut and classifier.unit is Unit.WORD
    with torch.no_grad():
        for way in _ways(classifier, tolerance if shortcut else None):
            measured = _measure(classifier, batch, outputs, way, chunk, known)
            sampled = 0
            error = 0.0
            if way is None:
                break
            sample = SAMPLE if rejected is None else SECOND_SAMPLE
            sampled, error = _check(classifier, batch, outputs, measured, sample, chunk)
            if error <= LIMIT:
                break
            if rejected is None:
                rejected = error

    single = outputs.text.sum(1, keepdim=True) <= 1
    last = _last_of_equals(classifier, batch, outputs)
    distance = measured.distance.masked_fill(single, torch.nan).gather(1, last)
    flips = measured.flips.masked_fill(single, torch.nan).gather(1, last)
    return Removals(distance, flips, sampled, error, rejected, reencoded=way is None)


def _ways(classifier: Model, tolerance: float | None) -> Iterator[Recombination | None]:
    """From the quickest to the definition, which is None; no short cut without a tolerance."""
    tolerances = [] if tolerance is None else sorted({tolerance, 0.0}, reverse=True)
    for difference in tolerances:
        way = short_cut(classifier, difference)
        if way is not None:
            yield way
    yield None


def _measure(
    classifier: Model,
    batch: Batch,
    outputs: Outputs,
    way: Recombination | None,
    chunk: int,
    known: KnownTexts | None,
) -> Measured:
    text = outputs.text
    original = probabilities(outputs.logits.detach().double(), classifier.task)
    distance = torch.full(text.shape, torch.nan, dtype=torch.float64, device=text.device)
    flips = distance.clone()
    skipped = torch.zeros_like(distance)
    for example, removed, logits, difference in _without_each(
        classifier, batch, outputs, way, chunk
    ):
        reduced = probabilities(logits.double(), classifier.task)
        whole = original[example]
        if known is not None and way is None:
            position = F.one_hot(removed, text.shape[1]).bool()
            gone = words_at(classifier, batch.rows(example), position)
            operator = "mask" if classifier.removal == "mask" else "delete"
            keys = keys_of(example, gone, operator)
            known.update(zip(keys, reduced, strict=True))
        flipped = _decision(reduced, classifier.task) != _decision(whole, classifier.task)
        distance[example, removed] = prediction_distance(reduced, whole, classifier.task)
        flips[example, removed] = flipped.any(-1).double()
        skipped[example, removed] = difference
    return Measured(distance, flips, skipped)


def _decision(probability: Float[Tensor, "texts classes"], task: Task) -> Tensor:
    """The class that is decided for, or whether each label is."""
    if task is Task.MULTI_LABEL:
        return probability > 0.5
    return probability.argmax(-1, keepdim=True)


def _without_each(
    classifier: Model, batch: Batch, outputs: Outputs, way: Recombination | None, chunk: int
) -> Iterator[Removed]:
    """Remove every content token, or every sentence, once.

    But for a text's only one where texts are encoded: nothing would be left.
    """
    if way is None:
        yield from reencoded(classifier, batch, *removable(outputs.text), chunk)
        return
    for group in short_enough(batch.content.sum(1).cpu().numpy() - 2, most=chunk):
        rows = torch.tensor(group, device=batch.content.device)
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
    """Encode texts, each without one token or one sentence: leave-one-out by definition.

    Args:
        classifier: in eval mode.
        batch: whole texts.
        example: rows of the batch, one for each shortened text.
        removed: the position of its removed token, or the number of its removed sentence.
        chunk: positions at a time, about.
    """
    lengths = batch.lengths[example].cpu().numpy()
    groups = short_enough(lengths - 2, most=chunk) if len(example) else ()
    for group in CLOCK.track(groups, "words removed", "batches"):
        rows = example[group]
        places = removed[group]
        text = _without(classifier, batch, rows, places)
        logits = classifier(text.cut(int(text.mask.sum(1).max()))).logits
        yield Removed(rows, places, logits, torch.zeros_like(logits[:, 0], dtype=torch.float64))


def _without(
    classifier: Model,
    batch: Batch,
    example: Int[Tensor, "texts"],
    removed: Int[Tensor, "texts"],
) -> Batch:
    """The texts of `example`, each without its token, or its sentence, at `removed`."""
    if classifier.unit is Unit.WORD:
        return classifier.without(batch, example, removed)
    texts = batch.rows(example)
    gone = classifier.position_of(texts) == removed.unsqueeze(1)
    return classifier.reread(deleted(texts, gone))


def _check(
    classifier: Model,
    batch: Batch,
    outputs: Outputs,
    measured: Measured,
    sample: int,
    chunk: int,
) -> tuple[int, float]:
    """Compare a sample of the removals with texts encoded in full.

    Returns:
        How many were compared, and the largest difference of two distances: 1, the largest there
        can be, where either is not a number.
    """
    example, removed = removable(outputs.text)
    if not len(example):
        return 0, 0.0
    half = sample // 2
    skipped = measured.skipped[example, removed]
    largest = skipped.sort(descending=True, stable=True).indices[:half]
    evenly = ((torch.arange(half) + 0.5) * len(example) / half).long().to(example.device)
    chosen = torch.cat([largest, evenly]).unique()

    task = classifier.task
    original = probabilities(outputs.logits.detach().double(), task)
    errors = []
    for rows, places, logits, _ in reencoded(
        classifier, batch, example[chosen], removed[chosen], chunk
    ):
        exact = prediction_distance(probabilities(logits.double(), task), original[rows], task)
        errors.append((measured.distance[rows, places] - exact).abs())
    return len(chosen), float(torch.cat(errors).nan_to_num(nan=1).amax())


def _last_of_equals(classifier: Model, batch: Batch, outputs: Outputs) -> Int[Tensor, "batch seq"]:
    """For each position the last of the equal tokens, or sentences, beside it in its text.

    Without one or another of these the text is the same, and a rounding error must not rank them.
    It is not where a mask stays in the place of each, nor across the border of a pair of texts.
    """
    text = outputs.text
    if classifier.removal == "mask":
        return torch.arange(text.shape[1], device=text.device).expand_as(text)

    rows = []
    for positions in _positions(classifier, batch, text.shape[1]):
        rows.append([position == following for position, following in pairwise(positions)])
    equal = torch.tensor(rows, dtype=torch.bool).view(len(text), -1)
    equal = equal.to(text.device) & text[:, :-1] & text[:, 1:]
    place = torch.arange(text.shape[1], device=text.device)
    # the nearest position, from here on, that the next one does not equal
    ends = torch.where(F.pad(equal, (0, 1)), len(place), place)
    return ends.flip(1).cummin(1).values.flip(1)


def _positions(classifier: Model, batch: Batch, width: int) -> list[list[list[Any]]]:
    """The words at each of `width` positions of every text: one, or those of a sentence.

    Beside each word are the number of its text, of a pair, and the white space that goes with it.
    """
    segment = torch.zeros_like(batch.ids) if batch.segment is None else batch.segment
    columns = (
        _words(batch),
        segment.tolist(),
        _white_space(classifier, batch),
        classifier.position_of(batch).tolist(),
    )
    texts = []
    for words, segments, spaces, places in zip(*columns, strict=True):
        positions: list[list[Any]] = [[] for _ in range(width)]
        for word, number, space, place in zip(words, segments, spaces, places, strict=True):
            if place >= 0:
                positions[place].append((word, number, space))
        texts.append(positions)
    return texts


def _words(batch: Batch) -> list[list[Any]]:
    """What the model reads at each position: an id, or the word's pieces.

    Words that the vocabulary does not have share an id, and differ in their pieces.
    """
    if batch.pieces is None or batch.piece_word is None:
        return batch.ids.tolist()
    texts: list[list[list[int]]] = []
    for pieces, places in zip(batch.pieces.tolist(), batch.piece_word.tolist(), strict=True):
        words: list[list[int]] = [[] for _ in range(batch.ids.shape[1])]
        for piece, place in zip(pieces, places, strict=True):
            if place >= 0:
                words[place].append(piece)
        texts.append(words)
    return texts


def _white_space(classifier: Model, batch: Batch) -> list[list[str]]:
    """The white space that a model which reads texts again takes out with each word.

    Empty for a marker and padding, and for a model that reads no text again.
    """
    if classifier.removal != "characters":
        return [[""] * batch.ids.shape[1]] * len(batch)
    assert batch.characters is not None
    assert batch.span_start is not None
    assert batch.span_end is not None
    columns = (batch.characters.tolist(), batch.span_start.tolist(), batch.span_end.tolist())
    texts = []
    for codes, starts, ends in zip(*columns, strict=True):
        # padding and the borders of texts are no characters
        string = "".join(chr(code) if 0 <= code < ATTENDED else BORDER for code in codes) + BORDER
        words = zip(starts, ends, strict=True)
        texts.append([_space_of(string, start, end) if start >= 0 else "" for start, end in words])
    return texts


def _space_of(string: str, start: int, end: int) -> str:
    """The white space behind a word; at the end of a text that before it.

    Args:
        string: the texts, each with `BORDER` behind it.
        start: of the word.
        end: of the word, exclusive.
    """
    behind = BLANK.match(string, end)
    assert behind is not None
    if string[behind.end()] != BORDER:
        return behind[0]
    before = string[:start]
    return before[len(before.rstrip()) :]


@dataclass(frozen=True)
class LeaveOneOut(Importance):
    """Total variation distance, 0 to 1, between the predictions without the token and with it.

    The text is encoded again. Of a model that attends to sentences it is a whole sentence that
    goes. NaN in a text of one word, or of one sentence: nothing is left without it.

    Attributes:
        tolerance: an LSTM's state of a shortened text that is this close to the unchanged text's is
            taken for it, and from 1e-6 on states are computed in float32. What that does to the
            distances is checked, see `leave_one_out`.
        chunk: hidden states at a time; lower it where memory is short.
    """

    name = "leave_one_out"
    title = "leave-one-out"
    colour = "#332288"
    tolerance: Dropout = TOLERANCE
    chunk: Count = CHUNK

    def removals(self, subject: Subject) -> Removals:
        """Measure the batch, with what was found on the way."""
        return leave_one_out(
            subject.classifier,
            subject.batch,
            subject.outputs,
            tolerance=self.tolerance,
            chunk=self.chunk,
            known=subject.cached(known_texts),
        )

    def scores(self, subject: Subject) -> Scores:
        """`Removals.distance`."""
        return subject.cached(self.removals).distance

    def notes(self, subject: Subject) -> Iterator[Note]:
        """How exact the batch's leave-one-out is: see `Removals`.

        Texts were measured again (`texts_remeasured`) because the error was too large at first
        (`largest_error_before`), or all encoded in full (`texts_reencoded`).
        """
        removals = subject.cached(self.removals)
        texts = len(subject.batch)
        yield Note("removals_checked", removals.sampled, add)
        if removals.sampled:
            yield Note("largest_error", removals.error, max)
        if removals.rejected is not None:
            yield Note("largest_error_before", removals.rejected, max)
        yield Note("texts_remeasured", texts if removals.rejected is not None else 0, add)
        yield Note("texts_reencoded", texts if removals.reencoded else 0, add)
