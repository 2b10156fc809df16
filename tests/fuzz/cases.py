"""Generated cases, one after the other: what each comes to, a hang included."""

import faulthandler
import signal
import sys
from collections.abc import Callable

from attnprobe.core.errors import UserError
from attnprobe.core.sanitise import visible

CPU_SECONDS = 20
"""Processor time that a case may take: a thousand times what one needs, and independent of what
else runs."""
SECONDS = 300
"""Time on the clock after which a case that only waits is given up."""

Case = Callable[[int], tuple[str, Callable[[], str | None]]]
"""A number's case: what it is, and its attempt, which is well, raises a `UserError`, or returns or
raises a failure."""


class Hung(BaseException):
    """A case that does not end. No `except Exception` of the code under test takes it for an error
    of its own."""


def outcomes(case: Case, numbers: range) -> list[str]:
    """What these cases fail with, in order. One that takes too long is interrupted; where even that
    cannot be (in C), all stacks are shown and the process ends."""

    def give_up(number: int, _: object) -> None:
        raise Hung("processor time" if number == signal.SIGPROF else "time on the clock")

    found = []
    before = {one: signal.signal(one, give_up) for one in (signal.SIGPROF, signal.SIGALRM)}
    for number in numbers:
        faulthandler.dump_traceback_later(2 * SECONDS, exit=True, file=sys.__stderr__)
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        what = failure = None
        try:
            what, attempt = case(number)
            failure = attempt()
        except Hung as hung:
            failure = f"hangs: more than {CPU_SECONDS if 'processor' in str(hung) else SECONDS} s of {hung}"
        except UserError as error:
            line = str(error)
            if (
                "\n" in line
                or not line.strip()
                or "Traceback" in line
                or not visible(line).isprintable()
            ):
                failure = repr(line)
        except Exception as error:
            failure = f"{type(error).__name__}: {str(error)[:300]}"
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.setitimer(signal.ITIMER_PROF, 0)
        if failure is not None:
            found.append(f"case {number}: {what}: {failure}")
    faulthandler.cancel_dump_traceback_later()
    for one, handler in before.items():
        signal.signal(one, handler)
    return found
