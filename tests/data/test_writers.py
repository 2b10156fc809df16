"""Tables as the programs write them that people have texts in: every row and cell is read back.

The files in `dialects` were written by PostgreSQL 15, Spark 4.3, DuckDB 2.0 and SQLite 3.40 from
`rows.json`, pandas and openpyxl write theirs here, and the others are written as their manuals say.
"""

import csv
import json
from pathlib import Path

import pandas as pd
import pytest

from attnprobe.data.local_files import read_file

DIALECTS = Path(__file__).parent / "dialects"
NAMES = ["text", "stars", "label"]
ROWS = json.loads((DIALECTS / "rows.json").read_text(encoding="utf-8"))
"""Cells with separators, marks, backslashes, line ends, spaces, and one that is missing."""
ON_ONE_LINE = [row for row in ROWS if not {"\n", "\t"} & set(row[0] or "")]
"""Those that a file without any quoting can hold."""


def read(path):
    """The rows of a file, and the guesses that were told."""
    guesses = []
    table = read_file(path, None, guesses.append)
    columns = [table[name][:] for name in NAMES]
    rows = [list(row) for row in zip(*columns, strict=True)]
    return rows, guesses


def stripped(rows):
    """Spark's writer leaves the spaces around a cell out."""
    return [[cell and cell.strip(" ") for cell in row] for row in rows]


def with_missing_as(word, rows):
    return [[word if cell is None else cell for cell in row] for row in rows]


