"""From a long table to one number with its interval, and what may be decided by it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from attnprobe.evidence.statistics import (
    CONFIDENCE,
    FEWEST_NONZERO,
    Interval,
    bernstein,
    clopper_pearson,
    is_too_rare,
    means_of_runs,
    over_runs_too,
    p_value,
    paired_difference,
    parts_of,
    pseudovalues,
    ratio_of,
    resampled_runs,
    wilson_of_runs,
)
from attnprobe.evidence.verdicts import Answer, Verdict
from attnprobe.results.pivot import ASKED, RUN, per_example, text_of
from attnprobe.results.table import SCALES

Column = Float[np.ndarray, " rows"] | pd.Series
"""A metric's number, or what is made of several, for each row of a wide table."""


@dataclass(frozen=True)
class Evidence:
    """A number with its 95 % interval.

    Attributes:
        value: the number.
        low: lower end of the interval; NaN where there is none.
        high: upper end of the interval.
        n: examples, or seeds, that the number is of.
        rare: too few of the values are other than 0, or a few of them dominate the mean. The
            interval is for display only.
        unasked: why the question cannot be asked of this model; empty where it can.
        record: track-record key, where the number was measured in another way than usual, such as
            `200 passes`.
        no_yes: why the answer is no yes, wherever the interval lies; empty where it may be one.
        no_no: why the answer is no no, likewise.
        part: the part of the texts that the number is of, such as `class_1`; empty: all of them.
    """

    value: float
    low: float
    high: float
    n: int
    rare: bool = False
    unasked: str = ""
    record: str = ""
    no_yes: str = ""
    no_no: str = ""
    part: str = ""

    @classmethod
    def of(cls, values: Any, *, reach: float | None = None) -> "Evidence":
        """The mean over examples with its bootstrap interval.

        Args:
            values: `[examples]`; NaN values are left out.
            reach: largest minus smallest possible value. Where it is known, skewed samples get an
                interval that holds whatever they are (Maurer & Pontil 2009). Without it, or where
                the values are equal or fewer than 20 are not 0, they decide nothing.

        Raises:
            ValueError: a value is infinite.
        """
        return cls.of_runs(np.asarray(values, np.float64)[None], reach=reach)

    @classmethod
    def of_runs(
        cls, values: Float[np.ndarray, "runs texts"], *, reach: float | None = None
    ) -> "Evidence":
        """As `of`, for the same texts in several runs; the interval is over texts and runs.

        Raises:
            ValueError: a value is infinite.
        """
        defined = ~np.isnan(values).all(0)
        sample = np.nanmean(values[:, defined], 0) if defined.any() else np.zeros(0)
        if np.isinf(sample).any():
            raise ValueError("values hold an infinite number: expected finite ones, or NaN")
        evidence = cls(*resampled_runs(parts_of(values), ratio_of), n=int(defined.sum()))
        if not is_too_rare(sample):
            return evidence

        over_texts = None if reach is None else bernstein(sample, reach)
        if over_texts is None:
            return replace(evidence, rare=True)
        bounded = replace(evidence, low=over_texts.low, high=over_texts.high)
        return bounded.over_runs_too(means_of_runs(values))

    @classmethod
    def of_share(cls, values: Float[np.ndarray, "runs texts"]) -> "Evidence":
        """The mean of values from 0 to 1 as a share, with Wilson's interval over texts and runs.

        Args:
            values: the same texts in every run; texts that are NaN in all of them are left out.
        """
        texts = int((~np.isnan(values)).any(0).sum())
        return cls(*wilson_of_runs(values), n=texts)

    @classmethod
    def of_ratio(cls, parts: Float[np.ndarray, "runs texts 2"]) -> "Evidence":
        """A ratio of two means over texts.

        Args:
            parts: numerator and denominator of each text; texts with a NaN are left out.
        """
        parts = parts[:, ~np.isnan(parts).any((0, 2))]
        evidence = cls(*resampled_runs(parts, ratio_of), n=parts.shape[1])
        if np.isnan(evidence.low):
            return evidence
        influence = pseudovalues(parts, parts.sum(1), ratio_of).mean(0)
        return replace(evidence, rare=is_too_rare(influence))

    def within(self, low: float, high: float) -> "Evidence":
        """The same, its interval ending where the number's scale does."""
        return replace(
            self, low=float(np.clip(self.low, low, high)), high=float(np.clip(self.high, low, high))
        )

    def over_runs_too(self, *models: Float[np.ndarray, " runs"]) -> "Evidence":
        """The same with an interval over texts and runs: see `statistics.over_runs_too`."""
        over_texts = Interval(self.value, self.low, self.high)
        _, low, high = over_runs_too(over_texts, *models)
        return replace(self, low=low, high=high)

    def as_skill(self) -> "Evidence":
        """The same on the scale of a skill, −1 to 1.

        What is farther below the null than the best is above it counts as −1.
        """
        return replace(
            self,
            value=float(np.clip(self.value, -1, 1)),
            low=float(np.clip(self.low, -1, 1)),
            high=float(np.clip(self.high, -1, 1)),
        )

    def exceeds(self, threshold: float, smallest: float = 0.0) -> Verdict:
        """Is the number above the threshold by more than the smallest difference of interest?

        Args:
            threshold: in the unit of the number.
            smallest: smallest difference of interest, 0 or more.

        Returns:
            `meets` where the whole interval is above; where none of it is, `no relevant difference`
            if all of it is within `smallest` of the threshold, else `fails`. `cannot decide` where
            it reaches across, or there is none, or something else keeps this answer from it
            (`no_yes`, `no_no`); `too rare to say` for a sample of rare values; `not informative`
            where the question cannot be asked.
        """
        if self.unasked:
            return Verdict.NOT_INFORMATIVE
        if self.rare:
            return Verdict.TOO_RARE
        if self.low > threshold + smallest:
            return Verdict.CANNOT_DECIDE if self.no_yes else Verdict.MEETS
        if self.no_no or not self.high <= threshold + smallest:
            return Verdict.CANNOT_DECIDE
        if smallest > 0 and self.low >= threshold - smallest:
            return Verdict.NO_DIFFERENCE
        return Verdict.FAILS

    def why_open(self, threshold: float) -> str:
        """Why nothing is decided about whether the number is above the threshold."""
        if np.isnan(self.low):
            return "there is no interval"
        if self.low > threshold:
            return self.no_yes
        if self.high <= threshold:
            return self.no_no
        return "the interval reaches across what is asked for"

    def p(self, threshold: float, smallest: float = 0.0) -> float:
        """Two-sided p-value of what `exceeds` decides.

        Returns:
            0.05 where the interval only just decides it; NaN where there is nothing to decide by.
        """
        verdict = self.exceeds(threshold, smallest)
        if verdict in (Verdict.NOT_INFORMATIVE, Verdict.TOO_RARE):
            return np.nan
        above = p_value(self.value, self.low, self.high, threshold + smallest)
        if verdict is not Verdict.NO_DIFFERENCE:
            return above
        below = p_value(self.value, self.low, self.high, threshold - smallest)
        return max(above, below)


