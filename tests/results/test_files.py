import os
import subprocess
import sys

import pytest

from attnprobe.results.files import write_atomically


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_reader_sees_the_old_file_or_the_new_one(tmp_path):
    """The new file is a file of its own, moved into place whole: an open reader keeps the old."""
    path = tmp_path / "a"
    path.write_text("old and long")
    inodes = []

    def write(partial):
        partial.write_text("new")
        assert path.read_text() == "old and long"
        inodes.append(partial.stat().st_ino)

    with path.open() as reader:
        write_atomically(path, write)
        assert reader.read() == "old and long"

    assert path.read_text() == "new"
    assert [path.stat().st_ino] == inodes
    assert names_in(tmp_path) == ["a"]


def test_what_cannot_be_written_leaves_the_old_file(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")

    def write(partial):
        partial.write_text("ha")
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        write_atomically(path, write)

    assert path.read_text() == "old"
    assert names_in(tmp_path) == ["a"]


def test_the_next_write_removes_what_a_killed_one_left_and_no_other_file(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()  # no process of this number any more
    killed_write = f".a.{child.pid}.partial"
    running_write = f".a.{os.getppid()}.partial"
    another_file = f".b.{child.pid}.partial"
    unnumbered = ".a.x.partial"
    for name in (killed_write, running_write, another_file, unnumbered):
        (tmp_path / name).write_text("half")

    write_atomically(tmp_path / "a", lambda partial: partial.write_text("whole"))

    assert set(names_in(tmp_path)) == {"a", running_write, another_file, unnumbered}
