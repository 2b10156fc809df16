"""A study reads its data once."""

import pytest

from attnprobe.data.module import TextDataModule
from attnprobe.data.prepare import read_once
from attnprobe.data.sources import FileSource

ROWS = "text,label\n" + "".join(f"a {'good' if n % 2 else 'bad'} film number {n},{n % 2}\n" for n in range(40))


@pytest.fixture
def reads(monkeypatch):
    """How often a file was read."""
    found = []
    load = FileSource.load
    monkeypatch.setattr(FileSource, "load", lambda source: found.append(source.path) or load(source))
    return found


def ready(path, **settings):
    data = TextDataModule("own", FileSource(path), text="text", label="label", embedding_size=4, **settings)
    data.setup()
    return data


def test_the_same_data_are_read_once_and_are_the_same(tmp_path, reads):
    path = tmp_path / "own.csv"
    path.write_text(ROWS.replace(",", ";"))
    alone = ready(path)
    ready(path)
    assert len(reads) == 2  # no study
    with read_once():
        first = ready(path)
        again = ready(path, batch_size=64)  # another setting: read again
        assert len(reads) == 4
        same = ready(path, batch_size=64)
        assert len(reads) == 4
    assert alone.fingerprint == first.fingerprint == again.fingerprint == same.fingerprint
    assert alone.section == same.section
    assert any("separator" in note or ";" in note for note in same.notes)
    ready(path)
    assert len(reads) == 5


def test_a_file_that_has_changed_is_read_again(tmp_path, reads):
    path = tmp_path / "own.csv"
    path.write_text(ROWS)
    with read_once():
        before = ready(path)
        path.write_text(ROWS + "one more good one,1\n")
        after = ready(path)
    assert len(reads) == 2
    assert sum(after.sizes.values()) == sum(before.sizes.values()) + 1
