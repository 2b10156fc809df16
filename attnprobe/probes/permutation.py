"""Does it matter which words get the weights? (Jain & Wallace 2019, section 4.2.1, algorithm 2)"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from attnprobe.nulls.permutation import permute_attention
from attnprobe.probes.base import DESCRIPTION, Measurement, ReadoutProbe, description
from attnprobe.randomness import Draws
from attnprobe.readout import Readout
from attnprobe.results.metrics import TVD, Metric

METRICS = (
    Metric("median_tvd", TVD, "median over the permutations", higher_is_better=True,
           source="Jain & Wallace 2019, section 4.2.1"),
    *DESCRIPTION,
)  # fmt: skip
"""See `Permutation`."""


@dataclass
class Permutation(ReadoutProbe):
    """Median over random permutations of the total variation distance (0 to 1) between the predictions.

    Yields per example `median_tvd` (low: the assignment of weights to words hardly matters), `max_attention`,
    `predicted_class` and `content_length`.
    """

    name: ClassVar[str] = "permutation"
    metrics = METRICS
    samples: int = 100

    @property
    def copies(self) -> int:
        """Of every sample: the noise, what it is sorted by, both orders, and the weights before and after."""
        return 6 * self.samples

    def measure(self, readout: Readout, draws: Draws) -> Iterator[Measurement]:
        """Yield the measurements of one batch."""
        noise = draws.uniform(self.samples, readout.content, readout.example_id)
        permuted = permute_attention(readout.attention, readout.content, noise)
        prediction = readout.prediction()
        distance = readout.distance(readout.predict(permuted), prediction)
        yield Measurement("median_tvd", distance.quantile(0.5, dim=0))
        yield from description(readout)
