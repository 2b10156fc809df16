"""Does attention agree with gradients and leave-one-out? (Jain & Wallace 2019, section 4.1)"""

from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy import stats

from attnprobe.report.claims import Claim
from attnprobe.report.evidence import mean_of
from attnprobe.report.figures.grid import around, class_handles, counted, from_zero, grid, title
from attnprobe.report.figures.marks import FEWEST
from attnprobe.report.figures.style import CLASS_COLOURS, FAINT, INK
from attnprobe.report.importances import facts_of, importances_in
from attnprobe.report.reading import Column, Drawing, Headline, Reading
from attnprobe.report.readings.leave_one_out import checked
from attnprobe.report.wide import Facet, facets, per_example, split_by_class

PROBE = "correlation"
LEVEL = 0.05
"""Of the p-values, and of the false discovery rate."""
NEARLY_EVEN = 0.95
"""Attention whose entropy is a larger share of ln n has hardly an order that could agree with anything."""
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


def headlines(first: str, second: str, words: str) -> tuple[Headline, ...]:
    """The numbers of one pair of measures, called by these words."""
    pair, paper = f"{first}_{second}", PUBLISHED.get((first, second))
    tau, p = f"tau_{pair}", f"p_{pair}"

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


def histogram(pair: Pair, results: pd.DataFrame) -> Figure:
    """Histogram of Kendall's τ per predicted class, one panel per data set and model; 40 bins from −1 to 1, a dashed line
    at the mean. More than three classes stand in rows above each other, all to one scale.

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
        _frame(panel, facet, facet.rows[metric])
        if step:
            without_scale(panel)
    from_zero(axes)
    words = f"Kendall's τ of {' and '.join(words_of(pair, results))}"
    around(figure, x=words, y="share of the class", handles=class_handles(names), heading="predicted")
    return figure


OVERLAID = 3
"""So many classes can be told apart on top of each other; more stand in rows."""


def longest(split: Sequence[Sequence[tuple[str, pd.DataFrame]]]) -> list[str]:
    """The names of the groups of the panel that has the most."""
    return max(([name for name, _ in groups] for groups in split), key=len)


def heights(values: np.ndarray) -> np.ndarray:
    """Share of the values `[examples]` in each bin; all 0 where there are none."""
    return np.histogram(values, EDGES)[0] / max(1, len(values))


def row_height(top: float, groups: int) -> float:
    """How far apart the rows of so many groups begin, when the tallest reaches `top`; 0 where they share one row."""
    return 1.1 * float(top) if groups > OVERLAID else 0.0


def panel_height(groups: int) -> float:
    """Inches of a panel with so many groups."""
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

    Gaussian kernel estimates (Scott's bandwidth), cut at the smallest and largest value. More than three classes stand in
    rows above each other, all to one scale. The shuffled attention (grey) is compared with the measure that the attention
    is: what an order without meaning gets.
    """
    pairs = list(PUBLISHED)
    metrics = [f"tau_{'_'.join(pair)}" for pair in pairs] + [floor for pair in pairs if (floor := shuffled(pair))]
    panels = facets(per_example(results, PROBE, (*metrics, "predicted_class")))
    split = [split_by_class(facet.rows, len(CLASS_COLOURS)) for facet in panels]
    names = longest(split)
    drawn = [(facet, groups, pair) for facet, groups in zip(panels, split, strict=True) for pair in pairs]
    curves = [_curves(groups, facet, pair) for facet, groups, pair in drawn]
    step = row_height(max(float(y.max()) for panel in curves for _, y, _ in panel), len(names))
    figure, axes = grid(len(drawn), panel_height=panel_height(len(names) + 1))
    for panel, (facet, _, pair), own in zip(axes, drawn, curves, strict=True):
        for place, (x, y, colour) in enumerate(own):
            # the lowest row is the shuffled attention's, also where a pair has none
            row = len(own) - 1 - place + (shuffled(pair) is None)
            _density(panel, x, y, step * row, colour)
        heading = f"{', '.join(words_of(pair, results))} · {facet.title}"
        _frame(panel, Facet(heading, facet.rows), facet.rows[f"tau_{'_'.join(pair)}"])
        without_scale(panel)
    from_zero(axes)
    floor_handle = Line2D([], [], color=FAINT, lw=0.9, ls=(0, (3, 1.5)), label="shuffled attention")
    handles = [*class_handles(names), floor_handle]
    around(figure, x="Kendall's τ", y="density", handles=handles, heading="predicted" if len(names) > 1 else None)
    return figure


