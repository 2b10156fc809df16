"""The user's files before anything heavy is imported: whether they are there, and have the columns asked for."""

import csv
import json
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from attnprobe.data.dialect import Reading, dialect_of, opened_text
from attnprobe.data.files import check_ending, files_of, find_path
from attnprobe.errors import UserError
from attnprobe.schema.words import listed, nearest
from attnprobe.shown import visible

COLUMNS = ("text", "label", "question", "candidates", "rationale", "annotators", "counterfactual")
"""Settings of the data that name a column."""
LINES = 200
"""JSON objects that are looked at: a column may be missing in the first ones."""


def check_files(settings: Mapping[str, Any]) -> None:
    """Refuse local files that are not there, cannot be read or lack a column, as far as their beginning shows it.

    Args:
        settings: those of the data, resolved. Data sets that do not come from files of the user's pass.

    Raises:
        UserError: names the file or the column.
    """
    if settings.get("vectors") is not None:
        find_path(settings["vectors"])
    if not str(settings["source"]["_target_"]).endswith(".FileSource"):
        return
    wanted = [(f"data.{one}", settings[one]) for one in COLUMNS if settings.get(one) is not None]
    wanted += [("data.filters column", name) for name in settings.get("filters") or {}]
    how = Reading(**{one: settings["source"].get(one) for one in ("separator", "encoding", "decimal", "sheet")})
    for path in files_of(settings["source"].get("path")).values():
        columns = columns_of(path, check_ending(path), how)
        if columns is None:
            continue
        for setting, name in wanted:
            if name not in columns:
                do_without = "" if setting in ("data.text", "data.label") else f", or do without: {setting}=null"
                raise UserError(
                    f"{setting}={visible(str(name))}: there is no such column in {path}"
                    f"{nearest(str(name), columns) or '.'} The columns are {visible(listed(columns))}; choose one with "
                    f"{setting}=NAME{do_without}"
                )


def columns_of(path: Path, ending: str, how: Reading) -> list[str] | None:
    """The names of a file's columns; None where its beginning does not say them, which the reader then will."""
    try:
        if ending == ".parquet":
            import pyarrow.parquet as pq

            return columns_of_schema(pq.read_schema(path))
        if ending == ".xlsx":
            return columns_of_sheet(path, how.sheet)
        if ending in (".csv", ".tsv"):
            dialect = dialect_of(path, ending, how)
            with opened_text(path, dialect.encoding) as lines:
                for _ in range(dialect.skipped):
                    next(lines, None)
                row = next(csv.reader(lines, delimiter=dialect.separator), None)
                return row or None
        with opened_text(path, "utf-8") as lines:
            return columns_of_objects(lines) if ending == ".jsonl" else None
    except (OSError, EOFError, ValueError, csv.Error, zlib.error) as error:
        if isinstance(error, UserError):
            raise
        return None  # the reader says what is wrong with it


def columns_of_schema(fields: Iterable[Any]) -> list[str] | None:
    """The columns of a parquet file, those within others by their path; None where one holds lists of objects."""
    import pyarrow as pa

    names = []
    for one in fields:
        names.append(one.name)
        if pa.types.is_struct(one.type):
            below = columns_of_schema(one.type)
            if below is None:
                return None
            names += [f"{one.name}.{name}" for name in below]
        elif pa.types.is_list(one.type) and pa.types.is_struct(one.type.value_type):
            return None
    return names


def columns_of_sheet(path: Path, sheet: str | None) -> list[str] | None:
    """The first row of a sheet; None where it does not look like names."""
    import warnings
    from zipfile import BadZipFile

    import openpyxl

    try:
        with warnings.catch_warnings(action="ignore"):  # about styles and validations that nobody asks for
            book = openpyxl.load_workbook(path, read_only=True)
    except (BadZipFile, KeyError, ValueError, OSError):
        return None
    try:
        if sheet is not None and sheet not in book.sheetnames:
            raise UserError(f"data.sheet={visible(sheet)}: {path} has the sheets {visible(listed(book.sheetnames))}")
        rows = book[sheet or book.sheetnames[0]].iter_rows(max_row=1, values_only=True)
        return [str(cell) for cell in next(rows, ()) if cell is not None] or None
    finally:
        book.close()


def columns_of_objects(lines: Iterable[str]) -> list[str] | None:
    """The keys of a short file's objects, those of nested ones by their path; None where there are more lines than are
    looked at, or lists among the values, of which a place may be named."""
    names: dict[str, None] = {}
    for number, line in enumerate(lines):
        if number == LINES:
            return None
        if line.strip():
            one = json.loads(line)
            if not isinstance(one, dict) or holds_list(one):
                return None
            names |= dict.fromkeys(paths(one))
    return list(names) or None


def paths(one: Mapping[str, Any]) -> list[str]:
    """Every key of an object, and those of the objects in it by their path.

    >>> paths({"id": 1, "doc": {"body": "a"}})
    ['id', 'doc', 'doc.body']
    """
    named = []
    for key, value in one.items():
        named.append(key)
        named += [f"{key}.{below}" for below in paths(value)] if isinstance(value, dict) else []
    return named


def holds_list(one: Mapping[str, Any]) -> bool:
    """Whether a list of objects is anywhere in an object."""
    return any(
        holds_list(value)
        if isinstance(value, dict)
        else isinstance(value, list) and any(isinstance(x, dict) for x in value)
        for value in one.values()
    )
