"""How a table in a text file is written: its encoding and its separator, given or found out from the file itself."""

import codecs
import csv
import gzip
import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from attnprobe.errors import UserError

BEGINNING = 1 << 16
"""Characters of a file that show its separator, and bytes of its lines beyond ASCII that show its encoding."""
SEPARATORS = {".csv": ",;\t|", ".tsv": "\t,;|"}
"""By ending, the likeliest first."""
MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
"""The bytes that a file may begin with, the longer of two first, and what they say of the rest."""
ENCODINGS = ("cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "gb18030", "big5", "cp932", "euc_jp",
             "cp949", "koi8_r")  # fmt: skip
"""What is guessed among: those that programs of the last thirty years write where it is not UTF-8."""
NEARLY_ALL = 0.9
"""Of the rows: a damaged one must not hide which separator the others have, so that the reader can name its line."""
AT_A_TIE = ("cp1252", "cp932")
"""The commonest ones, which shorter texts leave level with others: Windows' in the West, and the Japanese one."""
AS_GOOD = 0.05
"""Differences in charset-normalizer's chaos and coherence (0 to 1) that decide nothing."""

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Reading:
    """How files are read; None: found out from the file, and said.

    Attributes:
        separator: one character between the cells of a .csv or .tsv file.
        encoding: of a .csv or .tsv file, such as `cp1252`.
        decimal: `,` or `.`, which comes before a number's decimals in a .csv or .tsv file.
        sheet: name of an .xlsx file's sheet; the first.
    """

    separator: str | None = None
    encoding: str | None = None
    decimal: str | None = None
    sheet: str | None = None

    def __post_init__(self) -> None:
        one = self.separator is None or (len(self.separator) == 1 and self.separator.isascii())
        if not one or self.separator in ('"', "\r", "\n", "\0"):
            raise UserError(f"data.separator={self.separator!r}: expected one ASCII character, such as ; or '\\t'")
        if self.decimal not in (None, ",", "."):
            raise UserError(f"data.decimal={self.decimal}: expected a comma, a point, or null")
        if self.encoding is not None:
            try:
                io.TextIOWrapper(io.BytesIO(), encoding=self.encoding)
            except (LookupError, ValueError):
                raise UserError(
                    f"data.encoding={self.encoding}: there is no such encoding; expected utf-8, cp1252, gb18030 or another "
                    f"of Python's"
                ) from None


@dataclass(frozen=True)
class Dialect:
    """How one file is written: its encoding, the separator of its cells, and how many lines come before the header."""

    encoding: str
    separator: str
    skipped: int = 0


def dialect_of(path: Path, ending: str, how: Reading, tell: Tell = lambda _: None) -> Dialect:
    """How a .csv or .tsv file is written.

    Args:
        path: the file, plain or .gz.
        ending: `.csv` or `.tsv`.
        how: what is given.
        tell: is told in one sentence what was guessed.

    Raises:
        UserError: it is in no encoding that can be found out.
        OSError, EOFError: it cannot be read.
    """
    encoding = how.encoding or encoding_of(path, tell)
    try:
        with opened_text(path, encoding) as file:
            beginning = file.read(BEGINNING)
    except UnicodeError as error:
        raise UserError(
            f"{path} is not in {encoding} ({error}): give data.encoding=…, such as utf-8 or cp1252"
        ) from None
    first = beginning.partition("\n")[0]
    if said := re.fullmatch(r'"?sep=(.)"?;*\r?', first.removeprefix("\ufeff")):  # Excel's own way to say it
        return Dialect(encoding, how.separator or said[1], 1)
    separator = how.separator or separator_of(beginning, SEPARATORS[ending], whole=len(beginning) < BEGINNING)
    if how.separator is None and separator != SEPARATORS[ending][0]:
        name = {"\t": "tabs", ";": "semicolons", ",": "commas", "|": "bars (|)"}[separator]
        tell(f"{path.name}: cells are separated by {name} (a guess; data.separator=… says otherwise)")
    return Dialect(encoding, separator)


