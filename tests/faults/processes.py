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
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.faults.operations import Fault, watch
from tests.faults.scenarios import Command

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


def adopt_orphans() -> None:
    """Make this process the parent of all orphans among its descendants."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def perform(one: Command, folder: Path, fault: Fault | None = None) -> Ending:
    """A command in a folder, to its end and that of all processes that it started. What it says, and does to files, is noted
    in files beside the folder."""
    log, notes = folder.with_name(f"{folder.name}.log"), folder.with_name(f"{folder.name}.operations")
    for old in (log, notes):
        old.unlink(missing_ok=True)
    pid, ended = forked(partial(within, one, folder, log, notes, fault)), dict[int, int]()
    while True:  # orphans as well: they end with the command, or by themselves
        try:
            child, status = os.waitpid(-1, 0)
        except ChildProcessError:
            break
        ended[child] = os.waitstatus_to_exitcode(status)
    return Ending(ended[pid], log.read_text(errors="replace"), notes.read_text(errors="replace").splitlines())


def forked(body: Callable[[], None]) -> int:
    """The number of a child that does this and ends."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    atexit._clear()  # what the parent does at its own end
    try:
        body()
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except KeyboardInterrupt:
        status = 254  # Python would end by SIGINT, with a traceback
        traceback.print_exc()
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status)


def within(one: Command, folder: Path, log: Path, notes: Path, fault: Fault | None) -> None:
    """In the child: the command itself."""
    os.setpgid(0, 0)
    signal.alarm(LONGEST)
    # a background shell ignores SIGINT, and so would its children
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # standard input is empty, standard output and error go into a file
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    target = os.open(log, flags)
    for standard, file in ((0, os.open(os.devnull, os.O_RDONLY)), (1, target), (2, target)):
        os.dup2(file, standard)
    os.chdir(folder)
    noted = os.open(notes, flags)
    watch(folder, fault, lambda line: (os.write(noted, f"{line}\n".encode(errors="replace")), None)[1])
    if not one.pictures:
        draw_nothing()
    sys.argv = [one.module, *one.arguments]  # as `python -m` does
    sys.modules.pop(f"{one.module}.__main__", None)
    runpy.run_module(one.module, run_name="__main__", alter_sys=True)


def draw_nothing() -> None:
    """Pictures are written by the same operations, and show nothing: drawing takes most of a study's time."""
    from matplotlib.figure import Figure

    def savefig(self: Figure, target: Any, **_: Any) -> None:
        if hasattr(target, "write"):
            target.write(b"<svg/>")  # a page reads it again
        else:
            Path(target).write_bytes(b"")

    Figure.savefig = savefig  # type: ignore[method-assign]
