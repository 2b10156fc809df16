"""From encoded texts to padded batches: collation, the order of batches, and counts of words."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.utils.data import Dataset
from torch.utils.data.distributed import DistributedSampler

from attnprobe.core.batch import Axis, Batch
from attnprobe.data.characters import Characters
from attnprobe.data.examples import Ragged
from attnprobe.data.passages import Passages
from attnprobe.data.teacher import TeacherOutputs
from attnprobe.data.vocabulary import END, PADDING, START, document_frequency

FACTS = {column.name: column.metadata for column in fields(Batch)}
"""Axis and padding of every column of a batch."""


def collate(columns: Mapping[str, Any], classes: int = 0) -> Batch:
    """Pad examples into one batch, each text as `<SOS> w1 … wn <EOS>`.

    Args:
        columns: the values of each column of the batch, by the name of its field in `Batch`. `ids`
            are the word ids of the texts. A column over the tokens has one array per example with
            an entry per word (an empty one: nothing for this example); over the question, its word
            ids; over the classes, the numbers of those that are True; any other column is one array
            for all examples. Names that `Batch` does not have go into `Batch.extra`.
        classes: how many classes there are, where a column is over the classes.
    """
    values: dict[str, Any] = {}
    extra: dict[str, Tensor] = {}
    values["ids"], values["mask"] = _with_markers(columns["ids"])
    values["content"] = torch.zeros_like(values["mask"])
    values["content"][:, 1:-1] = values["mask"][:, 2:]
    if "question" in columns:
        values["question"], values["question_mask"] = _with_markers(columns["question"])

    width = values["ids"].shape[1]
    for name, entries in columns.items():
        if name in ("ids", "question"):
            continue
        if name in FACTS:
            values[name] = _padded(entries, FACTS[name], width, classes)
        else:
            extra[name] = _padded(entries, FACTS["extra"], width, classes)
    return Batch(**values, extra=extra)


def character_columns(texts: Sequence[Characters]) -> dict[str, Any]:
    """What `collate` takes of the characters of texts."""
    return {
        "characters": [text.codes for text in texts],
        "span_start": [text.starts for text in texts],
        "span_end": [text.ends for text in texts],
    }


def _with_markers(
    sequences: Sequence[Int[np.ndarray, " words"]],
) -> tuple[Int[Tensor, "batch tokens"], Bool[Tensor, "batch tokens"]]:
    """Word ids between their markers and padded, and which of the positions are no padding."""
    lengths = np.array([len(sequence) for sequence in sequences])
    padded = np.full((len(lengths), max(lengths) + 2), PADDING, np.int64)
    padded[:, 0] = START
    for row, sequence in enumerate(sequences):
        padded[row, 1 : len(sequence) + 1] = sequence
        padded[row, len(sequence) + 1] = END
    mask = np.arange(padded.shape[1]) < lengths[:, None] + 2
    return torch.from_numpy(padded), torch.from_numpy(mask)


def _padded(entries: Any, facts: Mapping[str, Any], width: int, classes: int) -> Tensor:
    """One column of a batch whose texts have `width` positions, by the axis in `facts`."""
    axis = facts["axis"]
    if axis is Axis.EXAMPLE:
        return torch.from_numpy(entries)

    if axis is Axis.CLASSES:
        value = torch.zeros(len(entries), classes, dtype=torch.bool)
        for row, allowed in enumerate(entries):
            value[row, torch.from_numpy(allowed).long()] = True
        return value

    dtype = torch.from_numpy(entries[0]).dtype
    if dtype is not torch.bool and not dtype.is_floating_point:
        dtype = torch.long
    first = 1  # words come after the start marker
    if axis is not Axis.TOKENS:  # pieces have their own markers, and characters none
        first = 0
        width = max(map(len, entries))
    value = torch.full((len(entries), width), facts.get("pad", 0), dtype=dtype)
    for row, numbers in enumerate(entries):
        value[row, first : first + len(numbers)] = torch.from_numpy(numbers)
    return value


def _selected(values: Sequence[Any] | None, rows: Int[np.ndarray, " chosen"]) -> list[Any] | None:
    """The values of these rows, where there are any."""
    return None if values is None else [values[row] for row in rows.tolist()]


@dataclass(frozen=True)
class TextSplit(Dataset[Batch]):
    """One encoded split. Indexed with a *list* of rows it gives the batch of these rows.

    Attributes:
        example_id: number of each row in its source, ascending.
        words: the texts; every distinct word of the data set has a number.
        vocabulary_id: the id of each of these words in the vocabulary.
        columns: the other columns of the batches by name (`attnprobe.core.batch.Batch`). `labels`
            are class numbers `[rows]`, or 0/1 floats `[rows, classes]`; `question` and
            `counterfactual` number words as `words` does; `candidates` has class numbers.
        spelling: each of the words as it is in the text.
        classes: the classes' names.
        teacher: what another run says about these examples; None: no run is named.
        passages: each text as it stands in its cell (`data.verbatim`); None: they were not kept.
        units: the first and the last word of every unit of a text, for a model that reads texts
            again without some of them; None: batches have no characters.
        slices: the part of the texts that each belongs to (`data.slice`); None: no column says so.
    """

    example_id: Int[np.ndarray, " rows"]
    words: Ragged
    vocabulary_id: Int[np.ndarray, " words"]
    columns: Mapping[str, Ragged | np.ndarray]
    spelling: Sequence[str] = ()
    classes: Sequence[str] = ()
    teacher: TeacherOutputs | None = None
    passages: Sequence[Passages] | None = None
    units: Sequence[Int[np.ndarray, "units 2"]] | None = None
    slices: Sequence[str] | None = None

    def __len__(self) -> int:
        return len(self.example_id)

    def __getitem__(self, rows: Sequence[int]) -> Batch:
        chosen = np.asarray(rows)
        columns: dict[str, Any] = {
            "ids": [self.vocabulary_id[self.words[row]] for row in rows],
            "example_id": self.example_id[chosen],
        }
        for name, values in self.columns.items():
            if isinstance(values, Ragged):
                columns[name] = [values[row] for row in rows]
            else:
                columns[name] = values[chosen]
        for name in ("question", "counterfactual"):
            if name in columns:
                columns[name] = [self.vocabulary_id[numbers] for numbers in columns[name]]
        if self.teacher is not None:
            columns["teacher_attention"] = [self.teacher.attention[row] for row in rows]
            columns["teacher_probability"] = self.teacher.probability[chosen]
        if self.units is not None and self.passages is not None:
            texts = [Characters.of(self.passages[row], *self.units[row].T) for row in rows]
            columns |= character_columns(texts)
        return collate(columns, len(self.classes))

    def select(self, rows: Int[np.ndarray, " chosen"]) -> "TextSplit":
        """The examples of these rows, in this order."""
        columns = {
            name: values.select(rows) if isinstance(values, Ragged) else values[rows]
            for name, values in self.columns.items()
        }
        return replace(
            self,
            example_id=self.example_id[rows],
            words=self.words.select(rows),
            columns=columns,
            teacher=self.teacher and self.teacher.select(rows),
            passages=_selected(self.passages, rows),
            units=_selected(self.units, rows),
            slices=_selected(self.slices, rows),
        )

    def only(self, examples: Sequence[int]) -> "TextSplit":
        """Some of the examples, by their ascending numbers; the split itself where it is all."""
        if len(examples) == len(self):
            return self
        return self.select(np.searchsorted(self.example_id, examples))

    def sample(self) -> Batch:
        """Up to three examples of different lengths, the shortest among them."""
        order = np.argsort(self.words.lengths, kind="stable")
        places = (0, len(order) // 2, 3 * len(order) // 4)
        return self[sorted({int(order[place]) for place in places})]

    @property
    def labels(self) -> np.ndarray:
        """The column of the labels."""
        labels = self.columns["labels"]
        assert isinstance(labels, np.ndarray)
        return labels

    @property
    def text_number(self) -> Int[np.ndarray, " rows"] | None:
        """Number of each row's text, from 0; None: each row has a text of its own."""
        numbers = self.columns.get("text_number")
        assert not isinstance(numbers, Ragged)
        return numbers

    def row_of(self, example_id: int) -> int:
        """The row at which an example is stored.

        Raises:
            KeyError: the example is not in this split, or was filtered out.
        """
        row = int(np.searchsorted(self.example_id, example_id))
        if row == len(self) or self.example_id[row] != example_id:
            raise KeyError(
                f"example {example_id} is not in this split: filtered out, or of another split"
            )
        return row

    def spelled(self, numbers: Int[np.ndarray, " words"]) -> list[str]:
        """The words of these numbers, as they are in the text."""
        return [self.spelling[number] for number in numbers.tolist()]

    def tokens(self, example_id: int) -> list[str]:
        """The words at one example's content positions, as they are in the text."""
        return self.spelled(self.words[self.row_of(example_id)])

    def question(self, example_id: int) -> list[str] | None:
        """The words of one example's question; None where nothing is asked.

        Where every word has a class, the question is the word that is asked about and its place.
        """
        marks = self._entry("asked", example_id)
        if marks:
            place = marks.index(max(marks))
            return [self.tokens(example_id)[place], f"({place + 1})"]
        numbers = self._entry("question", example_id)
        return None if numbers is None else [self.spelling[number] for number in numbers]

    def candidates(self, example_id: int) -> list[str] | None:
        """The classes that one example may be answered with; None: the data allow all of them."""
        numbers = self._entry("candidates", example_id)
        return None if numbers is None else [self.classes[number] for number in numbers]

    def rationale(self, example_id: int) -> list[bool] | None:
        """Which content positions are the reason for the label; None where the data do not say."""
        return self._entry("rationale", example_id) or None

    def _entry(self, name: str, example_id: int) -> list[Any] | None:
        values = self.columns.get(name)
        return None if values is None else values[self.row_of(example_id)].tolist()


