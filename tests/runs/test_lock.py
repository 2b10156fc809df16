import errno
import fcntl
import os
import subprocess
import sys

import pytest

from attnprobe.results.writer import LOCK
from attnprobe.runs.lock import locked

HOLDER = """
import sys
from pathlib import Path
from attnprobe.runs.lock import locked

with locked(Path("run")):
    print("held", flush=True)
    sys.stdin.read()
    Path("left").touch()
"""


def holder(folder):
    """A process that holds the lock until its standard input is closed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "held\n"
    return process


def test_the_second_waits_for_the_first_and_says_for_whom(tmp_path, monkeypatch):
    said = []
    with holder(tmp_path) as first:

        class Told:
            """Standard error; the first lets go once the second has said that it waits."""

            def write(self, text):
                said.append(text)
                first.stdin.close()

            def flush(self):
                pass

        with monkeypatch.context() as patched:
            patched.setattr(sys, "stderr", Told())
            with locked(tmp_path / "run"):
                assert (tmp_path / "left").exists()
        assert "".join(said).startswith(f"attnprobe: waiting for process {first.pid} on ")
    assert {path.name for path in tmp_path.iterdir()} == {"left"}


def test_a_killed_owner_holds_nothing(tmp_path, capfd):
    with holder(tmp_path) as first:
        first.kill()
    assert (tmp_path / "run" / LOCK).exists()
    with locked(tmp_path / "run"):
        pass
    assert capfd.readouterr().err == ""
    assert not list(tmp_path.iterdir())


def test_several_processes_hold_the_lock_one_at_a_time(tmp_path):
    """A counter that is read, then written: only one at a time gets it right, whoever removes the
    lock's file."""
    code = """
import time
from pathlib import Path
from attnprobe.runs.lock import locked
for _ in range(20):
    with locked(Path("run")):
        count = int(Path("count").read_text())
        time.sleep(0.002)
        Path("count").write_text(str(count + 1))
"""
    (tmp_path / "count").write_text("0")
    processes = [
        subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stderr=subprocess.DEVNULL)
        for _ in range(4)
    ]
    assert [process.wait() for process in processes] == [0] * 4
    assert (tmp_path / "count").read_text() == "80"


def test_the_lock_is_the_file_that_is_there_and_not_one_that_was_removed(tmp_path, monkeypatch):
    """Who waits gets hold of a file that its owner removed; the next one would make another, and
    hold that."""
    removed = []

    def flock(descriptor, operation):
        if not removed:
            (tmp_path / "run" / LOCK).unlink()
            removed.append(True)
        real(descriptor, operation)

    real = fcntl.flock
    monkeypatch.setattr(fcntl, "flock", flock)
    with (
        locked(tmp_path / "run"),
        (tmp_path / "run" / LOCK).open("r+") as there,
        pytest.raises(BlockingIOError),
    ):
        real(there, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_somebody_elses_lock_is_not_removed(tmp_path):
    """The output was deleted meanwhile, and another run began in its place. One lock has a
    directory, whatever its name."""
    path = tmp_path / "run" / LOCK
    path.parent.mkdir()
    (tmp_path / "link").symlink_to("run")
    with locked(tmp_path / "link"):
        path.unlink()
        path.write_text("process 7 on another machine")
    assert path.exists()


@pytest.mark.parametrize(
    ("module", "name", "number"),
    [(fcntl, "flock", errno.ENOSYS), (fcntl, "flock", errno.ENOLCK), (os, "open", errno.EACCES)],
)
def test_a_file_system_without_locks_or_that_is_only_read_has_none(
    tmp_path, monkeypatch, module, name, number
):
    """Least of all one that a killed process would leave behind."""
    real = getattr(module, name)

    def refuse(*arguments, **named):
        if name == "flock" or str(arguments[0]).endswith(".lock"):
            raise OSError(number, "no locks")
        return real(*arguments, **named)

    monkeypatch.setattr(module, name, refuse)
    with locked(tmp_path / "run"), locked(tmp_path / "run"):
        assert not [path for path in (tmp_path / "run").glob(LOCK) if path.stat().st_size]
