"""Intervals, and what may be decided by them: everything statistical of the report.

How often the intervals hold the truth: tests/evidence/test_coverage.py.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Bool, Float, Int, UInt8

from attnprobe.core.metrics import ANY_NUMBER, Scale

CONFIDENCE = 0.95
"""Of every interval."""
UPPER_TAIL = (1 + CONFIDENCE) / 2
"""Quantile of the upper end of a two-sided interval."""


class Interval(NamedTuple):
    """A number with its interval; NaN ends where there is no interval."""

    value: float
    low: float
    high: float


def p_value(value: float, low: float, high: float, against: float) -> float:
    """Two-sided p-value for "the truth is `against`" (Altman & Bland 2011).

    Args:
        value: a number.
        low: lower end of its 95 % interval.
        high: upper end of the interval.
        against: what the truth would be.

    Returns:
        0.05 exactly where `against` is an end of the interval; NaN where there is no interval.

    >>> round(p_value(1.0, 0.0, 2.0, 0.0), 3), round(p_value(1.0, 0.5, 3.0, 0.0), 5)
    (0.05, 9e-05)
    """
    half = value - low if against < value else high - value
    if np.isnan(half):
        return np.nan
    if against == value:
        return 1.0
    if half <= 0:
        return 0.0
    standard_errors = abs(value - against) / half * scipy.stats.norm.ppf(0.975)
    return float(2 * scipy.stats.norm.sf(standard_errors))


def holm(p: Sequence[float]) -> list[float]:
    """p-values adjusted by Holm (1979).

    The chance of any false decision among them is then below the level of one.

    Args:
        p: NaN stays NaN and does not count.

    >>> holm([0.01, 0.04, float("nan"), 0.03])
    [0.03, 0.06, nan, 0.06]
    """
    values = np.asarray(p, np.float64)
    defined = np.flatnonzero(~np.isnan(values))
    order = defined[np.argsort(values[defined], kind="stable")]
    adjusted = np.full(len(values), np.nan)
    raised = values[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(raised), 1.0)
    return adjusted.tolist()


def discovered(p: Float[np.ndarray, " examples"]) -> Float[np.ndarray, " examples"]:
    """Which examples are significant (Benjamini & Hochberg 1995).

    The share of false discoveries among all of them is held at 5 %.

    Returns:
        1 where an example is significant, 0 where not, NaN where its p-value is NaN.
    """
    defined = ~np.isnan(p)
    result = np.full(len(p), np.nan)
    if defined.any():
        result[defined] = scipy.stats.false_discovery_control(p[defined]) <= 0.05
    return result


FEWEST_NONZERO = 20
"""Values other than 0 below which too few texts carry the mean of a mostly zero sample, and a
bootstrap knows nothing of the others."""
FEWEST_PER_SKEWNESS = 25.0
"""n / skewness² below which the largest values dominate the mean (Cochran 1977, section 2.15). The
skewness is that of the sample and one standard error, as a small sample may look less skewed than
it is."""


def is_too_rare(values: Float[np.ndarray, " n"], *, any_skewness: bool = False) -> bool:
    """Whether nothing should be decided from these values.

    Args:
        values: NaN values do not count.
        any_skewness: for a method that holds for any skewness.

    Returns:
        True where all values are equal, where fewer than 20 are not 0, or where they are so skewed
        that a few of them carry the mean.

    >>> is_too_rare(np.zeros(400)), is_too_rare(np.r_[np.ones(5), np.zeros(395)])
    (True, True)
    >>> is_too_rare(np.arange(30.0))
    False
    """
    sample = values[~np.isnan(values)]
    if np.count_nonzero(sample) < FEWEST_NONZERO or is_constant(sample):
        return True
    if any_skewness:
        return False
    n = len(sample)
    skewness = abs(float(scipy.stats.skew(sample, bias=False)))
    error = float(np.sqrt(6 * n * (n - 1) / ((n - 2) * (n + 1) * (n + 3))))  # Joanes & Gill 1998
    return n < FEWEST_PER_SKEWNESS * (skewness + error) ** 2


def is_constant(sample: Float[np.ndarray, " n"]) -> bool:
    """Whether all values are equal up to rounding (twelve digits)."""
    return len(sample) == 0 or bool(np.ptp(sample) <= 1e-12 * np.abs(sample).max())


def bernstein(values: Float[np.ndarray, " n"], reach: float) -> Interval | None:
    """Mean with an interval that holds for any values within a known reach, however skewed.

    It is the empirical Bernstein bound (Maurer & Pontil 2009, theorem 4), here on both sides.

    Args:
        values: NaN values are left out.
        reach: largest minus smallest possible value.

    Returns:
        None where the values are equal or fewer than 20 are not 0.
    """
    sample = values[~np.isnan(values)]
    if np.count_nonzero(sample) < FEWEST_NONZERO or is_constant(sample):
        return None
    n = len(sample)
    mean = float(sample.mean())
    log = float(np.log(4 / (1 - CONFIDENCE)))
    variance_term = float(np.sqrt(2 * sample.var(ddof=1) * log / n))
    reach_term = 7 * reach * log / (3 * (n - 1))
    half_width = variance_term + reach_term
    return Interval(mean, mean - half_width, mean + half_width)


# Bootstrap intervals of numbers that are made of sums over texts: means, ratios of means, F1.  A
# text brings a few summands, and a statistic makes a number of their sums. One run: the studentised
# bootstrap over texts (Efron & Tibshirani 1993, section 12.5), which holds better than BCa where
# values are skewed. Several runs on the same texts: crossed random effects (Hillis 2007); a
# bootstrap over three runs is far too narrow, so that their part is Student's.


RESAMPLES = 2000
AT_ONCE = 1 << 18
"""Resampling weights that are held at a time, whatever the number of texts."""
KEPT = 10_000_000
"""Resampling weights that are kept, a byte each: of up to 5,000 texts."""
KEPT_SIZES = 8
"""Sizes whose weights are kept: that of all texts of a run, and of each of its classes."""
FEWEST_RESAMPLED = 3
"""Texts that have an interval: of two every resample that varies has the mean of the sample."""
LEAST_SPREAD = 1e-9
"""Standard error of a resample, as a share of the sample's, below which the resample counts as one
of equal texts and is left out."""

Statistic = Callable[[Float[np.ndarray, "*any parts"]], Float[np.ndarray, "*any"]]
"""From sums over texts (last axis: the summands) to the number."""


def ratio_of(sums: Float[np.ndarray, "*any 2"]) -> Float[np.ndarray, "*any"]:
    """Sum of the first by sum of the second.

    It is the ratio of two means, or a mean where the second is the count.
    """
    count = sums[..., 1]
    return np.where(count != 0, sums[..., 0] / np.where(count != 0, count, 1), np.nan)


def f1_of(sums: Float[np.ndarray, "*any parts"]) -> Float[np.ndarray, "*any"]:
    """F1 of true positives, false positives and false negatives, 0 to 1.

    Args:
        sums: three numbers; of several classes, three each.

    Returns:
        0 where there is none of either; of several classes the mean of those that have any.
    """
    by_class = sums.reshape(*sums.shape[:-1], -1, 3)
    hits = by_class[..., 0]
    false_positives = by_class[..., 1]
    false_negatives = by_class[..., 2]
    total = 2 * hits + false_positives + false_negatives
    occurs = total > 0
    f1 = np.where(occurs, 2 * hits / np.where(occurs, total, 1), 0.0)
    return f1.sum(-1) / occurs.sum(-1).clip(1)


def interval(
    values: Iterable[float] | Float[np.ndarray, "runs texts"],
    scale: Scale = ANY_NUMBER,
) -> Interval:
    """Mean and its interval over examples.

    It is the bootstrap's. Of a share of the examples it is Wilson's, as a bootstrap of few values
    that differ from the others is far too narrow: where the scale is yes or no, and where 0 and 1
    are all that is there of a scale of 0 to 1.

    Args:
        values: of the examples of one run; or of each run and text, where several runs have the
            same texts, and then the interval is over texts and runs. NaN values are left out.
        scale: what a value can be; no interval goes beyond its ends.

    Returns:
        All NaN where there is no value. One text or two have no interval, and neither have equal
        values (to twelve digits) but those of a share.

    Raises:
        ValueError: a value is infinite.
    """
    sample = np.asarray(values if isinstance(values, np.ndarray) else list(values), np.float64)
    if np.isinf(sample).any():
        raise ValueError(
            f"values hold {int(np.isinf(sample).sum())} infinite number(s): expected finite ones, "
            "or NaN"
        )
    by_run = np.atleast_2d(sample)
    is_known = ~np.isnan(by_run)
    by_run = by_run[is_known.any(1)][:, is_known.any(0)]
    if by_run.shape[1] >= FEWEST_RESAMPLED and _is_share(by_run, scale):
        return wilson_of_runs(by_run)
    return resampled_runs(parts_of(by_run), ratio_of, low=scale.low, high=scale.high)


def _is_share(values: Float[np.ndarray, "runs texts"], scale: Scale) -> bool:
    """Whether the values count texts, by their scale or because 0 and 1 are all of them."""
    if scale.is_truth:
        return True
    distinct_values = np.unique(values[~np.isnan(values)])
    return (scale.low, scale.high) == (0, 1) and np.array_equal(distinct_values, [0, 1])


def in_columns(name: str, numbers: tuple[float, float, float], mark: str = " ") -> dict[str, float]:
    """A number and its interval as three columns of a table: `name`, `name low`, `name high`."""
    return dict(zip((name, f"{name}{mark}low", f"{name}{mark}high"), numbers, strict=True))


def student(
    *groups: Float[np.ndarray, " runs"], low: float = -np.inf, high: float = np.inf
) -> Interval:
    """Mean of the groups' means with Student's interval over the runs.

    Of several groups it is Welch's, with Satterthwaite's degrees of freedom.

    Args:
        groups: numbers of runs.
        low: the least that the number can be; the interval ends there.
        high: the greatest that the number can be.

    Returns:
        No interval where a group has one run, or all groups have equal runs alone: these tell no
        spread.
    """
    if not groups or not all(len(group) for group in groups):
        return Interval(np.nan, np.nan, np.nan)
    mean = float(np.mean([group.mean() for group in groups]))
    if min(len(group) for group in groups) < 2 or all(is_constant(group) for group in groups):
        return Interval(mean, np.nan, np.nan)
    variances = np.array([group.var(ddof=1) / len(group) for group in groups]) / len(groups) ** 2
    freedom = variances.sum() ** 2 / np.sum(
        [variance**2 / (len(group) - 1) for variance, group in zip(variances, groups, strict=True)]
    )
    half = _students_quantile(freedom) * float(np.sqrt(variances.sum()))
    return _within(Interval(mean, mean - half, mean + half), low, high)


def students_half_width(runs: Float[np.ndarray, " runs"], upper_tail: float = UPPER_TAIL) -> float:
    """Half the width of Student's interval of the mean over runs; 0 for one run, which has none."""
    if len(runs) < 2:
        return 0.0
    error = float(runs.std(ddof=1)) / np.sqrt(len(runs))
    return _students_quantile(len(runs) - 1, upper_tail) * error


