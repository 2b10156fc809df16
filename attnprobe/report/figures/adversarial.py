"""How far attention can be moved at the same prediction: histograms, against the largest weight, along the tolerance."""

from itertools import pairwise

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from attnprobe.report.figures.grid import NOTE_SIZE, around, counted, from_zero, grid, title
from attnprobe.report.figures.marks import box, told_by_bin
from attnprobe.report.figures.notes import note
from attnprobe.report.figures.style import CLASS_COLOURS, FAINT, FOUND, INK, OPTIMUM
from attnprobe.report.wide import (
    MAX_ATTENTION_EDGES,
    Facet,
    facets,
    max_attention_bin,
    per_example,
    split_by_class,
    where,
)
from attnprobe.results.statistics import wilson

LN2 = float(np.log(2))
EDGES = np.linspace(0, 0.7, 41)
MOST_PANELS = 12
"""More panels than these, one for each class of each run, would not fit a page: each run is one panel then."""
METRICS = ("found_jsd", "optimum_jsd", "upper_bound", "is_exact", "max_attention", "predicted_class")
CALLED = {"found_jsd": "gradient adversary", "optimum_jsd": "optimum", "upper_bound": "certified upper bound"}
FAR = 0.4
"""Nats of JSD from which two attentions are called different, of at most ln 2 = 0.69: the bound above which Wiegreffe &
Pinter list their best adversaries. Attentions on different words altogether have ln 2."""


