"""Every layer and head: which attentions matter, and what they attend to."""

import re
from collections.abc import Iterator

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnprobe.errors import UserError
from attnprobe.report.figures.grid import DOT, around, counted, grid, title
from attnprobe.report.figures.notes import note
from attnprobe.report.importances import facts_of, importances_in
from attnprobe.report.reading import Drawing, HeatMap, Reading, Tabulation
from attnprobe.report.wide import RUN, by_run, metrics_there
from attnprobe.results.schema import SITE

PROBE = "sites"
MEASURES = {
    "median_tvd": "weights permuted: TVD",
    "uniform_tvd": "made even: TVD",
    "top_tvd": "without its top word: TVD",
    "top_flips": "without its top word: share of flips",
    "max_attention": "largest weight",
    "evenness": "evenness (1: uniform)",
    "special_mass": "share on no word of the text",
    "auprc_rationale": "AUPRC of the rationale",
}
"""Metric → what its map is called, in the order of the maps; one of every `tau_X` follows."""
ALL = -1
"""The column of a layer's heads together."""


def layer_and_head(site: str) -> tuple[int, int] | None:
    """The numbers in a site's name, the head `ALL` where it is of all heads; None for other names, and for numbers of more
    than three digits: a map has a cell for each, and the name comes from a file.

    >>> layer_and_head("layer 2, head 11"), layer_and_head("layer 2"), layer_and_head("layer 1000000000")
    ((2, 11), (2, -1), None)
    """
    match = re.fullmatch(r"layer (\d{1,3})(?:, head (\d{1,3}))?", site)
    return None if match is None else (int(match[1]), ALL if match[2] is None else int(match[2]))


def titles(results: pd.DataFrame) -> dict[str, str]:
    """Metric → title, of those that the results have."""
    taus = {
        f"tau_{name}": f"τ with {facts_of(name, results, PROBE).title}"
        for name in importances_in(results, PROBE, "tau_")
    }
    there = metrics_there(results, PROBE)
    return {metric: words for metric, words in (MEASURES | taus).items() if metric in there}


def means(results: pd.DataFrame) -> Iterator[tuple[tuple[int | str, ...], pd.DataFrame]]:
    """Of each run what identifies it, and a table with a row per layer and head: `layer`, `head`, `n`, and the mean of the
    texts of every metric."""
    plain = results[(results["probe"] == PROBE) & results["step"].isna() & (results["example_id"] >= 0)]
    for key, rows in by_run(plain, np.arange(len(plain))):
        own = plain.iloc[rows]
        own = own.assign(metric=own["metric"].astype(str), site=own[SITE].astype(str))
        wide = own.pivot_table(index=SITE, columns="metric", values="value", aggfunc="mean", dropna=False)
        places = {site: layer_and_head(str(site)) for site in wide.index}
        wide = wide[[places[site] is not None for site in wide.index]]
        layers = [place for site in wide.index if (place := places[site]) is not None]
        wide.insert(0, "layer", [layer for layer, _ in layers])
        wide.insert(1, "head", [head for _, head in layers])
        wide.insert(2, "n", own["example_id"].nunique())
        yield key, wide.sort_values(["layer", "head"]).reset_index(drop=True)


def rows(results: pd.DataFrame) -> pd.DataFrame:
    """Mean of the texts of every measure at each layer and head."""
    words, lines = titles(results), []
    for key, table in means(results):
        named = dict(zip(RUN, key, strict=True))
        for record in table.to_dict("records"):
            head = "all" if record["head"] == ALL else str(record["head"])
            place = {"data and model": DOT.join([str(named["data"]), str(named["model"]), f"seed {named['seed']}"])}
            place |= {"layer": record["layer"], "head": head, "n": record["n"]}
            lines.append(place | {title: record.get(metric, np.nan) for metric, title in words.items()})
    return pd.DataFrame(lines)


