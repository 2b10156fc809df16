"""Intervals of shares, and of the difference of two shares of the same texts."""

import numpy as np
from scipy import optimize, stats


def wilson(count: float, n: int, *, confidence: float = 0.95) -> tuple[float, float, float]:
    """Share with Wilson's score interval, which knows that ten of ten is not everything; NaN where n is 0.

    >>> tuple(round(one, 3) for one in wilson(10, 10))
    (1.0, 0.722, 1.0)
    """
    return _share(count, n, confidence, "wilson")


def clopper_pearson(count: float, n: int, *, confidence: float = 0.95) -> tuple[float, float, float]:
    """Share with its exact interval, which holds the truth at least as often as it says; NaN where n is 0.

    >>> tuple(round(one, 3) for one in clopper_pearson(0, 60))
    (0.0, 0.0, 0.06)
    """
    return _share(count, n, confidence, "exact")


def _share(count: float, n: int, confidence: float, method: str) -> tuple[float, float, float]:
    if n == 0:
        return np.nan, np.nan, np.nan
    interval = stats.binomtest(round(count), n).proportion_ci(confidence, method)
    return float(count / n), float(interval.low), float(interval.high)


def paired_difference(more: int, less: int, n: int, *, confidence: float = 0.95) -> tuple[float, float, float]:
    """Difference of two shares of the same n texts, with Tango's (1998) score interval.

    Args:
        more: texts of which the first is true and the second is not.
        less: the other way round.
        n: all texts, those on which both agree included.

    Returns:
        ((more − less) / n, low, high), −1 to 1; NaN where n is 0.

    >>> tuple(round(one, 4) for one in paired_difference(0, 0, 44))  # Tango 1998, table V
    (0.0, -0.0803, 0.0803)
    >>> tuple(round(one, 3) for one in paired_difference(9, 3, 80))
    (0.075, -0.011, 0.17)
    """
    if n == 0:
        return np.nan, np.nan, np.nan
    estimate, limit = (more - less) / n, float(stats.norm.ppf((1 + confidence) / 2))

    def excess(difference: float, side: int) -> float:
        return side * _score(difference, more, less, n) - limit

    # the score falls from +∞ to −∞ between the ends of what a difference can be
    low = -1.0 if more == 0 and less == n else float(optimize.brentq(excess, -1 + 1e-12, estimate, (1,)))
    high = 1.0 if less == 0 and more == n else float(optimize.brentq(excess, estimate, 1 - 1e-12, (-1,)))
    return estimate, low, high


def _score(difference: float, more: int, less: int, n: int) -> float:
    """Tango's score statistic of this difference."""
    b = -more - less + (2 * n - more + less) * difference
    c = -less * difference * (1 - difference)
    discordant = (np.sqrt(max(b * b - 8 * n * c, 0.0)) - b) / (4 * n)
    variance = n * (2 * discordant + difference * (1 - difference))
    gap = more - less - n * difference
    if variance <= 0:
        return 0.0 if gap == 0 else float(np.sign(gap)) * np.inf
    return float(gap / np.sqrt(variance))
