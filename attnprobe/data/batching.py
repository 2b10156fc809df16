"""From encoded texts to padded batches: ragged storage and collation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor
from torch.utils.data import Dataset

from attnprobe.batch import Axis, Batch
from attnprobe.data.ragged import Ragged
from attnprobe.data.teaching import TeacherOutputs
from attnprobe.data.vocabulary import END, PADDING, START


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


def collate(columns: Mapping[str, Any], classes: int = 0) -> Batch:
    """Pad examples into one batch, each text as `<SOS> w1 … wn <EOS>`.

    Args:
        columns: the values of each column of the batch, by the name of its field in `Batch`: for a column over the
            tokens one array per example with an entry per word (fewer: none for this example); over the question, its
            word ids; over the classes, the numbers of those that are True; else one array for all examples. `ids` are
            the word ids of the texts. Names that `Batch` does not have go into `Batch.extra`.
        classes: how many classes there are, where a column is over the classes.
    """
    ids, lengths = padded(columns["ids"])
    position = torch.arange(ids.shape[1])
    values: dict[str, Any] = {
        "ids": ids,
        "mask": position < lengths[:, None] + 2,
        "content": (position >= 1) & (position <= lengths[:, None]),
    }
    if "question" in columns:
        asked, asked_lengths = padded(columns["question"])
        values["question"] = asked
        values["question_mask"] = torch.arange(asked.shape[1]) < asked_lengths[:, None] + 2
    declared = {one.name: one.metadata for one in fields(Batch)}
    extra: dict[str, Tensor] = {}
    for name, given in columns.items():
        if name in values:
            continue
        facts = declared.get(name, declared["extra"])
        if facts["axis"] is Axis.TOKENS:
            value = per_word(given, ids.shape, facts["pad"])
        elif facts["axis"] is Axis.PIECES:
            width = max(map(len, given))
            value = torch.full((len(given), width), facts["pad"], dtype=torch.long)
            for row, numbers in enumerate(given):
                value[row, : len(numbers)] = torch.from_numpy(numbers)
        elif facts["axis"] is Axis.CLASSES:
            value = candidate_mask(given, classes)
        else:
            value = torch.from_numpy(given)
        (values if name in declared else extra)[name] = value
    return Batch(**values, extra=extra)


def per_word(values: Sequence[np.ndarray], shape: torch.Size, pad: float) -> Shaped[Tensor, "batch tokens"]:
    """What belongs to the words of each text, written after its start marker."""
    kind = torch.from_numpy(values[0]).dtype
    into = torch.full(shape, pad, dtype=kind if kind is torch.bool or kind.is_floating_point else torch.long)
    for row, numbers in enumerate(values):
        into[row, 1 : len(numbers) + 1] = torch.from_numpy(numbers)
    return into


@dataclass(frozen=True)
class TextSplit(Dataset[Batch]):
    """One encoded split. Indexed with a *list* of rows it gives the batch of these rows.

    `words` numbers every distinct word of the data set, in or out of the vocabulary: `spelling` has it as it is in the
    text, `vocabulary_id` its id. `example_id` ascends. `columns` has the other columns of the batches by name
    (`attnprobe.batch.Batch`): `labels` are class numbers `[rows]`, or 0/1 floats `[rows, classes]`; `question` and
    `counterfactual` number words as `words` does; `candidates` has class numbers. `teacher` is what a teacher says about the
    rows.
    """

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
            columns[name] = [values[row] for row in rows] if isinstance(values, Ragged) else values[chosen]
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
        return self[sorted({int(order[place]) for place in (0, len(order) // 2, 3 * len(order) // 4)})]

    @property
    def labels(self) -> np.ndarray:
        """The column of the labels."""
        labels = self.columns["labels"]
        assert isinstance(labels, np.ndarray)
        return labels

    def row_of(self, example_id: int) -> int:
        """The row at which this example is stored.

        Raises:
            KeyError: it is not in this split (or was filtered out).
        """
        row = int(np.searchsorted(self.example_id, example_id))
        if row == len(self) or self.example_id[row] != example_id:
            raise KeyError(f"example {example_id} is not in this split: filtered out, or of another split")
        return row

    def tokens(self, example_id: int) -> list[str]:
        """The words at the content positions of one example, out-of-vocabulary words as they are in the text."""
        return self.tokens_at(self.row_of(example_id))

    def tokens_at(self, row: int) -> list[str]:
        """As `tokens`, of the example stored at this row."""
        return [self.spelling[number] for number in self.words[row].tolist()]

    def question(self, example_id: int) -> list[str] | None:
        """The words of one example's question; None where nothing is asked."""
        numbers = self._entry("question", example_id)
        return None if numbers is None else [self.spelling[number] for number in numbers]

    def candidates(self, example_id: int) -> list[str] | None:
        """The classes that one example may be answered with; None where the data do not restrict them."""
        numbers = self._entry("candidates", example_id)
        return None if numbers is None else [self.classes[number] for number in numbers]

    def rationale(self, example_id: int) -> list[bool] | None:
        """Which content positions are the reason for the label; None where the data do not say."""
        return self._entry("rationale", example_id) or None

    def _entry(self, name: str, example_id: int) -> list[Any] | None:
        values = self.columns.get(name)
        return None if values is None else values[self.row_of(example_id)].tolist()
