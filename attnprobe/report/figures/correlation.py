"""Kendall's τ of two importances per class: histograms and densities (Jain & Wallace 2019, figures 2 and 3)."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy import stats

from attnprobe.report.figures.grid import around, class_handles, counted, from_zero, grid, title
from attnprobe.report.figures.marks import FEWEST, told_by_bin
from attnprobe.report.figures.style import CLASS_COLOURS, FAINT, INK
from attnprobe.report.importances import facts_of
from attnprobe.report.wide import Facet, facets, per_example, split_by_class

PROBE = "correlation"
EDGES = np.linspace(-1, 1, 41)
Pair = tuple[str, str]
PUBLISHED: dict[Pair, str] = {
    ("attention", "gradient"): "tau_attention_gradient",
    ("attention", "leave_one_out"): "tau_attention_loo",
    ("gradient", "leave_one_out"): "tau_gradient_loo",
}
"""Pair → what its published numbers begin with."""


def words_of(pair: Pair, results: pd.DataFrame) -> tuple[str, str]:
    """The titles of a pair's measures."""
    first, second = (facts_of(name, results, PROBE).title for name in pair)
    return first, second


def histogram(pair: Pair, results: pd.DataFrame) -> Figure:
    """Histogram of Kendall's τ per predicted class, one panel per data set and model; 40 bins from −1 to 1, a dashed line
    at the mean. More than three classes are drawn in rows above each other, all to one scale.

    Jain & Wallace's figures 2 and 3.
    """
    metric = f"tau_{'_'.join(pair)}"
    panels = facets(per_example(results, "correlation", (metric, "predicted_class")))
    split = [split_by_class(facet.rows, len(CLASS_COLOURS)) for facet in panels]
    names = longest(split)
    shares = [[heights(rows[metric].dropna().to_numpy()) for _, rows in groups] for groups in split]
    step = row_height(max(share.max() for group in shares for share in group), len(names))
    figure, axes = grid(len(panels), panel_height=panel_height(len(names)))
    for panel, facet, groups, group_shares in zip(axes, panels, split, shares, strict=True):
        for place, ((_, rows), share, colour) in enumerate(zip(groups, group_shares, CLASS_COLOURS, strict=False)):
            base = step * (len(groups) - 1 - place)
            panel.stairs(base + share, EDGES, baseline=base, fill=True, color=colour, alpha=0.35, linewidth=0)
            panel.stairs(base + share, EDGES, baseline=base, color=colour, linewidth=0.9)
            if rows[metric].notna().any():
                mean, top = float(rows[metric].mean()), step or max(one.max() for one in group_shares)
                panel.plot([mean, mean], [base, base + top], color=colour, lw=0.8, ls=(0, (3, 2)))
        told_by_bin(panel, EDGES, {name: share for (name, _), share in zip(groups, group_shares, strict=False)})
        _frame(panel, facet, facet.rows[metric])
        if step:
            without_scale(panel)
    from_zero(axes)
    words = f"Kendall's τ of {' and '.join(words_of(pair, results))}"
    around(figure, x=words, y="share of the class", handles=class_handles(names), heading="predicted")
    return figure


OVERLAID = 3
"""The most classes that can be told apart on top of each other; more are drawn in rows."""


def longest(split: Sequence[Sequence[tuple[str, pd.DataFrame]]]) -> list[str]:
    """The names of the groups of the panel that has the most."""
    return max(([name for name, _ in groups] for groups in split), key=len)


def heights(values: np.ndarray) -> np.ndarray:
    """Share of the values `[examples]` in each bin; all 0 where there are none."""
    return np.histogram(values, EDGES)[0] / max(1, len(values))


def row_height(top: float, groups: int) -> float:
    """How far apart the rows of that many groups begin, when the tallest reaches `top`; 0 where they share one row."""
    return 1.1 * float(top) if groups > OVERLAID else 0.0


def panel_height(groups: int) -> float:
    """Inches of a panel with that many groups."""
    return 1.75 if groups <= OVERLAID else 0.7 + 0.33 * groups


def without_scale(panel: Axes) -> None:
    """Rows above each other have a scale each: the axis has none."""
    panel.set_yticks([])
    panel.spines["left"].set_visible(False)


def shuffled(pair: Pair) -> str | None:
    """The metric of the same pair with a shuffled attention, where the attention is in it."""
    return f"tau_shuffled_{pair[1]}" if pair[0] == "attention" else None


