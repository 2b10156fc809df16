"""What the papers claim, put to the test on one's own numbers: holds, fails, or cannot be decided.

A probe's reading lists its claims. A claim turns a table into one number with an interval, and compares the *whole*
interval with a threshold, so that no verdict is ever stronger than its interval.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from attnprobe.report.numbers import EVERY, Numbers
from attnprobe.report.wide import per_example
from attnprobe.results.statistics import interval

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
FEWEST = 10
"""Examples for an interval: with fewer the bootstrap draws the same few samples over and over, and is too narrow."""


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

    @classmethod
    def of_share(cls, values: Any) -> "Evidence":
        """The mean of values from 0 to 1 as a share, with Wilson's interval, which knows that ten of ten is not
        everything; NaN values are left out."""
        sample = np.asarray(values, np.float64)
        sample = sample[~np.isnan(sample)]
        if len(sample) == 0:
            return cls(np.nan, np.nan, np.nan, n=0)
        found = stats.binomtest(round(sample.sum()), len(sample)).proportion_ci(method="wilson")
        return cls(float(sample.mean()), float(found.low), float(found.high), n=len(sample))

    @classmethod
    def of_seeds(cls, values: Any, *, low: float = -np.inf, high: float = np.inf) -> "Evidence":
        """The mean over seeds with Student's interval; one seed gives none.

        `low` and `high`: what the number can be. The interval ends there: with two seeds Student's reaches far beyond, and
        cutting off what cannot be loses nothing.
        """
        sample = np.asarray(values, np.float64)
        n, mean = len(sample), float(sample.mean())
        if n < 2:
            return cls(mean, np.nan, np.nan, n)
        half = float(stats.t.ppf(0.975, n - 1) * stats.sem(sample))
        return cls(mean, max(low, mean - half), min(high, mean + half), n)

    def exceeds(self, threshold: float) -> str:
        """`holds` where the whole interval is above the threshold, `fails` where all of it is at or below, else
        `undecided`; without an interval nothing is decided."""
        if self.low > threshold:
            return HOLDS
        if self.high <= threshold:
            return FAILS
        return UNDECIDED


@dataclass(frozen=True)
class Measure:
    """From the long table of one data set, model and probe to a number; None where the table lacks what it needs.

    `metrics`: those that it is made of, names or patterns; the table holds their rows and may lack all others.
    """

    metrics: tuple[str, ...]
    number: Callable[[pd.DataFrame], Evidence | None]

    def __call__(self, table: pd.DataFrame) -> Evidence | None:
        """The number."""
        return self.number(table)


def metrics_of(measure: Callable[[pd.DataFrame], Evidence | None]) -> tuple[str, ...]:
    """What a number is made of, names or patterns; every metric without steps where it does not say."""
    return measure.metrics if isinstance(measure, Measure) else EVERY


def values_of(table: pd.DataFrame, *metrics: str) -> pd.DataFrame | None:
    """One row per run and example, one column per metric, of a table of one probe; None where it lacks one of them."""
    if table.empty or not set(metrics) <= set(table["metric"].unique()):
        return None
    return per_example(table, str(table["probe"].iloc[0]), metrics).set_index(["run_id", "split", "example_id"])


def over_seeds(values: "pd.Series[float]") -> "pd.Series[float]":
    """Each example's mean over the runs that have it: several seeds are no further examples."""
    return values.groupby(level=["split", "example_id"]).mean()


def mean_of(*metrics: str, value: Callable[..., np.ndarray] | None = None) -> Measure:
    """A measure: the mean over examples of `value(*columns)`, or of the one metric; bootstrap interval.

    Examples pair by themselves: the difference of two metrics is taken within the example. NaN values are left out;
    with fewer than `FEWEST` examples left there is no interval, with none no number.
    """
    return _reduced(metrics, value, Evidence.of)


def share_of(*metrics: str, value: Callable[..., np.ndarray] | None = None) -> Measure:
    """As `mean_of` for values that are 1 or 0 (true or false): their share, with Wilson's interval."""
    return _reduced(metrics, value, Evidence.of_share)


def _reduced(
    metrics: tuple[str, ...], value: Callable[..., np.ndarray] | None, reduce: Callable[[Any], Evidence]
) -> Measure:
    def measure(table: pd.DataFrame) -> Evidence | None:
        rows = values_of(table, *metrics)
        if rows is None:
            return None
        columns = [rows[metric].to_numpy() for metric in metrics]
        values = columns[0] if value is None else np.asarray(value(*columns), np.float64)
        found = reduce(over_seeds(pd.Series(values, rows.index)))
        if found.n == 0:
            return None
        return found if found.n >= FEWEST else Evidence(found.value, np.nan, np.nan, found.n)

    return Measure(metrics, measure)


def least(*measures: Callable[[pd.DataFrame], Evidence | None]) -> Measure:
    """A measure: the smallest of several numbers, for claims about all of them at once.

    The interval reaches from the smallest lower to the smallest upper end: all exceed a threshold exactly when the
    smallest lower end does, and one does not as soon as one upper end does not.
    """

    def measure(table: pd.DataFrame) -> Evidence | None:
        found = [evidence for evidence in (each(table) for each in measures) if evidence is not None]
        if len(found) < len(measures):
            return None
        low, high = (float(np.min([getattr(evidence, end) for evidence in found])) for end in ("low", "high"))
        return Evidence(min(evidence.value for evidence in found), low, high, min(evidence.n for evidence in found))

    return Measure(tuple(metric for each in measures for metric in metrics_of(each)), measure)


@dataclass(frozen=True)
class Claim:
    """A sentence that the numbers of one data set and model can confirm.

    Attributes:
        name: in files and links, such as `random_is_worst`.
        criterion: one of `CRITERIA`.
        statement: the sentence, plain text, such as "A random order needs more items than attention's".
        source: paper and section that make the claim, or define the test.
        measure: the long table of one data set and model, of this probe (seeds pooled) → the number, oriented so that
            the claim holds where it is *above* `threshold`; None where the table does not have what it needs. A function
            that is no `Measure` is given every metric without steps.
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


def findings(claims: tuple[Claim, ...], numbers: Numbers, probe: str) -> list[Finding]:
    """As `put_to_test`, of a probe's numbers: each claim's are read by themselves."""
    found = [one for claim in claims for one in put_to_test((claim,), numbers.rows(probe, claim.metrics))]
    return sorted(found, key=lambda one: (one.data, one.model))
