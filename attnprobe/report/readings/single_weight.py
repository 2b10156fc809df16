"""Erasing one weight: does the most attended item matter most? (Serrano & Smith 2019, section 4)"""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from attnprobe.report.facets import Facet, facets, per_example
from attnprobe.report.panels import grid, title
from attnprobe.report.reading import Drawing, Headline, Reading
from attnprobe.report.style import FAINT, INK

PROBE = "single_weight"
TOPS = {"attention": "attention", "gradient": "gradient", "gradient_attention": "gradient x attention"}
"""What the top item is chosen by → in words."""
SCATTER = ("drawn_delta_js_attention", "drawn_delta_attention_attention")
FLIPS = ("flip_top_attention", "flip_random_attention")
CELLS = ("both", "top_only", "random_only", "neither")
EDGES = (0.0, 0.25, 0.5, 0.75, 1.0)


def delta(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """ΔJS = JS(most attended item erased) − JS(a random other one erased) against the difference of their weights, one
    other item per example; darker where there are more examples. How many stand above each quarter, and the share of
    them below 0.

    Serrano & Smith's figure 3.
    """
    panels = facets(per_example(results, PROBE, SCATTER))
    figure, axes = grid(len(panels), panel_height=1.9, margin=0.2)
    for panel, facet in zip(axes, panels, strict=True):
        _hexagons(panel, facet)
    figure.supxlabel("difference of the attention weights", fontsize=7.5)
    figure.supylabel("ΔJS (nats)", fontsize=7.5)
    return figure


def _hexagons(axes: Axes, facet: Facet) -> None:
    rows = facet.rows.dropna(subset=list(SCATTER))
    js, weight = (rows[metric].to_numpy() for metric in SCATTER)
    low, high = -0.1, 0.8
    if len(rows):
        axes.hexbin(
            weight, np.clip(js, low, high), gridsize=(32, 20), extent=(0, 1, low, high), mincnt=1,
            norm=LogNorm(vmin=0.3), cmap="Blues", edgecolors="none",
        )  # fmt: skip
    axes.axhline(0, lw=0.5, color=INK)
    quarter = np.clip(np.digitize(weight, EDGES) - 1, 0, len(EDGES) - 2)
    for number, start in enumerate(EDGES[:-1]):
        inside = js[quarter == number]
        text = f"n = {len(inside):,}" + (f"\n{100 * (inside < 0).mean():.1f} % < 0" if len(inside) else "")
        axes.annotate(text, (start + 0.125, high), ha="center", va="top", fontsize=5, color=FAINT)
    for edge in EDGES[1:-1]:
        axes.axvline(edge, lw=0.4, color="#DDDDDD", zorder=0)
    axes.set_xlim(0, 1)
    axes.set_ylim(low, high)
    title(axes, facet.title)


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


def flip_latex(results: pd.DataFrame, top: str = "attention") -> str:
    """`flip_table` in percent, as a LaTeX tabular (booktabs)."""
    rows = []
    table: list[Any] = flip_table(results, top).to_dict("records")
    for row in table:
        cells = [f"{100 * row[name]:.1f}" for name in CELLS]
        rows.append(" & ".join([latex(row["panel"]), *cells, str(row["n"])]) + " \\\\")
    head = [
        "\\begin{tabular}{lrrrrr}",
        "\\toprule",
        f"flipped by & both & only top ({latex(TOPS[top])}) & only random & neither & $n$ \\\\",
        "\\midrule",
    ]
    return "\n".join([*head, *rows, "\\bottomrule", "\\end{tabular}", ""])


def latex(text: str) -> str:
    """The text with what LaTeX takes for commands escaped.

    >>> print(latex("yelp_5 · 10 %"))
    yelp\\_5 $\\cdot$ 10 \\%
    """
    replacements = {"\\": "\\textbackslash{}", "·": "$\\cdot$", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}"}
    replacements |= {character: f"\\{character}" for character in "&%$#_{}"}
    return "".join(replacements.get(character, character) for character in text)


def flips(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """The 2×2 tables of decision flips: erasing the most attended item against erasing a random other one, in percent.

    Serrano & Smith's table 2.
    """
    table = flip_table(results)
    figure, axes = grid(len(table), panel_height=1.35, margin=0.25)
    records: list[Any] = table.to_dict("records")
    for panel, row in zip(axes, records, strict=True):
        cells = np.array([row[name] for name in CELLS]).reshape(2, 2)
        panel.imshow(cells, cmap="Blues", vmin=0, vmax=1.4, aspect="auto")
        for (y, x), share in np.ndenumerate(cells):
            panel.annotate(f"{100 * share:.1f}", (x, y), ha="center", va="center", fontsize=8)
        panel.set_xticks([0, 1], ["flips", "does not"])
        panel.set_yticks([0, 1], ["flips", "does not"], rotation=90, va="center")
        panel.tick_params(length=0)
        title(panel, f"{row['panel']} · n = {row['n']:,}")
    figure.supxlabel("erasing a random other item", fontsize=7.5)
    figure.supylabel("erasing the most attended", fontsize=7.5)
    return figure


READING = Reading(
    probe=PROBE,
    order=50,
    headlines=(
        *(
            headline
            for name, words in TOPS.items()
            for headline in (
                Headline(f"delta_js_{name}", f"JS(top by {words}) - JS(random)"),
                Headline(f"delta_js_negative_{name}", "  share of others that do more"),
                Headline(f"flip_top_{name}", "  top flips the decision"),
                Headline(f"flip_random_{name}", "  a random other one does"),
            )
        ),
        Headline("tau_attention_effect", "tau(attention, effect of erasure)"),
        Headline("undefined_erasure", "share with all weight on one item"),
    ),
    drawings=(
        Drawing("single_weight_delta", delta, tuple((PROBE, metric) for metric in SCATTER)),
        Drawing("single_weight_flips", flips, tuple((PROBE, metric) for metric in FLIPS)),
    ),
)
