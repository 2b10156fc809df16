"""Scores that the bench is asked about: a file, and answers that are known."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from jaxtyping import Float

from attnprobe.core.errors import UserError
from attnprobe.core.sanitise import visible
from attnprobe.data.local_files import find_path
from attnprobe.data.sources import read_file
from attnprobe.findings.bench.folder import TEXTS, BenchFolder, BenchModel, BenchText
from attnprobe.importance.file import BY_NUMBER, BY_TEXT, ENDINGS, ScoredTexts

TextScores = Float[np.ndarray, " words"]
Scorer = Callable[[BenchModel, Sequence[BenchText]], list[TextScores]]
"""A model and its texts → a score per word of each text; the larger its size, the more important.
NaN in all words of a text: nothing is said of it."""

MODEL = "model"
SCORES = "scores"
SINGLE = ("position", "score")
"""Columns of a file that has a row per word."""


def truth(model: BenchModel, texts: Sequence[BenchText]) -> list[TextScores]:
    """1 for the words that decide, 0 for all others: nothing is better."""
    return [text.deciding.astype(float) for text in texts]


def reversed_truth(model: BenchModel, texts: Sequence[BenchText]) -> list[TextScores]:
    """0 for the words that decide, 1 for all others: nothing is worse."""
    return [1.0 - text.deciding for text in texts]


def own_attention(model: BenchModel, texts: Sequence[BenchText]) -> list[TextScores]:
    """The model's own attention."""
    return [text.attention for text in texts]


KNOWN: Mapping[str, Scorer] = {
    "truth": truth,
    "reverse": reversed_truth,
    "attention": own_attention,
}
"""Name → scores that are stored with the bench."""


@dataclass(frozen=True)
class FileScores:
    """The scores of a file, all of whose rows are checked before any is used.

    Attributes:
        of_texts: a model's name → a text's number → its scores; None for a text that the file says
            nothing of.
    """

    of_texts: Mapping[str, Mapping[int, np.ndarray | None]]

    @classmethod
    def read(
        cls, path: str | Path, bench: BenchFolder, models: Sequence[BenchModel]
    ) -> "FileScores":
        """Read a parquet or JSON-lines file.

        A row has a `model`, an `example_id` (or a `text`, the words with a space between) and a
        list `scores`; or a `model`, an `example_id`, a `position` from 0 and a `score`.

        Args:
            path: of the file.
            bench: whose texts it is about.
            models: that have to be in the file.

        Raises:
            UserError: a column, a model, a text or a word is missing, unknown or there twice, or a
                score is no number.
        """
        path = find_path(path)
        rows = read_rows(path)
        names = [str(name) for name in rows[MODEL].unique()]
        of_bench = {model.name for model in bench.all_models()}
        unknown = [name for name in names if name not in of_bench]
        if unknown:
            raise UserError(
                f"{path}: model {visible(unknown[0])[:80]} is not in {bench.path}: expected names "
                f"of its models.parquet, such as {models[0].name}"
            )
        missing = [model.name for model in models if model.name not in names]
        if missing:
            raise UserError(
                f"{path} has no scores for {len(missing)} of {len(models)} models ({missing[0]}, "
                f"…): expected rows for all; --models PATTERN asks about fewer, such as "
                f"--models '{visible(names[0])}'"
            )
        scores = {}
        for model in models:
            model_rows = rows[rows[MODEL] == model.name]
            scores[model.name] = scores_of_model(path, model_rows, model, bench)
        return cls(scores)

    def __call__(self, model: BenchModel, texts: Sequence[BenchText]) -> list[TextScores]:
        """The scores of a model's texts; NaN for a text without."""
        scores = self.of_texts[model.name]
        result = []
        for text in texts:
            values = scores[text.example_id]
            result.append(np.full(len(text.words), np.nan) if values is None else values)
        return result


def read_rows(path: Path) -> pd.DataFrame:
    """A file's rows, one per text: `model`, `example_id` or `text`, and `scores`.

    The index has the number of each row in the file, from 1; of a text with a row per word that of
    the first one.

    Raises:
        UserError: it is no such file, or a cell does not say which model, text or word it is about.
    """
    if not path.name.endswith((*ENDINGS, ".jsonl.gz")):
        raise UserError(f"{path}: expected scores in a file that ends in .parquet or .jsonl")
    rows = read_file(path).data.table.to_pandas()
    rows.index = pd.RangeIndex(1, len(rows) + 1)
    columns = set(rows.columns)
    if {MODEL, BY_NUMBER, *SINGLE} <= columns:
        position, score = SINGLE
        rows = rows.assign(
            **{name: whole_numbers(path, rows[name]) for name in (BY_NUMBER, position)},
            **{MODEL: texts_of(path, rows[MODEL]), score: numbers_of(path, rows[score])},
        )
        return in_lists(path, rows)
    if {MODEL, SCORES} <= columns and columns & {BY_NUMBER, BY_TEXT}:
        if BY_NUMBER in columns:
            key = whole_numbers(path, rows[BY_NUMBER])
        else:
            key = texts_of(path, rows[BY_TEXT])
        return rows.assign(**{MODEL: texts_of(path, rows[MODEL]), str(key.name): key})
    raise UserError(
        f"{path} has the columns {visible(', '.join(map(str, rows.columns)))[:200]}: expected "
        "model, example_id (or text) and scores, or model, example_id, position and score"
    )