def lowest_of(parts: Sequence[Evidence], threshold: float, smallest: float = 0.0) -> Evidence:
    """The smallest of several numbers; it is a no where it would be one among as many (Bonferroni).

    The smallest of several is low by chance.

    Args:
        parts: one at least.
        threshold: as of `Evidence.exceeds`.
        smallest: as of `Evidence.exceeds`.
    """
    lowest = min(parts, key=lambda evidence: evidence.value)
    is_no = lowest.exceeds(threshold, smallest).answer is Answer.NO
    if is_no and lowest.p(threshold, smallest) * len(parts) > 1 - CONFIDENCE:
        return replace(lowest, no_no=f"one of {len(parts)} may be so low by chance")
    return lowest


@dataclass(frozen=True)
class Measure:
    """From the long table of one data set, model and probe to a number.

    Attributes:
        metrics: names or patterns of what the number is made of. The table holds their rows and may
            lack all others.
        number: the table → the number; None where the table lacks what it needs.
    """

    metrics: tuple[str, ...]
    number: Callable[[pd.DataFrame], Evidence | None]

    def __call__(self, table: pd.DataFrame) -> Evidence | None:
        """The number of a table."""
        return self.number(table)


def values_of(table: pd.DataFrame, *metrics: str) -> pd.DataFrame | None:
    """Some metrics of a long table of one probe, side by side.

    Returns:
        One row per run and example, one column per metric; None where the table lacks a metric.
    """
    if table.empty or not set(metrics) <= set(table["metric"].unique()):
        return None
    return per_example(table, str(table["probe"].iloc[0]), metrics)


def over_seeds(rows: pd.DataFrame, values: Column) -> "pd.Series[float]":
    """Each text's mean over the runs and questions: several seeds are no further examples.

    Args:
        rows: as `values_of` gives them.
        values: a number for each row.

    Returns:
        The means by split and text.
    """
    numbers = pd.Series(np.asarray(values, np.float64))
    split = rows["split"].astype(str).to_numpy()
    return numbers.groupby([split, text_of(rows)]).mean()


def by_run(rows: pd.DataFrame, values: Column) -> Float[np.ndarray, "runs texts"]:
    """The numbers of every run and text, by split and text.

    Args:
        rows: as `values_of` gives them.
        values: a number for each row; several questions about one text count as their mean.

    Returns:
        NaN where a run does not have a text.
    """
    numbers = np.asarray(values, np.float64)
    if len(rows[list(RUN)].drop_duplicates()) <= 1 and not rows.attrs.get(ASKED):
        return numbers[None]  # they are in order
    return by_run_and_text(rows, numbers).to_numpy(np.float64)


