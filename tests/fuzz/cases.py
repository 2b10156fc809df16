"""Generated cases are run one after the other; a case that hangs is a failure, too."""

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
"""Makes the case of a number: its name, and an attempt that returns None where all is well, raises
a `UserError` where the case is refused, and else returns or raises a failure."""


class Hung(BaseException):
    """A case does not end. No `except Exception` of the code under test takes it for its own."""


def outcomes(case: Case, numbers: range) -> list[str]:
    """The failures of these cases, in order.

    A case that takes too long is interrupted. Where it cannot be interrupted (in C), all stacks are
    printed and the process ends.
    """

    def give_up(number: int, _: object) -> None:
        if number == signal.SIGPROF:
            raise Hung(f"more than {CPU_SECONDS} s of processor time")
        raise Hung(f"more than {SECONDS} s of time on the clock")

    failures = []
    handlers = {
        number: signal.signal(number, give_up) for number in (signal.SIGPROF, signal.SIGALRM)
    }
    for number in numbers:
        faulthandler.dump_traceback_later(2 * SECONDS, exit=True, file=sys.__stderr__)
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        name = failure = None
        try:
            name, attempt = case(number)
            failure = attempt()
        except Hung as hung:
            failure = f"hangs: {hung}"
        except UserError as error:
            if not is_one_line(str(error)):
                failure = repr(str(error))
        except Exception as error:
            failure = f"{type(error).__name__}: {str(error)[:300]}"
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.setitimer(signal.ITIMER_PROF, 0)
        if failure is not None:
            failures.append(f"case {number}: {name}: {failure}")
    faulthandler.cancel_dump_traceback_later()
    for number, handler in handlers.items():
        signal.signal(number, handler)
    return failures


def is_one_line(message: str) -> bool:
    """Whether a message is one printable line, and no traceback."""
    if "\n" in message or "Traceback" in message or not message.strip():
        return False
    return visible(message).isprintable()
