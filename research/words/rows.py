"""A folder with a row per model, and the shipped table that is made of it."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from attnprobe.core.errors import UserError
from attnprobe.results.files import write_atomically, write_text
from research.words.cells import Cell

ANSWER = pa.struct(
    {
        "claim": pa.string(),
        "criterion": pa.string(),
        "level": pa.string(),
        "primary": pa.bool_(),
        "verdict": pa.string(),
        "interval_verdict": pa.string(),
        "answer": pa.string(),
        "value": pa.float32(),
        "low": pa.float32(),
        "high": pa.float32(),
        "p": pa.float32(),
        "n": pa.int32(),
    }
)
SCHEMA = pa.schema(
    {
        "rule": pa.string(),
        "kind": pa.string(),
        "spec": pa.string(),
        "encoder": pa.string(),
        "family": pa.string(),
        "attention": pa.string(),
        "standing": pa.string(),
        "draw": pa.int32(),
        "mode": pa.string(),
        "commit": pa.string(),
        "accuracy": pa.float64(),
        "balanced_accuracy": pa.float64(),
        "follows": pa.float64(),
        "mass": pa.float64(),
        "chance": pa.float64(),
        "rightness": pa.float64(),
        "class_rightness": pa.list_(pa.float32()),
        "texts": pa.int32(),
        "truth": pa.string(),
        "chip": pa.string(),
        "sentence": pa.string(),
        "training_seconds": pa.float32(),
        "asking_seconds": pa.float32(),
        "passes": pa.int32(),
        "answers": pa.list_(ANSWER),
    }
)
"""Columns of the shipped table; `spec` is the rule's fields as JSON, `commit` what rules were drawn
from (empty: they are those of development)."""


def path_of(cell: Cell, folder: Path) -> Path:
    """The file of a cell's row."""
    return folder / f"{cell.name}.json"


def write_row(row: dict[str, Any], path: Path) -> None:
    """Write a row, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(json.dumps(row), path)


def rows_of(folders: Iterable[Path]) -> list[dict[str, Any]]:
    """All rows of some folders, in the order of their files' names.

    Raises:
        UserError: a folder has no row, or two of them have the same model.
    """
    paths: dict[str, Path] = {}
    for folder in folders:
        files = sorted(folder.glob("*.json"))
        if not files:
            raise UserError(f"{folder} holds no row of a model: expected the FOLDER of a run")
        for path in files:
            first = paths.setdefault(path.name, path)
            if first != path:
                raise UserError(f"{path} is the model of {first} again: name one of the two")
    return [json.loads(paths[name].read_text(encoding="utf-8")) for name in sorted(paths)]


def table_of(rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Rows (`research.words.asking.row_of_cell`) as the shipped table has them."""
    plain = [row | {"spec": json.dumps(row["spec"])} for row in rows]
    return pa.Table.from_pylist(plain, schema=SCHEMA)


def ship(table: pa.Table, path: Path) -> None:
    """Write the shipped table; words that many rows share are stored once."""
    write_atomically(
        path, lambda target: pq.write_table(table, target, compression="zstd", compression_level=15)
    )
