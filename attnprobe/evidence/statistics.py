"""Intervals, and what may be decided by them: everything statistical of the report.

How often the intervals hold the truth: tests/evidence/test_coverage.py.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache

import numpy as np
import scipy
from jaxtyping import Float, UInt8

CONFIDENCE = 0.95
"""Of every interval."""
Interval = tuple[float, float, float]
"""Number, low, high; NaN ends where there is no interval."""


def p_value(value: float, low: float, high: float, against: float) -> float:
    """Two-sided p-value for "the truth is `against`", from a number and its 95 % interval (Altman &
    Bland 2011): 0.05 exactly where `against` is an end of the interval; NaN where there is none.

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
    return float(2 * scipy.stats.norm.sf(abs(value - against) / half * scipy.stats.norm.ppf(0.975)))


def holm(p: Sequence[float]) -> list[float]:
    """p-values adjusted by Holm (1979), which keeps the chance of any false decision among them
    below the level of one; NaN stays NaN and does not count.

    >>> holm([0.01, 0.04, float("nan"), 0.03])
    [0.03, 0.06, nan, 0.06]
    """
    values = np.asarray(p, np.float64)
    known = np.flatnonzero(~np.isnan(values))
    order = known[np.argsort(values[known], kind="stable")]
    adjusted = np.full(len(values), np.nan)
    raised = values[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(raised), 1.0)
    return adjusted.tolist()


def discovered(p: Float[np.ndarray, " examples"]) -> Float[np.ndarray, " examples"]:
    """1 where an example is significant with the share of false discoveries among all of them held
    at 5 % (Benjamini & Hochberg 1995), 0 where not, NaN where it is undefined."""
    known = ~np.isnan(p)
    result = np.full(len(p), np.nan)
    if known.any():
        result[known] = scipy.stats.false_discovery_control(p[known]) <= 0.05
    return result


FEWEST_NONZERO = 20
"""Values other than 0 below which too few texts carry the mean of a mostly zero sample, and a
bootstrap knows nothing of the others."""
FEWEST_PER_SKEWNESS = 25.0
"""n / skewness² below which the largest values rule the mean (Cochran 1977, section 2.15). The
skewness is that of the sample and one standard error, as a small sample may look less skewed than
it is."""


def is_too_rare(values: Float[np.ndarray, " n"], *, any_skewness: bool = False) -> bool:
    """Whether nothing should be decided from these values: all equal, fewer than 20 that are not 0,
    or so skewed that a few of them carry the mean (`any_skewness`: for a method that holds whatever
    it is). NaN values do not count.

    >>> is_too_rare(np.zeros(400)), is_too_rare(np.r_[np.ones(5), np.zeros(395)]), is_too_rare(np.arange(30.0))
    (True, True, False)
    """
    sample = values[~np.isnan(values)]
    if np.count_nonzero(sample) < FEWEST_NONZERO or is_constant(sample):
        return True
    if any_skewness:
        return False
    n = len(sample)
    error = float(np.sqrt(6 * n * (n - 1) / ((n - 2) * (n + 1) * (n + 3))))  # Joanes & Gill 1998
    return n < FEWEST_PER_SKEWNESS * (abs(float(scipy.stats.skew(sample, bias=False))) + error) ** 2


def is_constant(sample: Float[np.ndarray, " n"]) -> bool:
    """Whether all values are equal up to rounding (twelve digits)."""
    return len(sample) == 0 or bool(np.ptp(sample) <= 1e-12 * np.abs(sample).max())


def bernstein(values: Float[np.ndarray, " n"], reach: float) -> Interval | None:
    """Mean with an interval that holds for any values within a known reach, however skewed (Maurer
    & Pontil 2009, theorem 4: the empirical Bernstein bound, here on both sides). None where the
    values are equal or fewer than 20 are not 0.

    Args:
        reach: largest minus smallest value that there can be.
    """
    sample = values[~np.isnan(values)]
    if np.count_nonzero(sample) < FEWEST_NONZERO or is_constant(sample):
        return None
    n = len(sample)
    mean = float(sample.mean())
    log = float(np.log(4 / (1 - CONFIDENCE)))
    half = float(np.sqrt(2 * sample.var(ddof=1) * log / n)) + 7 * reach * log / (3 * (n - 1))
    return mean, mean - half, mean + half


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

