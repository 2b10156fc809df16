"""Rows of one local file: a table as text, JSON, parquet or a spreadsheet. Whatever is wrong with
one is one `UserError`."""

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
from typing import Annotated, BinaryIO, ClassVar, Literal

import datasets
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from annotated_types import Predicate
from charset_normalizer import from_bytes

from attnprobe.core.errors import UserError
from attnprobe.core.settings import Checked

SPLITS = ("train", "validation", "test")
DATA_DIR = "ATTNPROBE_DATA_DIR"
ALIASES = {
    "train": ("train",),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test",),
}
READABLE = (".jsonl", ".json", ".csv", ".tsv", ".parquet", ".xlsx")
ENDINGS = ".jsonl, .json, .csv, .tsv (each also with .gz), .parquet and .xlsx"
SEPARATORS = {".csv": ",;\t|", ".tsv": "\t,;|"}
BEGINNING = 1 << 16
"""Characters of a file that show its separator, and bytes of its lines beyond ASCII that show its
encoding."""
NEARLY_ALL = 0.9
"""Of the rows: a damaged one must not hide which separator the others have, so that the reader can
name its line."""
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
"""What is guessed among: those that programs of the last thirty years write where it is not
UTF-8."""
AT_A_TIE = ("cp1252", "cp932")
"""The commonest ones, which shorter texts leave level with others: Windows' in the West, and the
Japanese one."""
AS_GOOD = 0.05
"""Differences in charset-normalizer's chaos and coherence (0 to 1) that decide nothing."""
# a sign, digits with or without points between groups of three, a comma, decimals
DECIMAL_COMMA = r"^\s*[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?\s*$"
ONE_ASCII = re.compile(r"[^\x00\r\n\x22\x80-\U0010ffff]")

Tell = Callable[[str], None]


def _is_encoding(name: str) -> bool:
    try:
        io.TextIOWrapper(io.BytesIO(), encoding=name)
    except (LookupError, ValueError):
        return False
    return True


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


def ending_of(path: Path) -> str:
    """The file's ending without `.gz`, lower case: `.csv` for `rows.CSV.gz`."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def find_path(path: str | os.PathLike) -> Path:
    """A path relative to the working directory, or else to `ATTNPROBE_DATA_DIR`.

    Raises:
        UserError: it is in neither place.
    """
    if re.match(r"[a-z]+://", str(path)):
        raise UserError(f"{path} is a web address: download the file, and give its path")
    base = os.environ.get(DATA_DIR)
    try:
        here = Path(path).expanduser()
        places = (
            [here] if base is None else [here, Path(base) / here]
        )  # the same where it is absolute
        if found := next((place for place in places if place.exists()), None):
            return found
    except (
        OSError,
        ValueError,
        RuntimeError,
    ) as error:  # too long, a null character, or nobody's home folder
        raise UserError(
            f"{str(path)[:100]!r} is not a path ({error}): give that of an existing file or folder"
        ) from None
    looked = " and ".join(dict.fromkeys(str(place.absolute()) for place in places))
    hint = "" if base else f", or set {DATA_DIR} to the folder that your data are in"
    raise UserError(f"{path} does not exist (looked at {looked}): give an existing path{hint}")


def files_of(path: str | os.PathLike | Mapping[str, str] | None) -> dict[str, Path]:
    """The file of each split: of one file, a folder, or `{train: file, …}`
    (`attnprobe.data.sources.FileSource`).

    Raises:
        UserError: nothing there.
    """
    if path is None:
        raise UserError(
            "data.path is not set: give a file or folder, for example data.path=reviews.csv"
        )
    if isinstance(path, Mapping):
        return {split: find_path(path[split]) for split in SPLITS if split in path}
    place = find_path(path)
    if not place.is_dir():
        return {"train": place}
    files: dict[str, Path] = {}
    there = sorted(place.iterdir())
    for split, names in ALIASES.items():
        found = [
            one
            for one in there
            if ending_of(one) in READABLE and one.name.split(".")[0].lower() in names
        ]
        if len(found) > 1:
            raise UserError(
                f"{place} has {len(found)} files for the split {split} ({', '.join(one.name for one in found)}): "
                f"keep one, or name the files, for example 'data.path={{train: a.csv, test: b.csv}}'"
            )
        if found:
            files[split] = found[0]
    if not files:
        raise UserError(
            f"{place} holds no train, validation or test file: expected train.* with one of the endings {ENDINGS}; "
            f"there is {', '.join(one.name for one in there[:8]) or 'nothing'}{' …' if len(there) > 8 else ''}"
        )
    return files


MOST_GROWTH = 100
ANY_GROWTH = 64 << 20
"""A packed file may unpack to this many times its size, and to this many bytes in any case: text
shrinks to a tenth or so, and to a thousandth only where somebody made it for that."""
MOST_CELLS = 20_000_000
"""Rows × columns of a sheet. One cell in its far corner makes 17 billion of them."""


def check_unpacked(path: Path, size: int) -> None:
    """Refuse, by a `UserError`, what a packed file unpacks to, where it is far more than any
    table's text is."""
    packed = path.stat().st_size
    most = max(ANY_GROWTH, MOST_GROWTH * packed)
    if size > most:
        raise UserError(
            f"{path} has {packed:,} bytes and unpacks to more than {most:,}, which no table of texts does: "
            f"unpack it yourself if you trust it"
        )


