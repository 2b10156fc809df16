"""One process at a time in a run directory, whatever started the others."""

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attnprobe.errors import UserError, answering_disk

try:
    import fcntl
except ImportError:  # Windows: no locks
    fcntl = None  # type: ignore[assignment]


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold a run directory; waits, and says so, as long as another process holds it.

    The lock is a file beside the directory. The system lets go of it when the process ends, however it ends, so no
    killed run leaves a lock behind; the file itself, should it stay, is harmless. File systems without locks have none.

    Raises:
        UserError: nothing can be written there, at first or later on.
    """
    directory = directory.resolve()  # one lock for one place, by whatever name it is reached
    path = directory.with_name(f".{directory.name}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = acquired(path, directory)
    except OSError as error:
        raise UserError(
            f"cannot write to {directory}: {error.strerror}. Choose a writable place with output=… or run_dir=…"
        ) from error
    try:
        with answering_disk(directory):
            yield
    finally:
        if descriptor is not None:
            if is_at(path, descriptor):  # whoever removed it, as with a deleted output, made another one the lock
                path.unlink(missing_ok=True)
            os.close(descriptor)


def acquired(path: Path, directory: Path) -> int | None:
    """The descriptor of the locked file; None where there are no locks."""
    if fcntl is None:
        return None
    said = False
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError:
            if directory.is_dir():  # nothing can be written beside it; whether in it, its owner will see
                return None
            raise
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not said:
                    owner = os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "another process"
                    print(f"attnprobe: waiting for {owner}, which works in {directory}", file=sys.stderr, flush=True)
                    said = True
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            except OSError:
                os.close(descriptor)
                return None
            # who held it has removed the file since: another one may have been made, which is the lock now
            if is_at(path, descriptor):
                os.truncate(descriptor, 0)
                os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def is_at(path: Path, descriptor: int) -> bool:
    """Whether an open file is the one at this path."""
    try:
        there, held = os.stat(path), os.fstat(descriptor)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return (there.st_dev, there.st_ino) == (held.st_dev, held.st_ino)
