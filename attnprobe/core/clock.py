"""How far a command is: its phase, what is done of it, and the time left.

`CLOCK` is the only one that shows progress. Whoever works says where it is, by `step` and `track`;
while a command shows its clock (`showing`), a terminal has one live line, and anything else gets a
line of its own at least every `EVERY_SECONDS`. The clock also keeps a command's limit of time:
where that is over, the next `check` raises `TimeIsUp`.
"""

import os
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO, TypeVar

from attnprobe.core.errors import UserError
from attnprobe.core.printing import WIDTH
from attnprobe.core.sanitise import visible

Item = TypeVar("Item")

FIRST_SECONDS = 10.0
"""A command that ends before that shows nothing where there is no terminal."""
EVERY_SECONDS = 30.0
"""The longest time between two lines where there is no terminal."""
LEAST_SECONDS = 10.0
"""The shortest time between two lines there, however many phases begin."""
STARTED_FIELD = 19
"""Place of a process's start in /proc/self/stat, counted behind its name, in ticks since boot."""
LEAST_FRACTION = 0.02
"""Share of a step that has to be done before its time left is told."""


class TimeIsUp(UserError):
    """A command's limit of time is over; what was finished before is kept."""


@dataclass(eq=False)
class Step:
    """A part of a command that takes time, and how much of it is done.

    Attributes:
        title: what is done, in a few words.
        began: in seconds, by the clock's `now`.
        total: parts that it has; None: not known.
        unit: what a part is called, in the plural.
        done: parts that are done.
        part: how many parts the step within it stands for.
        has_phases: its parts are the steps within it, one after another.
        expected: seconds of each phase, where they are known beforehand; else phases tell nothing
            about each other.
        took: seconds of each phase that has ended.
        unplanned: how many had ended when the others were planned.
    """

    title: str
    began: float
    total: float | None = None
    unit: str = ""
    done: float = 0
    part: float = 1
    has_phases: bool = False
    expected: Sequence[float] = ()
    took: list[float] = field(default_factory=list)
    unplanned: int = 0

    def plan(self, expected: Sequence[float]) -> None:
        """Say how long the phases still to come are expected to take, each in seconds."""
        self.unplanned = len(self.took)
        self.expected = [*self.took, *expected]
        self.total = len(self.expected)

    @property
    def slower(self) -> float:
        """How many times longer the planned phases took than was expected; 1 before one ended."""
        planned = slice(self.unplanned, len(self.took))
        expected = sum(self.expected[planned])
        return sum(self.took[planned]) / expected if expected > 0 else 1.0

    @property
    def count(self) -> str:
        """What is done, as in `320/1,000 texts`; empty where the total is not known."""
        if self.total is None or not self.unit:
            return ""
        digits = 0 if self.total >= 100 or self.done == int(self.done) else 1
        return f"{self.done:,.{digits}f}/{self.total:,.0f} {self.unit}"


def clock_time(seconds: float) -> str:
    """A time as a clock shows it.

    >>> clock_time(5), clock_time(95), clock_time(3725)
    ('0:05', '1:35', '1:02:05')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def about(seconds: float) -> str:
    """A time left in a few letters, no more exact than it is known.

    >>> about(4), about(42), about(130), about(5400)
    ('10 s', '50 s', '2 min', '1.5 h')
    """
    if seconds < 60:
        return f"{10 * (int(seconds) // 10 + 1)} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def seconds_of_process() -> float:
    """For how long this process has run, what it imported included; 0 where no /proc says it."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        started = int(fields[STARTED_FIELD]) / os.sysconf("SC_CLK_TCK")
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started)
    except (OSError, AttributeError, ValueError, IndexError):
        return 0.0


