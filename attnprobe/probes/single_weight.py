"""Is the most attended item the one that matters most? Erase one weight (Serrano & Smith 2019,
section 4)."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from matplotlib import colormaps
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure
from torch import Tensor

from attnprobe.core.metrics import JSD, JSD_DIFFERENCE, SHARE, TAU, TRUTH, Metric, Scale
from attnprobe.core.randomness import Draws
from attnprobe.evidence.claims import Claim
from attnprobe.evidence.evidence import mean_of, share_of
from attnprobe.evidence.reading import (
    Column,
    Drawing,
    Headline,
    HeatMap,
    Reading,
    Tabulation,
    facet_table,
    facts_of,
    importances_in,
)
from attnprobe.exact.erasure import erase_each
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
    """Erase the weight of the top item i* by each importance, renormalise, and compare with erasing
    another item r.

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
        readout = subject.readout
        content = readout.content
        attention = readout.attention
        effect = erase_each(readout)
        step = positions(content)
        yield Measurement("effect_js", effect.divergence, step)
        yield Measurement("effect_flip", effect.flips, step)
        noise = draws.uniform(1, content, readout.example_id)[0]
        for name, scores in self.scores(subject).items():
            # the highest-scored item's erasure, that of the others, and of the one with the most
            # noise among them
            top = scores.nan_to_num(nan=0).masked_fill(~content, -torch.inf).argmax(-1)
            others = content.scatter(-1, top.unsqueeze(-1), False)
            count = torch.where(others.any(-1), others.sum(-1), torch.nan)
            drawn = noise.masked_fill(~others, -1).argmax(-1)
            js_top = _at(effect.divergence, top)
            flip_top = _at(effect.flips, top)
            larger = (effect.divergence > js_top.unsqueeze(-1)).double()
            larger = torch.where(
                (effect.divergence + js_top.unsqueeze(-1)).isnan(), torch.nan, larger
            )
            js_random, flip_random, negative = (
                torch.where(others, one, 0).sum(-1) / count
                for one in (effect.divergence, effect.flips, larger)
            )
            undefined = undefined_in(scores, content)
            for metric, value in {
                "js_top": js_top,
                "flip_top": flip_top,
                "js_random": js_random,
                "flip_random": flip_random,
                "delta_js": js_top - js_random,
                "delta_js_negative": negative,
                "drawn_delta_js": (js_top - _at(effect.divergence, drawn)).masked_fill(
                    count.isnan(), torch.nan
                ),
                "drawn_delta_attention": (_at(attention, top) - _at(attention, drawn)).masked_fill(
                    count.isnan(), torch.nan
                ),
                "drawn_flip": _at(effect.flips, drawn)
                .double()
                .masked_fill(count.isnan(), torch.nan),
            }.items():
                yield Measurement(
                    f"{metric}_{self.label(name)}", value.double().masked_fill(undefined, torch.nan)
                )
        order = attention.masked_fill(~content, -torch.inf).argsort(
            dim=-1, descending=True, stable=True
        )
        several = content.sum(-1) > 1
        last = (content.sum(-1) - 1).unsqueeze(-1)
        for name, place in (("second", torch.ones_like(last)), ("lowest", last)):
            item = order.gather(-1, place.clamp(max=order.shape[1] - 1)).squeeze(-1)
            yield Measurement(
                f"js_{name}", torch.where(several, _at(effect.divergence, item), torch.nan)
            )
            yield Measurement(
                f"flip_{name}", torch.where(several, _at(effect.flips, item), torch.nan)
            )
        yield Measurement(
            "tau_attention_effect", kendall_tau(attention, effect.divergence, content)
        )
        yield Measurement("undefined_erasure", undefined_in(effect.divergence, content))
        yield from self.notes(subject)


def _at(values: Float[Tensor, "batch seq"], item: Int[Tensor, "batch"]) -> Float[Tensor, "batch"]:
    return values.gather(-1, item.unsqueeze(-1)).squeeze(-1)


SCATTER = ("drawn_delta_js_attention", "drawn_delta_attention_attention")
FLIPS = ("flip_top_attention", "flip_random_attention")
CELLS = ("both", "top only", "random only", "neither")
SHADES = LinearSegmentedColormap.from_list("examples", colormaps["Blues"](np.linspace(0.3, 1, 64)))
"""A single example must be seen: the lightest shade is not white."""


