import os
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from attnprobe.core.errors import UserError
from attnprobe.results.directory import MARKER, STAGING, RunDirectory
from attnprobe.results.files import (
    DEEPEST_YAML,
    DamagedRun,
    read_json,
    read_sealed,
    read_yaml,
    record_of,
    write_sealed,
)
from attnprobe.results.writer import JOURNAL, LISTED, OwnFolder, OwnRunDirectory
from attnprobe.runs.settings import Settings
from tests.small_runs import composed

BOMB = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 8)
)
BROKEN_JSON = {
    "empty": b"",
    "cut": b'{"a": [1, 2',
    "no UTF-8": b'{"a": "\xff"}',
    "byte order mark": b'\xef\xbb\xbf{"a": 1}',
    "list": b"[]",
    "deep list": b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
}
BROKEN_YAML = {
    "empty": b"",
    "alias bomb": BOMB.encode(),
    "endless": b"a: &x\n  b: *x\n",
    "no UTF-8": b"a: \xff\n",
    "list": b"- 1\n",
    "cut": b"a: [1, 2",
    "key is a list": b"? [1]\n: 2\n",
    "key is a number": b"1: 2\n",
    "deep": b"a: " + b"[" * 20_000 + b"]" * 20_000,
    "a level too deep": b"a: " + b"[" * DEEPEST_YAML + b"]" * DEEPEST_YAML,
    "two documents": b"a: 1\n---\nb: 2\n",
    "python tag": b"a: !!python/object/apply:os.system [true]\n",
    "own tag": b"a: !run {}\n",
    "control": b"a: \x1b\n",
}


def broken_files():
    """A case for every reader and every way in which what it reads may be broken."""
    readers = [
        (read_json, BROKEN_JSON),
        (read_sealed, BROKEN_JSON),
        (read_yaml, BROKEN_YAML),
    ]
    for read, broken in readers:
        for name, content in broken.items():
            yield pytest.param(read, content, id=f"{read.__name__}, {name}")


@pytest.mark.parametrize(("read", "content"), [*broken_files()])
def test_a_broken_file_is_one_message_with_its_name(tmp_path, read, content):
    (tmp_path / "broken.file").write_bytes(content)
    with pytest.raises(DamagedRun, match=r"broken\.file"):
        read(tmp_path / "broken.file")


@pytest.mark.parametrize("read", [read_json, read_yaml, read_sealed, record_of])
@pytest.mark.parametrize("kind", ["device", "pipe", "folder", "link", "loop"])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path, read, kind):
    path = tmp_path / "file"
    (tmp_path / "other").write_text("{}")
    create = {
        "device": lambda: path.symlink_to("/dev/zero"),
        "pipe": lambda: os.mkfifo(path),
        "folder": path.mkdir,
        "link": lambda: path.symlink_to(tmp_path / "other"),
        "loop": lambda: path.symlink_to(path),
    }
    create[kind]()
    refuses(read, path)


def refuses(read, path):
    message = f"{path} is damaged: it is a .*expected a regular file"
    with pytest.raises(DamagedRun, match=message):
        read(path)


@pytest.mark.parametrize("read", [read_json, read_yaml, read_sealed, record_of])
def test_a_device_is_refused_at_once(read):
    refuses(read, Path("/dev/zero"))


@pytest.mark.parametrize("read", [read_json, read_yaml])
def test_a_large_file_is_not_read_and_a_missing_one_is_told_apart(tmp_path, read):
    with (tmp_path / "file").open("wb") as file:
        file.truncate(2**40)  # a file of holes
    with pytest.raises(DamagedRun, match="more than"):
        read(tmp_path / "file")
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "missing")


STRANGE = [
    "2020-01-01",
    "1e3",
    "1e-3",
    "yes",
    "0x10",
    "1:30",
    "=",
    "<<",
    "&a",
    "*a",
    "!a",
    "a\nb",
    "\x1b",
    "é\u2028",
]


