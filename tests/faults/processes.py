"""Commands in forks of one process that has imported everything: each starts in milliseconds.

Linux only: the harness becomes the parent of every orphan, so that it sees the last one end.
"""

import atexit
import ctypes
import os
import runpy
import signal
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, NoReturn

from tests.faults.operations import Fault, watch

PR_SET_CHILD_SUBREAPER = 36
LONGEST = 3600
"""Seconds after which a process that has not ended, however slow the machine, is ended by SIGALRM,
and that is reported."""


@dataclass(frozen=True)
class Ending:
    """A command's exit status (negative: the signal that ended it), what it said, and what it did
    to files."""

    status: int
    output: str
    operations: list[str]

    @property
    def last_line(self) -> str:
        hint = "Set the environment variable HYDRA_FULL_ERROR"
        lines = [
            line
            for line in self.output.replace("\r", "\n").splitlines()
            if line.strip() and not line.startswith(hint)
        ]
        return lines[-1][:200] if lines else ""


def adopt_orphans() -> None:
    """Make this process the parent of all orphans among its descendants."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def perform(command: tuple[str, ...], folder: Path, fault: Fault | None = None) -> Ending:
    """A command, its module and arguments, in a folder, to its end and that of all processes that
    it started."""
    sys.stdout.flush()
    sys.stderr.flush()
    with TemporaryFile() as output_file, TemporaryFile() as operation_file:
        pid = os.fork()
        if pid == 0:
            run_within(command, folder, fault, output_file.fileno(), operation_file.fileno())
        statuses: dict[int, int] = {}
        while True:  # orphans as well: they end with the command, or by themselves
            try:
                child, status = os.waitpid(-1, 0)
            except ChildProcessError:
                break
            statuses[child] = os.waitstatus_to_exitcode(status)
        output = whole_text(output_file)
        operations = whole_text(operation_file)
    return Ending(statuses[pid], output, operations.splitlines())


def whole_text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def run_within(
    command: tuple[str, ...],
    folder: Path,
    fault: Fault | None,
    output_file: int,
    operation_file: int,
) -> NoReturn:
    """In a forked child, as `python -m command…` does; what it says and does to files goes into
    open files."""

    def tell(operation: str) -> None:
        os.write(operation_file, f"{operation}\n".encode(errors="replace"))

    status = 1
    atexit._clear()  # what the parent does at its own end
    try:
        os.setpgid(0, 0)
        signal.alarm(LONGEST)
        # a background shell ignores SIGINT, and so would its children
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for number, file in enumerate((os.open(os.devnull, os.O_RDONLY), output_file, output_file)):
            os.dup2(file, number)
        os.chdir(folder)
        watch(folder, fault, tell)
        if "+experiment=audit" in command:
            draw_nothing()
        sys.argv = list(command)
        sys.modules.pop(f"{command[0]}.__main__", None)
        runpy.run_module(command[0], run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as ending:
        status = int(ending.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status)


def draw_nothing() -> None:
    """Pictures are written by the same operations, and show nothing: drawing takes most of a
    study's time."""
    from matplotlib.figure import Figure

    def savefig(self: Figure, target: Any, **_: Any) -> None:
        if hasattr(target, "write"):
            target.write(b"<svg/>")  # a page reads it again
        else:
            Path(target).write_bytes(b"")

    Figure.savefig = savefig  # type: ignore[method-assign]