def means_of_runs(values: Float[np.ndarray, "runs texts"]) -> Float[np.ndarray, " runs_with_any"]:
    """Each run's mean over the texts that are not NaN in it; a run without any is left out."""
    has_any = ~np.isnan(values).all(1)
    return np.nanmean(values[has_any], 1)


def over_runs_too(over_texts: Interval, *models: Float[np.ndarray, " runs"]) -> Interval:
    """An interval over texts, as much wider as the spread between runs makes it.

    The runs have the same texts, so that the luck of the texts and that of the runs are
    independent: the squares of the half widths, those of the runs by Student, add up.

    Args:
        over_texts: of the mean over runs, or of a difference of such means.
        models: the number of each run, of one model or of both that are compared; a single run
            tells no spread.
    """
    value, low, high = over_texts
    halves = [students_half_width(runs) for runs in models]
    below = float(np.linalg.norm([value - low, *halves]))
    above = float(np.linalg.norm([high - value, *halves]))
    return Interval(value, value - below, value + above)


def _students_quantile(freedom: float, upper_tail: float = UPPER_TAIL) -> float:
    """How many standard errors the interval reaches."""
    return float(scipy.stats.t.ppf(upper_tail, freedom))


def parts_of(values: Float[np.ndarray, "*any"]) -> Float[np.ndarray, "*any 2"]:
    """Summands of a mean: the value and 1, or twice 0 where it is NaN."""
    defined = ~np.isnan(values)
    return np.stack([np.where(defined, values, 0.0), defined.astype(np.float64)], -1)


