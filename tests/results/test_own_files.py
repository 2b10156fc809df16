import hashlib
import os
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attnprobe.cli.main import main
from attnprobe.core.errors import UserError
from attnprobe.report.archive import numbered_names
from attnprobe.results.files import UNSIGNED, signed_table, write_text
from attnprobe.results.writer import LISTED, OwnFolder, own_target, write_page, write_signed
from tests.invented_runs import invented_run

OURS = '<!doctype html><meta name="generator" content="attnprobe 1.0">'


def state_of(path):
    """All that a write would change; not the time of the last access, which reading moves."""
    state = path.lstat()
    return state.st_ino, state.st_mode, state.st_size, state.st_mtime_ns, state.st_ctime_ns


def target_in_folder(path):
    return OwnFolder(path.parent) / path.name


@pytest.mark.parametrize("place_for", [own_target, target_in_folder])
@pytest.mark.parametrize("kind", ["file", "empty file", "link", "folder", "pipe"])
def test_what_is_not_ours_is_left_as_it_is(tmp_path, kind, place_for):
    path = tmp_path / "numbers.csv"
    behind = tmp_path / "elsewhere"
    behind.write_text(OURS, encoding="utf-8")
    create = {
        "file": lambda: path.write_text("notes about attnprobe", encoding="utf-8"),
        "empty file": path.touch,
        "link": lambda: path.symlink_to(behind),
        "folder": path.mkdir,
        "pipe": lambda: os.mkfifo(path),
    }
    create[kind]()
    before = state_of(path)
    message = r"numbers\.csv is there, and is not as attnprobe wrote it: .*Move it away"
    with pytest.raises(UserError, match=message):
        place_for(path)
    assert state_of(path) == before
    assert behind.read_text(encoding="utf-8") == OURS


def test_a_page_of_ours_is_replaced(tmp_path):
    page = tmp_path / "page.html"
    for text in ("first", "second"):
        write_page(text, page)
        assert page.read_text(encoding="utf-8").startswith(
            f"{text}<!-- written by attnprobe, sha256 "
        )


EDITS = {
    "a word more": lambda page: page + b"a word",
    "a letter less": lambda page: page.replace(b"first", b"firs"),
    "no end": lambda page: page[:-9],
    "no beginning": lambda page: page[1:],
    "another digest": lambda page: page[:-70] + b"0" * 65 + page[-5:],
    "nothing": lambda page: b"",
    "only the signature": lambda page: page[-99:],
}


@pytest.mark.parametrize("name", EDITS)
def test_a_page_that_was_edited_is_left_as_it_is(tmp_path, name):
    page = tmp_path / "page.html"
    write_page("first", page)
    page.write_bytes(EDITS[name](page.read_bytes()))
    edited = page.read_bytes()
    with pytest.raises(UserError, match=r"page\.html is there, and is not as attnprobe wrote it"):
        write_page("second", page)
    assert page.read_bytes() == edited
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_a_table_of_which_a_cell_was_changed_is_left_as_it_is(tmp_path):
    path = tmp_path / "rows.parquet"
    table = signed_table(pa.table({"name": ["a", None], "value": [float("nan"), 2.0]}))
    pq.write_table(table, path)
    assert own_target(path) == path
    changed = table.set_column(0, "name", pa.array(["b", None]))
    pq.write_table(changed.replace_schema_metadata(table.schema.metadata), path)
    with pytest.raises(UserError, match="is not as attnprobe wrote it"):
        own_target(path)


@pytest.mark.parametrize(
    "text",
    [
        "notes: the report was written by attnprobe",  # a mention was taken for a signature
        '<meta name="generator" content="attnprobe 0.1.0">',
        f"written by attnprobe, sha256 {'0' * 64}",
    ],
)
@pytest.mark.parametrize("name", ["notes.html", "notes.md", "a.zip"])
def test_a_file_that_mentions_attnprobe_is_left_as_it_is(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match="is not as attnprobe wrote it"):
        own_target(path)


@pytest.mark.parametrize("name", ["page.html", "not/there/yet/page.html"])
def test_a_folder_that_may_not_be_written_to_is_refused_before_any_work(
    tmp_path, monkeypatch, name
):
    monkeypatch.setattr(os, "access", lambda place, mode: Path(place) != tmp_path)
    with pytest.raises(UserError, match=f"{tmp_path} is none. Give another name"):
        own_target(tmp_path / name)
    assert not any(tmp_path.iterdir())


def test_a_file_is_no_folder_to_write_to(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match=r"cannot write to .*notes\.txt: expected a folder"):
        own_target(tmp_path / "notes.txt" / "page.html")


