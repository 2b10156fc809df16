"""Rows of one local file: a table as text, JSON, parquet or a spreadsheet.

Whatever is wrong with a file is one `UserError`.
"""

import gzip
import json
import os
import re
import zipfile
import zlib
from collections.abc import Collection, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

import datasets
import pyarrow as pa
import pyarrow.parquet as pq

from attnprobe.core.errors import UserError
from attnprobe.data.arrow_types import are_named, class_names, plain_table
from attnprobe.data.cells import asked_for, read_cells
from attnprobe.data.dialect import FileFormat, Tell

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
"""Candidates for the separator by the file's ending, the likeliest first."""


def ending_of(path: Path) -> str:
    """The file's ending without `.gz`, lower case: `.csv` for `rows.CSV.gz`."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def find_path(path: str | os.PathLike) -> Path:
    """A path relative to the working directory, or else to `ATTNPROBE_DATA_DIR`.

    Raises:
        UserError: the path is in neither place.
        PermissionError: this user may not look into a folder on the way to it.
    """
    if re.match(r"[a-z]+://", str(path)):
        raise UserError(f"{path} is a web address: download the file, and give its path")
    base = os.environ.get(DATA_DIR)
    try:
        relative = Path(path).expanduser()
        places = [relative]
        if base is not None:
            places.append(Path(base) / relative)  # the same place where the path is absolute
        for place in places:
            if place.exists():
                return place
    except PermissionError:
        raise
    except (OSError, ValueError, RuntimeError) as error:
        # too long, a null character, or nobody's home folder
        raise UserError(
            f"{str(path)[:100]!r} is not a path ({error}): give that of an existing file or folder"
        ) from None
    searched = " and ".join(dict.fromkeys(str(place.absolute()) for place in places))
    hint = "" if base else f", or set {DATA_DIR} to the folder that your data are in"
    raise UserError(f"{path} does not exist (looked at {searched}): give an existing path{hint}")


def files_of(path: str | os.PathLike | Mapping[str, str] | None) -> dict[str, Path]:
    """The file of each split.

    Args:
        path: one file, a folder, or `{train: file, …}` (`attnprobe.data.sources.FileSource`).

    Raises:
        UserError: there is no such file, or a folder has none or several for a split.
    """
    if path is None:
        raise UserError(
            "data.path is not set: give a file or folder, for example data.path=reviews.csv"
        )
    if isinstance(path, Mapping):
        return {split: find_path(path[split]) for split in SPLITS if split in path}
    place = find_path(path)
    return _files_in(place) if place.is_dir() else {"train": place}


def _files_in(folder: Path) -> dict[str, Path]:
    """The file of each split in a folder, by the files' names."""
    files: dict[str, Path] = {}
    content = sorted(folder.iterdir())
    readable = [file for file in content if ending_of(file) in READABLE]
    for split, aliases in ALIASES.items():
        candidates = [file for file in readable if file.name.split(".")[0].lower() in aliases]
        if len(candidates) > 1:
            names = ", ".join(file.name for file in candidates)
            raise UserError(
                f"{folder} has {len(candidates)} files for the split {split} ({names}): keep one, "
                f"or name the files, for example 'data.path={{train: a.csv, test: b.csv}}'"
            )
        if candidates:
            files[split] = candidates[0]
    if not files:
        names = ", ".join(file.name for file in content[:8]) or "nothing"
        more = " …" if len(content) > 8 else ""
        raise UserError(
            f"{folder} holds no train, validation or test file: expected train.* with one of the "
            f"endings {ENDINGS}; there is {names}{more}"
        )
    return files


MOST_GROWTH = 100
ANY_GROWTH = 64 << 20
"""A packed file may unpack to `MOST_GROWTH` times its size, and to `ANY_GROWTH` bytes in any case:
text shrinks to a tenth or so, and to a thousandth only where somebody made it for that."""


def check_unpacked(path: Path, size: int) -> None:
    """Refuse a packed file that unpacks to far more than a table of texts does.

    Args:
        path: the packed file.
        size: bytes that it unpacks to.

    Raises:
        UserError: the size is beyond `MOST_GROWTH` and `ANY_GROWTH`.
    """
    packed = path.stat().st_size
    most = max(ANY_GROWTH, MOST_GROWTH * packed)
    if size > most:
        raise UserError(
            f"{path} has {packed:,} bytes and unpacks to more than {most:,}, which no table of "
            f"texts does: unpack it yourself if you trust it"
        )


