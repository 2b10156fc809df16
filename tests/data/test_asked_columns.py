"""Only the columns that settings name are read, of whatever type the file has them."""

import datetime
import json
import uuid

import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attnprobe.core.errors import UserError
from attnprobe.data.local_files import read_file
from attnprobe.data.module import TextDataModule
from attnprobe.data.sources import FileSource

ROWS = {
    "text": ["good film", "bad film"] * 10,
    "label": ["1", "0"] * 10,
    "more": ["x", "y"] * 10,
}
WRITE = {
    "csv": lambda frame, path: frame.to_csv(path, index=False),
    "xlsx": lambda frame, path: frame.to_excel(path, index=False),
    "jsonl": lambda frame, path: frame.to_json(path, orient="records", lines=True),
    "parquet": lambda frame, path: frame.to_parquet(path),
}


@pytest.mark.parametrize("ending", WRITE)
def test_columns_that_nobody_asks_for_are_not_read(tmp_path, ending):
    path = tmp_path / f"rows.{ending}"
    WRITE[ending](pd.DataFrame(ROWS), path)
    assert read_file(path, columns=["label", "text"]).column_names == ["text", "label"]
    assert read_file(path, columns=["text", "absent"]).column_names == [*ROWS]


def test_a_run_reads_the_columns_that_its_settings_name(tmp_path):
    path = tmp_path / "rows.parquet"
    table = pa.table({**ROWS, "doc": [{"id": 1}] * 20, "blob": [b"\xff"] * 20})
    pq.write_table(table, path)
    source = FileSource(path)
    data = TextDataModule("rows", source, group="doc.id", filters={"more": "x"})
    with pytest.raises(UserError, match=r"one class|too few"):
        data.setup()
    assert set(source.columns) == {"text", "label", "doc.id", "more"}
    assert set(source.load()["train"].column_names) == {"text", "label", "doc", "more"}


def test_a_null_character_in_a_column_that_nobody_asks_for_is_no_reason_to_refuse(tmp_path):
    (tmp_path / "rows.csv").write_bytes(b"text,label,more\na,1,x\0y\nb,0,z\n")
    TextDataModule("rows", FileSource(tmp_path / "rows.csv")).check_files()


def extension(kind, storage):
    return pa.ExtensionArray.from_storage(kind, storage)


IDENTITY = uuid.UUID(int=7)
TYPES = {
    "bytes that are text": (pa.array(["ü".encode(), None]), ["ü", None]),
    "large text": (pa.array(["a", None], pa.large_string()), ["a", None]),
    "text view": (pa.array(["a", None], pa.string_view()), ["a", None]),
    "categories": (pa.array(["a", None]).dictionary_encode(), ["a", None]),
    "a date": (pa.array([datetime.date(2020, 1, 2), None]), [datetime.date(2020, 1, 2), None]),
    "a map": (
        pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
        [[{"key": "k", "value": 1}], None],
    ),
    "truth values": (extension(pa.bool8(), pa.array([1, None], pa.int8())), [True, None]),
    "identifiers": (
        extension(pa.uuid(), pa.array([IDENTITY.bytes, None], pa.binary(16))),
        [str(IDENTITY), None],
    ),
}


@pytest.mark.parametrize("name", TYPES)
def test_a_column_of_a_parquet_file_is_read_whatever_its_type(tmp_path, name):
    column, expected = TYPES[name]
    pq.write_table(pa.table({"value": column}), tmp_path / "rows.parquet")
    assert read_file(tmp_path / "rows.parquet", columns=["value"])["value"][:] == expected


def test_a_type_that_cannot_be_read_hinders_no_other_column(tmp_path):
    path = tmp_path / "rows.parquet"
    views = pa.array([["a"], ["b"]], pa.list_view(pa.string()))
    pq.write_table(pa.table({"text": ["a", "b"], "views": views}), path)
    assert read_file(path).column_names == ["text"]
    assert read_file(path, columns=["text"]).column_names == ["text"]
    with pytest.raises(UserError, match=r"column views has the type list_view.* save it as text"):
        read_file(path, columns=["views"])


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (
            {"body": "a", "id": 1},
            r"expected text, .*a value within it is named .*data\.text=text\.body",
        ),
        (["a", "b"], r"expected text, .*data\.sentences=column"),
    ],
)
def test_a_nested_value_that_is_no_text_is_named_with_what_to_do(tmp_path, cell, message):
    lines = [json.dumps({"text": cell, "label": label}) for label in "01" * 20]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(UserError, match=message):
        TextDataModule("rows", FileSource(tmp_path / "rows.jsonl")).setup()


def workbook(path, rows):
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    book.save(path)
    return path


def test_a_formula_that_no_spreadsheet_has_calculated_is_named(tmp_path):
    rows = [
        ["text", "label", "sum"],
        ["a", 1, "=1+1"],
        ["b", "=A2", None],
    ]
    path = workbook(tmp_path / "rows.xlsx", rows)
    message = r"sheet Sheet: cell B3 holds the formula '=A2' and no value: open the file in Excel"
    with pytest.raises(UserError, match=message):
        read_file(path, columns=["text", "label"])
    assert read_file(path, columns=["text"])["text"][:] == ["a", "b"]


def test_values_of_a_sheet_are_texts_as_a_person_sees_them(tmp_path):
    day = datetime.datetime(2020, 1, 2)
    rows = [
        [None],
        ["text", "value"],
        [3.0, True],
        [None, None],
        [1.5, day],
        ["=x", "#N/A"],
    ]
    rows[-1][0] = "'=x"
    path = workbook(tmp_path / "rows.xlsx", rows)
    notes = []
    table = read_file(path, None, notes.append)
    assert table["text"][:] == ["3", "1.5", "'=x"]
    assert table["value"][:] == ["True", "2020-01-02 00:00:00", None]
    assert notes == ["rows.xlsx: cells with an error such as #N/A, read as empty: 1"]
