"""How far apart can orders of removal be? Limits that no order passes, and orders that come as near
to them as a search finds."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from attnprobe.exact.checks import LEAST_MASS, Content, Logits, PerText, Weights, checked

STEPS = 100
"""Dinkelbach's iteration converges faster than linearly: a text of 4,000 positions took 9 steps at
most."""
CELLS = 2**22
"""Numbers sorted at a time: 32 MiB in float64."""


@dataclass(frozen=True)
class ErasureLimits:
    """The least and the greatest lead of one class over another that erasing k positions can leave.

    `lowest[:, k]` and `highest[:, k]` are for k = 0, 1, …, seq − 1 erased content positions. They
    are NaN where that erases all of the attention, or more positions than there are. Both are
    attained, each k by its own set. Where the sets are nested (`…_nested`), one order of removal
    attains all of them, and the limits of a mean over k are attained too; elsewhere that mean is a
    bound."""

    lowest: Float[Tensor, "batch seq"]
    highest: Float[Tensor, "batch seq"]
    lowest_nested: Bool[Tensor, "batch"]
    highest_nested: Bool[Tensor, "batch"]


def erasure_limits(
    attention: Shaped[Tensor, "..."],
    position_logits: Shaped[Tensor, "..."],
    content: Shaped[Tensor, "..."],
    *,
    class_: Shaped[Tensor, "..."],
    rival: Shaped[Tensor, "..."],
) -> ErasureLimits:
    """How far any k erasures can move the lead of `class_` over `rival`, for every k at once.

    Erase k content positions and renormalise: the lead is Σ_kept α_t m_t / Σ_kept α_t with m_t =
    z_t[class] − z_t[rival]. Its minimum over the sets of one size is a fractional programme: with λ
    a lead that some set attains, the set that minimises Σ_kept α_t (m_t − λ) keeps the smallest of
    these terms, and attains a smaller lead unless λ is the minimum (Dinkelbach 1967). So it takes
    one sort per step and a handful of steps, where trying all sets takes (n choose k). With two
    classes the class's probability is a sigmoid of the lead: these are also the limits of every
    erasure curve and, averaged over k, of its area (AOPC).

    The first three arguments are those of `attnprobe.exact.smallest_overtaking_sets`.

    Args:
        class_: the class whose lead is asked for, long `[batch]`.
        rival: over which other class, long `[batch]`.

    Weights below 1e-12 count as none, so that what is kept is never rounding alone
    (`attnprobe.exact.checks`). Ties between positions go to the earlier one, which may hide that
    other, equally good sets are nested.

    Raises:
        UserError: see `attnprobe.exact.checks.checked`.
    """
    attention, position_logits, content = checked(attention, position_logits, content)
    rows = torch.arange(len(attention)).to(class_)
    attention = torch.where(attention < LEAST_MASS, 0, attention)
    lead = position_logits[rows, :, class_] - position_logits[rows, :, rival]
    lowest, lowest_nested = _least(attention, lead, content)
    highest, highest_nested = _least(attention, -lead, content)
    return ErasureLimits(lowest, -highest, lowest_nested, highest_nested)


def _least(
    attention: Weights, lead: Weights, content: Content
) -> tuple[Weights, Bool[Tensor, "batch"]]:
    """The least lead for each number of erased positions, text by text, and whether the sets that
    have it are nested."""
    least = torch.full_like(lead, torch.nan)
    nested = torch.ones(len(lead), dtype=torch.bool, device=lead.device)
    for row, at in enumerate(content):
        weights = attention[row, at]
        leads = lead[row, at]
        mass = attention[row, ~at].sum()
        score = (attention[row, ~at] * lead[row, ~at]).sum()
        numbers = torch.arange(len(weights) + 1, device=lead.device)[: lead.shape[1]]
        parts = numbers.split(max(1, CELLS // max(len(weights), 1)))
        found = zip(
            *(_least_of_sizes(weights, leads, mass, score, part) for part in parts), strict=True
        )
        values, kept = (torch.cat(column) for column in found)
        least[row, : len(values)] = values
        # every kept set lies within the one before it, from which one position fewer is erased
        nested[row] = ((kept[1:] <= kept[:-1]).all(-1) | values[1:].isnan()).all()
    return least, nested


def _least_of_sizes(
    weights: Float[Tensor, "content"],
    leads: Float[Tensor, "content"],
    mass: Float[Tensor, ""],
    score: Float[Tensor, ""],
    numbers: Int[Tensor, "sizes"],
) -> tuple[Float[Tensor, "sizes"], Bool[Tensor, "sizes content"]]:
    """One text: the least lead with each number of positions erased (NaN where nothing is left),
    and what is kept. `mass` and `score` are those of what cannot be erased."""
    keep = len(weights) - numbers
    place = torch.arange(len(weights), device=weights.device)

    def smallest(terms: Tensor, keep: Tensor) -> Tensor:
        """The `keep` smallest terms of each row; of equal ones the last, so that the earliest are
        erased first."""
        order = terms.flip(-1).sort(dim=-1, stable=True).indices
        chosen = place < keep[:, None]
        return torch.zeros_like(chosen).scatter(-1, order, chosen).flip(-1)

    def lead(kept: Tensor) -> Tensor:
        """The lead once only these and what cannot be erased are kept; NaN where no mass is."""
        left = torch.where(kept, weights, 0).sum(-1) + mass
        total = torch.where(kept, weights * leads, 0).sum(-1) + score
        return torch.where(left > 0, total / left, torch.nan)

    # to begin with the heaviest are kept: if these have no mass, no set of that size has
    kept = smallest(-weights.expand(len(numbers), -1), keep)
    ratio = lead(kept)
    going = ~ratio.isnan()
    for _ in range(STEPS):
        if not going.any():
            break
        proposed = smallest(weights * (leads - ratio[going, None]), keep[going])
        reached = lead(proposed)
        better = reached < ratio[going]  # False for NaN: a set without mass is no solution
        rows = going.nonzero()[:, 0]
        kept[rows[better]], ratio[rows[better]] = proposed[better], reached[better]
        going[rows[~better]] = False
    return ratio, kept


class OrderRange(NamedTuple):
    """Of the mean fall over the prefixes of an order, −1 to 1, one number per text; NaN where it is
    not defined.

    `lowest`, `highest`: certified, no order passes them. `lowest_found`, `highest_found`: what
    orders that were found reach. The true limits lie between: equal where certified and found are.
    """

    lowest: PerText
    lowest_found: PerText
    highest_found: PerText
    highest: PerText


def mean_fall(
    attention: Float[Tensor, "seq"],
    lead: Float[Tensor, "seq"],
    order: Int[Tensor, "*orders content"],
) -> Float[Tensor, "*orders"]:
    """The mean, over the prefixes of an order of removal but the last, which leaves nothing, of the
    fall of sigmoid(lead): that of the whole text minus that of what is left, the attention of which
    is renormalised. NaN where less than 1e-12 is left."""
    weights = attention[order]
    scores = (attention * lead)[order]
    left, score = (one.flip(-1).cumsum(-1).flip(-1) for one in (weights, scores))
    ratio = score[..., 1:] / torch.where(left[..., 1:] >= LEAST_MASS, left[..., 1:], torch.nan)
    whole = (score[..., :1] / left[..., :1]).sigmoid()
    return (whole - ratio.sigmoid()).mean(-1)


def order_limits(
    attention: Weights,
    position_logits: Logits,
    content: Content,
    *,
    class_: Int[Tensor, "batch"],
    rival: Int[Tensor, "batch"],
    beam: int,
) -> OrderRange:
    """Of the mean fall (`mean_fall`) that any order of removing a text's positions can reach, for a
    linear decoder.

    The certified limits average those of each number of erasures (`erasure_limits`), whose sets no
    single order need pass through. What is found comes from a beam search over the sets that are
    removed: at each number of erasures the `beam` of them with the greatest sum so far are extended
    by every position. It takes about beam · n² steps for n positions.

    Args:
        beam: 1 or more.

    Raises:
        UserError: see `attnprobe.exact.checks.checked`.
    """
    limits = erasure_limits(attention, position_logits, content, class_=class_, rival=rival)
    rows = torch.arange(len(attention)).to(class_)
    position_logits = position_logits.double()
    attention = attention.double()
    lead = position_logits[rows, :, class_] - position_logits[rows, :, rival]
    found = torch.full((4, len(attention)), torch.nan, dtype=torch.float64, device=attention.device)
    for row in range(len(attention)):
        at = content[row]
        count = int(at.sum())
        if count < 2 or bool((attention[row, at] < LEAST_MASS).any()):
            continue  # a position without attention can be the only one left: some orders are undefined
        weights = attention[row, at]
        leads = lead[row, at]
        whole = limits.lowest[row, 0].sigmoid()
        low = (whole - limits.highest[row, 1:count].sigmoid()).mean()
        high = (whole - limits.lowest[row, 1:count].sigmoid()).mean()
        least, most = (
            _searched(weights, leads, beam, pick) for pick in (torch.neg, torch.positive)
        )
        found[:, row] = torch.stack([low, least.clamp(min=low), most.clamp(max=high), high])
    return OrderRange(*found.unbind())


def _searched(
    weights: Float[Tensor, "content"],
    leads: Float[Tensor, "content"],
    beam: int,
    pick: Callable[[Tensor], Tensor],
) -> Float[Tensor, ""]:
    """The mean fall of the order that a beam search finds; `pick` says what is to be great: the
    fall or its opposite."""
    count = len(weights)
    device = weights.device
    whole = ((weights * leads).sum() / weights.sum()).sigmoid()
    # a set is known by the sum of its positions' numbers: two sets that share one would only cost
    # the search one of them
    numbers = torch.randint(2**62, (count,), generator=torch.Generator().manual_seed(0)).to(device)
    gone = torch.zeros(1, count, dtype=torch.bool, device=device)
    total = weights.new_zeros(1)
    known = numbers.new_zeros(1)
    for _ in range(count - 1):
        left = (~gone * weights).sum(-1, keepdim=True) - weights
        score = (~gone * (weights * leads)).sum(-1, keepdim=True) - weights * leads
        reached = torch.where(
            gone, torch.nan, total.unsqueeze(-1) + whole - (score / left).sigmoid()
        ).flatten()
        best = (
            pick(reached)
            .nan_to_num(nan=-torch.inf)
            .argsort(descending=True, stable=True)[: int((~gone).sum())]
        )
        sets = (known.unsqueeze(-1) + numbers).flatten()[best].cpu().numpy()
        first = torch.from_numpy(np.sort(np.unique(sets, return_index=True)[1])[:beam]).to(device)
        chosen = best[first]
        total = reached[chosen]
        known = (known.unsqueeze(-1) + numbers).flatten()[chosen]
        gone = gone[chosen // count].clone()
        gone[torch.arange(len(gone), device=device), chosen % count] = True
    return total[pick(total).argmax()] / (count - 1)
