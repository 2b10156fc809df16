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
from collections.abc import Callable, Sequence
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


def together(commands: Sequence[tuple[Command, Path]], folder: Path, fault: Fault | None = None) -> list[Ending]:
    """Commands at the same time in one folder, to the end of them all and of all processes that they started.

    Args:
        commands: each with a file outside of the folder, for what it says; what it does to files goes beside it.
    """
    pids = []
    for one, log in commands:
        for old in log.parent.glob(f"{log.name}*"):
            old.unlink()
        pids.append(forked(partial(within, one, folder, log, fault)))
    ended: dict[int, int] = {}
    while True:  # orphans as well: they end with the command, or by themselves
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            break
        ended[pid] = os.waitstatus_to_exitcode(status)
    return [
        Ending(ended[pid], log.read_text(errors="replace"), notes_of(log).read_text(errors="replace").splitlines())
        for pid, (_, log) in zip(pids, commands, strict=True)
    ]


def notes_of(log: Path) -> Path:
    """Where a command's operations are noted."""
    return log.with_name(f"{log.name}.operations")


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


def within(one: Command, folder: Path, log: Path, fault: Fault | None) -> None:
    """In the child: the command itself."""
    os.setpgid(0, 0)
    signal.alarm(LONGEST)
    # a background shell ignores SIGINT, and so would its children
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    say_into(log)
    os.chdir(folder)
    notes = os.open(notes_of(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    watch(folder, fault, lambda line: (os.write(notes, f"{line}\n".encode(errors="replace")), None)[1])
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


def say_into(log: Path) -> None:
    """Standard input is empty, standard output and error go into a file."""
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.dup2(target, 1)
    os.dup2(target, 2)
