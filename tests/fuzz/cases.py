"""Generated cases, one after the other: what each comes to, a hang included."""

import faulthandler
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

CPU_SECONDS = 20
"""Processor time that a case may take: a thousand times what one needs, and independent of what else runs."""
SECONDS = 300
"""Time on the clock after which a case that only waits is given up."""


class Hung(BaseException):
    """A case that does not end. No `except Exception` of the code under test takes it for an error of its own."""


@contextmanager
def limited() -> Iterator[None]:
    """Raise `Hung` in what takes too long; where even that cannot be (in C), all stacks are shown and the process ends."""

    def give_up(number: int, _: object) -> None:
        raise Hung("processor time" if number == signal.SIGPROF else "time on the clock")

    before = {one: signal.signal(one, give_up) for one in (signal.SIGPROF, signal.SIGALRM)}
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    faulthandler.dump_traceback_later(2 * SECONDS, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        for one, handler in before.items():
            signal.signal(one, handler)


def outcomes(case: Callable[[int], str | None], numbers: range) -> list[str]:
    """What these cases fail with, in order; one that is well has None for its outcome."""
    found = []
    for number in numbers:
        try:
            with limited():
                failure = case(number)
        except Hung as hung:
            failure = f"hangs: more than {CPU_SECONDS if 'processor' in str(hung) else SECONDS} s of {hung}"
        if failure is not None:
            found.append(f"case {number}: {failure}")
    return found
