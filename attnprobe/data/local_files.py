"""Rows of one local file: a table as text, JSON, parquet or a spreadsheet. Whatever is wrong with one is one `UserError`."""

import codecs
import csv
import gzip
import io
import json
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Literal

import datasets
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from charset_normalizer import from_bytes

from attnprobe.core.errors import UserError
from attnprobe.core.settings import Checked

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
class Reading(metaclass=Checked):
    """How files are read; None: found out from the file, and said.

    Attributes:
        separator: one character between the cells of a .csv or .tsv file.
        encoding: of a .csv or .tsv file, such as `cp1252`.
        decimal: `,` or `.`, which comes before a number's decimals in a .csv or .tsv file.
        sheet: name of an .xlsx file's sheet; the first.
    """

    settings_place: ClassVar[str] = "data"

    separator: str | None = None
    encoding: str | None = None
    decimal: Literal[",", "."] | None = None
    sheet: str | None = None

    def __post_init__(self) -> None:
        one = self.separator is None or (len(self.separator) == 1 and self.separator.isascii())
        if not one or self.separator in ('"', "\r", "\n", "\0"):
            raise UserError(f"data.separator={self.separator!r}: expected one ASCII character, such as ; or '\\t'")
        if self.encoding is not None:
            try:
                io.TextIOWrapper(io.BytesIO(), encoding=self.encoding)
            except (LookupError, ValueError):
                raise UserError(
                    f"data.encoding={self.encoding}: there is no such encoding; expected utf-8, cp1252, gb18030 or another "
                    f"of Python's"
                ) from None


def dialect_of(path: Path, content: bytes, how: Reading, tell: Tell = lambda _: None) -> tuple[str, str, int]:
    """How a .csv or .tsv file is written: its encoding, the separator of its cells, and the lines before the header.

    Args:
        path: its ending says which separator is likeliest; for the messages.
        content: what is in it, unpacked.
        how: what is given.
        tell: is told in one sentence what was guessed.

    Raises:
        UserError: it is in no encoding that can be found out.
    """
    encoding = how.encoding or encoding_of(path, content, tell)
    # a mark that says UTF-8 is no part of the text
    text = io.TextIOWrapper(io.BytesIO(content), "utf-8-sig" if encoding == "utf-8" else encoding, newline="")
    try:
        beginning = text.read(BEGINNING)
    except UnicodeError as error:
        raise UserError(
            f"{path} is not in {encoding} ({error}): give data.encoding=…, such as utf-8 or cp1252"
        ) from None
    first = beginning.partition("\n")[0]
    if said := re.fullmatch(r'"?sep=(.)"?;*\r?', first.removeprefix("\ufeff")):  # Excel's own way to say it
        return encoding, how.separator or said[1], 1
    separators = SEPARATORS[ending_of(path)]
    separator = how.separator or separator_of(beginning, separators, whole=len(beginning) < BEGINNING)
    if how.separator is None and separator != separators[0]:
        name = {"\t": "tabs", ";": "semicolons", ",": "commas", "|": "bars (|)"}[separator]
        tell(f"{path.name}: cells are separated by {name} (a guess; data.separator=… says otherwise)")
    return encoding, separator, 0


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
    cells = dict.fromkeys(candidates, 0)  # of the header, where nearly all rows have as many
    for separator in candidates:
        try:
            rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator) if row]
        except csv.Error:
            continue
        rows = rows if whole else rows[:-1]
        if rows and sum(len(row) == len(rows[0]) for row in rows) >= NEARLY_ALL * len(rows):
            cells[separator] = len(rows[0])
    likeliest, most = candidates[0], max(candidates, key=lambda one: cells[one])
    return likeliest if cells[likeliest] > 1 or cells[most] < 2 else most


def encoding_of(path: Path, content: bytes, tell: Tell = lambda _: None) -> str:
    """UTF-8 where all of the content is, what its first bytes say, or the most plausible guess.

    Raises:
        UserError: no guess fits.
    """
    if mark := next((mark for mark in MARKS if content.startswith(mark)), None):
        return MARKS[mark]
    try:
        content.decode()
    except UnicodeDecodeError:
        pass
    else:
        return "utf-8"
    odd = bytearray()
    for line in io.BytesIO(content):
        if not line.isascii():
            odd += line
        if len(odd) >= BEGINNING:
            break
    guesses = list(from_bytes(bytes(odd), cp_isolation=list(ENCODINGS), threshold=0.5))
    if not guesses:
        raise UserError(
            f"{path} is not UTF-8, and its encoding cannot be guessed: give data.encoding=…, such as cp1252, or save it as "
            f"CSV UTF-8"
        )
    best = guesses[0]
    level = [one for one in guesses if one.chaos <= best.chaos + AS_GOOD and one.coherence >= best.coherence - AS_GOOD]
    guess = next((name for name in AT_A_TIE for one in level if name in one.could_be_from_charset), best.encoding)
    words = re.findall(r"[^\W\d_]*[^\W\d_\x00-\x7f][^\W\d_]*", odd.decode(guess, "replace"))[:50]
    shown = f", as in {max(words, key=len)[:30]!r}" if words else ""
    tell(f"{path.name}: not UTF-8; read as {guess}{shown} (a guess; data.encoding=… says otherwise)")
    return guess


