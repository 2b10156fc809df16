import gzip
import json

import datasets
import pandas as pd
import pytest

from attnprobe.core.errors import UserError
from attnprobe.data import rows
from attnprobe.data.dialect import Reading, dialect_of
from attnprobe.data.local_files import read_file
from attnprobe.data.module import TextDataModule
from attnprobe.data.sources import FileSource

GERMAN = [
    "Größe und Lage schön; Frühstück übel",
    "für mich, alles in allem, in Ordnung",
    'er sagte "nie wieder"',
]
TEXTS = {
    "cp1252": GERMAN,
    "cp1251": [
        "Очень хороший отель, рекомендую всем",
        "плохо, больше не приедем",
        "завтрак был холодным",
    ],
    "gb18030": ["我们再也不会来了，位置偏僻交通不便", "房间很干净，服务也好", "早餐一般"],
    "cp932": ["とても美味しかったです。駅から近い", "部屋が狭くて残念でした", "また来たいです"],
    "utf-16": GERMAN,
    "utf-8-sig": GERMAN,
    "utf-8": GERMAN,
}


def told(path, how=None):
    said = []
    return read_file(path, how, said.append), said


@pytest.mark.parametrize("encoding", TEXTS)
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separator_and_encoding_are_found_out_and_said(tmp_path, encoding, separator):
    texts = TEXTS[encoding] * 4
    labels = ["4,5", "1,0", "3"] * 4
    frame = pd.DataFrame({"text": texts, "stars": labels})
    path = tmp_path / "reviews.csv"
    path.write_bytes(frame.to_csv(index=False, sep=separator).encode(encoding))
    table, said = told(path)
    assert table["text"][:] == texts
    assert table["stars"][:] == (
        [one.replace(",", ".") for one in labels] if separator != "," else labels
    )
    about = " ".join(said)
    assert ("separated by" in about) == (separator != ",")
    assert ("not UTF-8; read as" in about) == (not encoding.startswith("utf"))
    assert ("decimal commas in stars" in about) == (separator != ",")


def test_what_is_given_is_not_guessed(tmp_path):
    path = tmp_path / "odd.csv"
    path.write_bytes("text#stars\nschön, gut; fein#4,5\n".encode("cp1250"))
    table, said = told(path, Reading(separator="#", encoding="cp1250", decimal="."))
    assert (table[0], said) == ({"text": "schön, gut; fein", "stars": "4,5"}, [])
    with pytest.raises(UserError, match=r"data\.encoding=cp9999: expected .*such as utf-8"):
        Reading(encoding="cp9999")
    with pytest.raises(UserError, match=r"data\.separator=ab: expected one ASCII character"):
        Reading(separator="ab")
    with pytest.raises(UserError, match=r"data\.decimal=;: expected"):
        Reading(decimal=";")
    with pytest.raises(UserError, match=r"odd\.csv is not in ascii .*: give data\.encoding"):
        told(path, Reading(encoding="ascii"))


def test_excels_own_first_line_and_a_packed_file(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("text;price;label\n1,5 is fine;1.234,50;1\nso so;7;0\n", encoding="utf-8")
    table, _ = told(path)
    assert (table["price"][:], table["text"][:]) == (["1234.50", "7"], ["1,5 is fine", "so so"])
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress(b'sep=;\ntext;label\n"a; b";1\nc;0\n', mtime=0))
    assert told(path)[0]["text"][:] == ["a; b", "c"]


def test_one_damaged_row_does_not_hide_the_separator_nor_a_late_byte_the_encoding(tmp_path):
    content = b"text,label\n" + b"plain,1\n" * 20_000 + "für,0\n".encode("cp1252")
    assert dialect_of(tmp_path / "rows.csv", content, ",;", Reading()).encoding == "cp1252"
    path = tmp_path / "rows.csv"
    path.write_text("text;label\n" + "a, b;1\n" * 30 + "x;y;z\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"rows\.csv cannot be read: .*line 32, saw 3"):
        told(path)


def test_a_spreadsheet(tmp_path):
    path = tmp_path / "Kundenfeedback März.xlsx"
    with pd.ExcelWriter(path) as book:
        pd.DataFrame({"Größe": ["gut", "NA", None], "Sterne": [4.5, 3, 1]}).to_excel(
            book, sheet_name="Eins", index=False
        )
        pd.DataFrame({"x": [1]}).to_excel(book, sheet_name="Zwei", index=False)
    table, said = told(path)
    assert table["Größe"][:] == ["gut", "NA", None]
    assert table["Sterne"][:] == ["4.5", "3", "1"]
    assert said == [
        f"{path.name}: read its first sheet, 'Eins' of Eins, Zwei (data.sheet=… takes another)"
    ]
    second, said = told(path, Reading(sheet="Zwei"))
    assert (second["x"][:], said) == (["1"], [])
    with pytest.raises(UserError, match=r"data\.sheet=Drei: .* has the sheets Eins, Zwei"):
        told(path, Reading(sheet="Drei"))
    assert FileSource(path).load()["train"].num_rows == 3


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


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_nested_columns_by_their_path(tmp_path, ending):
    path = tmp_path / f"rows.{ending}"
    if ending == "jsonl":
        path.write_text("\n".join(map(json.dumps, NESTED)), encoding="utf-8")
    else:
        pd.DataFrame(NESTED).to_parquet(path)
    table = read_file(path)
    assert rows.column(table, "doc.body", "data.text") == ["a film", "b"]
    assert rows.column(table, "notes.0.label", "data.label") == ["good", None]
    for missing in ("doc.title", "nothing.at.all", "notes.0.kind", "id.x"):
        with pytest.raises(
            UserError, match=r"there is no such column.* The columns are id, doc\.body, notes"
        ):
            rows.column(table, missing, "data.text")
    table = datasets.Dataset.from_dict({"doc.body": ["whole"], "doc": [{"body": "inner"}]})
    assert rows.column(table, "doc.body", "data.text") == [
        "whole"
    ]  # a column whose name holds a point is itself


def test_columns_are_checked_before_anything_is_trained(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"doc": {"body": "a"}, "label": 1}), encoding="utf-8")
    TextDataModule("rows", FileSource(path), text="doc.body").check_files()
    with pytest.raises(
        UserError, match=r"data\.text=doc\.boody: there is no such column; did you mean doc\.body\?"
    ):
        TextDataModule("rows", FileSource(path), text="doc.boody").check_files()
    with pytest.raises(UserError, match=r"data\.vectors|nowhere"):
        TextDataModule(
            "rows", FileSource(path), text="doc.body", vectors="nowhere.txt"
        ).check_files()
