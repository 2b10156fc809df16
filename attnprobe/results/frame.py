"""Rows of long tables as a DataFrame, in less memory than Arrow's own conversion takes at its peak."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from attnprobe.results.schema import SCHEMA, SITE, SITED

ROOM = 1 << 16
"""Rows by which a column grows."""


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
    columns = {field.name: _Column(_kind(field)) for field in SITED}
    for piece in pieces:
        for field in SCHEMA if piece.num_rows else ():
            columns[field.name].add(_values(piece[field.name], known.get(field.name)))
        if SITE in piece.column_names and piece.num_rows:
            columns[SITE].add(_values(piece[SITE], known[SITE]))
        elif piece.num_rows:
            own = known[SITE].setdefault("", len(known[SITE]))
            columns[SITE].add(np.broadcast_to(np.int8(own), piece.num_rows))
    made: dict[str, np.ndarray | pd.Categorical[str]] = {}
    for name in SITED.names:
        values = columns.pop(name).whole()
        if name not in known:
            made[name] = values
            continue
        names = sorted(known[name])
        place = {one: number for number, one in enumerate(names)}
        if list(place) != list(known[name]) and len(values):
            codes: NDArray[np.integer[Any]] = np.array([place[one] for one in known[name]], values.dtype)
            alike = values.strides == (0,)
            values = np.broadcast_to(codes[values[0]], len(values)) if alike else codes[values]
        made[name] = pd.Categorical.from_codes(values, pd.Index(names))
    return pd.DataFrame(made, copy=False)


def _kind(field: pa.Field) -> np.dtype:
    return np.dtype(np.int8) if pa.types.is_dictionary(field.type) else np.dtype(field.type.to_pandas_dtype())


class _Column:
    """Numbers as they come, one after the other; as long as all are equal (or NaN), one stands for all."""

    def __init__(self, kind: np.dtype) -> None:
        self.values, self.rows, self.alike = np.zeros(0, kind), 0, True

    def add(self, part: np.ndarray) -> None:
        """Take in some numbers, at least one."""
        first = self.values[0] if self.rows else part[0]
        nan = part.dtype.kind == "f"
        if self.alike and np.array_equal(part, np.broadcast_to(first, len(part)), equal_nan=nan):
            self.values = np.array([first])
        else:
            kind = np.promote_types(self.values.dtype, part.dtype)
            if self.alike or kind != self.values.dtype:
                self.values = np.array(np.broadcast_to(self.values[:1], self.rows) if self.alike else self.values, kind)
                self.alike = False
            if self.rows + len(part) > len(self.values):
                # in place where the system can move pages: there is never a second copy of the column
                self.values.resize(self.rows + len(part) + ROOM, refcheck=False)
            self.values[self.rows : self.rows + len(part)] = part
        self.rows += len(part)

    def whole(self) -> np.ndarray:
        """All of them."""
        if self.alike:
            return np.broadcast_to(self.values[0], self.rows) if self.rows else self.values
        self.values.resize(self.rows, refcheck=False)
        return self.values


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