def opened(path: Path) -> BinaryIO:
    """A file's bytes, unpacked where its name ends in .gz.

    Raises:
        UserError: it is no regular file, or unpacks to far more than text does.
    """
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
    path: Path,
    how: FileFormat | None = None,
    tell: Tell = lambda _: None,
    columns: Collection[str] | None = None,
) -> datasets.Dataset:
    """Read one file into memory.

    Columns of CSV, TSV and XLSX files are read as text, so that a column's type cannot change
    half-way; only an empty cell is null, the words "NA" and "null" are not. Nothing is cached: a
    changed file is a changed data set.

    Args:
        path: the file.
        how: separator, encoding, decimal mark and sheet where they are given.
        tell: takes one sentence about each guess.
        columns: those to read, or the paths of values in them (`attnprobe.data.rows.column`); None,
            or where one of them is missing: all.

    Raises:
        UserError: the file is missing, empty or malformed, or its ending is unknown; the message
            names the line where that can be found out.
    """
    ending = ending_of(path)
    _check_ending(path, ending)
    try:
        rows = _read_rows(path, ending, how or FileFormat(), tell, columns)
    except UserError:
        raise
    except MemoryError:
        raise UserError(
            f"{path} does not fit into memory: give fewer rows, or leave out columns"
        ) from None
    except UnicodeEncodeError as error:
        raise UserError(
            f"{path} holds half a character (a lone surrogate) in {error.object[:60]!r}: expected "
            f"Unicode text"
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


def _check_ending(path: Path, ending: str) -> None:
    if ending not in READABLE:
        remedy = ". Save it as .xlsx" if ending in (".xls", ".ods") else ""
        raise UserError(
            f"{path}: cannot read a file that ends in {path.suffix or 'nothing'!r}; "
            f"expected {ENDINGS}{remedy}"
        )
    if ending == ".xlsx" and find_spec("openpyxl") is None:
        raise UserError(
            f"{path}: reading .xlsx needs pip install 'attnprobe[excel]'; or save it in Excel as "
            f"CSV UTF-8 (comma delimited)"
        )


def _read_rows(
    path: Path, ending: str, how: FileFormat, tell: Tell, columns: Collection[str] | None
) -> datasets.Dataset:
    with opened(path) as file:
        if path.stat().st_size == 0:
            raise UserError(f"{path} is empty: expected at least one row")
        if ending == ".parquet":
            return _read_parquet(path, columns, tell)
        if ending == ".xlsx":
            return _read_sheet(path, how, tell, columns)
        if ending in SEPARATORS:
            content = file.read()
            table = read_cells(path, content, SEPARATORS[ending], how, tell, columns)
            return datasets.Dataset(table)
        return _read_json(path, file.read().decode("utf-8-sig"), columns)


def _read_parquet(path: Path, columns: Collection[str] | None, tell: Tell) -> datasets.Dataset:
    """The rows of a parquet file whose size does not hide a far larger table."""
    metadata = pq.read_metadata(path)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    check_unpacked(path, sum(group.total_byte_size for group in groups))
    size = path.stat().st_size
    if metadata.num_rows > max(1_000_000, size):  # a value that is repeated takes no place
        raise UserError(
            f"{path} has {metadata.num_rows:,} rows in {size:,} bytes: expected rows of text"
        )
    names = asked_for(pq.read_schema(path).names, columns)
    table = pq.read_table(path, columns=names)
    table.validate(full=True)
    plain = plain_table(path, table, columns)
    features = datasets.Features.from_arrow_schema(plain.schema)
    for name, classes in class_names(table.schema).items():
        if name in features and are_named(plain[name], classes):
            features[name] = datasets.ClassLabel(names=classes)
            place = plain.column_names.index(name)
            plain = plain.set_column(place, name, plain[name].cast(pa.int64()))
            shown = ", ".join(f"{number} {label}" for number, label in enumerate(classes[:5]))
            tell(f"{path.name}: the file names the numbers in {name}, which are read so: {shown}")
    return datasets.Dataset(plain, info=datasets.DatasetInfo(features=features))


def _read_json(path: Path, text: str, asked: Collection[str] | None) -> datasets.Dataset:
    """Objects, one a line or in one list; or one list of texts, which become the column `text`."""
    may_be_texts = False
    try:
        content = _parsed(text)
    except json.JSONDecodeError:
        entries = _parsed_lines(path, text)
    else:
        may_be_texts = isinstance(content, list)
        entries = content if isinstance(content, list) else [content]

    wrong = [number for number, entry in enumerate(entries) if not isinstance(entry, dict)]
    if wrong and may_be_texts and len(wrong) == len(entries):
        entries = [{"text": entry} for entry in entries]
    elif wrong:
        first = wrong[0]
        raise UserError(
            f"{path} cannot be read: entry {first + 1} is not a JSON object: "
            f"{str(entries[first])[:60]!r}"
        )
    names = asked_for(list(dict.fromkeys(name for entry in entries for name in entry)), asked)
    columns = {name: [entry.get(name) for entry in entries] for name in names}
    return datasets.Dataset.from_dict(columns, on_mixed_types="use_json")


def _parsed(text: str) -> Any:
    """The value that a JSON text stands for; whole numbers beyond 64 bits become floats."""

    def parse_int(digits: str) -> int | float:
        number = int(digits)
        return number if -(2**63) <= number < 2**63 else float(number)  # as the table can hold it

    return json.loads(text, parse_int=parse_int)


def _parsed_lines(path: Path, text: str) -> list[Any]:
    """The value of every line that is not blank."""
    entries = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            entries.append(_parsed(line))
        except (ValueError, RecursionError) as error:
            beginning = line[:60].strip()
            raise UserError(
                f"{path} cannot be read: line {number} is not JSON ({error}): {beginning!r}"
            ) from None
    return entries


def _read_sheet(
    path: Path, how: FileFormat, tell: Tell, columns: Collection[str] | None
) -> datasets.Dataset:
    """The rows of one sheet of an .xlsx file."""
    from attnprobe.data.sheets import read_sheet  # openpyxl may be missing

    try:
        with zipfile.ZipFile(path) as archive:
            check_unpacked(path, sum(member.file_size for member in archive.infolist()))
        return datasets.Dataset(read_sheet(path, how, tell, columns))
    except UserError:
        raise
    except Exception as error:  # openpyxl lets through whatever a damaged archive or XML raises
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(f"{path} cannot be read as .xlsx: {reason}") from None
