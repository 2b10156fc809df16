import subprocess
import sys
import time

import pytest

from attnprobe.errors import UserError
from attnprobe.running.lock import locked

HOLDER = """
import sys, time
from pathlib import Path
from attnprobe.running.lock import locked

with locked(Path("run")):
    print("held", flush=True)
    time.sleep(float(sys.argv[1]))
    Path("left").touch()
"""


def holder(folder, seconds):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(seconds)], cwd=folder, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    return process


def test_the_second_waits_for_the_first_and_says_for_whom(tmp_path, capfd):
    with holder(tmp_path, 0.5) as first:
        with locked(tmp_path / "run"):
            assert (tmp_path / "left").exists()
        assert f"attnprobe: waiting for process {first.pid} on " in capfd.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"left"}


def test_a_killed_owner_holds_nothing(tmp_path, capfd):
    with holder(tmp_path, 60) as first:
        first.kill()
    assert (tmp_path / ".run.lock").exists()
    started = time.monotonic()
    with locked(tmp_path / "run"):
        assert time.monotonic() - started < 5
    assert capfd.readouterr().err == ""
    assert not list(tmp_path.iterdir())


def test_many_take_turns(tmp_path):
    """A counter that is read, then written: only one at a time gets it right, whoever removes the lock's file."""
    code = """
import time
from pathlib import Path
from attnprobe.running.lock import locked
for _ in range(20):
    with locked(Path("run")):
        count = int(Path("count").read_text())
        time.sleep(0.002)
        Path("count").write_text(str(count + 1))
"""
    (tmp_path / "count").write_text("0")
    processes = [
        subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stderr=subprocess.DEVNULL) for _ in range(4)
    ]
    assert [process.wait(timeout=60) for process in processes] == [0] * 4
    assert (tmp_path / "count").read_text() == "80"


def test_a_place_that_cannot_be_written_to(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write to .*/file/run.*output="), locked(tmp_path / "file" / "run"):
        pass


def test_a_run_in_a_place_that_is_only_read_has_no_lock(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("attnprobe.running.lock.os.open", refuse)
    with locked(tmp_path / "run"):
        assert [path.name for path in tmp_path.iterdir()] == ["run"]
