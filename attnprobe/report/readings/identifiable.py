"""Is the attention determined by the output? The share of texts with a unique one, and how far the top weight may go."""

from itertools import pairwise

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from attnprobe.report.figures.grid import around, counted, grid, title
from attnprobe.report.figures.notes import note
from attnprobe.report.figures.style import FOUND, OPTIMUM
from attnprobe.report.reading import Column, Drawing, Headline, Reading, Tabulation
from attnprobe.report.wide import facets, per_example
from attnprobe.results.statistics import interval

PROBE = "identifiable"
METRICS = ("unique", "freedom", "parts", "top_weight", "top_low", "top_high", "top_can_vanish", "farthest_jsd")
EDGES = np.array([0, 16, 32, 48, 64, 96, 128, 192, 256, 512])
"""Of the bins of length, in parts: above the first, up to the second."""


def by_length(rows: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """The examples of each bin of length that has any."""
    number = np.searchsorted(EDGES, rows["parts"].to_numpy(), side="left")
    names = {place: f"{low + 1} to {high}" for place, (low, high) in enumerate(pairwise(EDGES), 1)}
    names[len(EDGES)] = f"over {EDGES[-1]}"
    return [(names[place], rows[number == place]) for place in sorted(set(number.tolist()))]


def table(results: pd.DataFrame) -> pd.DataFrame:
    """Of each bin of length the share of unique attentions, and means over its texts."""
    lines = []
    for facet in facets(per_example(results, PROBE, METRICS)):
        for name, part in [*by_length(facet.rows), ("all", facet.rows)]:
            share, low, high = interval(part["unique"].to_numpy())
            lines.append(
                {
                    "data and model": facet.title,
                    "parts": name,
                    "n": len(part),
                    "unique": share,
                    "unique, low": low,
                    "unique, high": high,
                    "free directions": part["freedom"].mean(),
                    "top word": part["top_weight"].mean(),
                    "its least weight": part["top_low"].mean(),
                    "its greatest": part["top_high"].mean(),
                    "could have none": part["top_can_vanish"].mean(),
                    "JSD at least": part["farthest_jsd"].mean(),
                }
            )
    return pd.DataFrame(lines)


def ranges(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """What the most attended word of each text could have had instead, by the text's length. The orange point is its weight,
    the blue line reaches from the least to the greatest weight that it has in any attention with the identical output."""
    panels = facets(per_example(results, PROBE, METRICS))
    figure, axes = grid(len(panels), panel_height=1.8, columns=2)
    for panel, facet in zip(axes, panels, strict=True):
        rows = facet.rows
        panel.vlines(rows["parts"], rows["top_low"], rows["top_high"], color=OPTIMUM, lw=0.6, alpha=0.5)
        panel.plot(rows["parts"], rows["top_weight"], ".", color=FOUND, ms=2.5)
        for parts, weight, low, high in rows[["parts", "top_weight", "top_low", "top_high"]].to_numpy():
            note(panel, parts, weight, f"length {parts:.0f}: weight {weight:.3f}, possible {low:.3f} to {high:.3f}")
        panel.set_ylim(0, 1)
        unique = f"unique in {rows['unique'].mean():.0%}"
        title(panel, counted(facet.title, len(rows), unique), 2.2 * 72)
    around(figure, x="length (words, or pieces with special tokens)", y="weight of the most attended word")
    return figure


READING = Reading(
    probe=PROBE,
    order=25,
    title="Identifiability: which attentions give the identical output?",
    about=(
        "The rows of attention enter the prediction through weighted sums alone. Every other attention with the same sums "
        "gives the same prediction to the last digit, whatever follows. Linear programmes find the least and the greatest "
        "weight of the most attended words among all of these. Where there is no other one, the attention is determined by "
        "what the model computes with it; that is no proof that it explains anything. Where the most attended word could "
        "have had no weight at all, nothing that the model computes says that it was attended to."
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
            "By length: share of texts for which no other attention has the identical output, with 95 % bootstrap interval; "
            "mean free directions; mean weight of the most attended word, its least and greatest at identical output; share "
            "in which it could have had none; JSD (nats) of another attention with identical output, at least.",
            table,
        ),
    ),
    drawings=(Drawing("identifiable", ranges, tuple((PROBE, metric) for metric in METRICS), optional=()),),
)
