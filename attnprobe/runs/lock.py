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
"""What a file system answers that has no locks, or lets nothing be written: whether the run can be
written shows later."""


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold a run directory; waits, and says so, as long as another process holds it. The system
    releases the lock, a file in the directory, however the process ends; the file itself may stay.
    File systems without locks have none.

    Raises:
        UserError: the directory is somebody else's, or nothing can be written there, at first or
            later on.
    """
    directory = directory.resolve()  # one lock for one place, by whatever name it is reached
    OwnRunDirectory(directory).refuse_foreign()
    path = directory / LOCK
    descriptors = list[int]()
    found_empty = directory.is_dir() and not any(directory.glob("*"))

    def sign(descriptor: int) -> None:
        descriptors.append(descriptor)
        with suppress(OSError):  # a full disk is noticed where it matters
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode())

    # a lock that is nothing but a file would outlive a killed process
    lock = FileLock(path, fallback_to_soft=False, on_acquired=sign)
    try:
        while not lock.is_locked:
            directory.mkdir(parents=True, exist_ok=True)
            with suppress(
                FileNotFoundError
            ):  # whoever held it has removed an empty directory meanwhile
                try:
                    lock.acquire(timeout=0)
                except Timeout:
                    owner = path.read_text(errors="replace").strip() or "another process"
                    print(
                        f"attnprobe: waiting for {owner}, which works in {directory}",
                        file=sys.stderr,
                        flush=True,
                    )
                    lock.acquire()
    except OSError as error:
        if errno.errorcode.get(error.errno or 0) not in NO_LOCKS:
            raise UserError(
                f"cannot write to {directory}: {error.strerror}. Choose a writable place with output=… or run_dir=…"
            ) from error
    try:
        with answering_disk(directory):
            yield
    finally:
        if lock.is_locked:
            # removed while it is held: whoever waits for a removed file tries again. If the output
            # was deleted meanwhile, the file there may be another run's by now
            if os.fstat(descriptors[-1]).st_nlink:
                path.unlink(missing_ok=True)
            lock.release()
        if not found_empty:
            with suppress(OSError):  # there is something in it
                directory.rmdir()
