import json

import datasets
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attnprobe.core.errors import UserError
from attnprobe.data import rows
from attnprobe.data.dialect import FileFormat
from attnprobe.data.local_files import read_file
from attnprobe.data.module import TextDataModule
from attnprobe.data.sources import FileSource


@pytest.fixture
def workbook(tmp_path):
    path = tmp_path / "Kundenfeedback März.xlsx"
    first = pd.DataFrame({"Größe": ["gut", "NA", None], "Sterne": [4.5, 3, 1]})
    with pd.ExcelWriter(path) as book:
        first.to_excel(book, sheet_name="Eins", index=False)
        pd.DataFrame({"x": [1]}).to_excel(book, sheet_name="Zwei", index=False)
    return path


def test_the_first_sheet_of_a_spreadsheet_is_read_and_told(workbook):
    guesses = []
    table = read_file(workbook, None, guesses.append)
    assert table["Größe"][:] == ["gut", "NA", None]
    assert table["Sterne"][:] == ["4.5", "3", "1"]
    assert guesses == [
        f"{workbook.name}: read its first sheet, 'Eins' of Eins, Zwei (data.sheet=… takes another)"
    ]
    assert FileSource(workbook).load()["train"].num_rows == 3


def test_a_named_sheet_is_read_without_a_guess(workbook):
    guesses = []
    table = read_file(workbook, FileFormat(sheet="Zwei"), guesses.append)
    assert table["x"][:] == ["1"]
    assert guesses == []


def test_a_sheet_that_does_not_exist_is_named(workbook):
    with pytest.raises(UserError, match=r"data\.sheet=Drei: .* has the sheets Eins, Zwei"):
        read_file(workbook, FileFormat(sheet="Drei"))


def test_without_openpyxl_the_message_says_what_to_do(tmp_path, monkeypatch):
    (tmp_path / "rows.xlsx").write_bytes(b"x")
    monkeypatch.setattr("attnprobe.data.local_files.find_spec", lambda name: None)
    with pytest.raises(
        UserError, match=r"pip install 'attnprobe\[excel\]'; or save it in Excel as CSV UTF-8"
    ):
        read_file(tmp_path / "rows.xlsx")


NESTED = [
    {"id": 1, "doc": {"body": "a film"}, "notes": [{"label": "good"}]},
    {"id": 2, "doc": {"body": "b"}, "notes": []},
]


@pytest.fixture(params=["jsonl", "parquet"])
def nested(tmp_path, request):
    path = tmp_path / f"rows.{request.param}"
    if request.param == "jsonl":
        path.write_text("\n".join(map(json.dumps, NESTED)), encoding="utf-8")
    else:
        pd.DataFrame(NESTED).to_parquet(path)
    return read_file(path)


def test_nested_columns_are_read_by_their_path(nested):
    assert rows.column(nested, "doc.body", "data.text") == ["a film", "b"]
    assert rows.column(nested, "notes.0.label", "data.label") == ["good", None]


@pytest.mark.parametrize("missing", ["doc.title", "nothing.at.all", "notes.0.kind", "id.x"])
def test_a_path_that_leads_nowhere_is_named_beside_the_columns(nested, missing):
    with pytest.raises(
        UserError, match=r"there is no such column.* The columns are id, doc\.body, notes"
    ):
        rows.column(nested, missing, "data.text")


def test_a_column_whose_name_holds_a_point_is_itself():
    table = datasets.Dataset.from_dict({"doc.body": ["whole"], "doc": [{"body": "inner"}]})
    assert rows.column(table, "doc.body", "data.text") == ["whole"]


@pytest.fixture
def file_source(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"doc": {"body": "a"}, "label": 1}), encoding="utf-8")
    return FileSource(path)


def test_columns_that_exist_pass_the_check_before_the_training(file_source):
    TextDataModule("rows", file_source, text="doc.body").check_files()


def test_a_misspelt_column_is_named_before_anything_is_trained(file_source):
    data = TextDataModule("rows", file_source, text="doc.boody")
    with pytest.raises(
        UserError, match=r"data\.text=doc\.boody: there is no such column; did you mean doc\.body\?"
    ):
        data.check_files()


def test_missing_word_vectors_are_named_before_anything_is_trained(file_source):
    data = TextDataModule("rows", file_source, text="doc.body", vectors="nowhere.txt")
    with pytest.raises(UserError, match=r"data\.vectors|nowhere"):
        data.check_files()


def test_excels_escapes_in_a_spreadsheet_are_characters(tmp_path):
    # Excel writes a carriage return so, and an underscore that would begin an escape
    path = tmp_path / "rows.xlsx"
    pd.DataFrame({"text": ["good_x000D_\nfilm", "_x005F_x0041_", "_x41_"]}).to_excel(
        path, index=False
    )
    assert read_file(path)["text"][:] == ["good\r\nfilm", "_x0041_", "_x41_"]


LABELS = datasets.Features(
    {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["neg", "pos"])}
)


def test_numbers_that_a_parquet_file_names_are_read_by_their_names(tmp_path):
    path = tmp_path / "rows.parquet"
    table = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [1, 0]}, features=LABELS)
    table.to_parquet(path)
    guesses = []
    table = read_file(path, None, guesses.append)
    assert rows.column(table, "label", "data.label") == ["pos", "neg"]
    assert guesses == [
        "rows.parquet: the file names the numbers in label, which are read so: 0 neg, 1 pos"
    ]


@pytest.mark.parametrize(
    "note",
    [
        b"no JSON",
        b"[]",
        b'{"info": {"features": []}}',
        b'{"info": {"features": {"label": {"names": [3, null]}, "text": 5}}}',
        b'{"info": {"features": {"label": {"names": ["only one"]}}}}',  # the file holds a 1
        b'{"info": {"features": {"label": {"names": ["twice", "twice"]}}}}',
    ],
)
def test_a_note_of_names_that_does_not_fit_says_nothing(tmp_path, note):
    path = tmp_path / "rows.parquet"
    table = pa.table({"text": ["a", "b"], "label": [1, 0]})
    pq.write_table(table.replace_schema_metadata({b"huggingface": note}), path)
    assert rows.column(read_file(path), "label", "data.label") == [1, 0]
