"""One process at a time in a run directory, whatever started the others."""

import errno
import os
import socket
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from attnprobe.core.errors import UserError, answering_disk
from attnprobe.results.writer import LOCK, OwnRunDirectory

NO_LOCKS = frozenset(
    getattr(errno, name) for name in ("ENOSYS", "ENOTSUP", "EOPNOTSUPP", "ENOLCK", "EINVAL") if hasattr(errno, name)
)
"""What a file system answers that has no locks."""
HOLDER = "process "
"""How the content of a lock's file begins."""


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold a run directory; waits, and says so, as long as another process holds it.

    The lock is a file in the directory. The system releases it when the process ends, however it ends, so a killed
    run leaves no lock; the file itself may stay and is harmless. File systems without locks have none.

    Raises:
        UserError: the directory is somebody else's, or nothing can be written there, at first or later on.
    """
    directory = directory.resolve()  # one lock for one place, by whatever name it is reached
    OwnRunDirectory(directory).refuse_foreign()
    path, found_empty = directory / LOCK, False
    with suppress(OSError):
        found_empty = not os.listdir(directory)
    try:
        lock = _acquired(path, directory)
    except OSError as error:
        raise UserError(
            f"cannot write to {directory}: {error.strerror}. Choose a writable place with output=… or run_dir=…"
        ) from error
    held = _identity(path)
    try:
        with answering_disk(directory):
            yield
    finally:
        if lock is not None:
            # removed while it is held: whoever waits for a removed file tries again. If the output was deleted meanwhile,
            # the file may be another run's by now
            if held is not None and _identity(path) == held:
                path.unlink(missing_ok=True)
            lock.release()
        if not found_empty:
            with suppress(OSError):  # there is something in it
                directory.rmdir()


def _acquired(path: Path, directory: Path) -> FileLock | None:
    """The lock; None where there are no locks."""
    with suppress(FileNotFoundError):
        regular = stat.S_ISREG(path.lstat().st_mode)
        text = _text(path) if regular else ""  # read once: its owner may be writing it
        if not regular or (text and not text.startswith(HOLDER)):
            raise UserError(f"{path} is no lock of a run: move it away and give the same command again")
    # a lock that is nothing but a file would outlive a killed process
    lock = FileLock(path, fallback_to_soft=False, on_acquired=_sign)
    while not lock.is_locked:
        directory.mkdir(parents=True, exist_ok=True)
        # whoever held it may have removed an empty directory meanwhile
        with suppress(FileNotFoundError):
            try:
                try:
                    lock.acquire(timeout=0)
                except Timeout:
                    owner = _text(path) or "another process"
                    print(f"attnprobe: waiting for {owner}, which works in {directory}", file=sys.stderr, flush=True)
                    lock.acquire()
            except OSError as error:
                # whether the run can be written, although the lock cannot, shows later
                if error.errno in NO_LOCKS or error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                    return None
                raise
    return lock


def _sign(descriptor: int) -> None:
    """Write into the lock's file who holds it, for those that wait."""
    with suppress(OSError):  # a full disk is noticed where it matters
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{HOLDER}{os.getpid()} on {socket.gethostname()}\n".encode())


def _text(path: Path) -> str:
    """What the owner of a lock wrote into it; nothing where that cannot be read."""
    try:
        return path.read_bytes()[:200].decode(errors="replace").strip()
    except OSError:
        return ""


def _identity(path: Path) -> tuple[int, int] | None:
    """What tells the file at this path from another one that is put there later; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