def maps(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """A map of every measure: mean of the texts, the last layer on top, its heads side by side and all of them together on
    the right. Each map has its own scale. What is exchanged is the attention at one place alone; TVD is how far the
    prediction moves then, 0 to 1."""
    words, each = titles(results), list(means(results))
    panels = [(key, table, metric) for key, table in each for metric in words if metric in table and len(table)]
    if not panels:
        raise UserError(
            f"the table of probe {PROBE} names no layer: expected sites such as 'layer 2, head 11'; measure it again"
        )
    deepest = max(int(table["layer"].max()) for _, table, _ in panels)
    figure, axes = grid(len(panels), panel_height=0.55 + 0.15 * (deepest + 1), columns=2)
    for panel, (key, table, metric) in zip(axes, panels, strict=True):
        named = dict(zip(RUN, key, strict=True))
        of = [] if len(each) == 1 else [str(named["data"]), str(named["model"]), f"seed {named['seed']}"]
        draw(panel, table, metric)
        title(panel, counted(DOT.join([words[metric], *of]), int(table["n"].max())), 2.2 * 72)
    around(figure, x="head", y="layer")
    return figure


def draw(panel: Axes, table: pd.DataFrame, metric: str) -> None:
    """One map, its numbers in it."""
    heads = int(table["head"].max()) + 1
    shown: Float[np.ndarray, "layers columns"] = np.full((int(table["layer"].max()) + 1, heads + 2), np.nan)
    for layer, head, value in zip(table["layer"], table["head"], table[metric], strict=True):
        shown[layer, heads + 1 if head == ALL else head] = value
    signed = metric.startswith("tau_")
    largest = float(np.nanmax(np.abs(shown))) if np.isfinite(shown).any() else 1.0
    low, colours = (-largest, "RdBu_r") if signed else (0.0, "Blues")
    panel.imshow(
        np.ma.masked_invalid(shown), cmap=colours, vmin=low, vmax=largest or 1.0, aspect="auto", origin="lower"
    )
    for (y, x), value in np.ndenumerate(shown):
        if not np.isnan(value):
            shade = "white" if abs(value) > 0.6 * largest else "black"
            panel.annotate(short(value), (x, y), ha="center", va="center", fontsize=5.5, color=shade)
            which = f"head {x}" if x <= heads - 1 else "all heads"
            note(panel, x, y, f"layer {y}, {which}: {value:.4g}", width=1, height=1)
    numbers = range(heads) if heads <= 16 else range(0, heads, 4)
    panel.set_xticks([*numbers, heads + 1], [*map(str, numbers), "all"])
    panel.set_yticks(range(len(shown)))
    panel.tick_params(length=0)


def short(value: float) -> str:
    """A number in as few characters as a cell has room for.

    >>> short(0.25), short(-0.031), short(1.0), short(0.0004)
    ('.25', '-.03', '1', '0')
    """
    text = f"{value:.2f}"
    if float(text) in (0, 1, -1):
        return str(int(float(text)))
    return text.replace("0.", ".", 1)


READING = Reading(
    probe=PROBE,
    title="Layers and heads: which attention is which?",
    about=(
        "Each layer's attention, and each of its heads, is examined by itself on the same texts: the row that the prediction "
        "is read from (or all rows, as model.rows says), one weight per word. It is exchanged there and nowhere else: for "
        "its own weights in other places, for even ones, and for itself without its top word; the numbers say how far the "
        "prediction moves. A head that nothing depends on may show anything; one with most of its weight on special tokens "
        "(or the other text of a pair) says little about words. Below them, how each ranks the words against other "
        "importances, which are the same for all."
    ),
    order=57,
    maps=(HeatMap("attention", "Attention", "of the layer and head chosen above; the weights of a text sum to 1"),),
    tables=(
        Tabulation(
            "sites",
            "Every layer and head (counted from 0; all: the mean of its heads), mean over the n texts: TVD of the "
            "predictions with permuted, even, and top-less attention there, share of decisions that flip, largest weight, "
            "evenness, share on no word of the text, Kendall's tau-b with other importances.",
            rows,
        ),
    ),
    drawings=(Drawing("sites", maps, ((PROBE, "median_tvd"),)),),
)
