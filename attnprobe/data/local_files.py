"""Rows of one local file: a table as text, JSON, parquet or a spreadsheet."""

import codecs
import csv
import gzip
import io
import json
import os
import re
import tempfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, ClassVar, Literal, NamedTuple

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


class Dialect(NamedTuple):
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


def encoding_of(path: Path, tell: Tell = lambda _: None) -> str:
    """UTF-8 where all of the file is, what its first bytes say, or the most plausible guess.

    Raises:
        UserError: no guess fits.
    """
    odd, valid = bytearray(), True
    with _opened(path, "rb") as file:
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


def _opened(path: Path, mode: str, **options: Any) -> IO[Any]:
    """The file, unpacked where it ends in .gz."""
    unpack: Callable[..., IO[Any]] = gzip.open if path.name.lower().endswith(".gz") else open
    return unpack(path, mode, **options)


def opened_text(path: Path, encoding: str) -> IO[str]:
    """The file as text, unpacked where it ends in .gz; a mark that says UTF-8 is no part of it."""
    return _opened(path, "rt", encoding="utf-8-sig" if encoding == "utf-8" else encoding, newline="")


SPLITS = ("train", "validation", "test")
DATA_DIR = "ATTNPROBE_DATA_DIR"
ALIASES = {"train": ("train",), "validation": ("validation", "valid", "val", "dev"), "test": ("test",)}
BUILDERS = {".jsonl": "json", ".json": "json", ".csv": "csv", ".tsv": "csv", ".parquet": "parquet", ".xlsx": "excel"}
"""File endings and what reads them: a builder of `datasets`, or `excel`; each text format also with `.gz` after it."""
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
        UserError: nothing there, or no training file.
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
                if ending_of(path) in BUILDERS and path.name.split(".")[0].lower() in names
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
    if "train" not in files:
        raise UserError(f"data.path={path}: there is no training file; expected train.* ({ENDINGS})")
    return files


