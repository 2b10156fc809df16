import json

import datasets
import pandas as pd
import pytest

from attnprobe.core.errors import UserError
from attnprobe.data import rows
from attnprobe.data.dialect import Reading
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
    table = read_file(workbook, Reading(sheet="Zwei"), guesses.append)
    assert table["x"][:] == ["1"]
    assert guesses == []


def test_a_sheet_that_does_not_exist_is_named(workbook):
    with pytest.raises(UserError, match=r"data\.sheet=Drei: .* has the sheets Eins, Zwei"):
        read_file(workbook, Reading(sheet="Drei"))


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