def separator_of(text: str, candidates: str, *, whole: bool) -> str:
    """The separator with which the rows have as many cells as the header, and at least two: the first of `candidates`
    where it does, else the one with most cells; the first where none does.

    Args:
        text: a table's beginning.
        candidates: characters, the likeliest first.
        whole: the text is the whole table; else its last row is cut off.

    >>> separator_of("id;text\\n1;fine, really\\n2;bad\\n", ",;", whole=True)
    ';'
    """
    cells = {one: cells_per_row(text, one, whole=whole) for one in candidates}
    likeliest, most = candidates[0], max(candidates, key=lambda one: cells[one])
    return likeliest if cells[likeliest] > 1 or cells[most] < 2 else most


def cells_per_row(text: str, separator: str, *, whole: bool) -> int:
    """Cells of the header, where nearly all rows have as many; else 0."""
    try:
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator) if row]
    except csv.Error:
        return 0
    rows = rows if whole else rows[:-1]
    fitting = sum(len(row) == len(rows[0]) for row in rows)
    return len(rows[0]) if rows and fitting >= NEARLY_ALL * len(rows) else 0


def encoding_of(path: Path, tell: Tell = lambda _: None) -> str:
    """UTF-8 where all of the file is, what its first bytes say, or the best guess.

    Raises:
        UserError: no guess fits.
    """
    odd, valid = bytearray(), True
    with opened(path) as file:
        start = file.read(4)
        if mark := next((mark for mark in MARKS if start.startswith(mark)), None):
            return MARKS[mark]
        file.seek(0)
        for line in file:
            if line.isascii():
                continue
            try:
                line.decode()
            except UnicodeDecodeError:
                valid = False
            if len(odd) < BEGINNING:
                odd += line
            elif not valid:
                break
    if valid:
        return "utf-8"
    guess = guessed(bytes(odd))
    if guess is None:
        raise UserError(
            f"{path} is not UTF-8, and its encoding cannot be guessed: give data.encoding=…, such as cp1252, or save it as "
            f"CSV UTF-8"
        )
    word = max(
        re.findall(r"[^\W\d_]*[^\W\d_\x00-\x7f][^\W\d_]*", odd.decode(guess, "replace"))[:50], key=len, default=""
    )
    shown = f", as in {word[:30]!r}" if word else ""
    tell(f"{path.name}: not UTF-8; read as {guess}{shown} (a guess; data.encoding=… says otherwise)")
    return guess


def guessed(lines: bytes) -> str | None:
    """The encoding that charset-normalizer finds most plausible, or one of `AT_A_TIE` that is as plausible.

    >>> guessed("Die Größe des Zimmers, für mich übel".encode("cp1252"))
    'cp1252'
    """
    from charset_normalizer import from_bytes

    guesses = list(from_bytes(lines, cp_isolation=list(ENCODINGS), threshold=0.5))
    if not guesses:
        return None
    good = [
        one
        for one in guesses
        if one.chaos <= guesses[0].chaos + AS_GOOD and one.coherence >= guesses[0].coherence - AS_GOOD
    ]
    return next((name for name in AT_A_TIE for one in good if name in one.could_be_from_charset), guesses[0].encoding)


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """The file's bytes, unpacked where it ends in .gz."""
    unpack = gzip.open if path.name.lower().endswith(".gz") else open
    with unpack(path, "rb") as file:
        yield file  # type: ignore[misc]


@contextmanager
def opened_text(path: Path, encoding: str) -> Iterator[IO[str]]:
    """The file as text, unpacked where it ends in .gz; a mark that says UTF-8 is no part of it."""
    unpack = gzip.open if path.name.lower().endswith(".gz") else open
    with unpack(path, "rt", encoding="utf-8-sig" if encoding == "utf-8" else encoding, newline="") as lines:
        yield lines
