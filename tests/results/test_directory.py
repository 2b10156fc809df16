import contextlib
import errno
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from attnprobe.core.errors import UserError
from attnprobe.results.directory import (
    MARKER,
    DamagedRunWarning,
    RunDirectory,
    find_runs,
    is_run_name,
)
from attnprobe.results.files import DamagedRun, read_sealed, write_sealed, write_table
from attnprobe.results.table import Rows, read_examples, read_results
from attnprobe.results.writer import CHECKPOINTS, LOCK, OwnRunDirectory
from tests.small_runs import seal

IDENTITY = {
    "run_id": "r",
    "experiment": "e",
    "data": "d",
    "model": "m",
    "seed": 3,
    "split": "test",
    "probe": "a",
}


def finished_run(directory):
    rows = Rows()
    rows.add("x", np.array([1, 2]), np.array([0.1, 0.2]))
    for name in ("tables/a.parquet", "examples/test.parquet"):
        write_table(rows.table(IDENTITY), directory / name)
    seal(directory, run_id="r", tables={"a": {}})
    return directory


def content_of(directory):
    files = [path for path in directory.rglob("*") if path.is_file()]
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in files}


def test_a_sealed_file_notices_every_single_bit(tmp_path):
    path = tmp_path / "x.json"
    write_sealed({"a": [1, 2.5, float("inf")], "ä": {"b": None}}, path)
    assert read_sealed(path)["a"][:2] == [1, 2.5]
    content = path.read_bytes()
    for place in range(len(content)):
        for bit in range(8):
            damaged = bytearray(content)
            damaged[place] ^= 1 << bit
            path.write_bytes(damaged)
            with pytest.raises(DamagedRun, match=r"x\.json"):
                read_sealed(path)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"name": "a web app"}', b"[" * 100_000, b'{"checksum": 3}'],
    ids=range(6),
)
def test_a_manifest_of_somebody_else_keeps_no_run_from_being_read(tmp_path, content):
    finished_run(tmp_path / "one")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "manifest.json").write_bytes(content)
    with pytest.warns(DamagedRunWarning, match=r"a run was left out:\n- .*other/manifest\.json"):
        assert len(read_results(tmp_path)) == 2
    with pytest.raises(UserError, match=r"other/manifest\.json"):
        read_results(tmp_path / "other")


def test_several_damaged_runs_are_listed_and_a_sound_one_is_found(tmp_path):
    for name in ("a", "b", "c", "d"):
        finished_run(tmp_path / name)
    for name in ("a", "c"):
        (tmp_path / name / "tables" / "a.parquet").unlink()
    (tmp_path / "d").rename(tmp_path / os.fsdecode(b"d\xff"))
    with pytest.warns(DamagedRunWarning) as caught:
        assert find_runs(tmp_path) == [tmp_path / "b"]
    (message,) = [str(warning.message) for warning in caught]
    assert message.count("a.parquet is damaged: it is missing") == 2
    assert "is not UTF-8: rename it" in message
    assert len(read_examples(tmp_path / "b")) == 2
    with pytest.raises(
        UserError, match=r"no examples of the split '\.\./tables/a': there are test"
    ):
        read_examples(tmp_path / "b", split="../tables/a")


def write_mine(directory, names):
    """The user's files of these names, each with the content "mine"."""
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text("mine")


def test_a_folder_of_somebody_else_is_refused_whatever_it_holds(tmp_path):
    place = tmp_path / "paper"
    names = ["config.yaml", "figures/paper.pdf", "checkpoints/a", "manifest.json", ".a.9.partial"]
    write_mine(place, names)
    before = content_of(place)

    run = OwnRunDirectory(place)
    with pytest.raises(UserError, match="is not empty and is not a run of attnprobe"):
        run.refuse_foreign()
    run.discard()

    assert content_of(place) == before


def test_a_run_that_was_killed_while_its_mark_was_written_goes_on(tmp_path):
    killed = OwnRunDirectory(tmp_path / "killed while its mark was written")
    killed.path.mkdir()
    (killed.path / f".{MARKER}.123.partial").write_text("{")
    (killed.path / LOCK).write_text("process 7 on this machine")

    killed.refuse_foreign()
    killed.mark()

    assert {path.name for path in killed.path.iterdir()} == {MARKER, LOCK}


def begun(directory, *names):
    """A run that has prepared these files, and true ones of a training."""
    run = OwnRunDirectory(directory)
    run.mark()
    run.place("config.yaml").write_text("a: 1\n")
    run.place("model.safetensors").write_text("weights")
    trained = run.finish_training({})
    for name in names:
        run.place(name).write_text("new")
    return run, trained["files"]


def test_what_is_prepared_is_true_once_the_manifest_is_written(tmp_path):
    run, files = begun(tmp_path / "run", "tables/a.parquet")
    assert not (run / "tables").exists()
    assert run.file("tables/a.parquet").read_text() == "new"

    run.finish({"tables": {"a": {}}}, files)

    assert RunDirectory(run.path).verify()["files"].keys() == {
        "config.yaml",
        "model.safetensors",
        "tables/a.parquet",
    }
    assert {path.name for path in run.path.iterdir()} == {
        MARKER,
        "config.yaml",
        "manifest.json",
        "model.safetensors",
        "tables",
        "training.json",
    }