LARGEST = 16 << 30
"""Bytes of a file, unpacked."""
MOST_GROWTH, ANY_GROWTH = 100, 64 << 20
"""A packed file may unpack to this many times its size, and to this many bytes in any case: text shrinks to a tenth or so,
and to a thousandth only where somebody made it for that."""
MOST_CELLS = 20_000_000
"""Rows × columns of a sheet. One cell in its far corner makes 17 billion of them."""


def check_unpacked(path: Path, size: int) -> None:
    """Refuse what a packed file unpacks to.

    Raises:
        UserError: it is far more than any table's text is.
    """
    packed = path.stat().st_size
    most = max(ANY_GROWTH, MOST_GROWTH * packed)
    if size > min(most, LARGEST):
        raise UserError(
            f"{path} has {packed:,} bytes and unpacks to more than {min(most, LARGEST):,}, which no table of texts does: "
            f"unpack it yourself if you trust it"
        )


class _Unpacked(io.RawIOBase):
    """The content of a .gz file, refused where there is too much of it."""

    def __init__(self, path: Path) -> None:
        self.path, self.file, self.size = path, gzip.GzipFile(path), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = self.file.read(len(buffer))
        self.size += len(part)
        check_unpacked(self.path, self.size)
        buffer[: len(part)] = part
        return len(part)

    def close(self) -> None:
        self.file.close()
        super().close()


def opened(path: Path) -> BinaryIO:
    """A file's bytes, unpacked where its name ends in .gz: everything that is not parquet is read through here.

    Raises:
        UserError: it is no regular file, or too large; while it is read: it unpacks to far more than text does.
    """
    if not path.is_file():
        raise UserError(f"{path} is not a file: expected a regular one, and not a folder, pipe or device")
    if path.stat().st_size > LARGEST:
        raise UserError(f"{path} has more than {LARGEST:,} bytes: give a part of it")
    return io.BufferedReader(_Unpacked(path), 1 << 16) if path.name.lower().endswith(".gz") else path.open("rb")


SPLITS = ("train", "validation", "test")
DATA_DIR = "ATTNPROBE_DATA_DIR"
ALIASES = {"train": ("train",), "validation": ("validation", "valid", "val", "dev"), "test": ("test",)}
READABLE = (".jsonl", ".json", ".csv", ".tsv", ".parquet", ".xlsx")
ENDINGS = ".jsonl, .json, .csv, .tsv (each also with .gz), .parquet and .xlsx"


