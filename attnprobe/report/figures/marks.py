"""Distributions drawn directly: no library between the numbers and the ink, and honest about few examples."""

import numpy as np
from matplotlib.axes import Axes
from scipy import stats

FEWEST = 10
"""Below this many examples a density would be invention: the examples themselves are drawn."""
FEWEST_IN_BOX = 5
"""Below this many examples quartiles say nothing: a box is its median alone."""


def violin(axes: Axes, values: np.ndarray, at: float, height: float, colour: str) -> None:
    """One horizontal violin of `values` [examples] around the vertical position `at`, `height` tall at its widest.

    The body is a Gaussian density estimate (Scott's bandwidth) cut at the smallest and largest value, never beyond
    the data; the bar runs from the lower to the upper quartile, the dot is the median. Fewer than `FEWEST` examples,
    or all equal, are drawn as points. NaN values are left out.
    """
    values = values[~np.isnan(values)]
    if len(values) == 0:
        return
    if len(values) < FEWEST or np.ptp(values) < 1e-6:
        axes.plot(values, np.full(len(values), at), "o", ms=2.5, mew=0, alpha=0.6, color=colour, clip_on=False)
    else:
        x = np.linspace(values.min(), values.max(), 200)
        density = stats.gaussian_kde(values)(x)
        half = density / density.max() * height / 2
        axes.fill_between(x, at - half, at + half, color=colour, alpha=0.4, linewidth=0)
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    axes.plot([low, high], [at, at], "-", lw=2.2, color=colour, solid_capstyle="butt", clip_on=False)
    axes.plot([middle], [at], "o", ms=3, mfc="white", mec=colour, mew=0.9, clip_on=False, zorder=4)


def box(axes: Axes, values: np.ndarray, at: float, width: float, colour: str) -> None:
    """One vertical box of `values` [examples] at the horizontal position `at`: quartiles, median, and whiskers from the
    5th to the 95th percentile; fewer than `FEWEST_IN_BOX` are a median line alone. NaN values are left out."""
    values = values[~np.isnan(values)]
    if len(values) == 0:
        return
    bottom, low, middle, high, top = np.quantile(values, [0.05, 0.25, 0.5, 0.75, 0.95])
    left, right = at - width / 2, at + width / 2
    if len(values) < FEWEST_IN_BOX:
        axes.plot([left, right], [middle, middle], "-", lw=1.6, color=colour, solid_capstyle="butt", zorder=5)
        return
    axes.plot([at, at], [bottom, top], "-", lw=0.8, color=colour, zorder=3)
    axes.fill_between([left, right], [low, low], [high, high], facecolor="white", edgecolor=colour, lw=0.9, zorder=4)
    axes.plot([left, right], [middle, middle], "-", lw=1.6, color=colour, solid_capstyle="butt", zorder=5)
