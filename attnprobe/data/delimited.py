"""Rows of a table in a text file, by its separator and by what stands for a mark within a cell."""

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

Quoting = Literal["doubled", "backslash", "none", "escapes"]
"""What quotation marks and backslashes are.

`doubled`: marks may enclose a cell, and `""` is one within it, as spreadsheets and pandas write.
`backslash`: marks may enclose a cell, and `\\"` is one within it, as Spark and MySQL write.
`none`: both are text, as in most corpora with tabs.
`escapes`: marks are text, and a backslash begins an escape, as in PostgreSQL's and MySQL's dumps.
"""
ENCLOSING = ("doubled", "backslash")
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0"}
"""What a letter stands for behind a backslash; any other character is itself."""
NULL = r"\N"
"""A cell of MySQL, PostgreSQL and Hive that is missing."""

UNENDED = "begins a cell with a quotation mark, and none ends it"

csv.field_size_limit(2**31 - 1)  # the length of a text is no sign of damage


@dataclass(frozen=True)
class Dialect:
    """How one .csv or .tsv file is written.

    Attributes:
        encoding: the name that Python has for it.
        separator: the character between cells.
        skipped: lines before the header.
        quoting: what quotation marks and backslashes are.
    """

    encoding: str
    separator: str
    skipped: int = 0
    quoting: Quoting = "doubled"

    @property
    def codec(self) -> str:
        """The encoding, without the mark that says UTF-8, which is no part of the text."""
        return "utf-8-sig" if self.encoding == "utf-8" else self.encoding


class Row(NamedTuple):
    """One row: the number of its first line from 1, how many lines it takes, and its cells."""

    line: int
    lines: int
    cells: list[str]


class Malformed(Exception):
    """A row that cannot be one in this dialect.

    Attributes:
        line: number of its first line.
        reason: what is wrong with it.
    """

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line} {reason}")
        self.line = line
        self.reason = reason


def rows_of(content: bytes, dialect: Dialect) -> Iterator[Row]:
    """Read the rows of a table, the header among them; blank lines are none.

    Args:
        content: the bytes of the file.
        dialect: how it is written.

    Raises:
        Malformed: text follows the mark that ends a cell, or no mark ends it.
    """
    lines = lines_of(content, dialect)
    if dialect.quoting == "backslash":
        lines = _lines(_doubled("".join(lines), dialect.separator).encode(), "utf-8")
    if dialect.quoting == "escapes":
        lines = (re.sub(r"\\(\r\n|.)", _escape, line, flags=re.DOTALL) for line in lines)

    is_enclosed = dialect.quoting in ENCLOSING
    reader = csv.reader(
        lines,
        delimiter=dialect.separator,
        quoting=csv.QUOTE_MINIMAL if is_enclosed else csv.QUOTE_NONE,
        escapechar="\\" if dialect.quoting == "escapes" else None,
        strict=True,
    )
    read = 0
    try:
        for cells in reader:
            if cells:
                yield Row(dialect.skipped + read + 1, reader.line_num - read, cells)
            read = reader.line_num
    except csv.Error as error:
        reason = "ends a cell with a quotation mark, and more text follows"
        if "end of data" in str(error):
            reason = UNENDED
        raise Malformed(dialect.skipped + read + 1, reason) from None


def width_of(header: Row, first: Row | None) -> int:
    """Cells of a row: as many as the header has, and one more where R wrote the rows' numbers."""
    width = len(header.cells)
    has_number = first is not None and len(first.cells) == width + 1 and first.cells[0] == "1"
    return width + has_number


def lines_of(content: bytes, dialect: Dialect) -> Iterator[str]:
    """The lines of a file with their ends, without those that are skipped."""
    for number, line in enumerate(_lines(content, dialect.codec)):
        if number >= dialect.skipped:
            yield line


def _lines(content: bytes, codec: str) -> Iterator[str]:
    return io.TextIOWrapper(io.BytesIO(content), codec, newline="")


def enclosed_by_backslash(separator: str) -> re.Pattern[str]:
    """Matches a cell in marks, of which group 2 is the content, with `\\"` for a mark in it."""
    inside = r'[^"\\]*+(?:\\.[^"\\]*+)*+'
    edge = re.escape(separator)
    return re.compile(rf'(^|{edge})"({inside})"(?={edge}|\r?$)', re.DOTALL | re.MULTILINE)


def _doubled(text: str, separator: str) -> str:
    """The same table with `""` for `\\"`.

    A writer that escapes its own escapes (Spark, MySQL) leaves no lone backslash in a cell in
    marks; where there is one (R), two backslashes are two.
    """
    cells = enclosed_by_backslash(separator)
    escaped = r'\\(["\\\r\n])'
    if any(re.search(r'(?<!\\)(?:\\\\)*\\[^"\\\r\n]', match[2]) for match in cells.finditer(text)):
        escaped = r'\\(")'

    def rewritten(match: re.Match[str]) -> str:
        content = re.sub(escaped, r"\1", match[2]).replace('"', '""')
        return f'{match[1]}"{content}"'

    return cells.sub(rewritten, text)


def _escape(match: re.Match[str]) -> str:
    """An escape as `csv` reads it: a backslash before the very character that it stands for."""
    letter = match[1]
    if letter == "N":
        return r"\\N"
    if letter == "\r\n":
        return "\\\r\\\n"
    return "\\" + ESCAPES.get(letter, letter)
