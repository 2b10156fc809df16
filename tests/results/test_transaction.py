"""A command that adds to a finished run is killed before every operation that changes a file."""

import os
import shutil
import sys

import pytest

from attnprobe.results.directory import TRAINED, RunDirectory
from attnprobe.results.writer import CHECKPOINTS, OwnRunDirectory
from tests.faults.operations import Fault, watch
from tests.results.test_directory import content_of

FIRST = {"tables/a.parquet": "a", "tables/training.parquet": "t", "figures/a.pdf": "p"}
SECOND = {"tables/b.parquet": "b", "tables/training.parquet": "t2", "figures/b.pdf": "q"}
MINE = (
    "mine.txt",
    "parts/mine.part",
    "checkpoints/mine.ckpt",
    ".figures.partial/mine",
    "tables/mine.parquet",
)


def measured(directory, files):
    run = OwnRunDirectory(directory)
    run.mark()
    before = run.read_manifest() or {
        "files": run.read_listing(TRAINED)["files"] if run.is_trained else {}
    }
    if not run.is_trained:
        run.place("config.yaml").write_text("a: 0\n")
        run.place("model.safetensors").write_text("weights")
        before = run.finish_training({})
    run.place("config.yaml").write_text(f"a: {len(before['files'])}\n")
    (run.folder(CHECKPOINTS) / "epoch=1.ckpt").write_text("")
    for name, content in files.items():
        run.place(name).write_text(content)
    run.finish({"tables": {}}, before["files"])


def in_a_child(work, folder, fault):
    """Do it in a fork; the operations that were counted, and how it ended."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            watch(folder, fault, lambda line: (os.write(writing, f"{line}\n".encode()), None)[1])
            work()
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as told:
        operations = told.read().splitlines()
    return operations, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(sys.platform != "linux", reason="the test forks as Linux does")
@pytest.mark.parametrize("kind", ["kill", "full", "error"])
def test_a_run_is_whole_at_every_moment_and_the_same_command_finishes_it(tmp_path, kind):
    start = tmp_path / "start"
    expected = tmp_path / "expected"
    work = tmp_path / "work"
    measured(start, FIRST)
    for name in MINE:
        (start / name).parent.mkdir(exist_ok=True)
        (start / name).write_text("mine")
    shutil.copytree(start, expected)
    measured(expected, SECOND)
    old = content_of(start)
    new = content_of(expected)
    shutil.copytree(start, work)
    operations, status = in_a_child(lambda: measured(work, SECOND), work, None)
    assert status == 0
    assert len(operations) > 30
    true = 0
    for at in range(len(operations)):
        shutil.rmtree(work)
        shutil.copytree(start, work)
        _, status = in_a_child(lambda: measured(work, SECOND), work, Fault(kind, at))
        assert status in {"kill": (-9,), "error": (1,), "full": (0, 1)}[kind], operations[at]
        run = RunDirectory(work)
        listed = run.verify()["files"]
        counts = new if (work / "manifest.json").read_bytes() == new["manifest.json"] else old
        assert all(run.file(name).read_bytes() == counts[name] for name in listed), operations[at]
        assert all((work / name).read_text() == "mine" for name in MINE)
        true += counts is new
        OwnRunDirectory(work).mark() if counts is new else measured(work, SECOND)
        assert content_of(work) == new, operations[at]
    assert 0 < true < len(operations)
