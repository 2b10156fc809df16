"""Is the attention determined by what is computed with it?

For each word, the least and greatest weight in any attention with the identical output.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from matplotlib.figure import Figure
from torch import Tensor

from attnprobe.core.errors import UserError
from attnprobe.core.metrics import JSD, TRUTH, WEIGHT, Metric, Scale
from attnprobe.core.randomness import Draws
from attnprobe.core.sanitise import percent
from attnprobe.core.settings import Count
from attnprobe.exact import WeightRanges, weight_ranges
from attnprobe.measures import jensen_shannon
from attnprobe.models.base import Model, Summed
from attnprobe.plots.grid import around, counted, facet_grid, title
from attnprobe.plots.style import FOUND, OPTIMUM
from attnprobe.probes.base import DESCRIPTION, Measurement, Note, Probe, Subject, positions
from attnprobe.readings.means import (
    facet_table,
    mean_in_columns,
    mean_over_texts,
    texts_with,
)
from attnprobe.readings.reading import Column, Drawing, Headline, Reading, Tabulation

NOTHING = 1e-6
"""A weight no larger than this is none."""

METRICS = (
    Metric(
        "unique",
        TRUTH,
        "no other attention has the identical output",
        higher_is_better=True,
        source="Brunner et al. 2020",
    ),
    Metric(
        "freedom",
        Scale("directions", 0),
        "in which the rows could move, were it not that weights are 0 or more",
    ),
    Metric("parts", Scale("positions or pieces", 1), "special tokens included"),
    Metric(
        "top_weight",
        WEIGHT,
        "of the most attended word, mean over the rows; what special tokens have is part of the "
        "whole",
    ),
    Metric("top_low", WEIGHT, "its least weight at identical output"),
    Metric("top_high", WEIGHT, "its greatest weight at identical output"),
    Metric("top_can_vanish", TRUTH, "its least weight is 1e-6 or less", higher_is_better=False),
    Metric(
        "farthest_jsd",
        JSD,
        "of the shown attention and another one with identical output: at least this",
        higher_is_better=False,
    ),
    Metric("low", WEIGHT, "least weight of the most attended words", step="position"),
    Metric("high", WEIGHT, "greatest weight of the most attended words", step="position"),
    *DESCRIPTION,
)


@dataclass
class Identifiable(Probe):
    """Which other attentions give the identical output, and so the identical prediction?

    The rows of attention enter the prediction through their sums Σ_t a_t v_t alone: of a
    transformer's head its values, of a model of three stages the states, or with a linear decoder
    what each gives to the classes. All attentions with the same sums, row by row, are a polytope
    (Brunner et al. 2020); linear programmes give each word's range in it. A word's weight here is
    the mean over the rows of what its pieces have.

    Attributes:
        words: how many words of a text are examined, the most attended first; None: all.
    """

    name = "identifiable"
    metrics = METRICS
    words: Count | None = 3

    def refuse(self, classifier: Model) -> None:
        """Also refuse a model whose attention may enter the prediction in other ways than a sum."""
        super().refuse(classifier)
        if not classifier.is_summed:
            raise UserError(
                "probe identifiable needs an attention that enters the prediction through one sum "
                "alone, and this model's is not known to (of pretrained ones: the last layer, "
                "rows=pooled, with short_way=true where it agrees): leave it out of probe=[…]"
            )

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield each text's summary, and the range of each of its most attended words."""
        attention = subject.readout.attention
        content = subject.readout.content
        summed = subject.classifier.summed(subject.batch, subject.outputs)
        low = torch.full(content.shape, torch.nan, dtype=torch.float64)
        high = low.clone()
        summaries = []
        change = 0.0
        for text in range(len(content)):
            chosen = self.most_attended(attention[text], content[text])
            parts = Parts.of(summed, text)
            ranges = ranges_of_mean(parts.weights, parts.values, parts.word, chosen)
            low[text, chosen] = ranges.low[chosen].cpu()
            high[text, chosen] = ranges.high[chosen].cpu()
            change = max(change, ranges.moved)
            summary = summary_of(parts, ranges, int(chosen[0]))
            summary["farthest_jsd"] = farthest_jsd(ranges, chosen, attention[text], content[text])
            summaries.append(summary)

        for metric in READ_METRICS:
            values = [summary[metric] for summary in summaries]
            yield Measurement(metric, torch.tensor(values, dtype=torch.float64))
        step = positions(content.cpu(), subject.readout.text.cpu())
        yield Measurement("low", low, step.masked_fill(low.isnan(), torch.nan))
        yield Measurement("high", high, step.masked_fill(high.isnan(), torch.nan))
        yield Note("largest_change_of_output", change, max)

    def most_attended(
        self, attention: Float[Tensor, "seq"], content: Bool[Tensor, "seq"]
    ) -> Int[Tensor, "chosen"]:
        """The positions of the `words` most attended words, the first one first."""
        places = content.nonzero()[:, 0]
        order = attention[places].argsort(descending=True, stable=True)
        return places[order][: self.words]


