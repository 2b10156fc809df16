"""The one kind of error that is a message to the user rather than a bug."""

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from attnprobe.core.sanitise import visible

MAKE_ROOM = "make room, or choose another place"
GET_WRITABLE = "choose a place that you may write to"
RETRY = "give the same command again"
REFUSALS = {
    "ENOSPC": f"{MAKE_ROOM}, and {RETRY}",
    "EDQUOT": f"{MAKE_ROOM}, and {RETRY}",
    "EFBIG": f"{MAKE_ROOM}, and {RETRY}",
    "EROFS": f"{GET_WRITABLE}, and {RETRY}",
    "EACCES": f"{GET_WRITABLE}, and {RETRY}",
    "EPERM": f"{GET_WRITABLE}, and {RETRY}",
    "EIO": f"choose another place, and {RETRY}",
    "ELOOP": f"choose another place, and {RETRY}",
    "ENAMETOOLONG": f"choose another place, and {RETRY}",
    "ENOENT": RETRY,
    "ENOTDIR": RETRY,
    "ESTALE": RETRY,
}
"""What a disk answers that is full, read-only or failing, that has no such place, or whose folders
somebody has removed, and what to do then."""


class UserError(ValueError):
    """Something the user can put right: a file, a setting, a column name.

    The text names the value that came, what was expected, and what to do next. The command line
    prints it alone, without a traceback, and exits with status 2; in Python it is an ordinary
    `ValueError`. Hidden characters in it (of a column's name, of a text) are shown as escapes.
    """

    def __init__(self, message: str) -> None:
        super().__init__(visible(message))


def reason_of(error: BaseException, most: int = 150) -> str:
    """An error of another library on one line of at most that many characters, its type first.

    >>> reason_of(RuntimeError("no such\\n  piece"))
    'RuntimeError: no such piece'
    """
    return " ".join(f"{type(error).__name__}: {error}".split())[:most]


def as_typed(message: str, typed: Mapping[str, str]) -> str:
    """A message about settings, of a command that has options for some of them.

    Args:
        message: names settings.
        typed: how a setting begins → what the command calls it.

    >>> as_typed("model.path=bert: no such folder", {"model.path=": "--encoder "})
    '--encoder bert: no such folder'
    """
    for setting, option in typed.items():
        message = message.replace(setting, option)
    return message


@contextmanager
def answering_disk(place: Path | None = None) -> Iterator[None]:
    """Turn what a disk refuses while results are written into a message.

    Args:
        place: where they are written; None: the file that the system names.

    Raises:
        UserError: the disk is full or failing, or the directory was removed meanwhile.
    """
    try:
        yield
    except OSError as error:
        number = error.errno or 0
        code = errno.errorcode.get(number, "")
        if code not in REFUSALS:
            raise
        file = error.filename2 or error.filename  # of a copy, what it was to become
        trouble = "lost" if code in ("ENOENT", "ENOTDIR") else "cannot write to"
        detail = ""
        if file and place and Path(file).absolute() != place.absolute():
            detail = f" ({file})"
        raise UserError(
            f"{trouble} {place or file or 'the results'}: {os.strerror(number)}{detail}. "
            f"Nothing half-written counts: {REFUSALS[code]}"
        ) from error


@contextmanager
def answering_permissions() -> Iterator[None]:
    """Turn a file or folder that is closed to this user into a message.

    Raises:
        UserError: the system does not let this user read, search or write it.
    """
    try:
        yield
    except PermissionError as error:
        if error.filename is None:
            raise
        raise UserError(
            f"{error.filename}: {error.strerror}: ask its owner for the right to it, "
            f"or name another place"
        ) from error
