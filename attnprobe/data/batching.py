"""From encoded texts to padded batches: ragged storage, collation, and the order in which batches come."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from attnprobe.batch import Batch
from attnprobe.data.teaching import Lessons
from attnprobe.data.vocabulary import END, PADDING, START

MOST_POSITIONS = 1 << 15
"""Of an evaluation batch: long texts come in smaller ones, so that what a model and the probes hold of a batch does not
grow with the texts' length."""


@dataclass(frozen=True)
class Ragged:
    """Many sequences of different lengths in one flat array: sequence i is `flat[offsets[i]:offsets[i + 1]]`.

    A million texts cost two arrays, not a million objects.
    """

    flat: np.ndarray
    offsets: np.ndarray

    @classmethod
    def of(cls, sequences: Sequence[np.ndarray], dtype: type) -> "Ragged":
        """Store these sequences one after the other."""
        offsets = np.zeros(len(sequences) + 1, np.int64)
        np.cumsum([len(sequence) for sequence in sequences], out=offsets[1:])
        flat = np.concatenate(sequences) if len(sequences) else np.empty(0)
        return cls(flat.astype(dtype, copy=False), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> np.ndarray:
        return self.flat[self.offsets[row] : self.offsets[row + 1]]

    @property
    def lengths(self) -> Int[np.ndarray, " rows"]:
        """Length of every sequence."""
        return np.diff(self.offsets)

    def select(self, rows: Int[np.ndarray, " chosen"]) -> "Ragged":
        """The sequences of these rows, in this order."""
        return Ragged.of([self[row] for row in rows.tolist()], self.flat.dtype.type)


def padded(words: Sequence[np.ndarray]) -> tuple[Int[Tensor, "batch tokens"], Int[Tensor, "batch"]]:
    """Ids of the sequences `<SOS> w1 … wn <EOS>`, padded to the longest, and their numbers of words."""
    lengths = [len(sequence) for sequence in words]
    ids = np.full((len(words), max(lengths) + 2), PADDING, np.int64)
    ids[:, 0] = START
    for row, sequence in enumerate(words):
        ids[row, 1 : len(sequence) + 1] = sequence
        ids[row, len(sequence) + 1] = END
    return torch.from_numpy(ids), torch.tensor(lengths)


def candidate_mask(numbers: Sequence[np.ndarray], classes: int) -> Bool[Tensor, "batch classes"]:
    """True for the classes that each example may be answered with."""
    mask = torch.zeros(len(numbers), classes, dtype=torch.bool)
    for row, allowed in enumerate(numbers):
        mask[row, torch.from_numpy(allowed).long()] = True
    return mask


def collate(
    words: Sequence[np.ndarray],
    labels: Tensor,
    example_id: Tensor,
    *,
    sentence: Sequence[np.ndarray] | None = None,
    rationale: Sequence[np.ndarray] | None = None,
    question: Sequence[np.ndarray] | None = None,
    candidates: Bool[Tensor, "batch classes"] | None = None,
    teacher_attention: Sequence[np.ndarray] | None = None,
    teacher_probability: Float[Tensor, "batch classes"] | None = None,
) -> Batch:
    """Pad sequences of word ids into one batch, each as `<SOS> w1 … wn <EOS>`.

    `sentence` has the sentence of every word, from 0; `rationale` one bool per word, or none at all for an example
    without a rationale; `question` the word ids of the questions; `teacher_attention` one weight per word.
    """
    ids, lengths = padded(words)
    position = torch.arange(ids.shape[1])
    asked, asked_lengths = (None, None) if question is None else padded(question)
    return Batch(
        ids=ids,
        mask=position < lengths[:, None] + 2,
        content=(position >= 1) & (position <= lengths[:, None]),
        labels=labels,
        example_id=example_id,
        sentence=None if sentence is None else per_word(sentence, torch.full(ids.shape, -1)),
        rationale=None if rationale is None else per_word(rationale, torch.zeros(ids.shape, dtype=torch.bool)),
        question=asked,
        question_mask=(
            None
            if asked is None or asked_lengths is None
            else torch.arange(asked.shape[1]) < asked_lengths[:, None] + 2
        ),
        candidates=candidates,
        teacher_attention=None if teacher_attention is None else per_word(teacher_attention, torch.zeros(ids.shape)),
        teacher_probability=teacher_probability,
    )


def per_word(values: Sequence[np.ndarray], into: Shaped[Tensor, "batch tokens"]) -> Shaped[Tensor, "batch tokens"]:
    """Write what belongs to the words of each text behind its start marker."""
    for row, numbers in enumerate(values):
        into[row, 1 : len(numbers) + 1] = torch.from_numpy(numbers)
    return into


@dataclass(frozen=True)
class TextSplit(Dataset[Batch]):
    """One encoded split. Indexed with a *list* of rows it gives the batch of these rows.

    `words` numbers every distinct word of the data set, in or out of the vocabulary, so that the actual text can be
    shown; `vocabulary_id` maps these numbers to vocabulary ids. `labels` are class numbers `[rows]`, or 0/1 floats
    `[rows, classes]`. `example_id` ascends. `rationale` marks each word that a human or the generator gave as reason.
    `sentence` has the sentence of each word, from 0. `question` numbers the question's words as `words` does.
    `candidates` has the numbers of the classes that a row may be answered with, of `classes` in all. `lessons` are what
    a teacher says about the rows.
    """

    example_id: Int[np.ndarray, " rows"]
    words: Ragged
    vocabulary_id: Int[np.ndarray, " words"]
    labels: np.ndarray
    rationale: Ragged | None = None
    sentence: Ragged | None = None
    question: Ragged | None = None
    candidates: Ragged | None = None
    classes: int = 0
    lessons: Lessons | None = None

    def __len__(self) -> int:
        return len(self.example_id)

    def __getitem__(self, rows: Sequence[int]) -> Batch:
        sentence, question, candidates = self.sentence, self.question, self.candidates
        rationale, lessons = self.rationale, self.lessons
        return collate(
            [self.vocabulary_id[self.words[row]] for row in rows],
            torch.from_numpy(self.labels[np.asarray(rows)]),
            torch.from_numpy(self.example_id[np.asarray(rows)]),
            sentence=None if sentence is None else [sentence[row] for row in rows],
            rationale=None if rationale is None else [rationale[row] for row in rows],
            question=None if question is None else [self.vocabulary_id[question[row]] for row in rows],
            candidates=(
                None if candidates is None else candidate_mask([candidates[row] for row in rows], self.classes)
            ),
            teacher_attention=None if lessons is None else [lessons.attention(row) for row in rows],
            teacher_probability=None if lessons is None else torch.from_numpy(lessons.probability(rows)),
        )

    def row_of(self, example_id: int) -> int:
        """The row at which this example is stored.

        Raises:
            KeyError: it is not in this split (or was filtered out).
        """
        row = int(np.searchsorted(self.example_id, example_id))
        if row == len(self) or self.example_id[row] != example_id:
            raise KeyError(f"example {example_id} is not in this split: filtered out, or of another split")
        return row


def shard(batches: list[list[int]], rank: int, world_size: int, *, even: bool) -> list[list[int]]:
    """This process's part of the batches.

    `even` repeats some batches so that every process has the same number (training: gradient steps are taken
    together). Without it no batch comes twice (evaluation: no example may be counted twice).
    """
    if even:
        missing = -len(batches) % world_size
        batches = batches + [batches[i % len(batches)] for i in range(missing)]
    return batches[rank::world_size]


def chunks(order: Int[np.ndarray, " rows"], size: int) -> list[list[int]]:
    """Cut an order of rows into batches."""
    return [order[start : start + size].tolist() for start in range(0, len(order), size)]


def short_enough(
    order: Int[np.ndarray, " rows"], lengths: Int[np.ndarray, " rows"], size: int, most: int = MOST_POSITIONS
) -> list[list[int]]:
    """Cut an order of rows, shortest first, into batches of at most `size` rows and, padding included, `most` positions
    (a single row may exceed it)."""
    batches: list[list[int]] = []
    for row, length in zip(order.tolist(), lengths[order].tolist(), strict=True):
        if not batches or len(batches[-1]) == size or (len(batches[-1]) + 1) * (length + 2) > most:
            batches.append([])
        batches[-1].append(row)
    return batches


class BucketSampler(Sampler[list[int]]):
    """Training batches of similar length in random order.

    Rows are sorted by length · (1 + noise), noise uniform in ±10 %, cut into batches, and the batches are shuffled
    (Jain & Wallace's code). The order depends on (seed, epoch) alone; Lightning calls `set_epoch`.
    """

    def __init__(
        self,
        lengths: Int[np.ndarray, " rows"],
        batch_size: int,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
        noise: float = 0.1,
    ):
        self.lengths, self.batch_size, self.seed, self.noise = lengths, batch_size, seed, noise
        self.rank, self.world_size, self.epoch = rank, world_size, 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of this epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        batches = -(-len(self.lengths) // self.batch_size)
        return -(-batches // self.world_size)

    def __iter__(self) -> Iterator[list[int]]:
        generator = np.random.default_rng((self.seed, self.epoch))
        size = len(self.lengths)
        # + 1: otherwise all texts of the same few words would keep the file's order for ever
        noisy = (self.lengths + 1) * (1 + generator.uniform(-self.noise, self.noise, size))
        batches = chunks(np.argsort(noisy, kind="stable"), self.batch_size)
        order = generator.permutation(len(batches))
        yield from shard([batches[i] for i in order], self.rank, self.world_size, even=True)


class SortedSampler(Sampler[list[int]]):
    """Evaluation batches, shortest texts first: deterministic, each row exactly once over all processes."""

    def __init__(self, lengths: Int[np.ndarray, " rows"], batch_size: int, rank: int = 0, world_size: int = 1):
        batches = short_enough(np.argsort(lengths, kind="stable"), lengths, batch_size)
        self.batches = shard(batches, rank, world_size, even=False)

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.batches)
