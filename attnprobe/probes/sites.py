"""Which of a network's attentions matter? The same questions of every layer and head."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from attnprobe.core.errors import UserError
from attnprobe.core.metrics import SCORE, SHARE, TAU, TRUTH, TVD, WEIGHT, Metric
from attnprobe.core.randomness import Draws
from attnprobe.core.readout import Readout
from attnprobe.core.settings import Count
from attnprobe.exact.nulls import permute_attention
from attnprobe.importance.plausibility import average_precision
from attnprobe.measures import entropy, kendall_tau
from attnprobe.models.base import Model
from attnprobe.plots.grid import DOT, around, cells, counted, grid, in_cell, title
from attnprobe.probes.base import Measurement, Note, RankingProbe, Subject, positions
from attnprobe.readings.importances import importances_in
from attnprobe.readings.reading import Drawing, HeatMap, Reading, Tabulation
from attnprobe.results.directory import SITE
from attnprobe.results.pivot import RUN, by_run, metrics_there

METRICS = (
    Metric("attention", WEIGHT, "what a reader of this layer or head would see", step="position"),
    Metric("max_attention", WEIGHT),
    Metric("evenness", SHARE, "entropy / ln n; 1 is uniform"),
    Metric("special_mass", SHARE, "of its attention that is on no word of the text"),
    Metric(
        "median_tvd",
        TVD,
        "its weights permuted, and nothing else: median over the permutations",
        higher_is_better=True,
        source="Jain & Wallace 2019, section 4.2.1",
    ),
    Metric("uniform_tvd", TVD, "every word the same", higher_is_better=True),
    Metric("top_tvd", TVD, "without its most attended word", higher_is_better=True),
    Metric("top_flips", TRUTH, "the decision is another then", higher_is_better=True),
    Metric(
        "tau_{importance}", TAU, "with the size of the importance's scores", higher_is_better=True
    ),
    Metric(
        "auprc_rationale",
        SCORE,
        "average precision",
        higher_is_better=True,
        only="data with rationales",
    ),
)


@dataclass
class Sites(RankingProbe):
    """Every attention of the network on the same texts: of each layer, and of each head by itself.

    What would a reader of this layer or head see? How far does the prediction move (TVD) where this
    attention alone is exchanged? How does it rank the words against each importance, by the size of
    its scores?

    The exchanges: weights to other words (Jain & Wallace 2019); the same for every word (Wiegreffe
    & Pinter 2019); the most attended word's weight shared by the others (Serrano & Smith 2019).

    Attributes:
        samples: permutations per text and site.
        importances: see `RankingProbe`; leave-one-out takes as many passes as a text has words.
    """

    name = "sites"
    metrics = METRICS
    of_words = True
    slow = True
    published = ("gradient", "leave_one_out")
    samples: Count = 5

    def refuse(self, classifier: Model) -> None:
        """Refuse a model with one attention as well."""
        super().refuse(classifier)
        if len(classifier.sites) < 2:
            raise UserError(
                "probe sites compares the layers and heads of a network, and this model has one "
                "attention: leave it out of probe=[…], or take model=pretrained"
            )

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield what is asked of each attention, with the attention's name as its site."""
        text = subject.batch.content
        noise = draws.uniform(self.samples, text, subject.batch.example_id)
        scores = {name: values.abs().double() for name, values in self.scores(subject).items()}
        rationale = subject.batch.rationale
        for site in subject.classifier.at_sites(subject.batch):
            attention = site.readout.attention
            content = site.readout.content
            numbers = exchanged(site.readout, noise)
            numbers |= shape_of(attention, content)
            assert site.outputs.off_text is not None
            numbers["special_mass"] = site.outputs.off_text
            for name, values in scores.items():
                numbers[f"tau_{name}"] = kendall_tau(attention, values, content)
            if rationale is not None:
                precision = average_precision(attention, rationale, content)
                is_marked = (rationale & content).any(-1)
                numbers["auprc_rationale"] = torch.where(is_marked, precision, torch.nan)
            for metric, value in numbers.items():
                yield Measurement(metric, value, site=site.name)
            yield Measurement("attention", attention, positions(content, text), site.name)
        yield from self.notes(subject)


