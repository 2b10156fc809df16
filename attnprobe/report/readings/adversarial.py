"""Another attention, the same prediction: how different can it be? (Jain & Wallace 2019, section 4.2.2)"""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from attnprobe.report.claims import Claim
from attnprobe.report.evidence import Evidence, Measure, mean_of, share_of
from attnprobe.report.figures import telling
from attnprobe.report.figures.grid import NOTE_SIZE, around, counted, from_zero, grid, title
from attnprobe.report.figures.heatmap import heatmaps
from attnprobe.report.figures.marks import box
from attnprobe.report.figures.style import CLASS_COLOURS, FAINT, FOUND, INK, OPTIMUM
from attnprobe.report.reading import Column, Drawing, Headline, HeatMap, Reading
from attnprobe.report.wide import (
    MAX_ATTENTION_EDGES,
    Facet,
    facets,
    max_attention_bin,
    per_example,
    split_by_class,
)
from attnprobe.results.statistics import wilson

LN2 = float(np.log(2))
EDGES = np.linspace(0, 0.7, 41)
MOST_PANELS = 12
"""More panels than these, one for each class of each run, would not fit a page: each run is one panel then."""
METRICS = ("found_jsd", "optimum_jsd", "upper_bound", "is_exact", "max_attention", "predicted_class")


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
            box(axes, values[bins == b], (low + high) / 2 + side * 0.035, 0.05, colour)
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
    rows = results[(results["probe"] == "adversarial") & (results["metric"] == "optimum_jsd_within")]
    panels = facets(rows)
    figure, axes = grid(len(panels), panel_height=1.75)
    colours = dict(zip((0.2, FAR, 0.6), CLASS_COLOURS, strict=False))
    for panel, facet in zip(axes, panels, strict=True):
        for bound, colour in colours.items():
            table = shares_along(facet.rows, bound)
            panel.fill_between(table["epsilon"], table["low"], table["high"], color=colour, alpha=0.2, lw=0)
            panel.plot(table["epsilon"], table["share"], "o-", ms=2.5, lw=1, color=colour)
        panel.axhline(0.5, lw=0.6, color=FAINT, zorder=0)
        title(panel, counted(facet.title, facet.rows["example_id"].nunique()))
    axes[0].set_ylim(0, 1)
    handles = [
        Line2D([], [], color=colour, marker="o", ms=3, label=f"{bound:g} nats") for bound, colour in colours.items()
    ]
    around(
        figure, x="tolerance ε (TVD of the prediction)", y="share without a far attention", handles=handles,
        heading="farther than",
    )  # fmt: skip
    return figure


def shares_along(rows: pd.DataFrame, bound: float) -> pd.DataFrame:
    """`epsilon share low high`: of the texts whose farthest attention within that tolerance is no farther than the bound;
    several seeds of a text count as their mean."""
    lines = []
    for epsilon in np.unique(rows["step"].to_numpy()):
        part = rows[rows["step"] == epsilon]
        near = (part["value"] <= bound).groupby(part["example_id"]).mean()
        share, low, high = wilson(float(near.sum()), len(near))
        lines.append({"epsilon": float(epsilon), "share": share, "low": low, "high": high})
    return pd.DataFrame(lines)


FAR = 0.4
"""Nats of JSD from which two attentions are called different, of at most ln 2 = 0.69: the bound above which Wiegreffe &
Pinter list their best adversaries. Attentions on different words altogether have ln 2."""
MISSED = 0.01
"""Nats by which a search must fall short to be worth a word: far less than what the figures can show."""


def near_share(table: pd.DataFrame) -> Evidence | None:
    """Share of the examples for which no attention farther than `FAR` keeps the prediction.

    Where the optimum is only bracketed, the best attention known counts for the upper end of the interval and the
    certified upper bound for the lower end: that none was found does not say that there is none.
    """
    known = share_of("optimum_jsd", value=_near)(table)
    proved = share_of("upper_bound", value=_near)(table)
    return None if known is None or proved is None else replace(known, low=proved.low)


def _near(jsd: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(jsd), np.nan, jsd <= FAR)


