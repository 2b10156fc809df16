"""The table in a .csv or .tsv file: the columns that are asked for, all cells as text."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from attnprobe.core.errors import UserError
from attnprobe.data.delimited import NULL, Dialect, Malformed, Row, rows_of, width_of
from attnprobe.data.dialect import FileFormat, Tell, dialect_of

BOM = "\ufeff"
"""The mark that UTF-8 begins with on Windows, wherever a file was put behind another."""
CHUNK = 10_000
"""Rows that are held as Python's objects at a time."""
# a sign, digits with or without points between groups of three, a comma, decimals
DECIMAL_COMMA = r"^\s*[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?\s*$"


def asked_for(names: Sequence[str], columns: Collection[str] | None) -> list[str]:
    """Which columns of a file are to be read.

    Args:
        names: the file's columns.
        columns: those that settings name, or values within one (`doc.body`); None: all.

    Returns:
        Their names; all names where a column is missing, so that the message can list them.
    """
    if columns is None:
        return list(names)
    chosen = set()
    for column in columns:
        root = column.split(".")[0]
        if column in names:
            chosen.add(column)
        elif root in names:
            chosen.add(root)
        else:
            return list(names)
    return [name for name in names if name in chosen]


def read_cells(
    path: Path,
    content: bytes,
    separators: str,
    how: FileFormat,
    tell: Tell,
    columns: Collection[str] | None = None,
) -> pa.Table:
    """Read the rows of a .csv or .tsv file, decimal commas as points.

    Args:
        path: the file, for messages.
        content: its bytes, unpacked.
        separators: candidates for the separator, the likeliest first.
        how: what is given, and need not be guessed.
        tell: takes a sentence about each guess, and about line ends and missing cells.
        columns: those that are read; None: all.

    Raises:
        UserError: the file is not in the given encoding, or a row is malformed.
    """
    dialect = dialect_of(path, content, separators, how, tell)
    try:
        table = _read(path, rows_of(content, dialect), dialect, tell, columns)
    except Malformed as error:
        raise UserError(
            f"{path} cannot be read: {error}; cells are separated by {dialect.separator!r}, and "
            f"data.quoting={dialect.quoting} (doubled, backslash, none, escapes) and "
            f"data.separator=… may say otherwise. Else correct that line"
        ) from None
    if how.decimal == "," or (how.decimal is None and dialect.separator != ","):
        table = _with_decimal_points(path, table, tell)
    return table


@dataclass
class _Oddities:
    """What was noticed while rows were read.

    Attributes:
        joined: line ends within cells.
        short: lines of rows with fewer cells than the header.
        headers: lines of rows that repeat the header.
    """

    joined: int = 0
    short: list[int] = field(default_factory=list)
    headers: list[int] = field(default_factory=list)

    def told(self, count: int) -> Iterator[str]:
        """A sentence about each; `count`: rows that were read."""
        if self.headers:
            yield (
                f"rows that repeat the header: {len(self.headers):,} (line {self.headers[0]} is "
                f"the first); they are left out"
            )
        if self.joined:
            yield (
                f"{count:,} rows from {count + self.joined:,} lines: {self.joined:,} line ends are "
                f"within cells"
            )
        if self.short:
            yield (
                f"rows with fewer cells than the header: {len(self.short):,} (line "
                f"{self.short[0]} is the first); what they lack is empty"
            )


def _read(
    path: Path,
    rows: Iterator[Row],
    dialect: Dialect,
    tell: Tell,
    columns: Collection[str] | None,
) -> pa.Table:
    header = next(rows, None)
    if header is None:
        return pa.table({})
    first = next(rows, None)
    width = width_of(header, first)
    row_names = width - len(header.cells)
    names = distinct(header.cells)
    places = {name: names.index(name) + row_names for name in asked_for(names, columns)}
    chunks: dict[str, list[pa.Array]] = {name: [] for name in places}
    count = 0
    oddities = _Oddities()

    remaining = _without_headers(chain([] if first is None else [first], rows), header, oddities)
    while chunk := list(islice(remaining, CHUNK)):
        for row in chunk:
            count += 1
            oddities.joined += row.lines - 1
            if row_names and row.cells[0] != str(count):
                raise Malformed(row.line, "has more cells than the header line")
            if len(row.cells) < width:
                row.cells.extend([""] * (width - len(row.cells)))
                oddities.short.append(row.line)
            elif len(row.cells) > width:
                _cut(row, width)
        for name, place in places.items():
            chunks[name].append(_texts([row.cells[place] for row in chunk], dialect))

    if row_names:
        tell(f"{path.name}: the first cell of every row is its number, and no column")
    for name in places:
        if header.cells.count(name) > 1:
            tell(f"{path.name}: of {header.cells.count(name)} columns {name} the first is read")
    for sentence in oddities.told(count):
        tell(f"{path.name}: {sentence}")
    return pa.table({name: pa.chunked_array(parts, pa.string()) for name, parts in chunks.items()})


def _without_headers(rows: Iterator[Row], header: Row, oddities: _Oddities) -> Iterator[Row]:
    """The rows but for the headers of files that were put behind the first one."""
    for row in rows:
        is_header = row.cells[-1] == header.cells[-1] and len(row.cells) == len(header.cells) > 1
        if is_header and [row.cells[0].lstrip(BOM), *row.cells[1:]] == header.cells:
            oddities.headers.append(row.line)
        else:
            yield row


def _cut(row: Row, width: int) -> None:
    """Cut what a row has more than the others.

    Raises:
        Malformed: it is not empty.
    """
    if any(row.cells[width:]):
        raise Malformed(
            row.line,
            f"has more cells than the header line: expected {width}, saw {len(row.cells)}",
        )
    del row.cells[width:]


def distinct(names: Sequence[str]) -> list[str]:
    """The names of the columns; one that is empty gets its place, one that is there a number."""
    distinct: list[str] = []
    for place, written in enumerate(names):
        name = written or f"Unnamed: {place}"
        number = 1
        while name in distinct:
            name = f"{written}.{number}"
            number += 1
        distinct.append(name)
    return distinct


def _texts(cells: list[str], dialect: Dialect) -> pa.Array:
    texts = pa.array(cells, pa.string())
    empty = [""] if dialect.quoting == "none" else ["", NULL]
    return pc.if_else(pc.is_in(texts, pa.array(empty)), None, texts)


def _with_decimal_points(path: Path, table: pa.Table, tell: Tell) -> pa.Table:
    """`4.5` for `4,5` in every column of which all cells are such numbers, or whole ones."""
    changed = []
    for place, name in enumerate(table.column_names):
        cells = table.column(place)
        has_commas = pc.any(pc.match_substring(cells, ",")).as_py()
        if has_commas and pc.all(pc.match_substring_regex(cells, DECIMAL_COMMA)).as_py():
            digits = pc.replace_substring(pc.utf8_trim_whitespace(cells), ".", "")
            table = table.set_column(place, name, pc.replace_substring(digits, ",", "."))
            changed.append(name)
    if changed:
        tell(
            f"{path.name}: decimal commas in {', '.join(changed)} are read as points, 4,5 as 4.5 "
            f"(data.decimal=. leaves them)"
        )
    return table
