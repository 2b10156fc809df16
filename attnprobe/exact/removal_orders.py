"""How far apart can orders of removal be? Limits that no order passes, and orders that come as near to them as a search
finds."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnprobe.exact.erasures import erasure_limits
from attnprobe.exact.ties import LEAST_MASS


class OrderRange(NamedTuple):
    """Of the mean fall over the prefixes of an order, −1 to 1, one number per text; NaN where it is not defined.

    `lowest`, `highest`: certified, no order passes them. `lowest_found`, `highest_found`: what orders that were found reach.
    The true limits lie between: equal where certified and found are.
    """

    lowest: Float[Tensor, "batch"]
    lowest_found: Float[Tensor, "batch"]
    highest_found: Float[Tensor, "batch"]
    highest: Float[Tensor, "batch"]


def mean_fall(
    attention: Float[Tensor, "seq"], lead: Float[Tensor, "seq"], order: Int[Tensor, "*orders content"]
) -> Float[Tensor, "*orders"]:
    """The mean, over the prefixes of an order of removal but the last, which leaves nothing, of the fall of sigmoid(lead):
    that of the whole text minus that of what is left, the attention of which is renormalised. NaN where less than 1e-12 is
    left."""
    weights, scores = attention[order], (attention * lead)[order]
    left, score = (one.flip(-1).cumsum(-1).flip(-1) for one in (weights, scores))
    ratio = score[..., 1:] / torch.where(left[..., 1:] >= LEAST_MASS, left[..., 1:], torch.nan)
    whole = (score[..., :1] / left[..., :1]).sigmoid()
    return (whole - ratio.sigmoid()).mean(-1)


def order_limits(
    attention: Float[Tensor, "batch seq"],
    position_logits: Float[Tensor, "batch seq classes"],
    content: Bool[Tensor, "batch seq"],
    *,
    class_: Int[Tensor, "batch"],
    rival: Int[Tensor, "batch"],
    beam: int,
) -> OrderRange:
    """Of the mean fall (`mean_fall`) that any order of removing a text's positions can reach, for a linear decoder.

    The certified limits average those of each number of erasures (`erasure_limits`), whose sets no single order need pass
    through. What is found comes from a beam search over the sets that are removed: at each number of erasures the `beam` of
    them with the greatest sum so far are extended by every position. It takes about beam · n² steps for n positions.

    Args:
        beam: 1 or more.

    Raises:
        UserError: see `attnprobe.exact.arguments.checked`.
    """
    limits = erasure_limits(attention, position_logits, content, class_=class_, rival=rival)
    attention, position_logits = attention.double(), position_logits.double()
    rows = torch.arange(len(attention), device=attention.device)[:, None]
    place = torch.arange(attention.shape[1], device=attention.device)
    lead = position_logits[rows, place, class_[:, None]] - position_logits[rows, place, rival[:, None]]
    found = torch.full((4, len(attention)), torch.nan, dtype=torch.float64, device=attention.device)
    for row in range(len(attention)):
        at = content[row]
        count = int(at.sum())
        if count < 2 or bool((attention[row, at] < LEAST_MASS).any()):
            continue  # a position without attention can be the only one left: some orders are undefined
        weights, leads = attention[row, at], lead[row, at]
        whole = limits.lowest[row, 0].sigmoid()
        low = (whole - limits.highest[row, 1:count].sigmoid()).mean()
        high = (whole - limits.lowest[row, 1:count].sigmoid()).mean()
        least, most = (searched(weights, leads, beam, pick) for pick in (torch.neg, torch.positive))
        found[:, row] = torch.stack([low, least.clamp(min=low), most.clamp(max=high), high])
    return OrderRange(*found.unbind())


def searched(
    weights: Float[Tensor, "content"],
    leads: Float[Tensor, "content"],
    beam: int,
    pick: Callable[[Tensor], Tensor],
) -> Float[Tensor, ""]:
    """The mean fall of the order that a beam search finds; `pick` says what is to be great: the fall or its opposite."""
    count, device = len(weights), weights.device
    whole = ((weights * leads).sum() / weights.sum()).sigmoid()
    # a set is known by the sum of its positions' numbers: two sets that share one would only cost the search one of them
    numbers = torch.randint(2**62, (count,), generator=torch.Generator().manual_seed(0)).to(device)
    gone = torch.zeros(1, count, dtype=torch.bool, device=device)
    total, known = weights.new_zeros(1), numbers.new_zeros(1)
    for _ in range(count - 1):
        left = (~gone * weights).sum(-1, keepdim=True) - weights
        score = (~gone * (weights * leads)).sum(-1, keepdim=True) - weights * leads
        reached = torch.where(gone, torch.nan, total.unsqueeze(-1) + whole - (score / left).sigmoid()).flatten()
        best = pick(reached).nan_to_num(nan=-torch.inf).argsort(descending=True, stable=True)[: int((~gone).sum())]
        sets = (known.unsqueeze(-1) + numbers).flatten()[best].cpu().numpy()
        first = torch.from_numpy(np.sort(np.unique(sets, return_index=True)[1])[:beam]).to(device)
        chosen = best[first]
        total, known = reached[chosen], (known.unsqueeze(-1) + numbers).flatten()[chosen]
        gone = gone[chosen // count].clone()
        gone[torch.arange(len(gone), device=device), chosen % count] = True
    return total[pick(total).argmax()] / (count - 1)