def exchanged(
    readout: Readout, noise: Float[Tensor, "samples batch seq"]
) -> dict[str, Float[Tensor, "batch"]]:
    """How far the prediction moves where this attention is exchanged, by the metric's name.

    Args:
        readout: of one attention.
        noise: by which its weights are permuted.
    """
    attention = readout.attention
    content = readout.content
    length = content.sum(-1, keepdim=True).double()
    without_largest = attention.scatter(-1, attention.argmax(-1, keepdim=True), 0.0)
    remaining = without_largest.sum(-1, keepdim=True)
    # made to sum to 1; as it was where nothing else has any weight
    divisor = torch.where(remaining > 0, remaining, 1)
    without_top = torch.where(remaining > 0, without_largest / divisor, attention)

    permuted = permute_attention(attention, content, noise)
    even = content.double() / length
    prediction = readout.prediction()
    changed = readout.predict(torch.cat([permuted, even[None], without_top[None]]))
    distance = readout.distance(changed, prediction)
    flips = (changed[-1].argmax(-1) != prediction.argmax(-1)).double()

    # the only word of a text cannot be left out
    has_others = length[:, 0] > 1
    return {
        "median_tvd": distance[:-2].quantile(0.5, dim=0),
        "uniform_tvd": distance[-2],
        "top_tvd": torch.where(has_others, distance[-1], torch.nan),
        "top_flips": torch.where(has_others, flips, torch.nan),
    }


def shape_of(
    attention: Float[Tensor, "batch seq"], content: Bool[Tensor, "batch seq"]
) -> dict[str, Float[Tensor, "batch"]]:
    """The largest weight, and how even all are; the only word of a text is neither even nor not."""
    length = content.sum(-1).double()
    largest_entropy = torch.where(length > 1, length.log(), torch.nan)
    return {
        "max_attention": attention.amax(-1),
        "evenness": entropy(attention, content) / largest_entropy,
    }


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
    """The numbers in a site's name, the head `ALL` where it is of all heads.

    None for other names, and for numbers of more than three digits: a map has a cell for each, and
    the name comes from a file.

    >>> layer_and_head("layer 2, head 11"), layer_and_head("layer 2")
    ((2, 11), (2, -1))
    >>> layer_and_head("layer 1000000000")
    """
    match = re.fullmatch(r"layer (\d{1,3})(?:, head (\d{1,3}))?", site)
    if match is None:
        return None
    head = ALL if match[2] is None else int(match[2])
    return int(match[1]), head


def _titles(results: pd.DataFrame) -> dict[str, str]:
    """Metric → the title of its map, of the metrics that there are numbers of."""
    titles = dict(MEASURES)
    for name, facts in importances_in(results, "sites", "tau_").items():
        titles[f"tau_{name}"] = f"τ with {facts.title}"
    measured = metrics_there(results, "sites")
    return {metric: heading for metric, heading in titles.items() if metric in measured}


