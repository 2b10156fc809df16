"""How a table in a text file is written: its encoding and its separator, given or guessed."""

import codecs
import csv
import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from annotated_types import Predicate
from charset_normalizer import from_bytes

from attnprobe.core.errors import UserError
from attnprobe.core.settings import Checked

BEGINNING = 1 << 16
"""Characters of a file that show its separator, and bytes of its lines beyond ASCII that show its
encoding."""
NEARLY_ALL = 0.9
"""Share of the rows that show the separator: a damaged row must not hide it, so that the reader can
name the row's line."""
SEPARATOR_NAMES = {"\t": "tabs", ";": "semicolons", ",": "commas", "|": "bars (|)"}
ENCODINGS = (
    "cp1252",
    "cp1250",
    "cp1251",
    "cp1253",
    "cp1254",
    "cp1255",
    "cp1256",
    "gb18030",
    "big5",
    "cp932",
    "euc_jp",
    "cp949",
    "koi8_r",
)
"""The candidates of a guess: what programs of the last thirty years write where it is not UTF-8."""
AT_A_TIE = ("cp1252", "cp932")
"""The commonest encodings, which win where a short text leaves several level: Windows' in the West,
and the Japanese one."""
AS_GOOD = 0.05
"""Differences in charset-normalizer's chaos and coherence (0 to 1) that decide nothing."""
ONE_ASCII = re.compile(r"[^\x00\r\n\x22\x80-\U0010ffff]")

Tell = Callable[[str], None]
"""Takes one sentence about what was guessed."""


def _is_encoding(name: str) -> bool:
    try:
        io.TextIOWrapper(io.BytesIO(), encoding=name)
    except (LookupError, ValueError):
        return False
    return True


@dataclass(frozen=True)
class Reading(metaclass=Checked):
    """How files are read; what is None is guessed from the file, and the guess is told.

    Attributes:
        separator: one character between the cells of a .csv or .tsv file.
        encoding: of a .csv or .tsv file, such as `cp1252`.
        decimal: `,` or `.`, which comes before a number's decimals in a .csv or .tsv file.
        sheet: name of an .xlsx file's sheet; None: the first.
    """

    settings_place: ClassVar[str] = "data"

    separator: (
        Annotated[str, Predicate(ONE_ASCII.fullmatch), "one ASCII character, such as ; or '\\t',"]
        | None
    ) = None
    encoding: (
        Annotated[
            str,
            Predicate(_is_encoding),
            "an encoding that Python has, such as utf-8, cp1252 or gb18030,",
        ]
        | None
    ) = None
    decimal: Literal[",", "."] | None = None
    sheet: str | None = None


@dataclass(frozen=True)
class Dialect:
    """How one .csv or .tsv file is written.

    Attributes:
        encoding: the name that Python has for it.
        separator: the character between cells.
        skipped: lines before the header.
    """

    encoding: str
    separator: str
    skipped: int = 0


def dialect_of(
    path: Path, content: bytes, separators: str, how: Reading, tell: Tell = lambda _: None
) -> Dialect:
    """How a .csv or .tsv file is written.

    Args:
        path: the file, for messages.
        content: its bytes, unpacked.
        separators: candidates for the separator, the likeliest first.
        how: what is given, and need not be guessed.
        tell: takes a sentence about each guess.

    Raises:
        UserError: the file is not in the given encoding, or no encoding can be guessed.
    """
    encoding = how.encoding or encoding_of(path, content, tell)
    # a mark that says UTF-8 is no part of the text
    codec = "utf-8-sig" if encoding == "utf-8" else encoding
    text = io.TextIOWrapper(io.BytesIO(content), codec, newline="")
    try:
        beginning = text.read(BEGINNING)
    except UnicodeError as error:
        raise UserError(
            f"{path} is not in {encoding} ({error}): give data.encoding=…, such as utf-8 or cp1252"
        ) from None

    separator_line = re.match(r'"?sep=(.)"?;*\r?\n', beginning)  # Excel's way to name it
    if separator_line:
        return Dialect(encoding, how.separator or separator_line[1], skipped=1)
    if how.separator is not None:
        return Dialect(encoding, how.separator)

    separator = separator_of(beginning, separators, whole=len(beginning) < BEGINNING)
    if separator != separators[0]:
        tell(
            f"{path.name}: cells are separated by {SEPARATOR_NAMES[separator]} (a guess; "
            f"data.separator=… says otherwise)"
        )
    return Dialect(encoding, separator)


def separator_of(text: str, candidates: str, *, whole: bool) -> str:
    """Guess a table's separator: its rows have as many cells as the header, and at least two.

    The first candidate wins where it fits; else the one that gives the most cells; where none fits,
    the first.

    Args:
        text: the beginning of the table.
        candidates: separators, the likeliest first.
        whole: the text is the whole table; else its last row is cut off.

    >>> separator_of("id;text\\n1;fine, really\\n2;bad\\n", ",;", whole=True)
    ';'
    """
    cells = {candidate: _cells(text, candidate, whole=whole) for candidate in candidates}
    likeliest = candidates[0]
    most = max(candidates, key=lambda candidate: cells[candidate])
    return likeliest if cells[likeliest] > 1 or cells[most] < 2 else most


def _cells(text: str, separator: str, *, whole: bool) -> int:
    """Cells of the header where nearly all rows have as many, else 0."""
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    try:
        rows = [row for row in lines if row]
    except csv.Error:
        return 0
    if not whole:
        rows = rows[:-1]
    if not rows:
        return 0
    width = len(rows[0])
    fitting = sum(len(row) == width for row in rows)
    return width if fitting >= NEARLY_ALL * len(rows) else 0


def encoding_of(path: Path, content: bytes, tell: Tell = lambda _: None) -> str:
    """UTF-8 or UTF-16 where the content says so, or else the most plausible guess.

    Args:
        path: the file, for messages.
        content: its bytes, unpacked.
        tell: takes a sentence about the guess.

    Raises:
        UserError: no encoding fits.
    """
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    try:
        content.decode()
    except UnicodeDecodeError:
        pass
    else:
        return "utf-8"

    odd = _lines_beyond_ascii(content)
    guesses = list(from_bytes(odd, cp_isolation=list(ENCODINGS), threshold=0.5))
    if not guesses:
        raise UserError(
            f"{path} is not UTF-8, and its encoding cannot be guessed: give data.encoding=…, such "
            f"as cp1252, or save it as CSV UTF-8"
        )
    best = guesses[0]
    encoding = best.encoding
    level = set[str]()
    for guess in guesses:
        if guess.chaos <= best.chaos + AS_GOOD and guess.coherence >= best.coherence - AS_GOOD:
            level |= set(guess.could_be_from_charset)
    for common in AT_A_TIE:
        if common in level:
            encoding = common
            break

    words = re.findall(r"[^\W\d_]*[^\W\d_\x00-\x7f][^\W\d_]*", odd.decode(encoding, "replace"))[:50]
    sample = f", as in {max(words, key=len)[:30]!r}" if words else ""
    tell(
        f"{path.name}: not UTF-8; read as {encoding}{sample} (a guess; data.encoding=… says "
        f"otherwise)"
    )
    return encoding


def _lines_beyond_ascii(content: bytes) -> bytes:
    """The first lines that hold more than ASCII, `BEGINNING` bytes or a little more."""
    odd = bytearray()
    for line in io.BytesIO(content):
        if not line.isascii():
            odd += line
        if len(odd) >= BEGINNING:
            break
    return bytes(odd)
