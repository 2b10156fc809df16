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
    `ValueError`. Hidden characters in it (of a column's name, of a text) are shown as escapes.
    """

    def __init__(self, message: str) -> None:
        super().__init__(visible(message))


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
    except Exception as error:
        if not _is_refusal(error):
            raise
        number = getattr(error, "errno", None)
        file = getattr(error, "filename", None)
        trouble = "lost" if number in (errno.ENOENT, errno.ENOTDIR) else "cannot write to"
        reason = getattr(error, "strerror", None) or error
        detail = f" ({file})" if file and place else ""
        raise UserError(
            f"{trouble} {place or file or 'the results'}: {reason}{detail}. "
            f"Nothing half-written counts: make room, or choose another place, "
            f"and give the same command again"
        ) from error


def _is_refusal(error: Exception) -> bool:
    """Whether an error comes from a disk and not from a bug."""
    if isinstance(error, OSError):
        return errno.errorcode.get(error.errno or 0) in REFUSALS
    # safetensors has an error of its own
    return type(error).__name__ == "SafetensorError" and "os error" in str(error)