class Parts(NamedTuple):
    """One text's parts that may have weight: tokens or pieces, special ones included.

    Attributes:
        weights: each row sums to 1.
        values: what each row sums up.
        word: position of the word that a part belongs to, −1 for none.
    """

    weights: Float[Tensor, "rows parts"]
    values: Float[Tensor, "rows parts size"]
    word: Int[Tensor, "parts"]

    @classmethod
    def of(cls, summed: Summed, text: int) -> "Parts":
        """The parts of one text of a batch."""
        attendable = summed.attendable[text]
        return cls(
            weights=summed.weights[text][:, attendable],
            values=summed.values[text][:, attendable],
            word=summed.word[text][attendable],
        )


def summary_of(parts: Parts, ranges: WeightRanges, top: int) -> dict[str, float]:
    """The numbers of a text as a whole, and of its most attended word `top`."""
    belongs = parts.word == top
    return {
        "unique": float(ranges.unique),
        "freedom": float(ranges.freedom),
        "parts": float(len(parts.word)),
        "top_weight": float(parts.weights.double().mean(0)[belongs].sum()),
        "top_low": float(ranges.low[top]),
        "top_high": float(ranges.high[top]),
        "top_can_vanish": float(ranges.low[top] <= NOTHING),
    }


def ranges_of_mean(
    weights: Float[Tensor, "rows parts"],
    values: Float[Tensor, "rows parts size"],
    word: Int[Tensor, "parts"],
    chosen: Int[Tensor, "chosen"],
) -> WeightRanges:
    """The ranges of the words' weights in the mean of several rows of attention.

    The sum of each row is kept by itself, so each row is a polytope by itself, and the ends of the
    mean are the means of the ends.

    Args:
        weights: of the parts, tokens or pieces; each row sums to 1.
        values: what each row sums up.
        word: the word that each part belongs to.
        chosen: the words whose ranges are looked for.
    """
    rows = [
        weight_ranges(row.unsqueeze(0), value.unsqueeze(0), positions=chosen, words=word)
        for row, value in zip(weights, values, strict=True)
    ]

    def mean(name: str) -> Tensor:
        return torch.stack([getattr(row, name) for row in rows]).mean(0)

    return WeightRanges(
        low=mean("low"),
        high=mean("high"),
        lowest=mean("lowest"),
        highest=mean("highest"),
        unique=all(row.unique for row in rows),
        freedom=sum(row.freedom for row in rows),
        farthest=float(np.mean([row.farthest for row in rows])),
        moved=max(row.moved for row in rows),
    )


def farthest_jsd(
    ranges: WeightRanges,
    chosen: Int[Tensor, "chosen"],
    attention: Float[Tensor, "seq"],
    content: Bool[Tensor, "seq"],
) -> float:
    """The largest JSD (nats) of a text's attention and one at an end of a chosen word's range.

    Words alone count, and their weights are made to sum to 1: special tokens have a part of the
    whole.
    """
    places = content.nonzero()[:, 0]
    ends = torch.cat([ranges.lowest[chosen], ranges.highest[chosen]])[:, places]
    mass = ends.sum(-1, keepdim=True)
    has_mass = mass[:, 0] > 0
    shares = (ends[has_mass] / mass[has_mass]).cpu()
    return float(jensen_shannon(attention[places].expand_as(shares).cpu(), shares).max())


