"""Distributions drawn directly: no library between the numbers and the ink, and honest about few examples."""

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from scipy import stats

from attnprobe.report.figures.notes import note

FEWEST = 10
"""Below this many examples a density would be invention: the examples themselves are drawn."""
FEWEST_IN_BOX = 5
"""Below this many examples quartiles say nothing: a box is its median alone."""


def violin(axes: Axes, values: np.ndarray, at: float, height: float, colour: str, name: str = "") -> None:
    """One horizontal violin of `values` [examples] around the vertical position `at`, `height` tall at its widest.

    The body is a Gaussian density estimate (Scott's bandwidth) cut at the smallest and largest value, never beyond
    the data; the bar runs from the lower to the upper quartile, the dot is the median. Fewer than `FEWEST` examples,
    or all equal, are drawn as points. NaN values are left out. `name` is what it is called when it is pointed at.
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
    words = f"{name}median {middle:.3g}, quartiles {low:.3g} to {high:.3g}, n = {len(values):,}"
    note(axes, (low + high) / 2, at, words, width=high - low, height=height)


def box(axes: Axes, values: np.ndarray, at: float, width: float, colour: str, name: str = "") -> None:
    """One vertical box of `values` [examples] at the horizontal position `at`: quartiles, median, and whiskers from the
    5th to the 95th percentile; fewer than `FEWEST_IN_BOX` are a median line alone. NaN values are left out. `name` is what it
    is called when it is pointed at."""
    values = values[~np.isnan(values)]
    if len(values) == 0:
        return
    bottom, low, middle, high, top = np.quantile(values, [0.05, 0.25, 0.5, 0.75, 0.95])
    left, right = at - width / 2, at + width / 2
    words = f"{name}median {middle:.3g}, quartiles {low:.3g} to {high:.3g}, 5th to 95th percentile {bottom:.3g} to {top:.3g}"
    note(axes, at, (low + high) / 2, f"{words}, n = {len(values):,}", width=width, height=high - low)
    if len(values) < FEWEST_IN_BOX:
        axes.plot([left, right], [middle, middle], "-", lw=1.6, color=colour, solid_capstyle="butt", zorder=5)
        return
    axes.plot([at, at], [bottom, top], "-", lw=0.8, color=colour, zorder=3)
    axes.fill_between([left, right], [low, low], [high, high], facecolor="white", edgecolor=colour, lw=0.9, zorder=4)
    axes.plot([left, right], [middle, middle], "-", lw=1.6, color=colour, solid_capstyle="butt", zorder=5)


def told_by_bin(panel: Axes, edges: np.ndarray, shares: Mapping[str, np.ndarray], top: float | None = None) -> None:
    """Let every bin of some distributions over the same `edges` `[bins + 1]` say the share of each that has any there; `top`
    is how high they are drawn, where they are not drawn as bars of these heights."""
    if top is None:
        top = max((float(share.max()) for share in shares.values()), default=0.0)
    for number, (low, high) in enumerate(pairwise(edges)):
        told = [f"{name} {share[number]:.1%}" for name, share in shares.items() if share[number]]
        if told:
            words = f"{low:.3g} to {high:.3g}: {', '.join(told)}"
            note(panel, (low + high) / 2, top / 2, words, width=high - low, height=top)