def opened(path: Path) -> BinaryIO:
    """A file's bytes, unpacked where its name ends in .gz; a `UserError` where it is no regular
    file, or unpacks to far more than text does."""
    if not path.is_file():
        raise UserError(
            f"{path} is not a file: expected a regular one, and not a folder, pipe or device"
        )
    if not path.name.lower().endswith(".gz"):
        return path.open("rb")
    file = gzip.GzipFile(path)
    while file.read(1 << 20):  # once through, before anything of it is kept
        check_unpacked(path, file.tell())
    file.seek(0)
    return file  # type: ignore[return-value]


def read_file(
    path: Path, how: Reading | None = None, tell: Tell = lambda _: None
) -> datasets.Dataset:
    """Read one file into memory.

    Columns of CSV, TSV and XLSX files are read as text, so that a column's type cannot change
    half-way; only an empty cell is null, the words "NA" and "null" are not. Nothing is cached: a
    changed file is a changed data set.

    Args:
        path: the file.
        how: separator, encoding, decimal mark and sheet where they are given.
        tell: is told in one sentence whatever was guessed.

    Raises:
        UserError: unknown ending, missing, empty or malformed file; names the line where that can
            be found out.
    """
    ending = ending_of(path)
    how = how or Reading()
    if ending not in READABLE:
        old = ". Save it as .xlsx" if ending in (".xls", ".ods") else ""
        raise UserError(
            f"{path}: cannot read a file that ends in {path.suffix or 'nothing'!r}; expected {ENDINGS}{old}"
        )
    if ending == ".xlsx" and find_spec("openpyxl") is None:
        raise UserError(
            f"{path}: reading .xlsx needs pip install 'attnprobe[excel]'; or save it in Excel as CSV UTF-8 (comma delimited)"
        )
    try:
        with opened(path) as file:
            if path.stat().st_size == 0:
                raise UserError(f"{path} is empty: expected at least one row")
            if ending == ".parquet":
                said = pq.read_metadata(path)
                check_unpacked(
                    path,
                    sum(said.row_group(at).total_byte_size for at in range(said.num_row_groups)),
                )
                if said.num_rows > max(
                    1_000_000, path.stat().st_size
                ):  # a value that is repeated takes no place
                    raise UserError(
                        f"{path} has {said.num_rows:,} rows in {path.stat().st_size:,} bytes: expected rows of text"
                    )
                table = pq.read_table(path)
                table.validate(full=True)
                rows = datasets.Dataset(table)
            elif ending == ".xlsx":
                rows = _read_sheet(path, how, tell)
            elif ending in SEPARATORS:
                rows = _read_cells(path, file.read(), how, tell)
            else:
                rows = _read_json(path, file.read().decode("utf-8-sig"))
    except UserError:
        raise
    except MemoryError:
        raise UserError(
            f"{path} does not fit into memory: give fewer rows, or leave out columns"
        ) from None
    except UnicodeEncodeError as error:
        raise UserError(
            f"{path} holds half a character (a lone surrogate) in {error.object[:60]!r}: expected Unicode text"
        ) from None
    except (
        pa.ArrowException,
        ValueError,
        OverflowError,
        RecursionError,
        OSError,
        EOFError,
        zlib.error,
    ) as error:
        reason = str(error).strip() or type(error).__name__
        raise UserError(
            f"{path} cannot be read: {reason}. Expected {ENDINGS}, as the file's name says"
        ) from None
    if not len(rows):
        raise UserError(f"{path} has no row: expected at least one")
    return rows


