"""Rows of one local file: a table as text, JSON, parquet or a spreadsheet."""

import gzip
import json
import tempfile
import zlib
from pathlib import Path

import datasets
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from attnprobe.data.dialect import Reading, Tell, dialect_of
from attnprobe.data.files import BUILDERS, ENDINGS, check_ending, ending_of
from attnprobe.errors import UserError

# a sign, digits with or without points between groups of three, a comma, decimals
DECIMAL_COMMA = r"^\s*[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?\s*$"
EMPTY = {"keep_default_na": False, "na_values": [""]}
"""Only an empty cell is null: the words "NA" and "null" are text."""


def read_file(path: Path, how: Reading | None = None, tell: Tell = lambda _: None) -> datasets.Dataset:
    """Read one file into memory with the `datasets` builder of its ending.

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
    options: dict = {"chunksize": 1 << 30} if BUILDERS[ending] == "json" else {}  # one block: types are seen as a whole
    try:
        if BUILDERS[ending] == "excel":
            return read_sheet(path, how, tell)
        if BUILDERS[ending] == "csv":
            return read_cells(path, ending, how, tell)
        if BUILDERS[ending] == "parquet" and pq.read_metadata(path).num_rows == 0:
            raise UserError(f"{path} has no row: expected at least one")
        rows = load_afresh(BUILDERS[ending], path, options)
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
        raise UserError(f"{path} cannot be read: {reason_of(error, path)}") from None


def read_cells(path: Path, ending: str, how: Reading, tell: Tell) -> datasets.Dataset:
    """The rows of a .csv or .tsv file, every cell as text; decimal commas become points."""
    dialect = dialect_of(path, ending, how, tell)
    options: dict = {"sep": dialect.separator, "encoding": dialect.encoding, "skiprows": dialect.skipped}
    head = pd.read_csv(path, nrows=1, **options)
    if not isinstance(head.index, pd.RangeIndex):  # pandas would take the first column for an index
        raise UserError(f"{path} cannot be read: line 2 has more cells than the header line")
    options["features"] = datasets.Features({name: datasets.Value("string") for name in head.columns})
    rows = load_afresh("csv", path, options | EMPTY)
    if how.decimal == "." or (how.decimal is None and dialect.separator == ","):
        return rows
    return with_points(rows, path.name, tell)


def with_points(rows: datasets.Dataset, file: str, tell: Tell) -> datasets.Dataset:
    """The rows with `4.5` for `4,5` in every column of which all cells are such numbers, or whole ones."""
    table, changed = rows.data.table, []
    for place, name in enumerate(table.column_names):
        cells = table.column(place)
        if (
            not pc.any(pc.match_substring(cells, ",")).as_py()
            or not pc.all(pc.match_substring_regex(cells, DECIMAL_COMMA)).as_py()
        ):
            continue
        points = pc.replace_substring(pc.replace_substring(pc.utf8_trim_whitespace(cells), ".", ""), ",", ".")
        table = table.set_column(place, name, points)
        changed.append(name)
    if not changed:
        return rows
    tell(f"{file}: decimal commas in {', '.join(changed)} are read as points, 4,5 as 4.5 (data.decimal=. leaves them)")
    return datasets.Dataset(table)


def read_sheet(path: Path, how: Reading, tell: Tell) -> datasets.Dataset:
    """The rows of one sheet of an .xlsx file, every cell as text."""
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
    frame.columns = [str(name) for name in frame.columns]
    return datasets.Dataset(pa.Table.from_pandas(frame, preserve_index=False))


def load_afresh(builder: str, path: Path, options: dict) -> datasets.Dataset:
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


def reason_of(error: BaseException, path: Path) -> str:
    """Why a file could not be read, in words: the first malformed JSON line, or the innermost error's text."""
    if ending_of(path) in (".jsonl", ".json") and (line := malformed_line(path)):
        return line
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{str(error).strip() or type(error).__name__}. Expected {ENDINGS}, as the file's name says"


def malformed_line(path: Path) -> str | None:
    """The first line of a JSON-lines file that is no JSON object, in words."""
    open_text = gzip.open if path.name.lower().endswith(".gz") else open
    try:
        with open_text(path, "rt", encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    if line.strip() and not isinstance(json.loads(line), dict):
                        return f"line {number} is not a JSON object: {line.strip()[:60]!r}"
                except ValueError as error:
                    return f"line {number} is not JSON ({error}): {line.strip()[:60]!r}"
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        return str(error)
    return None
