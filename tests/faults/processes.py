"""Commands in forks of one process that has imported everything: a start costs milliseconds, not seconds.

Linux only: the harness becomes the parent of every orphan, so that it sees the last one end.
"""

import atexit
import ctypes
import os
import runpy
import signal
import sys
import traceback
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from tests.faults.operations import Fault, watch

PR_SET_CHILD_SUBREAPER = 36
LONGEST = 3600
"""Seconds after which a process that has not ended, however slow the machine, is ended by SIGALRM, and that is reported."""


@dataclass(frozen=True)
class Ending:
    """How a command ended.

    Attributes:
        status: its exit status; negative: the signal that ended it.
        output: standard output and error.
        operations: what it did to files.
    """

    status: int
    output: str
    operations: list[str]

    @property
    def last_line(self) -> str:
        """The last line of what it said."""
        lines = [line for line in self.output.replace("\r", "\n").splitlines() if line.strip()]
        lines = [line for line in lines if not line.startswith("Set the environment variable HYDRA_FULL_ERROR")]
        return lines[-1][:200] if lines else ""


def adopt_orphans() -> None:
    """Make this process the parent of all orphans among its descendants."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def together(folder: Path, *commands: tuple[str, ...], fault: Fault | None = None) -> list[Ending]:
    """Commands, each a module and its arguments, at the same time in one folder, to the end of them all and of all
    processes that they started."""
    ended: dict[int, int] = {}
    with ExitStack() as stack:
        files = [[stack.enter_context(TemporaryFile()) for _ in range(2)] for _ in commands]
        pids = [fork(one, folder, fault, *both) for one, both in zip(commands, files, strict=True)]
        while True:  # orphans as well: they end with the command, or by themselves
            try:
                pid, status = os.waitpid(-1, 0)
            except ChildProcessError:
                break
            ended[pid] = os.waitstatus_to_exitcode(status)
        endings = []
        for pid, both in zip(pids, files, strict=True):
            for file in both:
                file.seek(0)
            said, done = (file.read().decode(errors="replace") for file in both)
            endings.append(Ending(ended[pid], said, done.splitlines()))
    return endings


def fork(command: tuple[str, ...], folder: Path, fault: Fault | None, said: IO[bytes], done: IO[bytes]) -> int:
    """The number of a child that runs `python -m command…` and ends."""
    sys.stdout.flush()
    sys.stderr.flush()
    if pid := os.fork():
        return pid
    status = 1
    atexit._clear()  # what the parent does at its own end
    try:
        os.setpgid(0, 0)
        signal.alarm(LONGEST)
        # a background shell ignores SIGINT, and so would its children
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for number, file in enumerate((os.open(os.devnull, os.O_RDONLY), said.fileno(), said.fileno())):
            os.dup2(file, number)
        os.chdir(folder)
        watch(folder, fault, lambda line: (os.write(done.fileno(), f"{line}\n".encode(errors="replace")), None)[1])
        if "+experiment=audit" in command:
            draw_nothing()
        sys.argv = list(command)
        sys.modules.pop(f"{command[0]}.__main__", None)
        runpy.run_module(command[0], run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as ended:
        status = int(ended.code or 0)
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
    """Pictures are written by the same operations, and show nothing: drawing takes most of a study's time."""
    from matplotlib.figure import Figure

    def savefig(self: Figure, target: Any, **_: Any) -> None:
        if hasattr(target, "write"):
            target.write(b"<svg/>")  # a page reads it again
        else:
            Path(target).write_bytes(b"")

    Figure.savefig = savefig  # type: ignore[method-assign]
