import gzip
import json
import zipfile

import datasets
import huggingface_hub
import pandas as pd
import pytest

from attnprobe.core.errors import UserError
from attnprobe.data.local_files import read_file
from attnprobe.data.sources import FileSource, FirstAvailable, HubSource
from tests.data.toys import ready

ROWS = [
    {"text": "a fine film", "label": 1},
    {"text": "NA", "label": 0},
    {"text": 'so "bad", really', "label": 0},
]


def write(path):
    """Write the rows in the form that the path's ending says."""
    frame = pd.DataFrame(ROWS)
    if ".parquet" in path.suffixes:
        content = frame.to_parquet()
    elif ".jsonl" in path.suffixes:
        content = "\n".join(json.dumps(row) for row in ROWS).encode()
    else:
        content = frame.to_csv(index=False, sep="\t" if ".tsv" in path.suffixes else ",").encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def parquet(**columns):
    return pd.DataFrame(columns).to_parquet(index=False)


@pytest.mark.parametrize(
    "ending", ["jsonl", "jsonl.gz", "csv", "csv.gz", "tsv", "tsv.gz", "parquet"]
)
def test_every_format_gives_the_same_rows(tmp_path, ending):
    rows = read_file(write(tmp_path / f"odd [name]*.{ending}"))
    assert rows["text"][:] == [row["text"] for row in ROWS]
    assert [int(label) for label in rows["label"]] == [1, 0, 0]


@pytest.fixture
def folder(tmp_path):
    for name in ("train.csv", "dev.jsonl", "test.parquet"):
        write(tmp_path / name)
    return tmp_path


def test_a_folder_has_a_file_for_each_split(folder):
    assert list(FileSource(folder).load()) == ["train", "validation", "test"]


def test_files_may_be_named_for_their_splits(folder):
    files = {"test": str(folder / "dev.jsonl"), "train": str(folder / "train.csv")}
    assert list(FileSource(files).load()) == ["train", "test"]


def test_relative_paths_are_looked_up_in_the_data_folder(folder, monkeypatch):
    monkeypatch.setenv("ATTNPROBE_DATA_DIR", str(folder.parent))
    assert FileSource(folder.name).files()["train"] == folder / "train.csv"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.xls", b"x", r"ends in '\.xls'; expected \.jsonl.* Save it as \.xlsx"),
        ("rows.xlsx", b"x", "cannot be read as .xlsx: File is not a zip file"),
        ("rows.csv", b"", "is empty"),
        ("rows.csv", b"text,label\n", "has no row"),
        ("rows.jsonl", b"\n\n", "has no row"),
        ("rows.jsonl", b'{"text": "a"}\n{"text": \n', "line 2 is not JSON .*: '{\"text\":'"),
        ("rows.jsonl", b'{"text": "a"}\n[1]\n', "entry 2 is not a JSON object: '.1.'"),
        ("rows.csv", b"text,label\na,1\nb,1,2\n", "cannot be read: .*line 3"),
        ("rows.csv", b"text,label\na,1,2\nb,1,2\n", "line 2 has more cells than the header"),
        ("rows.jsonl", b'{"text": "a b\xd2", "label": "1"}\n', "cannot be read: .*utf-8"),
        ("rows.parquet", parquet(text=[], label=[]), "has no row"),
        ("rows.parquet", b"no parquet", "cannot be read"),
        ("rows.jsonl.gz", b"no gzip", "cannot be read: Not a gzipped file"),
        ("rows.csv.gz", gzip.compress(b"text,label\na,1\n" * 99, mtime=0)[:-9], "cannot be read"),
        (
            "rows.jsonl",
            b'{"text": "a"}\n{"text": ' + b"[" * 50_000,
            "line 2 is not JSON .*recursion",
        ),
        ("rows.json", b"null", "entry 1 is not a JSON object: 'None'"),
        ("rows.jsonl", b'"a"\n"b"\n', "entry 1 is not a JSON object: 'a'"),
        ("rows.jsonl", b'{"text": "\\ud83d"}', r"half a character .* in '\\ud83d'"),
        ("rows.json", b'{"label": ' + b"1" * 5000 + b"}", "cannot be read: .*5000 digits"),
        (
            "rows.csv.gz",
            gzip.compress(b"text,label\n" + b"a,1\n" * 4000, mtime=0),
            "unpacks to more than 10,000",
        ),
        ("rows.parquet", parquet(text=["a"] * 2_000_000), "2,000,000 rows in .* bytes"),
    ],
)
def test_unusable_files(tmp_path, monkeypatch, name, content, message):
    monkeypatch.setattr("attnprobe.data.local_files.ANY_GROWTH", 10_000)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        FileSource(tmp_path / name).load()


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        (
            "xl/worksheets/sheet1.xml",
            b'r="B4"',
            b'r="XFD99999"',
            "in row .* and one in column 16,384 make more than",
        ),
        (
            "xl/worksheets/sheet1.xml",
            b"</sheetData>",
            b"<row>",
            "cannot be read as .xlsx: mismatched tag",
        ),
        (
            "xl/worksheets/sheet1.xml",
            b"</sheetData>",
            b" " * 70_000_000,
            "unpacks to more than 67,108,864",
        ),
        (
            "xl/_rels/workbook.xml.rels",
            b"worksheets/sheet1",
            b"elsewhere",
            r"cannot be read as .xlsx: \w",
        ),
    ],
)
def test_unusable_spreadsheets(tmp_path, monkeypatch, file, old, new, message):
    monkeypatch.setattr("attnprobe.data.sheets.MOST_CELLS", 20_000)
    path = tmp_path / "rows.xlsx"
    pd.DataFrame(ROWS).to_excel(path, index=False)
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    parts[file] = parts[file].replace(old, new)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    with pytest.raises(UserError, match=message):
        read_file(path)


