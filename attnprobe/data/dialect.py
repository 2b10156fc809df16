"""How a table in a text file is written: encoding, separator and quoting, given or guessed."""

import codecs
import io
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal, get_args

from annotated_types import Predicate
from charset_normalizer import from_bytes

from attnprobe.core.errors import UserError
from attnprobe.core.settings import Checked
from attnprobe.data.delimited import (
    ESCAPES,
    UNENDED,
    Dialect,
    Malformed,
    Quoting,
    Row,
    enclosed_by_backslash,
    lines_of,
    rows_of,
    width_of,
)

BEGINNING = 1 << 16
"""Characters of a file that show its separator, and bytes of its lines beyond ASCII that show its
encoding."""
NEARLY_ALL = 0.9
"""Share of the rows that show the separator: a damaged row must not hide it, so that the reader can
name the row's line."""
QUOTING_NOTES = {
    "backslash": r"cells are in quotation marks, and \" stands for one within them",
    "none": "quotation marks are part of the texts",
    "escapes": r"backslashes begin escapes, \t a tab, \n a line end, \N an empty cell",
}
"""What is said of a way of quoting that was guessed; the usual one is not mentioned."""
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
NULS_OF_UTF_16 = 4
"""More than one byte in so many is 0: a text in UTF-16, whose every ASCII character has one."""
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
class FileFormat(metaclass=Checked):
    """How files are written; what is None is guessed from the file, and the guess is told.

    Attributes:
        separator: one character between the cells of a .csv or .tsv file.
        encoding: of a .csv or .tsv file, such as `cp1252`.
        decimal: `,` or `.`, which comes before a number's decimals in a .csv or .tsv file.
        sheet: name of an .xlsx file's sheet; None: the first.
        quoting: what quotation marks and backslashes are in a .csv or .tsv file
            (`attnprobe.data.delimited.Quoting`).
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
    quoting: Quoting | None = None


def dialect_of(
    path: Path, content: bytes, separators: str, how: FileFormat, tell: Tell = lambda _: None
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
    dialect = Dialect(encoding, how.separator or separators[0], quoting=how.quoting or "doubled")
    text = io.TextIOWrapper(io.BytesIO(content), dialect.codec, newline="")
    try:
        beginning = text.read(BEGINNING)
    except UnicodeError as error:
        raise UserError(
            f"{path} is not in {encoding} ({error}): give data.encoding=…, such as utf-8 or cp1252"
        ) from None

    separator_line = re.match(r'"?sep=(.)"?;*\r?\n', beginning)  # Excel's way to name it
    if separator_line:
        separator = how.separator or separator_line[1]
        dialect = replace(dialect, separator=separator, skipped=1)
    elif how.separator is None:
        separator = separator_of(beginning, separators, whole=len(beginning) < BEGINNING)
        dialect = replace(dialect, separator=separator)
        if separator != separators[0]:
            tell(
                f"{path.name}: cells are separated by {SEPARATOR_NAMES[separator]} (a guess; "
                f"data.separator=… says otherwise)"
            )
    if how.quoting is None:
        dialect = replace(dialect, quoting=quoting_of(content, dialect))
        if dialect.quoting in QUOTING_NOTES:
            tell(
                f"{path.name}: {QUOTING_NOTES[dialect.quoting]} (a guess; data.quoting=… says "
                f"otherwise)"
            )
    return dialect


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
    content = text.encode("utf-8", "replace")
    cells: dict[str, int] = {}
    for candidate in candidates:
        dialects = [Dialect("utf-8", candidate, quoting=quoting) for quoting in get_args(Quoting)]
        cells[candidate] = max(_cells(content, dialect, whole=whole) for dialect in dialects)
    likeliest = candidates[0]
    most = max(candidates, key=lambda candidate: cells[candidate])
    return likeliest if cells[likeliest] > 1 or cells[most] < 2 else most


def _cells(content: bytes, dialect: Dialect, *, whole: bool) -> int:
    """Cells of the header where nearly all rows fit it, else 0."""
    rows = []
    try:
        for row in rows_of(content, dialect):
            rows.append(row)
    except Malformed as error:
        if whole or error.reason != UNENDED:
            return 0
    else:
        if not whole:
            rows.pop()
    if not rows:
        return 0
    header = rows[0]
    width = width_of(header, rows[1] if len(rows) > 1 else None)
    fitting = 1 + sum(len(row.cells) == width for row in rows[1:])
    return len(header.cells) if fitting >= NEARLY_ALL * len(rows) else 0


@dataclass(frozen=True)
class Fit:
    """How well a file's rows fit a dialect.

    Attributes:
        reads: whether it can be read in it at all.
        misfits: rows that have not as many cells as the header.
        rows: all rows but the header.
        joined: line ends within cells.
        most_joined: those of one row, at most.
        has_marks: whether quotation marks are within cells.
    """

    reads: bool
    misfits: int
    rows: int
    joined: int
    most_joined: int
    has_marks: bool

    @property
    def is_exact(self) -> bool:
        """Whether every row has as many cells as the header."""
        return self.reads and self.misfits == 0


def fit_of(content: bytes, dialect: Dialect) -> Fit:
    """Read all rows of a file, and count."""
    misfits = count = joined = most_joined = 0
    reads = True
    width = 0
    has_marks = False
    rows = rows_of(content, dialect)
    try:
        header = next(rows, Row(1, 1, []))
        has_marks = any('"' in name for name in header.cells)
        for row in rows:
            width = width or width_of(header, row)
            count += 1
            misfits += len(row.cells) != width
            joined += row.lines - 1
            most_joined = max(most_joined, row.lines - 1)
            has_marks = has_marks or any('"' in cell for cell in row.cells)
    except Malformed:
        reads = False
    return Fit(reads, misfits, count, joined, most_joined, has_marks)


def quoting_of(content: bytes, dialect: Dialect) -> Quoting:
    """Guess what quotation marks and backslashes are, from all rows of the file.

    A cell in marks that holds whole rows is none: there the marks are text. What can be read in
    several ways is read as spreadsheets write it.

    Args:
        content: the bytes of the file.
        dialect: all that is known of it.
    """
    has_marks = b'"' in content
    has_backslashes = b"\\" in content
    if not has_marks and not has_backslashes:
        return "doubled"
    if not has_marks:
        return "escapes" if _is_escaped(content, dialect) else "doubled"

    doubled = fit_of(content, dialect)
    is_plain = not has_backslashes and not doubled.joined and not doubled.has_marks
    if doubled.is_exact and is_plain:
        return "doubled"  # every mark encloses a cell of one line, as in most files
    backslash = none = None
    if has_backslashes:
        backslash = fit_of(content, replace(dialect, quoting="backslash"))
    is_backslash = backslash is not None and backslash.is_exact
    if doubled.is_exact:
        if is_backslash and _escapes_itself(content, dialect):
            return "backslash"
        none = fit_of(content, replace(dialect, quoting="none"))
        if not none.is_exact:
            fewer = backslash is not None and backslash.joined < doubled.joined
            return "backslash" if is_backslash and fewer else "doubled"
        holds_rows = doubled.most_joined > 1 or (doubled.joined and dialect.separator == "\t")
        if not holds_rows and not _are_marks_text(content, dialect):
            return "doubled"
        return "escapes" if _is_escaped(content, dialect) else "none"

    if is_backslash:
        return "backslash"
    none = fit_of(content, replace(dialect, quoting="none"))
    if none.is_exact or (not doubled.reads and none.misfits <= (1 - NEARLY_ALL) * none.rows):
        return "escapes" if _is_escaped(content, dialect) else "none"
    return "escapes" if _is_escaped(content, dialect) else "doubled"


def _escapes_itself(content: bytes, dialect: Dialect) -> bool:
    """Whether backslashes are in cells in marks, and each escapes another or a mark."""
    text = "".join(lines_of(content, dialect))
    cells = enclosed_by_backslash(dialect.separator).finditer(text)
    runs = [run for cell in cells for run in re.findall(r"\\+.?", cell[2], re.DOTALL)]
    return bool(runs) and all(run.count("\\") % 2 == 0 or run.endswith('"') for run in runs)


def _are_marks_text(content: bytes, dialect: Dialect) -> bool:
    """Whether cells hold marks as a writer that encloses cells never leaves them.

    It encloses a cell that holds a mark. Both readings of the file have the same rows.
    """
    has_bare = False
    rows = rows_of(content, dialect)
    bare_rows = rows_of(content, replace(dialect, quoting="none"))
    for row, bare_row in zip(rows, bare_rows, strict=True):
        for cell, bare_cell in zip(row.cells, bare_row.cells, strict=True):
            if '"' in cell:
                if cell != bare_cell:  # a doubled mark
                    return False
                has_bare = True
    return has_bare


def _is_escaped(content: bytes, dialect: Dialect) -> bool:
    """Whether backslashes begin escapes, as in PostgreSQL's and MySQL's dumps.

    Each begins one that they write; and one at least is a missing cell, an escaped backslash,
    separator or line end. Between commas, where such dumps are rare, the backslash alone is none.
    """
    text = "".join(lines_of(content, dialect))
    separator = dialect.separator
    escapes = set(re.findall(r"\\(.?)", text, re.DOTALL))
    known = {*ESCAPES, "N", "\\", separator, "\n", "\r"}
    edge = re.escape(separator)
    has_null = re.search(rf"(^|{edge})\\N(?={edge}|\r?$)", text, re.MULTILINE) is not None
    decisive = {separator, "\n"} if separator == "," else {separator, "\n", "\\"}
    if not escapes <= known or not (has_null or escapes & decisive):
        return False
    return fit_of(content, replace(dialect, quoting="escapes")).is_exact


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
    if content[:BEGINNING].count(0) > len(content[:BEGINNING]) / NULS_OF_UTF_16:
        # the upper halves of ASCII characters, which are the second bytes or the first ones
        encoding = "utf-16-le" if content[1:2] == b"\0" else "utf-16-be"
        tell(f"{path.name}: read as {encoding} (a guess; data.encoding=… says otherwise)")
        return encoding
    try:
        content.decode()
    except UnicodeDecodeError:
        _refuse_damaged_utf8(path, content)
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


def _refuse_damaged_utf8(path: Path, content: bytes) -> None:
    """Refuse a file most of whose lines beyond ASCII are UTF-8: no other encoding fits these.

    Raises:
        UserError: names the first line that is not UTF-8.
    """
    whole = 0
    damaged = list[tuple[int, bytes]]()
    for number, line in enumerate(io.BytesIO(content), 1):
        if line.isascii():
            continue
        try:
            line.decode()
            whole += 1
        except UnicodeDecodeError as error:
            damaged.append((number, line[max(0, error.start - 20) : error.end + 10].strip()))
    if whole > len(damaged):
        number, beginning = damaged[0]
        raise UserError(
            f"{path} is UTF-8 but for {len(damaged):,} of its lines, line {number} is the first: "
            f"{str(beginning)[2:-1]}. Correct them, or say with data.encoding=… what all of it is"
        )


def _lines_beyond_ascii(content: bytes) -> bytes:
    """The first lines that hold more than ASCII, `BEGINNING` bytes or a little more."""
    odd = bytearray()
    for line in io.BytesIO(content):
        if not line.isascii():
            odd += line
        if len(odd) >= BEGINNING:
            break
    return bytes(odd)
