"""A command that adds to a finished run is killed before every operation that changes a file."""

import os
import shutil
import sys

import pytest

from attnprobe.results.directory import TRAINED, RunDirectory
from attnprobe.results.writer import CHECKPOINTS, OwnRunDirectory
from tests.faults.operations import Fault, watch
from tests.results.test_directory import content_of, write_mine

FIRST = {
    "tables/a.parquet": "a",
    "tables/training.parquet": "t",
    "figures/a.pdf": "p",
}
SECOND = {
    "tables/b.parquet": "b",
    "tables/training.parquet": "t2",
    "figures/b.pdf": "q",
}
MINE = (
    "mine.txt",
    "parts/mine.part",
    "checkpoints/mine.ckpt",
    ".figures.partial/mine",
    "tables/mine.parquet",
)


def measured(directory, files):
    """What the command does: it trains where nothing is trained yet, and adds these files."""
    run = OwnRunDirectory(directory)
    run.mark()
    if not run.is_trained:
        run.place("config.yaml").write_text("a: 0\n")
        run.place("model.safetensors").write_text("weights")
        before = run.finish_training({})
    else:
        before = run.read_manifest() or run.read_listing(TRAINED)
    run.place("config.yaml").write_text(f"a: {len(before['files'])}\n")
    (run.folder(CHECKPOINTS) / "epoch=1.ckpt").write_text("")
    for name, content in files.items():
        run.place(name).write_text(content)
    run.finish({"tables": {}}, before["files"])


def in_a_child(work, folder, fault):
    """The operations on files that work does in a fork, and the status with which it ends."""
    reading, writing = os.pipe()

    def report(operation):
        os.write(writing, f"{operation}\n".encode())

    child = os.fork()
    if child == 0:
        try:
            watch(folder, fault, report)
            work()
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        operations = pipe.read().splitlines()
    return operations, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


STATUSES = {"kill": {-9}, "error": {1}, "full": {0, 1}}
"""How a command may end at a fault of this kind."""


@pytest.mark.skipif(sys.platform != "linux", reason="the test forks as Linux does")
@pytest.mark.parametrize(
    ("kind", "every"),
    [
        ("kill", 1),
        ("full", 4),
        ("error", 4),
        pytest.param("full", 1, marks=pytest.mark.slow),
        pytest.param("error", 1, marks=pytest.mark.slow),
    ],
)
def test_a_run_is_whole_at_every_moment_and_the_same_command_finishes_it(tmp_path, kind, every):
    start = tmp_path / "start"
    measured(start, FIRST)
    write_mine(start, MINE)
    old = content_of(start)

    expected = tmp_path / "expected"
    shutil.copytree(start, expected)
    measured(expected, SECOND)
    new = content_of(expected)

    work = tmp_path / "work"
    shutil.copytree(start, work)
    operations, status = in_a_child(lambda: measured(work, SECOND), work, None)
    assert status == 0
    assert len(operations) > 30

    finished_early = 0
    for index, operation in list(enumerate(operations))[::every]:
        shutil.rmtree(work)
        shutil.copytree(start, work)
        _, status = in_a_child(lambda: measured(work, SECOND), work, Fault(kind, index))
        assert status in STATUSES[kind], operation

        run = RunDirectory(work)
        is_new = (work / "manifest.json").read_bytes() == new["manifest.json"]
        contents = new if is_new else old
        for name in run.verify()["files"]:
            assert run.file(name).read_bytes() == contents[name], operation
        for name in MINE:
            assert (work / name).read_text() == "mine"

        if is_new:
            finished_early += 1
            OwnRunDirectory(work).mark()
        else:
            measured(work, SECOND)
        assert content_of(work) == new, operation
    assert 0 < finished_early < len(operations)
