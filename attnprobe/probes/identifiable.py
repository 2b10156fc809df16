"""Is the attention determined by what is computed with it? Each word's least and greatest weight at
identical output."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor

from attnprobe.core.errors import UserError
from attnprobe.core.metrics import JSD, TRUTH, WEIGHT, Metric, Scale
from attnprobe.core.randomness import Draws
from attnprobe.core.settings import Count
from attnprobe.evidence.reading import Column, Drawing, Headline, Reading, Tabulation, facet_table
from attnprobe.evidence.statistics import mean_in_columns
from attnprobe.exact import WeightRanges, weight_ranges
from attnprobe.measures import jensen_shannon
from attnprobe.models.base import Model
from attnprobe.plots.grid import around, counted, facet_grid, title
from attnprobe.plots.style import FOUND, OPTIMUM
from attnprobe.probes.base import DESCRIPTION, Measurement, Note, Probe, Subject, positions

NOTHING = 1e-6
"""A word that can have no more weight than this can have none."""

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
    """Which other attentions give the identical output, whatever follows, and so the identical
    prediction?

    The rows of attention enter the prediction through their sums Σ_t a_t v_t alone: of a
    transformer's head its values, of a model of three stages the states, or with a linear decoder
    what each gives to the classes. All attentions with the same sums, row by row, are a polytope
    (Brunner et al. 2020); linear programmes give each word's range in it. A word's weight here is
    the mean over the rows of what its pieces have.

    Attributes:
        words: how many words of a text are asked for, the most attended first; None: all.
    """

    name = "identifiable"
    metrics = METRICS
    words: Count | None = 3

    def refuse(self, classifier: Model) -> None:
        super().refuse(classifier)
        if not classifier.is_summed:
            raise UserError(
                "probe identifiable needs an attention that enters the prediction through one "
                "sum alone, and this model's is not known to (of pretrained ones: the last "
                "layer, rows=pooled, with short_way=true where it agrees): leave it out of "
                "probe=[…]"
            )

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        readout = subject.readout
        summed = subject.classifier.summed(subject.batch, subject.outputs)
        count, seq = readout.content.shape
        texts: list[dict[str, float]] = []
        low, high = torch.full((2, count, seq), torch.nan, dtype=torch.float64)
        moved = 0.0
        for text in range(count):
            there = summed.attendable[text]
            content = readout.content[text].nonzero()[:, 0]
            shown = readout.attention[text]
            asked = content[shown[content].argsort(descending=True, stable=True)][: self.words]
            weights = summed.weights[text][:, there]
            word = summed.word[text][there]
            ranges = of_rows(weights, summed.values[text][:, there], word, asked)
            top = int(asked[0])
            low[text, asked], high[text, asked] = ranges.low[asked].cpu(), ranges.high[asked].cpu()
            others = torch.cat([ranges.lowest[asked], ranges.highest[asked]])[:, content]
            mass = others.sum(-1, keepdim=True)
            shares = others[mass[:, 0] > 0] / mass[mass[:, 0] > 0]
            texts.append(
                {
                    "unique": ranges.unique,
                    "freedom": ranges.freedom,
                    "parts": int(there.sum()),
                    "top_weight": float(weights.double().mean(0)[word == top].sum()),
                    "top_low": float(ranges.low[top]),
                    "top_high": float(ranges.high[top]),
                    "top_can_vanish": float(ranges.low[top]) <= NOTHING,
                    "farthest_jsd": float(
                        jensen_shannon(shown[content].expand_as(shares).cpu(), shares.cpu()).max()
                    ),
                }
            )
            moved = max(moved, ranges.moved)
        for name in texts[0]:
            yield Measurement(
                name, torch.tensor([float(one[name]) for one in texts], dtype=torch.float64)
            )
        for name, numbers in {"low": low, "high": high}.items():
            yield Measurement(
                name,
                numbers,
                torch.where(numbers.isnan(), torch.nan, positions(readout.content.cpu())),
            )
        yield Note("largest_change_of_output", moved, max)


def of_rows(
    weights: Float[Tensor, "rows parts"],
    values: Float[Tensor, "rows parts size"],
    word: Int[Tensor, "parts"],
    asked: Int[Tensor, "asked"],
) -> WeightRanges:
    """The ranges of the mean of rows whose sums are kept one by one: each row is a polytope by
    itself, so the ends of the mean are the means of the ends."""
    several = [
        weight_ranges(row.unsqueeze(0), value.unsqueeze(0), positions=asked, words=word)
        for row, value in zip(weights, values, strict=True)
    ]
    means = {
        name: torch.stack([getattr(one, name) for one in several]).mean(0)
        for name in ("low", "high", "lowest", "highest")
    }
    return WeightRanges(
        **means,
        unique=all(one.unique for one in several),
        freedom=sum(one.freedom for one in several),
        farthest=float(np.mean([one.farthest for one in several])),
        moved=max(one.moved for one in several),
    )


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
EDGES = np.array([0, 16, 32, 48, 64, 96, 128, 192, 256, 512])
"""Of the bins of length, in parts: above the first, up to the second."""


def lengths_table(results: pd.DataFrame) -> pd.DataFrame:
    """Means by length."""
    bins = [f"{low + 1} to {high}" for low, high in pairwise(EDGES)] + [f"over {EDGES[-1]}"]
    means = {
        "free directions": "freedom",
        "top word": "top_weight",
        "its least weight": "top_low",
        "its greatest": "top_high",
        "could have none": "top_can_vanish",
        "JSD at least": "farthest_jsd",
    }

    def lines(rows: pd.DataFrame) -> Iterator[dict[str, object]]:
        number = np.searchsorted(EDGES, rows["parts"].to_numpy(), side="left")
        groups = [
            (bins[place - 1], rows[number == place]) for place in sorted(set(number.tolist()))
        ]
        for name, part in [*groups, ("all", rows)]:
            line = {
                "parts": name,
                "n": len(part),
                **mean_in_columns("unique", part["unique"].to_numpy(), 0, 1),
            }
            yield line | {heading: part[metric].mean() for heading, metric in means.items()}

    return facet_table(results, "identifiable", READ_METRICS, lines)


def ranges(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """What the most attended word of each text could have had instead, by the text's length. The
    orange point is its weight, the blue line reaches from the least to the greatest weight that it
    has in any attention with the identical output."""
    figure, panels = facet_grid(results, "identifiable", READ_METRICS, panel_height=1.8, columns=2)
    for panel, facet in panels:
        rows = facet.rows
        panel.vlines(
            rows["parts"], rows["top_low"], rows["top_high"], color=OPTIMUM, lw=0.6, alpha=0.5
        )
        panel.plot(rows["parts"], rows["top_weight"], ".", color=FOUND, ms=2.5)
        panel.set_ylim(0, 1)
        title(
            panel,
            counted(facet.title, len(rows), f"unique in {rows['unique'].mean():.0%}"),
            2.2 * 72,
        )
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
    drawings=(Drawing("identifiable", ranges, READ_METRICS, optional=()),),
)
