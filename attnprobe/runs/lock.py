"""One process at a time in a run directory, whatever started the others."""

import errno
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from attnprobe.core.errors import UserError, answering_disk
from attnprobe.results.writer import LOCK, OwnRunDirectory

NO_LOCKS = ("ENOSYS", "ENOTSUP", "EOPNOTSUPP", "ENOLCK", "EINVAL", "EACCES", "EPERM", "EROFS")
"""Error codes of a file system that has no locks or is read-only. They stop no run: whether the
run can be written shows later."""


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold a run directory, and wait as long as another process holds it.

    The lock is a file in the directory. The system releases it however the process ends; the file
    itself may stay. A file system without locks is used without one.

    Args:
        directory: of the run. It is created where it is missing, and removed again where nothing
            is left in it, unless it was there and empty before.

    Raises:
        UserError: if the directory belongs to somebody else, or nothing can be written there, now
            or during the block.
    """
    directory = directory.resolve()  # one lock for one place, by whatever name it is reached
    OwnRunDirectory(directory).refuse_foreign()
    was_empty = directory.is_dir() and not any(directory.glob("*"))
    path = directory / LOCK
    descriptors = list[int]()

    def sign(descriptor: int) -> None:
        descriptors.append(descriptor)
        with suppress(OSError):  # a full disk is noticed where it matters
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode())

    # a soft lock, which is nothing but a file, would outlive a killed process
    lock = FileLock(path, fallback_to_soft=False, on_acquired=sign)
    try:
        _acquire(lock, path)
    except OSError as error:
        if errno.errorcode.get(error.errno or 0) not in NO_LOCKS:
            raise UserError(
                f"cannot write to {directory}: {error.strerror}. "
                f"Choose a writable place with output=… or run_dir=…"
            ) from error

    try:
        with answering_disk(directory):
            yield
    finally:
        if lock.is_locked:
            # The file is removed while it is locked: a process that waits for a removed file tries
            # again. If the output was deleted meanwhile, the file there may be another run's by now
            is_linked = os.fstat(descriptors[-1]).st_nlink > 0
            if is_linked:
                path.unlink(missing_ok=True)
            lock.release()
        if not was_empty:
            with suppress(OSError):  # something is in it
                directory.rmdir()


def _acquire(lock: FileLock, path: Path) -> None:
    """Acquire the lock at `path`, and say on standard error for whom this process waits."""
    while not lock.is_locked:
        path.parent.mkdir(parents=True, exist_ok=True)
        # the process that held it may have removed an empty directory meanwhile
        with suppress(FileNotFoundError):
            try:
                lock.acquire(timeout=0)
            except Timeout:
                owner = path.read_text(errors="replace").strip() or "another process"
                print(
                    f"attnprobe: waiting for {owner}, which works in {path.parent}",
                    file=sys.stderr,
                    flush=True,
                )
                lock.acquire()
