"""Which of a network's attentions matter, and which say what? The same questions of every layer and
head."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from matplotlib.figure import Figure

from attnprobe.core.errors import UserError
from attnprobe.core.metrics import SCORE, SHARE, TAU, TRUTH, TVD, WEIGHT, Metric
from attnprobe.core.randomness import Draws
from attnprobe.core.settings import Count
from attnprobe.evidence.reading import Drawing, HeatMap, Reading, Tabulation, importances_in
from attnprobe.importance.plausibility import average_precision
from attnprobe.measures import entropy, kendall_tau
from attnprobe.models.base import Model
from attnprobe.plots.grid import DOT, around, cells, counted, grid, in_cell, title
from attnprobe.probes.base import Measurement, Note, RankingProbe, Subject, positions
from attnprobe.probes.permutation import permute_attention
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
    """Every attention of the network (of each layer all heads together, and each head by itself) on
    the same texts: what a reader of this layer or head would see, how far the prediction moves
    (TVD) where this attention alone is exchanged, and how it ranks the words against each
    importance by the size of its scores.

    The exchanges: weights to other words (Jain & Wallace 2019); the same for every word (Wiegreffe
    & Pinter 2019); the most attended word's weight shared by the others (Serrano & Smith 2019).

    Attributes:
        samples: permutations per text and site.
        importances: see `RankingProbe`; leave-one-out takes as many passes as a text has words.
    """

    name = "sites"
    metrics = METRICS
    of_words = slow = True
    published = ("gradient", "leave_one_out")
    samples: Count = 5

    def refuse(self, classifier: Model) -> None:
        super().refuse(classifier)
        if len(classifier.sites) < 2:
            raise UserError(
                "probe sites compares the layers and heads of a network, and this model has one "
                "attention: leave it out of probe=[…], or take model=pretrained"
            )

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        content = subject.batch.content
        noise = draws.uniform(self.samples, content, subject.batch.example_id)
        scores = {name: values.abs().double() for name, values in self.scores(subject).items()}
        rationale = subject.batch.rationale
        length = content.sum(-1, keepdim=True).double()
        several = (
            length[:, 0] > 1
        )  # the only word of a text is neither even nor uneven, and cannot be left out
        even = content.double() / length
        for at in subject.classifier.at_sites(subject.batch):
            attention = at.readout.attention
            readout = at.readout
            assert at.outputs.off_text is not None
            rest = attention.scatter(-1, attention.argmax(-1, keepdim=True), 0.0)
            total = rest.sum(-1, keepdim=True)
            # without the largest weight, made to sum to 1; as it was where nothing else has any
            without_top = torch.where(total > 0, rest / torch.where(total > 0, total, 1), attention)
            others = torch.cat(
                [permute_attention(attention, content, noise), even[None], without_top[None]]
            )
            prediction = readout.prediction()
            changed = readout.predict(others)
            distance = readout.distance(changed, prediction)
            flips = (changed[-1].argmax(-1) != prediction.argmax(-1)).double()
            for metric, value in {
                "max_attention": attention.amax(-1),
                "evenness": entropy(attention, content)
                / torch.where(several, length[:, 0].log(), torch.nan),
                "special_mass": at.outputs.off_text,
                "median_tvd": distance[:-2].quantile(0.5, dim=0),
                "uniform_tvd": distance[-2],
                "top_tvd": torch.where(several, distance[-1], torch.nan),
                "top_flips": torch.where(several, flips, torch.nan),
            }.items():
                yield Measurement(metric, value, site=at.name)
            yield Measurement("attention", attention, positions(content), at.name)
            for name, values in scores.items():
                yield Measurement(
                    f"tau_{name}", kendall_tau(attention, values, content), site=at.name
                )
            if rationale is not None:
                given = (rationale & content).any(-1)
                precision = average_precision(attention, rationale, content)
                yield Measurement(
                    "auprc_rationale", torch.where(given, precision, torch.nan), site=at.name
                )
        yield from self.notes(subject)


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
    """The numbers in a site's name, the head `ALL` where it is of all heads; None for other names,
    and for numbers of more than three digits: a map has a cell for each, and the name comes from a
    file.

    >>> layer_and_head("layer 2, head 11"), layer_and_head("layer 2"), layer_and_head("layer 1000000000")
    ((2, 11), (2, -1), None)
    """
    match = re.fullmatch(r"layer (\d{1,3})(?:, head (\d{1,3}))?", site)
    return None if match is None else (int(match[1]), ALL if match[2] is None else int(match[2]))


def _titles(results: pd.DataFrame) -> dict[str, str]:
    taus = {
        f"tau_{name}": f"τ with {facts.title}"
        for name, facts in importances_in(results, "sites", "tau_").items()
    }
    there = metrics_there(results, "sites")
    return {metric: words for metric, words in (MEASURES | taus).items() if metric in there}


def means(results: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Of each run its data, model and seed, and a table with a row per layer and head: `layer`,
    `head`, `n`, and the mean of the texts of every metric."""
    plain = results[
        (results["probe"] == "sites") & results["step"].isna() & (results["example_id"] >= 0)
    ]
    for key, own in by_run(plain):
        own = own.assign(metric=own["metric"].astype(str), site=own[SITE].astype(str))
        wide = own.pivot_table(
            index=SITE, columns="metric", values="value", aggfunc="mean", dropna=False
        )
        places = [layer_and_head(str(site)) for site in wide.index]
        wide = wide[[place is not None for place in places]]
        known = [place for place in places if place is not None]
        wide.insert(0, "layer", [layer for layer, _ in known])
        wide.insert(1, "head", [head for _, head in known])
        wide.insert(2, "n", own["example_id"].nunique())
        run = dict(zip(RUN, key, strict=True))
        heading = DOT.join([str(run["data"]), str(run["model"]), f"seed {run['seed']}"])
        yield heading, wide.sort_values(["layer", "head"]).reset_index(drop=True)


