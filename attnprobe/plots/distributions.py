"""Kendall's τ of two importances per class: histograms and densities (Jain & Wallace 2019, figures 2 and 3)."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy import stats

from attnprobe.evidence.reading import facts_of
from attnprobe.plots.grid import around, class_handles, counted, from_zero, grid, title
from attnprobe.plots.style import CLASS_COLOURS, FAINT, FEWEST, INK
from attnprobe.results.pivot import Facet, facets, per_example, split_by_class

PROBE = "correlation"
EDGES = np.linspace(-1, 1, 41)
OVERLAID = 3
"""The most classes that can be told apart on top of each other; more are drawn in rows above each other."""
Pair = tuple[str, str]
PUBLISHED: dict[Pair, str] = {
    ("attention", "gradient"): "tau_attention_gradient",
    ("attention", "leave_one_out"): "tau_attention_loo",
    ("gradient", "leave_one_out"): "tau_gradient_loo",
}
"""Pair → what its published numbers begin with."""


def histogram(pair: Pair, results: pd.DataFrame) -> Figure:
    """Histogram of Kendall's τ per predicted class, one panel per data set and model; 40 bins from −1 to 1, a dashed line
    at the mean. More than three classes are drawn in rows above each other, all to one scale.

    Jain & Wallace's figures 2 and 3.
    """
    metric = f"tau_{'_'.join(pair)}"
    panels = facets(per_example(results, PROBE, (metric, "predicted_class")))
    split = [split_by_class(facet.rows, len(CLASS_COLOURS)) for facet in panels]
    names = max(([name for name, _ in groups] for groups in split), key=len)
    values = [[rows[metric].dropna().to_numpy() for _, rows in groups] for groups in split]
    shares = [[np.histogram(tau, EDGES)[0] / max(1, len(tau)) for tau in of_panel] for of_panel in values]
    step, height = _rows(max(share.max() for of_panel in shares for share in of_panel), len(names))
    figure, axes = grid(len(panels), panel_height=height)
    for panel, facet, of_panel, own in zip(axes, panels, values, shares, strict=True):
        for place, (tau, share, colour) in enumerate(zip(of_panel, own, CLASS_COLOURS, strict=False)):
            base = step * (len(own) - 1 - place)
            panel.stairs(base + share, EDGES, baseline=base, fill=True, color=colour, alpha=0.35, linewidth=0)
            panel.stairs(base + share, EDGES, baseline=base, color=colour, linewidth=0.9)
            if len(tau):
                top = step or max(one.max() for one in own)
                panel.plot([tau.mean()] * 2, [base, base + top], color=colour, lw=0.8, ls=(0, (3, 2)))
        _frame(panel, facet.title, facet.rows[metric], scale=not step)
    from_zero(axes)
    words = " and ".join(_titles(pair, results))
    around(
        figure, x=f"Kendall's τ of {words}", y="share of the class", handles=class_handles(names), heading="predicted"
    )
    return figure


def densities(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """Density of Kendall's τ per predicted class for each pair of measures, beside that of a shuffled attention.

    Gaussian kernel estimates (Scott's bandwidth), cut at the smallest and largest value. More than three classes are drawn in
    rows above each other, all to one scale. The shuffled attention (grey) is compared with the measure that the attention
    is: what an order without meaning gets.
    """
    floors = {pair: f"tau_shuffled_{pair[1]}" for pair in PUBLISHED if pair[0] == "attention"}
    metrics = [f"tau_{'_'.join(pair)}" for pair in PUBLISHED]
    panels = facets(per_example(results, PROBE, (*metrics, *floors.values(), "predicted_class")))
    drawn: list[tuple[Facet, Pair, list[tuple[np.ndarray, np.ndarray, str]]]] = []
    names: list[str] = []
    for facet in panels:
        groups = split_by_class(facet.rows, len(CLASS_COLOURS))
        names = max(names, [name for name, _ in groups], key=len)
        for pair, metric in zip(PUBLISHED, metrics, strict=True):
            samples = [(rows[metric], colour) for (_, rows), colour in zip(groups, CLASS_COLOURS, strict=False)]
            samples += [(facet.rows[floors[pair]], FAINT)] if pair in floors else []
            curves = [(*_estimate(tau.dropna().to_numpy()), colour) for tau, colour in samples]
            drawn.append((facet, pair, curves))
    step, _ = _rows(max(float(y.max()) for _, _, curves in drawn for _, y, _ in curves), len(names))
    figure, axes = grid(len(drawn), panel_height=_rows(0, len(names) + 1)[1])
    for panel, (facet, pair, curves) in zip(axes, drawn, strict=True):
        for place, (x, y, colour) in enumerate(curves):
            # the lowest row is the shuffled attention's, also where a pair has none
            base, faint = step * (len(curves) - 1 - place + (pair not in floors)), colour == FAINT
            if len(y) != len(x) or not y.any():
                panel.plot(x, np.full(len(x), base), "|", ms=5, color=colour, clip_on=False)
                continue
            if not faint:
                panel.fill_between(x, base, base + y, color=colour, alpha=0.3, linewidth=0)
            panel.plot(x, base + y, color=colour, lw=0.9, ls=(0, (3, 1.5)) if faint else "-")
        heading = f"{', '.join(_titles(pair, results))} · {facet.title}"
        _frame(panel, heading, facet.rows[f"tau_{'_'.join(pair)}"], scale=False)
    from_zero(axes)
    floor_handle = Line2D([], [], color=FAINT, lw=0.9, ls=(0, (3, 1.5)), label="shuffled attention")
    handles = [*class_handles(names), floor_handle]
    around(figure, x="Kendall's τ", y="density", handles=handles, heading="predicted" if len(names) > 1 else None)
    return figure


def _titles(pair: Pair, results: pd.DataFrame) -> list[str]:
    return [facts_of(name, results, PROBE).title for name in pair]


def _rows(top: float, groups: int) -> tuple[float, float]:
    """How far apart the rows of that many groups begin, when the tallest reaches `top` (0 where they share one row), and
    the inches of a panel with them."""
    return (0.0, 1.75) if groups <= OVERLAID else (1.1 * float(top), 0.7 + 0.33 * groups)


def _estimate(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(x, density); few values, or equal ones, are points without a density."""
    if len(values) < FEWEST or np.ptp(values) < 1e-6:
        return values, np.zeros(1)
    x = np.linspace(values.min(), values.max(), 200)
    return x, stats.gaussian_kde(values)(x)


def _frame(axes: Axes, heading: str, values: "pd.Series[float]", *, scale: bool) -> None:
    """The axis of τ and the title; without `scale`, rows above each other that have a scale each."""
    if not scale:
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
    undefined = int(values.isna().sum())
    axes.axvline(0, lw=0.5, color=INK, zorder=0)
    axes.set_xlim(-1, 1)
    axes.set_xticks([-1, -0.5, 0, 0.5, 1], ["−1", "−.5", "0", ".5", "1"])
    more = [f"{undefined:,} undefined"] if undefined else []
    title(axes, counted(heading, int(values.notna().sum()), *more))


def gradient_histogram(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """τ between attention and gradient: see `histogram`."""
    return histogram(("attention", "gradient"), results)


def leave_one_out_histogram(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """τ between attention and leave-one-out: see `histogram`."""
    return histogram(("attention", "leave_one_out"), results)