def resampled_runs(
    parts: Float[np.ndarray, "runs texts parts"],
    statistic: Statistic,
    *,
    low: float = -np.inf,
    high: float = np.inf,
) -> Interval:
    """The mean over runs of a number, with an interval over texts and runs together.

    Args:
        parts: the summands of every text in every run; the runs have the same texts.
        statistic: makes each run's number of its sums.
        low: the least that the number can be; the interval ends there.
        high: the greatest that the number can be.

    Returns:
        No interval where nothing varies, where a number is undefined, or of fewer than
        `FEWEST_RESAMPLED`.
    """
    runs, texts, _ = parts.shape
    with np.errstate(invalid="ignore", divide="ignore"):
        totals = parts.sum(1)
        value = float(statistic(totals).mean()) if parts.size else float("nan")
        if not np.isfinite(value) or texts < FEWEST_RESAMPLED:
            return Interval(value, np.nan, np.nan)
        influence = pseudovalues(parts, totals, statistic)
        if not np.isfinite(influence).all() or is_constant(influence.ravel()):
            return Interval(value, np.nan, np.nan)

        below, above = _bootstrap_margins(parts, statistic, value, influence.mean(0))
        if runs > 1:
            texts_factor, error_of_runs = components(influence)
            half = _students_quantile(runs - 1) * error_of_runs
            below = float(np.hypot(texts_factor * below, half))
            above = float(np.hypot(texts_factor * above, half))
    return _within(Interval(value, value - below, value + above), low, high)


