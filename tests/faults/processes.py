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

from hydra.core.global_hydra import GlobalHydra

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
        operations: what it did to files, per process: 0 the command, k the k-th process that it started.
    """

    status: int
    output: str
    operations: dict[int, list[str]]


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
        Ending(ended[pid], log.read_text(errors="replace"), operations_of(log))
        for pid, (_, log) in zip(pids, commands, strict=True)
    ]


def operations_of(log: Path) -> dict[int, list[str]]:
    """What the processes of a command did to files."""
    return {
        int(path.suffix[1:]): path.read_text(errors="replace").splitlines()
        for path in sorted(log.parent.glob(f"{log.name}.operations.*"))
    }


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
    begun: list[int] = []
    fork_jobs(lambda: begun.append(1) or len(begun), folder, log, fault)
    watch_process(0, folder, log, fault)
    if not one.pictures:
        draw_nothing()
    run_module(one.module, one.arguments)


def draw_nothing() -> None:
    """Pictures are written by the same operations, and show nothing: drawing takes most of a study's time."""
    from matplotlib.figure import Figure

    def savefig(self: Figure, target: Any, **_: Any) -> None:
        if hasattr(target, "write"):
            target.write(b"<svg/>")  # a page reads it again
        else:
            Path(target).write_bytes(b"")

    Figure.savefig = savefig  # type: ignore[method-assign]


def run_module(module: str, arguments: Sequence[str]) -> None:
    """As `python -m` does."""
    sys.argv = [module, *arguments]
    sys.modules.pop(f"{module}.__main__", None)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def say_into(log: Path) -> None:
    """Standard input is empty, standard output and error go into a file."""
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.dup2(target, 1)
    os.dup2(target, 2)


def watch_process(number: int, folder: Path, log: Path, fault: Fault | None) -> None:
    """Count this process's operations, and let the fault happen if it is meant for it."""
    notes = os.open(f"{log}.operations.{number}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    mine = fault if fault is not None and fault.process == number else None
    watch(folder, mine, lambda line: (os.write(notes, f"{line}\n".encode(errors="replace")), None)[1])


class Pipe:
    """Standard input of a job."""

    def __init__(self, number: int, writers: list[int]) -> None:
        self.number, self.writers = number, writers

    def close(self) -> None:
        if self.number in self.writers:
            self.writers.remove(self.number)
            os.close(self.number)


def fork_jobs(next_number: Callable[[], int], folder: Path, log: Path, fault: Fault | None) -> None:
    """The jobs of a pool become forks as well, with all that the pool gives a job: pipe, log, environment, group."""
    from attnprobe.runs import launching

    writers: list[int] = []

    class Popen:
        """As much of subprocess.Popen as a slot uses."""

        def __init__(self, arguments: Sequence[str], *, stdin: int, stdout: Any, env: dict[str, str], **_: Any) -> None:
            self.returncode: int | None = None
            number = next_number()
            assert list(arguments[:3]) == [sys.executable, "-P", "-m"]
            reading, writing = os.pipe()
            writers.append(writing)

            def body() -> None:
                os.setpgid(0, 0)
                signal.alarm(LONGEST)
                for name in ("SIGINT", "SIGTERM", "SIGHUP"):
                    signal.signal(getattr(signal, name), signal.SIG_DFL)
                signal.signal(signal.SIGINT, signal.default_int_handler)
                os.dup2(reading, 0)
                os.dup2(stdout.fileno(), 1)
                os.dup2(stdout.fileno(), 2)
                os.environ.clear()
                os.environ.update(env)
                for other in writers:
                    os.close(other)
                GlobalHydra.instance().clear()
                watch_process(number, folder, log, fault)
                run_module(arguments[3], arguments[4:])

            self.pid = forked(body)
            os.close(reading)
            self.stdin = Pipe(writing, writers)

        def poll(self) -> int | None:
            if self.returncode is None:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
            return self.returncode

        def wait(self) -> int:
            if self.returncode is None:
                self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            return self.returncode

    class Subprocess:
        PIPE, STDOUT = -1, -2

    Subprocess.Popen = Popen  # type: ignore[attr-defined]
    launching.subprocess = Subprocess  # type: ignore[assignment]