MOST_POSITIONS = 1 << 15
"""Positions of an evaluation batch: long texts come in smaller batches, so that the memory that a
model and the probes need for a batch does not grow with the texts' length."""


def short_enough(
    lengths: Int[np.ndarray, " rows"],
    size: int | None = None,
    most: int = MOST_POSITIONS,
    text_number: Int[np.ndarray, " rows"] | None = None,
) -> list[list[int]]:
    """Divide all rows into evaluation batches, shortest text first.

    Args:
        lengths: words of each text, without the markers.
        size: rows of a batch at most; None: any number.
        most: positions of a batch at most, markers and padding included. A single row may exceed
            it, and rows of a single text, which is encoded once for all of them.
        text_number: of each row, where a text has several; None: each row is a text of its own.

    Returns:
        The rows of each batch; every row is in one batch.
    """
    texts = np.arange(len(lengths)) if text_number is None else text_number
    order = np.argsort(lengths, kind="stable")
    batches: list[list[int]] = []
    batch: list[int] = []
    for row, length in zip(order.tolist(), lengths[order].tolist(), strict=True):
        positions = (len(batch) + 1) * (length + 2)  # with this row, which is the longest so far
        is_one_text = bool(batch) and texts[batch[0]] == texts[row]
        if batch and (len(batch) == size or (positions > most and not is_one_text)):
            batches.append(batch)
            batch = []
        batch.append(row)
    if batch:
        batches.append(batch)
    return batches