WRITTEN = {
    "pg_text.tsv": (ROWS, "backslashes begin escapes"),
    "pg_text_bar.csv": (ROWS, "backslashes begin escapes"),
    "pg_csv.csv": (ROWS, None),
    "pg_csv_backslash.csv": (ROWS, "cells are in quotation marks"),
    "pg_csv_forced.csv": (ROWS, None),
    "psql_csv.csv": (ROWS, None),
    "spark_default.csv": (stripped(ROWS), "cells are in quotation marks"),
    "spark_quote_all.csv": (stripped(ROWS), "cells are in quotation marks"),
    "spark_tab.csv": (stripped(ROWS), "cells are in quotation marks"),
    "spark_doubled.csv": (stripped(ROWS), None),
    "spark_unescaped.csv": (stripped(ROWS), "cells are in quotation marks"),
    "spark_semicolon_null.csv": (stripped(ROWS), "cells are in quotation marks"),
    "duckdb_copy.csv": (ROWS, None),
    "duckdb_tab_all.tsv": (ROWS, None),
    "sqlite_csv.csv": (ROWS, None),
    "sqlite_tabs.tsv": (ON_ONE_LINE[:-1], "quotation marks are part of the texts"),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_file_of_a_database_is_read_as_it_was_written(name):
    expected, note = WRITTEN[name]
    rows, guesses = read(DIALECTS / name)
    assert rows == expected
    quoting_notes = [guess for guess in guesses if "data.quoting" in guess]
    assert [note in guess for guess in quoting_notes] == ([True] if note else [])


def frame(rows):
    return pd.DataFrame(rows, columns=NAMES)


def pandas_csv(**options):
    return lambda rows: frame(rows).to_csv(index=False, **options)


def enclosed(cell, marks):
    return marks + cell.replace('"', '""') + marks


def spreadsheet(separator, *, all_texts=False, triggers="", end="\r\n", first_line=""):
    """As Excel and LibreOffice save a table: marks where a cell needs them, or around all texts."""

    def write(rows):
        lines = [first_line] if first_line else []
        for row in [NAMES, *rows]:
            cells = []
            for name, cell in zip(NAMES, row, strict=True):
                text = cell or ""
                is_text = all_texts and (row is NAMES or name != "stars")
                needs_marks = set(text) & {separator, '"', "\n", *triggers}
                cells.append(enclosed(text, '"') if needs_marks or is_text else text)
            lines.append(separator.join(cells))
        return end.join([*lines, ""])

    return write


def mysql_outfile(separator, marks=""):
    """`SELECT … INTO OUTFILE`: a backslash before itself, and before marks or both separators."""
    special = {"\\", marks} if marks else {"\\", separator, "\n"}

    def cell_of(cell):
        if cell is None:
            return r"\N"
        escaped = "".join(f"\\{letter}" if letter in special else letter for letter in cell)
        return marks + escaped + marks

    def write(rows):
        lines = [separator.join(map(cell_of, row)) for row in [NAMES, *rows]]
        return "\n".join([*lines, ""])

    return write


def mysql_batch(rows):
    """`mysql --batch`: tabs, and escapes for what would break the line."""
    escapes = str.maketrans({"\\": r"\\", "\n": r"\n", "\t": r"\t", "\0": r"\0"})
    lines = []
    for row in [NAMES, *with_missing_as("NULL", rows)]:
        cells = [cell.translate(escapes) for cell in row]
        lines.append("\t".join(cells))
    return "\n".join([*lines, ""])


def r_table(separator, *, method, row_names, header_of_names=None, quote='"'):
    """`write.csv` and `write.table`: marks around all texts, numbers bare, row names by default."""
    mark_within = {"double": '""', "escape": r"\""}[method]

    def text_of(cell):
        return quote + (cell.replace('"', mark_within) if quote else cell) + quote

    def write(rows):
        header = [text_of(name) for name in NAMES]
        if header_of_names is not None:
            header.insert(0, header_of_names)
        lines = [separator.join(header)]
        for number, (text, stars, label) in enumerate(rows, 1):
            cells = ["NA" if text is None else text_of(text), stars, text_of(label)]
            if row_names:
                cells.insert(0, text_of(str(number)))
            lines.append(separator.join(cells))
        return "\n".join([*lines, ""])

    return write


def unquoted(separator, end="\n"):
    """As corpora are written: cells joined by separators, and nothing else."""

    def write(rows):
        lines = []
        for row in [NAMES, *rows]:
            cells = [cell or "" for cell in row]
            lines.append(separator.join(cells))
        return end.join([*lines, ""])

    return write


NA = with_missing_as("NA", ROWS)
SAYABLE = [row for row in NA if "\\" not in row[0] or row[0].startswith("in C:")]
"""R's `qmethod="escape"` does not escape its escape: nobody can read the others back."""
WRITERS = {
    "pandas": ("csv", pandas_csv(), "utf-8", ROWS),
    "pandas-semicolon": ("csv", pandas_csv(sep=";"), "utf-8", ROWS),
    "pandas-tab": ("tsv", pandas_csv(sep="\t"), "utf-8", ROWS),
    "pandas-all": ("csv", pandas_csv(quoting=csv.QUOTE_ALL), "utf-8", ROWS),
    "pandas-windows": ("csv", pandas_csv(lineterminator="\r\n"), "cp1252", ROWS),
    "pandas-utf16": ("csv", pandas_csv(sep=";"), "utf-16", ROWS),
    "pandas-escaped": (
        "csv",
        pandas_csv(escapechar="\\", doublequote=False, quoting=csv.QUOTE_ALL),
        "utf-8",
        ROWS,
    ),
    "excel": ("csv", spreadsheet(","), "cp1252", ROWS),
    "excel-europe": ("csv", spreadsheet(";"), "cp1252", ROWS),
    "excel-utf8": ("csv", spreadsheet(","), "utf-8-sig", ROWS),
    "excel-unicode-text": ("tsv", spreadsheet("\t", triggers=","), "utf-16", ROWS),
    "excel-text": ("tsv", spreadsheet("\t", triggers=","), "cp1252", ROWS),
    "excel-sep": ("csv", spreadsheet(";", first_line="sep=;"), "utf-8-sig", ROWS),
    "libreoffice": ("csv", spreadsheet(",", end="\n"), "utf-8", ROWS),
    "libreoffice-all-texts": ("csv", spreadsheet(",", all_texts=True, end="\n"), "utf-8", ROWS),
    "libreoffice-tab": ("csv", spreadsheet("\t", end="\n"), "utf-8", ROWS),
    "mysql-outfile": ("tsv", mysql_outfile("\t"), "utf-8", ROWS),
    "mysql-outfile-commas": ("csv", mysql_outfile(","), "utf-8", ROWS),
    "mysql-enclosed": ("csv", mysql_outfile(",", '"'), "utf-8", ROWS),
    "mysql-batch": ("tsv", mysql_batch, "utf-8", with_missing_as("NULL", ROWS)),
    "R-write.csv": (
        "csv",
        r_table(",", method="double", row_names=True, header_of_names='""'),
        "utf-8",
        NA,
    ),
    "R-write.csv2": (
        "csv",
        r_table(";", method="double", row_names=False),
        "utf-8",
        NA,
    ),
    "R-write.table": ("tsv", r_table("\t", method="escape", row_names=True), "utf-8", SAYABLE),
    "R-write.table-commas": (
        "csv",
        r_table(",", method="escape", row_names=False),
        "utf-8",
        SAYABLE,
    ),
    "R-unquoted": (
        "tsv",
        r_table("\t", method="double", row_names=False, quote=""),
        "utf-8",
        with_missing_as("NA", ON_ONE_LINE),
    ),
    "corpus": ("tsv", unquoted("\t"), "utf-8", ON_ONE_LINE),
    "corpus-windows": ("tsv", unquoted("\t", "\r\n"), "utf-8", ON_ONE_LINE),
    "corpus-csv": ("csv", unquoted("\t"), "utf-8", ON_ONE_LINE),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_is_read_as_its_program_wrote_it(tmp_path, name):
    ending, write, encoding, rows = WRITERS[name]
    path = tmp_path / f"rows.{ending}"
    path.write_bytes(write(rows).encode(encoding))
    assert read(path)[0] == rows


@pytest.mark.parametrize("ending", ["xlsx", "parquet", "jsonl"])
def test_a_file_with_types_is_read_as_it_was_written(tmp_path, ending):
    path = tmp_path / f"rows.{ending}"
    write = {
        "xlsx": lambda: frame(ROWS).to_excel(path, index=False),
        "parquet": lambda: frame(ROWS).to_parquet(path),
        "jsonl": lambda: frame(ROWS).to_json(path, orient="records", lines=True),
    }
    write[ending]()
    assert read(path)[0] == ROWS