def delta(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """ΔJS = JS(most attended item erased) − JS(a random other one erased). Across: the difference
    of their weights. One other item per example; darker where there are more examples. How many
    stand above each quarter, and the share of them below 0.

    Serrano & Smith's figure 3.
    """
    figure, panels = facet_grid(results, "single_weight", SCATTER, panel_height=1.9, columns=2)
    low = -0.1
    high = 0.8
    drawn = []
    for panel, facet in panels:
        js, weight = facet.rows[list(SCATTER)].dropna().to_numpy().T
        if len(js):
            hexagons = panel.hexbin(
                weight,
                np.clip(js, low, high),
                gridsize=(32, 20),
                extent=(0, 1, low, high),
                mincnt=1,
                cmap=SHADES,
                edgecolors="none",
            )
            drawn.append(hexagons)
        panel.axhline(0, lw=0.5, color=INK)
        inside = [js[max_attention_bin(weight) == quarter] for quarter in range(4)]
        below = [f"\n{100 * (some < 0).mean():.1f} % < 0" if len(some) else "" for some in inside]
        quarters(
            panel,
            high,
            [f"n = {len(some):,}{share}" for some, share in zip(inside, below, strict=True)],
        )
        panel.set_ylim(low, high)
        title(panel, facet.title)
    around(figure, x="difference of the attention weights", y="ΔJS (nats)")
    if drawn:
        # one scale for all panels
        most = max(2, *(int(np.max(np.asarray(hexagons.get_array()))) for hexagons in drawn))
        scale = LogNorm(1, most)
        for hexagons in drawn:
            hexagons.set_norm(scale)
        bar = figure.colorbar(drawn[0], ax=[panel for panel, _ in panels], aspect=30, pad=0.02)
        ticks = [tick for tick in (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000) if tick <= most]
        bar.set_ticks(ticks, labels=[f"{tick:,}" for tick in ticks], minor=False)
        bar.set_ticks([], minor=True)
        bar.set_label("examples")
    return figure


def flip_table(results: pd.DataFrame, only: str = "") -> pd.DataFrame:
    """The 2×2 table of decision flips per data set, model and importance, in shares of the `n`
    examples of two items or more. A random other item counts as flipping in as large a part as
    there are other items that do."""

    one = {only: facts_of(only, results, "single_weight")} if only else {}
    importances = one or importances_in(results, "single_weight", "flip_top_")

    def lines(rows: pd.DataFrame) -> Iterator[dict[str, object]]:
        for name, facts in importances.items():
            first, other = rows[[f"flip_top_{name}", f"flip_random_{name}"]].dropna().to_numpy().T
            shares = (
                first * other,
                first * (1 - other),
                (1 - first) * other,
                (1 - first) * (1 - other),
            )
            means = [float(share.mean()) if len(share) else np.nan for share in shares]
            yield {
                "top by": facts.ascii_title,
                **dict(zip(CELLS, means, strict=True)),
                "n": len(first),
            }

    metrics = [f"{kind}_{name}" for name in importances for kind in ("flip_top", "flip_random")]
    table = facet_table(results, "single_weight", metrics, lines)
    return table if only or table.empty else table.query("n > 0").reset_index(drop=True)


def flips(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """How often does the decision flip, in percent? The most attended item erased against a random
    other one.

    Serrano & Smith's table 2.
    """
    table = flip_table(results, "attention")
    figure, axes = grid(len(table), panel_height=1.5)
    records: list[Any] = table.to_dict("records")
    for panel, row in zip(axes, records, strict=True):
        shares = np.array([row[name] for name in CELLS]).reshape(2, 2)
        cells(
            panel,
            shares,
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
        statement="Erasing the top item moves the prediction farther than erasing a random other one",
        source=f"{SOURCE} (figure 3)",
        measure=mean_of("delta_js_attention", ends=(-LN2, LN2)),
        quantity="ΔJS, mean of the examples, nats, −ln 2 to ln 2",
        speaks="for",
        smallest=0.001,
    ),
    claim(
        name="effects_follow_attention",
        statement="The order of the weights is by and large the order of what erasing each of them does",
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
        measure=share_of(
            *SCATTER,
            value=lambda delta, weight: np.where(
                (weight < SMALL_DIFFERENCE) & ~np.isnan(delta), np.abs(delta) < NEAR_ZERO, np.nan
            ),
        ),
        quantity=f"share of those examples with |ΔJS| < {NEAR_ZERO} nats; more than half is asked for",
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
            "effect_flip", "Flips alone", "1 where erasing this weight alone flips the decision"
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