def whole_numbers(path: Path, column: pd.Series) -> pd.Series:
    """A column of a file as whole numbers.

    Raises:
        UserError: a cell is none.
    """
    numbers = pd.to_numeric(column, errors="coerce")
    is_whole = numbers.notna() & (numbers % 1 == 0)
    refuse_cells(path, column, ~is_whole, "a whole number")
    return numbers.astype(np.int64)


def numbers_of(path: Path, column: pd.Series) -> pd.Series:
    """A column of a file as numbers.

    Raises:
        UserError: a cell is none.
    """
    numbers = pd.to_numeric(column, errors="coerce")
    refuse_cells(path, column, numbers.isna(), "a number")
    return numbers


def texts_of(path: Path, column: pd.Series) -> pd.Series:
    """A column of a file as text.

    Raises:
        UserError: a cell is empty.
    """
    refuse_cells(path, column, column.isna(), "a text")
    return column.astype(str)


def refuse_cells(path: Path, column: pd.Series, is_wrong: pd.Series, expected: str) -> None:
    """Refuse the first cell that is wrong.

    Args:
        path: of the file.
        column: of it, whose index has the number of each row.
        is_wrong: of each cell.
        expected: what should stand there.

    Raises:
        UserError: there is such a cell.
    """
    if not is_wrong.any():
        return
    place = int(is_wrong.to_numpy().argmax())
    row = column.index[place]
    is_empty = column.isna().iloc[place]
    content = "nothing" if is_empty else visible(repr(column.iloc[place]))[:60]
    raise UserError(
        f"{path}: row {row} has {content} in the column {column.name}: expected {expected}"
    )


def in_lists(path: Path, rows: pd.DataFrame) -> pd.DataFrame:
    """From a row per word to a row per text.

    Raises:
        UserError: a word is there twice, or a position is missing.
    """
    position, score = SINGLE
    texts = [MODEL, BY_NUMBER]
    rows = rows.sort_values([*texts, position], kind="stable")
    place = rows.groupby(texts, sort=False).cumcount()
    wrong = rows[rows[position] != place]
    if len(wrong):
        row = wrong.iloc[0]
        text_rows = rows[(rows[texts] == row[texts]).all(axis=1)]
        is_twice = text_rows[position].duplicated().any()
        problem = "is there twice" if is_twice else "comes where an earlier one is missing"
        raise UserError(
            f"{path}: position {row[position]} of example {row[BY_NUMBER]} of "
            f"{visible(str(row[MODEL]))} {problem}: expected one row for each word, counted from 0"
        )
    numbered = rows.assign(row=rows.index)
    text_rows = numbered.groupby(texts, sort=False).agg(row=("row", "first"), scores=(score, list))
    return text_rows.reset_index().set_index("row")


def scores_of_model(
    path: Path, rows: pd.DataFrame, model: BenchModel, bench: BenchFolder
) -> dict[int, np.ndarray | None]:
    """The scores of every text of a model.

    Args:
        path: of the file.
        rows: about this model.
        model: of the bench.
        bench: with the model's texts.

    Raises:
        UserError: a text has no row, a row no text, a text two rows, or a row does not fit its
            text.
    """
    key = BY_NUMBER if BY_NUMBER in rows else BY_TEXT
    texts = {text.example_id: text.words for text in bench.texts(model)}
    keys: dict[int, int | str] = {}
    for number, words in texts.items():
        keys[number] = " ".join(words) if key == BY_TEXT else number
    try:
        column = pa.array(rows[SCORES], pa.list_(pa.float64()), from_pandas=False)
    except pa.ArrowException:
        raise UserError(
            f"{path}: the column {SCORES} holds something else than lists of numbers: expected one "
            f"number per word of each text"
        ) from None
    values = [None if cell is None else np.array(cell, np.float64) for cell in column.to_pylist()]
    scored = ScoredTexts(path, key, rows[key].tolist(), None, values, rows.index.tolist())
    return scored.matched(
        texts,
        keys,
        f"the model {model.name}",
        listed_by=f"{bench.path / TEXTS / model.name}.parquet",
    )