class BucketSampler(DistributedSampler[list[int]]):
    """Training batches of similar length in random order.

    Rows are sorted by length · (1 + noise), noise uniform in ±10 %, cut into batches, and the
    batches are shuffled (Jain & Wallace's code). The order depends on (seed, epoch) alone;
    Lightning calls `set_epoch`. Rows of one text have the same noise, and stay together.

    Args:
        lengths: words of each text.
        batch_size: rows of a batch; the last one may have fewer.
        seed: decides the order, with the epoch.
        rank: number of this process.
        world_size: number of processes that share the batches.
        texts: number of each row's text; None: each row has a text of its own.
    """

    def __init__(
        self,
        lengths: Int[np.ndarray, " rows"],
        batch_size: int,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
        texts: Int[np.ndarray, " rows"] | None = None,
    ):
        # that it shares the batches keeps Lightning from sharing them out once more
        # of the data it asks for their number alone
        super().__init__(lengths, num_replicas=world_size, rank=rank, seed=seed)  # type: ignore[arg-type]
        self.lengths = lengths
        self.batch_size = batch_size
        self.world_size = world_size
        self.texts = np.arange(len(lengths)) if texts is None else texts

    def __len__(self) -> int:
        batches = -(-len(self.lengths) // self.batch_size)
        return -(-batches // self.world_size)

    def __iter__(self) -> Iterator[list[int]]:
        generator = np.random.default_rng((self.seed, self.epoch))
        size = len(self.lengths)
        # + 1: the noise would leave texts of length 0 in the file's order for ever
        noise = generator.uniform(-0.1, 0.1, size)[self.texts]
        noisy = (self.lengths + 1) * (1 + noise)
        rows = np.argsort(noisy, kind="stable")
        batches = [
            rows[start : start + self.batch_size].tolist()
            for start in range(0, size, self.batch_size)
        ]
        order = generator.permutation(len(batches))
        # some batches are repeated, so that every process has the same number: gradient steps are
        # taken together
        repeated = np.resize(order, len(self) * self.world_size)
        for number in repeated[self.rank :: self.world_size]:
            yield batches[number]


def log_odds_ratios(
    part: TextSplit, words: int, classes: int
) -> Float[np.ndarray, "vocabulary classes"]:
    """The log odds ratio of every word of the vocabulary and every class (or label).

    ln of the odds that a text of the class has the word over the odds that a text of another class
    has it, each count with ½ added (Haldane 1956).

    Args:
        part: the texts and their labels.
        words: size of the vocabulary.
        classes: number of classes.
    """
    columns = []
    for number in range(classes):
        multi_label = part.labels.ndim == 2
        has_class = part.labels[:, number] > 0.5 if multi_label else part.labels == number
        columns.append(_log_odds(part, has_class, words) - _log_odds(part, ~has_class, words))
    return np.stack(columns, -1)


def _log_odds(
    part: TextSplit, chosen: Bool[np.ndarray, " rows"], words: int
) -> Float[np.ndarray, " vocabulary"]:
    """ln of the odds that one of the chosen texts has each word, ½ added to either count."""
    texts = part.words.select(np.flatnonzero(chosen))
    frequency = document_frequency(part.vocabulary_id[texts.flat], texts.offsets, words)
    return np.log((frequency + 0.5) / (chosen.sum() - frequency + 0.5))
