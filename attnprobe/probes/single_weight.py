"""Is the most attended item the one that matters most? Erase one weight (Serrano & Smith 2019)."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int, Shaped
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure
from torch import Tensor

from attnprobe.core.metrics import JSD, JSD_DIFFERENCE, SHARE, TAU, TRUTH, Metric, Scale
from attnprobe.core.randomness import Draws
from attnprobe.core.readout import Readout
from attnprobe.evidence.claims import Claim
from attnprobe.evidence.evidence import mean_of, share_of
from attnprobe.exact.erasure import SingleErasures, erase_each
from attnprobe.measures import LN2, kendall_tau
from attnprobe.plots.grid import around, cells, counted, facet_grid, grid, quarters, title
from attnprobe.plots.style import INK
from attnprobe.probes.base import (
    DESCRIPTION,
    Measurement,
    Note,
    RankingProbe,
    Subject,
    positions,
    undefined_in,
)
from attnprobe.probes.erasure import FILED
from attnprobe.readings.importances import facts_of, importances_in
from attnprobe.readings.means import facet_table
from attnprobe.readings.reading import Column, Drawing, Headline, HeatMap, Reading, Tabulation
from attnprobe.results.pivot import max_attention_bin

SOURCE = "Serrano & Smith 2019, section 4"
METRICS = (
    Metric(
        "effect_js",
        JSD,
        "JSD of the predictions before and after this item's erasure",
        step="position",
        source=SOURCE,
    ),
    Metric(
        "effect_flip", TRUTH, "another class is ahead afterwards", step="position", source=SOURCE
    ),
    Metric(
        "js_top_{importance}",
        JSD,
        "`effect_js` of the top item",
        higher_is_better=True,
        source=SOURCE,
    ),
    Metric(
        "flip_top_{importance}",
        TRUTH,
        "`effect_flip` of the top item",
        higher_is_better=True,
        source=SOURCE,
    ),
    Metric("js_random_{importance}", JSD, "mean over all other items"),
    Metric("flip_random_{importance}", SHARE, "other items that flip"),
    Metric(
        "delta_js_{importance}",
        JSD_DIFFERENCE,
        "top − random",
        higher_is_better=True,
        source=SOURCE,
    ),
    Metric(
        "delta_js_negative_{importance}",
        SHARE,
        "others whose erasure does more than the top's",
        higher_is_better=False,
        source=SOURCE,
    ),
    Metric(
        "drawn_delta_js_{importance}",
        JSD_DIFFERENCE,
        "top − one other item, drawn at random",
        higher_is_better=True,
    ),
    Metric(
        "drawn_delta_attention_{importance}", Scale("weight", -1, 1), "difference of their weights"
    ),
    Metric("drawn_flip_{importance}", TRUTH, "the drawn one flips", higher_is_better=False),
    Metric("js_second", JSD, "of the second most attended item"),
    Metric("js_lowest", JSD, "of the least attended item", higher_is_better=False),
    Metric("flip_second", TRUTH, "of the second most attended item"),
    Metric("flip_lowest", TRUTH, "of the least attended item", higher_is_better=False),
    Metric("tau_attention_effect", TAU, "of attention and `effect_js`", higher_is_better=True),
    Metric(
        "undefined_erasure",
        TRUTH,
        "some item has all the weight: less than 1e-12 of it is left without that item",
    ),
    *DESCRIPTION,
)


@dataclass
class SingleWeight(RankingProbe):
    """Erase the weight of the top item, and compare with erasing another item.

    For each importance, i* is its top item and r another one; the other weights are renormalised.
    `random` is the mean over all r ≠ i*, `drawn` one r drawn uniformly. The importance
    `attention_gradient` (by the weights, signed) is filed as `gradient`, and `gradient`, of the
    word vectors, as `input_gradient`. NaN where two items are compared in an example of one item,
    or an erasure is undefined.

    Note:
        The published r is a uniformly drawn position other than the first, which may be i* itself.
        The first of tied items is the top one.
    """

    name = "single_weight"
    metrics = METRICS
    one_decision = True
    published = ("attention", "attention_gradient", "gradient_attention")
    filed = FILED

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield the effect of every item, and how the top item compares with the others."""
        readout = subject.readout
        content = readout.content
        effect = erase_each(readout)
        yield Measurement("effect_js", effect.divergence, positions(content, readout.text))
        yield Measurement("effect_flip", effect.flips, positions(content, readout.text))

        noise = draws.uniform(1, content, readout.example_id)[0]
        for name, scores in self.scores(subject).items():
            undefined = undefined_in(scores, content)
            for metric, value in top_against_others(readout, effect, scores, noise).items():
                value_if_defined = value.double().masked_fill(undefined, torch.nan)
                yield Measurement(f"{metric}_{self.label(name)}", value_if_defined)

        for name, item in {"second": second_item(readout), "lowest": lowest_item(readout)}.items():
            for metric, values in {"js": effect.divergence, "flip": effect.flips}.items():
                value = torch.where(content.sum(-1) > 1, _at(values, item), torch.nan)
                yield Measurement(f"{metric}_{name}", value)
        tau = kendall_tau(readout.attention, effect.divergence, content)
        yield Measurement("tau_attention_effect", tau)
        yield Measurement("undefined_erasure", undefined_in(effect.divergence, content))
        yield from self.notes(subject)