class Clock:
    """The steps that a command is in, outermost first, and its limit of time.

    Attributes:
        steps: those that have begun and not ended.
        now: the time in seconds.
        deadline: when its time is up, by `now`; None: it has no limit.
        is_shown: a command shows it at the moment.
        began: when the next command began, by `now`; None: when it says so.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.now = now
        self.steps: list[Step] = []
        self.deadline: float | None = None
        self.is_shown = False
        self.began: float | None = None

    @property
    def elapsed(self) -> float:
        """Seconds since the outermost step began."""
        return self.now() - self.steps[0].began if self.steps else 0.0

    # What is done

    @contextmanager
    def step(self, title: str, total: float | None = None, unit: str = "") -> Iterator[Step]:
        """Say that a part of the step around it begins.

        Args:
            title: see `Step`, as the others.
            total: parts that it has.
            unit: what a part is called.

        Raises:
            TimeIsUp: the command's time is over.
        """
        step = Step(title, self.now(), total, unit)
        self.steps.append(step)
        try:
            self.check()
            yield step
        finally:
            if step in self.steps:  # the step around it may have ended before, by an error
                del self.steps[self.steps.index(step) :]
        around = self.steps[-1] if self.steps else None
        if around is not None and around.has_phases:
            around.took.append(self.now() - step.began)
            around.done += 1

    @contextmanager
    def phases(self, title: str, total: int | None = None) -> Iterator[Step]:
        """Say that something begins whose parts are the steps within it.

        Args:
            title: see `Step`.
            total: how many phases it has; None: not known yet (`Step.plan`).
        """
        with self.step(title, total) as step:
            step.has_phases = True
            yield step

    @contextmanager
    def command(self) -> Iterator[None]:
        """Say that a command begins, whose parts are its steps, unless one is going on."""
        if self.steps:
            yield
            return
        with self.phases("") as step:
            if self.began is not None:
                step.began = self.began
                self.began = None
            yield

    def begin_with_process(self) -> None:
        """Let the next command have begun when this process did: its user has waited since."""
        self.began = self.now() - seconds_of_process()

    def track(
        self, items: Iterable[Item], title: str, unit: str = "", total: int | None = None
    ) -> Iterator[Item]:
        """Go through items as a step of their number.

        Args:
            items: what is worked on, one after another.
            title: see `Step`, as `unit`.
            unit: what an item is called, in the plural.
            total: how many there are, where that cannot be asked of them.

        Raises:
            TimeIsUp: the command's time is over.
        """
        if total is None and isinstance(items, Sized):
            total = len(items)
        with self.step(title, total, unit) as step:
            for item in items:
                yield item
                step.done += 1
                self.check()

    def announce(self, phases: int) -> None:
        """Say how many phases of the outermost step are still to come."""
        if self.steps and self.steps[0].has_phases:
            self.steps[0].total = self.steps[0].done + phases

    def plan(self, expected: Sequence[float]) -> None:
        """Say how long they are expected to take, each in seconds."""
        if self.steps and self.steps[0].has_phases:
            self.steps[0].plan(expected)

    @property
    def slower(self) -> float:
        """How many times longer the planned phases took than was expected."""
        return self.steps[0].slower if self.steps else 1.0

    # The limit of time

    def check(self) -> None:
        """Raise `TimeIsUp` where the command's time is over."""
        if self.deadline is not None and self.now() > self.deadline:
            raise TimeIsUp(f"time was up after {clock_time(self.elapsed)}, at: {self.place}")

    @property
    def remaining(self) -> float:
        """Seconds until the command's time is over; infinite without a limit."""
        return float("inf") if self.deadline is None else self.deadline - self.now()

    @contextmanager
    def limited(self, seconds: float | None) -> Iterator[None]:
        """Let the time be over `seconds` after the outermost step began; None: no limit.

        A limit around this one does not count meanwhile.
        """
        before = self.deadline
        self.deadline = None if seconds is None else self.now() - self.elapsed + seconds
        try:
            yield
        finally:
            self.deadline = before

    # What is shown

    @property
    def place(self) -> str:
        """Where the command is, as in `test 2,429/25,266 words, swaps 4/64 texts`."""
        return ", ".join(self._places)

    @property
    def _places(self) -> list[str]:
        """Where the command is in each step, outermost first; never empty."""
        steps = list(self.steps)
        places = [visible(f"{step.title} {step.count}".strip()) for step in steps[1:] or steps]
        return list(filter(None, places)) or ["at work"]

    def line(self, width: int = WIDTH) -> str:
        """One line: time since the beginning, phase of phases, what is done, and the time left.

        Args:
            width: in columns, at most.
        """
        steps = list(self.steps)
        phase = ""
        if steps and steps[0].has_phases and steps[0].total is not None:
            phase = f"{_phase_of_phases(steps[0], has_begun=len(steps) > 1)} "
        head = f"[{clock_time(self.elapsed):>5}] {phase}"
        tail = self._left_in_words(steps)
        return (head + _shortened(self._places, width - len(head) - len(tail)) + tail)[:width]

    def _left_in_words(self, steps: Sequence[Step]) -> str:
        """The time left of the whole command, else of the outermost step that tells it."""
        seconds = [self._left(steps[depth:]) for depth in range(len(steps))]
        if self.deadline is not None and seconds and seconds[0] is not None:
            seconds[0] = min(seconds[0], max(0.0, self.remaining))
        for depth, left in enumerate(seconds):
            if left is not None:
                return f"; {about(left)} left{'' if depth == 0 else ' of this'}"
        if self.deadline is not None:
            return f"; at most {about(max(0.0, self.remaining))} left"
        return ""

    def _left(self, steps: Sequence[Step]) -> float | None:
        """Seconds that the first of these steps still takes; None where nothing tells.

        Planned phases take what they are expected to take, times what those before them took longer
        than expected. Any other step takes as long for what is left of it as for what is done.
        """
        step = steps[0]
        inner = steps[1:]
        if step.expected:
            return self._left_of_plan(step, inner)
        done = self._fraction(steps)
        if done is None or done < LEAST_FRACTION:
            return None
        return (self.now() - step.began) * (1 - done) / done

    def _left_of_plan(self, step: Step, inner: Sequence[Step]) -> float:
        ended = len(step.took)
        later = step.slower * sum(step.expected[ended + 1 :])
        measured = self._left(inner) if inner else None
        if measured is not None:
            return measured + later
        if not inner or ended >= len(step.expected):
            return later
        spent = self.now() - inner[0].began
        return max(0.0, step.slower * step.expected[ended] - spent) + later

    def _fraction(self, steps: Sequence[Step]) -> float | None:
        """The share of the first of these steps that is done; None where its total is not known."""
        step = steps[0]
        inner = (self._fraction(steps[1:]) if len(steps) > 1 else None) or 0.0
        if step.has_phases or not step.total:  # phases are not alike
            return None
        return min(1.0, (step.done + step.part * inner) / step.total)

    @contextmanager
    def showing(self, stream: TextIO | None = None) -> Iterator[None]:
        """Show the clock while a command works; without effect inside of another one that does.

        Args:
            stream: where; None: standard error.
        """
        if threading.current_thread() is not threading.main_thread() or self.is_shown:
            yield
            return
        stream = sys.stderr if stream is None else stream
        display = _live_line(self, stream) if stream.isatty() else _lines(self, stream)
        self.is_shown = True
        try:
            with display:
                yield
        finally:
            self.is_shown = False


