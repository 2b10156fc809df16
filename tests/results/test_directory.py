import json
import os
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest

from attnprobe.errors import UserError
from attnprobe.results.checksums import DamagedRun, read_sealed, sealed
from attnprobe.results.directory import MARKER, RunDirectory
from attnprobe.results.files import write_sealed, write_table
from attnprobe.results.finding import DamagedRunWarning, find_runs
from attnprobe.results.ownership import OwnRunDirectory
from attnprobe.results.rows import Rows
from attnprobe.results.table import read_examples, read_results
from tests.runs import seal

IDENTITY = {"run_id": "r", "experiment": "e", "data": "d", "model": "m", "seed": 3, "split": "test", "probe": "a"}


def finished_run(directory):
    rows = Rows()
    rows.add("x", np.array([1, 2]), np.array([0.1, 0.2]))
    for name in ("tables/a.parquet", "examples/test.parquet"):
        write_table(rows.table(IDENTITY), directory / name)
    seal(directory, run_id="r", tables={"a": {}})
    return directory


def content_of(directory):
    return {path.relative_to(directory): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_sealed_file_notices_every_single_bit(tmp_path):
    path = tmp_path / "x.json"
    write_sealed({"a": [1, 2.5, float("inf")], "ä": {"b": None}}, path)
    assert read_sealed(path)["a"][:2] == [1, 2.5]
    content = path.read_bytes()
    for place in range(len(content)):
        for bit in range(8):
            path.write_bytes(content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :])
            with pytest.raises(DamagedRun, match=r"x\.json"):
                read_sealed(path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe{}",
        b"[]",
        b"3",
        b'{"name": "a web app"}',
        b"[" * 100_000,
        b'{"checksum": 3}',
        b"\xef\xbb\xbf{}",
    ],
    ids=range(9),
)
def test_a_manifest_of_somebody_else_keeps_no_run_from_being_read(tmp_path, content):
    finished_run(tmp_path / "one")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "manifest.json").write_bytes(content)
    with pytest.warns(DamagedRunWarning, match=r"a run was left out:\n- .*other/manifest\.json"):
        assert len(read_results(tmp_path)) == 2
    with pytest.raises(UserError, match=r"other/manifest\.json"):
        read_results(tmp_path / "other")


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "tables/../../x", "a\\b", "c:x", ""])
def test_a_manifest_may_list_nothing_outside_the_run(tmp_path, name):
    run = finished_run(tmp_path / "run")
    manifest = RunDirectory(run).manifest()
    manifest["files"][name] = manifest["files"]["tables/a.parquet"]
    write_sealed(manifest, run / "manifest.json")
    with pytest.raises(DamagedRun, match="expected one within"):
        read_results(run)