Statistic = Callable[[Float[np.ndarray, "*any parts"]], Float[np.ndarray, "*any"]]
"""From sums over texts (last axis: the summands) to the number."""


def ratio_of(sums: Float[np.ndarray, "*any 2"]) -> Float[np.ndarray, "*any"]:
    """Sum of the first by sum of the second: the ratio of two means, or a mean where the second is
    the count."""
    count = sums[..., 1]
    return np.where(count != 0, sums[..., 0] / np.where(count != 0, count, 1), np.nan)


def f1_of(sums: Float[np.ndarray, "*any parts"]) -> Float[np.ndarray, "*any"]:
    """F1 of true positives, false positives and false negatives; 0 where there is none of either.
    Of several classes, three numbers each, the mean."""
    hits, extra, missed = np.moveaxis(sums.reshape(*sums.shape[:-1], -1, 3), -1, 0)
    total = 2 * hits + extra + missed
    return np.where(total > 0, 2 * hits / np.where(total > 0, total, 1), 0.0).mean(-1)


def interval(values: Iterable[float], *, low: float = -np.inf, high: float = np.inf) -> Interval:
    """Mean and its bootstrap interval over examples, within the ends of the values' scale; NaN
    values are left out, infinite ones a `ValueError`. All NaN where there is no value; one value,
    or equal ones (to twelve digits), have no interval."""
    sample = np.asarray(values if isinstance(values, np.ndarray) else list(values), np.float64)
    sample = sample[~np.isnan(sample)]
    if np.isinf(sample).any():
        raise ValueError(
            f"values hold {int(np.isinf(sample).sum())} infinite number(s): expected finite ones, or NaN"
        )
    return resampled_runs(parts_of(sample)[None], ratio_of, low=low, high=high)


def in_columns(name: str, numbers: Interval, mark: str = " ") -> dict[str, float]:
    """A number and its interval as three columns of a table: `name`, `name low`, `name high`."""
    return dict(zip((name, f"{name}{mark}low", f"{name}{mark}high"), numbers, strict=True))


def mean_in_columns(
    name: str, values: np.ndarray, low: float = -np.inf, high: float = np.inf
) -> dict[str, float]:
    """`interval` as three columns of a table: `name`, `name, low`, `name, high`."""
    return in_columns(name, interval(values, low=low, high=high), ", ")


def student(
    *groups: Float[np.ndarray, " runs"], low: float = -np.inf, high: float = np.inf
) -> Interval:
    """Mean of the groups' means with Student's interval over the runs, of several groups Welch's
    (Satterthwaite's degrees of freedom), cut to what the number can be. A group of one run, or of
    equal ones alone, tells no spread: no interval then."""
    if not groups or not all(len(group) for group in groups):
        return np.nan, np.nan, np.nan
    mean = float(np.mean([group.mean() for group in groups]))
    if min(len(group) for group in groups) < 2 or all(is_constant(group) for group in groups):
        return mean, np.nan, np.nan
    variances = np.array([group.var(ddof=1) / len(group) for group in groups]) / len(groups) ** 2
    freedom = variances.sum() ** 2 / np.sum(
        [v**2 / (len(group) - 1) for v, group in zip(variances, groups, strict=True)]
    )
    half = float(scipy.stats.t.ppf((1 + CONFIDENCE) / 2, freedom) * np.sqrt(variances.sum()))
    return mean, max(low, mean - half), min(high, mean + half)


def parts_of(values: Float[np.ndarray, "*any"]) -> Float[np.ndarray, "*any 2"]:
    """Summands of a mean: the value and 1, or twice 0 where it is NaN."""
    known = ~np.isnan(values)
    return np.stack([np.where(known, values, 0.0), known.astype(np.float64)], -1)