def check_ending(path: Path) -> str:
    """The ending of a file that can be read.

    Raises:
        UserError: unknown ending, or missing or empty file.
    """
    ending = ending_of(path)
    if ending not in BUILDERS:
        old = ". Save it as .xlsx" if ending in (".xls", ".ods") else ""
        raise UserError(
            f"{path}: cannot read a file that ends in {path.suffix or 'nothing'!r}; expected {ENDINGS}{old}"
        )
    if ending == ".xlsx" and find_spec("openpyxl") is None:
        raise UserError(
            f"{path}: reading .xlsx needs pip install 'attnprobe[excel]'; or save it in Excel as CSV UTF-8 (comma delimited)"
        )
    if not path.is_file():
        raise UserError(f"{path} is not a file: expected one of {ENDINGS}")
    if path.stat().st_size == 0:
        raise UserError(f"{path} is empty: expected at least one row")
    return ending


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
        UserError: unknown ending, missing, empty or malformed file; names the line where that can be found out.
    """
    ending, how = check_ending(path), how or Reading()
    builder = BUILDERS[ending]
    try:
        if builder == "excel":
            return _read_sheet(path, how, tell)
        if builder == "csv":
            return _read_cells(path, ending, how, tell)
        if builder == "parquet" and pq.read_metadata(path).num_rows == 0:
            raise UserError(f"{path} has no row: expected at least one")
        # JSON in one block: types are seen as a whole
        rows = _load_afresh(builder, path, {"chunksize": 1 << 30} if builder == "json" else {})
        rows.data.table.validate(full=True)  # pyarrow reads text that is not UTF-8 from JSON without complaint
        return rows
    except UserError:
        raise
    except (
        datasets.exceptions.DatasetGenerationError,
        pa.ArrowException,
        ValueError,
        OSError,
        EOFError,
        StopIteration,
        zlib.error,
    ) as error:
        if isinstance(error, StopIteration) or "corresponds to no data" in str(error):  # `datasets`' wording
            raise UserError(f"{path} has no row: expected at least one") from None
        raise UserError(f"{path} cannot be read: {_reason_of(error, path)}") from None


def _read_cells(path: Path, ending: str, how: Reading, tell: Tell) -> datasets.Dataset:
    """The rows of a .csv or .tsv file; `4.5` for `4,5` in every column of which all cells are such numbers, or whole ones."""
    dialect = dialect_of(path, ending, how, tell)
    frame = pd.read_csv(
        path,
        sep=dialect.separator,
        encoding=dialect.encoding,
        skiprows=dialect.skipped,
        dtype=str,
        keep_default_na=False,
        na_values=[""],
        compression="gzip" if path.name.lower().endswith(".gz") else None,
    )
    if not len(frame):
        raise UserError(f"{path} has no row: expected at least one")
    if not isinstance(frame.index, pd.RangeIndex):  # pandas would take the first column for an index
        raise UserError(f"{path} cannot be read: line 2 has more cells than the header line")
    table, changed = _table_of(frame), []
    if how.decimal == "," or (how.decimal is None and dialect.separator != ","):
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


def _read_sheet(path: Path, how: Reading, tell: Tell) -> datasets.Dataset:
    try:
        with pd.ExcelFile(path, engine="openpyxl") as book:
            names = [str(name) for name in book.sheet_names]
            sheet = names[0] if how.sheet is None else how.sheet
            if sheet not in names:
                raise UserError(f"data.sheet={sheet}: {path} has the sheets {', '.join(names)}")
            frame = pd.read_excel(book, sheet_name=sheet, dtype=str, keep_default_na=False, na_values=[""])
    except UserError:
        raise
    except Exception as error:  # openpyxl lets through whatever a damaged archive or XML raises
        raise UserError(f"{path} cannot be read as .xlsx: {' '.join(str(error).split())[:200]}") from None
    if frame.empty:
        raise UserError(f"{path}, sheet {sheet}: it has no row below its header; expected at least one")
    if how.sheet is None and len(names) > 1:
        tell(f"{path.name}: read its first sheet, {sheet!r} of {', '.join(names)} (data.sheet=… takes another)")
    return datasets.Dataset(_table_of(frame))


def _table_of(frame: pd.DataFrame) -> pa.Table:
    frame.columns = [str(name) for name in frame.columns]
    schema = pa.schema([(name, pa.string()) for name in frame.columns])
    return pa.Table.from_pandas(frame, schema, preserve_index=False).replace_schema_metadata(None)


def _load_afresh(builder: str, path: Path, options: dict) -> datasets.Dataset:
    """`datasets.load_dataset` of one file, without its cache and without its progress bars."""
    bars = datasets.is_progress_bar_enabled()
    level = datasets.logging.get_verbosity()
    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # failures are reported by us, once
    try:
        with tempfile.TemporaryDirectory(prefix="attnprobe-") as scratch:
            # a link of a plain name: the file's own name could hold *, ? or [, which would be read as patterns
            link = Path(scratch) / ("rows" + "".join(s for s in (ending_of(path), ".gz") if path.name.endswith(s)))
            link.symlink_to(path.resolve())
            return datasets.load_dataset(
                builder, data_files=str(link), split="train", cache_dir=scratch, keep_in_memory=True, **options
            )
    finally:
        pa.default_memory_pool().release_unused()  # Arrow would keep what reading took, several times the rows
        datasets.logging.set_verbosity(level)
        if bars:
            datasets.enable_progress_bars()


def _reason_of(error: BaseException, path: Path) -> str:
    """Why a file could not be read: the first malformed line of JSON lines, or the innermost error's text."""
    if ending_of(path) in (".jsonl", ".json"):
        try:
            with opened_text(path, "utf-8") as lines:
                for number, line in enumerate(lines, 1):
                    try:
                        if line.strip() and not isinstance(json.loads(line), dict):
                            return f"line {number} is not a JSON object: {line.strip()[:60]!r}"
                    except ValueError as malformed:
                        return f"line {number} is not JSON ({malformed}): {line.strip()[:60]!r}"
        except (OSError, EOFError, UnicodeDecodeError, zlib.error) as unreadable:
            return str(unreadable)
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{str(error).strip() or type(error).__name__}. Expected {ENDINGS}, as the file's name says"
