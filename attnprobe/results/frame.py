"""Rows of long tables as a DataFrame, in less memory than Arrow's own conversion takes at its peak."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from attnprobe.results.schema import SCHEMA, SITE, SITED


def frame_of(pieces: Iterable[pa.Table]) -> pd.DataFrame:
    """The rows of all pieces, one after the other.

    Each piece is taken over as it comes, names as numbers of one byte or two: nothing is ever held twice, and no more
    than one piece in Arrow's form, whose names take four bytes each in every row. A column of numbers
    that holds one value throughout (the seed, no step) takes no room at all.

    Args:
        pieces: of the tables' schema (`attnprobe.results.schema.SCHEMA`), such as `read_pieces` gives, with or
            without the column of their sites.

    Returns:
        The columns of `SITED`; the text columns are categories: those that occur, sorted.
    """
    known: dict[str, dict[str, int]] = {field.name: {} for field in SITED if pa.types.is_dictionary(field.type)}
    parts: dict[str, list[np.ndarray]] = {field.name: [np.zeros(0, _kind(field))] for field in SITED}
    for piece in pieces:
        for field in SCHEMA if piece.num_rows else ():
            parts[field.name].append(_compact(_values(piece[field.name], known.get(field.name))))
        if SITE in piece.column_names and piece.num_rows:
            parts[SITE].append(_compact(_values(piece[SITE], known[SITE])))
        elif piece.num_rows:
            own = known[SITE].setdefault("", len(known[SITE]))
            parts[SITE].append(np.broadcast_to(np.int8(own), piece.num_rows))
    columns: dict[str, np.ndarray | pd.Categorical[str]] = {}
    for name in SITED.names:
        values = _joined(parts.pop(name))
        if name not in known:
            columns[name] = values
            continue
        names = sorted(known[name])
        place = {one: number for number, one in enumerate(names)}
        codes: NDArray[np.integer[Any]] = np.array([place[one] for one in known[name]], values.dtype)[values]
        columns[name] = pd.Categorical.from_codes(codes, pd.Index(names))
    return pd.DataFrame(columns, copy=False)


def _kind(field: pa.Field) -> np.dtype:
    return np.dtype(np.int8) if pa.types.is_dictionary(field.type) else np.dtype(field.type.to_pandas_dtype())


def _compact(values: np.ndarray) -> np.ndarray:
    """The same numbers; where all are equal (or all NaN), one of them that stands for all."""
    first = values[:1]
    alike = np.array_equal(values, np.broadcast_to(first, len(values)), equal_nan=values.dtype.kind == "f")
    return np.broadcast_to(first[0].copy(), len(values)) if alike and len(values) else values


def _is_constant(values: np.ndarray) -> bool:
    """Whether one number stands for all (`_compact`)."""
    return len(values) > 0 and values.strides == (0,)


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    """All parts, one after the other; the first is empty and says of which type."""
    if len(parts) > 1 and all(map(_is_constant, parts[1:])):
        several = np.array([part[0] for part in parts[1:]])
        if _is_constant(_compact(several)):
            return np.broadcast_to(several[0], sum(map(len, parts)))
    return np.concatenate(parts)


def _values(column: pa.ChunkedArray, known: dict[str, int] | None) -> np.ndarray:
    """A column's numbers, null as NaN; of names their numbers in `known`, which new ones join."""
    if known is None:
        return column.to_numpy()
    every = column.unify_dictionaries()
    if every.num_chunks == 0:
        return np.zeros(0, np.int8)
    codes = [chunk.indices.to_numpy() for chunk in every.chunks]
    names = every.chunk(0).dictionary.to_pylist()
    there = np.flatnonzero(sum(np.bincount(part, minlength=len(names)) for part in codes))
    number = np.zeros(len(names), np.int64)
    for place in there.tolist():
        number[place] = known.setdefault(names[place], len(known))
    smallest = np.min_scalar_type(-max(1, len(known)))
    return np.concatenate([number.astype(smallest)[part] for part in codes])