READ_METRICS = (
    "unique",
    "freedom",
    "parts",
    "top_weight",
    "top_low",
    "top_high",
    "top_can_vanish",
    "farthest_jsd",
)
"""The numbers of a text as a whole."""
EDGES = np.array([0, 16, 32, 48, 64, 96, 128, 192, 256, 512])
"""Bins of length, in parts: above the first edge, up to the second."""
HEADINGS = {
    "free directions": "freedom",
    "top word": "top_weight",
    "its least weight": "top_low",
    "its greatest": "top_high",
    "could have none": "top_can_vanish",
    "JSD at least": "farthest_jsd",
}


def lengths_table(results: pd.DataFrame) -> pd.DataFrame:
    """Means by length, and over all texts."""
    return facet_table(results, "identifiable", READ_METRICS, _length_lines)


def _length_lines(rows: pd.DataFrame) -> Iterator[dict[str, object]]:
    titles = [f"{low + 1} to {high}" for low, high in pairwise(EDGES)] + [f"over {EDGES[-1]}"]
    number = np.searchsorted(EDGES, rows["parts"].to_numpy(), side="left")
    groups = [(titles[place - 1], rows[number == place]) for place in np.unique(number)]
    for heading, texts in [*groups, ("all", rows)]:
        yield {
            "parts": heading,
            "n": texts_with(texts, texts["parts"]),
            **mean_in_columns("unique", texts, texts["unique"], TRUTH),
            **{
                column: mean_over_texts(texts, texts[metric]) for column, metric in HEADINGS.items()
            },
        }


def top_word_ranges(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """What the most attended word of each text could have had instead, by the text's length.

    The orange point is its weight, the blue line reaches from the least to the greatest weight that
    it has in any attention with the identical output.
    """
    figure, panels = facet_grid(results, "identifiable", READ_METRICS, panel_height=1.8, columns=2)
    for panel, facet in panels:
        rows = facet.rows
        panel.vlines(
            rows["parts"], rows["top_low"], rows["top_high"], color=OPTIMUM, lw=0.6, alpha=0.5
        )
        panel.plot(rows["parts"], rows["top_weight"], ".", color=FOUND, ms=2.5)
        panel.set_ylim(0, 1)
        unique = f"unique in {percent(mean_over_texts(rows, rows['unique']))}"
        title(panel, counted(facet.title, len(rows), unique), 2.2 * 72)
    around(
        figure,
        x="length (words, or pieces with special tokens)",
        y="weight of the most attended word",
    )
    return figure


READING = Reading(
    probe="identifiable",
    order=25,
    title="Identifiability: which attentions give the identical output?",
    about=(
        "The rows of attention enter the prediction through weighted sums alone. Every other "
        "attention with the same sums gives the same prediction to the last digit, whatever "
        "follows. Linear programmes find the least and the greatest weight of the most attended "
        "words among all of these. Where there is no other one, the attention is determined by "
        "what the model computes with it; that is no proof that it explains anything. Where the "
        "most attended word could have had no weight at all, nothing that the model computes "
        "says that it was attended to."
    ),
    headlines=(
        Headline("unique", "share of texts whose attention is unique"),
        Headline("top_can_vanish", "share of texts whose top word could have had no weight"),
        Headline("top_weight", "weight of the top word"),
        Headline("top_low", "its least weight at identical output"),
        Headline("top_high", "its greatest weight at identical output"),
        Headline("farthest_jsd", "JSD of another attention with identical output, at least"),
    ),
    columns=(
        Column("unique", "attention is unique", digits=0, truth=True, sorts=False),
        Column("top_low", "top word's least weight at identical output"),
        Column("top_high", "top word's greatest weight at identical output"),
    ),
    tables=(
        Tabulation(
            "identifiable",
            "By length: share of texts for which no other attention has the identical output, "
            "with 95 % bootstrap interval; mean free directions; mean weight of the most "
            "attended word, its least and greatest at identical output; share in which it could "
            "have had none; JSD (nats) of another attention with identical output, at least.",
            lengths_table,
        ),
    ),
    drawings=(Drawing("identifiable", top_word_ranges, READ_METRICS, optional=()),),
)
