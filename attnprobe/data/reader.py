"""From the rows of a source to tokenised examples: columns are read, empty cells dropped and
counted."""

import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import datasets
import numpy as np
import pandas as pd
from jaxtyping import Bool
from tqdm import tqdm

from attnprobe.core.errors import UserError
from attnprobe.data import rows
from attnprobe.data.columns import (
    MOST_ANNOTATORS,
    OPTIONAL,
    Columns,
    marked,
    packed,
    paired,
    places_of,
)
from attnprobe.data.examples import Examples, Lexicon
from attnprobe.data.text import TextRules, matching

STORED: dict[str, type] = {
    "sentence": np.int32,
    "segment": np.int32,
    "rationale": np.bool_,
    "annotators": np.int32,
    "counterfactual": np.int32,
    "asked": np.float64,
}
"""What may belong to each word, and as what it is stored."""
PERHAPS = ("sentence", "annotators", "segment")
"""What is not there for every text is not counted as lost: of few texts there may be several
annotators."""


@dataclass(frozen=True)
class Reader:
    """Reads the columns of a split's rows as tokens, labels and what belongs to them."""

    columns: Columns
    rules: TextRules
    max_tokens: int | None = None

    def read(
        self, split: str, table: datasets.Dataset, lexicon: Lexicon, count: dict[str, Any]
    ) -> Examples:
        """Rows that pass the filters and have a text, a label and what else is asked for; `count`
        takes the others."""
        self.check_columns(table)
        passed = self.passed(split, table, count)
        needed = [
            "text",
            "label",
            *(name for name in ("question", "text2") if getattr(self.columns, name) is not None),
        ]
        reasons = ["text is null", "label is null", "text is empty"]
        reasons += [f"{name} is {how}" for name in needed[2:] for how in ("null", "empty")]
        dropped = Counter(dict.fromkeys(reasons, 0))
        cells = self.cells(table)
        kept = dict[int, dict[str, Any]]()
        # a log file gets a line every half minute, and short work none
        for number in tqdm(
            np.flatnonzero(passed).tolist(),
            desc=f"read {split}",
            unit=" texts",
            leave=False,
            delay=1.0,
            mininterval=0.1 if sys.stderr.isatty() else 30.0,
            disable=os.environ.get("TQDM_DISABLE") == "1",
        ):
            one = {name: values[number] for name, values in cells.items()}
            missing = next((name for name in needed if one[name] is None), None)
            row = (
                f"{missing} is null"
                if missing
                else self.example(one, lexicon, f"row {number} of {split}")
            )
            if isinstance(row, str):
                dropped[row] += 1
            else:
                kept[number] = row
        count["dropped"] |= dropped
        if not kept:
            why = ", ".join(f"{reason}: {number}" for reason, number in dropped.items() if number)
            asked_for = "".join(
                f", data.{name}={getattr(self.columns, name)}" for name in needed[2:]
            )
            raise UserError(
                f"no row of the {split} split can be used ({why}): choose other columns than "
                f"data.text={self.columns.text} and data.label={self.columns.label}{asked_for}, or other cleaning steps "
                f"than data.clean={list(self.rules.clean)}"
            )
        examples = pd.DataFrame(list(kept.values()), index=list(kept))
        for name in self.kinds:
            if name not in PERHAPS:
                count[f"{name} does not fit"] = sum(name not in one for one in examples["per_word"])
        if self.columns.rationale is not None:
            count["rationale lost by truncation"] = int(examples["rationale_lost"].sum())
        return examples

    def check_columns(self, table: datasets.Dataset) -> None:
        """Refuse, by a `UserError`, a table that lacks a column."""
        self.cells(table.select(range(min(1, len(table)))))
        for name in self.columns.filters:
            rows.column(table.select([]), name, "data.filters column")

    def cells(self, table: datasets.Dataset) -> dict[str, list[Any]]:
        """The columns that are asked for, by what they hold."""
        where = self.columns
        cells = {"text": rows.column(table, where.text, "data.text")}
        labels = rows.column(table, where.label, "data.label")
        if where.above is not None:
            labels = rows.divided(labels, where.above)
        cells["label"] = rows.label_lists(
            labels, where.label_delimiter if where.multi_label else None
        )
        for setting in OPTIONAL:
            if (name := getattr(where, setting)) is None:
                continue
            try:
                cells[setting] = rows.column(table, name, f"data.{setting}")
            except UserError as error:
                raise UserError(f"{error}, or do without: data.{setting}=null") from None
        if "candidates" in cells:
            cells["candidates"] = rows.label_lists(cells["candidates"], where.label_delimiter)
        return cells | {
            name: rows.column(table, one, f"data.per_word.{name}")
            for name, one in where.per_word.items()
        }

    def example(
        self, cells: Mapping[str, Any], lexicon: Lexicon, where: str
    ) -> dict[str, Any] | str:
        """One row, or why it is left out."""
        tokens, sentence = self.rules.read(self.checked(cells["text"], where))
        asked: Sequence[str] | None = (
            self.rules.words(str(cells["question"])) if "question" in cells else None
        )
        if not tokens or asked == []:
            return "question is empty" if tokens else "text is empty"
        segment = None
        if "text2" in cells:
            second, sentences = self.rules.read(self.checked(cells["text2"], where, "text2"))
            if not second:
                return "text2 is empty"
            if sentences is not None:
                raise UserError(
                    "data.text2: a model of sentences reads one text: set data.sentences=null"
                )
            tokens, asked, segment = paired(tokens, second, self.columns.attend_to)
            cells = (
                {**cells, "text": cells["text2"]} if self.columns.attend_to == "second" else cells
            )
        allowed = cells.get("candidates")
        if self.columns.candidates_pattern is not None:
            allowed = matching(tokens, self.columns.candidates_pattern)
        per_word: dict[str, np.ndarray] = (
            {} if sentence is None else {"sentence": np.array(sentence, np.int32)}
        )
        per_word |= {} if segment is None else {"segment": segment}
        per_word |= self.marks(cells, len(tokens), sentence)
        rationale = per_word.get("rationale")
        if cells.get("counterfactual") is not None:
            changed, _ = self.rules.read(
                self.checked(cells["counterfactual"], where, "counterfactual")
            )
            if len(changed) == len(tokens):
                per_word["counterfactual"] = lexicon.numbers(changed)
        if "token" in cells:
            place = rows.canonical(cells["token"])
            if place is None or not place.isdecimal() or int(place) >= len(tokens):
                return "token is no number of a word of the text"
            per_word["asked"] = (np.arange(len(tokens)) == int(place)).astype(np.float64)
        for name in self.columns.per_word:
            try:
                numbers = np.asarray(cells[name], np.float64)
            except (TypeError, ValueError):
                continue
            if numbers.shape == (len(tokens),) and np.isfinite(numbers).all():
                per_word[name] = numbers
        limit = self.max_tokens
        row = {
            "words": lexicon.numbers(tokens[:limit]),
            "length": len(tokens),
            "labels": cells["label"],
            "per_word": {name: values[:limit] for name, values in per_word.items()},
        }
        if asked is not None:
            row["question"] = lexicon.numbers(asked)
        if self.columns.restricted:
            row["candidates"] = allowed
        if sentence is not None:
            sizes = np.bincount(sentence)
            row |= {"sentences": len(sizes), "longest_sentence": int(sizes.max())}
        if self.columns.rationale is not None:
            row["rationale_lost"] = (
                rationale is not None and bool(rationale.any()) and not rationale[:limit].any()
            )
        if "group" in cells:
            row["group"] = str(rows.canonical(cells["group"]))
        return row

    def passed(
        self, split: str, table: datasets.Dataset, count: dict[str, Any]
    ) -> Bool[np.ndarray, " rows"]:
        """Which rows pass the filters."""
        passed = np.ones(len(table), bool)
        for name, allowed in self.columns.filters.items():
            before = passed.sum()
            passed &= rows.passes(table, {name: allowed})
            count["dropped"][f"filter {name}"] = int(before - passed.sum())
            if not passed.any():
                values = Counter(
                    map(rows.canonical, rows.column(table, name, "data.filters column"))
                ).most_common(8)
                raise UserError(
                    f"data.filters: no row of the {split} split is left after {name}={allowed}; the column has "
                    f"{', '.join(f'{value} ({number} ×)' for value, number in values)}"
                )
        return passed

    def checked(self, text: Any, where: str, column: str = "text") -> str | list[str]:
        """A cell of a column of texts as text, or as the list of its sentences; `where` names
        it."""
        setting = f"data.{column}={getattr(self.columns, column)}"
        if self.rules.sentences == "column":
            if not isinstance(text, list) or not all(
                isinstance(sentence, str) for sentence in text
            ):
                raise UserError(
                    f"{setting}: data.sentences=column expects a list of sentences in every cell, {where} has "
                    f"{str(text)[:60]!r}; text is split with data.sentences=spacy"
                )
            return text
        if not isinstance(text, str | int | float):
            hint = (
                "; a list of sentences is read with data.sentences=column"
                if isinstance(text, list)
                else ""
            )
            raise UserError(f"{setting}: expected text, {where} has {str(text)[:60]}{hint}")
        return str(text)

    def marks(
        self, cells: Mapping[str, Any], length: int, sentence: list[int] | None
    ) -> dict[str, np.ndarray]:
        """The rationale, and what annotators marked, as far as they are there and fit the
        tokens."""
        kind = self.columns.rationale_kind
        text = str(cells["text"])
        found = dict[str, np.ndarray]()
        places = (
            places_of(text, replace(self.rules, token_rules=()).tokens(text))
            if kind == "characters" and (cells.get("rationale") or cells.get("annotators"))
            else []
        )
        if (cell := cells.get("rationale")) is not None:
            mask = marked(
                cell, kind, length, sentence, places, f"data.rationale={self.columns.rationale}"
            )
            found |= {} if mask is None else {"rationale": mask}
        if (cell := cells.get("annotators")) is not None:
            setting = f"data.annotators={self.columns.annotators}"
            if not isinstance(cell, list | tuple) or len(cell) > MOST_ANNOTATORS:
                raise UserError(
                    f"{setting} expects a list of what each annotator marked, of {MOST_ANNOTATORS} at most, in every cell, "
                    f"but one is {str(cell)[:60]!r}"
                )
            masks = [marked(part, kind, length, sentence, places, setting) for part in cell]
            fitting = [mask for mask in masks if mask is not None]
            if len(fitting) > 1 and len(fitting) == len(masks):
                found["annotators"] = packed(fitting)
        return found

    @property
    def kinds(self) -> dict[str, type]:
        """What belongs to each word, by name, and as what it is stored."""
        settings = {
            "sentence": self.rules.sentences,
            "segment": self.columns.text2,
            "asked": self.columns.token,
        }
        settings |= {
            name: getattr(self.columns, name)
            for name in ("rationale", "annotators", "counterfactual")
        }
        there = {name: kind for name, kind in STORED.items() if settings[name] is not None}
        return there | dict.fromkeys(self.columns.per_word, np.float64)
