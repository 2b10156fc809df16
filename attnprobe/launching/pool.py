"""`Pool`: jobs wait for a free slot; what fails is remembered, the others go on.

from attnprobe.launching import Job, Pool, local_slots

outcomes = Pool(local_slots(workers=2)).run([Job("first", ["python", "-m", "attnprobe"], Path("logs/first.log")), …])
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from attnprobe.launching.logs import last_error
from attnprobe.launching.signals import ended_by_signals

GRACE_SECONDS = 10.0
"""How long a job that is told to end may take before it is killed."""


@dataclass(frozen=True)
class Job:
    """One command in a process of its own.

    Attributes:
        name: for people.
        command: program and arguments.
        log: file that its standard output and error are appended to.
        after: numbers of earlier jobs of the same list that must have succeeded first.
        alone: jobs with the same word never run at the same time (a run directory that both write to); None: no limit.
    """

    name: str
    command: Sequence[str]
    log: Path
    after: tuple[int, ...] = ()
    alone: str | None = None


@dataclass(frozen=True)
class Outcome:
    """How a job ended.

    Attributes:
        status: the process's exit status; negative: the signal that ended it; None: never started.
        seconds: from its start to its end.
        error: one line that says what went wrong; empty where nothing did.
    """

    job: Job
    status: int | None
    seconds: float = 0.0
    error: str = ""

    @property
    def succeeded(self) -> bool:
        """Exit status 0."""
        return self.status == 0


class Running(ABC):
    """A job that was started."""

    @abstractmethod
    def poll(self) -> int | None:
        """Its exit status, None as long as it runs."""

    @abstractmethod
    def stop(self) -> None:
        """Tell it to end."""

    @abstractmethod
    def kill(self) -> None:
        """End it."""


class Slot(ABC):
    """A place where one job at a time may run."""

    @abstractmethod
    def start(self, job: Job) -> Running:
        """Start a job; returns at once."""


class Pool:
    """Runs jobs on slots, in the order given as far as `after` and `alone` allow.

    Args:
        slots: as many jobs run at the same time.
        on_start: called with the number of a job when it starts.
        on_end: called with the number of a job and its outcome.
        poll_seconds: how often the running jobs are looked at.
    """

    def __init__(
        self,
        slots: Sequence[Slot],
        *,
        on_start: Callable[[int], None] | None = None,
        on_end: Callable[[int, Outcome], None] | None = None,
        poll_seconds: float = 0.1,
    ) -> None:
        if not slots:
            raise ValueError("a pool needs at least one slot")
        self.slots, self.poll_seconds = list(slots), poll_seconds
        self.on_start = on_start or (lambda number: None)
        self.on_end = on_end or (lambda number, outcome: None)

    def run(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Run them all. Ctrl-C, SIGTERM and SIGHUP end the running jobs before this returns by an exception.

        Returns:
            one outcome per job, in the order of the jobs.

        Raises:
            ValueError: a job comes after one that is not before it in the list.
            KeyboardInterrupt: Ctrl-C.
            Ended: SIGTERM or SIGHUP; a SystemExit whose code is 128 + the signal's number.
        """
        for number, job in enumerate(jobs):
            if bad := [other for other in job.after if not 0 <= other < number]:
                raise ValueError(f"job {number} ({job.name}) comes after {bad}: expected numbers of earlier jobs")
        outcomes: dict[int, Outcome] = {}
        running: dict[int, tuple[Slot, Running, float]] = {}
        with ended_by_signals(("SIGTERM", "SIGHUP")):
            try:
                while len(outcomes) < len(jobs):
                    self._start(jobs, outcomes, running)
                    if running and not self._collect(jobs, outcomes, running):
                        time.sleep(self.poll_seconds)
            finally:
                end([started for _, started, _ in running.values()])
        return [outcomes[number] for number in range(len(jobs))]

    def _start(
        self, jobs: Sequence[Job], outcomes: dict[int, Outcome], running: dict[int, tuple[Slot, Running, float]]
    ) -> None:
        """Put jobs into free slots, and give up those that wait for one that failed."""
        taken = {id(slot) for slot, _, _ in running.values()}
        free = [slot for slot in self.slots if id(slot) not in taken]
        busy = {jobs[number].alone for number in running} - {None}
        for number, job in enumerate(jobs):
            if number in outcomes or number in running:
                continue
            if failed := [other for other in job.after if other in outcomes and not outcomes[other].succeeded]:
                self._end(number, Outcome(job, None, error=f"not run: it needs {jobs[failed[0]].name}"), outcomes)
            elif free and job.alone not in busy and all(other in outcomes for other in job.after):
                slot = free.pop(0)
                running[number] = (slot, slot.start(job), time.monotonic())
                busy |= {job.alone} - {None}
                self.on_start(number)

    def _collect(
        self, jobs: Sequence[Job], outcomes: dict[int, Outcome], running: dict[int, tuple[Slot, Running, float]]
    ) -> bool:
        """Take in the jobs that have ended; whether there was one."""
        ended = {
            number: status for number, (_, started, _) in running.items() if (status := started.poll()) is not None
        }
        for number, status in ended.items():
            seconds = time.monotonic() - running.pop(number)[2]
            error = "" if status == 0 else last_error(jobs[number].log, status)
            self._end(number, Outcome(jobs[number], status, seconds, error), outcomes)
        return bool(ended)

    def _end(self, number: int, outcome: Outcome, outcomes: dict[int, Outcome]) -> None:
        outcomes[number] = outcome
        self.on_end(number, outcome)


def end(started: Sequence[Running]) -> None:
    """Tell jobs to end, and kill what does not within `GRACE_SECONDS`."""
    for one in started:
        one.stop()
    last = time.monotonic() + GRACE_SECONDS
    try:
        while any(one.poll() is None for one in started) and time.monotonic() < last:
            time.sleep(0.05)
    finally:  # a second Ctrl-C ends the waiting
        for one in started:
            if one.poll() is None:
                one.kill()