def _read_json(path: Path, text: str) -> datasets.Dataset:
    """Objects, one a line or in one list; or one list of texts, which become the column `text`."""

    def whole(digits: str) -> int | float:
        number = int(digits)
        return number if -(2**63) <= number < 2**63 else float(number)  # as the table can hold it

    rows = []
    content = None
    try:
        content = json.loads(text, parse_int=whole)
        rows = content if isinstance(content, list) else [content]
    except json.JSONDecodeError:
        for number, line in enumerate(text.split("\n"), 1):
            try:
                rows += [json.loads(line, parse_int=whole)] if line.strip() else []
            except (ValueError, RecursionError) as error:
                said = line[:60].strip()
                raise UserError(
                    f"{path} cannot be read: line {number} is not JSON ({error}): {said!r}"
                ) from None
    wrong = [number for number, row in enumerate(rows, 1) if not isinstance(row, dict)]
    if wrong and not (isinstance(content, list) and len(wrong) == len(rows)):
        row = str(rows[wrong[0] - 1])
        raise UserError(
            f"{path} cannot be read: entry {wrong[0]} is not a JSON object: {row[:60]!r}"
        )
    rows = [{"text": row} for row in rows] if wrong else rows
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row.get(name) for row in rows] for name in names}
    return datasets.Dataset.from_dict(columns, on_mixed_types="use_json")


def _read_cells(path: Path, content: bytes, how: Reading, tell: Tell) -> datasets.Dataset:
    """The rows of a .csv or .tsv file; `4.5` for `4,5` in every column of which all cells are such
    numbers, or whole ones."""
    encoding, separator, skipped = dialect_of(path, content, how, tell)
    frame = pd.read_csv(
        io.BytesIO(content),
        sep=separator,
        encoding=encoding,
        skiprows=skipped,
        dtype=str,
        keep_default_na=False,
        na_values=[""],
    )
    if len(frame) and not isinstance(
        frame.index, pd.RangeIndex
    ):  # pandas would take the first column for an index
        raise UserError(f"{path} cannot be read: line 2 has more cells than the header line")
    table = _table_of(frame)
    changed = []
    for place, name in enumerate(table.column_names):
        cells = table.column(place)
        decimals = how.decimal == "," or (how.decimal is None and separator != ",")
        some = decimals and pc.any(pc.match_substring(cells, ",")).as_py()
        if some and pc.all(pc.match_substring_regex(cells, DECIMAL_COMMA)).as_py():
            points = pc.replace_substring(
                pc.replace_substring(pc.utf8_trim_whitespace(cells), ".", ""), ",", "."
            )
            table = table.set_column(place, name, points)
            changed.append(name)
    if changed:
        names = ", ".join(changed)
        tell(
            f"{path.name}: decimal commas in {names} are read as points, 4,5 as 4.5 (data.decimal=. leaves them)"
        )
    return datasets.Dataset(table)


def _table_of(frame: pd.DataFrame) -> pa.Table:
    """A table of texts, in which only an empty cell is null."""
    frame.columns = [str(name) for name in frame.columns]
    schema = pa.schema([(name, pa.string()) for name in frame.columns])
    return pa.Table.from_pandas(frame, schema, preserve_index=False).replace_schema_metadata(None)


def _read_sheet(path: Path, how: Reading, tell: Tell) -> datasets.Dataset:
    try:
        with zipfile.ZipFile(path) as archive:
            check_unpacked(path, sum(member.file_size for member in archive.infolist()))
        with pd.ExcelFile(path, "openpyxl") as book:
            names = [str(name) for name in book.sheet_names]
            sheet = how.sheet or names[0]
            if sheet not in names:
                raise UserError(f"data.sheet={sheet}: {path} has the sheets {', '.join(names)}")
            cells = book.book[sheet]
            filled = 0
            width = 0
            cells.reset_dimensions()  # what a file says of its size need not be true
            for number, row in enumerate(cells.iter_rows(values_only=True), 1):
                if places := [place for place, value in enumerate(row, 1) if value is not None]:
                    filled = number
                    width = max(width, places[-1])
                if (
                    filled * width > MOST_CELLS
                ):  # read as a table, a sheet with a cell far from all others has no end
                    raise UserError(
                        f"{path}, sheet {sheet}: a cell in row {filled:,} and one in column {width:,} make more than "
                        f"{MOST_CELLS:,} cells: delete what is far from the table, or save it as CSV UTF-8"
                    )
            frame = pd.read_excel(
                book, sheet_name=sheet, dtype=str, keep_default_na=False, na_values=[""]
            )
    except UserError:
        raise
    except Exception as error:  # openpyxl lets through whatever a damaged archive or XML raises
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(f"{path} cannot be read as .xlsx: {reason}") from None
    if how.sheet is None and len(names) > 1:
        tell(
            f"{path.name}: read its first sheet, {sheet!r} of {', '.join(names)} (data.sheet=… takes another)"
        )
    return datasets.Dataset(_table_of(frame))


