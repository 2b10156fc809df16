"""The verdict card: which published criteria a model's attention meets, fails, or cannot be decided by these numbers."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from attnprobe.report.claims import CRITERIA, UNDECIDED, Finding, findings
from attnprobe.report.page.runs import Group
from attnprobe.report.reading import Reading

MEETS, FAILS, MIXED, CANNOT_DECIDE, NOT_TESTED = "meets", "fails", "mixed", "cannot decide", "not tested"
MARKS = {MEETS: "✓", FAILS: "✗", MIXED: "±", CANNOT_DECIDE: "?", NOT_TESTED: "–"}
"""A sign for each, so that no verdict is told by its colour alone."""
KINDS = {MEETS: "meets", FAILS: "fails", MIXED: "mixed", CANNOT_DECIDE: "open", NOT_TESTED: "none"}
"""What each is called in the style sheet."""


@dataclass(frozen=True)
class Outcome:
    """A finding, whose runs it is of, and the part of the page that shows it."""

    finding: Finding
    group: Group
    section: str

    @property
    def met(self) -> bool | None:
        """Whether attention meets the criterion by this claim; None where that is open, or the claim is about neither."""
        return self.finding.criterion_met

    @property
    def is_verdict(self) -> bool:
        """Whether the claim speaks for or against attention at all."""
        return self.finding.claim.speaks != "neither"


@dataclass(frozen=True)
class Line:
    """One criterion on one card."""

    criterion: str
    question: str
    outcomes: tuple[Outcome, ...]

    @property
    def verdict(self) -> str:
        """`meets`, `fails`, `mixed`, `cannot decide` or `not tested`."""
        return verdict_of(self.outcomes)


@dataclass(frozen=True)
class Card:
    """All criteria for one group of runs."""

    group: Group
    lines: tuple[Line, ...]


def verdict_of(tested: Iterable[Outcome]) -> str:
    """What several claims of one criterion say together: they are never averaged.

    `mixed` as soon as one that is decided says that attention meets the criterion and another that it does not; claims
    that are undecided do not take back what others decide. Claims that speak neither way count for nothing.
    """
    verdicts = [one.met for one in tested if one.is_verdict]
    if not verdicts:
        return NOT_TESTED
    decided = {met for met in verdicts if met is not None}
    if not decided:
        return CANNOT_DECIDE
    return MIXED if len(decided) > 1 else MEETS if decided == {True} else FAILS


def cards(groups: Sequence[Group], tested: Sequence[Outcome]) -> list[Card]:
    """A card for each group, with one line per criterion, those without a test included."""
    return [
        Card(
            group,
            tuple(
                Line(
                    criterion,
                    question,
                    tuple(
                        one
                        for one in tested
                        if one.group is group and one.finding.claim.criterion == criterion and one.is_verdict
                    ),
                )
                for criterion, question in CRITERIA.items()
            ),
        )
        for group in groups
    ]


def examine(
    groups: Sequence[Group],
    readings: Sequence[Reading],
    *,
    tell: Callable[[str], None] = lambda _: None,
) -> list[Outcome]:
    """Every claim of every reading, put to the test on every group.

    Args:
        groups: each is tested by itself.
        readings: their probes may be missing in some groups.
        tell: is told what is being done.
    """
    found = []
    for group in groups:
        tell(f"claims on {group.title}")
        for reading in readings:
            found += [
                Outcome(finding, group, f"test-{reading.probe}")
                for finding in findings(reading.claims, group.numbers, reading.probe)
            ]
    return found


def in_words(tested: Sequence[Outcome]) -> str:
    """Two sentences on one test's claims: how many hold, and what that says of attention. It never says more than the
    intervals do."""
    if not tested:
        return ""
    models = len({id(one.group) for one in tested})
    claims = len({one.finding.claim.name for one in tested})
    counts = {
        verdict: sum(one.finding.verdict == verdict for one in tested) for verdict in ("holds", "fails", UNDECIDED)
    }
    across = f" on {models} models (data set × model), {len(tested)} tests in all" if models > 1 else ""
    parts = [
        f"{counts['holds']} {_do(counts['holds'], 'holds', 'hold')}",
        f"{counts['fails']} {_do(counts['fails'], 'does not', 'do not')}",
        f"{counts[UNDECIDED]} cannot be decided by {_do(counts[UNDECIDED], 'its interval', 'their intervals')}",
    ]
    shown = [part for part, verdict in zip(parts, counts, strict=True) if counts[verdict]]
    first = f"{claims} {_do(claims, 'claim was', 'claims were')} put to the test{across}: {_listed(shown)}."
    return f"{first} {_for_attention(tested)}"


def _for_attention(tested: Sequence[Outcome]) -> str:
    verdicts = [one for one in tested if one.is_verdict]
    if not verdicts:
        return "None of them speaks for or against reading the attention as an explanation: they are about the test itself."
    by_group = {id(one.group): [other for other in verdicts if other.group is one.group] for one in verdicts}
    found = [verdict_of(group) for group in by_group.values()]
    criteria = _listed([f"“{name}”" for name in dict.fromkeys(one.finding.claim.criterion for one in verdicts)])
    if len(found) == 1:
        return {
            MEETS: f"By what is decided, this attention meets {criteria}, as far as this test goes.",
            FAILS: f"By what is decided, this attention does not meet {criteria}, as far as this test goes.",
            MIXED: f"On {criteria} the claims disagree about this attention: some that are decided are met, some are not.",
            CANNOT_DECIDE: f"On {criteria} nothing is decided for this attention.",
        }[found[0]]
    count = {verdict: found.count(verdict) for verdict in (MEETS, FAILS, MIXED, CANNOT_DECIDE)}
    parts = [f"is met by {count[MEETS]} of {len(found)} models"]
    parts += [f"failed by {count[FAILS]}"] * bool(count[FAILS])
    more = [f"for {count[MIXED]} the claims disagree"] * bool(count[MIXED])
    more += [f"for {count[CANNOT_DECIDE]} nothing is decided"] * bool(count[CANNOT_DECIDE])
    return (
        f"{'; '.join([f'By what is decided, {criteria} {_listed(parts)}', *more])}; this goes as far as this test does."
    )


def _do(count: int, one: str, more: str) -> str:
    return one if count == 1 else more


def _listed(parts: Sequence[str]) -> str:
    """Parts as a list in words.

    >>> _listed(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else "".join(parts)
