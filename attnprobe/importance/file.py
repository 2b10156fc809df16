"""Scores that the user brings: from any other tool, one list of numbers per text, in a file."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnprobe.core.errors import UserError
from attnprobe.core.sanitise import visible
from attnprobe.core.settings import nearest
from attnprobe.data.examples import Ragged
from attnprobe.data.local_files import ending_of, find_path
from attnprobe.data.module import TextDataModule
from attnprobe.data.sources import read_file
from attnprobe.importance.base import Importance, Subject

# A file with one list of scores per text: read, checked, and matched with the texts of a run.


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
        self, texts: Mapping[int, Sequence[str]], keys: Mapping[int, Any], where: str, *, others: bool = False
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
        return f"row {row + 1} ({self.key} {visible(str(self.keys[row]))[:60]})"


def _cells(table: pa.Table, name: str, path: Path) -> list[Any]:
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


@dataclass(frozen=True)
class File(Importance):
    """One score per word from a parquet or JSON-lines file (also `.jsonl.gz`), one row per text.

    A row says which text it is about by `example_id` (as in the tables and in `attnprobe.read_examples`), by `tokens` (the
    words, as there) or by `text` (as in the data). `tokens` beside `example_id` are compared with the run's own, so that
    scores of another tokenisation are noticed. A row whose list is null says that its text has no scores: undefined.

    Whatever leaves a doubt is refused: a text without a row, an `example_id` that no text of the split has, two rows about
    one text, a list of another length than the text, a score that is not a finite number. Rows by `tokens` or `text` may be
    about other texts as well: one file serves all splits, and rows that are drawn from.

    Attributes:
        path: the file, in the working directory or in `ATTNPROBE_DATA_DIR`.
        column: the column with the lists of numbers.
        title: in figures, tables and pages.
        colour: in figures, `#RRGGBB`.
        signed: below 0 speaks against the decision.
    """

    name = "file"
    of_words = True
    path: str | None = None
    column: str = "scores"
    # facts of every other importance, and the user's to say of this one
    title: str = "scores from a file"  # type: ignore[misc]
    colour: str = "#661100"  # type: ignore[misc]
    signed: bool = False  # type: ignore[misc]
    _scores: dict[int, Scores | None] = field(default_factory=dict, init=False, repr=False, compare=False)

    def files(self) -> dict[str, Path]:
        if self.path is None:
            raise UserError(
                f"importance {self.name} has no path: name the file with your scores, for example "
                f"importance.{self.name}.path=scores.parquet"
            )
        return {"path": find_path(self.path)}

    def prepare(self, data: TextDataModule, split: str) -> None:
        rows, part = self._rows(BY_NUMBER, BY_TOKENS, BY_TEXT), data.splits[split]
        if rows.key == BY_TEXT:  # the original text is gone by now, its tokens are not
            rows = rows.tokenised(data.pipeline.tokens)
        texts = {number: part.tokens_at(row) for row, number in enumerate(part.example_id.tolist())}
        keys = {number: number if rows.key == BY_NUMBER else tuple(words) for number, words in texts.items()}
        self._take(rows.matched(texts, keys, f"the {split} split", others=rows.key != BY_NUMBER))

    def prepare_texts(self, texts: Sequence[str | Sequence[str]], tokens: Sequence[Sequence[str]]) -> None:
        """Read the file and find every text's scores; it may hold those of other texts as well."""
        rows, words = self._rows(BY_TOKENS, BY_TEXT), dict(enumerate(tokens))
        given: Sequence[str | Sequence[str]] = tokens if rows.key == BY_TOKENS else texts
        keys = {number: one if isinstance(one, str) else tuple(one) for number, one in enumerate(given)}
        self._take(rows.matched(words, keys, "those to explain", others=True))

    def _take(self, scores: dict[int, Scores | None]) -> None:
        self._scores.clear()
        self._scores.update(scores)

    def scores(self, subject: Subject) -> Float[Tensor, "batch seq"]:
        content = subject.batch.content
        scores = torch.zeros(content.shape, dtype=torch.float64, device=content.device)
        for row, number in enumerate(subject.batch.example_id.tolist()):
            values = self._scores[number]
            scores[row, content[row]] = torch.nan if values is None else torch.tensor(values, device=content.device)
        return scores

    def _rows(self, *keys: str) -> ScoredTexts:
        return ScoredTexts.read(self.files()["path"], self.column, keys)
