"""Bootstrap intervals of numbers that are made of sums over texts: means, ratios of means, F1.

One engine for all: a text brings a few summands, a statistic makes a number of their sums, and the sums of a resample are
one row of a matrix product. One run: the studentised bootstrap over texts (Efron & Tibshirani 1993, section 12.5), which
holds better than BCa where values are skewed. Several runs on the same texts: texts and runs are both drawn at random in
what the number is about, so both add to the interval (crossed random effects, as readers and cases in Hillis 2007). Runs
are few, and a bootstrap over three of them is far too narrow: their part is Student's.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache

import numpy as np
from jaxtyping import Float, UInt8
from scipy import stats

from attnprobe.results.statistics.rare import is_constant

RESAMPLES = 2000
AT_ONCE = 1 << 18
"""Resampling weights that are held at a time, three times over: 6 MB, whatever the number of texts."""
KEPT = 10_000_000
"""Resampling weights that are kept, a byte each: of up to 5,000 texts."""

Statistic = Callable[[Float[np.ndarray, "*any parts"]], Float[np.ndarray, "*any"]]
"""From sums over texts (last axis: the summands) to the number."""
Interval = tuple[float, float, float]
"""Number, low, high; NaN ends where there is no interval."""


def mean_of_parts(sums: Float[np.ndarray, "*any 2"]) -> Float[np.ndarray, "*any"]:
    """Sum of the values by their count."""
    return _quotient(sums[..., 0], sums[..., 1])


ratio_of = mean_of_parts
"""Sum of the first by sum of the second: the ratio of two means."""


def f1_of(sums: Float[np.ndarray, "*any 3"]) -> Float[np.ndarray, "*any"]:
    """F1 of true positives, false positives and false negatives; 0 where there is none of either."""
    hits, extra, missed = sums[..., 0], sums[..., 1], sums[..., 2]
    total = 2 * hits + extra + missed
    return np.where(total > 0, 2 * hits / np.where(total > 0, total, 1), 0.0)


def _quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where(b != 0, a / np.where(b != 0, b, 1), np.nan)


def interval(values: Iterable[float], *, confidence: float = 0.95, seed: int = 0) -> Interval:
    """Mean and its bootstrap interval over examples; NaN values are left out.

    Raises:
        ValueError: an infinite value, which has no mean.

    Returns:
        (mean, low, high); all NaN where there is no value. One value, or equal ones (to twelve digits), have no interval:
        they do not say how others would spread.
    """
    sample = values if isinstance(values, np.ndarray) else np.array(list(values))
    sample = sample.astype(np.float64, copy=False)
    sample = sample[~np.isnan(sample)]
    if np.isinf(sample).any():
        raise ValueError(f"values hold {int(np.isinf(sample).sum())} infinite number(s): expected finite ones, or NaN")
    return resampled_runs(parts_of(sample)[None], mean_of_parts, confidence=confidence, seed=seed)


def student(
    values: Float[np.ndarray, " runs"], *, low: float = -np.inf, high: float = np.inf, confidence: float = 0.95
) -> Interval:
    """Mean over runs with Student's interval, cut to what the number can be; one run, or equal ones, give none."""
    return student_of_groups([values], low=low, high=high, confidence=confidence)


def student_of_groups(
    groups: Sequence[Float[np.ndarray, " runs"]],
    *,
    low: float = -np.inf,
    high: float = np.inf,
    confidence: float = 0.95,
) -> Interval:
    """Mean of the groups' means, each group counting once however many runs it has, with Welch's interval over the runs of
    each (Satterthwaite's degrees of freedom). A group of one run tells no spread, so that there is no interval."""
    if not groups or not all(len(group) for group in groups):
        return np.nan, np.nan, np.nan
    mean = float(np.mean([group.mean() for group in groups]))
    if min(len(group) for group in groups) < 2 or all(is_constant(group) for group in groups):
        return mean, np.nan, np.nan
    variances = np.array([group.var(ddof=1) / len(group) for group in groups]) / len(groups) ** 2
    freedom = variances.sum() ** 2 / np.sum(
        [v**2 / (len(group) - 1) for v, group in zip(variances, groups, strict=True)]
    )
    half = float(stats.t.ppf((1 + confidence) / 2, freedom) * np.sqrt(variances.sum()))
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
    confidence: float = 0.95,
    seed: int = 0,
) -> Interval:
    """The mean over runs of a number, with an interval over texts and runs together.

    Args:
        parts: the summands of every text in every run; the runs have the same texts.
        statistic: makes each run's number of its sums.
        low, high: what the number can be; the interval ends there.

    Returns:
        (number, low, high). The ends are NaN where nothing varies, or a run's number is undefined.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        totals = parts.sum(1)
        value = float(statistic(totals).mean()) if parts.size else float("nan")
        if not np.isfinite(value) or parts.shape[1] < 2:
            return value, np.nan, np.nan
        influence = pseudovalues(parts, totals, statistic)
        usable = np.isfinite(influence).all()
        if not usable or is_constant(influence.ravel()):
            return value, np.nan, np.nan
        below, above = _over_texts(parts, statistic, influence.mean(0), value, confidence, seed)
        if len(parts) > 1:
            of_texts, of_runs = components(influence)
            half = float(stats.t.ppf((1 + confidence) / 2, len(parts) - 1)) * of_runs
            below, above = (float(np.hypot(of_texts * side, half)) for side in (below, above))
    return value, max(low, value - below), min(high, value + above)


def pseudovalues(
    parts: Float[np.ndarray, "runs texts parts"], totals: Float[np.ndarray, "runs parts"], statistic: Statistic
) -> Float[np.ndarray, "runs texts"]:
    """The jackknife's: n times the number minus n − 1 times the number without the text. Of a mean, the values."""
    n = parts.shape[1]
    return n * statistic(totals)[:, None] - (n - 1) * statistic(totals[:, None] - parts)


