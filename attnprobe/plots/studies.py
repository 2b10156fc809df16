"""The figures of studies: numbers in, figure out."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke

from attnprobe.evidence.evidence import Evidence
from attnprobe.plots.grid import NOTE_SIZE, around
from attnprobe.plots.grid import title as panel_title
from attnprobe.plots.style import CLASS_COLOURS, FAINT, FOUND, INK, OPTIMUM, TEXT_WIDTH, new_figure, violin
from attnprobe.results.pivot import MAX_ATTENTION_BINS, max_attention_bin, split_by_class

LN2 = float(np.log(2))
SEEDS = CLASS_COLOURS[2]


def performances(groups: Mapping[str, "pd.Series[float]"], marks: Mapping[str, float], title: str) -> Figure:
    """A row per group: a dot per seed, the mean with Student's interval, a cross for the published number."""
    figure = new_figure(TEXT_WIDTH * 0.75, 0.8 + 0.34 * len(groups))
    axes = figure.subplots()
    for at, (name, values) in enumerate(groups.items()):
        sample = values.to_numpy()
        axes.plot(sample, np.full(len(sample), at + 0.14), "o", ms=2.6, mew=0, alpha=0.55, color=OPTIMUM)
        mean = Evidence.of_seeds(sample, low=0, high=1)
        if mean.n > 1:
            axes.plot([mean.low, mean.high], [at - 0.12] * 2, "-", lw=2, color=INK, solid_capstyle="butt")
        axes.plot([mean.value], [at - 0.12], "o", ms=4, mfc="white", mec=INK, zorder=4)
        if not np.isnan(marks[name]):
            axes.plot([marks[name]], [at], "x", ms=5, color=FOUND, mew=1.4, zorder=5)
    axes.set_yticks(range(len(groups)), list(groups))
    axes.set_ylim(len(groups) - 0.5, -0.5)
    # some air beside the outermost dots, but no axis beyond what F1 can be
    left, right = axes.get_xlim()
    axes.set_xlim(max(-0.02, left), min(1.02, right))
    axes.set_xlabel("F1 on the test split")
    panel_title(axes, title, width=3.5 * 72)
    handles = [
        Line2D([], [], ls="", marker="o", ms=2.6, color=OPTIMUM, label="one seed"),
        Line2D([], [], color=INK, lw=2, marker="o", mfc="white", label="mean, 95 % interval"),
    ]
    if not all(np.isnan(mark) for mark in marks.values()):
        handles.append(Line2D([], [], ls="", marker="x", color=FOUND, mew=1.4, label="published (unverified)"))
    around(figure, handles=handles)
    return figure


def spread(frame: pd.DataFrame, title: str, best: str = "adversary, exact") -> Figure:
    """Violins of `seeds`, and of `found_jsd` and `optimum_jsd` where they are known, by bins of `max_attention`, one panel
    per predicted class (all in one where there are more than two); `best` is what the last are called. The classes are
    called by name where the frame says what they are (`attnprobe.results.pivot.named`)."""
    parts = [(name if rows is frame else f"predicted {name}", rows) for name, rows in split_by_class(frame, 2)]
    figure = new_figure(TEXT_WIDTH * (0.6 if len(parts) == 1 else 1), 3.1)
    panels = np.atleast_1d(figure.subplots(1, len(parts), sharex=True, sharey=True))
    known = {
        "seeds": ("median over seeds", SEEDS),
        "found_jsd": ("adversary, search", FOUND),
        "optimum_jsd": (best, OPTIMUM),
    }
    columns = [(column, colour) for column, (_, colour) in known.items() if column in frame]
    for axes, (name, rows) in zip(panels, parts, strict=True):
        bins = max_attention_bin(rows["max_attention"].to_numpy())
        for b in range(len(MAX_ATTENTION_BINS)):
            for place, (column, colour) in enumerate(columns):
                at = b + 0.27 - 0.27 * place
                violin(axes, rows[column].to_numpy()[bins == b], at, 0.25, colour)
            count = int((bins == b).sum())
            axes.annotate(
                f"n = {count:,}", (1.0, b + 0.45), xycoords=("axes fraction", "data"), fontsize=NOTE_SIZE, color=FAINT,
                va="center", ha="right",
            )  # fmt: skip
        axes.axvline(LN2, lw=0.6, ls=":", color=FAINT)
        axes.set_xlim(0, 0.8)
        axes.set_yticks(range(len(MAX_ATTENTION_BINS)), MAX_ATTENTION_BINS)
        panel_title(axes, f"{title} · {name}", width=2.5 * 72)
    handles = [Patch(color=colour, alpha=0.6, label=known[column][0]) for column, colour in columns]
    around(figure, x="JSD to the base's attention (nats)", y="largest attention weight of the base", handles=handles)
    return figure


