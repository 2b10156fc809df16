"""The figures of Wiegreffe & Pinter's tests, in which a model is trained again."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke

from attnprobe.findings.studies.criteria.figures import (
    AdversaryCurve,
    AttentionDistances,
    SeedScores,
)
from attnprobe.plots.grid import NOTE_SIZE, around
from attnprobe.plots.grid import title as panel_title
from attnprobe.plots.style import (
    CLASS_COLOURS,
    FAINT,
    FOUND,
    INK,
    OPTIMUM,
    TEXT_WIDTH,
    class_names,
    new_figure,
    violin,
)
from attnprobe.report.studies.drawing import draw
from attnprobe.results.pivot import (
    MAX_ATTENTION_BINS,
    max_attention_bin,
    named,
    split_by_class,
)

SEEDS = CLASS_COLOURS[2]
LN2 = float(np.log(2))
"""The largest JSD, in nats."""
TITLE_WIDTH = 3.5 * 72
"""Points of text that fit above a panel of three quarters of the text width."""
OVERLAP = 0.02
"""Points of the curve that are no farther apart than this share a label."""


@draw.register
def draw_seed_scores(figure: SeedScores) -> Figure:
    """A row per model.

    A dot per seed, the mean with its interval over texts and seeds, a cross for the published
    number.
    """
    models = list(figure.f1)
    drawn = new_figure(TEXT_WIDTH * 0.75, 0.8 + 0.34 * len(models))
    axes = drawn.subplots()
    for row, (model, f1) in enumerate(figure.f1.items()):
        above = np.full(len(f1), row + 0.14)
        axes.plot(f1, above, "o", ms=2.6, mew=0, alpha=0.55, color=OPTIMUM)
        mean = figure.mean[model]
        below = row - 0.12
        # an interval that is not known is no line
        ends = [mean.low, mean.high]
        axes.plot(ends, [below, below], "-", lw=2, color=INK, solid_capstyle="butt")
        axes.plot([mean.value], [below], "o", ms=4, mfc="white", mec=INK, zorder=4)
        if model in figure.published:
            axes.plot([figure.published[model]], [row], "x", ms=5, color=FOUND, mew=1.4, zorder=5)

    axes.set_yticks(range(len(models)), models)
    axes.set_ylim(len(models) - 0.5, -0.5)
    # some air beside the outermost dots, but no axis beyond what F1 can be
    left, right = axes.get_xlim()
    axes.set_xlim(max(-0.02, left), min(1.02, right))
    axes.set_xlabel("F1 on the test split")
    panel_title(axes, figure.data, width=TITLE_WIDTH)

    handles = [
        Line2D([], [], ls="", marker="o", ms=2.6, color=OPTIMUM, label="one seed"),
        Line2D([], [], color=INK, lw=2, marker="o", mfc="white", label="mean, 95 % interval"),
    ]
    if figure.published:
        label = "published (unverified)"
        handles.append(Line2D([], [], ls="", marker="x", color=FOUND, mew=1.4, label=label))
    around(drawn, handles=handles)
    return drawn


@dataclass(frozen=True)
class Distance:
    """A column of distances as violins."""

    column: str
    label: str
    colour: str


@draw.register
def draw_attention_distances(figure: AttentionDistances) -> Figure:
    """Violins of each distance by the base's largest weight, a panel per predicted class.

    All in one where there are more than two.
    """
    texts = named(figure.texts, [class_names(figure.base)])
    parts = split_by_class(texts, 2)
    is_whole = len(parts) == 1
    drawn = new_figure(TEXT_WIDTH * (0.6 if is_whole else 1), 3.1)
    panels = np.atleast_1d(drawn.subplots(1, len(parts), sharex=True, sharey=True))
    distances = [
        Distance("seeds", "median over seeds", SEEDS),
        Distance("found_jsd", "adversary, search", FOUND),
        Distance("optimum_jsd", figure.optimum, OPTIMUM),
    ]
    distances = [distance for distance in distances if distance.column in texts]

    for axes, (name, rows) in zip(panels, parts, strict=True):
        draw_violins(axes, rows, distances)
        group = name if rows is texts else f"predicted {name}"
        panel_title(axes, f"{figure.data} · {group}", width=2.5 * 72)

    handles = [
        Patch(color=distance.colour, alpha=0.6, label=distance.label) for distance in distances
    ]
    around(
        drawn,
        x="JSD to the base's attention (nats)",
        y="largest attention weight of the base",
        handles=handles,
    )
    return drawn


def draw_violins(axes: Axes, texts: pd.DataFrame, distances: Sequence[Distance]) -> None:
    """One panel: a row per bin of the base's largest weight, in it a violin per distance."""
    bins = max_attention_bin(texts["max_attention"].to_numpy())
    for row in range(len(MAX_ATTENTION_BINS)):
        in_bin = bins == row
        for place, distance in enumerate(distances):
            values = texts[distance.column].to_numpy()[in_bin]
            violin(axes, values, row + 0.27 - 0.27 * place, 0.25, distance.colour)
        axes.annotate(
            f"n = {int(in_bin.sum()):,}",
            (1.0, row + 0.45),
            xycoords=("axes fraction", "data"),
            fontsize=NOTE_SIZE,
            color=FAINT,
            va="center",
            ha="right",
        )
    axes.axvline(LN2, lw=0.6, ls=":", color=FAINT)
    axes.set_xlim(0, 0.8)
    axes.set_yticks(range(len(MAX_ATTENTION_BINS)), MAX_ATTENTION_BINS)
    axes.set_ylim(-0.45, len(MAX_ATTENTION_BINS) - 0.35)


