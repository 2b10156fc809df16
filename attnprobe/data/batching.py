"""From encoded texts to padded batches: collation, the order of batches, and counts of words."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from attnprobe.core.batch import Axis, Batch
from attnprobe.data.examples import Ragged
from attnprobe.data.teacher import TeacherOutputs
from attnprobe.data.vocabulary import END, PADDING, START, document_frequency


def collate(columns: Mapping[str, Any], classes: int = 0) -> Batch:
    """Pad examples into one batch, each text as `<SOS> w1 … wn <EOS>`.

    Args:
        columns: the values of each column of the batch, by the name of its field in `Batch`: for a
            column over the tokens one array per example with an entry per word (fewer: none for
            this example); over the question, its word ids; over the classes, the numbers of those
            that are True; else one array for all examples. `ids` are the word ids of the texts.
            Names that `Batch` does not have go into `Batch.extra`.
        classes: how many classes there are, where a column is over the classes.
    """
    values: dict[str, Any] = {}
    for name, mask in (("ids", "mask"), ("question", "question_mask")):
        if name in columns:
            lengths = np.array([len(sequence) for sequence in columns[name]])
            padded = np.full((len(lengths), max(lengths) + 2), PADDING, np.int64)
            padded[:, 0] = START
            for row, sequence in enumerate(columns[name]):
                padded[row, 1 : len(sequence) + 1] = sequence
                padded[row, len(sequence) + 1] = END
            values[name] = torch.from_numpy(padded)
            values[mask] = torch.from_numpy(np.arange(padded.shape[1]) < lengths[:, None] + 2)
    ids = values["ids"]
    values["content"] = torch.zeros_like(values["mask"])
    values["content"][:, 1:-1] = values["mask"][:, 2:]
    declared = {one.name: one.metadata for one in fields(Batch)}
    extra: dict[str, Tensor] = {}
    for name, given in columns.items():
        if name in values:
            continue
        facts = declared.get(name, declared["extra"])
        if facts["axis"] is Axis.EXAMPLE:
            value = torch.from_numpy(given)
        elif facts["axis"] is Axis.CLASSES:
            value = torch.zeros(len(given), classes, dtype=torch.bool)
            for row, allowed in enumerate(given):
                value[row, torch.from_numpy(allowed).long()] = True
        else:
            # words begin after the start marker; pieces have their own
            first, width = (
                (1, ids.shape[1]) if facts["axis"] is Axis.TOKENS else (0, max(map(len, given)))
            )
            kind = torch.from_numpy(given[0]).dtype
            kind = kind if kind is torch.bool or kind.is_floating_point else torch.long
            value = torch.full((len(given), width), facts.get("pad", 0), dtype=kind)
            for row, numbers in enumerate(given):
                value[row, first : first + len(numbers)] = torch.from_numpy(numbers)
        (values if name in declared else extra)[name] = value
    return Batch(**values, extra=extra)


@dataclass(frozen=True)
class TextSplit(Dataset[Batch]):
    """One encoded split. Indexed with a *list* of rows it gives the batch of these rows.

    `words` numbers every distinct word of the data set: `spelling` has it as it is in the text,
    `vocabulary_id` its id. `example_id` ascends. `columns` has the other columns of the batches by
    name (`attnprobe.core.batch.Batch`): `labels` are class numbers `[rows]`, or 0/1 floats `[rows,
    classes]`; `question` and `counterfactual` number words as `words` does; `candidates` has class
    numbers."""

    example_id: Int[np.ndarray, " rows"]
    words: Ragged
    vocabulary_id: Int[np.ndarray, " words"]
    columns: Mapping[str, Ragged | np.ndarray]
    spelling: Sequence[str] = ()
    classes: Sequence[str] = ()
    teacher: TeacherOutputs | None = None

    def __len__(self) -> int:
        return len(self.example_id)

    def __getitem__(self, rows: Sequence[int]) -> Batch:
        chosen = np.asarray(rows)
        columns: dict[str, Any] = {
            "ids": [self.vocabulary_id[self.words[row]] for row in rows],
            "example_id": self.example_id[chosen],
        }
        for name, values in self.columns.items():
            columns[name] = (
                [values[row] for row in rows] if isinstance(values, Ragged) else values[chosen]
            )
        for name in ("question", "counterfactual"):
            if name in columns:
                columns[name] = [self.vocabulary_id[numbers] for numbers in columns[name]]
        if self.teacher is not None:
            columns["teacher_attention"] = [self.teacher.attention[row] for row in rows]
            columns["teacher_probability"] = self.teacher.probability[chosen]
        return collate(columns, len(self.classes))

    def sample(self) -> Batch:
        """A few examples of different lengths, the shortest among them."""
        order = np.argsort(self.words.lengths, kind="stable")
        return self[
            sorted({int(order[place]) for place in (0, len(order) // 2, 3 * len(order) // 4)})
        ]

    @property
    def labels(self) -> np.ndarray:
        """The column of the labels."""
        labels = self.columns["labels"]
        assert isinstance(labels, np.ndarray)
        return labels

    def row_of(self, example_id: int) -> int:
        """The row at which this example is stored; a `KeyError` where it is not in this split (or
        was filtered out)."""
        row = int(np.searchsorted(self.example_id, example_id))
        if row == len(self) or self.example_id[row] != example_id:
            raise KeyError(
                f"example {example_id} is not in this split: filtered out, or of another split"
            )
        return row

    def tokens(self, example_id: int) -> list[str]:
        """The words at the content positions of one example, out-of-vocabulary words as they are in
        the text."""
        return [self.spelling[number] for number in self.words[self.row_of(example_id)].tolist()]

    def question(self, example_id: int) -> list[str] | None:
        """The words of one example's question; None where nothing is asked."""
        if asked := self._entry(
            "asked", example_id
        ):  # a class for every word: which one, and where
            place = asked.index(max(asked))
            return [self.tokens(example_id)[place], f"({place + 1})"]
        numbers = self._entry("question", example_id)
        return None if numbers is None else [self.spelling[number] for number in numbers]

    def candidates(self, example_id: int) -> list[str] | None:
        """The classes that one example may be answered with; None where the data do not restrict
        them."""
        numbers = self._entry("candidates", example_id)
        return None if numbers is None else [self.classes[number] for number in numbers]

    def rationale(self, example_id: int) -> list[bool] | None:
        """Which content positions are the reason for the label; None where the data do not say."""
        return self._entry("rationale", example_id) or None

    def _entry(self, name: str, example_id: int) -> list[Any] | None:
        values = self.columns.get(name)
        return None if values is None else values[self.row_of(example_id)].tolist()


