"""What the papers claim, put to the test on one's own numbers: holds, fails, or cannot be decided.

A probe's reading lists its claims. A claim turns a table into one number with an interval, and compares the *whole*
interval with a threshold, so that no verdict is ever stronger than its interval.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from attnprobe.results import interval

CRITERIA = {
    "necessity": "is attention needed at all?",
    "stability": "does another seed attend to the same words?",
    "agreement": "does attention agree with other measures of importance?",
    "exclusivity": "is it the only attention that explains the prediction?",
    "erasure": "does removing what it points at matter most?",
    "transfer": "does it help another model?",
    "plausibility": "does it point at what a human calls the reason?",
}
"""The properties that the published tests are about; there is never one score of all."""

HOLDS, FAILS, UNDECIDED = "holds", "fails", "undecided"


@dataclass(frozen=True)
class Evidence:
    """A number with its 95 % interval (NaN: there is none), and how many examples (or seeds) it is of."""

    value: float
    low: float
    high: float
    n: int

    @classmethod
    def of(cls, values: Any) -> "Evidence":
        """The mean over examples with its bootstrap interval; NaN values are left out."""
        sample = np.asarray(values, np.float64)
        return cls(*interval(sample), n=int((~np.isnan(sample)).sum()))

    def exceeds(self, threshold: float) -> str:
        """`holds` where the whole interval is above the threshold, `fails` where all of it is at or below, else
        `undecided`; without an interval nothing is decided."""
        if self.low > threshold:
            return HOLDS
        if self.high <= threshold:
            return FAILS
        return UNDECIDED


@dataclass(frozen=True)
class Claim:
    """A sentence that the numbers of one data set and model can confirm.

    Attributes:
        name: in files and links, such as `random_is_worst`.
        criterion: one of `CRITERIA`.
        statement: the sentence, plain text, such as "A random order needs more items than attention's".
        source: paper and section that make the claim, or define the test.
        measure: the long table of one data set and model, of this probe (seeds pooled) → the number, oriented so that
            the claim holds where it is *above* `threshold`; None where the table does not have what it needs.
        threshold: in the number's own unit.
        quantity: what the number is, with its unit, such as "difference of the fractions removed, 0 to 1".
        speaks: what it means if the claim holds: `for` reading attention as an explanation, `against` it, or `neither`
            (a claim about the test itself). Claims that speak for or against are the verdict card's lines.
    """

    name: str
    criterion: str
    statement: str
    source: str
    measure: Callable[[pd.DataFrame], Evidence | None]
    quantity: str
    threshold: float = 0.0
    speaks: str = "neither"

    def __post_init__(self) -> None:
        if self.criterion not in CRITERIA:
            raise ValueError(f"criterion={self.criterion!r}: expected one of {', '.join(CRITERIA)}")
        if self.speaks not in ("for", "against", "neither"):
            raise ValueError(f"speaks={self.speaks!r}: expected for, against or neither")


@dataclass(frozen=True)
class Finding:
    """A claim after it was put to the test on one data set and model."""

    claim: Claim
    evidence: Evidence
    data: str
    model: str

    @property
    def verdict(self) -> str:
        """`holds`, `fails` or `undecided`."""
        return self.evidence.exceeds(self.claim.threshold)

    @property
    def criterion_met(self) -> bool | None:
        """Whether attention meets the criterion here; None where the interval cannot decide, or the claim is about
        neither."""
        if self.verdict == UNDECIDED or self.claim.speaks == "neither":
            return None
        return (self.verdict == HOLDS) == (self.claim.speaks == "for")


def put_to_test(claims: tuple[Claim, ...], table: pd.DataFrame) -> list[Finding]:
    """Test claims on each data set and model of one probe's long table; seeds are pooled. Claims whose numbers are not
    there are left out."""
    found = []
    for (data, model), rows in table.groupby(["data", "model"], observed=True, sort=True):
        for claim in claims:
            evidence = claim.measure(rows)
            if evidence is not None:
                found.append(Finding(claim, evidence, str(data), str(model)))
    return found