def adversarial_jsd(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """Histogram of the largest JSD from the model's attention among attentions that keep the prediction: found by the
    gradient adversary, exact (or a certified lower bound), and the certified upper bound where it is not exact.

    Jain & Wallace's figure 7, with the truth next to the search: 40 bins from 0 to 0.7 nats, ln 2 marked.
    """
    panels = facets(per_example(results, "adversarial", METRICS))
    figure, axes = grid(len(panels), panel_height=1.75)
    drawn = [_histogram(panel, facet) for panel, facet in zip(axes, panels, strict=True)]
    bounded = any(drawn)
    from_zero(axes)
    handles: list[Patch | Line2D] = [
        Patch(facecolor=FOUND, alpha=0.55, label="gradient adversary"),
        Line2D([], [], color=OPTIMUM, lw=1.2, label="farthest known" if bounded else "exact optimum"),
    ]
    if bounded:
        handles.append(Line2D([], [], color=INK, lw=0.8, ls=(0, (2, 1.5)), label="certified upper bound"))
    around(figure, x="largest JSD with the same prediction (nats)", y="share of examples", handles=handles)
    return figure


def _histogram(axes: Axes, facet: Facet) -> bool:
    rows = facet.rows
    heights = {}
    for metric in ("found_jsd", "optimum_jsd", "upper_bound"):
        values = rows[metric].dropna().to_numpy()
        counts, _ = np.histogram(np.clip(values, EDGES[0], EDGES[-1]), EDGES)
        heights[metric] = counts / max(1, len(values))
    axes.stairs(heights["found_jsd"], EDGES, fill=True, color=FOUND, alpha=0.55, linewidth=0)
    axes.stairs(heights["optimum_jsd"], EDGES, color=OPTIMUM, linewidth=1.2)
    bounded = bool((rows["is_exact"] == 0).any())
    if bounded:
        axes.stairs(heights["upper_bound"], EDGES, color=INK, linewidth=0.8, linestyle=(0, (2, 1.5)))
    told_by_bin(axes, EDGES, {CALLED[metric]: share for metric, share in heights.items()})
    axes.axvline(LN2, lw=0.6, color=FAINT, zorder=0)
    exact = [f"{100 * (rows['is_exact'] == 1).mean():.0f} % exact"] if bounded else []
    axes.set_xlim(0, 0.7)
    # below the axis, where no histogram can run into it
    axes.set_xticks([0, 0.2, 0.4, 0.6, LN2], ["0", "0.2", "0.4", "0.6", "ln 2"])
    title(axes, counted(facet.title, len(rows), *exact))
    return bounded


def adversarial_by_attention(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """The largest JSD against the largest attention weight, per predicted class (all classes in one panel where there
    would be too many): every example a point, and a box per bin of the weight (quartiles and median; whiskers from the
    5th to the 95th percentile).

    Jain & Wallace's figure 8, with what the gradient adversary found (left boxes) beside the optimum (right ones).
    """
    together = facets(per_example(results, "adversarial", METRICS))
    panels = [
        (f"{facet.title} · {name}", rows)
        for facet in together
        for name, rows in split_by_class(facet.rows, len(CLASS_COLOURS))
    ]
    if len(panels) > MOST_PANELS:
        panels = [(facet.title, facet.rows) for facet in together]
    figure, axes = grid(len(panels), panel_height=1.9)
    for panel, (name, rows) in zip(axes, panels, strict=True):
        _against_attention(panel, rows)
        title(panel, name)
    exact = not (results.loc[results["metric"] == "is_exact", "value"] == 0).any()
    handles = [
        Patch(facecolor="white", edgecolor=FOUND, label="gradient adversary"),
        Patch(facecolor="white", edgecolor=OPTIMUM, label="exact optimum" if exact else "farthest known"),
    ]
    around(figure, x="largest attention weight", y="largest JSD (nats)", handles=handles)
    return figure


def _against_attention(axes: Axes, rows: pd.DataFrame) -> None:
    weight = rows["max_attention"].to_numpy()
    bins = max_attention_bin(weight)
    faint = float(np.clip(200 / max(1, len(rows)), 0.2, 0.6))
    for metric, colour, side in (("found_jsd", FOUND, -1), ("optimum_jsd", OPTIMUM, 1)):
        values = rows[metric].to_numpy()
        # thousands of points as pixels: the file stays small, all else stays vector
        axes.plot(
            weight, values, ".", ms=2.5, mew=0, alpha=faint, color=colour, rasterized=True, zorder=1, clip_on=False
        )
        for b, (low, high) in enumerate(pairwise(MAX_ATTENTION_EDGES)):
            box(axes, values[bins == b], (low + high) / 2 + side * 0.035, 0.05, colour, f"{CALLED[metric]}: ")
    for b, low in enumerate(MAX_ATTENTION_EDGES[:-1]):
        axes.annotate(
            f"n = {np.count_nonzero(bins == b):,}",
            (low + 0.125, 0.765),
            ha="center",
            va="top",
            fontsize=NOTE_SIZE,
            color=FAINT,
        )
    axes.axhline(LN2, lw=0.6, color=FAINT, zorder=0)
    for edge in MAX_ATTENTION_EDGES[1:-1]:
        axes.axvline(edge, lw=0.4, color="#DDDDDD", zorder=0)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 0.77)
    axes.set_xticks(MAX_ATTENTION_EDGES, ["0", ".25", ".5", ".75", "1"])
    axes.set_yticks([0, 0.2, 0.4, 0.6, LN2], ["0", "0.2", "0.4", "0.6", "ln 2"])


def exclusivity_by_epsilon(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """Share of the texts for which no attention farther than a JSD of 0.2, 0.4 (the claim's) or 0.6 nats keeps the
    prediction, along the tolerance ε, with Wilson's 95 % intervals: how much of the answer is the choice of either number."""
    own = (results["probe"] == "adversarial") & (results["metric"] == "optimum_jsd_within")
    panels = facets(where(results, own.to_numpy()))
    figure, axes = grid(len(panels), panel_height=1.75)
    colours = dict(zip((0.2, FAR, 0.6), CLASS_COLOURS, strict=False))
    for panel, facet in zip(axes, panels, strict=True):
        for bound, colour in colours.items():
            table = shares_along(facet.rows, bound)
            panel.fill_between(table["epsilon"], table["low"], table["high"], color=colour, alpha=0.2, lw=0)
            panel.plot(table["epsilon"], table["share"], "o-", ms=2.5, lw=1, color=colour)
            for epsilon, share, low, high in table[["epsilon", "share", "low", "high"]].to_numpy():
                note(panel, epsilon, share, f"ε = {epsilon:g}: {share:.1%} [{low:.1%}, {high:.1%}]")
        panel.axhline(0.5, lw=0.6, color=FAINT, zorder=0)
        title(panel, counted(facet.title, len(np.unique(facet.rows["example_id"].to_numpy()))))
    axes[0].set_ylim(0, 1)
    handles = [
        Line2D([], [], color=colour, marker="o", ms=3, label=f"{bound:g} nats") for bound, colour in colours.items()
    ]
    around(
        figure, x="tolerance ε (TVD of the prediction)", y="share without a far attention", handles=handles,
        heading="farther than",
    )  # fmt: skip
    return figure


def over_runs(text: Int[np.ndarray, " rows"], near: Bool[np.ndarray, " rows"]) -> Float[np.ndarray, " texts"]:
    """Each text's mean, without pandas' hash tables, which take twice the memory of what they group."""
    if (np.diff(text) > 0).all():
        return near.astype(np.float64)
    _, place = np.unique(text, return_inverse=True)
    return np.bincount(place, near) / np.bincount(place)


def shares_along(rows: pd.DataFrame, bound: float) -> pd.DataFrame:
    """`epsilon share low high`: of the texts whose farthest attention within that tolerance is no farther than the bound;
    several seeds of a text count as their mean."""
    lines = []
    step, text, value = (rows[name].to_numpy() for name in ("step", "example_id", "value"))
    for epsilon in np.unique(step):
        own = step == epsilon
        near = over_runs(text[own], value[own] <= bound)
        share, low, high = wilson(float(near.sum()), len(near))
        lines.append({"epsilon": float(epsilon), "share": share, "low": low, "high": high})
    return pd.DataFrame(lines)
