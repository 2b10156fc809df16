"""Columns of a parquet file, of whatever type, as types that a `datasets.Dataset` has."""

import json
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.compute as pc

from attnprobe.core.errors import UserError


def plain_table(path: Path, table: pa.Table, columns: Collection[str] | None = None) -> pa.Table:
    """Cast what has another name for text, a truth value or a list; leave out what has none.

    Args:
        path: the file, for messages.
        table: its columns.
        columns: names, or paths of values within columns, that are asked for; None: none is
            needed.

    Raises:
        UserError: a column that is asked for has a type that cannot be read.
    """
    needed = {column.split(".")[0] for column in columns or ()} | set(columns or ())
    plain: dict[str, pa.ChunkedArray] = {}
    for name in table.column_names:
        column = _plain(table[name])
        try:
            datasets.Features.from_arrow_schema(pa.schema([(name, column.type)]))
        except ValueError:
            if name in needed:
                raise UserError(
                    f"{path}: the column {name} has the type {column.type}, which cannot be read: "
                    f"save it as text, numbers or a list of them, or choose another column"
                ) from None
        else:
            plain[name] = column
    return pa.table(plain)


def class_names(schema: pa.Schema) -> dict[str, list[str]]:
    """The columns whose numbers are classes, and their names, as Hugging Face's library notes them.

    Anybody may have written the file: a note that is none says nothing.
    """
    names: dict[str, list[str]] = {}
    with suppress(ValueError, RecursionError, TypeError, KeyError, AttributeError):
        note = json.loads((schema.metadata or {})[b"huggingface"])
        for column, feature in note["info"]["features"].items():
            labels = feature.get("names") if isinstance(feature, dict) else None
            is_list = isinstance(labels, list) and all(isinstance(label, str) for label in labels)
            if is_list and labels and len(set(labels)) == len(labels):
                names[column] = labels
    return names


def are_named(numbers: pa.ChunkedArray, names: Sequence[str]) -> bool:
    """Whether each number counts one of so many names from 0, or is -1, which is no class."""
    if not pa.types.is_integer(numbers.type):
        return False
    ends = pc.min_max(numbers).as_py()
    return ends["min"] is not None and ends["min"] >= -1 and ends["max"] < len(names)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if isinstance(kind, pa.UuidType):
        return _texts(column)
    if isinstance(kind, pa.BaseExtensionType) and not isinstance(kind, pa.JsonType):
        chunks = [chunk.storage for chunk in column.chunks]
        column = pa.chunked_array(chunks, kind.storage_type)
        if isinstance(kind, pa.Bool8Type):
            column = column.cast(pa.bool_())
    elif pa.types.is_map(kind):
        pair = pa.struct([("key", kind.key_type), ("value", kind.item_type)])
        column = column.cast(pa.list_(pair))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        with suppress(pa.ArrowInvalid):  # texts that a program wrote without saying so
            column = column.cast(pa.large_string())
    return column


def _texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    texts = [None if value is None else str(value) for value in column.to_pylist()]
    return pa.chunked_array([pa.array(texts, pa.string())])