def missed(found: np.ndarray, optimum: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Nats that the search stays below the optimum; NaN where nothing but the search is known of it."""
    return np.where(np.isnan(share), np.nan, optimum - found)


CLAIMS = (
    Claim(
        name="no_other_attention_exists",
        criterion="exclusivity",
        statement="For most texts no very different attention gives the same prediction",
        source="Jain & Wallace 2019, section 4.2.2, asked the other way round and of the exact optimum",
        measure=Measure(("optimum_jsd", "upper_bound"), near_share),
        quantity=f"share of the texts without such an attention, JSD > {FAR} nats within ε; more than half is asked for. "
        "That a search found none is no proof: what is not proved counts against the lower end",
        threshold=0.5,
        speaks="for",
        level="state",
        smallest=0.01,
        primary=True,
    ),
    Claim(
        name="the_search_falls_short",
        criterion="exclusivity",
        statement="The published gradient search ends below the largest JSD that there is",
        source="attnprobe: the search of Jain & Wallace 2019, section 4.2.2, compared with the exact solver",
        measure=mean_of("found_jsd", "optimum_jsd", "reached_share", value=missed),
        quantity=f"JSD of the farthest attention known minus that of the one found, nats; more than {MISSED} is asked for",
        threshold=MISSED,
        level="state",
    ),
)

READING = Reading(
    probe="adversarial",
    order=20,
    title="Adversarial attention: how different can it be with the same prediction?",
    about=(
        "For each text, the largest Jensen-Shannon divergence (JSD, 0 to ln 2 = 0.69 nats) between the model's attention "
        "and any other attention whose prediction is the same within a small total variation distance ε. The gradient "
        "search of the paper is compared with the optimum: exact where there are two classes, else bracketed by the farthest "
        "attention known and a certified upper bound; the share solved exactly is among the numbers. Where the decoder is "
        "not linear (questions), or a text may have several labels, nothing but the search looks for it, and the bound is "
        "that of any attention at all, whatever it predicts. Near ln 2, an attention on wholly other words would do "
        "as well. The known critique (Wiegreffe & "
        "Pinter 2019): such an attention exists for one text at a time and no trained model need ever produce it, so "
        "existence alone is weak evidence; compare it with the spread over seeds."
    ),
    claims=CLAIMS,
    maps=(
        HeatMap(
            "found_attention",
            "Adversary, found by search",
            "gradient search for a distant attention with the same prediction",
        ),
        HeatMap("optimum_attention", "Farthest attention", "the most distant attention known with the same prediction"),
    ),
    columns=(
        Column("optimum_jsd", "JSD of the farthest attention", leads=True),
        Column("found_jsd", "JSD of the found adversary", leads=True),
        Column("upper_bound", "upper bound of the JSD", sorts=False),
        Column("is_exact", "farthest attention is exact", sorts=False, truth=True),
        Column("found_tvd", "TVD of the found adversary", 4, sorts=False),
        Column("optimum_tvd", "TVD of the farthest attention", 4, sorts=False),
    ),
    headlines=(
        Headline("found_jsd", "largest JSD, gradient adversary", published="adversarial_max_jsd_mean", by_class=True),
        Headline("optimum_jsd", "largest JSD, farthest attention known", by_class=True),
        Headline("upper_bound", "largest JSD, certified upper bound"),
        Headline("is_exact", "share of examples solved exactly"),
        Headline("reached_share", "share of it that the search reached"),
        Headline("top_token_changed_found", "top token changed, gradient adversary"),
        Headline("top_token_changed_optimum", "top token changed, farthest attention known"),
    ),
    drawings=(
        Drawing("adversarial_jsd", adversarial_jsd, tuple(("adversarial", m) for m in METRICS), optional=()),
        Drawing(
            "adversarial_by_attention",
            adversarial_by_attention,
            tuple(("adversarial", metric) for metric in METRICS),
            optional=(),
        ),
        Drawing(
            "exclusivity_by_epsilon", exclusivity_by_epsilon, (("adversarial", "optimum_jsd_within"),), optional=()
        ),
        Drawing(
            "adversarial_heatmaps",
            heatmaps,
            tuple(
                ("adversarial", metric)
                for metric in ("found_jsd", "optimum_jsd", "max_attention", "found_attention", "optimum_attention")
            ),
            words=True,
            optional=tuple(("adversarial", metric) for metric in telling.METRICS),
            examples=telling.shown,
        ),
    ),
)
