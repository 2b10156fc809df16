"""Several decisions at once: p-values out of intervals, Holm's correction of them, and the rate of false discoveries."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy import stats


def p_value(value: float, low: float, high: float, against: float) -> float:
    """Two-sided p-value for "the truth is `against`", from a number and its 95 % interval (Altman & Bland 2011).

    It is 0.05 exactly where `against` is an end of the interval, whatever method made it; the two half-widths may differ.
    NaN where there is no interval.

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
    return float(2 * stats.norm.sf(abs(value - against) / half * stats.norm.ppf(0.975)))


def holm(p: Sequence[float]) -> list[float]:
    """p-values adjusted by Holm (1979), which keeps the chance of any false decision among them below the level of one;
    NaN stays NaN and does not count.

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


def discovered(p: Float[np.ndarray, " examples"], level: float = 0.05) -> Float[np.ndarray, " examples"]:
    """1 where an example is significant with the share of false discoveries among all of them held at `level`
    (Benjamini & Hochberg 1995), 0 where not, NaN where it is undefined."""
    known = ~np.isnan(p)
    result = np.full(len(p), np.nan)
    if known.any():
        result[known] = stats.false_discovery_control(p[known]) <= level
    return result