def ending_of(path: Path) -> str:
    """The file's ending without `.gz`, lower case: `.csv` for `rows.CSV.gz`."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def find_path(path: str | os.PathLike) -> Path:
    """A path relative to the working directory, or else to `ATTNPROBE_DATA_DIR`.

    Raises:
        UserError: it is in neither place.
    """
    base = os.environ.get(DATA_DIR)
    if re.match(r"[a-z]+://", str(path)):
        raise UserError(f"{path} is a web address: download the file, and give its path")
    try:
        here = Path(path).expanduser()
        for place in [here] if base is None or here.is_absolute() else [here, Path(base) / here]:
            if place.exists():
                return place
    except (OSError, ValueError, RuntimeError) as error:  # too long, a null character, or nobody's home folder
        raise UserError(
            f"{str(path)[:100]!r} is not a path ({error}): give that of an existing file or folder"
        ) from None
    looked = f"{here.absolute()}" + (f" and {Path(base) / here}" if base and not here.is_absolute() else "")
    hint = "" if base else f", or set {DATA_DIR} to the folder that your data are in"
    raise UserError(f"{path} does not exist (looked at {looked}): give an existing path{hint}")


def files_of(path: str | os.PathLike | Mapping[str, str] | None) -> dict[str, Path]:
    """The file of each split.

    Args:
        path: one file, a folder, or `{train: file, …}`; see `attnprobe.data.sources.FileSource`.

    Raises:
        UserError: nothing there.
    """
    if path is None:
        raise UserError("data.path is not set: give a file or folder, for example data.path=reviews.csv")
    files: dict[str, Path] = {}
    if isinstance(path, Mapping):
        files = {split: find_path(path[split]) for split in SPLITS if split in path}
    elif (place := find_path(path)).is_dir():
        for split, names in ALIASES.items():
            candidates = [
                path
                for path in sorted(place.iterdir())
                if ending_of(path) in READABLE and path.name.split(".")[0].lower() in names
            ]
            if len(candidates) > 1:
                raise UserError(
                    f"{place} has {len(candidates)} files for the split {split} ({', '.join(p.name for p in candidates)}): "
                    f"keep one, or name the files, for example 'data.path={{train: a.csv, test: b.csv}}'"
                )
            if candidates:
                files[split] = candidates[0]
        if not files:
            there = sorted(path.name for path in place.iterdir())
            raise UserError(
                f"{place} holds no train, validation or test file: expected train.* with one of the endings {ENDINGS}; "
                f"there is {', '.join(there[:8]) or 'nothing'}{' …' if len(there) > 8 else ''}"
            )
    else:
        files = {"train": place}
    return files


# a sign, digits with or without points between groups of three, a comma, decimals
DECIMAL_COMMA = r"^\s*[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?\s*$"


def read_file(path: Path, how: Reading | None = None, tell: Tell = lambda _: None) -> datasets.Dataset:
    """Read one file into memory.

    Columns of CSV, TSV and XLSX files are read as text, so that a column's type cannot change half-way; only an empty
    cell is null, the words "NA" and "null" are not. Nothing is cached: a changed file is a changed data set.

    Args:
        path: the file.
        how: separator, encoding, decimal mark and sheet where they are given; None: nothing is.
        tell: is told in one sentence whatever was guessed.

    Raises:
        UserError: unknown ending, missing, empty, malformed or boundless file; names the line where that can be found out.
    """
    ending, how = ending_of(path), how or Reading()
    if ending not in READABLE:
        old = ". Save it as .xlsx" if ending in (".xls", ".ods") else ""
        raise UserError(
            f"{path}: cannot read a file that ends in {path.suffix or 'nothing'!r}; expected {ENDINGS}{old}"
        )
    if ending == ".xlsx" and find_spec("openpyxl") is None:
        raise UserError(
            f"{path}: reading .xlsx needs pip install 'attnprobe[excel]'; or save it in Excel as CSV UTF-8 (comma delimited)"
        )
    opened(path).close()
    if path.stat().st_size == 0:
        raise UserError(f"{path} is empty: expected at least one row")
    try:
        if ending == ".parquet":
            rows = _read_parquet(path)
        elif ending == ".xlsx":
            rows = _read_sheet(path, how, tell)
        else:
            with opened(path) as file:
                content = file.read()
            rows = _read_cells(path, content, how, tell) if ending in SEPARATORS else _read_json(path, content)
    except UserError:
        raise
    except MemoryError:
        raise UserError(f"{path} does not fit into memory: give fewer rows, or leave out columns") from None
    except UnicodeEncodeError as error:
        raise UserError(
            f"{path} holds half a character (a lone surrogate) in {error.object[:60]!r}: expected Unicode text"
        ) from None
    except (pa.ArrowException, ValueError, OverflowError, RecursionError, OSError, EOFError, zlib.error) as error:
        reason = str(error).strip() or type(error).__name__
        raise UserError(f"{path} cannot be read: {reason}. Expected {ENDINGS}, as the file's name says") from None
    if not len(rows):
        raise UserError(f"{path} has no row: expected at least one")
    return rows


def _read_parquet(path: Path) -> datasets.Dataset:
    said = pq.read_metadata(path)
    groups = [said.row_group(number) for number in range(said.num_row_groups)]
    check_unpacked(path, sum(group.total_byte_size for group in groups))
    if said.num_rows > max(1_000_000, path.stat().st_size):  # a value that is repeated takes no place
        raise UserError(f"{path} has {said.num_rows:,} rows in {path.stat().st_size:,} bytes: expected rows of text")
    table = pq.read_table(path)
    table.validate(full=True)
    return datasets.Dataset(table)


SPACE, LONG = re.compile(r"\s*"), re.compile(r"\d{19}")


def _read_json(path: Path, content: bytes) -> datasets.Dataset:
    """Objects, one after the other or in one list; or one list of texts, which become the column `text`."""

    def with_each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        row = dict(pairs)
        if len(row) < len(pairs):
            raise ValueError("a key occurs twice")
        return row

    def whole(digits: str) -> int | float:
        number = int(digits)
        return number if -(2**63) <= number < 2**63 else float(number)  # as the table can hold it

    text, at = content.decode("utf-8-sig"), 0
    rows: list[dict[str, Any]] = []
    decoder = json.JSONDecoder(object_pairs_hook=with_each_key_once, parse_int=whole if LONG.search(text) else None)
    while (at := SPACE.match(text, at).end()) < len(text):  # type: ignore[union-attr]
        try:
            value, end = decoder.raw_decode(text, at)
            wrong = "" if isinstance(value, dict) else "a JSON object"
        except RecursionError:
            wrong = "JSON (too many levels within each other)"
        except ValueError as error:
            wrong = f"JSON ({getattr(error, 'msg', error)})"
        if wrong == "a JSON object" and isinstance(value, list) and not rows and not text[end:].strip():
            rows = value if all(isinstance(one, dict) for one in value) else [{"text": one} for one in value]
            break
        if wrong:
            line, said = text.count("\n", 0, at) + 1, text[at : at + 60].partition("\n")[0].strip()
            raise UserError(f"{path} cannot be read: line {line} is not {wrong}: {said!r}")
        rows.append(value)
        at = end
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row.get(name) for row in rows] for name in names}
    return datasets.Dataset.from_dict(columns, on_mixed_types="use_json")


def _read_cells(path: Path, content: bytes, how: Reading, tell: Tell) -> datasets.Dataset:
    """The rows of a .csv or .tsv file; `4.5` for `4,5` in every column of which all cells are such numbers, or whole ones."""
    encoding, separator, skipped = dialect_of(path, content, how, tell)
    table = _table_of(path, io.BytesIO(content), sep=separator, encoding=encoding, skiprows=skipped)
    changed = []
    if how.decimal == "," or (how.decimal is None and separator != ","):
        for place, name in enumerate(table.column_names):
            cells = table.column(place)
            some = pc.any(pc.match_substring(cells, ",")).as_py()
            if some and pc.all(pc.match_substring_regex(cells, DECIMAL_COMMA)).as_py():
                points = pc.replace_substring(pc.replace_substring(pc.utf8_trim_whitespace(cells), ".", ""), ",", ".")
                table = table.set_column(place, name, points)
                changed.append(name)
    if changed:
        names = ", ".join(changed)
        tell(f"{path.name}: decimal commas in {names} are read as points, 4,5 as 4.5 (data.decimal=. leaves them)")
    return datasets.Dataset(table)


def _table_of(path: Path, cells: io.BytesIO | io.StringIO, **options: Any) -> pa.Table:
    """A table of texts, in which only an empty cell is null."""
    frame = pd.read_csv(cells, dtype=str, keep_default_na=False, na_values=[""], **options)
    if len(frame) and not isinstance(frame.index, pd.RangeIndex):  # pandas would take the first column for an index
        raise UserError(f"{path} cannot be read: line 2 has more cells than the header line")
    frame.columns = [str(name) for name in frame.columns]
    schema = pa.schema([(name, pa.string()) for name in frame.columns])
    return pa.Table.from_pandas(frame, schema, preserve_index=False).replace_schema_metadata(None)


def _read_sheet(path: Path, how: Reading, tell: Tell) -> datasets.Dataset:
    from openpyxl import load_workbook

    try:
        with zipfile.ZipFile(path) as archive:
            check_unpacked(path, sum(member.file_size for member in archive.infolist()))
        book = load_workbook(path, read_only=True, data_only=True)
        names = [sheet.title for sheet in book.worksheets]
        sheet = how.sheet or names[0]
        if sheet not in names:
            raise UserError(f"data.sheet={sheet}: {path} has the sheets {', '.join(names)}")
        rows = _cells_of(path, book[sheet])
        book.close()
    except UserError:
        raise
    except Exception as error:  # openpyxl lets through whatever a damaged archive or XML raises
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(f"{path} cannot be read as .xlsx: {reason}") from None
    if len(rows) < 2:
        raise UserError(f"{path}, sheet {sheet}: it has no row below its header; expected at least one")
    if how.sheet is None and len(names) > 1:
        tell(f"{path.name}: read its first sheet, {sheet!r} of {', '.join(names)} (data.sheet=… takes another)")
    text = io.StringIO(newline="")
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows(rows)
    text.seek(0)
    return datasets.Dataset(_table_of(path, text, skip_blank_lines=False))


def _cells_of(path: Path, sheet: Any) -> list[list[str]]:
    """A sheet's cells as text, all rows of one width, without empty rows at the end and empty cells beyond all others."""
    rows: list[list[str]] = []
    filled = width = 0
    sheet.reset_dimensions()  # what a file says of its size need not be true
    for number, row in enumerate(sheet.rows, 1):
        values = [None if cell.data_type == "e" else cell.value for cell in row]
        # a whole number has no decimals
        values = [int(one) if isinstance(one, float) and one.is_integer() else one for one in values]
        texts = ["" if one is None else str(one) for one in values]
        while texts and not texts[-1]:
            texts.pop()
        width, filled = max(width, len(texts)), number if texts else filled
        if filled * width > MOST_CELLS:
            raise UserError(
                f"{path}, sheet {sheet.title}: a cell in row {filled:,} and one in column {width:,} make more than "
                f"{MOST_CELLS:,} cells: delete what is far from the table, or save it as CSV UTF-8"
            )
        rows.append(texts)
    return [row + [""] * (width - len(row)) for row in rows[:filled]]
