"""The one kind of error that is a message to the user rather than a bug."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attnprobe.core.sanitise import visible

REFUSALS = {
    "ENOSPC",
    "EDQUOT",
    "EFBIG",
    "EROFS",
    "EIO",
    "EACCES",
    "EPERM",
    "ENOENT",
    "ENOTDIR",
    "ESTALE",
}
"""What a disk answers that is full, failing or read-only, or whose folders somebody has removed."""


class UserError(ValueError):
    """Something the user can put right: a file, a setting, a column name.

    The text names the value that came, what was expected, and what to do next. The command line
    prints it alone, without a traceback, and exits with status 2; in Python it is an ordinary
    `ValueError`. Hidden characters in it (of a column's name, of a text) are shown as escapes."""

    def __init__(self, message: str) -> None:
        super().__init__(visible(message))


@contextmanager
def answering_disk(place: Path | None = None) -> Iterator[None]:
    """What a disk refuses while results are written to `place` (None: to the file that the system
    names) is no bug: raises `UserError` where it is full or failing, or the directory was removed
    meanwhile."""
    try:
        yield
    except Exception as error:
        number = getattr(error, "errno", None)
        named = getattr(error, "filename", None)
        refused = isinstance(error, OSError) and errno.errorcode.get(number or 0) in REFUSALS
        # safetensors has an error of its own
        if not refused and not (
            type(error).__name__ == "SafetensorError" and "os error" in str(error)
        ):
            raise
        trouble = "lost" if number in (errno.ENOENT, errno.ENOTDIR) else "cannot write to"
        file = f" ({named})" if named and place else ""
        raise UserError(
            f"{trouble} {place or named or 'the results'}: {getattr(error, 'strerror', None) or error}{file}. Nothing "
            f"half-written counts: make room, or choose another place, and give the same command again"
        ) from error