def sites_table(results: pd.DataFrame) -> pd.DataFrame:
    """Mean of the texts of every measure at each layer and head."""
    words = _titles(results)
    lines = []
    for heading, table in means(results):
        for record in table.to_dict("records"):
            head = "all" if record["head"] == ALL else str(record["head"])
            place = {
                "data and model": heading,
                "layer": record["layer"],
                "head": head,
                "n": record["n"],
            }
            lines.append(
                place | {title: record.get(metric, np.nan) for metric, title in words.items()}
            )
    return pd.DataFrame(lines)


def maps(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """A map of every measure: mean of the texts, the last layer on top, its heads side by side and
    all of them together on the right. Each map has its own scale. What is exchanged is the
    attention at one place alone; TVD is how far the prediction moves then, 0 to 1."""
    words = _titles(results)
    each = list(means(results))
    panels = [
        (run, table, metric)
        for run, table in each
        for metric in words
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
        heads = int(table["head"].max()) + 1
        shown: Float[np.ndarray, "layers columns"] = np.full(
            (int(table["layer"].max()) + 1, heads + 2), np.nan
        )
        for layer, head, value in zip(table["layer"], table["head"], table[metric], strict=True):
            shown[layer, heads + 1 if head == ALL else head] = value
        largest = float(np.nanmax(np.abs(shown))) if np.isfinite(shown).any() else 1.0
        low, colours = (-largest, "RdBu_r") if metric.startswith("tau_") else (0.0, "Blues")
        # a hyphen for a minus: twelve heads leave no room for a true one
        cells(
            panel,
            shown,
            lambda value: in_cell(value).replace("−", "-"),
            size=5.5,
            dark=0.6 * largest,
            cmap=colours,
            vmin=low,
            vmax=largest or 1.0,
            origin="lower",
        )
        numbers = range(heads) if heads <= 16 else range(0, heads, 4)
        panel.set_xticks([*numbers, heads + 1], [*map(str, numbers), "all"])
        panel.set_yticks(range(len(shown)))
        heading = words[metric] if len(each) == 1 else words[metric] + DOT + run
        title(panel, counted(heading, int(table["n"].max())), 2.2 * 72)
    around(figure, x="head", y="layer")
    return figure


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
