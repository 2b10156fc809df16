"""Does it matter which words get the weights? (Jain & Wallace 2019, section 4.2.1, algorithm 2)"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnprobe.core.metrics import TVD, Metric
from attnprobe.core.randomness import Draws
from attnprobe.core.readout import Readout
from attnprobe.core.settings import Count
from attnprobe.evidence.claims import Claim
from attnprobe.evidence.evidence import mean_of
from attnprobe.exact.nulls import permute_attention
from attnprobe.plots.grid import NOTE_SIZE, around, class_handles, grid, title
from attnprobe.plots.style import CLASS_COLOURS, FAINT, violin
from attnprobe.probes.base import DESCRIPTION, Measurement, ReadoutProbe
from attnprobe.readings.reading import Column, Drawing, Headline, Reading
from attnprobe.results import pivot

METRICS = (
    Metric(
        "median_tvd",
        TVD,
        "median over the permutations",
        higher_is_better=True,
        source="Jain & Wallace 2019, section 4.2.1",
    ),
    *DESCRIPTION,
)


@dataclass
class Permutation(ReadoutProbe):
    """Permute the attention weights over the words: how far does the prediction move?

    The number is the median over random permutations of the total variation distance. Where it is
    low, it hardly matters which word gets which weight.

    Attributes:
        samples: permutations per text.
    """

    name = "permutation"
    metrics = METRICS
    # the noise, what it is sorted by, both orders, and the weights before and after
    buffers_per_sample = 6
    samples: Count = 100

    def measure(self, readout: Readout, draws: Draws) -> Iterator[Measurement]:
        """Yield the median distance of each text."""
        noise = draws.uniform(self.samples, readout.content, readout.example_id)
        permuted = permute_attention(readout.attention, readout.content, noise)
        prediction = readout.prediction()
        distance = readout.distance(readout.predict(permuted), prediction)
        yield Measurement("median_tvd", distance.quantile(0.5, dim=0))


READ_METRICS = ("median_tvd", "max_attention", "predicted_class")


def permutation(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """Violins of the median TVD by bins of the largest attention weight and by predicted class.

    Jain & Wallace's figure 6. One panel per data set and model; the number of examples is given
    beside every violin. More than six classes are drawn as one.
    """
    facets = pivot.facets(pivot.per_example(results, "permutation", READ_METRICS))
    groups_by_facet = [pivot.split_by_class(facet.rows, len(CLASS_COLOURS)) for facet in facets]
    names = max(([name for name, _ in groups] for groups in groups_by_facet), key=len)
    figure, panels = grid(len(facets), panel_height=1.3 + 0.42 * len(names))
    bins = range(len(pivot.MAX_ATTENTION_BINS))
    for panel, facet, groups in zip(panels, facets, groups_by_facet, strict=True):
        height = 0.8 / len(groups)
        for number, (_, rows) in enumerate(groups):
            offset = 0.4 - height * (number + 0.5)  # the first class on top, as in the legend
            _violins_by_bin(panel, rows, offset, height * 0.9, CLASS_COLOURS[number])
        panel.set_xlim(0, max(1.0, float(facet.rows["median_tvd"].max())))
        panel.set_ylim(-0.5, len(bins) - 0.5)
        panel.set_yticks(bins, pivot.MAX_ATTENTION_BINS)
        for edge in bins[1:]:
            panel.axhline(edge - 0.5, lw=0.4, color="#DDDDDD", zorder=0)
        title(panel, facet.title)
    around(
        figure,
        x="median TVD of the prediction under permutation",
        y="largest attention weight",
        handles=class_handles(names),
        heading="predicted",
    )
    return figure


def _violins_by_bin(
    panel: Axes, rows: pd.DataFrame, offset: float, height: float, colour: str
) -> None:
    """The texts of one class, a violin in each bin of the largest weight."""
    bin_of_text = pivot.max_attention_bin(rows["max_attention"].to_numpy())
    for number in range(len(pivot.MAX_ATTENTION_BINS)):
        values = rows["median_tvd"].to_numpy()[bin_of_text == number]
        violin(panel, values, number + offset, height, colour)
        panel.annotate(
            f"n = {np.count_nonzero(~np.isnan(values)):,}",
            (1.02, number + offset),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=NOTE_SIZE,
            color=FAINT,
            annotation_clip=False,
        )


SAME = 0.05
"""TVD up to which two predictions are called the same: the larger of the two tolerances that Jain &
Wallace allow their adversary (0.01 for classification, 0.05 for question answering)."""
CLAIMS = (
    Claim(
        name="permuting_moves_the_prediction",
        criterion="exclusivity",
        source="Jain & Wallace 2019, section 4.2.1",
        measure=mean_of("median_tvd", reach=1.0, ends=(0, 1)),
        speaks="for",
        level="state",
        smallest=SAME,
        statement="Shuffling the attention weights over the words moves the prediction",
        quantity=(
            f"median TVD over the permutations, mean of the examples, 0 to 1; up to {SAME} is no "
            "relevant difference"
        ),
    ),
)

READING = Reading(
    probe="permutation",
    order=10,
    claims=CLAIMS,
    title="Permutation: does it matter which words get the weights?",
    about=(
        "Each text's weights are shuffled over its words, many times. How far does the prediction "
        "move? The number is the median TVD, from 0 (it stays) to 1. Near 0, attending to other "
        "words predicts the same. Caution: in an LSTM every state knows the whole sentence, so "
        "shuffling may change little even if attention is right. And an even attention has "
        "nothing to shuffle: see the largest weight."
    ),
    columns=(Column("median_tvd", "moved by shuffling the weights"),),
    headlines=(
        Headline("median_tvd", "median TVD under permutation", by_class=True),
        Headline("max_attention", "largest attention weight"),
    ),
    drawings=(Drawing("permutation", permutation, READ_METRICS, optional=()),),
)
