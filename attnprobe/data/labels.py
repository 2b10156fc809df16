"""Texts with any number of labels, as rows that ask for one label each."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import datasets
import numpy as np
import pyarrow as pa
from annotated_types import Ge, Le, MinLen

from attnprobe.core.errors import UserError
from attnprobe.core.settings import Portion, Seed, Share, Size, Text, Whole
from attnprobe.data import rows
from attnprobe.data.sources import Source, Splits
from attnprobe.data.testbed.codes import CodedText, Signs, generate_codes

TEXT_NUMBER = "text_number"
QUESTION = "asked_label"
ANSWER = "has_label"
WINDOW = 8
"""Words at the beginning of a text that an attention made up for planted codes is on."""
HAS = ("1", "true", "yes")
HAS_NOT = ("0", "false", "no", "")


class LabelSource(Source):
    """Rows of texts with labels → a row per text and label, answered "no" or "yes".

    A text is asked for each of its labels, and for `others` that it does not have, drawn at random.
    Adds the columns `asked_label`, `has_label`, and `text_number`, which rows of one text share.

    Args:
        texts: gives rows with labels.
        column: column of all labels of a text: a list of names, or names in a string.
        delimiter: between the names of a string.
        one_per_label: instead of `column`: a column for each label, with its name, in which 1, true
            or yes says that the text has it, and 0, false, no or nothing that it has not.
        others: how many labels that a text does not have; None: all.
        seed: of the draw.
    """

    def __init__(
        self,
        texts: Source,
        column: str | None = "labels",
        delimiter: Text = "|",
        *,
        one_per_label: Annotated[Sequence[str], MinLen(1)] | None = None,
        others: Whole | None = 4,
        seed: Seed = 0,
    ):
        if (column is None) is (one_per_label is None):
            raise UserError(
                f"data.source.column={column} and data.source.one_per_label={one_per_label}: "
                f"expected one of them, the other null"
            )
        self.texts = texts
        self.column = column
        self.delimiter = delimiter
        self.one_per_label = one_per_label
        self.others = others
        self.seed = seed

    def load(self) -> Splits:
        """The rows of every split; labels are those of all splits, in the order of their names."""
        self.texts.columns = self._needed()
        tables = self.texts.load()
        self.notes = self.texts.notes
        labels = {split: self._labels(table) for split, table in tables.items()}
        distinct: set[str] = set()
        for labels_of_rows in labels.values():
            distinct.update(*labels_of_rows)
        if not distinct:
            raise UserError(
                f"data.source.{self._setting}: expected a label in some row, and there is none: "
                f"name the column that lists them (data.source.column=…), or a column for each "
                f"label (data.source.column=null data.source.one_per_label=[…])"
            )
        names = sorted(distinct)
        unused = [name for name in self.one_per_label or () if name not in distinct]
        if unused:
            self.notes += (f"no text has the label {', '.join(unused)}: it is not asked for",)
        splits = {}
        first = 0
        for number, (split, table) in enumerate(tables.items()):
            generator = np.random.default_rng([self.seed, number])
            asked = _asked(labels[split], names, self.others, generator)
            columns: dict[str, list[Any]] = {
                QUESTION: [names[label] for label in asked.labels],
                ANSWER: ["yes" if answer else "no" for answer in asked.answers],
                TEXT_NUMBER: [first + row for row in asked.rows],
            }
            expanded = table.select(asked.rows)
            for name, values in columns.items():
                expanded = rows.with_column(expanded, name, values)
            splits[split] = expanded
            first += len(table)
        return splits

    def files(self) -> dict[str, Path]:
        """The files of the texts."""
        return self.texts.files()

    @property
    def _setting(self) -> str:
        """The setting that says where the labels are, with its value."""
        if self.one_per_label is None:
            return f"column={self.column}"
        return f"one_per_label={list(self.one_per_label)}"

    def _needed(self) -> list[str] | None:
        """The columns of the texts that are needed; None: all."""
        if self.columns is None:
            return None
        asked = [name for name in self.columns if name not in (QUESTION, ANSWER, TEXT_NUMBER)]
        return [*asked, *(self.one_per_label or [str(self.column)])]

    def _labels(self, table: datasets.Dataset) -> list[list[str]]:
        """The labels of every row."""
        if self.one_per_label is None:
            setting = "data.source.column"
            cells = rows.label_lists(rows.column(table, str(self.column), setting), self.delimiter)
            return [names or [] for names in cells]

        labels: list[list[str]] = [[] for _ in range(len(table))]
        for name in self.one_per_label:
            cells = rows.column(table, name, "data.source.one_per_label")
            for row, cell in enumerate(cells):
                if self._has(name, cell):
                    labels[row].append(name)
        return labels

    def _has(self, name: str, cell: Any) -> bool:
        """Whether a cell of a label's own column says that the text has the label."""
        word = (rows.canonical(cell) or "").lower()
        if word in HAS:
            return True
        if word in HAS_NOT:
            return False
        raise UserError(
            f"data.source.one_per_label: the column {name} has a cell {str(cell)[:60]!r}; expected "
            f"1, true or yes, or 0, false, no or nothing. Labels that are listed in one cell are "
            f"read with data.source.column={name} data.source.one_per_label=null"
        )