def top_against_others(
    readout: Readout,
    effect: SingleErasures,
    scores: Float[Tensor, "batch seq"],
    noise: Float[Tensor, "batch seq"],
) -> dict[str, Float[Tensor, "batch"]]:
    """The metrics of one importance: its top item against all others, and against a drawn one.

    Args:
        readout: the texts.
        effect: of erasing each item.
        scores: of the importance.
        noise: the other item with the most noise is the drawn one.
    """
    content = readout.content
    top = scores.nan_to_num(nan=0).masked_fill(~content, -torch.inf).argmax(-1)
    js_top = _at(effect.divergence, top)
    flip_top = _at(effect.flips, top)

    is_other = content.scatter(-1, top.unsqueeze(-1), False)
    count = torch.where(is_other.any(-1), is_other.sum(-1), torch.nan)

    def mean_of_others(values: Float[Tensor, "batch seq"]) -> Float[Tensor, "batch"]:
        return torch.where(is_other, values, 0).sum(-1) / count

    is_undefined = (effect.divergence + js_top.unsqueeze(-1)).isnan()
    does_more = (effect.divergence > js_top.unsqueeze(-1)).double()
    does_more = does_more.masked_fill(is_undefined, torch.nan)
    js_random = mean_of_others(effect.divergence)

    drawn = noise.masked_fill(~is_other, -1).argmax(-1)
    delta_drawn = js_top - _at(effect.divergence, drawn)
    attention_drawn = _at(readout.attention, top) - _at(readout.attention, drawn)
    has_no_other = count.isnan()
    return {
        "js_top": js_top,
        "flip_top": flip_top,
        "js_random": js_random,
        "flip_random": mean_of_others(effect.flips),
        "delta_js": js_top - js_random,
        "delta_js_negative": mean_of_others(does_more),
        "drawn_delta_js": delta_drawn.masked_fill(has_no_other, torch.nan),
        "drawn_delta_attention": attention_drawn.masked_fill(has_no_other, torch.nan),
        "drawn_flip": _at(effect.flips, drawn).double().masked_fill(has_no_other, torch.nan),
    }


def second_item(readout: Readout) -> Int[Tensor, "batch"]:
    """The item with the second largest weight; some position in a text of one item."""
    return _by_attention(readout)[:, min(1, readout.content.shape[1] - 1)]


def lowest_item(readout: Readout) -> Int[Tensor, "batch"]:
    """The item with the smallest weight."""
    last = (readout.content.sum(-1) - 1).clamp(max=readout.content.shape[1] - 1)
    return _at(_by_attention(readout), last)


def _by_attention(readout: Readout) -> Int[Tensor, "batch seq"]:
    weights = readout.attention.masked_fill(~readout.content, -torch.inf)
    return weights.argsort(dim=-1, descending=True, stable=True)


def _at(values: Shaped[Tensor, "batch seq"], item: Int[Tensor, "batch"]) -> Shaped[Tensor, "batch"]:
    return values.gather(-1, item.unsqueeze(-1)).squeeze(-1)


SCATTER = ("drawn_delta_js_attention", "drawn_delta_attention_attention")
LOWEST_DELTA = -0.1
HIGHEST_DELTA = 0.8
"""Ends of the figure's axis of ΔJS, nats."""
FLIPS = ("flip_top_attention", "flip_random_attention")
CELLS = ("both", "top only", "random only", "neither")
SHADES = LinearSegmentedColormap.from_list("examples", colormaps["Blues"](np.linspace(0.3, 1, 64)))
"""A single example must be seen: the lightest shade is not white."""