def _over_texts(
    parts: Float[np.ndarray, "runs texts parts"],
    statistic: Statistic,
    influence: Float[np.ndarray, " texts"],
    value: float,
    confidence: float,
    seed: int,
) -> tuple[float, float]:
    """How far the interval over texts reaches below and above the number."""
    n = parts.shape[1]
    error = float(influence.std(ddof=1)) / np.sqrt(n)
    if error == 0:
        return 0.0, 0.0
    together = np.concatenate([influence[:, None], influence[:, None] ** 2, *parts], 1)
    deviations = []
    for weights in _resamples(n, seed):
        sums = weights @ together
        mean, square, of_runs = sums[:, 0] / n, sums[:, 1] / n, sums[:, 2:].reshape(len(sums), len(parts), -1)
        spread = np.sqrt(np.maximum(square - mean**2, 0) / (n - 1))
        deviations.append(np.where(spread > 1e-9 * error, (statistic(of_runs).mean(1) - value) / spread, np.nan))
    studentised = np.concatenate(deviations)
    ends = np.nanquantile(studentised, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(max(ends[1] * error, 0.0)), float(max(-ends[0] * error, 0.0))


def _resamples(n: int, seed: int) -> Iterator[Float[np.ndarray, "size n"]]:
    """How often each text is in each resample, in parts. Those of moderate sample sizes are kept from one number to the next:
    a report has hundreds of intervals of the same texts, and drawing takes most of the time."""
    if n * RESAMPLES > KEPT:
        generator = np.random.default_rng(seed)
        for size in _chunks(n):
            yield _weights(generator, size, n)
        return
    drawn, start = _kept(n, seed), 0
    for size in _chunks(n):
        yield drawn[start : start + size].astype(np.float64)
        start += size


@lru_cache(maxsize=2)
def _kept(n: int, seed: int) -> UInt8[np.ndarray, "resamples n"]:
    generator, start = np.random.default_rng(seed), 0
    # a text is some ten times in a resample at most
    drawn = np.empty((RESAMPLES, n), np.uint8)
    for size in _chunks(n):
        drawn[start : start + size] = _weights(generator, size, n)
        start += size
    return drawn


def _weights(generator: np.random.Generator, size: int, n: int) -> Float[np.ndarray, "size n"]:
    """How often each text is in each resample."""
    drawn = generator.integers(0, n, (size, n))
    drawn += np.arange(size)[:, None] * n
    return np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n).astype(np.float64)


def _chunks(n: int) -> Iterable[int]:
    """How many resamples are drawn at a time; the draws do not depend on it. An even number, because BLAS adds up a row
    that is left over in another order than a pair."""
    left, at_once = RESAMPLES, max(2, AT_ONCE // n // 2 * 2)
    while left:
        yield min(left, at_once)
        left -= min(left, at_once)


def components(influence: Float[np.ndarray, "runs texts"]) -> tuple[float, float]:
    """What of the spread belongs to the texts and what to the runs, by the mean squares of a two-way layout.

    Returns:
        the factor for the reach of the interval over texts, 0 to 1, without the part that is each run's own (it is in the
        runs' spread already); and the standard error of the mean over runs, which is never taken for less than what each
        run's own part makes it.
    """
    runs, texts = influence.shape
    of_run, of_text = influence.mean(1), influence.mean(0)
    rest = influence - of_run[:, None] - of_text[None] + influence.mean()
    of_texts = runs * float(of_text.var(ddof=1))
    residual = float((rest**2).sum()) / ((runs - 1) * (texts - 1))
    kept = max(of_texts - residual, 0.0) / of_texts if of_texts > 0 else 0.0
    return float(np.sqrt(kept)), float(np.sqrt(max(of_run.var(ddof=1), residual / texts) / runs))
