"""The fewest positions whose erasure changes the decision, exactly, where the decoder is linear."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnprobe.exact.arguments import checked

NEVER = -1
"""Size of a set that provably does not exist."""


@dataclass(frozen=True)
class FlippingSet:
    """The smallest set of positions whose erasure changes the decision of each example.

    `size` is 1 or more, or −1 where provably no set flips the decision (`members` then all False). `flips_to` is the
    class predicted once the set is erased, −1 where there is none.
    """

    size: Int[Tensor, "batch"]
    members: Bool[Tensor, "batch seq"]
    flips_to: Int[Tensor, "batch"]


@dataclass(frozen=True)
class OvertakingSets:
    """For every class, the smallest set after whose erasure its logit is above the decision's.

    `decision` is the class predicted with nothing erased, the first of tied ones. `size` is 1 or more, −1 where
    provably no set does it, and 0 for the decision itself. The class named need not win: a third one may be higher
    still.
    """

    decision: Int[Tensor, "batch"]
    size: Int[Tensor, "batch classes"]
    members: Bool[Tensor, "batch classes seq"]


def smallest_overtaking_sets(
    attention: Float[Tensor, "..."], position_logits: Float[Tensor, "..."], content: Bool[Tensor, "..."]
) -> OvertakingSets:
    """For every class, the fewest content positions whose erasure lifts it above the decision.

    Erase a set S and renormalise the rest. With decision c, rival k and d_t = z_t[k] − z_t[c], renormalising
    multiplies by a positive number, so k is above c exactly when Σ_{t∉S} α_t d_t > 0. Of all sets of n positions, the
    one that removes the n smallest α_t d_t keeps the largest sum; so positions go in increasing order of α_t d_t, and
    the first n whose kept sum is positive is the smallest. If no n is, none exists (equivalently: no kept α_t d_t is
    positive, not even beside what cannot be erased). O(classes · seq log seq).

    The kept part is summed from the far end of the order: no cancellation. Ties in the order go to the earlier
    position.

    Args:
        attention: weights of 0 or more, `[batch, seq]`, summing to 1. Weight outside `content` is never erased.
        position_logits: z_t = W h_t + b, `[batch, seq, classes]`, 2 or more classes.
        content: True where a position may be erased, `[batch, seq]`.

    Raises:
        UserError: see `attnprobe.exact.arguments.checked`.

    Note:
        Erasing everything overtakes nothing: nothing is kept, so there is no prediction. (Serrano & Smith's code
        counts the bias's own decision as a flip there.) All arithmetic is in float64; a sum that is 0 in exact
        arithmetic and not in float64 decides by its rounding.
    """
    attention, position_logits, content = checked(attention, position_logits, content)
    decision = (attention[..., None] * position_logits).sum(1).argmax(-1)
    return _overtaking(attention, position_logits, content, decision)[0]


def smallest_flipping_set(
    attention: Float[Tensor, "..."], position_logits: Float[Tensor, "..."], content: Bool[Tensor, "..."]
) -> FlippingSet:
    """The fewest content positions whose erasure changes the decision: the best rival's overtaking set.

    The decision c flips when some rival's logit is strictly above c's, so the optimum over all sets is the smallest of
    the rivals' own optima (`smallest_overtaking_sets`, which has the proof, the arguments and the errors). Among
    rivals that need equally few, the lowest class's set is given.

    >>> attention = torch.tensor([[0.6, 0.3, 0.1]])
    >>> margin = torch.tensor([[2.0, -1.0, -3.0]])  # of class 1 over class 0
    >>> position_logits = torch.stack([torch.zeros_like(margin), margin], -1)
    >>> smallest_flipping_set(attention, position_logits, torch.ones(1, 3, dtype=torch.bool))
    FlippingSet(size=tensor([1]), members=tensor([[ True, False, False]]), flips_to=tensor([0]))
    """
    attention, position_logits, content = checked(attention, position_logits, content)
    decision = (attention[..., None] * position_logits).sum(1).argmax(-1)
    sets, advantage = _overtaking(attention, position_logits, content, decision)
    # −1 (never) and the decision's own 0 are no sizes: both count as longer than any text
    size, rival = torch.where(sets.size > 0, sets.size, content.shape[-1] + 1).min(-1)
    flips = size <= content.shape[-1]
    rows = torch.arange(len(size), device=size.device)
    members = sets.members[rows, rival]
    kept = torch.where(members[:, None], 0, advantage).sum(-1)
    kept[rows, decision] = -torch.inf
    return FlippingSet(
        size=torch.where(flips, size, NEVER),
        members=members & flips[:, None],
        flips_to=torch.where(flips, kept.argmax(-1), NEVER),
    )


def _overtaking(
    attention: Float[Tensor, "batch seq"],
    position_logits: Float[Tensor, "batch seq classes"],
    content: Bool[Tensor, "batch seq"],
    decision: Int[Tensor, "batch"],
) -> tuple[OvertakingSets, Float[Tensor, "batch classes seq"]]:
    """The sets, and α_t (z_t[k] − z_t[c]) for every class and position."""
    own = position_logits.gather(-1, decision[:, None, None].expand(-1, content.shape[-1], 1))
    advantage = (attention[..., None] * (position_logits - own)).transpose(1, 2).contiguous()
    # what cannot be erased goes last in the order, and into the sum that is always kept
    ordered, order = advantage.masked_fill(~content[:, None], torch.inf).sort(dim=-1, stable=True)
    fixed = advantage.masked_fill(content[:, None], 0).sum(-1, keepdim=True)
    erasable = torch.where(ordered < torch.inf, ordered, 0)
    kept = fixed + erasable.flip(-1).cumsum(-1).flip(-1)  # kept[n]: the n first in the order are gone
    # n = 0 is no erasure; n = everything keeps only `fixed`
    after = torch.cat([kept[..., 1:], fixed], -1)
    number = torch.arange(1, content.shape[-1] + 1, device=content.device)
    overtakes = (after > 0) & (number <= content.sum(-1)[:, None, None])
    size = torch.where(overtakes.any(-1), overtakes.int().argmax(-1) + 1, NEVER)
    size = size.scatter(-1, decision[:, None], 0)
    place = torch.empty_like(order).scatter_(-1, order, (number - 1).expand_as(order).contiguous())
    return OvertakingSets(decision, size, place < size[..., None]), advantage
