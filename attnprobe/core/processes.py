"""What ends a process, and how it answers: signals, the end of the pool that started it. And how
its threads wait."""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

ENDING = ("SIGINT", "SIGTERM", "SIGHUP")
"""Ctrl-C; the polite end, sent by SLURM, timeout, systemd and a plain kill; a closed terminal."""
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

    No KeyboardInterrupt even for Ctrl-C: Lightning would make status 1 of that, and status 0 of its
    own answer to SIGTERM."""


@contextmanager
def ended_by_signals(names: Sequence[str] = ENDING) -> Iterator[list[int]]:
    """Raise `Ended` when one of these signals comes, in the main thread. A signal that is ignored,
    as nohup and the background of a shell do, stays ignored, and a handler of somebody else's
    stays.

    Yields:
        the numbers of the signals that came. An exception that is raised while an object is being
        deleted is lost in Python, and the number is not.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received  # only the main thread may set what a signal does
        return

    def end(number: int, frame: FrameType | None) -> NoReturn:
        received.append(number)
        raise Ended(128 + number)

    before = {}
    for name in names:
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) in (
            signal.SIG_DFL,
            signal.default_int_handler,
        ):
            before[number] = signal.signal(number, end)
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def answering_signals(
    program: str = "attnprobe",
    then: str = "keeps what is finished; a training that was cut off begins again",
) -> Iterator[None]:
    """For a command line: a signal ends it with one line, which begins with `program`, and status
    128 + its number, whatever its end breaks on the way. `then`: what the same command does when it
    is given again."""
    received: list[int] = []
    try:
        with ended_by_signals() as received:
            yield
    except BaseException:
        if not received:
            raise
        what = (
            "interrupted"
            if received[0] == signal.SIGINT
            else f"ended by {signal.Signals(received[0]).name}"
        )
        print(f"{program}: {what}; the same command again {then}", file=sys.stderr, flush=True)
        raise SystemExit(128 + received[0]) from None


def end_with_pool() -> None:
    """Called first by a job: when the pool that started it dies, even by SIGKILL, this process ends
    as well, so that no job goes on unseen and writes where a restarted sweep writes."""
    if (
        os.environ.pop(WATCH, None) is None
    ):  # removed, so that a process started by this job is not taken for the job
        return

    def watch() -> None:
        while os.read(0, 1024):
            pass
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="end-with-pool", daemon=True).start()


def wait_briefly() -> None:
    """Let threads that wait for each other give up their core soon, unless the user has said how
    they wait. Call it before torch is imported. As it comes, a thread of libgomp spins for
    milliseconds: where another program had one of two cores, a run of 24 s took several minutes. So
    it took 40 s, and on the idle machine 25 s."""
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & set(os.environ):
        os.environ["GOMP_SPINCOUNT"] = "300"
