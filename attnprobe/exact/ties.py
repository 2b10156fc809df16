"""When is one class ahead of another? One rule for everything that erases weights and looks at the decision."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

LEAST_MASS = 1e-12
"""Where less attention than this is left, an erasure is undefined: what remains is rounding, and renormalising it would
invent a prediction. By the same share of the largest lead that one position has, a class must be ahead: less is a tie."""


def decide(
    attention: Float[Tensor, "batch seq"], position_logits: Float[Tensor, "batch seq classes"]
) -> Int[Tensor, "batch"]:
    """The class with the largest Σ α_t z_t, the first of those that are level up to rounding (`least_lead`)."""
    # against the first class, so that what all classes have in common costs no digits
    relative = position_logits - position_logits[..., :1]
    sums = (attention.unsqueeze(-1) * relative).sum(1)
    tolerance = LEAST_MASS * torch.where(attention.unsqueeze(-1) > 0, relative.abs(), 0).amax((1, 2))
    return (sums >= (sums.amax(-1) - tolerance).unsqueeze(-1)).byte().argmax(-1)


def leads(
    position_logits: Float[Tensor, "batch seq classes"], decision: Int[Tensor, "batch"]
) -> Float[Tensor, "batch classes seq"]:
    """d_t = z_t[k] − z_t[c]: what every position says for each class k against the decision c; 0 for c itself."""
    own = position_logits.gather(-1, decision.view(-1, 1, 1).expand(-1, position_logits.shape[1], 1))
    return (position_logits - own).mT.contiguous()


def least_lead(
    lead: Float[Tensor, "batch classes seq"], matters: Bool[Tensor, "batch seq"]
) -> Float[Tensor, "batch classes"]:
    """How large Σ α_t d_t over what is kept must be for a class to be ahead: more than 1e-12 of the largest |d_t|.

    Sums that are equal in exact arithmetic differ in float64 by some 1e-16 of that, differently on every processor.
    The bound is the same for every set of one text, so that sorting stays optimal; and Σ α_t d_t ≤ (mass kept) ·
    max |d_t|, so that no class is ahead where less than `LEAST_MASS` is kept.
    """
    return LEAST_MASS * torch.where(matters.unsqueeze(1), lead.abs(), 0).amax(-1)