def _curves(
    groups: Sequence[tuple[str, pd.DataFrame]], facet: Facet, pair: Pair
) -> list[tuple[np.ndarray, np.ndarray, str]]:
    """(x, density, colour) of every class of a panel, and of the shuffled attention where the pair has one."""
    metric, floor = f"tau_{'_'.join(pair)}", shuffled(pair)
    samples = [(rows[metric], colour) for (_, rows), colour in zip(groups, CLASS_COLOURS, strict=False)]
    if floor is not None:
        samples.append((facet.rows[floor], FAINT))
    return [(*_estimate(column.dropna().to_numpy()), colour) for column, colour in samples]


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


def _needs(*metrics: str) -> tuple[tuple[str, str], ...]:
    return tuple((PROBE, metric) for metric in metrics)


SOURCE = "Jain & Wallace 2019, section 4.1"
CEILING = "tau_gradient_leave_one_out"


CLAIMS = (
    Claim(
        name="attention_agrees_as_the_gradient_does",
        criterion="agreement",
        statement="Attention agrees with leave-one-out better than the gradient does",
        source=SOURCE,
        measure=mean_of("tau_attention_leave_one_out", CEILING, value=np.subtract),
        quantity="τ(attention, leave-one-out) minus τ(gradient, leave-one-out), mean of the examples, −2 to 2",
        speaks="for",
        level="word",
        smallest=0.05,
    ),
)
"""Whether attention agrees more than an attention without meaning would is asked by the probe `agreement`: against a
shuffled attention alone, whatever a gradient contains as a factor agrees with it."""


def of_importance(name: str, title: str) -> tuple[Headline, ...]:
    """The numbers of attention and one further importance."""
    return (*headlines("attention", name, f"attention, {title}"), floor(name, title))


def ceilings(results: pd.DataFrame) -> tuple[Headline, ...]:
    """The numbers of the pairs without the attention: how well other measures agree with each other."""
    there = importances_in(results, PROBE, "tau_")
    names = [name for name in importances_in(results, PROBE, "tau_shuffled_") if f"attention_{name}" in there]
    found = [pair for pair in permutations(names, 2) if "_".join(pair) in there]
    words = {name: facts_of(name, results, PROBE).ascii_title for name in names}
    return tuple(one for first, second in found for one in headlines(first, second, f"{words[first]}, {words[second]}"))


READING = Reading(
    probe=PROBE,
    of_importance=of_importance,
    mark="tau_attention_",
    order=50,
    noted=checked,
    title="Agreement: do attention, gradients and leave-one-out rank the words alike?",
    about=(
        "Kendall's τ-b between two rankings of a text's words, −1 (reversed) over 0 (unrelated) to 1 (the same), mean over "
        "the texts. Gradient and leave-one-out stand beside each other as a ceiling, a shuffled attention as a floor. Low "
        "agreement does not say which of the two measures is wrong: neither gradients nor leave-one-out is a ground truth, "
        "τ over all words is ruled by the many weights near 0, and it depends on the length of the text (Neely et al. 2021). "
        "So this is called agreement, not faithfulness."
    ),
    claims=CLAIMS,
    columns=(
        Column("tau_attention_gradient", "disagreement with the gradient, 1 − τ", one_minus=True),
        Column("tau_attention_leave_one_out", "disagreement with leave-one-out, 1 − τ", one_minus=True),
    ),
    headlines=(Headline("attention_evenness", "evenness of the attention (1: uniform)"),),
    closing=ceilings,
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
            _needs(*(f"tau_{'_'.join(pair)}" for pair in PUBLISHED), "tau_shuffled_gradient", "predicted_class"),
            optional=_needs("tau_shuffled_leave_one_out"),
        ),
    ),
)  # fmt: skip
