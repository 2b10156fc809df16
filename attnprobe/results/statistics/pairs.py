"""Numbers that belong to two runs each, such as the distance of two seeds' attention: every run is a base in turn."""

import numpy as np
from jaxtyping import Float
from scipy import stats

from attnprobe.results.statistics.resampling import Interval, Statistic, mean_of_parts, resampled_runs


def over_pairs(
    parts: Float[np.ndarray, "runs runs texts parts"],
    statistic: Statistic = mean_of_parts,
    *,
    low: float = -np.inf,
    high: float = np.inf,
    confidence: float = 0.95,
    seed: int = 0,
) -> Interval:
    """The number of all ordered pairs of different runs together, with an interval over texts and runs.

    The runs' part is the jackknife's over runs (each is left out with all its pairs) with Student's quantile: a base is in
    many pairs, and its luck must not count as many observations. The texts' part is the bootstrap's over texts of the
    pairs' mean summands.

    Args:
        parts: the summands of every text for each base and each other run; the diagonal is not used.
        statistic: makes the number of their sums.

    Returns:
        (number, low, high); with two runs there is no interval, for one pair does not say how others would differ.
    """
    runs = len(parts)
    different = ~np.eye(runs, dtype=bool)
    value, lower, upper = resampled_runs(
        parts[different].mean(0)[None], statistic, low=low, high=high, confidence=confidence, seed=seed
    )
    if runs < 3:
        return value, np.nan, np.nan
    without = []
    for run in range(runs):
        kept = different & (np.arange(runs) != run) & (np.arange(runs) != run)[:, None]
        without.append(statistic(parts[kept].mean(0).sum(0)))
    own = runs * value - (runs - 1) * np.asarray(without, np.float64)
    half = float(stats.t.ppf((1 + confidence) / 2, runs - 1)) * float(own.std(ddof=1)) / np.sqrt(runs)
    below, above = (0.0 if np.isnan(end) else abs(value - end) for end in (lower, upper))
    return value, max(low, value - float(np.hypot(below, half))), min(high, value + float(np.hypot(above, half)))
