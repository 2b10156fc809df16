"""The texts of a run for the browser: word numbers in one long array, and how they are cut into texts and sentences."""

import hashlib
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Int, UInt

from attnprobe.report.page.browser.packing import Part
from attnprobe.results.directory import RunDirectory


@dataclass(frozen=True)
class Texts:
    """All texts of one split, shared by the runs that read the same ones.

    `items` counts the positions that attention is spread over; `words` numbers the words in `vocabulary`. In a
    hierarchical model the items are sentences, and `sentence` counts the words of each, all texts' sentences in a row;
    else it is None and the items are the words. `question` and its `question_length` are empty where there is none.
    `vocabulary` is None where words must not be shown.
    """

    items: UInt[np.ndarray, " examples"]
    words: UInt[np.ndarray, " words"]
    vocabulary: list[str] | None
    sentence: UInt[np.ndarray, " sentences"] | None = None
    question: UInt[np.ndarray, " asked"] = field(default_factory=lambda: np.zeros(0, np.uint32))
    question_length: UInt[np.ndarray, " examples"] | None = None

    @property
    def lengths(self) -> UInt[np.ndarray, " examples"]:
        """Words per text."""
        if self.sentence is None:
            return self.items
        return np.add.reduceat(np.append(self.sentence, 0), starts(self.items)).astype(np.uint32) * (self.items > 0)

    def parts(self) -> tuple[list[Part], dict[str, object]]:
        """The arrays and the facts of its block."""
        parts = [Part.of("items", self.items)]
        if self.sentence is not None:
            parts.append(Part.of("sentence", self.sentence))
        if self.vocabulary is None:
            return parts, {}
        kind = "u2" if len(self.vocabulary) < 2**16 else "u4"
        parts.append(Part("words", kind, len(self.words), lambda: self.words.astype(kind)))
        if self.question_length is not None:
            parts.append(Part("question", kind, len(self.question), lambda: self.question.astype(kind)))
            parts.append(Part.of("question_length", self.question_length))
        return parts, {"vocabulary": self.vocabulary}

    def without_words(self) -> "Texts":
        """The lengths alone."""
        return Texts(self.items, NO_WORD, None, self.sentence)

    @property
    def fingerprint(self) -> str:
        """The same for the same texts cut in the same way."""
        digest = hashlib.sha256()
        for array in (self.items, self.words, self.sentence, self.question, self.question_length):
            digest.update(b"none" if array is None else np.ascontiguousarray(array).tobytes())
            digest.update(b"|")
        digest.update(b"" if self.vocabulary is None else "\0".join(self.vocabulary).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()


def starts(lengths: UInt[np.ndarray, " examples"]) -> Int[np.ndarray, " examples"]:
    """Where each part begins, the parts in a row."""
    return np.concatenate([[0], np.cumsum(lengths.astype(np.int64))[:-1]]) if len(lengths) else np.zeros(0, np.int64)


class Vocabulary:
    """Words numbered in the order in which they come."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def encoded(self, words: pa.ChunkedArray) -> UInt[np.ndarray, " words"]:
        """The words' numbers; new ones get the next."""
        numbers = [np.zeros(0, np.uint32)]
        for chunk in words.chunks:
            once = chunk.dictionary_encode()
            known = [self.numbers.setdefault(word, len(self.numbers)) for word in once.dictionary.to_pylist()]
            numbers.append(np.array(known, np.uint32)[once.indices.to_numpy(zero_copy_only=False)])
        return np.concatenate(numbers)


def read_texts(run: RunDirectory, split: str, *, words: bool) -> Texts:
    """The texts of a run's examples (`attnprobe.results.table`: `tokens`, and of a hierarchical model `words`).

    Args:
        run: the run.
        split: whose examples.
        words: False keeps the lengths only.
    """
    names = run.example_columns(split).names
    hierarchical, asked = "words" in names, words and "question" in names
    column, vocabulary = "words" if hierarchical else "tokens", Vocabulary()
    items, sentence, numbers = [NO_LENGTH], [NO_LENGTH], [NO_WORD]
    for piece in run.example_pieces(split, [column]):
        items.append(lengths_of(piece[column]))
        flat = pc.list_flatten(piece[column])
        if hierarchical:
            sentence.append(lengths_of(flat))
            flat = pc.list_flatten(flat)
        if words:
            numbers.append(vocabulary.encoded(flat))
    question, question_length = [NO_WORD], [NO_LENGTH]
    for piece in run.example_pieces(split, ["question"]) if asked else ():
        lists = asked_of(piece["question"])
        question_length.append(lengths_of(lists))
        question.append(vocabulary.encoded(pc.list_flatten(lists)))
    return Texts(
        np.concatenate(items),
        np.concatenate(numbers),
        list(vocabulary.numbers) if words else None,
        np.concatenate(sentence) if hierarchical else None,
        np.concatenate(question),
        np.concatenate(question_length) if asked else None,
    )


def asked_of(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The questions' words, which are there as text or as lists of words."""
    return column if is_list(column.type) else pc.utf8_split_whitespace(pc.fill_null(column, ""))


def is_list(kind: pa.DataType) -> bool:
    """Whether a column holds lists."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def lengths_of(lists: pa.ChunkedArray) -> UInt[np.ndarray, " lists"]:
    """How long each list is."""
    return pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.uint32)


NO_LENGTH, NO_WORD = np.zeros(0, np.uint32), np.zeros(0, np.uint32)
