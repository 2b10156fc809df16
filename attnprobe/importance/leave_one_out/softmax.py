"""Softmax-weighted means that can be put together from parts."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F


class WeightedMean(NamedTuple):
    """A softmax-weighted mean over some positions, in a form in which two of them can be merged.

    `weight` is the log-sum-exp of the positions' scores (−inf: no position), `mean` their values' weighted mean.
    """

    weight: Float[Tensor, "*any"]
    mean: Float[Tensor, "*any values"]


def merge(a: WeightedMean, b: WeightedMean) -> WeightedMean:
    """The mean over both sets of positions; no cancellation, no overflow."""
    weight = torch.logaddexp(a.weight, b.weight)
    nothing = weight.isneginf()
    share_a, share_b = (torch.where(nothing, 0, (x.weight - weight).exp()).unsqueeze(-1) for x in (a, b))
    return WeightedMean(weight, share_a * a.mean + share_b * b.mean)


def prefix_means(
    scores: Float[Tensor, "batch seq"], values: Float[Tensor, "batch seq values"], *, reverse: bool = False
) -> WeightedMean:
    """The means over the positions before each position `[batch, seq + 1]`, or with `reverse` over those from each
    position on."""
    if reverse:
        weight, mean = prefix_means(scores.flip(1), values.flip(1))
        return WeightedMean(weight.flip(1), mean.flip(1))
    weight, mean = F.pad(scores, (1, 0), value=-torch.inf), F.pad(values, (0, 0, 1, 0))
    reach = 1
    # every mean takes in the one `reach` before it, and then stands for twice as many positions
    while reach < weight.shape[1]:
        both = merge(
            WeightedMean(weight[:, :-reach], mean[:, :-reach]), WeightedMean(weight[:, reach:], mean[:, reach:])
        )
        weight = torch.cat([weight[:, :reach], both.weight], 1)
        mean = torch.cat([mean[:, :reach], both.mean], 1)
        reach *= 2
    return WeightedMean(weight, mean)


class SoftmaxAccumulator:
    """The softmax-weighted means of many texts, whose positions come in any order, in float64.

    Positions wait until there are many: a few long operations instead of many short ones.
    """

    LIMIT = 2**20
    """Numbers that may wait."""

    def __init__(self, top: Float[Tensor, "texts"], values: int) -> None:
        """`top`: any finite score for a start, best the largest that is to be expected."""
        self.top = top
        self.sums = top.new_zeros(len(top), values + 1)
        self.waiting: list[tuple[Tensor, Tensor, Tensor]] = []
        self.count = 0

    def add(self, text: Int[Tensor, "new"], score: Float[Tensor, "new"], value: Float[Tensor, "new values"]) -> None:
        """One more position for each of these texts; a score of −inf adds nothing."""
        self.waiting.append((text, score, value))
        self.count += value.numel()
        if self.count > self.LIMIT:
            self.collect()

    def collect(self) -> None:
        """Take what waits into the sums, relative to the largest score so far: no overflow."""
        text, score, value = (torch.cat(column) for column in zip(*self.waiting, strict=True))
        score = score.double()
        top = self.top.scatter_reduce(0, text, score, "amax")
        weight = (score - top.index_select(0, text)).exp().unsqueeze(1)
        self.sums *= (self.top - top).exp().unsqueeze(1)
        self.sums.index_add_(0, text, torch.cat([weight, weight * value], 1))
        self.top, self.waiting, self.count = top, [], 0

    def means(self) -> WeightedMean:
        """Of all positions so far."""
        if self.waiting:
            self.collect()
        total = self.sums[:, :1]
        mean = torch.where(total > 0, self.sums[:, 1:] / total, 0)
        return WeightedMean(total.squeeze(1).log() + self.top, mean)