def _phase_of_phases(command: Step, *, has_begun: bool) -> str:
    """Which phase is going on, or comes next, such as `3 of 7`.

    Args:
        command: the outermost step, whose number of phases is known.
        has_begun: a phase is going on. One that was not planned makes one phase more; after the
            last one it is still that.
    """
    number = command.done + 1
    total = command.total or 0
    if has_begun:
        total = max(total, number)
    return f"{min(number, total):.0f} of {total:.0f}"


def _shortened(places: Sequence[str], width: int) -> str:
    """Places on at most `width` columns, no word cut: inner ones are left out, the last one last.

    Where the first and the last are too long as well, words are left out at the end.

    >>> places = ["test 3/27 batches", "probes 2/14", "8/64 texts"]
    >>> _shortened(places, 32), _shortened(places, 20)
    ('test 3/27 batches, …, 8/64 texts', 'test 3/27 batches, …')
    """
    line = ", ".join(places)
    for innermost in range(2, len(places)):
        if len(line) <= width:
            break
        line = ", ".join([places[0], "…", *places[innermost:]])
    if len(line) <= width:
        return line
    return textwrap.shorten(
        ", ".join(places), max(width, 1), placeholder=" …", break_on_hyphens=False
    )


@contextmanager
def _lines(clock: Clock, stream: TextIO) -> Iterator[None]:
    """A line of its own at least every `EVERY_SECONDS`, from a thread beside the work."""
    ended = threading.Event()

    def write() -> None:
        last: float | None = None
        shown_phase = 0.0
        while not ended.wait(0.5):
            phase = clock.steps[0].done if clock.steps else 0.0
            if last is None:
                is_due = clock.elapsed >= FIRST_SECONDS
            else:
                least = EVERY_SECONDS if phase == shown_phase else LEAST_SECONDS
                is_due = clock.now() - last >= least
            if is_due:
                last = clock.now()
                shown_phase = phase
                print(clock.line(), file=stream, flush=True)

    writer = threading.Thread(target=write, name="clock", daemon=True)
    writer.start()
    try:
        yield
    finally:
        ended.set()
        writer.join()


@contextmanager
def _live_line(clock: Clock, stream: TextIO) -> Iterator[None]:
    """One live line on a terminal, below what is printed meanwhile."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(file=stream)

    def shown() -> Text:
        return Text(clock.line(console.width - 1), no_wrap=True)

    with Live(
        console=console,
        get_renderable=shown,
        refresh_per_second=2,
        transient=True,
        redirect_stdout=sys.stdout.isatty(),
    ):
        yield


CLOCK = Clock()
"""This process's clock."""