def test_links_and_devices_are_refused(tmp_path):
    run = finished_run(tmp_path / "run")
    os.rename(run / "tables", tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", run / "tables")
    with pytest.raises(DamagedRun, match="reached by no link"):
        read_results(run)
    os.unlink(run / "manifest.json")
    os.symlink("/dev/zero", run / "manifest.json")
    with pytest.raises(DamagedRun, match=r"manifest\.json is damaged: it is a symbolic link"):
        read_results(run)


def test_examples_are_those_of_a_split_that_the_run_has(tmp_path):
    run = finished_run(tmp_path / "run")
    assert len(read_examples(run)) == 2
    with pytest.raises(UserError, match=r"no examples of the split '\.\./tables/a': there are test"):
        read_examples(run, split="../tables/a")


def test_a_folder_of_somebody_else_is_refused_whatever_it_holds(tmp_path):
    place = tmp_path / "paper"
    for name in (
        "config.yaml",
        "figures/paper.pdf",
        "training/notes",
        "checkpoints/a",
        "manifest.json",
        ".a.9.partial",
    ):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("mine")
    before = content_of(place)
    run = OwnRunDirectory(place)
    with pytest.raises(UserError, match="is not empty and is not a run of attnprobe"):
        run.refuse_foreign()
    run.discard()
    assert content_of(place) == before


def test_only_listed_files_are_removed(tmp_path):
    run = OwnRunDirectory(tmp_path / "run")
    run.mark()
    for name in ("tables/a.parquet", "model.safetensors"):
        path = run.place(name)
        path.parent.mkdir(exist_ok=True)
        path.write_text("ours")
    run.folder("checkpoints/").mkdir()
    (run / "checkpoints/x").write_text("ours")
    for name in ("tables/notes.txt", "thesis.tex"):
        (run / name).write_text("mine")
    run.discard()
    assert set(content_of(run.path)) == {Path(name) for name in (
        MARKER, "tables/notes.txt", "thesis.tex")}  # fmt: skip
    run.refuse_foreign()  # it is still the run's own
    for name in ("tables/notes.txt", "thesis.tex"):
        (run / name).unlink()
    (run / "tables").rmdir()
    run.discard()
    assert not run.path.exists()


def test_a_folder_that_was_never_made_or_is_a_link_by_now_is_left(tmp_path):
    run, theirs = OwnRunDirectory(tmp_path / "run"), tmp_path / "theirs"
    run.mark()
    for name in ("checkpoints/", "training/", "wandb/"):
        run.folder(name)
    theirs.mkdir()
    (theirs / "curve.csv").write_text("mine")
    (run / "training/").symlink_to(theirs)
    (run / "wandb/").mkdir()
    (run / "wandb/").joinpath("log").write_text("the run's")
    run.clear()
    assert (run / "training/").is_symlink()
    assert (theirs / "curve.csv").read_text() == "mine"
    assert not (run / "wandb/").exists()


def test_a_kill_while_the_list_is_written_leaves_a_usable_folder(tmp_path):
    run = OwnRunDirectory(tmp_path / "run")
    run.path.mkdir()
    (run.path / f".{MARKER}.123.partial").write_text("{")
    run.refuse_foreign()
    run.mark()
    assert [path.name for path in run.path.iterdir()] == [MARKER]


def test_what_a_killed_write_left_is_removed_and_nothing_of_that_kind_that_is_not_listed(tmp_path):
    run = OwnRunDirectory(tmp_path / "run")
    run.mark()
    run.place("tables/a.parquet").parent.mkdir()
    (run / "tables/.a.parquet.7.partial").write_text("")
    (run / "tables/.mine.7.partial").write_text("")
    OwnRunDirectory(run.path).mark()
    assert [path.name for path in (run / "tables").iterdir()] == [".mine.7.partial"]


def test_clearing_removes_what_killed_writes_left_before_it_forgets_whose_that_is(tmp_path):
    run = OwnRunDirectory(tmp_path / "run")
    run.mark()
    run.place("tables/a.parquet").parent.mkdir()
    (run / "tables/.a.parquet.7.partial").write_text("")
    (run / "tables/.mine.7.partial").write_text("")
    run.clear()
    assert [path.name for path in (run / "tables").iterdir()] == [".mine.7.partial"]


def started_run(directory):
    """A run that has trained, and is about to write its manifest."""
    run = OwnRunDirectory(directory)
    run.mark()
    run.declare("model.safetensors")
    (run / "model.safetensors").write_text("weights")
    trained = run.finish_training({}, ["model.safetensors"])
    run.write_config("a: 1\n")
    return run, trained["files"]


@pytest.mark.parametrize("gone", [MARKER, "training.json", "model.safetensors", "config.yaml"])
def test_a_run_of_which_somebody_has_removed_a_file_meanwhile_does_not_finish(tmp_path, gone):
    run, files = started_run(tmp_path / "run")
    (run / gone).unlink()
    with pytest.raises(UserError, match=rf"lost .*{gone}: somebody has removed it while the run was going on"):
        run.finish({}, files)
    assert not run.is_finished


def test_a_run_that_is_removed_at_its_last_moment_leaves_no_manifest_alone(tmp_path, monkeypatch):
    run, files = started_run(tmp_path / "run")
    monkeypatch.setattr(run, "_expect", lambda names: shutil.rmtree(run.path))  # after the last look, before the write
    monkeypatch.setattr("attnprobe.results.ownership.record_of", lambda path: {"sha256": "", "bytes": 0})
    with pytest.raises(FileNotFoundError):
        run.finish({}, files)
    assert not run.path.exists()


def test_what_was_written_after_the_list_was_removed_is_removed_with_the_run(tmp_path):
    run, _ = started_run(tmp_path / "run")
    path = run.place("tables/a.parquet")
    shutil.rmtree(run.path)
    path.parent.mkdir(parents=True)
    path.write_text("ours")
    with pytest.raises(UserError, match="lost"):
        run.place("tables/b.parquet")
    run.discard()
    assert not run.path.exists()


def test_what_a_killed_write_left_goes_with_the_rest_of_the_run(tmp_path):
    run = OwnRunDirectory(tmp_path / "run")
    run.mark()
    run.place("tables/a.parquet").parent.mkdir()
    (run / "tables/.a.parquet.7.partial").write_text("")
    run.discard()
    assert not run.path.exists()


def test_a_withdrawn_table_is_in_no_manifest_until_it_is_written_again(tmp_path):
    directory = finished_run(tmp_path / "run")
    run = OwnRunDirectory(directory)
    run.withdraw(["a"], ["examples/test.parquet"])
    manifest = RunDirectory(directory).verify()
    assert (manifest["tables"], manifest["files"]) == ({}, {})
    assert manifest["run_id"] == "r"


def test_several_damaged_runs_are_listed_and_a_sound_one_is_found(tmp_path):
    for name in ("a", "b", "c"):
        finished_run(tmp_path / name)
    for name in ("a", "c"):
        (tmp_path / name / "tables" / "a.parquet").unlink()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert find_runs(tmp_path) == [tmp_path / "b"]
    assert [str(one.message).count("a.parquet is damaged: it is missing") for one in caught] == [2]


def test_a_seal_does_not_depend_on_how_keys_were_given():
    assert json.loads(sealed({"a": {1: 2}}))["checksum"] == json.loads(sealed({"a": {"1": 2}}))["checksum"]