def resampled_runs(
    parts: Float[np.ndarray, "runs texts parts"],
    statistic: Statistic,
    *,
    low: float = -np.inf,
    high: float = np.inf,
) -> Interval:
    """The mean over runs of a number, with an interval over texts and runs together, NaN where
    nothing varies or a number is undefined. It ends at `low` and `high`.

    Args:
        parts: the summands of every text in every run; the runs have the same texts.
        statistic: makes each run's number of its sums.
    """
    n = parts.shape[1]
    with np.errstate(invalid="ignore", divide="ignore"):
        totals = parts.sum(1)
        value = float(statistic(totals).mean()) if parts.size else float("nan")
        if not np.isfinite(value) or n < 2:
            return value, np.nan, np.nan
        influence = pseudovalues(parts, totals, statistic)
        if not np.isfinite(influence).all() or is_constant(influence.ravel()):
            return value, np.nan, np.nan
        of_text = influence.mean(0)
        error = float(of_text.std(ddof=1)) / np.sqrt(n)
        below = 0.0
        above = 0.0
        if error > 0:
            together = np.concatenate([of_text[:, None], of_text[:, None] ** 2, *parts], 1)
            deviations = []
            for weights in _resamples(n) if n * RESAMPLES > KEPT else _kept_resamples(n):
                sums = weights.astype(np.float64) @ together
                mean = sums[:, 0] / n
                square = sums[:, 1] / n
                of_runs = sums[:, 2:].reshape(len(sums), len(parts), -1)
                spread = np.sqrt(np.maximum(square - mean**2, 0) / (n - 1))
                apart = (statistic(of_runs).mean(1) - value) / spread
                deviations.append(np.where(spread > 1e-9 * error, apart, np.nan))
            ends = np.nanquantile(
                np.concatenate(deviations), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]
            )
            below = float(max(ends[1] * error, 0.0))
            above = float(max(-ends[0] * error, 0.0))
        if len(parts) > 1:
            of_texts, of_runs = components(influence)
            half = float(scipy.stats.t.ppf((1 + CONFIDENCE) / 2, len(parts) - 1)) * of_runs
            below, above = (float(np.hypot(of_texts * side, half)) for side in (below, above))
    return value, max(low, value - below), min(high, value + above)


def pseudovalues(
    parts: Float[np.ndarray, "runs texts parts"],
    totals: Float[np.ndarray, "runs parts"],
    statistic: Statistic,
) -> Float[np.ndarray, "runs texts"]:
    """The jackknife's: n times the number minus n − 1 times the number without the text. Of a mean,
    the values."""
    n = parts.shape[1]
    return n * statistic(totals)[:, None] - (n - 1) * statistic(totals[:, None] - parts)