def delta(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """ΔJS = JS(most attended item erased) − JS(a random other one erased).

    Across: the difference of their weights. One other item per example; darker where there are more
    examples. How many stand above each quarter, and the share of them below 0. Serrano & Smith's
    figure 3.
    """
    figure, panels = facet_grid(results, "single_weight", SCATTER, panel_height=1.9, columns=2)
    hexagons = []
    for panel, facet in panels:
        js, weight = facet.rows[list(SCATTER)].dropna().to_numpy().T
        if len(js):
            hexagons.append(_hexagons(panel, weight, js))
        panel.axhline(0, lw=0.5, color=INK)
        notes = []
        for quarter in range(4):
            values = js[max_attention_bin(weight) == quarter]
            share = f"\n{100 * (values < 0).mean():.1f} % < 0" if len(values) else ""
            notes.append(f"n = {len(values):,}{share}")
        quarters(panel, HIGHEST_DELTA, notes)
        panel.set_ylim(LOWEST_DELTA, HIGHEST_DELTA)
        title(panel, facet.title)
    around(figure, x="difference of the attention weights", y="ΔJS (nats)")
    if hexagons:
        _share_colours(figure, hexagons, [panel for panel, _ in panels])
    return figure


def _hexagons(
    panel: Axes, weight: Float[np.ndarray, " examples"], js: Float[np.ndarray, " examples"]
) -> PolyCollection:
    """How many examples have which difference of weights and which ΔJS."""
    return panel.hexbin(
        weight,
        np.clip(js, LOWEST_DELTA, HIGHEST_DELTA),
        gridsize=(32, 20),
        extent=(0, 1, LOWEST_DELTA, HIGHEST_DELTA),
        mincnt=1,
        cmap=SHADES,
        edgecolors="none",
    )


def _share_colours(figure: Figure, hexagons: list[PolyCollection], panels: list[Axes]) -> None:
    """One scale of colours for all panels, with its bar."""
    largest = [int(np.max(np.asarray(panel_hexagons.get_array()))) for panel_hexagons in hexagons]
    most = max(2, *largest)
    scale = LogNorm(1, most)
    for panel_hexagons in hexagons:
        panel_hexagons.set_norm(scale)
    bar = figure.colorbar(hexagons[0], ax=panels, aspect=30, pad=0.02)
    # the darkest shade has its number, and the round ones that do not touch it theirs
    ticks = [tick for tick in (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000) if tick <= most / 1.5]
    ticks.append(most)
    bar.set_ticks(ticks, labels=[f"{tick:,}" for tick in ticks], minor=False)
    bar.set_ticks([], minor=True)
    bar.set_label("examples")


def flip_table(results: pd.DataFrame, only: str = "") -> pd.DataFrame:
    """The 2×2 table of decision flips per data set, model and importance.

    In shares of the `n` examples of two items or more. A random other item counts as flipping in as
    large a part as there are other items that do.

    Args:
        results: a long table.
        only: the one importance that is asked about; empty: all that have numbers.
    """
    importances = importances_in(results, "single_weight", "flip_top_")
    if only:
        importances = {only: facts_of(only, results, "single_weight")}

    def lines(rows: pd.DataFrame) -> Iterator[dict[str, object]]:
        for name, facts in importances.items():
            flips_of_items = rows[[f"flip_top_{name}", f"flip_random_{name}"]].dropna()
            top, random = flips_of_items.to_numpy().T
            shares = {
                "both": top * random,
                "top only": top * (1 - random),
                "random only": (1 - top) * random,
                "neither": (1 - top) * (1 - random),
            }
            line: dict[str, object] = {"top by": facts.ascii_title}
            for cell in CELLS:
                line[cell] = float(shares[cell].mean()) if len(top) else np.nan
            yield line | {"n": len(top)}

    metrics = []
    for name in importances:
        metrics += [f"flip_top_{name}", f"flip_random_{name}"]
    table = facet_table(results, "single_weight", metrics, lines)
    if only or table.empty:
        return table
    return table.query("n > 0").reset_index(drop=True)


def flips(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """How often the decision flips, in percent: the most attended item against a random other one.

    Serrano & Smith's table 2.
    """
    table = flip_table(results, "attention")
    figure, panels = grid(len(table), panel_height=1.5)
    records: list[Any] = table.to_dict("records")
    for panel, row in zip(panels, records, strict=True):
        cells(
            panel,
            np.array([row[name] for name in CELLS]).reshape(2, 2),
            lambda share: f"{100 * share:.1f}",
            size=8,
            cmap="Blues",
            vmin=0,
            vmax=1.4,
        )
        panel.set_xticks([0, 1], ["flips", "does not"])
        panel.set_yticks([0, 1], ["flips", "does not"], rotation=90, va="center")
        title(panel, counted(row["data and model"], row["n"]))
    around(figure, x="erasing a random other item", y="erasing the top one")
    return figure


SMALL_DIFFERENCE = 0.4
"""Difference of two weights below which the paper sees ΔJS near 0."""
NEAR_ZERO = 0.01
"""Nats of ΔJS called near 0: a probability of 0.5 that moves to 0.36 is a JSD of 0.01."""
IN_ORDER = 0.5
"""Kendall's τ at which three of four pairs stand in the same order. Above 0 would be no test: a
weight near 0 can do nothing, so that its effect is small by construction."""


def _is_near_zero(
    delta: Float[np.ndarray, " examples"], weight: Float[np.ndarray, " examples"]
) -> Float[np.ndarray, " examples"]:
    """1 where ΔJS is near 0, 0 where not, NaN where the weights differ by too much."""
    is_asked = (weight < SMALL_DIFFERENCE) & ~np.isnan(delta)
    return np.where(is_asked, np.abs(delta) < NEAR_ZERO, np.nan)


claim = partial(Claim, criterion="erasure", level="state")
CLAIMS = (
    claim(
        name="top_flips_more_than_random",
        statement=(
            "Erasing the most attended item flips the decision more often than erasing a random "
            "other one"
        ),
        source=f"{SOURCE} (table 2)",
        measure=mean_of(
            "flip_top_attention", "flip_random_attention", value=np.subtract, ends=(-1, 1)
        ),
        quantity="difference of the shares of the examples that flip, paired, −1 to 1",
        speaks="for",
        smallest=0.02,
    ),
    claim(
        name="delta_js_is_positive",
        statement=(
            "Erasing the top item moves the prediction farther than erasing a random other one"
        ),
        source=f"{SOURCE} (figure 3)",
        measure=mean_of("delta_js_attention", ends=(-LN2, LN2)),
        quantity="ΔJS, mean of the examples, nats, −ln 2 to ln 2",
        speaks="for",
        smallest=0.001,
    ),
    claim(
        name="effects_follow_attention",
        statement=(
            "The order of the weights is by and large the order of what erasing each of them does"
        ),
        source=f"{SOURCE}, asked of every item and not of the top one alone",
        measure=mean_of("tau_attention_effect", ends=(-1, 1)),
        quantity=(
            "Kendall's τ-b of weight and effect, mean of the examples, −1 to 1; more than "
            f"{IN_ORDER} is asked for"
        ),
        speaks="for",
        threshold=IN_ORDER,
    ),
    # The two below hold for any long text, however good its attention: they speak neither way.
    claim(
        name="one_weight_rarely_decides",
        source=f"{SOURCE} (table 2)",
        threshold=0.5,
        statement="Most decisions stay when the most attended item is erased",
        measure=share_of("flip_top_attention", value=lambda flip: 1 - flip),
        quantity="share of the examples whose decision stays; more than half is asked for",
    ),
    claim(
        name="small_differences_do_little",
        source=f"{SOURCE} (figure 3)",
        threshold=0.5,
        statement=(
            f"Where two weights differ by less than {SMALL_DIFFERENCE}, it hardly matters which "
            "of them is erased"
        ),
        measure=share_of(*SCATTER, value=_is_near_zero),
        quantity=(
            f"share of those examples with |ΔJS| < {NEAR_ZERO} nats; more than half is asked for"
        ),
    ),
)

READING = Reading(
    probe="single_weight",
    mark="flip_top_",
    claims=CLAIMS,
    order=50,
    of_importance=(
        Headline("delta_js_{importance}", "JS(top by {title}) - JS(random)"),
        Headline("delta_js_negative_{importance}", "  share of others that do more"),
        Headline("flip_top_{importance}", "  top flips the decision"),
        Headline("flip_random_{importance}", "  a random other one does"),
    ),
    title="Erasing one weight: does the most attended item matter most?",
    about=(
        "Set the largest weight to 0 and scale up the others. Does the decision change? How far "
        "does the prediction move (JSD, 0 to 0.69 nats)? ΔJS is that of the most attended word "
        "minus that of a random one: above 0 the top word matters more. In the hierarchical "
        "models sentences stand for words. In a long text no single word may matter, whatever the "
        "attention, and a state without one weight is one that the decoder was not trained on."
    ),
    maps=(
        HeatMap(
            "effect_js",
            "Effect of erasing one weight",
            "JSD of the prediction, in nats; shaded relative to the largest",
            relative=True,
        ),
        HeatMap(
            "effect_flip",
            "Flips alone",
            "positions whose weight alone, erased, flips the decision",
            is_set=True,
        ),
    ),
    columns=(Column("delta_js_attention", "effect of the top weight beyond a random one"),),
    headlines=(
        Headline("tau_attention_effect", "tau(attention, effect of erasure)"),
        Headline("undefined_erasure", "share with all weight on one item"),
    ),
    tables=(
        Tabulation(
            "single_weight_flips",
            "Does erasing one item flip the decision? Shares of the examples of two items or "
            "more: the top item and a random other one both do, only the top one does, only the "
            "random one, neither (Serrano & Smith 2019, table 2; the random item averaged over "
            "all others).",
            flip_table,
            ("flip_top_*", "flip_random_*"),
        ),
    ),
    drawings=(
        Drawing("single_weight_delta", delta, SCATTER, optional=()),
        Drawing("single_weight_flips", flips, FLIPS, optional=()),
    ),
)
