import errno
import os

import pytest

from attnprobe.runs.answers import answer


@pytest.mark.parametrize("is_readable", [False, True])
def test_a_file_that_cannot_be_read_is_no_place_to_write(tmp_path, monkeypatch, is_readable):
    """Hydra reads conf/ and makes folders; whoever runs the tests may be root, who may do both."""
    path = tmp_path / "mine.yaml"
    path.touch()
    monkeypatch.setattr(os, "access", lambda path, mode: is_readable)
    error = PermissionError(errno.EACCES, "Permission denied", str(path))
    beginning = "cannot write to" if is_readable else "cannot read"
    assert answer(error).startswith(f"{beginning} {path}: Permission denied. ")