def means(results: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """For each run a heading (its data, model and seed) and a table with a row per layer and head.

    The columns are `layer`, `head`, `n`, and every metric's mean over the texts.
    """
    plain = results[
        (results["probe"] == "sites") & results["step"].isna() & (results["example_id"] >= 0)
    ]
    for key, rows in by_run(plain):
        named = rows.assign(metric=rows["metric"].astype(str), site=rows[SITE].astype(str))
        table = named.pivot_table(
            index=SITE, columns="metric", values="value", aggfunc="mean", dropna=False
        )
        places = [layer_and_head(str(site)) for site in table.index]
        table = table[[place is not None for place in places]]
        known_places = [place for place in places if place is not None]
        table.insert(0, "layer", [layer for layer, _ in known_places])
        table.insert(1, "head", [head for _, head in known_places])
        table.insert(2, "n", rows["example_id"].nunique())
        run = dict(zip(RUN, key, strict=True))
        heading = DOT.join([str(run["data"]), str(run["model"]), f"seed {run['seed']}"])
        yield heading, table.sort_values(["layer", "head"]).reset_index(drop=True)


def sites_table(results: pd.DataFrame) -> pd.DataFrame:
    """Mean over the texts of every measure at each layer and head."""
    titles = _titles(results)
    lines = []
    for heading, table in means(results):
        for record in table.to_dict("records"):
            line = {
                "data and model": heading,
                "layer": record["layer"],
                "head": "all" if record["head"] == ALL else str(record["head"]),
                "n": record["n"],
            }
            for metric, column in titles.items():
                line[column] = record.get(metric, np.nan)
            lines.append(line)
    return pd.DataFrame(lines)


def maps(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """A map of every measure: mean over the texts, the last layer on top, its heads side by side.

    All heads of a layer together are on the right. Each map has its own scale. What is exchanged is
    the attention at one place alone; TVD is how far the prediction moves then, 0 to 1.

    Raises:
        UserError: no site of the table is a layer.
    """
    titles = _titles(results)
    runs = list(means(results))
    panels = [
        (run, table, metric)
        for run, table in runs
        for metric in titles
        if metric in table and len(table)
    ]
    if not panels:
        raise UserError(
            "the table of probe sites names no layer: expected sites such as 'layer 2, head 11'; "
            "measure it again"
        )
    deepest = max(int(table["layer"].max()) for _, table, _ in panels)
    figure, axes = grid(len(panels), panel_height=0.55 + 0.15 * (deepest + 1), columns=2)
    for panel, (run, table, metric) in zip(axes, panels, strict=True):
        _draw_map(panel, table, metric)
        heading = titles[metric] if len(runs) == 1 else titles[metric] + DOT + run
        title(panel, counted(heading, int(table["n"].max())), 2.2 * 72)
    around(figure, x="head", y="layer")
    return figure


def _draw_map(panel: Axes, table: pd.DataFrame, metric: str) -> None:
    """The numbers of one metric: a row per layer, a column per head, all heads in the last one."""
    heads = int(table["head"].max()) + 1
    layers = int(table["layer"].max()) + 1
    numbers: Float[np.ndarray, "layers columns"] = np.full((layers, heads + 2), np.nan)
    for layer, head, value in zip(table["layer"], table["head"], table[metric], strict=True):
        numbers[layer, heads + 1 if head == ALL else head] = value
    largest = float(np.nanmax(np.abs(numbers))) if np.isfinite(numbers).any() else 1.0
    has_sign = metric.startswith("tau_")
    cells(
        panel,
        numbers,
        # a hyphen for a minus: twelve heads leave no room for a true one
        lambda value: in_cell(value).replace("−", "-"),
        size=5.5,
        dark=0.6 * largest,
        cmap="RdBu_r" if has_sign else "Blues",
        vmin=-largest if has_sign else 0.0,
        vmax=largest or 1.0,
        origin="lower",
    )
    labelled = range(heads) if heads <= 16 else range(0, heads, 4)
    panel.set_xticks([*labelled, heads + 1], [*map(str, labelled), "all"])
    panel.set_yticks(range(layers))


READING = Reading(
    probe="sites",
    title="Layers and heads: which attention is which?",
    order=57,
    about=(
        "Each layer's attention, and each of its heads, is looked at by itself on the same texts. "
        "It has one weight per word: from the row that the prediction is read from, or from all "
        "rows (model.rows). It is exchanged there and nowhere else. How far does the prediction "
        "move with the same weights in other places? With even weights? Without its own top word? "
        "A head that nothing depends on may show anything; one with most of its weight on special "
        "tokens (or the other text of a pair) says little about words. Below them, how each ranks "
        "the words against other importances, which are the same for all."
    ),
    maps=(
        HeatMap(
            "attention",
            "Attention",
            "of the layer and head chosen above; the weights of a text sum to 1",
        ),
    ),
    tables=(
        Tabulation(
            "sites",
            "Every layer and head (counted from 0; all: the mean of its heads), mean over the n "
            "texts: TVD of the predictions with permuted, even, and top-less attention there, "
            "share of decisions that flip, largest weight, evenness, share on no word of the "
            "text, Kendall's tau-b with other importances.",
            sites_table,
        ),
    ),
    drawings=(Drawing("sites", maps, ("median_tvd",)),),
)
