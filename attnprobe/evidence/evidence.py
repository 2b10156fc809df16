"""From a long table to one number with its interval, and what may be decided by it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from attnprobe.evidence.statistics import (
    FEWEST_NONZERO,
    bernstein,
    clopper_pearson,
    is_too_rare,
    p_value,
    paired_difference,
    parts_of,
    pseudovalues,
    ratio_of,
    resampled_runs,
    wilson,
)
from attnprobe.evidence.verdicts import Verdict
from attnprobe.results.pivot import ASKED, RUN, per_example, text_of
from attnprobe.results.table import RANGES

MEETS = Verdict.MEETS
FAILS = Verdict.FAILS
NO_DIFFERENCE = Verdict.NO_DIFFERENCE
CANNOT_DECIDE = Verdict.CANNOT_DECIDE
TOO_RARE = Verdict.TOO_RARE
NOT_INFORMATIVE = Verdict.NOT_INFORMATIVE


@dataclass(frozen=True)
class Evidence:
    """A number with its 95 % interval (NaN: there is none), and how many examples (or seeds) it is
    of.

    Attributes:
        rare: too few of the values are other than 0, or a few of them rule the mean; the interval
            is then only good for being shown.
        unasked: why the question cannot be asked of this model; empty where it can.
        record: what the track record has to be of, where the number was measured in another way
            than usual, as `200 passes`.
    """

    value: float
    low: float
    high: float
    n: int
    rare: bool = False
    unasked: str = ""
    record: str = ""

    @classmethod
    def of(cls, values: Any, *, reach: float | None = None) -> "Evidence":
        """The mean over examples with its bootstrap interval; NaN values are left out.

        Args:
            reach: largest minus smallest value that there can be. Known, it gives skewed samples an
                interval that holds whatever they are (Maurer & Pontil 2009); without it, or where
                the values are equal or fewer than 20 are not 0, they decide nothing.
        """
        return cls.of_runs(np.asarray(values, np.float64)[None], reach=reach)

    @classmethod
    def of_runs(
        cls, values: Float[np.ndarray, "runs texts"], *, reach: float | None = None
    ) -> "Evidence":
        """As `of`, for the same texts in several runs; the interval is over texts and runs."""
        known = ~np.isnan(values).all(0)
        sample = np.nanmean(values[:, known], 0) if known.any() else np.zeros(0)
        if np.isinf(sample).any():
            raise ValueError("values hold an infinite number: expected finite ones, or NaN")
        evidence = cls(*resampled_runs(parts_of(values), ratio_of), n=int(known.sum()))
        if not is_too_rare(sample):
            return evidence
        bounded = None if reach is None or len(values) > 1 else bernstein(sample, reach)
        if bounded is None:
            return replace(evidence, rare=True)
        return replace(evidence, low=bounded[1], high=bounded[2])

    @classmethod
    def of_share(cls, values: Any) -> "Evidence":
        """The mean of values from 0 to 1 as a share, with Wilson's interval; NaN values are left
        out."""
        sample = np.asarray(values, np.float64)
        sample = sample[~np.isnan(sample)]
        return cls(*wilson(sample.sum(), len(sample)), n=len(sample))

    @classmethod
    def of_ratio(cls, parts: Float[np.ndarray, "runs texts 2"]) -> "Evidence":
        """A ratio of two means over texts; texts with a NaN are left out."""
        parts = parts[:, ~np.isnan(parts).any((0, 2))]
        evidence = cls(*resampled_runs(parts, ratio_of), n=parts.shape[1])
        if np.isnan(evidence.low):
            return evidence
        return replace(
            evidence, rare=is_too_rare(pseudovalues(parts, parts.sum(1), ratio_of).mean(0))
        )

    def within(self, low: float, high: float) -> "Evidence":
        """The same, its interval ending where the number's scale does."""
        return replace(
            self, low=float(np.clip(self.low, low, high)), high=float(np.clip(self.high, low, high))
        )

    def exceeds(self, threshold: float, smallest: float = 0.0) -> Verdict:
        """What the whole interval says of "above the threshold by more than the smallest difference
        of interest".

        `meets` where all of it does; where none of it does, `no relevant difference` if all of it
        is that close to the threshold, else `fails`. `cannot decide` where it reaches across, or
        there is none. `too rare to say` for a sample of rare values, `not informative` where the
        question cannot be asked."""
        if self.unasked:
            return NOT_INFORMATIVE
        if self.rare:
            return TOO_RARE
        if self.low > threshold + smallest:
            return MEETS
        if self.high <= threshold + smallest:
            return NO_DIFFERENCE if smallest > 0 and self.low >= threshold - smallest else FAILS
        return CANNOT_DECIDE

    def p(self, threshold: float, smallest: float = 0.0) -> float:
        """Two-sided p-value of what `exceeds` decides, 0.05 where the interval only just decides
        it; NaN where there is nothing to decide by."""
        said = self.exceeds(threshold, smallest)
        if said in (NOT_INFORMATIVE, TOO_RARE):
            return np.nan
        above = p_value(self.value, self.low, self.high, threshold + smallest)
        if said != NO_DIFFERENCE:
            return above
        return max(above, p_value(self.value, self.low, self.high, threshold - smallest))


