"""What a difference from a published number comes from: two setups that differ in one thing.

A cause is shown where changing it alone, in training or in data, to what the paper has, moves the
number towards the published one by more than the two intervals allow. Whatever was not changed in a
pair of runs is no cause here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from attnprobe.evidence.statistics import Interval
from research.papers.cells import WORDS, Cell, Measured, Setup

EXPLAINS = "explains it"
IN_PART = "in part"
PAST_IT = "goes past it"
NOT_THIS = "is not it"
CANNOT_DECIDE = "cannot decide"
HALF_WAY = 0.5
"""Share of the way to the published number that a cause has to be able to go."""
TWICE_THE_WAY = 2.0
"""From here on the number is no nearer to the published one than before, on its other side."""


@dataclass(frozen=True)
class CauseTest:
    """A number in two setups that differ in one field.

    Attributes:
        cause: the field of `Setup`.
        published: the paper's number.
        before: in the setup in which the number differs from the published one.
        after: in the other setup.
    """

    cause: str
    published: float
    before: Measured
    after: Measured

    def way(self) -> Interval:
        """How much of the way to the published number the change goes: 1 is all of it.

        The interval is that of a difference of two independent numbers.
        """
        gap = self.published - self.before.number.value
        change = self.after.number.value - self.before.number.value
        lower = np.hypot(
            self.after.number.value - self.after.number.low,
            self.before.number.high - self.before.number.value,
        )
        upper = np.hypot(
            self.after.number.high - self.after.number.value,
            self.before.number.value - self.before.number.low,
        )
        shares = sorted([(change - lower) / gap, (change + upper) / gap])
        return Interval(change / gap, *shares)

    def answer(self) -> str:
        """Whether the change explains the difference.

        It explains it where the number moves towards the published one beyond its interval and
        holds it then; it does so in part where it does not hold it then, but is nearer than before.
        Where it ends as far beyond as it was before, it goes past it. It is not it where it goes
        less than half of the way at most.
        """
        way = self.way()
        if way.low <= 0:
            return NOT_THIS if way.high < HALF_WAY else CANNOT_DECIDE
        if self.after.holds(self.published):
            return EXPLAINS
        return IN_PART if way.value < TWICE_THE_WAY else PAST_IT

    def __str__(self) -> str:
        way = self.way()
        percent = f"{100 * way.value:.0f} % of the way [{100 * way.low:.0f}, {100 * way.high:.0f}]"
        return f"{self.cause}: {self.answer()}, {percent}"


def cause_tests(cell: Cell, reference: Setup) -> list[CauseTest]:
    """The tests of a number that is beyond its interval; none of a number that is not.

    Args:
        cell: the number.
        reference: the setup that it differs in.
    """
    before = cell.in_setup(reference)
    if before is None or not cell.beyond(reference):
        return []
    return [
        CauseTest(cause, cell.published, before, after)
        for cause, after in changes_of(cell, reference)
        if after.has_interval
    ]


def changes_of(cell: Cell, reference: Setup) -> list[tuple[str, Measured]]:
    """What was measured with one thing changed towards the paper: the cause and the number."""
    changes = []
    for after in cell.measured:
        cause = reference.cause_in(after.setup)
        if cause:
            changes.append((cause, after))
    return changes


def explanation(cell: Cell, reference: Setup) -> str:
    """What was tested of a difference, in a table's cell; empty where there is no difference."""
    if not cell.beyond(reference):
        return ""
    tests = cause_tests(cell, reference)
    changes = changes_of(cell, reference)
    if not changes:
        return "not explained: nothing tested"
    if not tests:
        causes = ", ".join(cause for cause, _ in changes)
        return f"not explained ({causes}: no interval after the change)"
    words = "; ".join(map(str, tests))
    return words if any(_helps(test) for test in tests) else f"not explained ({words})"


@dataclass(frozen=True)
class Changed:
    """A number in the setup that it is compared in, and with one thing changed.

    Attributes:
        change: the thing, in words.
        cell: the number.
        before: in the reference setup.
        after: with the change.
    """

    change: str
    cell: Cell
    before: Measured
    after: Measured


def changed(cells: Sequence[Cell], reference: Mapping[str, Setup]) -> list[Changed]:
    """Every number that was measured both ways, whether it is beyond its interval or not.

    Args:
        cells: of any data sets.
        reference: data set → the setup that its numbers are compared in.
    """
    pairs = []
    for cell in cells:
        setup = reference.get(cell.data)
        before = None if setup is None else cell.in_setup(setup)
        if setup is None or before is None:
            continue
        for cause, after in changes_of(cell, setup):
            value = WORDS[cause].format(getattr(after.setup, cause))
            pairs.append(Changed(f"{cause} ({value})", cell, before, after))
    return pairs


@dataclass(frozen=True)
class Distances:
    """How far numbers are from the published ones, without and with a change.

    Attributes:
        count: how many numbers.
        before: the median of |measured − published| in the reference setup.
        after: with the change.
        nearer: how many numbers are nearer with it.
    """

    count: int
    before: float
    after: float
    nearer: int

    @classmethod
    def of(cls, pairs: Sequence[Changed]) -> "Distances":
        """The distances of numbers that were measured both ways."""
        published = np.array([pair.cell.published for pair in pairs])
        values_before = np.array([pair.before.number.value for pair in pairs])
        values_after = np.array([pair.after.number.value for pair in pairs])
        before = np.abs(values_before - published)
        after = np.abs(values_after - published)
        return cls(
            count=len(pairs),
            before=float(np.median(before)),
            after=float(np.median(after)),
            nearer=int((after < before).sum()),
        )


@dataclass(frozen=True)
class Tally:
    """How many of the numbers beyond their interval a cause explains.

    Attributes:
        beyond: how many there are.
        explained: how many some cause explains.
        in_part: how many a cause explains in part at most.
        tested: how many of the others had a test.
        undecidable: of how many a change was run, with a number that has no interval.
    """

    beyond: int
    explained: int
    in_part: int
    tested: int
    undecidable: int = 0

    @property
    def untested(self) -> int:
        """Of how many nothing was changed."""
        had_a_run = self.explained + self.in_part + self.tested + self.undecidable
        return self.beyond - had_a_run

    def __str__(self) -> str:
        words = [
            f"{self.explained} are explained by a tested cause",
            f"{self.in_part} in part",
            f"{self.tested} are not explained by what was tested",
        ]
        if self.undecidable:
            words.append(f"of {self.undecidable} the number after the change has no interval")
        if self.untested:
            words.append(f"of {self.untested} nothing was tested")
        return f"{', '.join(words[:-1])}, and {words[-1]}"


def tally(cells: Sequence[Cell], reference: Mapping[str, Setup]) -> Tally:
    """Count what the tests say.

    Args:
        cells: of any data sets.
        reference: data set → the setup that its numbers are compared in.
    """
    beyond = 0
    explained = 0
    partly = 0
    tested = 0
    undecidable = 0
    for cell in cells:
        setup = reference.get(cell.data)
        if setup is None or not cell.beyond(setup):
            continue
        beyond += 1
        answers = [test.answer() for test in cause_tests(cell, setup)]
        if EXPLAINS in answers:
            explained += 1
        elif IN_PART in answers:
            partly += 1
        elif answers:
            tested += 1
        elif changes_of(cell, setup):
            undecidable += 1
    return Tally(beyond, explained, partly, tested, undecidable)


def _helps(test: CauseTest) -> bool:
    return test.answer() in (EXPLAINS, IN_PART)
