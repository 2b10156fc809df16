"""Signals that end a process become an exception: what is half done is put in order, and one line says what happened."""

import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

ENDING = ("SIGINT", "SIGTERM", "SIGHUP")
"""Ctrl-C; the polite end, sent by SLURM, timeout, systemd and a plain kill; a closed terminal."""


class Ended(SystemExit):
    """A signal ended this process. Its code is 128 + the signal's number, as shells count.

    No KeyboardInterrupt even for Ctrl-C: Lightning would make status 1 of that, and status 0 of its own answer to SIGTERM.
    """

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)


@contextmanager
def ended_by_signals(names: Sequence[str] = ENDING) -> Iterator[list[int]]:
    """Raise `Ended` when one of these signals comes, in the main thread. A signal that is ignored, as nohup and the
    background of a shell do, stays ignored, and a handler of somebody else's stays.

    Yields:
        the numbers of the signals that came. An exception that is raised while an object is being deleted is lost in
        Python, and the number is not.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received  # only the main thread may set what a signal does
        return

    def end(number: int, frame: FrameType | None) -> NoReturn:
        received.append(number)
        raise Ended(number)

    before = {}
    for name in names:
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            before[number] = signal.signal(number, end)
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def answering_signals(
    program: str = "attnprobe", then: str = "keeps what is finished; a training that was cut off begins again"
) -> Iterator[None]:
    """For a command line: a signal ends it with one line and status 128 + its number, whatever its end breaks on the way.

    Args:
        program: begins the line.
        then: what the same command does when it is given again.

    Raises:
        SystemExit: a signal came.
    """
    received: list[int] = []
    try:
        with ended_by_signals() as received:
            yield
    except BaseException:
        if not received:
            raise
        what = "interrupted" if received[0] == signal.SIGINT else f"ended by {signal.Signals(received[0]).name}"
        print(f"{program}: {what}; the same command again {then}", file=sys.stderr, flush=True)
        raise SystemExit(128 + received[0]) from None
