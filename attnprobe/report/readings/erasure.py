"""Erasing in a ranking's order until the decision flips (Serrano & Smith 2019, section 5)"""

from itertools import permutations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from scipy import stats

from attnprobe.report.claims import Claim
from attnprobe.report.evidence import Measure, flips_of, least, mean_of, share_of
from attnprobe.report.figures.grid import NOTE_SIZE, around, counted, grid, title
from attnprobe.report.figures.marks import box
from attnprobe.report.figures.style import FAINT, INK
from attnprobe.report.importances import facts_of, importances_in
from attnprobe.report.reading import Column, Drawing, Headline, HeatMap, Reading, Tabulation
from attnprobe.report.wide import Facet, facets, per_example
from attnprobe.results.statistics import interval

PROBE = "erasure"
OWN = {"random": ("random", "#222222"), "optimal": ("optimal", "#0072B2")}
"""Orders that are the probe's own and no importances, with the words and the colour for each."""
NARROW = 1.5 * 72
"""Points above a panel that has the rankings' names beside it."""
NEEDED = ("removed_fraction_attention", "removed_fraction_random")


def shown(results: pd.DataFrame, kind: str = "removed_fraction") -> list[str]:
    """The rankings that the table has numbers of this kind of."""
    there = [name for name in importances_in(results, PROBE, f"{kind}_") if name != "random_mean"]
    first, last = ([name for name in there if name == own] for own in OWN)
    return [*first, *(name for name in there if name not in OWN), *last]


def look(results: pd.DataFrame, name: str) -> tuple[str, str]:
    """A ranking's words and colour."""
    facts = facts_of(name, results, PROBE)
    return OWN.get(name, (facts.title, facts.colour))


