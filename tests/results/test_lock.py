import errno
import fcntl
import os
import subprocess
import sys

import pytest

from attnprobe.core.errors import UserError
from attnprobe.results.lock import locked
from attnprobe.results.writer import LOCK

HOLDER = """
import sys
from pathlib import Path
from attnprobe.core.errors import UserError
from attnprobe.results.lock import locked

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
    messages = []
    with holder(tmp_path) as first:

        class StandardError:
            """The first process lets go once the second has said that it waits."""

            def write(self, text):
                messages.append(text)
                first.stdin.close()

            def flush(self):
                pass

        with monkeypatch.context() as patched:
            patched.setattr(sys, "stderr", StandardError())
            with locked(tmp_path / "run"):
                assert (tmp_path / "left").exists()
        assert "".join(messages).startswith(f"attnprobe: waiting for process {first.pid} on ")
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
    """A counter that is read, then written, is right only if one process at a time has the lock."""
    code = """
import time
from pathlib import Path
from attnprobe.core.errors import UserError
from attnprobe.results.lock import locked
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
    """A process that waits may lock a file that its owner has removed.

    The next process would make another file, and lock that one.
    """
    path = tmp_path / "run" / LOCK
    real_flock = fcntl.flock
    calls = []

    def flock(descriptor, operation):
        if not calls:
            path.unlink()
        calls.append(descriptor)
        real_flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    with (
        locked(tmp_path / "run"),
        path.open("r+") as present,
        pytest.raises(BlockingIOError),
    ):
        real_flock(present, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_somebody_elses_lock_is_not_removed(tmp_path):
    """The output was deleted meanwhile, and another run began in its place.

    A directory has one lock, by whatever name it is reached.
    """
    path = tmp_path / "run" / LOCK
    path.parent.mkdir()
    (tmp_path / "link").symlink_to("run")
    with locked(tmp_path / "link"):
        path.unlink()
        path.write_text("process 7 on another machine")
    assert path.exists()


def test_a_link_that_leads_to_itself_is_no_place_for_a_run(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    with (
        pytest.raises(UserError, match=r"cannot write to .*loop: .*links\. Choose another place"),
        locked(tmp_path / "loop"),
    ):
        pass


def test_a_folder_that_may_not_be_looked_into_is_no_place_for_a_run(tmp_path, monkeypatch):
    def listdir(path):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "listdir", listdir)
    with (
        pytest.raises(UserError, match=r"cannot write to .*run: Permission denied\. Choose"),
        locked(tmp_path / "run"),
    ):
        pass


@pytest.mark.parametrize(
    ("module", "name", "number"),
    [
        (fcntl, "flock", errno.ENOSYS),
        (fcntl, "flock", errno.ENOLCK),
        (os, "open", errno.EACCES),
    ],
)
def test_a_file_system_without_locks_or_a_read_only_one_stops_no_run(
    tmp_path, monkeypatch, module, name, number
):
    """And it gets no soft lock, which a killed process would leave behind."""
    real = getattr(module, name)

    def refuse(*arguments, **named):
        if name == "flock" or str(arguments[0]).endswith(".lock"):
            raise OSError(number, "no locks")
        return real(*arguments, **named)

    monkeypatch.setattr(module, name, refuse)
    with locked(tmp_path / "run"), locked(tmp_path / "run"):
        assert not [path for path in (tmp_path / "run").glob(LOCK) if path.stat().st_size]


@pytest.mark.parametrize("content", ["", "my notes\n", "process 7 on mine\nand more\n"])
def test_a_file_that_a_user_linked_in_place_of_the_lock_is_not_touched(tmp_path, content):
    mine = tmp_path / "mine.txt"
    mine.write_text(content)
    path = tmp_path / "run" / LOCK
    path.parent.mkdir()
    path.hardlink_to(mine)
    with locked(tmp_path / "run"):
        pass
    assert mine.read_text() == content
    assert path.samefile(mine)


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path):
    mine = tmp_path / "mine.txt"
    mine.write_text("my notes\n")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LOCK).symlink_to(mine)
    message = f"{LOCK} in it is a symbolic link"
    with pytest.raises(UserError, match=message), locked(tmp_path / "run"):
        pass
    assert mine.read_text() == "my notes\n"


def test_the_last_owners_name_is_written_over_whatever_its_length(tmp_path):
    path = tmp_path / "run" / LOCK
    path.parent.mkdir()
    path.write_text(f"process 1234567890 on {'long' * 20}\n")
    with locked(tmp_path / "run"):
        (owner,) = path.read_text().splitlines()
        assert owner.split()[:2] == ["process", str(os.getpid())]


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES, errno.ENOSPC])
def test_a_lock_that_cannot_be_removed_ends_no_finished_run(tmp_path, monkeypatch, number):
    real = os.unlink

    def refuse(path, *arguments, **named):
        if str(path).endswith(".lock"):
            raise OSError(number, "no")
        return real(path, *arguments, **named)

    with monkeypatch.context() as patched, locked(tmp_path / "run"):
        patched.setattr(os, "unlink", refuse)
    with locked(tmp_path / "run"):
        pass
