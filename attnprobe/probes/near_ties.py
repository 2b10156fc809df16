"""How much of attention's order would another rounding, or a slightly other model, turn round?"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnprobe.core.metrics import SHARE, TAU, Metric
from attnprobe.core.randomness import Draws
from attnprobe.core.readout import Readout
from attnprobe.core.settings import Count, Share
from attnprobe.exact.nulls import is_top
from attnprobe.measures import kendall_tau
from attnprobe.probes.base import DESCRIPTION, Measurement, Note, ReadoutProbe
from attnprobe.readings.reading import Headline, Reading

METRICS = (
    Metric(
        "near_ties",
        SHARE,
        "pairs of positions whose weights differ by no more than `tolerance` of the larger one",
        higher_is_better=False,
    ),
    Metric(
        "top_gap",
        SHARE,
        "of the largest weight by which the second is below it",
        higher_is_better=True,
    ),
    Metric(
        "tau_moved",
        TAU,
        "of the weights with themselves, each multiplied by 1 + `tolerance` · normal noise: as "
        "much as any measure can agree with weights that are only known so well",
        higher_is_better=True,
    ),
    Metric(
        "top_stays",
        SHARE,
        "draws of this noise after which the most attended position is the same",
        higher_is_better=True,
    ),
    *DESCRIPTION,
)


@dataclass
class NearTies(ReadoutProbe):
    """How firm is the order of the weights?

    Rank correlations count every pair of positions alike, also those whose weights hardly differ.
    `tau_moved` is a ceiling of every rank correlation with attention: 1 where weights are far
    apart; that of equal weights is undefined (NaN). Of n equal weights `top_stays` is 1 / n on
    average.

    Attributes:
        tolerance: relative change of a weight, above 0 and below 1. Another training moves weights
            by much more, float32 by 1e-7.
        samples: draws of the noise.
    """

    name = "near_ties"
    metrics = METRICS
    buffers_per_sample = 4  # the noise and the weights
    tolerance: Share = 0.01
    samples: Count = 20

    def measure(self, readout: Readout, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield how level the weights are, and what is left of their order under the noise."""
        attention = readout.attention
        content = readout.content
        yield Measurement("near_ties", near_ties(attention, content, self.tolerance))
        yield Measurement("top_gap", top_gap(attention, content))

        noise = draws.normal(self.samples, content, readout.example_id)
        moved = torch.where(content, attention * (1 + self.tolerance * noise), 0)
        yield Measurement("tau_moved", kendall_tau(attention, moved, content).nanmean(0))

        top = is_top(attention, content)
        first_top = top & (top.cumsum(-1) == 1)
        stays = (is_top(moved, content) & first_top).any(-1)
        yield Measurement("top_stays", stays.double().mean(0))


def near_ties(
    attention: Float[Tensor, "batch seq"], content: Bool[Tensor, "batch seq"], tolerance: float
) -> Float[Tensor, "batch"]:
    """Share of the pairs of content positions whose weights are nearly level.

    Args:
        attention: weights, 0 outside the content.
        content: where they may lie.
        tolerance: share of the larger weight by which a level one may be below it.

    Returns:
        The share, 0 to 1; NaN in a text of one position.
    """
    ordered = _descending(attention, content)
    size = content.sum(-1)
    # in falling order, the weights level with a weight follow it without a gap: find where they end
    ends = torch.searchsorted(
        (-ordered).contiguous(), (-ordered * (1 - tolerance)).contiguous(), right=True
    )
    place = torch.arange(ordered.shape[-1], device=ordered.device)
    within = (torch.minimum(ends, size.unsqueeze(-1)) - place - 1).clamp(min=0)
    level = torch.where(place < size.unsqueeze(-1), within, 0).sum(-1).double()
    pairs = (size * (size - 1)).double() / 2
    return level / torch.where(size > 1, pairs, torch.nan)


def top_gap(
    attention: Float[Tensor, "batch seq"], content: Bool[Tensor, "batch seq"]
) -> Float[Tensor, "batch"]:
    """Share of the largest weight by which the second is below it; NaN: only one position."""
    ordered = _descending(attention, content)
    largest = ordered[:, 0]
    second = ordered[:, 1] if ordered.shape[-1] > 1 else largest
    return torch.where(content.sum(-1) > 1, (largest - second) / largest, torch.nan)


def _descending(
    attention: Float[Tensor, "batch seq"], content: Bool[Tensor, "batch seq"]
) -> Float[Tensor, "batch seq"]:
    return attention.masked_fill(~content, -1).sort(-1, descending=True).values


READING = Reading(
    probe="near_ties",
    order=52,
    title="Near ties: how firm is the order of the weights?",
    about=(
        "Rank correlations count every pair of positions alike, also those whose weights hardly "
        "differ. Here every weight is moved by about a hundredth of itself (a setting). Then the "
        "weights are compared with what they were. No measure can agree better with an order that "
        "is only known so well."
    ),
    headlines=(
        Headline("near_ties", "pairs of weights that are nearly level"),
        Headline("top_gap", "lead of the largest weight, as a share of it"),
        Headline("tau_moved", "tau(attention, attention moved by 1 %)"),
        Headline("top_stays", "  the same top word"),
    ),
)