def test_an_archive_that_was_changed_is_left_as_it_is(tmp_path):
    def write(path):
        with zipfile.ZipFile(path, "w") as archive:
            archive.comment = UNSIGNED
            archive.writestr("a.txt", "a")

    path = tmp_path / "a.zip"
    write_signed(path, write)
    write_signed(path, write)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("mine.txt", "mine")
    with pytest.raises(UserError, match="is not as attnprobe wrote it"):
        write_signed(path, write)


def test_a_folder_knows_what_the_last_call_wrote(tmp_path):
    for names in (["a.csv", "b.csv"], ["b.csv"]):
        folder = OwnFolder(tmp_path / "files")
        for name in names:
            write_text(name, folder / name)
        folder.close()
    reopened = OwnFolder(tmp_path / "files")
    assert reopened.known == {"a.csv", "b.csv"}
    assert reopened.last == ["b.csv"]


def test_a_link_to_our_folder_is_no_folder(tmp_path):
    OwnFolder(tmp_path / "files").close()
    (tmp_path / "link").symlink_to(tmp_path / "files")
    with pytest.raises(UserError, match="is no folder"):
        OwnFolder(tmp_path / "link")


def test_a_folder_whose_list_is_damaged_is_refused(tmp_path):
    OwnFolder(tmp_path / "files").close()
    (tmp_path / "files" / LISTED).write_text("{}", encoding="utf-8")
    with pytest.raises(UserError):
        OwnFolder(tmp_path / "files")


def test_what_was_changed_since_the_list_was_closed_is_left_as_it_is(tmp_path):
    def write(name, text, *, closes=True):
        folder = OwnFolder(tmp_path / "files")
        write_text(text, folder / name)
        if closes:
            folder.close()

    write("a.tex", "first")
    write("b.tex", "second")
    # killed: nobody knows whose it is, and the next call goes on
    write("a.tex", "third", closes=False)
    write("a.tex", "fourth")
    table = tmp_path / "files" / "a.tex"
    table.write_text("edited", encoding="utf-8")

    for name in ("a.tex", "b.tex"):
        message = r"a\.tex was changed since attnprobe wrote it: it was left as it is"
        with pytest.raises(UserError, match=message):
            write(name, "fifth")
    assert table.read_text(encoding="utf-8") == "edited"

    table.unlink()
    write("a.tex", "sixth")


def test_an_archive_of_a_run_whose_name_has_two_lines_can_be_checked(tmp_path, capsys):
    run = tmp_path / "a\nb"
    invented_run(tmp_path / "runs", probes=("performance",)).rename(run)
    page = tmp_path / "p.html"
    archive = tmp_path / "p.zip"

    main(["report", str(run), "-o", str(page), "--archive", str(archive)])

    with zipfile.ZipFile(archive) as zipped:
        lines = zipped.read("SHA256SUMS").decode().splitlines()
        sums = {}
        for line in lines:
            digest, name = line.split("  ")
            sums[name] = digest
        computed = {name: hashlib.sha256(zipped.read(name)).hexdigest() for name in sums}
    assert computed == sums
    assert {"runs/a_b/manifest.json", "runs/a_b/config.yaml"} <= sums.keys()


def test_runs_whose_names_would_be_equal_in_an_archive_are_numbered(tmp_path):
    names = numbered_names([tmp_path / "a\nb", tmp_path / "a\\b", tmp_path / "c"])
    assert list(names.values()) == ["1-a_b", "2-a_b", "c"]


def test_a_report_replaces_its_own_page_and_figures_and_no_other(tmp_path, capsys):
    run = invented_run(tmp_path, probes=("performance",))
    page = tmp_path / "page.html"
    archive = tmp_path / "kept.zip"
    for _ in range(2):
        main(["report", str(run), "-o", str(page), "--archive", str(archive)])
    assert capsys.readouterr().out.count("archive: ") == 2

    mine = tmp_path / "page_files" / "mine.txt"
    mine.write_text("mine", encoding="utf-8")
    archive.write_text("no archive", encoding="utf-8")
    page.write_text("no page", encoding="utf-8")
    for arguments in (
        ["-o", str(page)],
        ["-o", str(tmp_path / "new.html"), "--archive", str(archive)],
    ):
        with pytest.raises(SystemExit) as ended:
            main(["report", str(run), *arguments])
        assert ended.value.code == 2
        assert "is not as attnprobe wrote it" in capsys.readouterr().err
    assert mine.read_text(encoding="utf-8") == "mine"
    assert archive.read_text(encoding="utf-8") == "no archive"
    assert page.read_text(encoding="utf-8") == "no page"
