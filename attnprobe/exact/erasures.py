"""The best and the worst erasures of each size for a linear decoder, at any length: the limits of every order's curve."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from attnprobe.exact.arguments import checked
from attnprobe.exact.ties import LEAST_MASS

STEPS = 100
"""Dinkelbach's iteration converges faster than linearly: a text of 4,000 positions took 9 steps at most."""
CELLS = 2**22
"""Numbers sorted at a time: 32 MiB in float64."""


@dataclass(frozen=True)
class ErasureLimits:
    """The least and the greatest lead of one class over another that erasing k positions can leave.

    `lowest[:, k]` and `highest[:, k]` are for k = 0, 1, …, seq − 1 erased content positions. They are NaN where that
    erases all of the attention, or more positions than there are. Both are attained, each k by its own set. Where the
    sets are nested (`…_nested`), one order of removal attains all of them, and the limits of a mean over k are
    attained too; elsewhere that mean is a bound.
    """

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

    Erase k content positions and renormalise: the lead is Σ_kept α_t m_t / Σ_kept α_t with m_t = z_t[class] − z_t[rival].
    Its minimum over the sets of one size is a fractional programme: with λ a lead that some set attains, the set that
    minimises Σ_kept α_t (m_t − λ) keeps the smallest of these terms, and attains a smaller lead unless λ is the minimum
    (Dinkelbach 1967). So it takes one sort per step and a handful of steps, where trying all sets takes
    (n choose k). With two classes the class's probability is a sigmoid of the lead: these are also the limits of every
    erasure curve and, averaged over k, of its area (AOPC).

    Args:
        attention: weights of 0 or more, `[batch, seq]`, summing to 1.
        position_logits: `[batch, seq, classes]`.
        content: True where a position may be erased, `[batch, seq]`.
        class_: the class whose lead is asked for, long `[batch]`.
        rival: over which other class, long `[batch]`.

    Weights below 1e-12 count as none, so that what is kept is never rounding alone (`attnprobe.exact.ties`). Ties
    between positions go to the earlier one, which may hide that other, equally good sets are nested.

    Raises:
        UserError: see `attnprobe.exact.arguments.checked`.
    """
    attention, position_logits, content = checked(attention, position_logits, content)
    attention = torch.where(attention < LEAST_MASS, 0, attention)
    lead = (
        position_logits.gather(-1, class_.view(-1, 1, 1).expand(-1, content.shape[1], 1))
        - position_logits.gather(-1, rival.view(-1, 1, 1).expand(-1, content.shape[1], 1))
    )[..., 0]
    lowest, lowest_nested = _least(attention, lead, content)
    highest, highest_nested = _least(attention, -lead, content)
    return ErasureLimits(lowest, -highest, lowest_nested, highest_nested)


def _least(
    attention: Float[Tensor, "batch seq"], lead: Float[Tensor, "batch seq"], content: Bool[Tensor, "batch seq"]
) -> tuple[Float[Tensor, "batch seq"], Bool[Tensor, "batch"]]:
    """The least lead for each number of erased positions, text by text, and whether the sets that have it are nested."""
    least = torch.full_like(lead, torch.nan)
    nested = torch.ones(len(lead), dtype=torch.bool, device=lead.device)
    for row in range(len(lead)):
        at = content[row]
        weights, leads = attention[row, at], lead[row, at]
        mass = attention[row, ~at].sum()
        score = (attention[row, ~at] * lead[row, ~at]).sum()
        numbers = torch.arange(len(weights) + 1, device=lead.device)[: lead.shape[1]]
        within: Tensor | None = None
        for part in numbers.split(max(1, CELLS // max(len(weights), 1))):
            values, kept = _least_of_sizes(weights, leads, mass, score, part)
            least[row, part] = values
            # every kept set lies within the one before it, from which one position fewer is erased
            defined = ~values.isnan()
            chain = kept if within is None else torch.cat([within[None], kept])
            inside = (chain[1:] <= chain[:-1]).all(-1)
            nested[row] &= bool((inside | ~defined[-len(inside) :]).all())
            within = kept[-1]
    return least, nested


def _least_of_sizes(
    weights: Float[Tensor, "content"],
    leads: Float[Tensor, "content"],
    mass: Float[Tensor, ""],
    score: Float[Tensor, ""],
    numbers: Int[Tensor, "sizes"],
) -> tuple[Float[Tensor, "sizes"], Bool[Tensor, "sizes content"]]:
    """One text: the least lead with each number of positions erased (NaN where nothing is left), and what is kept."""
    keep = len(weights) - numbers
    place = torch.arange(len(weights), device=weights.device)
    # to begin with the heaviest are kept: if these have no mass, no set of that size has
    kept = _smallest(-weights.expand(len(numbers), -1), keep, place)
    ratio = _ratio(kept, weights, leads, mass, score)
    going = ~ratio.isnan()
    for _ in range(STEPS):
        if not going.any():
            break
        terms = weights * (leads - ratio[going, None])
        proposed = _smallest(terms, keep[going], place)
        reached = _ratio(proposed, weights, leads, mass, score)
        better = reached < ratio[going]  # False for NaN: a set without mass is no solution
        rows = going.nonzero()[:, 0]
        kept[rows[better]], ratio[rows[better]] = proposed[better], reached[better]
        going[rows[~better]] = False
    return ratio, kept


def _smallest(
    terms: Float[Tensor, "sizes content"], keep: Int[Tensor, "sizes"], place: Int[Tensor, "content"]
) -> Bool[Tensor, "sizes content"]:
    """The `keep` smallest terms of each row; of equal ones the last, so that the earliest are erased first."""
    order = terms.flip(-1).sort(dim=-1, stable=True).indices
    chosen = (place < keep[:, None]).to(torch.bool)
    return torch.zeros_like(chosen).scatter(-1, order, chosen).flip(-1)


def _ratio(
    kept: Bool[Tensor, "sizes content"],
    weights: Float[Tensor, "content"],
    leads: Float[Tensor, "content"],
    mass: Float[Tensor, ""],
    score: Float[Tensor, ""],
) -> Float[Tensor, "sizes"]:
    """The lead once only these and what cannot be erased are kept; NaN where no mass is."""
    left = torch.where(kept, weights, 0).sum(-1) + mass
    total = torch.where(kept, weights * leads, 0).sum(-1) + score
    return torch.where(left > 0, total / left, torch.nan)
