import errno
from pathlib import Path

import pytest

from attnprobe.core.errors import UserError, answering_disk, answering_permissions


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device"),
            r"cannot write to runs/x: No space left on device\. Nothing half-.*: make room",
        ),
        (  # pyarrow's
            OSError(errno.ENOSPC, "Error writing bytes to file. Detail: [errno 28] No space"),
            r"cannot write to runs/x: No space left on device\. Nothing",
        ),
        (
            OSError(errno.EROFS, "Read-only file system", "runs/x/a"),
            r"cannot write to runs/x: Read-only .* \(runs/x/a\)\. .*: choose a place that you may",
        ),
        (  # a copy's: the disk that is full is not that of the copied file
            OSError(errno.ENOSPC, "No space left on device", "/tmp/a", None, "runs/x/b"),
            r"cannot write to runs/x: No space left on device \(runs/x/b\)\. Nothing",
        ),
        (
            OSError(errno.EROFS, "Read-only file system", "runs/x"),
            r"cannot write to runs/x: Read-only file system\. ",
        ),
        (
            FileNotFoundError(errno.ENOENT, "No such file or directory", "a"),
            r"lost runs/x: No such file .*\. Nothing half-written counts: give the same command",
        ),
    ],
)
def test_what_the_disk_refuses_is_a_message(error, message):
    with pytest.raises(UserError, match=message), answering_disk(Path("runs/x")):
        raise error


@pytest.mark.parametrize("error", [OSError("of another kind"), ValueError("a bug")])
def test_what_is_a_bug_stays_one(error):
    with pytest.raises(type(error), match=str(error)) as raised, answering_disk():
        raise error
    assert raised.value is error


def test_without_a_place_the_file_is_named():
    with (
        pytest.raises(UserError, match=r"cannot write to b\.csv: Permission denied\. Nothing"),
        answering_disk(),
    ):
        raise PermissionError(errno.EACCES, "Permission denied", "b.csv")


def test_what_is_closed_to_this_user_is_a_message():
    with (
        pytest.raises(UserError, match=r"^runs/a: Permission denied: ask its owner for the right"),
        answering_permissions(),
    ):
        raise PermissionError(errno.EACCES, "Permission denied", "runs/a")


def test_a_refusal_that_is_about_no_file_stays_one():
    with pytest.raises(PermissionError, match="a process"), answering_permissions():
        raise PermissionError(errno.EPERM, "a process of another user")
