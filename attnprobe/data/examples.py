"""From the rows of a source to tokenised examples: columns are read, empty cells dropped and counted."""

import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import datasets
import numpy as np
from jaxtyping import Bool, Int
from tqdm import tqdm

from attnprobe.data import rows
from attnprobe.data.batching import Ragged
from attnprobe.data.text import TextRules, matching
from attnprobe.errors import UserError


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
    a row that may be answered with any class.
    """

    example_id: Int[np.ndarray, " rows"]
    words: Ragged
    length: Int[np.ndarray, " rows"]
    labels: list[list[str]]
    rationale: Ragged | None = None
    question: Ragged | None = None
    candidates: list[list[str] | None] | None = None
    sentence: Ragged | None = None
    sentences: Int[np.ndarray, " rows"] | None = None
    longest_sentence: Int[np.ndarray, " rows"] | None = None

    def __len__(self) -> int:
        return len(self.example_id)

    def select(self, keep: Bool[np.ndarray, " rows"]) -> "Examples":
        """The rows where `keep` is True, in their order."""
        chosen = np.flatnonzero(keep)

        def part(values: Ragged | None) -> Ragged | None:
            return None if values is None else values.select(chosen)

        def of(values: np.ndarray | None) -> np.ndarray | None:
            return None if values is None else values[chosen]

        return Examples(
            example_id=self.example_id[chosen],
            words=self.words.select(chosen),
            length=self.length[chosen],
            labels=[self.labels[row] for row in chosen.tolist()],
            rationale=part(self.rationale),
            question=part(self.question),
            candidates=None if self.candidates is None else [self.candidates[row] for row in chosen.tolist()],
            sentence=part(self.sentence),
            sentences=of(self.sentences),
            longest_sentence=of(self.longest_sentence),
        )


@dataclass
class Row:
    """One row, tokenised and truncated; the fields are those of `Examples`. `rationale` is None where there is none or
    it does not fit the tokens; `rationale_lost`: it was in what was cut off."""

    words: Int[np.ndarray, " tokens"]
    length: int
    labels: list[str]
    question: Int[np.ndarray, " tokens"] | None
    candidates: list[str] | None
    sentence: Int[np.ndarray, " tokens"] | None
    sentences: int
    longest_sentence: int
    rationale: Bool[np.ndarray, " tokens"] | None
    rationale_lost: bool


@dataclass(frozen=True)
class Reader:
    """Which column holds what, and how it is read; the arguments are those of `TextDataModule`."""

    text: str
    label: str
    rules: TextRules
    question: str | None = None
    candidates: str | None = None
    candidates_pattern: str | None = None
    rationale: str | None = None
    rationale_kind: str = "mask"
    filters: Mapping[str, Any] = field(default_factory=dict)
    multi_label: bool = False
    label_delimiter: str = ";"
    max_tokens: int | None = None

    @property
    def columns(self) -> list[str]:
        """All columns that are read."""
        optional = (self.question, self.candidates, self.rationale)
        return [self.text, self.label, *(name for name in optional if name is not None), *self.filters]

    def read(self, split: str, table: datasets.Dataset, lexicon: Lexicon, count: dict[str, Any]) -> Examples:
        """Rows that pass the filters and have a text, a label and what else is asked for; `count` takes the others.

        Raises:
            UserError: a column is not there or holds something else, or no row is left.
        """
        texts = rows.column(table, self.text, "data.text")
        labels = rows.label_lists(
            rows.column(table, self.label, "data.label"), multi_label=self.multi_label, delimiter=self.label_delimiter
        )
        questions = self.optional(table, self.question, "question")
        candidates = self.optional(table, self.candidates, "candidates")
        if candidates is not None:
            candidates = rows.label_lists(candidates, multi_label=True, delimiter=self.label_delimiter)
        marked = self.optional(table, self.rationale, "rationale")
        passed = self.passed(split, table, count)

        reasons = ["text is null", "label is null", "text is empty"]
        reasons += [] if questions is None else ["question is null", "question is empty"]
        dropped: Counter[str] = Counter(dict.fromkeys(reasons, 0))
        kept: dict[int, Row] = {}
        for number in progress(np.flatnonzero(passed).tolist(), f"read {split}"):
            label = labels[number]
            question = None if questions is None else questions[number]
            missing = [
                name
                for name, value in (("text", texts[number]), ("label", label), ("question", question))
                if value is None and not (name == "question" and questions is None)
            ]
            if missing or label is None:
                dropped[f"{missing[0]} is null"] += 1
                continue
            tokens, sentence = self.rules.read(self.checked(texts[number], split, number))
            asked = None if questions is None else self.rules.words(str(question))
            if not tokens or (questions is not None and not asked):
                dropped["question is empty" if tokens else "text is empty"] += 1
                continue
            allowed = None if candidates is None else candidates[number]
            if self.candidates_pattern is not None:
                allowed = matching(tokens, self.candidates_pattern)
            rationale = None if marked is None else self.mark(marked[number], len(tokens), sentence)
            sizes = None if sentence is None else np.bincount(sentence)
            limit = self.max_tokens
            kept[number] = Row(
                words=lexicon.numbers(tokens[:limit]),
                length=len(tokens),
                labels=label,
                question=None if asked is None else lexicon.numbers(asked),
                candidates=allowed,
                sentence=None if sentence is None else np.array(sentence[:limit], np.int32),
                sentences=0 if sizes is None else len(sizes),
                longest_sentence=0 if sizes is None else int(sizes.max()),
                rationale=None if rationale is None else rationale[:limit],
                rationale_lost=rationale is not None and bool(rationale.any()) and not rationale[:limit].any(),
            )
        count["dropped"] |= dropped
        if not kept:
            why = ", ".join(f"{reason}: {number}" for reason, number in dropped.items() if number)
            asked_for = "" if self.question is None else f", data.question={self.question}"
            raise UserError(
                f"no row of the {split} split can be used ({why}): choose other columns than data.text={self.text} "
                f"and data.label={self.label}{asked_for}, or other cleaning steps than "
                f"data.clean={list(self.rules.clean)}"
            )
        return self.examples(kept, count)

    def optional(self, table: datasets.Dataset, name: str | None, setting: str) -> list[Any] | None:
        """A column that a data set may do without."""
        if name is None:
            return None
        try:
            return rows.column(table, name, f"data.{setting}")
        except UserError as error:
            raise UserError(f"{error}, or do without: data.{setting}=null") from None

    def passed(self, split: str, table: datasets.Dataset, count: dict[str, Any]) -> Bool[np.ndarray, " rows"]:
        """Which rows pass the filters."""
        passed = np.ones(len(table), bool)
        for name, allowed in self.filters.items():
            before = passed.sum()
            passed &= rows.passes(table, {name: allowed})
            count["dropped"][f"filter {name}"] = int(before - passed.sum())
            if not passed.any():
                raise UserError(
                    f"data.filters: no row of the {split} split is left after {name}={allowed}; the column has "
                    f"{some_values(rows.column(table, name, 'data.filters column'))}"
                )
        return passed

    def checked(self, text: Any, split: str, number: int) -> str | list[str]:
        """A cell of the text column as text, or as the list of its sentences."""
        if self.rules.sentences == "column":
            if not isinstance(text, list) or not all(isinstance(sentence, str) for sentence in text):
                raise UserError(
                    f"data.text={self.text}: data.sentences=column expects a list of sentences in every cell, row "
                    f"{number} of {split} has {str(text)[:60]!r}; text is split with data.sentences=spacy"
                )
            return text
        if not isinstance(text, str | int | float):
            hint = "; a list of sentences is read with data.sentences=column" if isinstance(text, list) else ""
            raise UserError(f"data.text={self.text}: expected text, row {number} of {split} has {str(text)[:60]}{hint}")
        return str(text)

    def mark(self, marked: Any, length: int, sentence: list[int] | None) -> Bool[np.ndarray, " tokens"] | None:
        """One bool per token, or None where there is none or it does not fit the tokens."""
        if marked is None:
            return None
        if not isinstance(marked, list | tuple):
            raise UserError(f"{self.marks} in every cell, but one is {str(marked)[:60]!r}")
        if self.rationale_kind == "mask":
            if not all(isinstance(one, bool | int | float) for one in marked):
                raise UserError(f"{self.marks} in every cell, but one is {str(marked)[:60]!r}")
            return np.array(marked, bool) if len(marked) == length else None
        if self.rationale_kind == "sentences":
            assert sentence is not None
            if not all(isinstance(one, int) for one in marked):
                raise UserError(f"{self.marks} in every cell, but one is {str(marked)[:60]!r}")
            return np.isin(sentence, marked) if set(marked) <= set(sentence) else None
        mask = np.zeros(length, bool)
        for span in marked:
            if not isinstance(span, list | tuple) or len(span) != 2 or not all(isinstance(one, int) for one in span):
                raise UserError(f"{self.marks} in every cell, but one is {str(marked)[:60]!r}")
            start, end = span
            if not 0 <= start <= end <= length:  # empty spans occur in ERASER's files
                return None
            mask[start:end] = True
        return mask

    @property
    def marks(self) -> str:
        """What a cell of the rationale column has to be, for an error message."""
        kinds = {
            "mask": "a list of one true or false per token",
            "spans": "a list of [start, end) token positions",
            "sentences": "a list of the numbers of sentences",
        }
        kind = self.rationale_kind
        return f"data.rationale={self.rationale}: data.rationale_kind={kind} expects {kinds[kind]}"

    def examples(self, kept: Mapping[int, Row], count: dict[str, Any]) -> Examples:
        """Rows side by side."""
        every = list(kept.values())
        split_up = self.rules.sentences is not None
        if self.rationale is not None:
            count["rationale does not fit"] = sum(row.rationale is None for row in every)
            count["rationale lost by truncation"] = sum(row.rationale_lost for row in every)
        none = np.zeros(0, bool)
        has_candidates = self.candidates is not None or self.candidates_pattern is not None
        return Examples(
            example_id=np.array(list(kept), np.int64),
            words=Ragged.of([row.words for row in every], np.int32),
            length=np.array([row.length for row in every], np.int64),
            labels=[row.labels for row in every],
            rationale=ragged([none if row.rationale is None else row.rationale for row in every], np.bool_)
            if self.rationale is not None
            else None,
            question=ragged([row.question for row in every], np.int32),
            candidates=[row.candidates for row in every] if has_candidates else None,
            sentence=ragged([row.sentence for row in every], np.int32),
            sentences=np.array([row.sentences for row in every]) if split_up else None,
            longest_sentence=np.array([row.longest_sentence for row in every]) if split_up else None,
        )


def ragged(parts: Sequence[np.ndarray | None], dtype: type) -> Ragged | None:
    """All parts in one; None where there are none."""
    there = [part for part in parts if part is not None]
    return Ragged.of(there, dtype) if there else None


def some_values(values: Sequence[Any]) -> str:
    """The most frequent values of a column, in words."""
    common = Counter(rows.canonical(value) for value in values).most_common(8)
    return ", ".join(f"{value} ({number} ×)" for value, number in common)


def progress(items: list[int], title: str) -> "tqdm[int]":
    """A progress bar that knows its total; a log file gets a line every half minute, and short work none."""
    quiet = os.environ.get("TQDM_DISABLE") == "1"
    interval = 0.1 if sys.stderr.isatty() else 30.0
    return tqdm(items, desc=title, unit=" texts", leave=False, delay=1.0, mininterval=interval, disable=quiet)
