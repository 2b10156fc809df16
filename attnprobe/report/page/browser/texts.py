"""The texts of a run for the browser: word numbers in one long array, and how they are cut into texts and sentences."""

import hashlib
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Int, UInt

from attnprobe.report.page.browser.packing import pack


@dataclass(frozen=True)
class Texts:
    """All texts of one split, shared by the runs that read the same ones.

    `items` counts the positions that attention is spread over; `words` numbers the words in `vocabulary`. In a
    hierarchical model the items are sentences, and `sentence` counts the words of each, all texts' sentences in a row;
    else it is None and the items are the words. `question` and its `question_length` are empty where there is none.
    `vocabulary` is None where words must not be shown.
    """

    items: UInt[np.ndarray, " examples"]
    words: Int[np.ndarray, " words"]
    vocabulary: list[str] | None
    sentence: UInt[np.ndarray, " sentences"] | None = None
    question: Int[np.ndarray, " asked"] = field(default_factory=lambda: np.zeros(0, np.int64))
    question_length: UInt[np.ndarray, " examples"] | None = None

    @property
    def lengths(self) -> UInt[np.ndarray, " examples"]:
        """Words per text."""
        if self.sentence is None:
            return self.items
        return np.add.reduceat(np.append(self.sentence, 0), starts(self.items)).astype(np.uint32) * (self.items > 0)

    def packed(self) -> str:
        """The block of the page."""
        arrays = {"items": self.items}
        facts: dict[str, object] = {}
        if self.sentence is not None:
            arrays["sentence"] = self.sentence
        if self.vocabulary is not None:
            kind = np.uint16 if len(self.vocabulary) < 2**16 else np.uint32
            facts["vocabulary"] = self.vocabulary
            arrays["words"] = self.words.astype(kind)
            if self.question_length is not None:
                arrays |= {"question": self.question.astype(kind), "question_length": self.question_length}
        return pack(arrays, facts)

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


def read_texts(examples: pa.Table, *, words: bool) -> Texts:
    """The texts of a run's examples (`attnprobe.results.table`: `tokens`, and of a hierarchical model `words`).

    Args:
        examples: the examples' table, in its order.
        words: False keeps the lengths only.
    """
    hierarchical = "words" in examples.column_names
    nested = examples["words" if hierarchical else "tokens"]
    items = lengths_of(nested)
    flat = pc.list_flatten(nested)
    sentence = None
    if hierarchical:
        sentence, flat = lengths_of(flat), pc.list_flatten(flat)
    if not words:
        return Texts(items, np.zeros(0, np.int64), None, sentence)
    asked = asked_of(examples)
    question_length = None if asked is None else lengths_of(asked)
    parts = [flat] if asked is None else [flat, pc.list_flatten(asked)]
    every = pa.chunked_array([chunk for part in parts for chunk in part.chunks], pa.string())
    encoded = every.combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.unify_dictionaries().combine_chunks()
    numbers = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return Texts(
        items,
        numbers[: len(flat)],
        encoded.dictionary.to_pylist(),
        sentence,
        numbers[len(flat) :],
        question_length,
    )


def asked_of(examples: pa.Table) -> pa.ChunkedArray | None:
    """The questions' words where the table has questions, as text or as lists of words."""
    if "question" not in examples.column_names:
        return None
    column = examples["question"]
    return column if pa.types.is_list(column.type) else pc.utf8_split_whitespace(pc.fill_null(column, ""))


def lengths_of(lists: pa.ChunkedArray) -> UInt[np.ndarray, " lists"]:
    """How long each list is."""
    return pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.uint32)