@dataclass(frozen=True)
class Measure:
    """From the long table of one data set, model and probe to a number; None where the table lacks
    what it needs.

    `metrics`: those that it is made of, names or patterns; the table holds their rows and may lack
    all others."""

    metrics: tuple[str, ...]
    number: Callable[[pd.DataFrame], Evidence | None]

    def __call__(self, table: pd.DataFrame) -> Evidence | None:
        return self.number(table)


def values_of(table: pd.DataFrame, *metrics: str) -> pd.DataFrame | None:
    """One row per run and example, one column per metric, of a table of one probe; None where it
    lacks one of them."""
    if table.empty or not set(metrics) <= set(table["metric"].unique()):
        return None
    return per_example(table, str(table["probe"].iloc[0]), metrics)


def over_seeds(rows: pd.DataFrame, values: Float[np.ndarray, " rows"]) -> "pd.Series[float]":
    """Each text's mean over the runs and questions, by split and example: several seeds are no
    further examples. `rows` are as `values_of` gives them, with a value for each."""
    return (
        pd.Series(np.asarray(values, np.float64))
        .groupby([rows["split"].astype(str), text_of(rows)])
        .mean()
    )


def by_run(
    rows: pd.DataFrame, values: Float[np.ndarray, " rows"]
) -> Float[np.ndarray, "runs texts"]:
    """The values of every run and text, by split and text (of several questions about one their
    mean); NaN where a run does not have a text. `rows` are as `values_of` gives them, with a value
    for each."""
    if len(rows[list(RUN)].drop_duplicates()) <= 1 and not rows.attrs.get(ASKED):
        return np.asarray(values, np.float64)[None]  # they are in order
    texts = (
        pd.Series(values)
        .groupby([rows["run_id"].astype(str), rows["split"].astype(str), text_of(rows)])
        .mean()
    )
    return texts.unstack([1, 2]).to_numpy(np.float64)


def is_open(rows: pd.DataFrame, metrics: Iterable[str]) -> bool:
    """Whether one of these metrics has no largest number in one of the runs: where a model gives a
    score, distances have none, and what holds for values within a known reach does not."""
    return any(
        one.get(name, (0, 0))[1] is None
        for one in rows.attrs.get(RANGES, {}).values()
        for name in metrics
    )


