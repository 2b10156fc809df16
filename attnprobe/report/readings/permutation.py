"""Shuffling the attention: how far does the prediction move? (Jain & Wallace 2019, section 4.2.1)"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnprobe.report.claims import Claim
from attnprobe.report.evidence import mean_of
from attnprobe.report.figures.grid import NOTE_SIZE, around, class_handles, grid, title
from attnprobe.report.figures.marks import violin
from attnprobe.report.figures.style import CLASS_COLOURS, FAINT
from attnprobe.report.reading import Column, Drawing, Headline, Reading
from attnprobe.report.wide import MAX_ATTENTION_BINS, Facet, facets, max_attention_bin, per_example, split_by_class

METRICS = ("median_tvd", "max_attention", "predicted_class")


def permutation(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """Distribution of the median TVD under permutation, by bins of the largest attention weight and predicted class.

    Jain & Wallace's figure 6. One panel per data set and model; the number of examples is given beside every
    violin. More than six classes are drawn as one.
    """
    panels = facets(per_example(results, "permutation", METRICS))
    groups = max(len(split_by_class(panel.rows, len(CLASS_COLOURS))) for panel in panels)
    figure, axes = grid(len(panels), panel_height=1.3 + 0.42 * groups)
    names: list[str] = []
    for panel, facet in zip(axes, panels, strict=True):
        names = max(names, _draw(panel, facet), key=len)
    around(
        figure, x="median TVD of the prediction under permutation", y="largest attention weight",
        handles=class_handles(names), heading="predicted",
    )  # fmt: skip
    return figure


def _draw(axes: Axes, facet: Facet) -> list[str]:
    groups = split_by_class(facet.rows, len(CLASS_COLOURS))
    share = 0.8 / len(groups)
    for number, (_, rows) in enumerate(groups):
        bins = max_attention_bin(rows["max_attention"].to_numpy())
        for b in range(len(MAX_ATTENTION_BINS)):
            # the first class on top, as in the legend
            at = b + 0.4 - share * (number + 0.5)
            values = rows["median_tvd"].to_numpy()[bins == b]
            violin(axes, values, at, share * 0.9, CLASS_COLOURS[number])
            axes.annotate(
                f"n = {np.count_nonzero(~np.isnan(values)):,}",
                (1.02, at),
                xycoords=("axes fraction", "data"),
                va="center",
                fontsize=NOTE_SIZE,
                color=FAINT,
                annotation_clip=False,
            )
    axes.set_xlim(0, 1)
    axes.set_ylim(-0.5, len(MAX_ATTENTION_BINS) - 0.5)
    axes.set_yticks(range(len(MAX_ATTENTION_BINS)), MAX_ATTENTION_BINS)
    for edge in np.arange(len(MAX_ATTENTION_BINS) - 1) + 0.5:
        axes.axhline(edge, lw=0.4, color="#DDDDDD", zorder=0)
    title(axes, facet.title)
    return [name for name, _ in groups]


SAME = 0.05
"""TVD up to which two predictions are called the same: the larger of the two tolerances that Jain & Wallace give their
adversary (0.01 for classification, 0.05 for question answering)."""
CLAIMS = (
    Claim(
        name="permuting_moves_the_prediction",
        criterion="exclusivity",
        statement="Shuffling the attention weights over the words moves the prediction",
        source="Jain & Wallace 2019, section 4.2.1",
        measure=mean_of("median_tvd", reach=1.0),
        quantity=f"median TVD over the permutations, mean of the examples, 0 to 1; up to {SAME} is no relevant difference",
        speaks="for",
        level="state",
        smallest=SAME,
    ),
)

READING = Reading(
    probe="permutation",
    order=10,
    title="Permutation: does it matter which words get the weights?",
    about=(
        "Each text's attention weights are shuffled over its words, many times; the number is the median total variation "
        "distance between the predictions with shuffled and with the model's own weights, 0 (the prediction stays) to 1. "
        "Near 0, the same prediction follows from attending to other words. Critics object that the states of a recurrent "
        "encoder hold much of the whole sentence, so that little may change although the weights were learnt for a reason, "
        "and that an even attention has nothing to shuffle: read it together with the largest weight."
    ),
    claims=CLAIMS,
    columns=(Column("median_tvd", "median TVD under permutation"),),
    headlines=(
        Headline("median_tvd", "median TVD under permutation", by_class=True),
        Headline("max_attention", "largest attention weight"),
    ),
    drawings=(Drawing("permutation", permutation, tuple(("permutation", m) for m in METRICS), optional=()),),
)
