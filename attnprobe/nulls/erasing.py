"""What erasing an attention's top item does to the prediction made with that attention, in the frozen model."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnprobe.exact.ties import LEAST_MASS
from attnprobe.readout import Readout

CHUNK = 4_000_000
"""Attention weights at a time."""


class Erased(NamedTuple):
    """`drop`: probability that the decision loses, −1 to 1. `flip`: 1 where the decision is another one afterwards, else 0.
    NaN where less than 1e-12 of the attention is left."""

    drop: Float[Tensor, "*samples batch"]
    flip: Float[Tensor, "*samples batch"]


def erased(
    readout: Readout, attention: Float[Tensor, "samples batch seq"], item: Int[Tensor, "samples batch"]
) -> Erased:
    """Erase one item of each attention and renormalise the rest. The decision is that under this attention, whole."""
    before = readout.logits(attention)
    rest = attention.scatter(-1, item.unsqueeze(-1), 0)
    mass = rest.sum(-1, keepdim=True)
    defined = mass.squeeze(-1) >= LEAST_MASS
    after = readout.logits(torch.where(mass > 0, rest / torch.where(mass > 0, mass, 1), attention))
    decision = before.argmax(-1, keepdim=True)
    lost = (before.softmax(-1) - after.softmax(-1)).gather(-1, decision).squeeze(-1)
    lead = after.amax(-1) - after.gather(-1, decision).squeeze(-1)
    flips = lead > LEAST_MASS * after.abs().nan_to_num(posinf=0).amax(-1).clamp(min=1)
    return Erased(torch.where(defined, lost, torch.nan), torch.where(defined, flips.double(), torch.nan))


def each_erased(readout: Readout, attention: Float[Tensor, "batch seq"]) -> Erased:
    """Each position erased alone: `[batch, seq]`; NaN outside content."""
    return _by_position(readout, attention, lambda place: attention.expand(len(place), -1, -1))


def each_on_top(readout: Readout, attention: Float[Tensor, "batch seq"], top: Int[Tensor, "batch"]) -> Erased:
    """The largest weight put on each position in turn, in exchange for that position's own, and erased there:
    `[batch, seq]`; NaN outside content. The best of them is the most that erasing the top item can do in this model with
    these weights, wherever the largest one lies."""
    largest = attention.gather(-1, top.unsqueeze(-1))

    def exchanged(place: Int[Tensor, "samples"]) -> Float[Tensor, "samples batch seq"]:
        at = place.view(-1, 1, 1).expand(-1, len(attention), 1)
        swapped = attention.expand(len(place), -1, -1)
        own = swapped.gather(-1, at)
        swapped = swapped.scatter(-1, top.view(1, -1, 1).expand(len(place), -1, 1), own)
        return swapped.scatter(-1, at, largest.expand(len(place), -1, -1))

    return _by_position(readout, attention, exchanged)


def _by_position(readout: Readout, attention: Float[Tensor, "batch seq"], of: Callable[[Tensor], Tensor]) -> Erased:
    parts = []
    for place in torch.arange(attention.shape[1], device=attention.device).split(max(1, CHUNK // attention.numel())):
        parts.append(erased(readout, of(place), place.unsqueeze(-1).expand(-1, len(attention))))
    joined = (torch.cat(column).T for column in zip(*parts, strict=True))
    return Erased(*(torch.where(readout.content, one, torch.nan) for one in joined))
