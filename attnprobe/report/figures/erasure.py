"""Rankings compared: what each removes, how far each is from the optimum, and which of two needs fewer items."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from attnprobe.report.figures.grid import NOTE_SIZE, around, counted, grid, title
from attnprobe.report.figures.marks import box
from attnprobe.report.figures.notes import note
from attnprobe.report.figures.style import FAINT, INK
from attnprobe.report.rankings import PROBE, look, paired, shown
from attnprobe.report.wide import ByMetric, Facet, facets, per_example

NARROW = 1.5 * 72
"""Points above a panel that has the rankings' names beside it."""


def boxes(results: pd.DataFrame | ByMetric, examples: pd.DataFrame | None) -> Figure:
    """Share of the items erased until the decision flips, by ranking: left boxes over the examples that this ranking
    flips (the paper's), right boxes over those that all rankings but the control (lowest attention) flip. Quartiles,
    median, whiskers from the 5th to the 95th percentile; below, how many examples each left box has.

    Serrano & Smith's figures 5 and 6.
    """
    names = shown(results)
    panels = facets(per_example(results, PROBE, [f"removed_fraction_{name}" for name in names]))
    figure, axes = grid(len(panels), panel_height=2.2, columns=2)
    for panel, facet in zip(axes, panels, strict=True):
        _boxes(panel, facet, names, [look(results, name) for name in names])
    handles = [
        Patch(facecolor="white", edgecolor=INK, label="examples that this ranking flips"),
        Patch(facecolor="white", edgecolor=FAINT, label="examples that all of them flip"),
    ]
    around(figure, y="share of items erased at the flip", handles=handles)
    return figure


def _boxes(axes: Axes, facet: Facet, names: list[str], looks: list[tuple[str, str]]) -> None:
    columns = {name: facet.rows[f"removed_fraction_{name}"].to_numpy() for name in names}
    common = ~np.logical_or.reduce([np.isnan(columns[name]) for name in names if name != "ascending"])
    for at, name in enumerate(names):
        values = columns[name]
        box(axes, values, at - 0.18, 0.3, looks[at][1], f"{looks[at][0]}, where it flips: ")
        box(axes, values[common], at + 0.18, 0.3, FAINT, f"{looks[at][0]}, where all flip: ")
        count = np.count_nonzero(~np.isnan(values))
        axes.annotate(f"{count:,}", (at, -0.055), ha="center", va="center", fontsize=NOTE_SIZE, color=FAINT)
    axes.set_ylim(-0.1, 1.02)
    axes.set_xlim(-0.6, len(names) - 0.4)
    axes.set_xticks(range(len(names)), [words for words, _ in looks], rotation=35, ha="right")
    title(axes, f"{facet.title} · all: n = {np.count_nonzero(common):,}")


def regret(results: pd.DataFrame | ByMetric, examples: pd.DataFrame | None) -> Figure:
    """Share of the examples that can flip which a ranking flips with at most x items more than the smallest set."""
    names = shown(results, "regret")
    metrics = ["never_flips", *(f"regret_{name}" for name in names)]
    panels = facets(per_example(results, PROBE, metrics))
    figure, axes = grid(len(panels), panel_height=1.9)
    columns = [facet.rows[metric].to_numpy() for facet in panels for metric in metrics[1:]]
    most = max((int(np.max(values[~np.isnan(values)], initial=3)) for values in columns), default=3)
    x = np.arange(most + 1)
    ticks = [tick for tick in (0, 1, 3, 10, 30, 100, 300, 1000) if tick <= most]
    for panel, facet in zip(axes, panels, strict=True):
        can_flip = (facet.rows["never_flips"] == 0).to_numpy()
        count = int(can_flip.sum())
        for name in names:
            known = np.sort(facet.rows[f"regret_{name}"][can_flip].dropna().to_numpy())
            share = np.searchsorted(known, x, side="right") / max(1, count)
            words, colour = look(results, name)
            panel.step(x + 1, share, where="post", color=colour, lw=1.0)
            for more in ticks:
                note(panel, more + 1, share[more], f"{words}, at most {more} more: {share[more]:.1%}")
        panel.set_xscale("log")
        panel.set_xticks([tick + 1 for tick in ticks], [str(tick) for tick in ticks])
        panel.set_xticks([], minor=True)
        panel.set_ylim(0, 1.02)
        title(panel, counted(facet.title, count))
    handles = [Line2D([], [], color=look(results, name)[1], label=look(results, name)[0]) for name in names]
    around(figure, x="items more than the smallest flipping set", y="share of examples", handles=handles)
    return figure


def pairs(results: pd.DataFrame | ByMetric, examples: pd.DataFrame | None) -> Figure:
    """In how many percent of the examples the row's ranking flips the decision with fewer items than the column's."""
    names = shown(results, "removed_count")
    table = paired(results)
    panels = list(table.groupby("panel", sort=False))
    figure, axes = grid(len(panels), panel_height=2.3, columns=2)
    for panel, (name, rows) in zip(axes, panels, strict=True):
        cells = (
            rows.pivot(index="first", columns="second", values="fewer").reindex(index=names, columns=names).to_numpy()
        )
        words = [look(results, name)[0] for name in names]
        panel.imshow(np.ma.masked_invalid(cells), cmap="Blues", vmin=0, vmax=1.3, aspect="auto")
        for (y, x), share in np.ndenumerate(cells):
            if not np.isnan(share):
                panel.annotate(f"{100 * share:.0f}", (x, y), ha="center", va="center", fontsize=6)
                note(panel, x, y, f"{words[y]} needs fewer than {words[x]}: {share:.1%}", width=1, height=1)
        panel.set_xticks(range(len(names)), words, rotation=35, ha="right")
        panel.set_yticks(range(len(names)), words)
        panel.tick_params(length=0)
        title(panel, counted(str(name), int(rows["n"].iloc[0])), NARROW)
    around(figure, x="… than this one", y="this ranking needs fewer items …")
    return figure