@draw.register
def draw_adversary_curve(figure: AdversaryCurve) -> Figure:
    """TVD against JSD.

    The trained adversaries along λ with intervals, the seeds, the means of the adversaries against
    single predictions, and the published point.
    """
    drawn = new_figure(TEXT_WIDTH * 0.75, 3.0)
    axes = drawn.subplots()
    draw_trained(axes, figure.trained)

    seeds = figure.seeds
    if not seeds.empty:
        label = "other seeds of the base"
        axes.plot(seeds["tvd"], seeds["jsd"], "s", ms=3, color=SEEDS, label=label)
    single = figure.single
    label = "single predictions, search"
    axes.plot(single["found_tvd"], single["found_jsd"], "^", ms=5, color=FOUND, label=label)
    label = f"single predictions, {figure.optimum}"
    axes.plot(single["optimum_tvd"], single["optimum_jsd"], "D", ms=4.5, color=OPTIMUM, label=label)
    paper = figure.published
    if not paper.empty:
        label = "published (unverified; TVD in half units)"
        axes.plot(paper["TVD"], paper["JSD"], "x", ms=6, mew=1.4, color=INK, label=label)

    axes.axhline(LN2, lw=0.6, ls=":", color=FAINT)
    axes.set_ylim(0, 0.72)
    axes.set_xlim(left=0, right=axes.get_xlim()[1] * 1.15)  # room for the last point's label
    axes.set_xlabel("TVD of the predictions to the base's")
    axes.set_ylabel("JSD of the attention to the base's (nats)")
    panel_title(axes, figure.data, width=TITLE_WIDTH)
    around(drawn, handles=axes.get_legend_handles_labels()[0])
    return drawn


def draw_trained(axes: Axes, trained: pd.DataFrame) -> None:
    """The curve along λ, with the intervals of both distances as bars."""
    bars = {
        column: np.abs(
            trained[[f"{column} low", f"{column} high"]].to_numpy().T - trained[column].to_numpy()
        )
        for column in ("TVD", "JSD")
    }
    axes.errorbar(
        trained["TVD"],
        trained["JSD"],
        xerr=bars["TVD"],
        yerr=bars["JSD"],
        fmt="o-",
        ms=3.5,
        lw=0.9,
        color=CLASS_COLOURS[3],
        label="trained adversary",
    )
    for point in labels(trained):
        # off the bars, which are straight below and beside the point, and where the curve, which
        # rises, does not go; the rim keeps it legible on other points' lines
        axes.annotate(
            point.text,
            (point.tvd, point.jsd),
            xytext=(4, -4),
            textcoords="offset points",
            va="top",
            fontsize=NOTE_SIZE,
            color=INK,
            zorder=6,
            path_effects=[withStroke(linewidth=2, foreground="white")],
        )


@dataclass(frozen=True)
class Label:
    """A label of the curve: λ in words, at the place of its point."""

    text: str
    tvd: float
    jsd: float


def labels(trained: pd.DataFrame) -> list[Label]:
    """A label per point of the curve; neighbours that lie on each other share the last one's.

    >>> points = pd.DataFrame(
    ...     {"lambda": [0, 0.001, 0.01], "TVD": [0.05, 0.051, 0.1], "JSD": [0.03, 0.03, 0.6]}
    ... )
    >>> for label in labels(points):
    ...     print(label)
    Label(text='λ = 0 to 0.001', tvd=0.051, jsd=0.03)
    Label(text='λ = 0.01', tvd=0.1, jsd=0.6)
    """
    result: list[Label] = []
    first = 0.0  # the first λ of the last label
    for weight, tvd, jsd in trained[["lambda", "TVD", "JSD"]].to_numpy(float).tolist():
        if result and np.hypot(tvd - result[-1].tvd, jsd - result[-1].jsd) <= OVERLAP:
            result[-1] = Label(f"λ = {first:g} to {weight:g}", tvd, jsd)
        else:
            first = weight
            result.append(Label(f"λ = {weight:g}", tvd, jsd))
    return result