def as_truth(test: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    """Values → 1 where they pass the test, 0 where not, NaN where they are NaN."""
    return lambda values: np.where(np.isnan(values), np.nan, test(values))


def of_examples(metrics: tuple[str, ...], reduce: Callable[..., Evidence]) -> Measure:
    """A measure: `reduce(rows, *columns)` of the examples' rows and the metrics' columns; None
    without any example."""

    def measure(table: pd.DataFrame) -> Evidence | None:
        rows = values_of(table, *metrics)
        if rows is None:
            return None
        evidence = reduce(rows, *(rows[metric].to_numpy() for metric in metrics))
        return evidence if evidence.n else None

    return Measure(metrics, measure)


def mean_of(
    *metrics: str,
    value: Callable[..., np.ndarray] = lambda column: column,
    reach: float | None = None,
    ends: tuple[float, float] = (-np.inf, np.inf),
) -> Measure:
    """A measure: the mean over examples of `value(*columns)`, or of the one metric; bootstrap
    interval.

    Examples pair by themselves: the difference of two metrics is taken within the example. NaN
    values are left out. Of several seeds the interval is over examples and seeds.

    Args:
        reach: see `Evidence.of`.
        ends: the least and the greatest that the number can be; no interval goes beyond them.
    """

    def reduce(rows: pd.DataFrame, *columns: np.ndarray) -> Evidence:
        values = by_run(rows, value(*columns))
        return (
            Evidence.of_runs(values)
            if is_open(rows, metrics)
            else Evidence.of_runs(values, reach=reach).within(*ends)
        )

    return of_examples(metrics, reduce)


def share_of(*metrics: str, value: Callable[..., np.ndarray] = lambda column: column) -> Measure:
    """As `mean_of` for values that are 1 or 0 (true or false): their share, with Wilson's
    interval."""
    return of_examples(
        metrics, lambda rows, *columns: Evidence.of_share(over_seeds(rows, value(*columns)))
    )


def flips_of(*metrics: str, value: Callable[..., np.ndarray]) -> Measure:
    """As `mean_of` for paired differences of two things that are 1 or 0, with Tango's score
    interval. Fractions (of several seeds, or several random items) have the bootstrap's."""

    def reduce(rows: pd.DataFrame, *columns: np.ndarray) -> Evidence:
        sample = over_seeds(rows, value(*columns)).dropna().to_numpy()
        if not np.isin(sample, (-1, 0, 1)).all():
            return Evidence.of(sample)
        ends = paired_difference(int((sample > 0).sum()), int((sample < 0).sum()), len(sample))
        return Evidence(*ends, n=len(sample), rare=is_too_rare(sample, any_skewness=True))

    return of_examples(metrics, reduce)


def least(*measures: Measure) -> Measure:
    """A measure: the smallest of several numbers, for claims about all of them at once.

    The interval reaches from the smallest lower to the smallest upper end: all exceed a threshold
    exactly when the smallest lower end does, and one does not as soon as one upper end does not.
    """

    def measure(table: pd.DataFrame) -> Evidence | None:
        several = [each(table) for each in measures]
        known = [one for one in several if one is not None]
        if len(known) < len(several):
            return None
        value, low, high = np.min(
            [(one.value, one.low, one.high) for one in known], axis=0
        ).tolist()
        return Evidence(
            value, low, high, min(one.n for one in known), any(one.rare for one in known)
        )

    return Measure(tuple(metric for each in measures for metric in each.metrics), measure)


# Skill: where a number stands between that of an attention without meaning and the best there can
# be.


LEAST_GAIN = 0.02
"""Probability (or distance) by which the best possible attention must be ahead of a meaningless
one: where nothing that attention could point at makes a difference, no pointing can be right or
wrong."""


def skill_of(statistic: str, *, least: float = LEAST_GAIN, reach: float = 1.0) -> Measure:
    """A measure: (own − null) / (best − null) of the means of `<statistic>_own`, `_null`, `_best`,
    0 for an attention without meaning, 1 for the best there is.

    Not asked where the best is not ahead of the null by `least`; where it may or may not be, by the
    interval of that difference, nothing is decided. Of one run in which nearly all texts are alike
    a bootstrap knows nothing of the others: where these are at their best, or at the null, the
    share of the others is bounded exactly (Clopper & Pearson), and each of them is taken to be as
    far away as can be; else the empirical Bernstein bound holds.

    Args:
        reach: largest minus smallest value of the statistic.
    """
    metrics = tuple(f"{statistic}_{kind}" for kind in ("own", "null", "best"))

    def reduce(rows: pd.DataFrame, *columns: np.ndarray) -> Evidence:
        own, null, best = (by_run(rows, column) for column in columns)
        parts = np.stack([own - null, best - null], -1)
        parts = parts[:, ~np.isnan(parts).any((0, 2))]
        bound = None if is_open(rows, metrics) else reach
        skill = Evidence.of_ratio(parts)
        gain = Evidence.of_runs(parts[..., 1], reach=bound)
        if not gain.value > least or gain.high <= least:
            return replace(
                skill, unasked=f"nothing it could point at moves the prediction by {least:g}"
            )
        if bound is not None and len(parts) == 1 and (skill.rare or np.isnan(skill.low)):
            over_null, over = parts[0].T
            not_at_best, not_at_null = (
                int((np.abs(one) > 1e-9).sum()) for one in (over - over_null, over_null)
            )
            few = min(not_at_best, not_at_null) < FEWEST_NONZERO
            bounded = None if few else bernstein(over_null - skill.value * over, 2 * reach)
            if not gain.low > 0 or (bounded is None and not few):
                skill = replace(skill, rare=True)
            elif bounded is not None:
                half = (bounded[2] - bounded[0]) / gain.low
                skill = replace(skill, low=skill.value - half, high=skill.value + half, rare=False)
            else:
                at, count = (
                    (1.0, not_at_best) if not_at_best < FEWEST_NONZERO else (0.0, not_at_null)
                )
                away = clopper_pearson(count, len(over))[2] * reach / gain.low
                high = max(at if at == 1 else away, skill.value)
                skill = replace(skill, low=min(at - away, skill.value), high=high, rare=False)
        return (
            replace(skill, low=np.nan, high=np.nan)
            if gain.low <= least
            else skill.within(-np.inf, 1)
        )

    return of_examples(metrics, reduce)


def beyond_chance(own: str, chance: str) -> Measure:
    """A measure: (own − chance) / (1 − chance) of the means of two metrics from 0 to 1."""

    def reduce(rows: pd.DataFrame, *columns: np.ndarray) -> Evidence:
        reached, expected = (by_run(rows, column) for column in columns)
        return Evidence.of_ratio(np.stack([reached - expected, 1 - expected], -1)).within(
            -np.inf, 1
        )

    return of_examples((own, chance), reduce)
