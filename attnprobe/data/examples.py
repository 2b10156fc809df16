"""Tokenised rows, before the vocabulary: of a split, and one by one."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from attnprobe.data.ragged import Ragged


class Lexicon(dict[str, int]):
    """Numbers words in the order in which they are asked for."""

    def __missing__(self, word: str) -> int:
        self[word] = len(self)
        return self[word]

    def numbers(self, tokens: Sequence[str]) -> Int[np.ndarray, " tokens"]:
        """The numbers of these words."""
        return np.array([self[token] for token in tokens], np.int32)


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
        chosen = np.flatnonzero(keep)
        return replace(self, **{one.name: selected(getattr(self, one.name), chosen) for one in fields(self)})


def selected(values: Any, chosen: Int[np.ndarray, " chosen"]) -> Any:
    """The chosen rows of one column, however it is stored."""
    match values:
        case None:
            return None
        case Ragged():
            return values.select(chosen)
        case dict():
            return {name: part.select(chosen) for name, part in values.items()}
        case list():
            return [values[row] for row in chosen.tolist()]
    return values[chosen]


def joined(parts: Sequence[Examples]) -> Examples:
    """All these rows, in this order; the parts hold the same columns."""
    columns = {one.name: [getattr(part, one.name) for part in parts] for one in fields(Examples)}
    return Examples(**{name: joined_column(values) for name, values in columns.items()})


def joined_column(parts: Sequence[Any]) -> Any:
    """One column of all the parts, however it is stored."""
    match parts[0]:
        case None:
            return None
        case Ragged():
            return Ragged.joined(parts)
        case dict():
            return {name: Ragged.joined([part[name] for part in parts]) for name in parts[0]}
        case list():
            return [value for part in parts for value in part]
    return np.concatenate(parts)


@dataclass(slots=True)
class Example:
    """One text, tokenised and truncated; the fields are those of `Examples`. What belongs to each word is missing where it
    does not fit the tokens; `rationale_lost`: it was in what was cut off."""

    words: Int[np.ndarray, " tokens"]
    length: int
    labels: list[str]
    question: Int[np.ndarray, " tokens"] | None
    candidates: list[str] | None
    sentences: int
    longest_sentence: int
    per_word: dict[str, np.ndarray]
    rationale_lost: bool
    group: str | None
