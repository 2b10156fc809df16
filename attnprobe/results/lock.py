"""One process at a time in a run directory, or at a page, whatever started the others."""

import errno
import os
import re
import socket
import stat
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
OWNER = re.compile(rb"(process \d+ on [^\n]*)\n")
"""What a lock file holds, and all of it: any other file that is in its place is a user's."""
LONGEST_OWNER = 400


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold a run directory, and wait as long as another process holds it.

    Args:
        directory: of the run; see `held`.

    Raises:
        UserError: if the directory belongs to somebody else, or nothing can be written there, now
            or during the block.
    """
    directory = Path(os.path.realpath(directory))  # one lock, by whatever name a place is reached
    OwnRunDirectory(directory).refuse_foreign()
    with held(directory), answering_disk(directory):
        yield


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold the lock in a folder, and wait as long as another process holds it.

    The system releases a lock however the process ends; its file may stay. A file system without
    locks is used without one. Nothing is written to a file that a user has put, or linked, there.

    Args:
        folder: it is created where it is missing, and removed again where nothing is left in it,
            unless it was there and empty before.

    Raises:
        UserError: if nothing can be written there.
    """
    was_empty = folder.is_dir() and not any(folder.glob("*"))
    path = folder / LOCK
    descriptors = list[int]()
    lock = FileLock(
        path,
        fallback_to_soft=False,  # a soft lock, a mere file, would outlive a killed process
        on_acquired=descriptors.append,
    )
    try:
        _acquire(lock, path)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UserError(
                f"cannot write to {folder}: {path.name} in it is a symbolic link, expected a lock "
                f"of attnprobe's own. Nothing was written there: move it away"
            ) from None
        if errno.errorcode.get(error.errno or 0) not in NO_LOCKS:
            raise UserError(
                f"cannot write to {folder}: {error.strerror}. "
                f"Choose a writable place with output=… or run_dir=…"
            ) from error

    is_signed = lock.is_locked and _sign(descriptors[-1])
    try:
        yield
    finally:
        if lock.is_locked:
            # The file is removed while it is locked: a process that waits for a removed file tries
            # again. If the output was deleted meanwhile, the file there may be another run's by now
            is_linked = os.fstat(descriptors[-1]).st_nlink > 0
            if is_signed and is_linked:
                with suppress(OSError):  # it may stay
                    path.unlink(missing_ok=True)
            lock.release()
        if not was_empty:
            with suppress(OSError):  # something is in it
                folder.rmdir()


def _sign(descriptor: int) -> bool:
    """Write who holds a lock file, over its last owner; whether it is a lock file and no other."""
    state = os.fstat(descriptor)
    is_file = stat.S_ISREG(state.st_mode)
    if not is_file or state.st_nlink != 1 or state.st_size > LONGEST_OWNER:
        return False
    earlier = os.pread(descriptor, LONGEST_OWNER, 0)
    if earlier and not OWNER.fullmatch(earlier):
        return False
    owner = f"process {os.getpid()} on {socket.gethostname()}".ljust(len(earlier) - 1) + "\n"
    with suppress(OSError):  # a full disk is noticed where it matters
        os.pwrite(descriptor, owner.encode(), 0)
    return True


def _acquire(lock: FileLock, path: Path) -> None:
    """Acquire the lock at `path`, and say on standard error for whom this process waits."""
    while not lock.is_locked:
        path.parent.mkdir(parents=True, exist_ok=True)
        # the process that held it may have removed an empty directory meanwhile
        with suppress(FileNotFoundError):
            try:
                lock.acquire(timeout=0)
            except Timeout:
                with path.open("rb") as file:
                    owner = OWNER.match(file.read(LONGEST_OWNER))
                name = owner[1].decode(errors="replace").strip() if owner else "another process"
                print(
                    f"attnprobe: waiting for {name}, which works in {path.parent}",
                    file=sys.stderr,
                    flush=True,
                )
                lock.acquire()
