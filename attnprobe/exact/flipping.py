"""The fewest positions whose erasure changes the decision, exactly, where the decoder is linear."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnprobe.exact.checks import checked, decide, leads, least_lead

NEVER = -1
"""Size of a set that provably, up to rounding, does not exist."""


@dataclass(frozen=True)
class FlippingSet:
    """The smallest set of positions whose erasure changes the decision.

    Attributes:
        size: 1 or more, or −1 where no set does it, proved up to rounding.
        members: the positions; all False where no set does it.
        flips_to: the class predicted once the set is erased; −1 where there is none.
    """

    size: Int[Tensor, "batch"]
    members: Bool[Tensor, "batch seq"]
    flips_to: Int[Tensor, "batch"]


@dataclass(frozen=True)
class OvertakingSets:
    """For every class, the smallest set whose erasure lifts its logit above the decision's.

    A third class may be higher still.

    Attributes:
        decision: the class predicted with nothing erased, the first of tied ones.
        size: 1 or more; −1 where no set does it, proved up to rounding; 0 for the decision itself.
        members: the positions of each set.
    """

    decision: Int[Tensor, "batch"]
    size: Int[Tensor, "batch classes"]
    members: Bool[Tensor, "batch classes seq"]


def smallest_overtaking_sets(
    attention: Float[Tensor, "..."],
    position_logits: Float[Tensor, "..."],
    content: Bool[Tensor, "..."],
) -> OvertakingSets:
    """For every class, the fewest content positions whose erasure lifts it above the decision.

    Erase a set S and renormalise the rest. With decision c, rival k and d_t = z_t[k] − z_t[c],
    renormalising multiplies by a positive number, so k is above c exactly when Σ_{t∉S} α_t d_t > 0.
    Of all sets of n positions, the one that removes the n smallest α_t d_t keeps the largest sum;
    so positions are erased in increasing order of α_t d_t, and the smallest n whose kept sum is
    positive is the size. Where no n has a positive sum, no set does it. O(classes · seq log seq).

    The kept part is summed from the far end of the order, so that nothing cancels. Of equal
    α_t d_t the earlier position is erased first. "Positive" means above 1e-12 of the largest |d_t|
    (`attnprobe.exact.checks`): what is less is a tie up to rounding, or rests on less than 1e-12 of
    the attention. A tie is not ahead. So the sizes are proved up to rounding.

    Args:
        attention: weights of 0 or more, `[batch, seq]`, summing to 1. Weight outside `content` is
            never erased.
        position_logits: z_t = W h_t + b, `[batch, seq, classes]`, 2 or more classes.
        content: True where a position may be erased, `[batch, seq]`.

    Raises:
        UserError: see `attnprobe.exact.checks.checked`.

    Note:
        Erasing everything overtakes nothing: nothing is kept, so there is no prediction. (Serrano &
        Smith's code counts the bias's own decision as a flip there.) All arithmetic is in float64.
    """
    rivals = _rivals(attention, position_logits, content)
    members = _erased_first(rivals.size, rivals.advantage, rivals.ordered, content[:, None])
    return OvertakingSets(rivals.decision, rivals.size, members)


def smallest_flipping_set(
    attention: Float[Tensor, "..."],
    position_logits: Float[Tensor, "..."],
    content: Bool[Tensor, "..."],
) -> FlippingSet:
    """The fewest content positions whose erasure changes the decision.

    The decision c flips when some rival's logit is strictly above c's, so the optimum over all sets
    is the smallest of the rivals' own optima (`smallest_overtaking_sets`, which has the proof, the
    arguments and the errors). Among rivals that need equally few, the lowest class's set is given.

    Args:
        attention: as for `smallest_overtaking_sets`.
        position_logits: likewise.
        content: likewise.

    >>> attention = torch.tensor([[0.6, 0.3, 0.1]])
    >>> margin = torch.tensor([[2.0, -1.0, -3.0]])  # of class 1 over class 0
    >>> position_logits = torch.stack([torch.zeros_like(margin), margin], -1)
    >>> smallest_flipping_set(attention, position_logits, torch.ones(1, 3, dtype=torch.bool))
    FlippingSet(size=tensor([1]), members=tensor([[ True, False, False]]), flips_to=tensor([0]))
    """
    rivals = _rivals(attention, position_logits, content)
    # the rival that needs the fewest; −1 (never) and the decision's own 0 count as longer than any
    # text
    longer_than_text = content.shape[-1] + 1
    size, rival = torch.where(rivals.size > 0, rivals.size, longer_than_text).min(-1)
    flips = size < longer_than_text
    size = torch.where(flips, size, NEVER)

    rows = torch.arange(len(size), device=size.device)
    members = _erased_first(
        size, rivals.advantage[rows, rival], rivals.ordered[rows, rival], content
    )

    # once these are erased, a third class may be ahead of the rival
    remaining = torch.where(members[:, None], 0, rivals.advantage).sum(-1)
    remaining[rows, rivals.decision] = -torch.inf
    flips_to = torch.where(flips, remaining.argmax(-1), NEVER)
    return FlippingSet(size, members, flips_to)


class _Rivals(NamedTuple):
    """Every class against the decision.

    Attributes:
        decision: the class c predicted with nothing erased.
        advantage: α_t (z_t[k] − z_t[c]) of every class k and position t.
        ordered: the content's advantages, negated and ascending, then +∞: the position that is
            erased last comes first.
        size: size of the smallest overtaking set; −1 where there is none, 0 for the decision.
    """

    decision: Int[Tensor, "batch"]
    advantage: Float[Tensor, "batch classes seq"]
    ordered: Float[Tensor, "batch classes seq"]
    size: Int[Tensor, "batch classes"]


def _rivals(attention: Tensor, position_logits: Tensor, content: Tensor) -> _Rivals:
    attention, position_logits, content = checked(attention, position_logits, content)
    decision = decide(attention, position_logits)
    lead = leads(position_logits, decision)
    threshold = least_lead(lead, content | (attention > 0))[..., None]
    advantage = attention[:, None] * lead
    # what cannot be erased goes into the sum that is always kept
    fixed = advantage.masked_fill(content[:, None], 0).sum(-1, keepdim=True)
    ordered = _sorted((-advantage).masked_fill_(~content[:, None], torch.inf))

    length = content.sum(-1)[:, None]
    most_kept = _most_kept(fixed, ordered, threshold, length[..., None])
    # with all content erased, what cannot be erased may overtake on its own
    is_possible = (most_kept > 0) | ((fixed > threshold)[..., 0] & (length > 0))
    size = torch.where(is_possible, length - most_kept, NEVER).scatter(-1, decision[:, None], 0)
    return _Rivals(decision, advantage, ordered, size)


def _most_kept(
    fixed: Float[Tensor, "batch classes 1"],
    ordered: Float[Tensor, "batch classes seq"],
    threshold: Float[Tensor, "batch classes 1"],
    length: Int[Tensor, "batch 1 1"],
) -> Int[Tensor, "batch classes"]:
    """The most content positions that can be kept while a class is ahead of the decision.

    0 where none can be kept.
    """
    # kept_sum[m]: only the m + 1 positions that are erased last are left
    kept_sum = fixed - ordered.cumsum(-1)
    kept_count = torch.arange(1, ordered.shape[-1] + 1, device=ordered.device)
    # keeping all content is not an erasure; keeping none of it leaves `fixed`
    overtakes = (kept_sum > threshold) & (kept_count < length)
    return torch.where(overtakes, kept_count, 0).amax(-1)


def _sorted(values: Float[Tensor, "*rows seq"]) -> Float[Tensor, "*rows seq"]:
    """Sort each row in ascending order.

    On a CPU numpy is dozens of times faster than PyTorch, which also finds the order.
    """
    if values.device.type == "cpu":
        return torch.from_numpy(np.sort(values.numpy(), axis=-1))
    return values.sort(-1).values


def _erased_first(
    size: Int[Tensor, "*rows"],
    advantage: Float[Tensor, "*rows seq"],
    ordered: Float[Tensor, "*rows seq"],
    content: Bool[Tensor, "*#rows seq"],
) -> Bool[Tensor, "*rows seq"]:
    """The first `size` content positions to be erased; none where `size` is not above 0.

    The sorted values alone tell them: they are the positions with less advantage than the last one
    to be erased, and as many of the earliest positions with the same advantage as are still needed.
    """
    last = (content.sum(-1) - size).clamp(0, content.shape[-1] - 1).unsqueeze(-1)
    bound = -ordered.gather(-1, last)
    below = content & (advantage < bound)
    level = content & (advantage == bound)
    earliest = level.cumsum(-1) <= (size - below.sum(-1)).unsqueeze(-1)
    return (below | (level & earliest)) & (size > 0).unsqueeze(-1)