def test_what_was_prepared_and_never_true_goes_with_the_next_command(tmp_path):
    run, _ = begun(tmp_path / "killed", "tables/a.parquet")
    (run.folder(CHECKPOINTS) / "epoch=1.ckpt").write_text("")
    (run.folder(CHECKPOINTS) / "mine.txt").write_text("mine")
    (run / ".attnprobe.new/tables/.a.parquet.7.partial").write_text("")
    OwnRunDirectory(run.path).mark()
    assert set(content_of(run / ".attnprobe.new")) == {"checkpoints/mine.txt"}


MINE = (
    "tables/notes.txt",
    "tables/mine.parquet",
    "thesis.tex",
    "parts/a.part",
    "checkpoints/a.ckpt",
    "figures/x.pdf",
    "findings.parquet",
    "training/metrics.csv",
    "wandb/run-1/log",
    ".figures.partial/x",
)


def test_only_what_the_run_wrote_is_removed(tmp_path):
    run, files = begun(
        tmp_path / "run", "tables/a.parquet", "tables/b.parquet", "training/metrics.csv"
    )
    run.finish({}, files)
    (run / "tables/b.parquet").write_text("mine now")
    (run / "training/metrics.csv").unlink()
    write_mine(run.path, MINE)

    run.discard()

    assert set(content_of(run.path)) == {MARKER, "tables/b.parquet", *MINE}
    run.refuse_foreign()  # it is still the run's own


@pytest.mark.parametrize("has_manifest", [True, False])
def test_a_strangers_mark_and_lists_remove_and_replace_no_file_of_the_users(
    tmp_path, capsys, has_manifest
):
    """A stranger's archive of a run is unpacked where the user has files of the same names."""
    archived = tmp_path / "archived"
    stranger, files = begun(archived, *(name for name in MINE if is_run_name(name)))
    stranger.finish({}, files)
    OwnRunDirectory(archived).place("tables/mine.parquet").write_text("the stranger's")
    place = tmp_path / "run"
    shutil.copytree(archived, place)
    if not has_manifest:
        (place / "manifest.json").unlink()
    write_mine(place, MINE)

    run = OwnRunDirectory(place)
    run.mark()
    run.clear()
    rerun, _ = begun(place, "tables/mine.parquet")
    rerun.finish({}, {})

    moved = {"tables/mine.parquet": "tables/mine.parquet.kept"}
    assert {(place / moved.get(name, name)).read_text() for name in MINE} == {"mine"}
    message = "tables/mine.parquet is not as the run wrote it: it is kept as mine.parquet.kept"
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("removals", range(9))
def test_a_removal_that_is_cut_short_goes_on_and_takes_nothing_for_the_users(
    tmp_path, monkeypatch, removals
):
    run, files = begun(tmp_path / "run", "tables/a.parquet", "tables/b.parquet")
    run.finish({}, files)
    unlink = Path.unlink
    removed = []

    def unlink_until_killed(path, **options):
        if len(removed) == removals:
            raise KeyboardInterrupt
        if "partial" not in path.name:
            removed.append(path)
        unlink(path, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", unlink_until_killed)
        with contextlib.suppress(KeyboardInterrupt):
            run.clear()

    OwnRunDirectory(run.path).clear()
    assert {path.name for path in run.path.iterdir()} == {MARKER}


@pytest.mark.parametrize("is_trained", [True, False])
def test_what_was_prepared_makes_room_on_a_full_disk(tmp_path, monkeypatch, is_trained):
    run = OwnRunDirectory(tmp_path / "run")
    if is_trained:
        run, _ = begun(tmp_path / "run", "tables/a.parquet")
    run.mark()
    checkpoint = run.folder(CHECKPOINTS) / "epoch=0.ckpt"
    checkpoint.write_text("as much of the weights as the disk could take")

    write = Path.write_bytes

    def write_on_a_full_disk(path, content):
        if checkpoint.exists():
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", write_on_a_full_disk)
    run.discard()
    assert not run.path.exists()


@pytest.mark.parametrize(
    "name",
    ["tables", ".attnprobe.new", "tables/a.parquet", "manifest.json", ".attnprobe.new/tables"],
)
def test_nothing_is_written_through_a_link(tmp_path, name):
    run, files = begun(tmp_path / "run", "tables/a.parquet")
    run.finish({}, files)
    theirs = tmp_path / "theirs"
    write_mine(theirs, ["a.parquet"])
    link = run.path / name
    if link.exists():
        os.rename(link, tmp_path / "away")
    link.parent.mkdir(exist_ok=True)
    is_file = name.endswith(("json", "parquet"))
    link.symlink_to(theirs / "a.parquet" if is_file else theirs)

    def measured_again():
        rerun = OwnRunDirectory(run.path)
        rerun.mark()
        rerun.place("tables/a.parquet").write_text("new")
        rerun.finish({}, files)

    with pytest.raises(UserError):
        measured_again()
    OwnRunDirectory(run.path).discard()

    assert content_of(theirs) == {"a.parquet": b"mine"}
    assert link.is_symlink()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_not_written_to(tmp_path, make):
    run, files = begun(tmp_path / "run")
    make(run / "manifest.json")
    with pytest.raises(UserError, match=r"manifest\.json is something else, expected a file"):
        run.finish({}, files)


@pytest.mark.parametrize("gone", [MARKER, "training.json", "model.safetensors", "config.yaml"])
def test_a_run_of_which_somebody_has_removed_a_file_meanwhile_does_not_finish(tmp_path, gone):
    run, files = begun(tmp_path / "run")
    (run / gone).unlink()
    with pytest.raises(UserError, match=gone):
        run.finish({}, files)
    assert not run.is_finished
