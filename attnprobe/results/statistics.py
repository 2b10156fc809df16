"""Intervals of means."""

from collections.abc import Iterable

import numpy as np
from scipy import stats


def interval(values: Iterable[float], *, confidence: float = 0.95, seed: int = 0) -> tuple[float, float, float]:
    """Mean and its bootstrap interval over examples; NaN values are left out.

    Uses scipy's bias-corrected accelerated bootstrap (2,000 resamples), and its percentile bootstrap above 2,000
    values, where the correction vanishes and its jackknife would need values² numbers of memory.

    Raises:
        ValueError: an infinite value, which has no mean.

    Returns:
        (mean, low, high); all NaN where there is no value, and three times the mean where all values are equal (to
        twelve digits).
    """
    sample = np.asarray(list(values), np.float64)
    sample = sample[~np.isnan(sample)]
    if np.isinf(sample).any():
        raise ValueError(f"values hold {int(np.isinf(sample).sum())} infinite number(s): expected finite ones, or NaN")
    if len(sample) == 0:
        return (float("nan"),) * 3
    mean = float(sample.mean())
    if np.ptp(sample) <= 1e-12 * np.abs(sample).max():  # equal but for rounding, on which the correction has no hold
        return mean, mean, mean
    result = stats.bootstrap(
        (sample,),
        np.mean,
        n_resamples=2000,
        batch=max(1, 2_000_000 // len(sample)),
        confidence_level=confidence,
        method="BCa" if len(sample) <= 2000 else "percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return mean, float(result.low), float(result.high)
