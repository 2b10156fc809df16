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
# columns that say which text a row is about
BY_NUMBER = "example_id"
BY_TOKENS = "tokens"
BY_TEXT = "text"


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
        numbers: of each row in the file, from 1, for messages; None: all of the file's, in order.
    """

    path: Path
    key: str
    keys: Sequence[Any]
    tokens: Sequence[tuple[str, ...]] | None
    values: Sequence[Any]
    numbers: Sequence[int] | None = None

    @classmethod
    def read(cls, path: Path, column: str, keys: Sequence[str]) -> "ScoredTexts":
        """Read a parquet or JSON-lines file.

        Args:
            path: of the file.
            column: of the scores.
            keys: columns that may say which text a row is about; the first that the file has
                counts.

        Raises:
            UserError: the file cannot be read, has no such columns, or something else in them.
        """
        if ending_of(path) not in ENDINGS:
            raise UserError(
                f"{path}: expected scores in a file that ends in .parquet, .jsonl or .jsonl.gz"
            )
        table: pa.Table = read_file(path).data.table
        names = table.column_names
        if column not in names:
            raise UserError(
                f"{path} has no column {visible(column)}{nearest(column, names) or '.'} Its "
                f"columns are {visible(', '.join(names))}; name that of the scores with column="
            )
        key = next((name for name in keys if name in names), None)
        if key is None:
            raise UserError(
                f"{path} does not say which text a row is about: expected one of the columns "
                f"{', '.join(keys)}, found {visible(', '.join(names))}"
            )
        kind = table.schema.field(column).type
        if not _is_list_of_numbers(kind):
            raise UserError(
                f"{path}: the column {column} has the type {kind}: expected a list of numbers in "
                f"every row"
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
        listed_by: str = "attnprobe.read_examples(RUN)",
    ) -> dict[int, np.ndarray | None]:
        """Find the scores of every text.

        Args:
            texts: the words of each text, by its number.
            keys: what a row about each text has in the column `key`, by the text's number.
            where: what the texts are, for the messages.
            others: the file may have rows about other texts.
            listed_by: what lists the texts with their words, for the messages.

        Returns:
            The scores by the text's number; None where the file says that there are none.

        Raises:
            UserError: a text has no row, a row no text, a text two rows, or a row does not fit its
                text.
        """
        row_of = self._rows_by_key()
        missing = [number for number, key in keys.items() if key not in row_of]
        if missing:
            examples = ", ".join(map(str, missing[:5])) + (", …" if len(missing) > 5 else "")
            raise UserError(
                f"{self.path} has no scores for {len(missing)} of the {len(texts)} texts of "
                f"{where} (example {examples}): expected a row for every text, with null in place "
                f"of the scores where there are none"
            )
        unknown = sorted(set(row_of.values()) - {row_of[key] for key in keys.values()})
        if unknown and not others:
            more = f", nor are {len(unknown) - 1} other rows" if len(unknown) > 1 else ""
            raise UserError(
                f"{self.path}: {self._name(unknown[0])} is about no text of {where}{more}: "
                f"expected scores for the {len(texts)} texts of {where} and no others; "
                f"{listed_by} lists them"
            )
        for number, key in keys.items():
            self._check_row(row_of[key], number, texts[number], listed_by)
        return {number: self.values[row_of[key]] for number, key in keys.items()}

    def _rows_by_key(self) -> dict[Any, int]:
        """Which row is about each key; of equal rows about equal words the first."""
        row_of: dict[Any, int] = {}
        for row, key in enumerate(self.keys):
            first = row_of.setdefault(key, row)
            if first == row:
                continue
            if self.key == BY_NUMBER:
                shared = "the same example"
            elif not np.array_equal(self.values[first], self.values[row]):
                shared = "the same words, with other scores"
            else:
                continue
            raise UserError(
                f"{self.path}: {self._name(first)} and row {self._number(row)} are about "
                f"{shared}: expected one row for each text"
            )
        return row_of

    def _check_row(self, row: int, number: int, words: Sequence[str], listed_by: str) -> None:
        """Refuse a row that does not fit its text, which has this number and these words."""
        place = f"{self.path}: {self._name(row)}"
        if self.tokens is not None and self.tokens[row] != tuple(words):
            file_words = visible(" ".join(self.tokens[row][:8]))
            run_words = visible(" ".join(words[:8]))
            raise UserError(
                f"{place} has other words than this run: there {file_words!r}, here {run_words!r}. "
                f"Score the tokens of attnprobe.read_examples(RUN)"
            )
        values = self.values[row]
        if values is None:
            return
        if len(values) != len(words):
            raise UserError(
                f"{place} has {len(values)} scores, and example {number} has {len(words)} words: "
                f"expected one number per word of {listed_by}"
            )
        if not np.isfinite(values).all():
            word = int(np.flatnonzero(~np.isfinite(values))[0])
            raise UserError(
                f"{place}: the score of word {word + 1}, {visible(words[word])!r}, is "
                f"{values[word]}: expected finite numbers, or null in place of the whole list"
            )

    def _number(self, row: int) -> int:
        return row + 1 if self.numbers is None else self.numbers[row]

    def _name(self, row: int) -> str:
        return f"row {self._number(row)} ({self.key} {visible(str(self.keys[row]))[:60]})"


def _is_list_of_numbers(kind: pa.DataType) -> bool:
    if not isinstance(kind, pa.ListType | pa.LargeListType | pa.FixedSizeListType):
        return False
    item = kind.value_type
    return pa.types.is_integer(item) or pa.types.is_floating(item) or pa.types.is_null(item)


def _cells(table: pa.Table, name: str, path: Path) -> list[Any]:
    """A key column's cells, checked; lists of words as tuples."""
    expected = {BY_NUMBER: "a whole number", BY_TOKENS: "a list of words", BY_TEXT: "text"}[name]
    cells: list[Any] = []
    for cell in table[name].to_pylist():
        if name == BY_TOKENS:
            fits = isinstance(cell, list) and all(isinstance(word, str) for word in cell)
        else:
            fits = type(cell) is (int if name == BY_NUMBER else str)
        if not fits:
            content = "no value" if cell is None else f"the type {table[name].type}"
            raise UserError(
                f"{path}: the column {name} has {content} in some row: expected {expected} in "
                f"every one"
            )
        cells.append(tuple(cell) if name == BY_TOKENS else cell)
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
        """The file of the scores."""
        if self.path is None:
            raise UserError(
                f"importance {self.name} has no path: name the file with your scores, for example "
                f"importance.{self.name}.path=scores.parquet"
            )
        return {"path": find_path(self.path)}

    def prepare(self, data: TextDataModule, split: str) -> None:
        """Read the file and find the scores of every text of the split."""
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
        key_texts: Sequence[str | Sequence[str]] = tokens if rows.key == BY_TOKENS else texts
        keys = {
            number: text if isinstance(text, str) else tuple(text)
            for number, text in enumerate(key_texts)
        }
        self._scores.clear()
        self._scores.update(rows.matched(words, keys, "those to explain", others=True))

    def scores(self, subject: Subject) -> Scores:
        """As the file has them; NaN for a text that has none."""
        content = subject.batch.content
        scores = torch.zeros(content.shape, dtype=torch.float64, device=content.device)
        for row, number in enumerate(subject.batch.example_id.tolist()):
            values = self._scores[number]
            scores[row, content[row]] = (
                torch.nan if values is None else torch.tensor(values, device=content.device)
            )
        return scores