@pytest.mark.parametrize(
    "text", ['[{"t": "a"}, {"t": 2}]', '{"t": "a"}\n\n{"t": 2}', '{"t": "a"}\r\n{"t": 2}\r\n']
)
def test_json_in_a_list_by_line_or_by_itself(tmp_path, text):
    (tmp_path / "rows.json").write_text(f"\ufeff{text}", encoding="utf-8")
    assert read_file(tmp_path / "rows.json")["t"][:] == ["a", 2]


@pytest.mark.parametrize(
    ("column", "cell", "message"),
    [
        (
            "text",
            "a\0b",
            r"data\.text=text: one cell is 'a\\x00b'; expected text without null characters",
        ),
        (
            "label",
            float("inf"),
            r"data\.label=label: one cell is 'inf'; expected .* finite numbers",
        ),
        (
            "label",
            "x\x1b[2J",
            r"data\.label=label: the class 'x\\x1b\[2J' holds a control character.*data\.labels",
        ),
    ],
)
def test_what_no_table_or_figure_can_hold_is_refused_where_it_is_read(column, cell, message):
    usual = 1.0 if isinstance(cell, float) else "y"
    rows = {"text": ["a", "b"] * 9, "label": ["x", "y"] * 9} | {column: [cell, usual] * 9}
    with pytest.raises(UserError, match=message):
        ready(rows, None, None)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nowhere.csv", r"nowhere\.csv does not exist .*ATTNPROBE_DATA_DIR"),
        (None, r"data\.path is not set"),
        ({"dev": "a.csv"}, r"dev.*expected .*train.*validation.*test"),
    ],
)
def test_a_path_that_cannot_be_used_is_named(monkeypatch, path, message):
    monkeypatch.delenv("ATTNPROBE_DATA_DIR", raising=False)
    with pytest.raises(UserError, match=message):
        FileSource(path).load()


def test_an_empty_folder_is_named(tmp_path):
    with pytest.raises(UserError, match=r"holds no train.*there is nothing"):
        FileSource(tmp_path).load()


def test_a_test_file_is_enough_where_nothing_is_trained(tmp_path):
    write(tmp_path / "test.csv")
    assert list(FileSource(tmp_path).load()) == ["test"]


def test_two_files_for_a_split_are_named(tmp_path):
    write(tmp_path / "train.csv")
    write(tmp_path / "train.tsv")
    with pytest.raises(UserError, match=r"2 files for the split train \(train.csv, train.tsv\)"):
        FileSource(tmp_path).load()


@pytest.fixture
def hub_table(monkeypatch):
    """A hub whose data sets all are this one."""
    table = datasets.Dataset.from_dict({"sentence": ["a"], "text": ["b"]})
    loaded = datasets.DatasetDict({"train": table, "unsupervised": table})
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *_, **__: None)
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: loaded)