def _within(unbounded: Interval, low: float, high: float) -> Interval:
    """An interval that ends where the number can be no less or no more; NaN stays NaN."""
    value, lower, upper = unbounded
    return Interval(value, float(np.maximum(low, lower)), float(np.minimum(high, upper)))


def _bootstrap_margins(
    parts: Float[np.ndarray, "runs texts parts"],
    statistic: Statistic,
    value: float,
    influence: Float[np.ndarray, " texts"],
) -> tuple[float, float]:
    """How far the studentised bootstrap's interval reaches below and above the number.

    In each resample the deviation of the number from the sample's is divided by its standard error
    there; the quantiles of these ratios, times the sample's own standard error, are the margins.

    Args:
        parts: as of `resampled_runs`.
        statistic: as of `resampled_runs`.
        value: the number of the sample.
        influence: pseudovalues of the texts, mean of the runs.
    """
    texts = len(influence)
    error = float(influence.std(ddof=1)) / np.sqrt(texts)
    if not error > 0:
        return 0.0, 0.0

    # one matrix product makes the sums of a resample: of the influence, its square, and the parts
    columns = np.concatenate([influence[:, None], influence[:, None] ** 2, *parts], 1)
    ratios = []
    for weights in _resamples(texts) if texts * RESAMPLES > KEPT else _kept_resamples(texts):
        sums = weights.astype(np.float64) @ columns
        mean = sums[:, 0] / texts
        mean_square = sums[:, 1] / texts
        spread = np.sqrt(np.maximum(mean_square - mean**2, 0) / (texts - 1))
        totals = sums[:, 2:].reshape(len(sums), len(parts), -1)
        ratio = (statistic(totals).mean(1) - value) / spread
        ratios.append(np.where(spread > LEAST_SPREAD * error, ratio, np.nan))
    lower, upper = np.nanquantile(np.concatenate(ratios), [(1 - CONFIDENCE) / 2, UPPER_TAIL])
    return float(max(upper * error, 0.0)), float(max(-lower * error, 0.0))


def pseudovalues(
    parts: Float[np.ndarray, "runs texts parts"],
    totals: Float[np.ndarray, "runs parts"],
    statistic: Statistic,
) -> Float[np.ndarray, "runs texts"]:
    """The jackknife's: n times the number minus n − 1 times the number without the text.

    Of a mean they are the values.
    """
    n = parts.shape[1]
    return n * statistic(totals)[:, None] - (n - 1) * statistic(totals[:, None] - parts)


