"""The user's files before anything heavy is imported: whether they are there, and have the columns asked for."""

import csv
import gzip
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from attnprobe.data.files import check_ending, files_of, find_path
from attnprobe.errors import UserError
from attnprobe.schema.words import listed, nearest
from attnprobe.shown import visible

COLUMNS = ("text", "label", "question", "candidates", "rationale")
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
    for path in files_of(settings["source"].get("path")).values():
        columns = columns_of(path, check_ending(path))
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


def columns_of(path: Path, ending: str) -> list[str] | None:
    """The names of a file's columns; None where its beginning does not say them, which the reader then will."""
    try:
        if ending == ".parquet":
            import pyarrow.parquet as pq

            return list(pq.read_schema(path).names)
        with text_of(path) as lines:
            if ending in (".csv", ".tsv"):
                row = next(csv.reader(lines, delimiter="\t" if ending == ".tsv" else ","), None)
                return row or None
            return columns_of_objects(lines) if ending == ".jsonl" else None
    except (OSError, EOFError, ValueError, csv.Error):
        return None  # the reader says what is wrong with it


@contextmanager
def text_of(path: Path) -> Iterator[IO[str]]:
    """The file as text, unpacked where it ends in .gz."""
    unpack = gzip.open if path.name.lower().endswith(".gz") else open
    with unpack(path, "rt", encoding="utf-8-sig", newline="") as lines:
        yield lines


def columns_of_objects(lines: IO[str]) -> list[str] | None:
    """The keys of a short file's objects; None where there are more than are looked at."""
    names: dict[str, None] = {}
    for number, line in enumerate(lines):
        if number == LINES:
            return None
        if line.strip():
            one = json.loads(line)
            if not isinstance(one, dict):
                return None
            names |= dict.fromkeys(one)
    return list(names) or None