def boxes(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
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
    common = ~np.isnan(np.stack([columns[name] for name in names if name != "ascending"])).any(0)
    for at, name in enumerate(names):
        values = columns[name]
        box(axes, values, at - 0.18, 0.3, looks[at][1])
        box(axes, values[common], at + 0.18, 0.3, FAINT)
        count = np.count_nonzero(~np.isnan(values))
        axes.annotate(f"{count:,}", (at, -0.055), ha="center", va="center", fontsize=NOTE_SIZE, color=FAINT)
    axes.set_ylim(-0.1, 1.02)
    axes.set_xlim(-0.6, len(names) - 0.4)
    axes.set_xticks(range(len(names)), [words for words, _ in looks], rotation=35, ha="right")
    title(axes, f"{facet.title} · all: n = {np.count_nonzero(common):,}")


def regret(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """Share of the examples that can flip which a ranking flips with at most x items more than the smallest set."""
    names = shown(results, "regret")
    metrics = ["never_flips", *(f"regret_{name}" for name in names)]
    panels = facets(per_example(results, PROBE, metrics))
    figure, axes = grid(len(panels), panel_height=1.9)
    values = np.concatenate([facet.rows[metrics[1:]].to_numpy().ravel() for facet in panels])
    most = int(np.max(values[~np.isnan(values)], initial=3))
    x = np.arange(most + 1)
    for panel, facet in zip(axes, panels, strict=True):
        rows = facet.rows[facet.rows["never_flips"] == 0]
        for name in names:
            known = np.sort(rows[f"regret_{name}"].dropna().to_numpy())
            share = np.searchsorted(known, x, side="right") / max(1, len(rows))
            panel.step(x + 1, share, where="post", color=look(results, name)[1], lw=1.0)
        panel.set_xscale("log")
        ticks = [tick for tick in (0, 1, 3, 10, 30, 100, 300, 1000) if tick <= most]
        panel.set_xticks([tick + 1 for tick in ticks], [str(tick) for tick in ticks])
        panel.set_xticks([], minor=True)
        panel.set_ylim(0, 1.02)
        title(panel, counted(facet.title, len(rows)))
    handles = [Line2D([], [], color=look(results, name)[1], label=look(results, name)[0]) for name in names]
    around(figure, x="items more than the smallest flipping set", y="share of examples", handles=handles)
    return figure


def paired(results: pd.DataFrame) -> pd.DataFrame:
    """Every two rankings compared example by example: who flips the decision with fewer items.

    A ranking that never flips needs more than one that does; where neither flips, nothing is compared.

    Returns:
        per panel and ordered pair: `fewer`, `tie`, `more`, `neither` (shares of all `n` examples, summing to 1),
        `low`, `high` (Wilson's 95 % interval of `fewer`), and `rank_biserial`: −1 (the second always needs fewer) to 1
        (the first does), the matched-pairs rank-biserial correlation of the numbers needed (Kerby 2014), in which a
        ranking that never flips needs one item more than there are; NaN where they never differ.
    """
    names = shown(results, "removed_count")
    rows = []
    metrics = ["content_length", *(f"removed_count_{name}" for name in names)]
    for facet in facets(per_example(results, PROBE, metrics)):
        never = facet.rows["content_length"].to_numpy() + 1
        counts = {name: facet.rows[f"removed_count_{name}"].to_numpy() for name in names}
        for first, second in permutations(names, 2):
            a, b = (np.where(np.isnan(counts[name]), never, counts[name]) for name in (first, second))
            neither = np.isnan(counts[first]) & np.isnan(counts[second])
            share = stats.binomtest(int((a < b).sum()), len(a))
            low, high = share.proportion_ci(method="wilson")
            ties = float(((a == b) & ~neither).mean())
            row = {"panel": facet.title, "first": first, "second": second, "n": len(a)}
            row |= {"fewer": share.statistic, "low": low, "high": high, "tie": ties, "more": float((a > b).mean())}
            rows.append(row | {"neither": float(neither.mean()), "rank_biserial": rank_biserial(b - a)})
    return pd.DataFrame(rows)


def rank_biserial(difference: np.ndarray) -> float:
    """Matched-pairs rank-biserial correlation of differences `[examples]`, −1 to 1; those of 0 are left out.

    >>> rank_biserial(np.array([1.0, 2.0, -3.0, 0.0]))
    0.0
    """
    difference = difference[difference != 0]
    if len(difference) == 0:
        return float("nan")
    ranks = stats.rankdata(np.abs(difference))
    return float((ranks * np.sign(difference)).sum() / ranks.sum())


def rank_rows(results: pd.DataFrame) -> pd.DataFrame:
    """How much each ranking has to remove, per data set and model, with 95 % bootstrap intervals.

    `share removed where it flips` is over the examples that this ranking flips (the paper's way: other examples in
    every row), `share removed` over all that some set flips, an order that does not flip them needing all of their
    items. `regret`: items more than the smallest set, over the examples that the ranking flips.
    """
    names = shown(results)
    rows = []
    metrics = [f"{kind}_{name}" for name in names for kind in ("removed_fraction", "regret")]
    for facet in facets(per_example(results, PROBE, ["never_flips", *metrics])) if names else []:
        never = facet.rows["never_flips"].to_numpy()
        for name in names if (never == 0).any() else []:
            fraction = facet.rows[f"removed_fraction_{name}"]
            row = {"data and model": facet.title, "ranking": look(results, name)[0], "n": int((never == 0).sum())}
            row |= {"it flips": int(fraction.notna().sum()), "share removed where it flips": fraction.mean()}
            row |= _with_interval("share removed", needed(fraction.to_numpy(), never))
            regret = facet.rows[f"regret_{name}"].to_numpy()
            rows.append(
                row | _with_interval("regret", np.where(never == 0, 0.0, np.nan) if name == "optimal" else regret)
            )
    return pd.DataFrame(rows)


def _with_interval(name: str, values: np.ndarray) -> dict[str, float]:
    return dict(zip((name, f"{name}, low", f"{name}, high"), interval(values), strict=True))


def pair_rows(results: pd.DataFrame) -> pd.DataFrame:
    """`paired`, headed in words."""
    names = shown(results, "removed_count")
    if len(names) < 2:
        return pd.DataFrame()
    table = paired(results)
    words = {name: look(results, name)[0] for name in names}
    headings = {
        "panel": "data and model", "first": "ranking", "second": "against", "fewer": "needs fewer", "low": "low",
        "high": "high", "tie": "tie", "more": "needs more", "neither": "neither flips", "rank_biserial": "rank-biserial",
        "n": "n",
    }  # fmt: skip
    table[["first", "second"]] = table[["first", "second"]].replace(words)
    return table[list(headings)].rename(columns=headings)


def pairs(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """In how many percent of the examples the row's ranking flips the decision with fewer items than the column's."""
    names = shown(results, "removed_count")
    table = paired(results)
    panels = list(table.groupby("panel", sort=False))
    figure, axes = grid(len(panels), panel_height=2.3, columns=2)
    for panel, (name, rows) in zip(axes, panels, strict=True):
        cells = (
            rows.pivot(index="first", columns="second", values="fewer").reindex(index=names, columns=names).to_numpy()
        )
        panel.imshow(np.ma.masked_invalid(cells), cmap="Blues", vmin=0, vmax=1.3, aspect="auto")
        for (y, x), share in np.ndenumerate(cells):
            if not np.isnan(share):
                panel.annotate(f"{100 * share:.0f}", (x, y), ha="center", va="center", fontsize=6)
        words = [look(results, name)[0] for name in names]
        panel.set_xticks(range(len(names)), words, rotation=35, ha="right")
        panel.set_yticks(range(len(names)), words)
        panel.tick_params(length=0)
        title(panel, counted(str(name), int(rows["n"].iloc[0])), NARROW)
    around(figure, x="… than this one", y="this ranking needs fewer items …")
    return figure


def with_bias(status: np.ndarray) -> np.ndarray:
    """1 where the order flips the decision as the published code counts it: the bias alone counts too."""
    return np.where(np.isnan(status), np.nan, status >= 1)


SOURCE = "Serrano & Smith 2019, section 5"


def needed(fraction: np.ndarray, never_flips: np.ndarray) -> np.ndarray:
    """Share of the items that an order needs: all (1) where it does not flip what can be flipped, and NaN where nothing
    can be. So all orders are compared on the same examples."""
    return np.where(never_flips == 0, np.where(np.isnan(fraction), 1.0, fraction), np.nan)


def needs_more(first: str, second: str) -> Measure:
    """A measure: mean difference of the shares of the items that two orders need. Every example has a random order of
    its own, so the luck of the draw is within the interval."""
    return mean_of(
        f"removed_fraction_{first}", f"removed_fraction_{second}", "never_flips",
        value=lambda a, b, never: needed(a, never) - needed(b, never),
    )  # fmt: skip


def sooner(first: str, second: str) -> Measure:
    """A measure: of the examples that one of two orders flips, the share that the first flips with fewer items minus the
    share that the second does. Ties count for neither; an order that never flips needs more than any."""

    def compared(*counts: np.ndarray) -> np.ndarray:
        a, b = (np.where(np.isnan(count), np.inf, count) for count in counts)
        return np.where(np.isinf(a) & np.isinf(b), np.nan, (a < b).astype(float) - (a > b))

    return flips_of(f"removed_count_{first}", f"removed_count_{second}", value=compared)


def ahead_of_midpoint(
    attention: np.ndarray, random: np.ndarray, optimal: np.ndarray, never_flips: np.ndarray
) -> np.ndarray:
    """How much less attention's order needs than the middle between a random order and the optimum."""
    own, worst, best = (needed(fraction, never_flips) for fraction in (attention, random, optimal))
    return (worst + best) / 2 - own


def as_the_optimum(regret: np.ndarray, never_flips: np.ndarray) -> np.ndarray:
    """1 where an order needs no more items than the smallest set; 0 where it does not flip what that set flips."""
    return np.where(never_flips == 0, regret < 1, np.nan)


SHARES = "difference of the shares of the items removed, mean of the examples that can flip, −1 to 1"
CLAIMS = (
    Claim(
        name="attention_beats_random",
        criterion="erasure",
        statement="A random order needs more items than attention's until the decision flips",
        source=SOURCE,
        measure=needs_more("random", "attention"),
        quantity=SHARES,
        speaks="for",
        level="state",
        smallest=0.02,
    ),
    # Above 0 would be no test: nothing needs fewer than the optimum. The middle is where "it finds the items that matter"
    # and "it hardly does" are equally far off.
    Claim(
        name="attention_closer_to_optimal_than_to_random",
        criterion="erasure",
        statement="Attention's order is closer to the smallest set than to a random order",
        source=f"{SOURCE}; scale as in Edin et al. 2025",
        measure=mean_of(
            "removed_fraction_attention", "removed_fraction_random", "removed_fraction_optimal", "never_flips",
            value=ahead_of_midpoint,
        ),
        quantity="the middle of random and optimal minus the share of the items removed by attention, mean of the examples",
        speaks="for",
        level="state",
        smallest=0.02,
    ),
    Claim(
        name="attention_needs_no_more_than_the_optimum",
        criterion="erasure",
        statement="For most examples attention's order needs no more items than the smallest set",
        source=f"{SOURCE}; the optimum is attnprobe's",
        measure=share_of("regret_attention", "never_flips", value=as_the_optimum),
        quantity="share of the examples that can flip with a regret of no item; more than half is asked for",
        threshold=0.5,
        speaks="for",
        level="state",
    ),
    Claim(
        name="attention_beats_gradient",
        criterion="erasure",
        statement="Attention's order needs fewer items than the gradient's more often than the other way round",
        source=SOURCE,
        measure=sooner("attention", "gradient"),
        quantity="difference of the shares of the examples that either flips, paired, ties counted for neither, −1 to 1",
        speaks="for",
        level="state",
        smallest=0.02,
    ),
    # What the paper finds of the other orders says nothing of attention: the two below speak neither way.
    Claim(
        name="random_is_worst",
        criterion="erasure",
        statement="A random order needs more items than attention, gradient and gradient × attention each do",
        source=SOURCE,
        measure=least(*(needs_more("random", name) for name in ("attention", "gradient", "gradient_attention"))),
        quantity=f"the least of three: {SHARES}",
        level="state",
    ),
    Claim(
        name="gradient_attention_is_best",
        criterion="erasure",
        statement="Gradient × attention needs fewer items than attention, gradient and a random order each do",
        source=SOURCE,
        measure=least(*(needs_more(name, "gradient_attention") for name in ("attention", "gradient", "random"))),
        quantity=f"the least of three: {SHARES}",
        level="state",
    ),
)  # fmt: skip


def of_importance(name: str, title: str) -> tuple[Headline, ...]:
    """The numbers of one ranking."""
    return (
        Headline(f"removed_fraction_{name}", f"share removed: {title}"),
        Headline(
            f"status_{name}", "  share that flips, bias alone counted", name=f"flips_with_bias_{name}",
            transform=with_bias,
        ),
        Headline(f"regret_{name}", "  items more than the optimum"),
    )  # fmt: skip


def compared(results: pd.DataFrame) -> tuple[Headline, ...]:
    """Which of two rankings needs fewer items, for the pairs that the table has."""
    pairs_there = [name.split("_than_") for name in importances_in(results, PROBE, "fewer_")]
    words = {name: look(results, name)[0].replace("×", "x") for pair in pairs_there for name in pair}
    return tuple(
        Headline(f"fewer_{first}_than_{second}", f"{words[first]} needs fewer than {words[second]}",
                 published=f"fewer_{first}_than_{second}")
        for first, second in pairs_there
    )  # fmt: skip


READING = Reading(
    probe=PROBE,
    of_importance=of_importance,
    mark="status_",
    title="Erasing in order: how many items until the decision flips?",
    about=(
        "Items (words, in the hierarchical models sentences) are erased in the order of a ranking, the rest renormalised "
        "after each, until the decision flips; the number is the share of the items that had to go, 0 to 1, small for a "
        "ranking that knows what the decision rests on. Beside every ranking stands the smallest set that flips the decision "
        "at all, found exactly; regret is how many items more a ranking needs. Decisions that no set flips are counted "
        "apart. Flips are coarse, an attended state with half of its weights erased is unlike what the decoder was trained "
        "on, and with a contextual encoder an item's state also tells of its neighbours."
    ),
    claims=CLAIMS,
    order=60,
    maps=(HeatMap("smallest_set", "Smallest flipping set", "1 where the position belongs to it"),),
    columns=(
        Column("removed_count_optimal", "smallest flipping set, positions", 0),
        Column("removed_count_attention", "erased until the flip, by attention", 0),
        Column("never_flips", "no set flips it (proved, up to rounding)", sorts=False, truth=True),
    ),
    headlines=(
        Headline("never_flips", "share that no set flips (proved, up to rounding)"),
        Headline("flip_by_bias", "share that the bias alone decides otherwise"),
    ),
    closing=compared,
    tables=(
        Tabulation(
            "erasure_rankings",
            "Share of the items (0 to 1) that each ranking removes until the decision flips, over the examples that it "
            "flips, and over all n that some set flips (an order that does not flip one needs all of its items); regret: "
            "items more than the smallest flipping set. Means with 95 % bootstrap intervals over the examples "
            "(Serrano & Smith 2019, section 5).",
            rank_rows,
            ("never_flips", "removed_fraction_*", "regret_*"),
        ),
        Tabulation(
            "erasure_pairs",
            "Two rankings compared example by example: share of all examples in which the first needs fewer items (with "
            "Wilson's 95 % interval), as many, more, and in which neither flips the decision; matched-pairs rank-biserial "
            "correlation, 1 where the first always needs fewer.",
            pair_rows,
            ("content_length", "removed_count_*"),
        ),
    ),
    drawings=(
        Drawing(
            "erasure_boxes", boxes, tuple((PROBE, metric) for metric in NEEDED),
            optional=((PROBE, "removed_fraction_*"),),
        ),
        Drawing(
            "erasure_regret", regret, ((PROBE, "never_flips"), (PROBE, "regret_attention")),
            optional=((PROBE, "regret_*"),),
        ),
        Drawing(
            "erasure_pairs", pairs, ((PROBE, "removed_count_attention"), (PROBE, "content_length")),
            optional=((PROBE, "removed_count_*"),),
        ),
    ),
)  # fmt: skip