def test_settings_are_read_as_a_run_writes_them(tmp_path):
    settings = Settings.of(composed("model=hanrnn", "+experiment=serrano", "data=imdb")).config
    # texts that YAML would read as something else
    settings["data"]["filters"] = {
        text: [text, 1.5e-7, 3, None, True, float("inf")] for text in STRANGE
    }
    (tmp_path / "config.yaml").write_text(OmegaConf.to_yaml(settings), encoding="utf-8")
    assert read_yaml(tmp_path / "config.yaml") == settings


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd",
        "../other",
        "tables/../../x",
        "",
        ".",
        "a\0b",
        "c:\\x",
        "tables/../a.parquet",
        "mine.txt",
    ],
)
def test_listed_files_lie_within_the_run(tmp_path, name):
    write_sealed({"files": {name: {"sha256": "", "bytes": 0}}}, tmp_path / "manifest.json")
    with pytest.raises(DamagedRun, match=r"manifest\.json names the file"):
        RunDirectory(tmp_path).manifest()


def strangers_run(directory, journal):
    """A folder that looks like a run that was killed while it replaced its journal's files."""
    directory.mkdir()
    (directory / MARKER).write_text("")
    (directory / STAGING).mkdir()
    write_sealed(journal, directory / STAGING / JOURNAL)
    return OwnRunDirectory(directory)


@pytest.mark.parametrize("spelling", ["absolute", "parent", "parent in a run's folder"])
def test_a_strangers_journal_removes_nothing_outside_the_run(tmp_path, spelling):
    home = tmp_path / "home"
    (home / "emptydir").mkdir(parents=True)
    victim = home / ".bashrc"
    victim.write_text("export A=1")
    prefixes = {
        "absolute": str(home),
        "parent": "../home",
        "parent in a run's folder": "tables/../../home",
    }
    prefix = prefixes[spelling]
    records = [record_of(victim)]
    journal = {f"{prefix}/.bashrc": records, f"{prefix}/emptydir/x": records}

    run = strangers_run(tmp_path / "r", journal)
    run.mark()
    run.clear()
    run.discard()

    assert victim.read_text() == "export A=1"
    assert (home / "emptydir").is_dir()


def test_a_journal_of_the_runs_own_names_removes_the_files_that_it_records(tmp_path):
    run = strangers_run(tmp_path / "r", {})
    table = tmp_path / "r" / "tables" / "a.parquet"
    table.parent.mkdir()
    table.write_text("old")
    (table.parent / "mine.txt").write_text("mine")
    write_sealed({"tables/a.parquet": [record_of(table)]}, tmp_path / "r" / STAGING / JOURNAL)
    run.clear()
    assert not table.exists()
    assert (table.parent / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize("records", [5, None, {}, "x", [5], [{}], [{"sha256": 1, "bytes": "1"}]])
def test_a_journal_that_holds_no_records_says_nothing(tmp_path, records):
    run = strangers_run(tmp_path / "r", {"tables/a.parquet": records})
    table = tmp_path / "r" / "tables" / "a.parquet"
    table.parent.mkdir()
    table.write_text("mine")
    run.clear()
    assert table.read_text() == "mine"


@pytest.mark.parametrize("files", [5, None, {"tables/a.parquet": 5}, {"/etc/passwd": {}}, [{}]])
def test_a_manifest_that_lists_no_records_is_damaged(tmp_path, files):
    write_sealed({"files": files}, tmp_path / "manifest.json")
    with pytest.raises(DamagedRun, match=r"manifest\.json"):
        RunDirectory(tmp_path).read_listing("manifest.json")


@pytest.mark.parametrize("name", ["/etc/passwd", "../a", "tables/../../a", "a\0b"])
def test_a_path_that_leads_out_of_the_run_is_refused(tmp_path, name):
    with pytest.raises(UserError, match="expected one within the run"):
        OwnRunDirectory(tmp_path).checked(name)


@pytest.mark.parametrize(
    "listing",
    [
        {"files": 5, "last": []},
        {"files": [{}], "last": []},
        {"files": ["../a"], "last": []},
        {"files": [], "last": ["/etc/passwd"]},
        {"files": [], "last": [], "records": {"a": 5}},
        {"last": []},
    ],
)
def test_a_list_of_written_files_that_is_none_is_damaged(tmp_path, listing):
    write_sealed(listing, tmp_path / LISTED)
    with pytest.raises(DamagedRun, match=r"attnprobe-files"):
        OwnFolder(tmp_path)