MOST_POSITIONS = 1 << 15
"""Of an evaluation batch: long texts come in smaller ones, so that what a model and the probes hold
of a batch does not grow with the texts' length."""


def short_enough(
    lengths: Int[np.ndarray, " rows"], size: int | None = None, most: int = MOST_POSITIONS
) -> list[list[int]]:
    """Evaluation batches: every row once, shortest first, in batches of at most `size` rows and,
    padding included, `most` positions (a single row may exceed it); `lengths` are without the
    markers."""
    order = np.argsort(lengths, kind="stable")
    batches: list[list[int]] = []
    for row, length in zip(order.tolist(), lengths[order].tolist(), strict=True):
        if not batches or len(batches[-1]) == size or (len(batches[-1]) + 1) * (length + 2) > most:
            batches.append([])
        batches[-1].append(row)
    return batches


class BucketSampler(Sampler[list[int]]):
    """Training batches of similar length in random order.

    Rows are sorted by length · (1 + noise), noise uniform in ±10 %, cut into batches, and the
    batches are shuffled (Jain & Wallace's code). The order depends on (seed, epoch) alone;
    Lightning calls `set_epoch`."""

    def __init__(
        self,
        lengths: Int[np.ndarray, " rows"],
        batch_size: int,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
    ):
        self.lengths = lengths
        self.batch_size = batch_size
        self.seed = seed
        self.rank = rank
        self.world_size = world_size
        self.epoch = 0

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
        noisy = (self.lengths + 1) * (1 + generator.uniform(-0.1, 0.1, size))
        rows = np.argsort(noisy, kind="stable")
        batches = [
            rows[start : start + self.batch_size].tolist()
            for start in range(0, size, self.batch_size)
        ]
        order = generator.permutation(len(batches))
        # some are repeated, so that every process has the same number: gradient steps are taken
        # together
        yield from (
            batches[i]
            for i in np.resize(order, len(self) * self.world_size)[self.rank :: self.world_size]
        )


def log_odds_ratios(
    part: TextSplit, words: int, classes: int
) -> Float[np.ndarray, "vocabulary classes"]:
    """Of each word of the vocabulary and each class (or label), ln of the odds that a text of the
    class has the word over the odds that a text of another class has it, each count with ½ added
    (Haldane 1956)."""
    columns = []
    for number in range(classes):
        of_class = part.labels[:, number] > 0.5 if part.labels.ndim == 2 else part.labels == number
        logits = []
        for chosen in (of_class, ~of_class):
            texts = part.words.select(np.flatnonzero(chosen))
            there = document_frequency(part.vocabulary_id[texts.flat], texts.offsets, words)
            logits.append(np.log((there + 0.5) / (chosen.sum() - there + 0.5)))
        columns.append(logits[0] - logits[1])
    return np.stack(columns, -1)
