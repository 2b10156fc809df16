"""Does attention agree with gradients and leave-one-out? (Jain & Wallace 2019, section 4.1)"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from scipy import stats

from attnprobe.report.claims import HOLDS, Claim, Evidence, Measure, mean_of
from attnprobe.report.facets import Facet, facets, per_example, split_by_class
from attnprobe.report.panels import grid, legend_columns, title
from attnprobe.report.reading import Drawing, Headline, Reading
from attnprobe.report.style import CLASS_COLOURS, FAINT, INK
from attnprobe.report.violins import FEWEST

LEVEL = 0.05
"""Of the p-values, and of the false discovery rate."""
NEARLY_EVEN = 0.95
"""Attention whose entropy is a larger share of ln n has hardly an order that could agree with anything."""
EDGES = np.linspace(-1, 1, 41)
PAIRS = {
    "attention_gradient": "attention, gradient",
    "attention_gradient_through_attention": "attention, gradient through attention",
    "attention_leave_one_out": "attention, leave-one-out",
    "gradient_leave_one_out": "gradient, leave-one-out",
}
PUBLISHED = {
    "attention_gradient": "tau_attention_gradient",
    "attention_leave_one_out": "tau_attention_loo",
    "gradient_leave_one_out": "tau_gradient_loo",
}
"""Pair → what its published numbers begin with."""


def significant(p: np.ndarray) -> np.ndarray:
    """1 where p ≤ 0.05, 0 where it is larger, NaN where it is undefined."""
    return np.where(np.isnan(p), np.nan, p <= LEVEL)


def discovered(p: np.ndarray) -> np.ndarray:
    """1 where an example is significant with the share of false discoveries among a run's examples held at 0.05
    (Benjamini & Hochberg 1995), 0 where not, NaN where it is undefined."""
    known = ~np.isnan(p)
    result = np.full(len(p), np.nan)
    if known.any():
        result[known] = stats.false_discovery_control(p[known]) <= LEVEL
    return result


def headlines(pair: str) -> tuple[Headline, ...]:
    """The numbers of one pair of measures."""
    tau, p, words, paper = f"tau_{pair}", f"p_{pair}", PAIRS[pair], PUBLISHED.get(pair)

    def beside(number: str) -> str | None:
        return None if paper is None else f"{paper}_{number}"

    return (
        Headline(tau, f"tau({words})", published=beside("mean"), by_class=True),
        Headline(
            tau, "  standard deviation", published=beside("std"), by_class=True, name=f"{tau}_std", spread=True
        ),
        Headline(
            p, "  share with p <= 0.05", published=beside("fraction_significant"), by_class=True,
            name=f"significant_{pair}", transform=significant,
        ),
        Headline(
            p, "  the same, false discoveries held at 5 %", by_class=True, name=f"discovered_{pair}",
            transform=discovered,
        ),
        Headline(
            tau, "  tau where attention is not nearly even", name=f"{tau}_uneven",
            at_most=("attention_evenness", NEARLY_EVEN),
        ),
        Headline(f"tau_words_{pair}", "  tau over content words"),
        Headline(f"top_tau_{pair}", "  tau of the top tokens"),
        Headline(f"top_overlap_{pair}", "  overlap of the top tokens"),
    )  # fmt: skip


def floor(importance: str, words: str) -> Headline:
    """How large |τ| is by chance."""
    metric = f"tau_shuffled_{importance}"
    return Headline(metric, f"|tau|(shuffled attention, {words})", name=f"{metric}_absolute", transform=np.abs)


def histogram(pair: str, results: pd.DataFrame) -> Figure:
    """Histogram of Kendall's τ per predicted class, one panel per data set and model; 40 bins from −1 to 1.

    Jain & Wallace's figures 2 and 3.
    """
    metric = f"tau_{pair}"
    panels = facets(per_example(results, "correlation", (metric, "predicted_class")))
    figure, axes = grid(len(panels), panel_height=1.75)
    names: list[str] = []
    for panel, facet in zip(axes, panels, strict=True):
        names = max(names, _bars(panel, facet, metric), key=len)
    figure.supxlabel(f"Kendall's τ of {PAIRS[pair].replace(', ', ' and ')}", fontsize=7.5)
    figure.supylabel("share of the class", fontsize=7.5)
    _legend(figure, names)
    return figure


def _bars(axes: Axes, facet: Facet, metric: str) -> list[str]:
    groups = split_by_class(facet.rows, len(CLASS_COLOURS))
    for (_, rows), colour in zip(groups, CLASS_COLOURS, strict=False):
        values = rows[metric].dropna().to_numpy()
        heights = np.histogram(values, EDGES)[0] / max(1, len(values))
        axes.stairs(heights, EDGES, fill=True, color=colour, alpha=0.35, linewidth=0)
        axes.stairs(heights, EDGES, color=colour, linewidth=0.9)
        if len(values):
            axes.axvline(float(values.mean()), color=colour, lw=0.8, ls=(0, (3, 2)))
    _frame(axes, facet, facet.rows[metric])
    return [name for name, _ in groups]


def densities(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """Density of Kendall's τ per predicted class for each pair of measures, beside that of a shuffled attention.

    Gaussian kernel estimates (Scott's bandwidth), cut at the smallest and largest value. The shuffled attention (grey)
    is compared with the measure that the attention is: what an order without meaning gets.
    """
    shuffled = {"attention_gradient": "tau_shuffled_gradient", "attention_leave_one_out": "tau_shuffled_leave_one_out"}
    pairs = list(PUBLISHED)
    metrics = [f"tau_{pair}" for pair in pairs]
    panels = facets(per_example(results, "correlation", (*metrics, *shuffled.values(), "predicted_class")))
    figure, axes = grid(len(panels) * len(pairs), panel_height=1.75)
    names: list[str] = []
    for number, panel in enumerate(axes):
        facet, pair = panels[number // len(pairs)], pairs[number % len(pairs)]
        if pair in shuffled:
            _density(panel, facet.rows[shuffled[pair]], FAINT, fill=False)
        groups = split_by_class(facet.rows, len(CLASS_COLOURS))
        names = max(names, [name for name, _ in groups], key=len)
        for (_, rows), colour in zip(groups, CLASS_COLOURS, strict=False):
            _density(panel, rows[f"tau_{pair}"], colour)
        _frame(panel, Facet(f"{PAIRS[pair]} · {facet.title}", facet.rows), facet.rows[f"tau_{pair}"])
        panel.set_yticks([])
        panel.spines["left"].set_visible(False)
    figure.supxlabel("Kendall's τ", fontsize=7.5)
    figure.supylabel("density", fontsize=7.5)
    _legend(figure, names, Line2D([], [], color=FAINT, lw=0.9, ls=(0, (3, 1.5)), label="shuffled attention"))
    return figure


def _density(axes: Axes, column: "pd.Series[float]", colour: str, *, fill: bool = True) -> None:
    values = column.dropna().to_numpy()
    if len(values) < FEWEST or np.ptp(values) < 1e-6:
        axes.plot(values, np.zeros(len(values)), "|", ms=5, color=colour, clip_on=False)
        return
    x = np.linspace(values.min(), values.max(), 200)
    density = stats.gaussian_kde(values)(x)
    if fill:
        axes.fill_between(x, density, color=colour, alpha=0.3, linewidth=0)
    axes.plot(x, density, color=colour, lw=0.9, ls="-" if fill else (0, (3, 1.5)))


def _frame(axes: Axes, facet: Facet, values: "pd.Series[float]") -> None:
    undefined = int(values.isna().sum())
    note = f"n = {values.notna().sum():,}" + (f"\n{undefined:,} undefined" if undefined else "")
    axes.annotate(note, (0.02, 1), xycoords="axes fraction", va="top", fontsize=6, color=FAINT)
    axes.axvline(0, lw=0.5, color=INK, zorder=0)
    axes.set_xlim(-1, 1)
    axes.set_xticks([-1, -0.5, 0, 0.5, 1], ["−1", "−.5", "0", ".5", "1"])
    axes.set_ylim(bottom=0)
    title(axes, facet.title)


def _legend(figure: Figure, names: list[str], *more: Line2D) -> None:
    handles: list[Patch | Line2D] = [
        Patch(color=colour, alpha=0.6, label=name) for name, colour in zip(names, CLASS_COLOURS, strict=False)
    ]
    figure.legend(
        handles=[*handles, *more], title="predicted" if len(names) > 1 else None, loc="outside upper right",
        ncols=legend_columns(figure, [str(handle.get_label()) for handle in [*handles, *more]]),
    )  # fmt: skip


def gradient_histogram(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """τ between attention and gradient: see `histogram`."""
    return histogram("attention_gradient", results)


def leave_one_out_histogram(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """τ between attention and leave-one-out: see `histogram`."""
    return histogram("attention_leave_one_out", results)


def _needs(*metrics: str) -> tuple[tuple[str, str], ...]:
    return tuple(("correlation", metric) for metric in metrics)


SOURCE = "Jain & Wallace 2019, section 4.1"
CEILING = "tau_gradient_leave_one_out"


def half_of_ceiling(pair: str) -> Measure:
    """A measure: mean of τ of a pair minus half of τ(gradient, leave-one-out) of the same example.

    Nothing to compare with (None) where that ceiling is not itself above 0.
    """
    beside = mean_of(f"tau_{pair}", CEILING, value=lambda tau, ceiling: tau - ceiling / 2)
    ceiling = mean_of(CEILING)

    def measure(table: pd.DataFrame) -> Evidence | None:
        found = ceiling(table)
        return beside(table) if found is not None and found.exceeds(0) == HOLDS else None

    return measure


def claims_of(pair: str, words: str) -> tuple[Claim, ...]:
    """What is claimed of attention and one measure of importance: agreement at all, and agreement worth the name.

    Above 0 is what a meaningful order cannot miss: a shuffled attention has τ = 0 on average. It says little (with
    thousands of examples 0.01 is above 0), so the second bar is half of what two measures that have nothing to do with
    attention agree on. Half is a convention: two measures of one thing, each with noise of its own, do not reach 1
    (methodology of Neely et al. 2021), and the gradient's and leave-one-out's own agreement is the ceiling we can see.
    """
    return (
        Claim(
            name=f"{pair}_above_chance",
            criterion="agreement",
            statement=f"Attention and {words} rank the words more alike than chance",
            source=SOURCE,
            measure=mean_of(f"tau_{pair}"),
            quantity="Kendall's τ-b, mean of the examples, −1 to 1; more than 0 is asked for",
            speaks="for",
        ),
        Claim(
            name=f"{pair}_half_of_ceiling",
            criterion="agreement",
            statement=f"Attention agrees with {words} at least half as well as gradient and leave-one-out agree",
            source=f"{SOURCE}; ceiling as in Neely et al. 2021",
            measure=half_of_ceiling(pair),
            quantity="τ(attention, it) minus half of τ(gradient, leave-one-out), mean of the examples; above 0 is asked for",
            speaks="for",
        ),
    )


CLAIMS = (
    *claims_of("attention_gradient", "the gradient"),
    *claims_of("attention_leave_one_out", "leave-one-out"),
    Claim(
        name="importances_agree_more",
        criterion="agreement",
        statement="Gradient and leave-one-out agree with each other more than attention agrees with leave-one-out",
        source=SOURCE,
        measure=mean_of(CEILING, "tau_attention_leave_one_out", value=np.subtract),
        quantity="τ(gradient, leave-one-out) minus τ(attention, leave-one-out), mean of the examples, −2 to 2",
        speaks="against",
    ),
)

READING = Reading(
    probe="correlation",
    order=50,
    title="Agreement: do attention, gradients and leave-one-out rank the words alike?",
    about=(
        "Kendall's τ-b between two rankings of a text's words, −1 (reversed) over 0 (unrelated) to 1 (the same), mean over "
        "the texts. Gradient and leave-one-out stand beside each other as a ceiling, a shuffled attention as a floor. Low "
        "agreement does not say which of the two measures is wrong: neither gradients nor leave-one-out is a ground truth, "
        "τ over all words is ruled by the many weights near 0, and it depends on the length of the text (Neely et al. 2021). "
        "So this is called agreement, not faithfulness."
    ),
    claims=CLAIMS,
    headlines=(
        *(number for pair in PAIRS for number in headlines(pair)),
        floor("gradient", "gradient"),
        floor("leave_one_out", "leave-one-out"),
        Headline("attention_evenness", "evenness of the attention (1: uniform)"),
    ),
    drawings=(
        Drawing(
            "correlation_gradient",
            gradient_histogram,
            _needs("tau_attention_gradient", "predicted_class"),
            optional=(),
        ),
        Drawing(
            "correlation_leave_one_out",
            leave_one_out_histogram,
            _needs("tau_attention_leave_one_out", "predicted_class"),
            optional=(),
        ),
        Drawing(
            "correlation_densities", densities,
            _needs(*(f"tau_{pair}" for pair in PUBLISHED), "tau_shuffled_gradient", "predicted_class"),
            optional=_needs("tau_shuffled_leave_one_out"),
        ),
    ),
)  # fmt: skip