def densities(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """Density of Kendall's τ per predicted class for each pair of measures, beside that of a shuffled attention.

    Gaussian kernel estimates (Scott's bandwidth), cut at the smallest and largest value. More than three classes are drawn in
    rows above each other, all to one scale. The shuffled attention (grey) is compared with the measure that the attention
    is: what an order without meaning gets.
    """
    pairs = list(PUBLISHED)
    metrics = [f"tau_{'_'.join(pair)}" for pair in pairs] + [floor for pair in pairs if (floor := shuffled(pair))]
    panels = facets(per_example(results, PROBE, (*metrics, "predicted_class")))
    split = [split_by_class(facet.rows, len(CLASS_COLOURS)) for facet in panels]
    names = longest(split)
    drawn = [(facet, groups, pair) for facet, groups in zip(panels, split, strict=True) for pair in pairs]
    samples = [_samples(groups, facet, pair) for facet, groups, pair in drawn]
    curves = [[(*_estimate(values), colour) for _, values, colour in own] for own in samples]
    step = row_height(max(float(y.max()) for panel in curves for _, y, _ in panel), len(names))
    figure, axes = grid(len(drawn), panel_height=panel_height(len(names) + 1))
    for panel, (facet, _, pair), own, told in zip(axes, drawn, curves, samples, strict=True):
        for place, (x, y, colour) in enumerate(own):
            # the lowest row is the shuffled attention's, also where a pair has none
            row = len(own) - 1 - place + (shuffled(pair) is None)
            _density(panel, x, y, step * row, colour)
        heading = f"{', '.join(words_of(pair, results))} · {facet.title}"
        _frame(panel, Facet(heading, facet.rows), facet.rows[f"tau_{'_'.join(pair)}"])
        without_scale(panel)
        top = step * len(names) + max(float(y.max()) for _, y, _ in own)
        told_by_bin(panel, EDGES, {name: heights(values) for name, values, _ in told}, top)
    from_zero(axes)
    floor_handle = Line2D([], [], color=FAINT, lw=0.9, ls=(0, (3, 1.5)), label="shuffled attention")
    handles = [*class_handles(names), floor_handle]
    around(figure, x="Kendall's τ", y="density", handles=handles, heading="predicted" if len(names) > 1 else None)
    return figure


def _samples(groups: Sequence[tuple[str, pd.DataFrame]], facet: Facet, pair: Pair) -> list[tuple[str, np.ndarray, str]]:
    """(name, τ, colour) of every class of a panel, and of the shuffled attention where the pair has one."""
    metric, floor = f"tau_{'_'.join(pair)}", shuffled(pair)
    samples = [(name, rows[metric], colour) for (name, rows), colour in zip(groups, CLASS_COLOURS, strict=False)]
    if floor is not None:
        samples.append(("shuffled attention", facet.rows[floor], FAINT))
    return [(name, column.dropna().to_numpy(), colour) for name, column, colour in samples]


def _estimate(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(x, density); few values, or equal ones, are points without a density."""
    if len(values) < FEWEST or np.ptp(values) < 1e-6:
        return values, np.zeros(1)
    x = np.linspace(values.min(), values.max(), 200)
    return x, stats.gaussian_kde(values)(x)


def _density(axes: Axes, x: np.ndarray, density: np.ndarray, base: float, colour: str) -> None:
    if len(density) != len(x) or not density.any():
        axes.plot(x, np.full(len(x), base), "|", ms=5, color=colour, clip_on=False)
        return
    if colour != FAINT:
        axes.fill_between(x, base, base + density, color=colour, alpha=0.3, linewidth=0)
    axes.plot(x, base + density, color=colour, lw=0.9, ls="-" if colour != FAINT else (0, (3, 1.5)))


def _frame(axes: Axes, facet: Facet, values: "pd.Series[float]") -> None:
    undefined = int(values.isna().sum())
    axes.axvline(0, lw=0.5, color=INK, zorder=0)
    axes.set_xlim(-1, 1)
    axes.set_xticks([-1, -0.5, 0, 0.5, 1], ["−1", "−.5", "0", ".5", "1"])
    more = [f"{undefined:,} undefined"] if undefined else []
    title(axes, counted(facet.title, int(values.notna().sum()), *more))


def gradient_histogram(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """τ between attention and gradient: see `histogram`."""
    return histogram(("attention", "gradient"), results)


def leave_one_out_histogram(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """τ between attention and leave-one-out: see `histogram`."""
    return histogram(("attention", "leave_one_out"), results)
