"""How a process ends, by a signal or with the pool that started it, and how its threads wait."""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

ENDING = ("SIGINT", "SIGTERM", "SIGHUP")
"""Ctrl-C; what SLURM, timeout, systemd and a plain kill send; a closed terminal."""
WATCH = "ATTNPROBE_ENDS_WITH_STDIN"
"""Set in a job's environment: its standard input is a pipe from the pool, and closed when the pool
dies."""
IS_JOB = "ATTNPROBE_JOB"
"""Set in a job's environment: a pool started it, so that it starts none of its own."""
MEMBER = "attnprobe."
"""hydra.job.name of a study's member begins so; what follows is the experiment that its tables are
filed under."""


class Ended(SystemExit):
    """A signal ended this process. Its code is 128 + the signal's number, as shells count.

    It is no KeyboardInterrupt even for Ctrl-C: Lightning would turn that into status 1, and its own
    answer to SIGTERM into status 0.
    """


@contextmanager
def ended_by_signals(names: Sequence[str] = ENDING) -> Iterator[list[int]]:
    """Raise `Ended` when one of these signals comes, in the main thread.

    A signal that is ignored, as nohup and the background of a shell do, stays ignored, and a
    handler that somebody else has set stays.

    Args:
        names: of the signals; those that the system does not have are left out.

    Yields:
        The numbers of the signals that came. Python loses an exception that is raised while an
        object is being deleted, but not the number.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received  # only the main thread may set what a signal does
        return

    def end(number: int, frame: FrameType | None) -> NoReturn:
        received.append(number)
        raise Ended(128 + number)

    defaults = (signal.SIG_DFL, signal.default_int_handler)
    replaced = {}
    for name in names:
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) in defaults:
            replaced[number] = signal.signal(number, end)
    try:
        yield received
    finally:
        for number, handler in replaced.items():
            signal.signal(number, handler)


@contextmanager
def answering_signals(
    program: str = "attnprobe",
    then: str = "keeps what is finished; a training that was cut off begins again",
) -> Iterator[None]:
    """End a command line with one line when a signal comes, whatever its end breaks on the way.

    Args:
        program: what the line begins with.
        then: what the same command does when it is given again.

    Raises:
        SystemExit: with status 128 + the signal's number.
    """
    received: list[int] = []
    try:
        with ended_by_signals() as received:
            yield
    except BaseException:
        if not received:
            raise
        number = received[0]
        end = (
            "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
        )
        print(f"{program}: {end}; the same command again {then}", file=sys.stderr, flush=True)
        raise SystemExit(128 + number) from None


def end_with_pool() -> None:
    """End this process when the pool that started it dies, even by SIGKILL.

    A job calls it first, so that none goes on unseen and writes where a restarted sweep writes.
    """
    # removed, so that a process started by this job is not taken for the job
    if os.environ.pop(WATCH, None) is None:
        return

    def watch() -> None:
        while os.read(0, 1024):
            pass
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="end-with-pool", daemon=True).start()


def wait_briefly() -> None:
    """Let threads that wait for each other give up their core soon.

    Unless the user has said how they wait. Call it before torch is imported. By default a thread of
    libgomp spins for milliseconds: where another program had one of two cores, a run of 24 s took
    several minutes. With this it took 40 s, and on an idle machine 25 s.
    """
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & set(os.environ):
        os.environ["GOMP_SPINCOUNT"] = "300"
