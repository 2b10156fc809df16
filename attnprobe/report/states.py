"""A card's lines in words: what the first screen, comparisons and conditions show of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from attnprobe.report.page.runs import Run, grouped
from attnprobe.report.page.verdicts import Line, cards, put_claims_to_test
from attnprobe.report.reading import present
from attnprobe.report.verdicts import NOT_TESTED, Verdict


@dataclass(frozen=True)
class State:
    """A criterion, what it asks, and what was found: `fails`, `not tested`, …"""

    criterion: str
    question: str
    state: str

    @property
    def tested(self) -> bool:
        """Whether anything was put to the test."""
        return self.state != NOT_TESTED


def states(lines: Sequence[Line]) -> tuple[State, ...]:
    """The lines of a card in words."""
    verdicts = [line.verdict for line in lines]
    return tuple(State(name, one.question, one.state) for name, one in zip(names_of(verdicts), verdicts, strict=True))


def names_of(verdicts: Sequence[Verdict]) -> list[str]:
    """What conditions and tables call each: its criterion; `erasure.state` and `erasure.word` where two levels are asked."""
    criteria = [one.criterion for one in verdicts]
    return [one.criterion if criteria.count(one.criterion) == 1 else f"{one.criterion}.{one.level}" for one in verdicts]


def lines_of(run: Run) -> Sequence[Line]:
    """The card of a run by its own tables."""
    groups = grouped([run])
    return cards(groups, put_claims_to_test(groups, present(run.numbers)))[0].lines
