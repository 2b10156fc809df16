"""A file with one list of scores per text: read, checked, and matched with the texts of a run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool, Float

from attnprobe.data.files import ending_of
from attnprobe.data.ragged import Ragged
from attnprobe.data.sources import read_file
from attnprobe.errors import UserError
from attnprobe.schema.words import nearest
from attnprobe.shown import visible

ENDINGS = (".parquet", ".jsonl", ".json")
BY_NUMBER, BY_TOKENS, BY_TEXT = "example_id", "tokens", "text"
"""Columns that say which text a row is about."""

Scores = Float[np.ndarray, " tokens"]


@dataclass(frozen=True)
class ScoredTexts:
    """The rows of a file of scores.

    Attributes:
        path: the file.
        key: the column that says which text a row is about.
        keys: what each row's cell of it is; tokens as a tuple.
        tokens: each row's words, where the file has them beside the ids.
        values: each row's scores.
        absent: rows that say that their text has no scores.
    """

    path: Path
    key: str
    keys: Sequence[Any]
    tokens: Sequence[tuple[str, ...]] | None
    values: Ragged
    absent: Bool[np.ndarray, " rows"]

    @classmethod
    def read(cls, path: Path, column: str, keys: Sequence[str]) -> "ScoredTexts":
        """Read a parquet or JSON-lines file.

        Args:
            path: the file.
            column: that of the scores.
            keys: columns that may say which text a row is about; of those that are there the first counts.

        Raises:
            UserError: the file cannot be read, has no such columns, or something else in them.
        """
        if ending_of(path) not in ENDINGS:
            raise UserError(f"{path}: expected scores in a file that ends in .parquet, .jsonl or .jsonl.gz")
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
        tokens = _cells(table, BY_TOKENS, path) if BY_TOKENS in names and key == BY_NUMBER else None
        values, absent = _numbers(table[column], column, path)
        return cls(path, key, _cells(table, key, path), tokens, values, absent)

    def matched(
        self,
        texts: Mapping[int, Sequence[str]],
        keys: Mapping[int, Any],
        where: str,
        *,
        others: bool = False,
    ) -> dict[int, Scores | None]:
        """The scores of every text, by its number; None where the file says that there are none.

        Args:
            texts: the words of each text, by its number.
            keys: what a row about each text has in the column `key`, by the text's number.
            where: what the texts are, for the messages.
            others: the file may have rows about other texts.

        Raises:
            UserError: a text has no row, a row no text, a text two rows, or a row does not fit its text.
        """
        row_of = self._row_of()
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
        for number, key in keys.items():
            self._check(row_of[key], texts[number], number)
        return {number: None if self.absent[row_of[key]] else self.values[row_of[key]] for number, key in keys.items()}

    def tokenised(self, tokens: Callable[[str], Sequence[str]]) -> "ScoredTexts":
        """The same rows by the words of their texts."""
        return replace(self, key=BY_TOKENS, keys=[tuple(tokens(text)) for text in self.keys])

    def _row_of(self) -> dict[Any, int]:
        """The row that is about each text; of equal rows about equal words the first."""
        row_of: dict[Any, int] = {}
        for row, key in enumerate(self.keys):
            first = row_of.setdefault(key, row)
            same = self.key != BY_NUMBER and self.absent[first] == self.absent[row]
            if first != row and not (same and np.array_equal(self.values[first], self.values[row])):
                what = "the same example" if self.key == BY_NUMBER else "the same words, with other scores"
                raise UserError(
                    f"{self.path}: {self._name(first)} and row {row + 1} are about {what}: expected one row for each text"
                )
        return row_of

    def _check(self, row: int, words: Sequence[str], number: int) -> None:
        """Whether a row fits its text."""
        if self.tokens is not None and self.tokens[row] != tuple(words):
            theirs, ours = (visible(" ".join(some[:8])) for some in (self.tokens[row], words))
            raise UserError(
                f"{self.path}: {self._name(row)} has other words than this run: there {theirs!r}, here {ours!r}. Score the "
                f"tokens of attnprobe.read_examples(RUN)"
            )
        if self.absent[row]:
            return
        values = self.values[row]
        if len(values) != len(words):
            raise UserError(
                f"{self.path}: {self._name(row)} has {len(values)} scores, and example {number} has {len(words)} words: "
                f"expected one number per word of attnprobe.read_examples(RUN)"
            )
        if not np.isfinite(values).all():
            place = int(np.flatnonzero(~np.isfinite(values))[0])
            raise UserError(
                f"{self.path}: {self._name(row)}: the score of word {place + 1}, {visible(words[place])!r}, is "
                f"{values[place]}: expected finite numbers, or null in place of the whole list"
            )

    def _name(self, row: int) -> str:
        """A row in words."""
        return f"row {row + 1} ({self.key} {visible(str(self.keys[row]))[:60]})"


def _cells(table: pa.Table, name: str, path: Path) -> list[Any]:
    """The cells of a column that says which text a row is about."""
    column = table[name].combine_chunks()
    fits = {
        BY_NUMBER: pa.types.is_integer(column.type),
        BY_TOKENS: _is_list(column.type) and _is_text(column.type.value_type),
        BY_TEXT: _is_text(column.type),
    }[name]
    expected = {BY_NUMBER: "a whole number", BY_TOKENS: "a list of words", BY_TEXT: "text"}[name]
    if not fits or column.null_count:
        given = "no value" if fits else f"the type {column.type}"
        raise UserError(f"{path}: the column {name} has {given} in some row: expected {expected} in every one")
    cells = column.to_pylist()
    return [tuple(one) for one in cells] if name == BY_TOKENS else cells


def _numbers(column: pa.ChunkedArray, name: str, path: Path) -> tuple[Ragged, Bool[np.ndarray, " rows"]]:
    """Lists of numbers in one array, null in them as NaN; and which rows have no list."""
    array = column.combine_chunks()
    inner = array.type.value_type if _is_list(array.type) else None
    if inner is None or not (pa.types.is_integer(inner) or pa.types.is_floating(inner) or pa.types.is_null(inner)):
        raise UserError(f"{path}: the column {name} has the type {array.type}: expected a list of numbers in every row")
    lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    flat = array.flatten().cast(pa.float64()).to_numpy(zero_copy_only=False)  # without the lists that are null
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Ragged(flat, offsets), array.is_null().to_numpy(zero_copy_only=False)


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def _is_text(kind: pa.DataType) -> bool:
    """Text in any of arrow's ways of storing it: pandas 3 writes the large one."""
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
