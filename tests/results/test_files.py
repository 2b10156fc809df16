import os
import subprocess
import sys

import pytest

from attnprobe.results.files import write_atomically


def test_a_reader_sees_the_old_file_or_the_new_one(tmp_path):
    """Who has opened the old file reads it to its end: the new one is another file, moved into its
    place whole."""
    path = tmp_path / "a"
    written = []
    path.write_text("old and long")

    def write(partial):
        partial.write_text("new")
        assert path.read_text() == "old and long"
        written.append(partial.stat().st_ino)

    with path.open() as reader:
        write_atomically(path, write)
        assert reader.read() == "old and long"
    assert path.read_text() == "new"
    assert [path.stat().st_ino] == written
    assert [one.name for one in tmp_path.iterdir()] == ["a"]


def test_what_cannot_be_written_leaves_the_old_file(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")

    def write(partial):
        partial.write_text("ha")
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        write_atomically(path, write)
    assert path.read_text() == "old"
    assert [one.name for one in tmp_path.iterdir()] == ["a"]


def test_what_a_killed_write_left_goes_with_the_next_one_and_that_of_a_process_at_work_stays(
    tmp_path,
):
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()  # no process of this number any more
    names = [
        f".a.{child.pid}.partial",
        f".a.{os.getppid()}.partial",
        f".b.{child.pid}.partial",
        ".a.x.partial",
    ]
    for name in names:
        (tmp_path / name).write_text("half")
    write_atomically(tmp_path / "a", lambda partial: partial.write_text("whole"))
    assert {one.name for one in tmp_path.iterdir()} == {"a", *names[1:]}
