"""One process at a time in a run directory, whatever started the others."""

import errno
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from attnprobe.errors import UserError, answering_disk

NO_LOCKS = frozenset(
    getattr(errno, name) for name in ("ENOSYS", "ENOTSUP", "EOPNOTSUPP", "ENOLCK", "EINVAL") if hasattr(errno, name)
)
"""What a file system answers that has no locks."""


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold a run directory; waits, and says so, as long as another process holds it.

    The lock is a file beside the directory. The system releases it when the process ends, however it ends, so a killed
    run leaves no lock; the file itself may stay and is harmless. File systems without locks have none.

    Raises:
        UserError: nothing can be written there, at first or later on.
    """
    directory = directory.resolve()  # one lock for one place, by whatever name it is reached
    path = directory.with_name(f".{directory.name}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = acquired(path, directory)
    except OSError as error:
        raise UserError(
            f"cannot write to {directory}: {error.strerror}. Choose a writable place with output=… or run_dir=…"
        ) from error
    held = identity(path)
    try:
        with answering_disk(directory):
            yield
    finally:
        if lock is not None:
            # removed while it is held: whoever waits for a removed file tries again. If the output was deleted meanwhile,
            # the file may be another run's by now
            if held is not None and identity(path) == held:
                path.unlink(missing_ok=True)
            lock.release()


def acquired(path: Path, directory: Path) -> FileLock | None:
    """The lock; None where there are no locks."""
    # a lock that is nothing but a file would outlive a killed process
    lock = FileLock(path, fallback_to_soft=False, on_acquired=sign)
    try:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            owner = text_of(path) or "another process"
            print(f"attnprobe: waiting for {owner}, which works in {directory}", file=sys.stderr, flush=True)
            lock.acquire()
    except OSError as error:
        # nothing can be written beside it; whether it can be written in shows later
        if error.errno in NO_LOCKS or directory.is_dir():
            return None
        raise
    return lock


def sign(descriptor: int) -> None:
    """Write into the lock's file who holds it, for those that wait."""
    with suppress(OSError):  # a full disk is noticed where it matters
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode())


def text_of(path: Path) -> str:
    """What the owner of a lock wrote into it; nothing where that cannot be read."""
    try:
        return path.read_bytes()[:200].decode(errors="replace").strip()
    except OSError:
        return ""


def identity(path: Path) -> tuple[int, int] | None:
    """What tells the file at this path from another one that is put there later; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
