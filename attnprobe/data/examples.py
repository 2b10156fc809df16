"""Tokenised rows, before the vocabulary: of a split, and one by one."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Int


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
        offsets = np.concatenate([[0], np.cumsum(self.lengths[rows])])
        flat = np.empty(offsets[-1], self.flat.dtype)
        for row, start, stop in zip(rows.tolist(), offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
            flat[start:stop] = self[row]
        return Ragged(flat, offsets)


class Lexicon(dict[str, int]):
    """Numbers words in the order in which they are asked for."""

    def __missing__(self, word: str) -> int:
        self[word] = len(self)
        return self[word]

    def numbers(self, tokens: Sequence[str]) -> Int[np.ndarray, " tokens"]:
        """The numbers of these words."""
        return np.array([self[token] for token in tokens], np.int32)


@dataclass(slots=True)
class Example:
    """One text, tokenised and truncated; the fields are those of `Examples`. A column of `per_word` that does not fit the
    tokens is missing; `rationale_lost`: all of it was in what was cut off."""

    words: Int[np.ndarray, " tokens"]
    length: int
    labels: list[str]
    question: Int[np.ndarray, " tokens"] | None
    candidates: list[str] | None
    sentences: int
    longest_sentence: int
    per_word: dict[str, np.ndarray]
    rationale_lost: bool
    group: str


@dataclass(frozen=True)
class Examples:
    """Tokenised rows of one split, before the vocabulary; all fields run over the same rows.

    `words` and `question` number distinct words in order of appearance; `length`, `sentences` and `longest_sentence`
    count tokens, sentences and the tokens of the longest one before truncation. `candidates` are raw answers, None for
    a row that may be answered with any class. `per_word` holds what belongs to each word and goes into the batches as
    it is: `rationale`, `sentence`, the columns of `data.per_word`, and `counterfactual`, which numbers words. Rows of one
    of the `groups` stay together.
    """

    example_id: Int[np.ndarray, " rows"]
    words: Ragged
    length: Int[np.ndarray, " rows"]
    labels: list[list[str]]
    question: Ragged | None = None
    candidates: list[list[str] | None] | None = None
    sentences: Int[np.ndarray, " rows"] | None = None
    longest_sentence: Int[np.ndarray, " rows"] | None = None
    per_word: dict[str, Ragged] = field(default_factory=dict)
    groups: list[str] | None = None

    def __len__(self) -> int:
        return len(self.example_id)

    def select(self, keep: Bool[np.ndarray, " rows"]) -> "Examples":
        """The rows where `keep` is True, in their order."""
        if keep.all():
            return self
        columns = {one.name: getattr(self, one.name) for one in fields(self)}
        return replace(self, **selected(columns, np.flatnonzero(keep)))


def selected(values: Any, chosen: Int[np.ndarray, " chosen"]) -> Any:
    """The chosen rows of a column, however it is stored, or of several by name."""
    match values:
        case None:
            return None
        case Ragged():
            return values.select(chosen)
        case dict():
            return {name: selected(part, chosen) for name, part in values.items()}
        case list():
            return [values[row] for row in chosen.tolist()]
    return values[chosen]


def joined(parts: Sequence[Any]) -> Any:
    """All rows of these parts, in this order: of `Examples` with the same columns, or of one column however it is stored."""
    match parts[0]:
        case None:
            return None
        case Examples():
            names = [one.name for one in fields(Examples)]
            return Examples(**{name: joined([getattr(part, name) for part in parts]) for name in names})
        case Ragged():
            ends = np.cumsum([0, *(len(part.flat) for part in parts)])
            offsets = [part.offsets[1:] + end for part, end in zip(parts, ends[:-1], strict=True)]
            return Ragged(np.concatenate([part.flat for part in parts]), np.concatenate([ends[:1], *offsets]))
        case dict():
            return {name: joined([part[name] for part in parts]) for name in parts[0]}
        case list():
            return [value for part in parts for value in part]
    return np.concatenate(parts)
