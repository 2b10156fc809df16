"""From the rows of a source to tokenised examples: columns are read, empty cells are counted."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import datasets
import numpy as np
import pandas as pd
from jaxtyping import Bool, Int

from attnprobe.core.clock import CLOCK
from attnprobe.core.errors import UserError
from attnprobe.data import rows
from attnprobe.data.columns import (
    MOST_ANNOTATORS,
    OPTIONAL,
    Columns,
    marked,
    packed,
    paired,
    question_words,
)
from attnprobe.data.examples import Examples, Lexicon
from attnprobe.data.passages import Passages, places_of
from attnprobe.data.text import TextRules, matching

STORED: dict[str, type] = {
    "sentence": np.int32,
    "segment": np.int32,
    "rationale": np.bool_,
    "annotators": np.int32,
    "counterfactual": np.int32,
    "asked": np.float64,
}
"""What may belong to each word, and the type that it is stored in."""
MAY_BE_MISSING = ("sentence", "annotators", "segment")
"""What not every text has to have; texts without it are not counted. Few texts have several
annotators."""
REMEMBERED_TEXTS = 16
"""Rows of one text follow each other, so that the tokens of a few texts are enough to keep."""


class RowLeftOut(Exception):
    """A row cannot be used; the message is the reason that the counts name."""


@dataclass(frozen=True)
class _Words:
    """The words of one row.

    Attributes:
        tokens: the words that are attended to.
        sentence: the sentence of each, where there are sentences.
        question: the words of the question, or of the text of a pair that is not attended to.
        segment: the text of a pair, 0 or 1, that each token belongs to.
        passages: the text or the pair as it stands in its cells.
    """

    tokens: Sequence[str]
    sentence: list[int] | None
    question: Sequence[str] | None = None
    segment: Int[np.ndarray, " tokens"] | None = None
    passages: Passages | None = None


@dataclass(frozen=True)
class Reader:
    """Reads the columns of a split's rows as tokens, labels and what belongs to them.

    Attributes:
        columns: which column holds what.
        rules: how texts become tokens.
        max_tokens: longer texts are cut.
        verbatim: texts are kept as they stand in their cells, beside their tokens.
    """

    columns: Columns
    rules: TextRules
    max_tokens: int | None = None
    verbatim: bool = False

    @property
    def further(self) -> list[str]:
        """What a row needs besides its text and its label."""
        return [name for name in ("question", "text2") if getattr(self.columns, name) is not None]

    def outline(self, split: str, table: datasets.Dataset, count: dict[str, Any]) -> Examples:
        """Find the rows that can be used, as far as their cells show it before any is tokenised.

        Args:
            split: name of the split, for messages.
            table: its rows.
            count: gets the number of rows that are left out for each reason.

        Returns:
            The columns `labels` and `group` of `Examples`.

        Raises:
            UserError: a column is missing, or no row can be used.
        """
        self.check_columns(table)
        passed = self.passed(split, table, count)
        reasons = ["text is null", "label is null", "text is empty"]
        for name in self.further:
            reasons += [f"{name} is null", f"{name} is empty"]
        dropped = Counter(dict.fromkeys(reasons, 0))

        cells = self._cells(table, (*self.further, "group"))
        needed = ["text", "label", *self.further]
        texts = ["text", *self.further]
        usable = []
        for number in np.flatnonzero(passed).tolist():
            missing = [f"{name} is null" for name in needed if cells[name][number] is None]
            blank = [f"{name} is empty" for name in texts if _is_blank(cells[name][number])]
            if missing or blank:
                dropped[(missing + blank)[0]] += 1
            else:
                usable.append(number)
        count["dropped"] |= dropped
        if not usable:
            raise self.unusable(split, dropped)

        columns = {"labels": [cells["label"][number] for number in usable]}
        if "group" in cells:
            columns["group"] = [str(rows.canonical(cells["group"][number])) for number in usable]
        return pd.DataFrame(columns, index=usable)

    def read(
        self,
        split: str,
        table: datasets.Dataset,
        numbers: Int[np.ndarray, " chosen"],
        lexicon: Lexicon,
        count: dict[str, Any],
    ) -> Examples:
        """Read the rows that were chosen among those that can be used.

        Args:
            split: name of the split, for messages.
            table: its rows.
            numbers: of the chosen rows, ascending.
            lexicon: numbers the words, and gets new ones.
            count: has the number of rows that are left out for each reason, and gets more.

        Raises:
            UserError: a cell is not of its kind, or no row can be used.
        """
        chosen = table if len(numbers) == len(table) else table.select(numbers)
        cells = self._all_cells(chosen)
        examples_by_row: dict[int, dict[str, Any]] = {}
        rows_read = CLOCK.track(numbers.tolist(), f"read {split}", "texts")
        for place, number in enumerate(rows_read):
            row_cells = {name: values[place] for name, values in cells.items()}
            try:
                row = self.example(row_cells, lexicon, f"row {number} of {split}")
            except RowLeftOut as reason:
                count["dropped"][str(reason)] = count["dropped"].get(str(reason), 0) + 1
            else:
                examples_by_row[number] = row
        if not examples_by_row:
            raise self.unusable(split, count["dropped"])

        examples = pd.DataFrame(list(examples_by_row.values()), index=list(examples_by_row))
        for name in self.kinds:
            if name not in MAY_BE_MISSING:
                missing = sum(name not in entries for entries in examples["per_word"])
                count[f"{name} does not fit"] = missing
        if self.columns.rationale is not None:
            count["rationale lost by truncation"] = int(examples["rationale_lost"].sum())
        return examples

    def unusable(self, split: str, dropped: Mapping[str, int]) -> UserError:
        """The error where a split has no row left; `dropped`: how many went for each reason."""
        reasons = ", ".join(f"{reason}: {number}" for reason, number in dropped.items() if number)
        settings = "".join(f", data.{name}={getattr(self.columns, name)}" for name in self.further)
        return UserError(
            f"no row of the {split} split can be used ({reasons}): choose other columns than "
            f"data.text={self.columns.text} and data.label={self.columns.label}{settings}, or "
            f"other cleaning steps than data.clean={list(self.rules.clean)}"
        )

    def check_columns(self, table: datasets.Dataset) -> None:
        """Refuse a table that lacks a column.

        Raises:
            UserError: names the setting, the column, and those that there are.
        """
        self._all_cells(table.select(range(min(1, len(table)))))
        for name in self.columns.filters:
            rows.column(table.select([]), name, "data.filters column")

    def _all_cells(self, table: datasets.Dataset) -> dict[str, list[Any]]:
        """The columns that the settings name, by what they hold."""
        cells = self._cells(table, OPTIONAL)
        for name, column in self.columns.per_word.items():
            cells[name] = rows.column(table, column, f"data.per_word.{name}")
        return cells

    def _cells(self, table: datasets.Dataset, optional: Sequence[str]) -> dict[str, list[Any]]:
        """Texts, labels, and those of the optional columns that the settings name."""
        settings = self.columns
        cells = {"text": rows.column(table, settings.text, "data.text")}
        labels = rows.column(table, settings.label, "data.label")
        if settings.above is not None:
            labels = rows.divided(labels, settings.above)
        delimiter = settings.label_delimiter if settings.multi_label else None
        cells["label"] = rows.label_lists(labels, delimiter)

        for setting in optional:
            name = getattr(settings, setting)
            if name is None:
                continue
            try:
                cells[setting] = rows.column(table, name, f"data.{setting}")
            except UserError as error:
                raise UserError(f"{error}, or do without: data.{setting}=null") from None
        if "candidates" in cells:
            cells["candidates"] = rows.label_lists(cells["candidates"], settings.label_delimiter)
        return cells

    def example(self, cells: Mapping[str, Any], lexicon: Lexicon, where: str) -> dict[str, Any]:
        """Read one row.

        Args:
            cells: its cells, by what they hold.
            lexicon: numbers the words, and gets new ones.
            where: names the row in messages.

        Returns:
            The row, with the columns of `Examples`.

        Raises:
            RowLeftOut: the row cannot be used.
            UserError: a cell is not of its kind.
        """
        words = self._words(cells, where)
        candidates = cells.get("candidates")
        if self.columns.candidates_pattern is not None:
            candidates = matching(words.tokens, self.columns.candidates_pattern)
        per_word = self._per_word(cells, words, lexicon, where)

        limit = self.max_tokens
        row = {
            "words": lexicon.numbers(words.tokens[:limit]),
            "length": len(words.tokens),
            "labels": cells["label"],
            "per_word": {name: values[:limit] for name, values in per_word.items()},
        }
        if self.verbatim and words.passages is not None:
            row["passages"] = words.passages.cut(limit)
        if words.question is not None:
            row["question"] = lexicon.numbers(words.question)
        if self.columns.restricted:
            row["candidates"] = candidates
        if words.sentence is not None:
            sizes = np.bincount(words.sentence)
            row["sentences"] = len(sizes)
            row["longest_sentence"] = int(sizes.max())
        if self.columns.rationale is not None:
            rationale = per_word.get("rationale", np.zeros(0, bool))
            row["rationale_lost"] = bool(rationale.any()) and not rationale[:limit].any()
        if "slice" in cells:
            row["slice"] = rows.canonical(cells["slice"]) or ""
        return row

    def _tokens_of(self, text: str | list[str]) -> tuple[list[str], list[int] | None]:
        """As `TextRules.read`; a text with many labels or questions is tokenised once."""
        return self._read_string(text) if isinstance(text, str) else self.rules.read(text)

    @cached_property
    def _read_string(self) -> Callable[[str], tuple[list[str], list[int] | None]]:
        return lru_cache(REMEMBERED_TEXTS)(self.rules.read)

    def _words(self, cells: Mapping[str, Any], where: str) -> _Words:
        """The words of a text and its question, or of a pair of texts."""
        text = self.checked(cells["text"], where)
        tokens, sentence = self._tokens_of(text)
        if not tokens:
            raise RowLeftOut("text is empty")
        passages = None
        if self.verbatim and "text2" not in cells:
            passages = Passages((self.rules.passage(text, tokens),))
        if "question" in cells:
            question = question_words(
                str(cells["question"]), self.columns.question_kind, self.rules
            )
            if not question:
                raise RowLeftOut("question is empty")
            return _Words(tokens, sentence, question, passages=passages)
        if "text2" not in cells:
            return _Words(tokens, sentence, passages=passages)

        second_text = self.checked(cells["text2"], where, "text2")
        second, second_sentence = self._tokens_of(second_text)
        if not second:
            raise RowLeftOut("text2 is empty")
        if second_sentence is not None:
            raise UserError(
                "data.text2: a model of sentences reads one text: set data.sentences=null"
            )
        attended, unattended, segment = paired(tokens, second, self.columns.attend_to)
        pair = None
        if self.verbatim:
            pair = Passages.paired(
                self.rules.passage(text, tokens),
                self.rules.passage(second_text, second),
                self.columns.attend_to,
            )
        return _Words(attended, None, unattended, segment, pair)

    def _per_word(
        self, cells: Mapping[str, Any], words: _Words, lexicon: Lexicon, where: str
    ) -> dict[str, np.ndarray]:
        """What belongs to each word, as far as it fits the tokens."""
        length = len(words.tokens)
        per_word: dict[str, np.ndarray] = {}
        if words.sentence is not None:
            per_word["sentence"] = np.array(words.sentence, np.int32)
        if words.segment is not None:
            per_word["segment"] = words.segment

        # characters are counted in the text that is attended to
        attended = "text"
        if "text2" in cells and self.columns.attend_to == "second":
            attended = "text2"
        per_word |= self.marks({**cells, "text": cells[attended]}, length, words.sentence)

        if cells.get("counterfactual") is not None:
            text = self.checked(cells["counterfactual"], where, "counterfactual")
            changed = self.rules.tokens(text)
            if len(changed) == length:
                per_word["counterfactual"] = lexicon.numbers(changed)
        if "token" in cells:
            place = rows.canonical(cells["token"])
            if place is None or not place.isdecimal() or int(place) >= length:
                raise RowLeftOut("token is no number of a word of the text")
            per_word["asked"] = (np.arange(length) == int(place)).astype(np.float64)
        for name in self.columns.per_word:
            try:
                numbers = np.asarray(cells[name], np.float64)
            except (TypeError, ValueError):
                continue
            if numbers.shape == (length,) and np.isfinite(numbers).all():
                per_word[name] = numbers
        return per_word

    def passed(
        self, split: str, table: datasets.Dataset, count: dict[str, Any]
    ) -> Bool[np.ndarray, " rows"]:
        """Which rows pass the filters.

        Raises:
            UserError: no row does.
        """
        passed = np.ones(len(table), bool)
        for name, allowed in self.columns.filters.items():
            before = passed.sum()
            passed &= rows.passes(table, {name: allowed})
            count["dropped"][f"filter {name}"] = int(before - passed.sum())
            if not passed.any():
                column = rows.column(table, name, "data.filters column")
                common = Counter(map(rows.canonical, column)).most_common(8)
                values = ", ".join(f"{value} ({number} ×)" for value, number in common)
                raise UserError(
                    f"data.filters: no row of the {split} split is left after {name}={allowed}; "
                    f"the column has {values}"
                )
        return passed

    def checked(self, text: Any, where: str, column: str = "text") -> str | list[str]:
        """A cell of a column of texts as text, or as the list of its sentences.

        Args:
            text: the cell.
            where: names the row in messages.
            column: the setting that names the column, without `data.`.

        Raises:
            UserError: the cell is neither.
        """
        setting = f"data.{column}={getattr(self.columns, column)}"
        is_list_of_texts = isinstance(text, list) and all(isinstance(part, str) for part in text)
        if self.rules.sentences == "column":
            if not is_list_of_texts:
                raise UserError(
                    f"{setting}: data.sentences=column expects a list of sentences in every cell, "
                    f"{where} has {str(text)[:60]!r}; text is split with data.sentences=spacy"
                )
            return text
        if not isinstance(text, str | int | float):
            hint = ""
            if isinstance(text, list):
                hint = "; a list of sentences is read with data.sentences=column"
            elif isinstance(text, dict) and text:
                path = f"data.{column}={getattr(self.columns, column)}.{next(iter(text))}"
                hint = f"; a value within it is named by its path, such as {path}"
            elif isinstance(text, bytes):
                hint = "; these bytes are no UTF-8: save the column as text"
            raise UserError(f"{setting}: expected text, {where} has {str(text)[:60]}{hint}")
        return str(text)

    def marks(
        self, cells: Mapping[str, Any], length: int, sentence: list[int] | None
    ) -> dict[str, np.ndarray]:
        """The rationale, and what annotators marked, where they are given and fit the tokens.

        Args:
            cells: the row's cells; characters are counted in its `text`.
            length: number of tokens.
            sentence: the sentence of each token, where there are sentences.

        Raises:
            UserError: a cell is not of its kind.
        """
        kind = self.columns.rationale_kind
        rationale = cells.get("rationale")
        annotators = cells.get("annotators")
        places = []
        if kind == "characters" and (rationale or annotators):
            text = str(cells["text"])
            places = places_of(text, replace(self.rules, token_rules=()).tokens(text))

        marks: dict[str, np.ndarray] = {}
        if rationale is not None:
            setting = f"data.rationale={self.columns.rationale}"
            mask = marked(rationale, kind, length, sentence, places, setting)
            if mask is not None:
                marks["rationale"] = mask
        if annotators is not None:
            setting = f"data.annotators={self.columns.annotators}"
            if not isinstance(annotators, list | tuple) or len(annotators) > MOST_ANNOTATORS:
                raise UserError(
                    f"{setting} expects a list of what each annotator marked, of "
                    f"{MOST_ANNOTATORS} at most, in every cell, but one is {str(annotators)[:60]!r}"
                )
            masks = [marked(cell, kind, length, sentence, places, setting) for cell in annotators]
            fitting = [mask for mask in masks if mask is not None]
            if len(fitting) > 1 and len(fitting) == len(masks):
                marks["annotators"] = packed(fitting)
        return marks

    @property
    def kinds(self) -> dict[str, type]:
        """What belongs to each word, by name, and the type that it is stored in."""
        settings = {
            "sentence": self.rules.sentences,
            "segment": self.columns.text2,
            "rationale": self.columns.rationale,
            "annotators": self.columns.annotators,
            "counterfactual": self.columns.counterfactual,
            "asked": self.columns.token,
        }
        kinds = {name: kind for name, kind in STORED.items() if settings[name] is not None}
        return kinds | dict.fromkeys(self.columns.per_word, np.float64)


def _is_blank(cell: Any) -> bool:
    return isinstance(cell, str) and not cell.strip()
