"""How far apart can orders of removal be?

Limits that no order passes, and orders that come as near to them as a search finds.
"""

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

    Attributes:
        lowest: `[:, k]` for k = 0, 1, …, seq − 1 erased content positions, each attained by a set
            of its own; NaN where that erases all of the attention, or more than there is.
        highest: likewise.
        lowest_nested: whether the sets are nested. Then one order of removal attains all of them,
            and the limit of a mean over k is attained too; elsewhere that mean is a bound.
        highest_nested: likewise.
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

    Erase k content positions and renormalise: the lead is Σ_kept α_t m_t / Σ_kept α_t with m_t =
    z_t[class] − z_t[rival]. Its minimum over the sets of one size is a fractional programme: with λ
    a lead that some set attains, the set that minimises Σ_kept α_t (m_t − λ) keeps the smallest of
    these terms, and attains a smaller lead unless λ is the minimum (Dinkelbach 1967). So it takes
    one sort per step and a handful of steps, where trying all sets takes (n choose k). With two
    classes the class's probability is a sigmoid of the lead: these are also the limits of every
    erasure curve and, averaged over k, of its area (AOPC).

    Weights below 1e-12 count as none, so that what is kept is never rounding alone
    (`attnprobe.exact.checks`). Ties between positions go to the earlier one, which may hide that
    other, equally good sets are nested.

    Args:
        attention: as for `attnprobe.exact.smallest_overtaking_sets`.
        position_logits: likewise.
        content: likewise.
        class_: the class whose lead is asked for, long `[batch]`.
        rival: over which other class, long `[batch]`.

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
    """The least lead for each number of erased positions, text by text.

    Returns:
        The leads, and whether the sets that attain them are nested.
    """
    least = torch.full_like(lead, torch.nan)
    nested = torch.ones(len(lead), dtype=torch.bool, device=lead.device)
    for row, is_content in enumerate(content):
        text = _Erasable(
            weights=attention[row, is_content],
            leads=lead[row, is_content],
            fixed_mass=attention[row, ~is_content].sum(),
            fixed_score=(attention[row, ~is_content] * lead[row, ~is_content]).sum(),
        )
        count = len(text.weights)
        sizes = torch.arange(count + 1, device=lead.device)[: lead.shape[1]]
        leads = []
        kept_sets = []
        for some_sizes in sizes.split(max(1, CELLS // max(count, 1))):
            some_leads, some_sets = text.least_of_sizes(some_sizes)
            leads.append(some_leads)
            kept_sets.append(some_sets)
        values = torch.cat(leads)
        kept = torch.cat(kept_sets)

        least[row, : len(values)] = values
        # every kept set lies within the one before it, from which one position fewer is erased
        is_within = (kept[1:] <= kept[:-1]).all(-1)
        nested[row] = (is_within | values[1:].isnan()).all()
    return least, nested


@dataclass(frozen=True)
class _Erasable:
    """One text, whose positions may be erased in part.

    Attributes:
        weights: of the positions that may be erased.
        leads: of one class over another, likewise.
        fixed_mass: total weight of all others.
        fixed_score: their part in Σ α_t m_t.
    """

    weights: Float[Tensor, "content"]
    leads: Float[Tensor, "content"]
    fixed_mass: Float[Tensor, ""]
    fixed_score: Float[Tensor, ""]

    def least_of_sizes(
        self, sizes: Int[Tensor, "sizes"]
    ) -> tuple[Float[Tensor, "sizes"], Bool[Tensor, "sizes content"]]:
        """The least lead with each number of positions erased, and which positions are kept then.

        Dinkelbach's iteration, for all sizes at once; NaN where nothing is left.
        """
        remaining = len(self.weights) - sizes
        # at first the heaviest are kept: if these have no mass, no set of that size has
        kept = self._smallest(-self.weights.expand(len(sizes), -1), remaining)
        least = self._lead(kept)
        active = ~least.isnan()
        for _ in range(STEPS):
            if not active.any():
                break
            terms = self.weights * (self.leads - least[active, None])
            proposal = self._smallest(terms, remaining[active])
            proposed_lead = self._lead(proposal)
            improves = proposed_lead < least[active]  # False for NaN: no mass, no solution
            rows = active.nonzero()[:, 0]
            kept[rows[improves]] = proposal[improves]
            least[rows[improves]] = proposed_lead[improves]
            active[rows[~improves]] = False
        return least, kept

    def _smallest(
        self, terms: Float[Tensor, "sizes content"], remaining: Int[Tensor, "sizes"]
    ) -> Bool[Tensor, "sizes content"]:
        """The smallest terms of each row.

        Of equal ones the last, so that the earliest are erased first.
        """
        order = terms.flip(-1).sort(dim=-1, stable=True).indices
        rank = torch.arange(terms.shape[-1], device=terms.device)
        is_chosen = rank < remaining[:, None]
        return torch.zeros_like(is_chosen).scatter(-1, order, is_chosen).flip(-1)

    def _lead(self, kept: Bool[Tensor, "sizes content"]) -> Float[Tensor, "sizes"]:
        """The lead when only these and what cannot be erased are kept; NaN where no mass is."""
        mass = torch.where(kept, self.weights, 0).sum(-1) + self.fixed_mass
        score = torch.where(kept, self.weights * self.leads, 0).sum(-1) + self.fixed_score
        return torch.where(mass > 0, score / mass, torch.nan)


class OrderRange(NamedTuple):
    """Limits of the mean fall over the prefixes of an order, −1 to 1, one number per text.

    NaN where the fall is not defined. The true limits lie between what is certified and what is
    found: they are known where these are equal.

    Attributes:
        lowest: certified: no order falls less.
        lowest_found: what an order that was found reaches.
        highest_found: what an order that was found reaches.
        highest: certified: no order falls more.
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
    """The mean fall of sigmoid(lead) over the prefixes of an order of removal.

    The fall is that of the whole text minus that of what remains, its attention renormalised. The
    last prefix, which leaves nothing, does not count. NaN where less than 1e-12 remains.

    Args:
        attention: weights, 0 or more.
        lead: of one class over another, per position.
        order: positions, first removed first.
    """
    weights = attention[order]
    scores = (attention * lead)[order]
    # sums over what remains before each removal
    remaining_mass = weights.flip(-1).cumsum(-1).flip(-1)
    remaining_score = scores.flip(-1).cumsum(-1).flip(-1)
    mass = torch.where(remaining_mass[..., 1:] >= LEAST_MASS, remaining_mass[..., 1:], torch.nan)
    remaining_lead = remaining_score[..., 1:] / mass
    whole_lead = remaining_score[..., :1] / remaining_mass[..., :1]
    return (whole_lead.sigmoid() - remaining_lead.sigmoid()).mean(-1)


def order_limits(
    attention: Weights,
    position_logits: Logits,
    content: Content,
    *,
    class_: Int[Tensor, "batch"],
    rival: Int[Tensor, "batch"],
    beam: int,
) -> OrderRange:
    """How little and how much the prediction can fall on average, whatever order positions go in.

    For a linear decoder; the average is `mean_fall`. The certified limits average those of each
    number of erasures (`erasure_limits`), whose sets no single order need pass through. What is
    found comes from a beam search over the sets that are removed: at each number of erasures the
    `beam` of them with the greatest sum so far are extended by every position. It takes about
    beam · n² steps for n positions.

    Args:
        attention: as for `attnprobe.exact.smallest_overtaking_sets`.
        position_logits: likewise.
        content: likewise.
        class_: the class whose lead is asked for.
        rival: over which other class.
        beam: sets that are extended at each step, 1 or more.

    Raises:
        UserError: see `attnprobe.exact.checks.checked`.
    """
    limits = erasure_limits(attention, position_logits, content, class_=class_, rival=rival)
    rows = torch.arange(len(attention)).to(class_)
    position_logits = position_logits.double()
    attention = attention.double()
    lead = position_logits[rows, :, class_] - position_logits[rows, :, rival]
    shape = (len(OrderRange._fields), len(attention))
    ranges = torch.full(shape, torch.nan, dtype=torch.float64, device=attention.device)
    for row, is_content in enumerate(content):
        count = int(is_content.sum())
        weights = attention[row, is_content]
        if count < 2 or bool((weights < LEAST_MASS).any()):
            # a position without attention can be the only one left: some orders are undefined
            continue
        leads = lead[row, is_content]
        whole = limits.lowest[row, 0].sigmoid()
        lowest = (whole - limits.highest[row, 1:count].sigmoid()).mean()
        highest = (whole - limits.lowest[row, 1:count].sigmoid()).mean()
        least = beam_search(weights, leads, beam, objective=torch.neg)
        greatest = beam_search(weights, leads, beam, objective=torch.positive)
        ranges[:, row] = torch.stack(
            [lowest, least.clamp(min=lowest), greatest.clamp(max=highest), highest]
        )
    return OrderRange(*ranges.unbind())


def beam_search(
    weights: Float[Tensor, "content"],
    leads: Float[Tensor, "content"],
    beam: int,
    *,
    objective: Callable[[Tensor], Tensor],
) -> Float[Tensor, ""]:
    """The mean fall of the order that a beam search finds.

    Args:
        weights: of the positions, above 0.
        leads: of one class over another, per position.
        beam: sets that are extended at each step.
        objective: what is to be large: the fall itself, or its opposite.
    """
    count = len(weights)
    scores = weights * leads
    whole = (scores.sum() / weights.sum()).sigmoid()
    # a set is known by the sum of its positions' keys: two sets that share one would only cost the
    # search one of them
    generator = torch.Generator().manual_seed(0)
    keys = torch.randint(2**62, (count,), generator=generator).to(weights.device)

    # the beam: which positions each set has removed, the sum of its falls, and its key
    removed = torch.zeros(1, count, dtype=torch.bool, device=weights.device)
    total = weights.new_zeros(1)
    set_keys = keys.new_zeros(1)
    for _ in range(count - 1):
        mass = (~removed * weights).sum(-1, keepdim=True) - weights
        score = (~removed * scores).sum(-1, keepdim=True) - scores
        extended = total.unsqueeze(-1) + whole - (score / mass).sigmoid()
        extended = torch.where(removed, torch.nan, extended).flatten()
        extended_keys = (set_keys.unsqueeze(-1) + keys).flatten()

        value = objective(extended).nan_to_num(nan=-torch.inf)
        candidates = value.argsort(descending=True, stable=True)[: int((~removed).sum())]
        best = candidates[_first_of_each(extended_keys[candidates], beam)]
        total = extended[best]
        set_keys = extended_keys[best]
        removed = removed[best // count].clone()
        removed[torch.arange(len(removed), device=removed.device), best % count] = True
    return total[objective(total).argmax()] / (count - 1)


def _first_of_each(keys: Int[Tensor, "candidates"], most: int) -> Int[Tensor, "chosen"]:
    """Where each key comes first, of the first so many keys.

    Several orders lead to one set: the best of them stands for it.
    """
    _, first = np.unique(keys.cpu().numpy(), return_index=True)
    return torch.from_numpy(np.sort(first)[:most]).to(keys.device)
