"""Scores that the user brings: from any other tool, one list of numbers per text, in a file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from attnprobe.core.errors import UserError
from attnprobe.core.sanitise import visible
from attnprobe.core.settings import nearest
from attnprobe.data.local_files import ending_of, find_path
from attnprobe.data.module import TextDataModule
from attnprobe.data.sources import read_file
from attnprobe.importance.base import Importance, Scores, Subject

ENDINGS = (".parquet", ".jsonl", ".json")
BY_NUMBER = "example_id"
BY_TOKENS = "tokens"
BY_TEXT = "text"
"""Columns that say which text a row is about."""


@dataclass
class ScoredTexts:
    """The rows of a file of scores.

    Attributes:
        path: the file.
        key: the column that says which text a row is about.
        keys: what each row's cell of it is; tokens as a tuple.
        tokens: each row's words, where the file has them beside the ids.
        values: each row's scores, null in them as NaN; None where the row says that its text has
            none.
    """

    path: Path
    key: str
    keys: Sequence[Any]
    tokens: Sequence[tuple[str, ...]] | None
    values: Sequence[Any]

    @classmethod
    def read(cls, path: Path, column: str, keys: Sequence[str]) -> "ScoredTexts":
        """Read a parquet or JSON-lines file; raises `UserError` where it cannot be read, has no
        such columns, or something else in them. `keys`: columns that may say which text a row is
        about, of those that are there the first counts."""
        if ending_of(path) not in ENDINGS:
            raise UserError(
                f"{path}: expected scores in a file that ends in .parquet, .jsonl or .jsonl.gz"
            )
        table: pa.Table = read_file(path).data.table
        names = table.column_names
        if column not in names:
            raise UserError(
                f"{path} has no column {visible(column)}{nearest(column, names) or '.'} Its columns are "
                f"{visible(', '.join(names))}; name that of the scores with column="
            )
        key = next((name for name in keys if name in names), None)
        if key is None:
            raise UserError(
                f"{path} does not say which text a row is about: expected one of the columns {', '.join(keys)}, found "
                f"{visible(', '.join(names))}"
            )
        kind = table.schema.field(column).type
        inner = (
            kind.value_type
            if isinstance(kind, pa.ListType | pa.LargeListType | pa.FixedSizeListType)
            else kind
        )
        if inner is kind or not (
            pa.types.is_integer(inner) or pa.types.is_floating(inner) or pa.types.is_null(inner)
        ):
            raise UserError(
                f"{path}: the column {column} has the type {kind}: expected a list of numbers in every row"
            )
        values = table[column].cast(pa.large_list(pa.float64())).to_pandas().tolist()
        tokens = _cells(table, BY_TOKENS, path) if BY_TOKENS in names and key == BY_NUMBER else None
        return cls(path, key, _cells(table, key, path), tokens, values)

    def matched(
        self,
        texts: Mapping[int, Sequence[str]],
        keys: Mapping[int, Any],
        where: str,
        *,
        others: bool = False,
    ) -> dict[int, np.ndarray | None]:
        """The scores of every text, by its number; None where the file says that there are none.
        Raises `UserError` where a text has no row, a row no text, a text two rows, or a row does
        not fit its text.

        Args:
            texts: the words of each text, by its number.
            keys: what a row about each text has in the column `key`, by the text's number.
            where: what the texts are, for the messages.
            others: the file may have rows about other texts.
        """
        row_of: dict[Any, int] = {}
        for row, key in enumerate(self.keys):
            # of equal rows about equal words the first
            first = row_of.setdefault(key, row)
            if first != row and (
                self.key == BY_NUMBER or not np.array_equal(self.values[first], self.values[row])
            ):
                what = (
                    "the same example"
                    if self.key == BY_NUMBER
                    else "the same words, with other scores"
                )
                raise UserError(
                    f"{self.path}: {self._name(first)} and row {row + 1} are about {what}: expected one row for each text"
                )
        if missing := [number for number, key in keys.items() if key not in row_of]:
            shown = ", ".join(map(str, missing[:5])) + (", …" if len(missing) > 5 else "")
            raise UserError(
                f"{self.path} has no scores for {len(missing)} of the {len(texts)} texts of {where} (example {shown}): "
                f"expected a row for every text, with null in place of the scores where there are none"
            )
        unknown = sorted(set(row_of.values()) - {row_of[key] for key in keys.values()})
        if unknown and not others:
            raise UserError(
                f"{self.path}: {self._name(unknown[0])} is about no text of {where}"
                f"{f', nor are {len(unknown) - 1} other rows' if len(unknown) > 1 else ''}: expected scores for the "
                f"{len(texts)} texts of {where} and no others; attnprobe.read_examples(RUN) lists them"
            )
        found = {number: self.values[row_of[key]] for number, key in keys.items()}
        for number, values in found.items():
            row = row_of[keys[number]]
            words = texts[number]
            if self.tokens is not None and self.tokens[row] != tuple(words):
                theirs, ours = (visible(" ".join(some[:8])) for some in (self.tokens[row], words))
                raise UserError(
                    f"{self.path}: {self._name(row)} has other words than this run: there {theirs!r}, here {ours!r}. Score "
                    f"the tokens of attnprobe.read_examples(RUN)"
                )
            if values is not None and len(values) != len(words):
                raise UserError(
                    f"{self.path}: {self._name(row)} has {len(values)} scores, and example {number} has {len(words)} words: "
                    f"expected one number per word of attnprobe.read_examples(RUN)"
                )
            if values is not None and not np.isfinite(values).all():
                place = int(np.flatnonzero(~np.isfinite(values))[0])
                raise UserError(
                    f"{self.path}: {self._name(row)}: the score of word {place + 1}, {visible(words[place])!r}, is "
                    f"{values[place]}: expected finite numbers, or null in place of the whole list"
                )
        return found

    def _name(self, row: int) -> str:
        return f"row {row + 1} ({self.key} {visible(str(self.keys[row]))[:60]})"


def _cells(table: pa.Table, name: str, path: Path) -> list[Any]:
    expected = {BY_NUMBER: "a whole number", BY_TOKENS: "a list of words", BY_TEXT: "text"}[name]
    cells: list[Any] = [
        tuple(one) if isinstance(one, list) else one for one in table[name].to_pylist()
    ]
    for cell in cells:
        if name == BY_TOKENS:
            fits = isinstance(cell, tuple) and all(isinstance(word, str) for word in cell)
        else:
            fits = type(cell) is (int if name == BY_NUMBER else str)
        if not fits:
            given = "no value" if cell is None else f"the type {table[name].type}"
            raise UserError(
                f"{path}: the column {name} has {given} in some row: expected {expected} in every one"
            )
    return cells


@dataclass(frozen=True)
class File(Importance):
    """One score per word from a parquet or JSON-lines file (also `.jsonl.gz`), one row per text.

    A row says which text it is about by `example_id` (as in the tables and in
    `attnprobe.read_examples`), by `tokens` (the words, as there) or by `text` (as in the data).
    `tokens` beside `example_id` are compared with the run's own, so that scores of another
    tokenisation are noticed. A row whose list is null says that its text has no scores: undefined.

    Whatever leaves a doubt is refused. Rows by `tokens` or `text` may be about other texts as well:
    one file serves all splits.

    Attributes:
        path: the file, in the working directory or in `ATTNPROBE_DATA_DIR`.
        column: the column with the lists of numbers.
        title, colour, signed: as of every importance.
    """

    name = "file"
    of_words = True
    path: str | None = None
    column: str = "scores"
    # facts of every other importance, and the user's to say of this one
    title: str = "scores from a file"  # type: ignore[misc]
    colour: str = "#661100"  # type: ignore[misc]
    signed: bool = False  # type: ignore[misc]
    _scores: dict[int, np.ndarray | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def files(self) -> dict[str, Path]:
        if self.path is None:
            raise UserError(
                f"importance {self.name} has no path: name the file with your scores, for example "
                f"importance.{self.name}.path=scores.parquet"
            )
        return {"path": find_path(self.path)}

    def prepare(self, data: TextDataModule, split: str) -> None:
        rows = ScoredTexts.read(self.files()["path"], self.column, (BY_NUMBER, BY_TOKENS, BY_TEXT))
        part = data.splits[split]
        if rows.key == BY_TEXT:  # the original text is gone by now, its tokens are not
            rows.key = BY_TOKENS
            rows.keys = [tuple(data.pipeline.tokens(text)) for text in rows.keys]
        texts = {number: part.tokens(number) for number in part.example_id.tolist()}
        keys = {
            number: number if rows.key == BY_NUMBER else tuple(words)
            for number, words in texts.items()
        }
        self._scores.clear()
        self._scores.update(
            rows.matched(texts, keys, f"the {split} split", others=rows.key != BY_NUMBER)
        )

    def prepare_texts(
        self, texts: Sequence[str | Sequence[str]], tokens: Sequence[Sequence[str]]
    ) -> None:
        """Read the file and find every text's scores; it may hold those of other texts as well."""
        rows = ScoredTexts.read(self.files()["path"], self.column, (BY_TOKENS, BY_TEXT))
        words = dict(enumerate(tokens))
        given: Sequence[str | Sequence[str]] = tokens if rows.key == BY_TOKENS else texts
        keys = {
            number: one if isinstance(one, str) else tuple(one) for number, one in enumerate(given)
        }
        self._scores.clear()
        self._scores.update(rows.matched(words, keys, "those to explain", others=True))

    def scores(self, subject: Subject) -> Scores:
        content = subject.batch.content
        scores = torch.zeros(content.shape, dtype=torch.float64, device=content.device)
        for row, number in enumerate(subject.batch.example_id.tolist()):
            values = self._scores[number]
            scores[row, content[row]] = (
                torch.nan if values is None else torch.tensor(values, device=content.device)
            )
        return scores