def _resamples(n: int) -> Iterator[UInt8[np.ndarray, "size n"]]:
    """How often each text is in each resample, some ten times at most.

    They come in even numbers: BLAS adds up a row that is left over in another order than a pair.
    """
    generator = np.random.default_rng(0)
    at_once = max(2, AT_ONCE // n // 2 * 2)
    for start in range(0, RESAMPLES, at_once):
        size = min(at_once, RESAMPLES - start)
        places = generator.integers(0, n, (size, n)) + np.arange(size)[:, None] * n
        yield np.bincount(places.ravel(), minlength=size * n).reshape(size, n).astype(np.uint8)


# hundreds of intervals of a run are of the same texts, or of those of a class, and drawing takes
# most of the time; all that is kept takes `KEPT_SIZES * KEPT` bytes at most
@lru_cache(maxsize=KEPT_SIZES)
def _kept_resamples(n: int) -> list[UInt8[np.ndarray, "size n"]]:
    return list(_resamples(n))


def components(influence: Float[np.ndarray, "runs texts"]) -> tuple[float, float]:
    """What of the spread belongs to the texts and to the runs: mean squares of a two-way layout.

    Returns:
        The factor for the interval over texts, 0 to 1, and the standard error of the mean over
        runs, which is at least what each run's own part makes it.
    """
    runs, texts = influence.shape
    run_means = influence.mean(1)
    text_means = influence.mean(0)
    residuals = influence - run_means[:, None] - text_means[None] + influence.mean()
    residual = float((residuals**2).sum()) / ((runs - 1) * (texts - 1))
    between_texts = runs * float(text_means.var(ddof=1))
    share = max(between_texts - residual, 0.0) / between_texts if between_texts > 0 else 0.0
    error_of_runs = np.sqrt(max(run_means.var(ddof=1), residual / texts) / runs)
    return float(np.sqrt(share)), float(error_of_runs)


def over_pairs(
    parts: Float[np.ndarray, "runs runs texts parts"],
    statistic: Statistic = ratio_of,
    *,
    low: float = -np.inf,
    high: float = np.inf,
) -> Interval:
    """The number of all ordered pairs of different runs, with an interval over texts and runs.

    Such a number is the distance of two seeds' attention. The runs' part is the jackknife's over
    runs (each is left out with all its pairs) with Student's quantile, the texts' part the
    bootstrap's.

    Args:
        parts: the summands of every text for each base and each other run; the diagonal is not
            used.
        statistic: makes a number of the sums.
        low: the least that the number can be; the interval ends there.
        high: the greatest that the number can be.

    Returns:
        No interval with two runs, for one pair does not say how others would differ, or of fewer
        than `FEWEST_RESAMPLED`.
    """
    runs = len(parts)
    different = ~np.eye(runs, dtype=bool)
    mean_parts = parts[different].mean(0)[None]
    over_texts = resampled_runs(mean_parts, statistic, low=low, high=high)
    value = over_texts.value
    if runs < 3 or parts.shape[2] < FEWEST_RESAMPLED:
        return Interval(value, np.nan, np.nan)

    without_run = []
    for run in range(runs):
        is_another = np.arange(runs) != run
        remaining = different & is_another & is_another[:, None]
        without_run.append(statistic(parts[remaining].mean(0).sum(0)))
    influence = runs * value - (runs - 1) * np.asarray(without_run, np.float64)
    half = _students_quantile(runs - 1) * float(influence.std(ddof=1)) / np.sqrt(runs)
    below = 0.0 if np.isnan(over_texts.low) else abs(value - over_texts.low)
    above = 0.0 if np.isnan(over_texts.high) else abs(value - over_texts.high)
    lower = value - float(np.hypot(below, half))
    upper = value + float(np.hypot(above, half))
    return _within(Interval(value, lower, upper), low, high)


def rank_biserial(difference: Float[np.ndarray, " examples"]) -> float:
    """Matched-pairs rank-biserial correlation of differences, −1 to 1; those of 0 are left out.

    >>> rank_biserial(np.array([1.0, 2.0, -3.0, 0.0]))
    0.0
    """
    difference = difference[difference != 0]
    if len(difference) == 0:
        return float("nan")
    ranks = scipy.stats.rankdata(np.abs(difference))
    return float((ranks * np.sign(difference)).sum() / ranks.sum())


def wilson(count: float, n: int, method: str = "wilson") -> Interval:
    """Share with Wilson's score interval, which knows that ten of ten is not everything.

    NaN where n is 0.

    >>> tuple(round(number, 3) for number in wilson(10, 10))
    (1.0, 0.722, 1.0)
    """
    if n == 0:
        return Interval(np.nan, np.nan, np.nan)
    ends = scipy.stats.binomtest(round(count), n).proportion_ci(CONFIDENCE, method)
    return Interval(float(count / n), float(ends.low), float(ends.high))


def wilson_of_runs(values: Float[np.ndarray, "runs texts"]) -> Interval:
    """Mean over runs of the share of the same texts, with an interval over texts and runs together.

    Wilson's, for as many texts as there are, and as much wider as `over_runs_too` says.

    Args:
        values: from 0 to 1; a text that is NaN in every run is left out, and a run in which every
            text is.

    Returns:
        Wilson's interval where there is one run; NaN where there is no text.
    """
    defined = ~np.isnan(values).all(0)
    of_texts = np.nanmean(values[:, defined], 0)
    if not len(of_texts):
        return Interval(np.nan, np.nan, np.nan)

    over_texts = _wilson_of_share(float(of_texts.mean()), len(of_texts))
    if len(values) == 1:
        return over_texts

    value, low, high = over_runs_too(over_texts, means_of_runs(values))
    return Interval(value, max(0.0, low), min(1.0, high))


def wilson_of_clusters(
    is_hit: Bool[np.ndarray, " rows"], cluster: Int[np.ndarray, " rows"]
) -> Interval:
    """Share of rows with Wilson's score interval for as many rows as their clusters are worth.

    Rows of one cluster (answers about one text) may be right together. The share's variance by
    clusters over that of independent rows is the design effect; the number of rows is divided by it
    (Korn & Graubard 1998).

    Of few hits, or few misses, the rows show hardly anything of how alike a cluster's are. The
    design effect is therefore that of the clusters and two imagined ones of mean size, one all
    hits and one all misses, as Agresti & Coull (1998) imagine rows. Rows that are clusters of their
    own keep their design effect of 1, and those that repeat their cluster's keep theirs.

    NaN where there is no row. One cluster shows no variance, and counts as one row.

    Args:
        is_hit: what is counted.
        cluster: number of each row's cluster.
    """
    rows = len(is_hit)
    if rows == 0:
        return Interval(np.nan, np.nan, np.nan)
    share = float(is_hit.mean())
    _, cluster_of_row = np.unique(cluster, return_inverse=True)
    sizes = np.bincount(cluster_of_row)
    if len(sizes) == 1:
        return _wilson_of_share(share, 1)

    mean_size = rows / len(sizes)
    hits = np.append(np.bincount(cluster_of_row, weights=is_hit), [mean_size, 0])
    sizes = np.append(sizes, [mean_size, mean_size])
    imagined_share = hits.sum() / sizes.sum()
    squared_residuals = float(((hits - imagined_share * sizes) ** 2).sum())
    if_independent = float(sizes.sum() * imagined_share * (1 - imagined_share))
    design_effect = max(1.0, squared_residuals / if_independent)
    return _wilson_of_share(share, rows / design_effect)


def wilson_of_whole_clusters(share: float, sizes: Int[np.ndarray, " clusters"]) -> Interval:
    """Share of rows with Wilson's score interval, where nobody knows which rows are hits.

    Rows count as if those of one cluster were all alike, which is the largest design effect that
    there can be, Σ size² / Σ size (Kish 1965): the interval is too wide rather than too narrow.

    NaN where there is no row.

    Args:
        share: of the rows, 0 to 1.
        sizes: how many rows each cluster has.
    """
    rows = int(sizes.sum())
    if rows == 0:
        return Interval(np.nan, np.nan, np.nan)
    return _wilson_of_share(share, rows**2 / int((sizes**2).sum()))


def wilson_of_half_width(share: float, half_width: float) -> Interval:
    """Share with Wilson's score interval, where a symmetric interval of it is known.

    The symmetric interval of independent rows has the half width z·√(share·(1 − share)/rows). Read
    the other way round, a half width says how many rows a share is worth, and Wilson's interval is
    that of so many (Korn & Graubard 1998). Unlike the symmetric one it is as skew as the shares of
    few rows are, and does not leave the scale.

    Near 0 and 1 rows hardly differ, and a half width that has other reasons, such as noise in each
    row's own number, would belong to less than one row, whose interval is the whole scale. There
    are therefore at least as many rows as one hit and one miss need, and no end is nearer than
    that of the symmetric interval.

    Args:
        share: 0 to 1; of 0 or 1 the interval is the symmetric one, cut at the ends of the scale.
        half_width: of the symmetric interval, 0 or more.

    >>> symmetric = 1.96 * math.sqrt(0.8 * 0.2 / 10)
    >>> tuple(round(number, 3) for number in wilson_of_half_width(0.8, symmetric))
    (0.8, 0.49, 0.943)
    """
    low = max(0.0, share - half_width)
    high = min(1.0, share + half_width)
    variance_of_a_row = share * (1 - share)
    if variance_of_a_row <= 0:
        return Interval(share, low, high)

    squares_per_row = half_width**2 / variance_of_a_row
    squares_of_fewest_rows = _z() ** 2 * min(share, 1 - share)
    if squares_per_row <= squares_of_fewest_rows:
        return _score_interval(share, squares_per_row)
    wilson = _score_interval(share, squares_of_fewest_rows)
    return Interval(share, min(low, wilson.low), max(high, wilson.high))


def _wilson_of_share(share: float, effective_rows: float) -> Interval:
    """Wilson's score interval for a share of so many independent rows, whole or not."""
    return _score_interval(share, _z() ** 2 / effective_rows)


def _z() -> float:
    """The normal quantile of a 95 % interval, 1.96."""
    return float(scipy.stats.norm.ppf(UPPER_TAIL))


def _score_interval(share: float, squares_per_row: float) -> Interval:
    """Wilson's score interval: all shares π for which |share − π| ≤ √(π·(1 − π)·squares_per_row).

    Args:
        share: 0 to 1.
        squares_per_row: square of the quantile by the number of rows.
    """
    shrinkage = 1 + squares_per_row
    centre = (share + squares_per_row / 2) / shrinkage
    spread = share * (1 - share) * squares_per_row + squares_per_row**2 / 4
    margin = math.sqrt(spread) / shrinkage
    return Interval(share, max(0.0, centre - margin), min(1.0, centre + margin))


def clopper_pearson(count: float, n: int) -> Interval:
    """Share with its exact interval, which holds the truth at least as often as it says.

    NaN where n is 0.

    >>> tuple(round(number, 3) for number in clopper_pearson(0, 60))
    (0.0, 0.0, 0.06)
    """
    return wilson(count, n, method="exact")


def paired_difference(more: int, less: int, n: int) -> Interval:
    """Difference of two shares of the same texts, −1 to 1, with Tango's (1998) score interval.

    Args:
        more: of how many texts the first is true and the second is not.
        less: of how many it is the other way round.
        n: number of texts; all NaN where it is 0.

    >>> tuple(round(number, 4) for number in paired_difference(0, 0, 44))  # Tango 1998, table V
    (0.0, -0.0803, 0.0803)
    >>> tuple(round(number, 3) for number in paired_difference(9, 3, 80))
    (0.075, -0.011, 0.17)
    """
    if n == 0:
        return Interval(np.nan, np.nan, np.nan)
    estimate = (more - less) / n
    limit = _z()

    def excess(difference: float, side: int) -> float:
        """The score of a difference beyond the limit."""
        b = -more - less + (2 * n - more + less) * difference
        c = -less * difference * (1 - difference)
        discordant = (np.sqrt(max(b * b - 8 * n * c, 0.0)) - b) / (4 * n)
        variance = n * (2 * discordant + difference * (1 - difference))
        gap = more - less - n * difference
        if variance > 0:
            return side * float(gap / np.sqrt(variance)) - limit
        infinite = float(np.sign(gap)) * np.inf if gap else 0.0
        return side * infinite - limit

    # the score falls from +∞ to −∞ between the ends of what a difference can be
    low = -1.0
    if more > 0 or less < n:
        low = float(scipy.optimize.brentq(excess, -1 + 1e-12, estimate, (1,)))
    high = 1.0
    if less > 0 or more < n:
        high = float(scipy.optimize.brentq(excess, estimate, 1 - 1e-12, (-1,)))
    return Interval(estimate, low, high)