@dataclass(frozen=True)
class _Questions:
    """What is asked, an entry per question.

    Attributes:
        rows: the text's row.
        labels: the label's number.
        answers: whether the text has it.
    """

    rows: list[int]
    labels: list[int]
    answers: list[bool]


def _asked(
    labels: list[list[str]], names: list[str], others: int | None, generator: np.random.Generator
) -> _Questions:
    """Every text's own labels, and so many others of all names."""
    number = {name: place for place, name in enumerate(names)}
    asked = _Questions([], [], [])
    for row, row_names in enumerate(labels):
        present = {number[name] for name in row_names}
        absent = np.array([place for place in range(len(names)) if place not in present], int)
        if others is not None and others < len(absent):
            absent = np.sort(generator.choice(absent, others, replace=False))
        for label in sorted(present.union(absent.tolist())):
            asked.rows.append(row)
            asked.labels.append(label)
            asked.answers.append(label in present)
    return asked


class CodeSource(Source):
    """Texts with planted codes (`attnprobe.data.testbed.codes`), a row per text and code.

    The columns `own_signs`, `signs_of_another`, `headings` and `first_window` are attentions made
    up for a known answer (`model/attention=column`): on the signs of the code, right by
    construction; on those of another code, on the headings of sections, and on the first words,
    wrong. With fewer than four codes there may be no other to take: then the weights of
    `signs_of_another` are even.

    Args:
        train_size: training texts.
        validation_size: validation texts.
        test_size: test texts.
        codes: how many codes there are.
        length: words of a text, about.
        synonyms: signs that a code has for itself, 1 to 26.
        shared: share of the texts with a sign of a code in which it is one that two codes share.
        negated: share of the texts without a sign of a code that say "no" with one.
        focus: share of the weight of an attention made up on the words that it is on; the rest is
            even.
        seed: apart from the run's seed.
    """

    def __init__(
        self,
        train_size: Size = 400,
        validation_size: Size = 60,
        test_size: Size = 100,
        *,
        codes: Size = 8,
        length: Size = 200,
        synonyms: Annotated[int, Ge(1), Le(26)] = 2,
        shared: Portion = 0.2,
        negated: Portion = 0.25,
        focus: Share = 0.95,
        seed: Seed = 0,
    ):
        self.sizes = {"train": train_size, "validation": validation_size, "test": test_size}
        self.codes = codes
        self.length = length
        self.signs = Signs(synonyms, shared, negated)
        self.focus = focus
        self.seed = seed

    def load(self) -> Splits:
        """Generate the rows."""
        splits = {}
        first = 0
        for number, (split, size) in enumerate(self.sizes.items()):
            seed = int(np.random.SeedSequence((self.seed, number)).generate_state(1)[0])
            questions: list[dict[str, Any]] = []
            for text in generate_codes(size, self.codes, self.length, seed, self.signs):
                questions += _questions_of(text, first, self.focus)
                first += 1
            splits[split] = datasets.Dataset(pa.Table.from_pylist(questions))
        return splits


def _questions_of(text: CodedText, number: int, focus: float) -> list[dict[str, Any]]:
    """A row for each code of a text."""
    questions = []
    codes = len(text.reasons)
    is_in_window = [place < WINDOW for place in range(len(text.words))]
    for code, reason in enumerate(text.reasons):
        another = (code + 2) % codes
        shares_sign = another // 2 == code // 2  # codes 2k and 2k + 1 do
        signs_of_another = [False] * len(text.words) if shares_sign else text.signs[another]
        questions.append(
            {
                "text": " ".join(text.words),
                QUESTION: f"code{code}",
                ANSWER: "yes" if any(reason) else "no",
                "rationale": reason,
                TEXT_NUMBER: number,
                "own_signs": _focused(text.signs[code], focus),
                "signs_of_another": _focused(signs_of_another, focus),
                "headings": _focused(text.headings, focus),
                "first_window": _focused(is_in_window, focus),
            }
        )
    return questions


def _focused(marks: list[bool], focus: float) -> list[float]:
    """Weights with so much of their sum on the marked words; even where none is marked."""
    marked = sum(marks)
    if not marked:
        return [1 / len(marks)] * len(marks)
    elsewhere = (1 - focus) / max(1, len(marks) - marked)
    return [focus / marked if is_marked else elsewhere for is_marked in marks]