def dialect_of(
    path: Path, content: bytes, how: Reading, tell: Tell = lambda _: None
) -> tuple[str, str, int]:
    """How a .csv or .tsv file of this content is written: its encoding, the separator of its cells,
    and the lines before the header; what is not given is guessed, and told."""
    encoding = how.encoding or encoding_of(path, content, tell)
    # a mark that says UTF-8 is no part of the text
    text = io.TextIOWrapper(
        io.BytesIO(content), "utf-8-sig" if encoding == "utf-8" else encoding, newline=""
    )
    try:
        beginning = text.read(BEGINNING)
    except UnicodeError as error:
        raise UserError(
            f"{path} is not in {encoding} ({error}): give data.encoding=…, such as utf-8 or cp1252"
        ) from None
    if said := re.match(r'"?sep=(.)"?;*\r?\n', beginning):  # Excel's own way to say it
        return encoding, how.separator or said[1], 1
    separators = SEPARATORS[ending_of(path)]
    separator = how.separator or separator_of(
        beginning, separators, whole=len(beginning) < BEGINNING
    )
    if how.separator is None and separator != separators[0]:
        name = {"\t": "tabs", ";": "semicolons", ",": "commas", "|": "bars (|)"}[separator]
        tell(
            f"{path.name}: cells are separated by {name} (a guess; data.separator=… says otherwise)"
        )
    return encoding, separator, 0


def separator_of(text: str, candidates: str, *, whole: bool) -> str:
    """The separator with which the rows of a text have as many cells as the header, and at least
    two: the first of the candidates (likeliest first) where it does, else the one with most cells;
    the first where none does. The last row is cut off unless the text is the whole table.

    >>> separator_of("id;text\\n1;fine, really\\n2;bad\\n", ",;", whole=True)
    ';'
    """
    cells = dict.fromkeys(candidates, 0)  # of the header, where nearly all rows have as many
    for separator in candidates:
        try:
            rows = [
                row for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator) if row
            ]
        except csv.Error:
            continue
        rows = rows if whole else rows[:-1]
        if rows and sum(len(row) == len(rows[0]) for row in rows) >= NEARLY_ALL * len(rows):
            cells[separator] = len(rows[0])
    likeliest = candidates[0]
    most = max(candidates, key=lambda one: cells[one])
    return likeliest if cells[likeliest] > 1 or cells[most] < 2 else most


def encoding_of(path: Path, content: bytes, tell: Tell = lambda _: None) -> str:
    """UTF-8 or UTF-16 where the content says so, or else the most plausible guess."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    try:
        content.decode()
    except UnicodeDecodeError:
        pass
    else:
        return "utf-8"
    odd = bytearray()
    for line in io.BytesIO(content):
        odd += b"" if line.isascii() else line
        if len(odd) >= BEGINNING:
            break
    guesses = list(from_bytes(bytes(odd), cp_isolation=list(ENCODINGS), threshold=0.5))
    if not guesses:
        raise UserError(
            f"{path} is not UTF-8, and its encoding cannot be guessed: give data.encoding=…, such as cp1252, or save it as "
            f"CSV UTF-8"
        )
    best = guesses[0]
    level = [
        one
        for one in guesses
        if one.chaos <= best.chaos + AS_GOOD and one.coherence >= best.coherence - AS_GOOD
    ]
    guess = next(
        (name for name in AT_A_TIE for one in level if name in one.could_be_from_charset),
        best.encoding,
    )
    words = re.findall(r"[^\W\d_]*[^\W\d_\x00-\x7f][^\W\d_]*", odd.decode(guess, "replace"))[:50]
    shown = f", as in {max(words, key=len)[:30]!r}" if words else ""
    tell(
        f"{path.name}: not UTF-8; read as {guess}{shown} (a guess; data.encoding=… says otherwise)"
    )
    return guess