def by_run_and_text(rows: pd.DataFrame, values: Column) -> pd.DataFrame:
    """As `by_run`, with a row per run and a column per split and text."""
    numbers = pd.Series(np.asarray(values, np.float64))
    run = rows["run_id"].astype(str).to_numpy()
    split = rows["split"].astype(str).to_numpy()
    return numbers.groupby([run, split, text_of(rows)]).mean().unstack([1, 2])


def is_open(rows: pd.DataFrame, metrics: Iterable[str]) -> bool:
    """Whether one of these metrics has no largest possible value in one of the runs.

    Where a model gives a score, distances have none, and an interval that needs a known reach does
    not hold.
    """
    names = list(metrics)
    for metrics_of_probe in rows.attrs.get(SCALES, {}).values():
        for name in names:
            if name in metrics_of_probe and metrics_of_probe[name]["high"] is None:
                return True
    return False


def as_truth(test: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    """Values → 1 where they pass the test, 0 where not, NaN where they are NaN."""
    return lambda values: np.where(np.isnan(values), np.nan, test(values))


def of_examples(metrics: tuple[str, ...], reduce: Callable[..., Evidence]) -> Measure:
    """A measure of single examples.

    Args:
        metrics: what it is made of.
        reduce: the examples' rows, and each metric's column → the number.

    Returns:
        The measure; it gives None without any example.
    """

    def measure(table: pd.DataFrame) -> Evidence | None:
        rows = values_of(table, *metrics)
        if rows is None:
            return None
        columns = [rows[metric].to_numpy() for metric in metrics]
        evidence = reduce(rows, *columns)
        return evidence if evidence.n else None

    return Measure(metrics, measure)


def mean_of(
    *metrics: str,
    ends: tuple[float, float],
    value: Callable[..., np.ndarray] = lambda column: column,
    reach: float | None = None,
) -> Measure:
    """A measure: a mean over examples, with its bootstrap interval.

    Examples pair by themselves: the difference of two metrics is taken within the example. NaN
    values are left out. Of several seeds the interval is over examples and seeds.

    Args:
        metrics: what it is made of.
        ends: the least and the greatest that the number can be, where no metric is of a scale
            without an end; no interval goes beyond them.
        value: the metrics' columns → what is averaged; without it there is one metric.
        reach: see `Evidence.of`.
    """

    def reduce(rows: pd.DataFrame, *columns: np.ndarray) -> Evidence:
        values = by_run(rows, value(*columns))
        if is_open(rows, metrics):
            return Evidence.of_runs(values)
        return Evidence.of_runs(values, reach=reach).within(*ends)

    return of_examples(metrics, reduce)


def share_of(*metrics: str, value: Callable[..., np.ndarray] = lambda column: column) -> Measure:
    """As `mean_of` for values that are 1 or 0: their share, with Wilson's interval."""
    return of_examples(
        metrics, lambda rows, *columns: Evidence.of_share(by_run(rows, value(*columns)))
    )


def flips_of(*metrics: str, value: Callable[..., np.ndarray]) -> Measure:
    """As `mean_of` for paired differences of values that are 1 or 0, with Tango's score interval.

    Several seeds, and fractions (of several random items), have the bootstrap's, over examples and
    seeds.
    """

    def reduce(rows: pd.DataFrame, *columns: np.ndarray) -> Evidence:
        values = by_run(rows, value(*columns))
        sample = values[0][~np.isnan(values[0])]
        if len(values) > 1 or not np.isin(sample, (-1, 0, 1)).all():
            return Evidence.of_runs(values).within(-1, 1)
        more = int((sample > 0).sum())
        less = int((sample < 0).sum())
        difference = paired_difference(more, less, len(sample))
        return Evidence(*difference, n=len(sample), rare=is_too_rare(sample, any_skewness=True))

    return of_examples(metrics, reduce)


def least(*measures: Measure) -> Measure:
    """A measure: the smallest of several numbers, for claims about all of them at once.

    The interval reaches from the smallest lower to the smallest upper end: all exceed a threshold
    exactly when the smallest lower end does, and one does not as soon as one upper end does not.
    """

    def measure(table: pd.DataFrame) -> Evidence | None:
        numbers = [part(table) for part in measures]
        evidence = [number for number in numbers if number is not None]
        if len(evidence) < len(numbers):
            return None
        return Evidence(
            value=float(np.min([number.value for number in evidence])),
            low=float(np.min([number.low for number in evidence])),
            high=float(np.min([number.high for number in evidence])),
            n=min(number.n for number in evidence),
            rare=any(number.rare for number in evidence),
        )

    return Measure(tuple(metric for part in measures for metric in part.metrics), measure)


# Skill: where a number stands between that of an attention without meaning and the best possible.


LEAST_GAIN = 0.02
"""Probability (or distance) by which the best possible attention must be ahead of a meaningless
one. Below it attention is untestable: nothing that it could point at makes a difference."""
AT_AN_END = 1e-9
"""Difference from the best, or from the null, up to which a text counts as being there."""


def skill_of(statistic: str, *, least: float = LEAST_GAIN, reach: float = 1.0) -> Measure:
    """A measure: (own − null) / (best − null), of the means of `<statistic>_own`, `_null`, `_best`.

    It is 0 for an attention without meaning, and 1 for the best there is. It is not asked where the
    best is not ahead of the null by `least`; where it may or may not be, by the interval of that
    difference, nothing is decided.

    Args:
        statistic: begins the metrics' names.
        least: smallest gain of the best over the null with which skill is asked for.
        reach: largest minus smallest possible value of the statistic.
    """
    metrics = (f"{statistic}_own", f"{statistic}_null", f"{statistic}_best")

    def reduce(rows: pd.DataFrame, own: Column, null: Column, best: Column) -> Evidence:
        null_by_run = by_run(rows, null)
        parts = np.stack([by_run(rows, own) - null_by_run, by_run(rows, best) - null_by_run], -1)
        parts = parts[:, ~np.isnan(parts).any((0, 2))]
        bound = None if is_open(rows, metrics) else reach
        skill = Evidence.of_ratio(parts)
        gain = Evidence.of_runs(parts[..., 1], reach=bound)
        if not gain.value > least or gain.high <= least:
            reason = f"nothing it could point at moves the prediction by {least:g}"
            return replace(skill.as_skill(), unasked=reason)

        has_no_interval = skill.rare or np.isnan(skill.low)
        if bound is not None and len(parts) == 1 and has_no_interval:
            skill = _bounded_skill(skill, gain, parts[0], bound)
        if gain.low <= least:
            skill = replace(skill, low=np.nan, high=np.nan)
        return skill.as_skill()

    return of_examples(metrics, reduce)


def _bounded_skill(
    skill: Evidence, gain: Evidence, parts: Float[np.ndarray, "texts 2"], reach: float
) -> Evidence:
    """The skill of one run in which nearly all texts are alike, with an interval that holds.

    There a bootstrap knows nothing of the other texts. Where nearly all are at their best, or at
    the null, the share of the others is bounded exactly (Clopper & Pearson), and each of them is
    taken to be as far away as can be. Else the empirical Bernstein bound holds.

    Args:
        skill: without an interval.
        gain: of the best over the null.
        parts: of each text own − null, and best − null.
        reach: largest minus smallest possible value.
    """
    own_gain = parts[:, 0]
    best_gain = parts[:, 1]
    not_at_best = int((np.abs(best_gain - own_gain) > AT_AN_END).sum())
    not_at_null = int((np.abs(own_gain) > AT_AN_END).sum())
    nearly_all_alike = min(not_at_best, not_at_null) < FEWEST_NONZERO
    if not gain.low > 0:
        return replace(skill, rare=True)

    if nearly_all_alike:
        is_at_best = not_at_best < FEWEST_NONZERO
        end = 1.0 if is_at_best else 0.0
        count = not_at_best if is_at_best else not_at_null
        distance = clopper_pearson(count, len(parts)).high * reach / gain.low
        return replace(
            skill,
            low=min(end - distance, skill.value),
            high=max(end if is_at_best else distance, skill.value),
            rare=False,
        )

    bounded = bernstein(own_gain - skill.value * best_gain, 2 * reach)
    if bounded is None:
        return replace(skill, rare=True)
    half = (bounded.high - bounded.low) / gain.low
    return replace(skill, low=skill.value - half, high=skill.value + half, rare=False)


def beyond_chance(own: str, chance: str) -> Measure:
    """A measure: (own − chance) / (1 − chance) of the means of two metrics from 0 to 1.

    Where nearly all texts of one run are alike, as under an attention that is always right, its
    interval is that of a skill (`_bounded_skill`).
    """

    def reduce(rows: pd.DataFrame, reached: Column, expected: Column) -> Evidence:
        expected_by_run = by_run(rows, expected)
        parts = np.stack([by_run(rows, reached) - expected_by_run, 1 - expected_by_run], -1)
        parts = parts[:, ~np.isnan(parts).any((0, 2))]
        evidence = Evidence.of_ratio(parts)
        has_no_interval = evidence.rare or np.isnan(evidence.low)
        if len(parts) == 1 and has_no_interval:
            gain = Evidence.of_runs(parts[..., 1], reach=1.0)
            evidence = _bounded_skill(evidence, gain, parts[0], reach=1.0)
        return evidence.as_skill()

    return of_examples((own, chance), reduce)
