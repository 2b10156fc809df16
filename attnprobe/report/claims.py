"""What the papers claim, put to the test on one's own numbers.

A probe's reading lists its claims. A claim turns a table into one number with an interval, and compares the *whole*
interval with a threshold and a smallest difference of interest, so that no verdict is ever stronger than its interval.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from attnprobe.report.evidence import Evidence, metrics_of
from attnprobe.report.numbers import Numbers
from attnprobe.report.wide import by_model

CRITERIA = {
    "necessity": "is attention needed at all?",
    "stability": "does another seed attend to the same words?",
    "agreement": "does attention agree with other measures of importance?",
    "exclusivity": "does no very different attention give the same prediction?",
    "erasure": "does removing what it points at matter most?",
    "transfer": "does it help another model?",
    "plausibility": "does it point at what a human calls the reason?",
}
"""The properties that the published tests are about; there is never one score of all."""
LEVELS = {
    "model": "of trained models as a whole",
    "state": "does the weight say how much the prediction takes from the encoder's state at a position?",
    "word": "does the weight say how much the word at a position decides?",
}
"""What a claim is about. With an encoder that reads context a state tells of more than its own word: an attention can be
right about states and wrong about words. Readers of heat maps mean words."""


@dataclass(frozen=True)
class Claim:
    """A sentence that the numbers of one data set and model can confirm.

    Attributes:
        name: in files and links, such as `random_is_worst`.
        criterion: one of `CRITERIA`.
        statement: the sentence, plain text, such as "A random order needs more items than attention's".
        source: paper and section that make the claim, or define the test.
        measure: the long table of one data set and model, of this probe (all seeds) → the number, oriented so that
            the claim holds where it is *above* `threshold`; None where the table does not have what it needs. A function
            that is not a `Measure` is given every metric without steps.
        threshold: in the number's own unit.
        quantity: what the number is, with its unit, such as "difference of the fractions removed, 0 to 1".
        speaks: `for` reading attention as an explanation where the claim holds, or `neither` (a claim about the test
            itself). Claims are worded so that yes never speaks against it.
        level: one of `LEVELS`.
        smallest: the smallest difference from the threshold that is of interest, in the number's own unit: the claim holds
            only beyond it, and within it there is no relevant difference.
        primary: the verdict on its criterion and level goes by this claim; others are shown as detail.
        against: the measure of importance that attention is compared with; the claim is not asked where that measure does
            not agree with itself over seeds (`attnprobe.report.reliability`).
    """

    name: str
    criterion: str
    statement: str
    source: str
    measure: Callable[[pd.DataFrame], Evidence | None]
    quantity: str
    threshold: float = 0.0
    speaks: str = "neither"
    level: str = "model"
    smallest: float = 0.0
    primary: bool = False
    against: str = ""

    def __post_init__(self) -> None:
        if self.criterion not in CRITERIA:
            raise ValueError(f"criterion={self.criterion!r}: expected one of {', '.join(CRITERIA)}")
        if self.speaks not in ("for", "neither"):
            raise ValueError(
                f"speaks={self.speaks!r}: expected for or neither; word a claim against attention the other way round"
            )
        if self.level not in LEVELS:
            raise ValueError(f"level={self.level!r}: expected one of {', '.join(LEVELS)}")
        if self.smallest < 0:
            raise ValueError(f"smallest={self.smallest}: expected a difference of 0 or more")
        if self.primary and self.speaks == "neither":
            raise ValueError("primary=True: expected a claim that speaks for attention")

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that its number is made of, names or patterns."""
        return metrics_of(self.measure)


@dataclass(frozen=True)
class Finding:
    """A claim after it was put to the test on one data set and model."""

    claim: Claim
    evidence: Evidence
    data: str
    model: str

    @property
    def verdict(self) -> str:
        """`holds`, `fails`, `no relevant difference`, `undecided`, `too rare to say` or `not asked`."""
        return self.evidence.exceeds(self.claim.threshold, self.claim.smallest)

    @property
    def p(self) -> float:
        """See `Evidence.p`."""
        return self.evidence.p(self.claim.threshold, self.claim.smallest)


def put_to_test(claims: tuple[Claim, ...], table: pd.DataFrame) -> list[Finding]:
    """Test claims on each data set and model of one probe's long table. Claims whose numbers are not there are left out."""
    tested = []
    for (data, model), rows in by_model(table):
        for claim in claims:
            evidence = claim.measure(rows)
            if evidence is not None:
                tested.append(Finding(claim, evidence, str(data), str(model)))
    return tested


def findings(claims: tuple[Claim, ...], numbers: Numbers, probe: str) -> list[Finding]:
    """As `put_to_test`, of a probe's numbers: each claim's are read by themselves."""
    tested = [one for claim in claims for one in put_to_test((claim,), numbers.rows(probe, claim.metrics))]
    return sorted(tested, key=lambda one: (one.data, one.model))
