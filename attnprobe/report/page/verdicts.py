"""The verdict card: every criterion's verdict for one model, with the claims that belong to it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd

from attnprobe.report.claims import Finding, findings
from attnprobe.report.evidence import FAILS as NOT_HELD
from attnprobe.report.evidence import HOLDS, NEGLIGIBLE, UNDECIDED
from attnprobe.report.page.runs import Group
from attnprobe.report.reading import Reading
from attnprobe.report.reliability import with_ceilings
from attnprobe.report.tables import Table
from attnprobe.report.verdicts import (
    CANNOT_DECIDE,
    FAILS,
    MEETS,
    NO_DIFFERENCE,
    NOT_INFORMATIVE,
    NOT_MEANINGFUL,
    NOT_TESTED,
    TOO_RARE,
    Verdict,
    encoder_of,
    first_sentence,
    guessing,
    mechanism_of,
    verdict_rows,
    verdicts,
)

MARKS = {
    MEETS: "✓", FAILS: "✗", NO_DIFFERENCE: "≈", CANNOT_DECIDE: "?", TOO_RARE: "?", NOT_INFORMATIVE: "○", NOT_MEANINGFUL: "○",
    NOT_TESTED: "–",
}  # fmt: skip
"""A sign for each, so that no verdict is told by its colour alone."""
KINDS = {
    MEETS: "meets", FAILS: "fails", NO_DIFFERENCE: "fails", CANNOT_DECIDE: "open", TOO_RARE: "open", NOT_INFORMATIVE: "none",
    NOT_MEANINGFUL: "none", NOT_TESTED: "none",
}  # fmt: skip
"""What each is called in the style sheet."""
SAID = {HOLDS: "yes", NOT_HELD: "no", NEGLIGIBLE: "negligible", UNDECIDED: "undecided"}
"""A claim's verdict in a word; others are called what they are."""


@dataclass(frozen=True)
class JudgedClaim:
    """A finding, whose runs it is of, and the part of the page that shows it."""

    finding: Finding
    group: Group
    section: str

    @property
    def is_verdict(self) -> bool:
        """Whether the claim speaks for attention where it holds; else it is about the test itself."""
        return self.finding.claim.speaks != "neither"

    @property
    def kind(self) -> str:
        """What its badge is called in the style sheet."""
        said = {HOLDS: MEETS, NOT_HELD: FAILS, NEGLIGIBLE: NO_DIFFERENCE}
        return KINDS[said.get(self.finding.verdict, CANNOT_DECIDE)]

    @property
    def said(self) -> str:
        """Its verdict in a word."""
        return SAID.get(self.finding.verdict, self.finding.verdict)


@dataclass(frozen=True)
class Line:
    """One criterion and level on one card, with the primary claim's finding and those of the others."""

    verdict: Verdict
    primary: JudgedClaim | None
    details: tuple[JudgedClaim, ...]

    @property
    def judged_claims(self) -> tuple[JudgedClaim, ...]:
        """All of its claims, the primary one first."""
        return self.details if self.primary is None else (self.primary, *self.details)


@dataclass(frozen=True)
class Card:
    """All criteria for one group of runs. `sentence`: what to know first."""

    group: Group
    lines: tuple[Line, ...]
    sentence: str


def card(group: Group, judged_claims: Sequence[JudgedClaim]) -> Card:
    """The card of one group: a line for every criterion and level, those without a test included."""
    own = [one for one in judged_claims if one.group is group and one.is_verdict]
    encoder = encoder_of(group.runs[0].manifest) if group.runs else ""
    guessed = guessing(group.runs)
    judged = verdicts([one.finding for one in own], guessing=guessed, encoder=encoder)
    lines = []
    for verdict in judged:
        there = [
            one
            for one in own
            if (one.finding.claim.criterion, one.finding.claim.level) == (verdict.criterion, verdict.level)
        ]
        primary = next((one for one in there if one.finding.claim.primary), None)
        lines.append(Line(verdict, primary, tuple(one for one in there if one is not primary)))
    mechanism = mechanism_of(group.runs[0].manifest) if group.runs else ""
    return Card(group, tuple(lines), first_sentence(judged, guessing=guessed, mechanism=mechanism))


def cards(groups: Sequence[Group], judged_claims: Sequence[JudgedClaim]) -> list[Card]:
    """A card for each group."""
    return [card(group, judged_claims) for group in groups]


def put_claims_to_test(
    groups: Sequence[Group],
    readings: Sequence[Reading],
    *,
    tell: Callable[[str], None] = lambda _: None,
) -> list[JudgedClaim]:
    """Every claim of every reading, put to the test on every group.

    Args:
        groups: each is tested by itself.
        readings: their probes may be missing in some groups.
        tell: is told what is being done.
    """
    judged_claims = []
    for group in groups:
        tell(f"claims on {group.title}")
        for reading in readings:
            judged_claims += [
                JudgedClaim(finding, group, f"test-{reading.probe}")
                for finding in with_ceilings(
                    findings(reading.claims, group.numbers, reading.probe), [run.numbers for run in group.runs]
                )
            ]
    return judged_claims


def verdict_table(cards: Sequence[Card]) -> list[Table]:
    """A row for every line of every card; no table without cards."""
    rows = [
        verdict_rows([line.verdict for line in card.lines]).assign(data=card.group.data, model=card.group.title)
        for card in cards
    ]
    if not rows:
        return []
    table = pd.concat(rows, ignore_index=True)
    ordered = table[["data", "model", *(name for name in table.columns if name not in ("data", "model"))]]
    return [Table(*VERDICTS, ordered)]


VERDICTS = (
    "verdicts",
    "Verdicts by criterion and level, each with its primary claim's number, 95 % interval and p-value adjusted for the other "
    "claims of the model (Holm).",
)


def in_words(tested: Sequence[JudgedClaim]) -> str:
    """One sentence on one test's claims: how many say yes, and how many do not. What they mean for the attention is on the
    card, after the questions that come first."""
    if not tested:
        return ""
    models = len({id(one.group) for one in tested})
    claims = len({one.finding.claim.name for one in tested})
    counts: dict[str, int] = {}
    for one in tested:
        counts[one.said] = counts.get(one.said, 0) + 1
    across = f" on {models} models (data set × model), {len(tested)} tests in all" if models > 1 else ""
    put = f"{claims} {'claim was' if claims == 1 else 'claims were'} put to the test{across}"
    return f"{put}: {listed([f'{count} × {said}' for said, count in counts.items()])}."


def listed(parts: Sequence[str]) -> str:
    """Parts as a list in words.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else "".join(parts)