def test_the_hubs_columns_are_renamed_and_other_splits_left_out(hub_table):
    splits = HubSource("some/name", rename={"sentence": "text", "absent": "x"}).load()
    assert list(splits) == ["train"]
    assert splits["train"][:] == {"text": ["a"]}


def test_a_column_that_has_its_name_already_stays(hub_table):
    splits = HubSource("some/name", rename={"text": "text"}).load()
    assert splits["train"].column_names == ["sentence", "text"]


def test_hub_rows_are_chosen_and_columns_joined():
    table = datasets.Dataset.from_dict(
        {
            "task": [1, 2, 1],
            "title": ["a", "b", "c"],
            "body": ["x", "y", None],
        }
    )
    source = HubSource(
        "some/name", only={"task": 1}, join={"text": ["title", "body"]}, rename={"task": "kind"}
    )
    rows = source.prepared(table)
    assert rows["text"][:] == ["a x", "c"]
    assert rows["kind"][:] == [1, 1]
    with pytest.raises(UserError, match="a column of some/name=body: there is no such column"):
        source.prepared(table.remove_columns("body"))


@pytest.fixture
def unreachable_hub(monkeypatch, tmp_path):
    def refuse(*_, **__):
        raise ConnectionError("refused")

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", refuse)
    monkeypatch.setenv("ATTNPROBE_DATA_DIR", str(tmp_path))
    return HubSource("some/name")


def test_an_unreachable_hub_gives_one_message_with_the_ways_out(unreachable_hub):
    message = r"'some/name' could not be loaded .*refused.*data=files data\.path.*data=testbed"
    with pytest.raises(UserError, match=message):
        unreachable_hub.load()


def test_the_folder_is_named_where_the_hub_is_unreachable(unreachable_hub, tmp_path):
    message = rf"no local files at {tmp_path}/films: put .*; the data set 'some/name'"
    with pytest.raises(UserError, match=message):
        FirstAvailable("films", unreachable_hub).load()


def test_a_folder_with_a_part_of_the_data_is_named_with_the_setting_that_takes_it(
    unreachable_hub, tmp_path
):
    (tmp_path / "films_20k").mkdir()
    (tmp_path / "filmstrips").mkdir()
    message = r"no local files at .*/films: .*data\.source\.folder=films_20k, .*'some/name'"
    with pytest.raises(UserError, match=message):
        FirstAvailable("films", unreachable_hub).load()

    write(tmp_path / "films_20k" / "train.csv")
    assert list(FirstAvailable("films_20k", unreachable_hub).load()) == ["train"]


def test_a_data_set_that_is_on_no_hub_says_how_to_obtain_it(monkeypatch, tmp_path):
    monkeypatch.setenv("ATTNPROBE_DATA_DIR", str(tmp_path))
    message = r"no local files at .*/notes: .*Ask the hospital\. .*on no hub"
    with pytest.raises(UserError, match=message):
        FirstAvailable("notes", obtain="Ask the hospital.").load()


def test_local_files_come_before_the_hub(unreachable_hub, tmp_path):
    (tmp_path / "films").mkdir()
    write(tmp_path / "films" / "train.csv")
    assert list(FirstAvailable("films", unreachable_hub).load()) == ["train"]


@pytest.fixture
def untouched_hub(monkeypatch):
    """A hub that nothing may ask."""
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: pytest.fail("loaded"))
    monkeypatch.setattr(
        huggingface_hub.HfApi, "dataset_info", lambda *_, **__: pytest.fail("asked")
    )


@pytest.mark.parametrize(
    "name",
    [
        "json",
        "csv",
        "/etc",
        "../x",
        "./films",
        "a/b/c",
        "a/..",
        "s3://x/y",
        "~/x",
        "",
        "films\n/x",
    ],
)
def test_the_hub_is_asked_for_names_of_data_sets_alone(untouched_hub, name):
    message = "expected OWNER/NAME of a data set of the Hugging Face hub"
    with pytest.raises(UserError, match=message):
        HubSource(name).load()


def test_a_folder_of_this_machine_is_not_read_in_place_of_the_hub(
    untouched_hub, monkeypatch, tmp_path
):
    (tmp_path / "some" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    message = rf"a file or folder of this name here, {tmp_path}/some/name"
    with pytest.raises(UserError, match=message):
        HubSource("some/name").load()