def _resamples(n: int) -> Iterator[UInt8[np.ndarray, "size n"]]:
    """How often each text is in each resample (some ten times at most), an even number of resamples
    at a time: BLAS adds up a row that is left over in another order than a pair."""
    generator = np.random.default_rng(0)
    at_once = max(2, AT_ONCE // n // 2 * 2)
    for start in range(0, RESAMPLES, at_once):
        size = min(at_once, RESAMPLES - start)
        places = generator.integers(0, n, (size, n)) + np.arange(size)[:, None] * n
        yield np.bincount(places.ravel(), minlength=size * n).reshape(size, n).astype(np.uint8)


@lru_cache(
    maxsize=2
)  # hundreds of intervals of a report are of the same texts, and drawing takes most of the time
def _kept_resamples(n: int) -> list[UInt8[np.ndarray, "size n"]]:
    return list(_resamples(n))


def components(influence: Float[np.ndarray, "runs texts"]) -> tuple[float, float]:
    """What of the spread belongs to the texts and to the runs, by the mean squares of a two-way
    layout: the factor for the interval over texts, 0 to 1, and the standard error of the mean over
    runs, at least what each run's own part makes it."""
    runs, texts = influence.shape
    of_run = influence.mean(1)
    of_text = influence.mean(0)
    rest = influence - of_run[:, None] - of_text[None] + influence.mean()
    of_texts = runs * float(of_text.var(ddof=1))
    residual = float((rest**2).sum()) / ((runs - 1) * (texts - 1))
    kept = max(of_texts - residual, 0.0) / of_texts if of_texts > 0 else 0.0
    return float(np.sqrt(kept)), float(np.sqrt(max(of_run.var(ddof=1), residual / texts) / runs))


def over_pairs(
    parts: Float[np.ndarray, "runs runs texts parts"],
    statistic: Statistic = ratio_of,
    *,
    low: float = -np.inf,
    high: float = np.inf,
) -> Interval:
    """The number of all ordered pairs of different runs together (such as the distance of two
    seeds' attention), with an interval over texts and runs.

    The runs' part is the jackknife's over runs (each is left out with all its pairs) with Student's
    quantile, the texts' part the bootstrap's. With two runs there is no interval, for one pair does
    not say how others would differ.

    Args:
        parts: the summands of every text for each base and each other run; the diagonal is not
            used.
    """
    runs = len(parts)
    different = ~np.eye(runs, dtype=bool)
    value, lower, upper = resampled_runs(
        parts[different].mean(0)[None], statistic, low=low, high=high
    )
    if runs < 3:
        return value, np.nan, np.nan
    without = []
    for run in range(runs):
        kept = different & (np.arange(runs) != run) & (np.arange(runs) != run)[:, None]
        without.append(statistic(parts[kept].mean(0).sum(0)))
    own = runs * value - (runs - 1) * np.asarray(without, np.float64)
    half = (
        float(scipy.stats.t.ppf((1 + CONFIDENCE) / 2, runs - 1))
        * float(own.std(ddof=1))
        / np.sqrt(runs)
    )
    below, above = (0.0 if np.isnan(end) else abs(value - end) for end in (lower, upper))
    return (
        value,
        max(low, value - float(np.hypot(below, half))),
        min(high, value + float(np.hypot(above, half))),
    )


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
    """Share with Wilson's score interval, which knows that ten of ten is not everything; NaN where
    n is 0.

    >>> tuple(round(one, 3) for one in wilson(10, 10))
    (1.0, 0.722, 1.0)
    """
    if n == 0:
        return np.nan, np.nan, np.nan
    interval = scipy.stats.binomtest(round(count), n).proportion_ci(CONFIDENCE, method)
    return float(count / n), float(interval.low), float(interval.high)


def clopper_pearson(count: float, n: int) -> Interval:
    """Share with its exact interval, which holds the truth at least as often as it says; NaN where
    n is 0.

    >>> tuple(round(one, 3) for one in clopper_pearson(0, 60))
    (0.0, 0.0, 0.06)
    """
    return wilson(count, n, method="exact")


def paired_difference(more: int, less: int, n: int) -> Interval:
    """Difference of two shares of the same n texts, −1 to 1, with Tango's (1998) score interval;
    NaN where n is 0. `more`: of how many texts the first is true and the second is not; `less`: the
    other way round.

    >>> tuple(round(one, 4) for one in paired_difference(0, 0, 44))  # Tango 1998, table V
    (0.0, -0.0803, 0.0803)
    >>> tuple(round(one, 3) for one in paired_difference(9, 3, 80))
    (0.075, -0.011, 0.17)
    """
    if n == 0:
        return np.nan, np.nan, np.nan
    estimate = (more - less) / n
    limit = float(scipy.stats.norm.ppf((1 + CONFIDENCE) / 2))

    def excess(difference: float, side: int) -> float:
        b = -more - less + (2 * n - more + less) * difference
        c = -less * difference * (1 - difference)
        discordant = (np.sqrt(max(b * b - 8 * n * c, 0.0)) - b) / (4 * n)
        variance = n * (2 * discordant + difference * (1 - difference))
        gap = more - less - n * difference
        if variance <= 0:
            return side * (float(np.sign(gap)) * np.inf if gap else 0.0) - limit
        return side * float(gap / np.sqrt(variance)) - limit

    # the score falls from +∞ to −∞ between the ends of what a difference can be
    low = (
        -1.0
        if more == 0 and less == n
        else float(scipy.optimize.brentq(excess, -1 + 1e-12, estimate, (1,)))
    )
    high = (
        1.0
        if less == 0 and more == n
        else float(scipy.optimize.brentq(excess, estimate, 1 - 1e-12, (-1,)))
    )
    return estimate, low, high
