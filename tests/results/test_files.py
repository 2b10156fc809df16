import pytest

from attnprobe.results.files import write_atomically


def test_a_reader_sees_the_old_file_or_the_new_one(tmp_path):
    """Who has opened the old file reads it to its end: the new one is another file, moved into its place whole."""
    path, written = tmp_path / "a", []
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
