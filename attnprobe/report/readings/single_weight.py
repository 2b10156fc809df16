"""Erasing one weight: does the most attended item matter most? (Serrano & Smith 2019, section 4)"""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure

from attnprobe.report.claims import Claim
from attnprobe.report.evidence import mean_of, share_of
from attnprobe.report.figures.grid import NOTE_SIZE, around, counted, grid, title
from attnprobe.report.figures.notes import note
from attnprobe.report.figures.style import FAINT, INK
from attnprobe.report.importances import facts_of, importances_in
from attnprobe.report.reading import Column, Drawing, Headline, HeatMap, Reading, Tabulation
from attnprobe.report.wide import Facet, facets, metrics_there, per_example

PROBE = "single_weight"
SCATTER = ("drawn_delta_js_attention", "drawn_delta_attention_attention")
FLIPS = ("flip_top_attention", "flip_random_attention")
CELLS = ("both", "top_only", "random_only", "neither")
EDGES = (0.0, 0.25, 0.5, 0.75, 1.0)
SHADES = LinearSegmentedColormap.from_list("examples", colormaps["Blues"](np.linspace(0.3, 1, 64)))
"""A single example must be seen: the lightest shade is not white."""


def delta(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """ΔJS = JS(most attended item erased) − JS(a random other one erased) against the difference of their weights, one
    other item per example; darker where there are more examples. How many stand above each quarter, and the share of
    them below 0.

    Serrano & Smith's figure 3.
    """
    panels = facets(per_example(results, PROBE, SCATTER))
    figure, axes = grid(len(panels), panel_height=1.9, columns=2)
    drawn = [image for panel, facet in zip(axes, panels, strict=True) if (image := _hexagons(panel, facet)) is not None]
    around(figure, x="difference of the attention weights", y="ΔJS (nats)")
    if drawn:
        # one scale for all panels
        most = max(int(np.max(np.asarray(hexagons.get_array()))) for hexagons in drawn)
        scale = LogNorm(1, max(2, most))
        for hexagons in drawn:
            hexagons.set_norm(scale)
        bar = figure.colorbar(drawn[0], ax=axes, aspect=30, pad=0.02)
        ticks = [tick for tick in (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000) if tick <= max(2, most)]
        bar.set_ticks(ticks, labels=[f"{tick:,}" for tick in ticks], minor=False)
        bar.set_ticks([], minor=True)
        bar.set_label("examples")
    return figure


def _hexagons(axes: Axes, facet: Facet) -> PolyCollection | None:
    """Draw one panel; its hexagons, or None where there is nothing to show."""
    rows = facet.rows.dropna(subset=list(SCATTER))
    js, weight = (rows[metric].to_numpy() for metric in SCATTER)
    low, high = -0.1, 0.8
    hexagons = None
    if len(rows):
        hexagons = axes.hexbin(
            weight, np.clip(js, low, high), gridsize=(32, 20), extent=(0, 1, low, high), mincnt=1, cmap=SHADES,
            edgecolors="none",
        )  # fmt: skip
        for (x, y), count in zip(np.asarray(hexagons.get_offsets()), np.asarray(hexagons.get_array()), strict=True):
            words = f"difference of the weights {x:.2f}, ΔJS {y:.3f}: n = {count:,.0f}"
            note(axes, x, y, words, width=1 / 32, height=(high - low) / 40)
    axes.axhline(0, lw=0.5, color=INK)
    quarter = np.clip(np.digitize(weight, EDGES) - 1, 0, len(EDGES) - 2)
    for number, start in enumerate(EDGES[:-1]):
        inside = js[quarter == number]
        text = f"n = {len(inside):,}" + (f"\n{100 * (inside < 0).mean():.1f} % < 0" if len(inside) else "")
        axes.annotate(text, (start + 0.125, high), ha="center", va="top", fontsize=NOTE_SIZE, color=FAINT)
    for edge in EDGES[1:-1]:
        axes.axvline(edge, lw=0.4, color="#DDDDDD", zorder=0)
    axes.set_xlim(0, 1)
    axes.set_ylim(low, high)
    title(axes, facet.title)
    return hexagons


def flip_table(results: pd.DataFrame, top: str = "attention") -> pd.DataFrame:
    """The 2×2 table of decision flips per data set and model, in shares of the examples of two items or more.

    A random other item counts as flipping in as large a part as there are other items that do: the mean of the
    published table over all draws of it.

    Returns:
        columns `panel`, `both`, `top_only`, `random_only`, `neither` (they sum to 1), `n`.
    """
    metrics = [f"flip_top_{top}", f"flip_random_{top}"]
    tables = []
    for facet in facets(per_example(results, PROBE, metrics)):
        first, other = facet.rows[metrics].dropna().to_numpy().T
        cells = (first * other, first * (1 - other), (1 - first) * other, (1 - first) * (1 - other))
        shares = [float(cell.mean()) if len(cell) else np.nan for cell in cells]
        tables.append([facet.title, *shares, len(first)])
    return pd.DataFrame(tables, columns=["panel", *CELLS, "n"])


def flip_rows(results: pd.DataFrame) -> pd.DataFrame:
    """`flip_table` for every way to choose the top item that the table has, headed in words."""
    there = metrics_there(results, PROBE)
    parts = [
        flip_table(results, top).assign(top=facts_of(top, results, PROBE).ascii_title)
        for top in importances_in(results, PROBE, "flip_top_")
        if f"flip_random_{top}" in there
    ]
    if not parts:
        return pd.DataFrame()
    headings = {
        "panel": "data and model",
        "top": "top by",
        **{name: name.replace("_", " ") for name in CELLS},
        "n": "n",
    }
    table = pd.concat(parts).query("n > 0").sort_values("panel", kind="stable")
    return table[list(headings)].rename(columns=headings).reset_index(drop=True)


def flips(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """The 2×2 tables of decision flips: erasing the most attended item against erasing a random other one, in percent.

    Serrano & Smith's table 2.
    """
    table = flip_table(results)
    flipping = [["both flip", "only the top one flips"], ["only the other one flips", "neither flips"]]
    figure, axes = grid(len(table), panel_height=1.5)
    records: list[Any] = table.to_dict("records")
    for panel, row in zip(axes, records, strict=True):
        cells = np.array([row[name] for name in CELLS]).reshape(2, 2)
        panel.imshow(cells, cmap="Blues", vmin=0, vmax=1.4, aspect="auto")
        for (y, x), share in np.ndenumerate(cells):
            panel.annotate(f"{100 * share:.1f}", (x, y), ha="center", va="center", fontsize=8)
            note(panel, x, y, f"{flipping[y][x]}: {share:.1%} of {row['n']:,}", width=1, height=1)
        panel.set_xticks([0, 1], ["flips", "does not"])
        panel.set_yticks([0, 1], ["flips", "does not"], rotation=90, va="center")
        panel.tick_params(length=0)
        title(panel, counted(row["panel"], row["n"]))
    around(figure, x="erasing a random other item", y="erasing the top one")
    return figure


SOURCE = "Serrano & Smith 2019, section 4"
SMALL_DIFFERENCE = 0.4
"""Difference of two weights below which the paper sees ΔJS near 0."""
NEAR_ZERO = 0.01
"""Nats of ΔJS called near 0: a probability of 0.5 that moves to 0.36 is a JSD of 0.01."""
IN_ORDER = 0.5
"""Kendall's τ at which three of four pairs stand in the same order. Above 0 would be no test: a weight near 0 can do
nothing, so that its effect is small by construction."""


def near_zero(delta: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """1 where ΔJS is near 0, 0 where not, NaN where the weights differ much."""
    known = (weight < SMALL_DIFFERENCE) & ~np.isnan(delta)
    return np.where(known, np.abs(delta) < NEAR_ZERO, np.nan)


def stays(flip: np.ndarray) -> np.ndarray:
    """1 where the decision stays."""
    return 1 - flip


CLAIMS = (
    Claim(
        name="top_flips_more_than_random",
        criterion="erasure",
        statement="Erasing the most attended item flips the decision more often than erasing a random other one",
        source=f"{SOURCE} (table 2)",
        measure=mean_of("flip_top_attention", "flip_random_attention", value=np.subtract),
        quantity="difference of the shares of the examples that flip, paired, −1 to 1",
        speaks="for",
        level="state",
        smallest=0.02,
    ),
    Claim(
        name="delta_js_is_positive",
        criterion="erasure",
        statement="Erasing the most attended item moves the prediction farther than erasing a random other one",
        source=f"{SOURCE} (figure 3)",
        measure=mean_of("delta_js_attention"),
        quantity="ΔJS, mean of the examples, nats, −ln 2 to ln 2",
        speaks="for",
        level="state",
        smallest=0.001,
    ),
    Claim(
        name="effects_follow_attention",
        criterion="erasure",
        statement="The order of the weights is by and large the order of what erasing each of them does",
        source=f"{SOURCE}, asked of every item and not of the top one alone",
        measure=mean_of("tau_attention_effect"),
        quantity=f"Kendall's τ-b of weight and effect, mean of the examples, −1 to 1; more than {IN_ORDER} is asked for",
        threshold=IN_ORDER,
        speaks="for",
        level="state",
    ),
    # The two below hold for any long text, however good its attention: they speak neither way.
    Claim(
        name="one_weight_rarely_decides",
        criterion="erasure",
        statement="Most decisions stay when the most attended item is erased",
        source=f"{SOURCE} (table 2)",
        measure=share_of("flip_top_attention", value=stays),
        quantity="share of the examples whose decision stays; more than half is asked for",
        threshold=0.5,
        level="state",
    ),
    Claim(
        name="small_differences_do_little",
        criterion="erasure",
        statement=f"Where two weights differ by less than {SMALL_DIFFERENCE}, it hardly matters which of them is erased",
        source=f"{SOURCE} (figure 3)",
        measure=share_of("drawn_delta_js_attention", "drawn_delta_attention_attention", value=near_zero),
        quantity=f"share of those examples with |ΔJS| < {NEAR_ZERO} nats; more than half is asked for",
        threshold=0.5,
        level="state",
    ),
)


def of_importance(name: str, title: str) -> tuple[Headline, ...]:
    """The numbers of one way to choose the top item."""
    return (
        Headline(f"delta_js_{name}", f"JS(top by {title}) - JS(random)"),
        Headline(f"delta_js_negative_{name}", "  share of others that do more"),
        Headline(f"flip_top_{name}", "  top flips the decision"),
        Headline(f"flip_random_{name}", "  a random other one does"),
    )


READING = Reading(
    probe=PROBE,
    of_importance=of_importance,
    mark="flip_top_",
    title="Erasing one weight: does the most attended item matter most?",
    about=(
        "One attention weight is set to 0, the others are renormalised, and the prediction is compared with the original "
        "one: its Jensen-Shannon divergence (nats, 0 to ln 2 = 0.69), and whether the decision flips. ΔJS is that of the "
        "most attended item minus that of a random other one: above 0 the top item matters more. In the hierarchical "
        "models an item is a sentence, in the flat ones a word. In a long text no single item may matter, whatever the "
        "attention, and an attended state without one weight is one that the decoder was not trained on."
    ),
    claims=CLAIMS,
    order=50,
    maps=(
        HeatMap(
            "effect_js",
            "Effect of erasing one weight",
            "JSD of the prediction, in nats; shaded relative to the largest",
            relative=True,
        ),
        HeatMap("effect_flip", "Flips alone", "1 where erasing this weight alone flips the decision"),
    ),
    columns=(Column("delta_js_attention", "ΔJS, most attended − random"),),
    headlines=(
        Headline("tau_attention_effect", "tau(attention, effect of erasure)"),
        Headline("undefined_erasure", "share with all weight on one item"),
    ),
    tables=(
        Tabulation(
            "single_weight_flips",
            "Does erasing one item flip the decision? Shares of the examples of two items or more: the top item and a "
            "random other one both do, only the top one does, only the random one, neither (Serrano & Smith 2019, "
            "table 2; the random item averaged over all others).",
            flip_rows,
            ("flip_top_*", "flip_random_*"),
        ),
    ),
    drawings=(
        Drawing("single_weight_delta", delta, tuple((PROBE, metric) for metric in SCATTER), optional=()),
        Drawing("single_weight_flips", flips, tuple((PROBE, metric) for metric in FLIPS), optional=()),
    ),
)