def curve(
    table: pd.DataFrame,
    seeds: pd.DataFrame,
    single: "pd.Series[float]",
    quoted: pd.DataFrame,
    title: str,
    best: str = "adversary, exact",
) -> Figure:
    """TVD against JSD: the trained adversaries along λ with intervals, the seeds, the single-prediction adversaries' means
    (`best`: what the one of the solver is called), and the published point."""
    figure = new_figure(TEXT_WIDTH * 0.75, 3.0)
    axes = figure.subplots()
    errors = {
        "xerr": np.abs(table[["TVD low", "TVD high"]].to_numpy().T - table["TVD"].to_numpy()),
        "yerr": np.abs(table[["JSD low", "JSD high"]].to_numpy().T - table["JSD"].to_numpy()),
    }
    colour = CLASS_COLOURS[3]
    axes.errorbar(
        table["TVD"], table["JSD"], **errors, fmt="o-", ms=3.5, lw=0.9, color=colour, label="trained adversary"
    )
    for label, tvd, jsd in labels(table):
        # off the bars, which are straight above and beside the point; the rim keeps it legible on other points' lines
        axes.annotate(
            label, (tvd, jsd), xytext=(4, 4), textcoords="offset points", fontsize=NOTE_SIZE, color=INK, zorder=6,
            path_effects=[withStroke(linewidth=2, foreground="white")],
        )  # fmt: skip
    if not seeds.empty:
        axes.plot(seeds["tvd"], seeds["jsd"], "s", ms=3, color=SEEDS, label="other seeds of the base")
    if single is not None:
        solved = best.replace("adversary", "single predictions")
        axes.plot(single["found_tvd"], single["found_jsd"], "^", ms=5, color=FOUND, label="single predictions, search")
        axes.plot(single["optimum_tvd"], single["optimum_jsd"], "D", ms=4.5, color=OPTIMUM, label=solved)
    if not quoted.empty:
        named = "published (unverified; TVD in half units)"
        axes.plot(quoted["TVD"], quoted["JSD"], "x", ms=6, mew=1.4, color=INK, label=named)
    axes.axhline(LN2, lw=0.6, ls=":", color=FAINT)
    axes.set_ylim(0, 0.72)
    axes.set_xlim(left=0, right=axes.get_xlim()[1] * 1.15)  # room for the last point's label
    axes.set_xlabel("TVD of the predictions to the base's")
    axes.set_ylabel("JSD of the attention to the base's (nats)")
    panel_title(axes, title, width=3.5 * 72)
    around(figure, handles=axes.get_legend_handles_labels()[0])
    return figure


def labels(table: pd.DataFrame) -> list[tuple[str, float, float]]:
    """`(λ in words, TVD, JSD)` for the points of the curve; neighbours that lie on each other share a label.

    >>> labels(pd.DataFrame({"lambda": [0, 0.001, 0.01], "TVD": [0.05, 0.051, 0.1], "JSD": [0.03, 0.03, 0.6]}))
    [('λ = 0 to 0.001', 0.051, 0.03), ('λ = 0.01', 0.1, 0.6)]
    """
    groups: list[list[tuple[float, float, float]]] = []
    for weight, tvd, jsd in zip(table["lambda"], table["TVD"], table["JSD"], strict=True):
        if not groups or np.hypot(tvd - groups[-1][-1][1], jsd - groups[-1][-1][2]) > 0.02:
            groups.append([])
        groups[-1].append((float(weight), float(tvd), float(jsd)))
    words = []
    for group in groups:
        several = f" to {group[-1][0]:g}" if len(group) > 1 else ""
        words.append((f"λ = {group[0][0]:g}{several}", group[-1][1], group[-1][2]))
    return words
