"""The three tensors every exact solver takes, checked once and brought into double precision."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnprobe.core.errors import UserError

Weights = Float[Tensor, "batch seq"]
Content = Bool[Tensor, "batch seq"]
Logits = Float[Tensor, "batch seq classes"]
PerText = Float[Tensor, "batch"]
SUM_TOLERANCE = 1e-4
"""How far from 1 an attention row may sum: float32 rounding of long rows stays well below."""
LEAST_MASS = 1e-12
"""Where less attention than this is left, an erasure is undefined: what remains is rounding, and
renormalising it would invent a prediction. By the same share of the largest lead that one position
has, a class must be ahead: less is a tie."""


def checked(
    attention: Float[Tensor, "..."],
    position_logits: Float[Tensor, "..."],
    content: Bool[Tensor, "..."],
) -> tuple[Weights, Logits, Content]:
    """Attention and position logits in float64, detached, and content as it came.

    Attention sums to exactly 1 afterwards. Position logits that can have no effect (no content, no
    weight: padding) become 0, whatever they were.

    Raises:
        UserError: shapes that do not fit, a row without content, weights that are not a
            distribution, logits that are not finite.
    """
    arguments = {"attention": attention, "position_logits": position_logits, "content": content}
    shapes = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in arguments.items())
    if attention.ndim != 2 or position_logits.ndim != 3:
        raise UserError(f"{shapes}: expected [batch, seq], [batch, seq, classes], [batch, seq]")
    if content.shape != attention.shape or position_logits.shape[:2] != attention.shape:
        raise UserError(f"{shapes}: batch and seq must be the same in all three")
    if not attention.shape[1]:
        raise UserError(f"{shapes}: expected texts of one or more positions")
    if content.dtype != torch.bool:
        raise UserError(
            f"content is of {content.dtype}: "
            f"expected torch.bool, True where a weight may be erased or moved"
        )
    refuse_integers(attention=attention, position_logits=position_logits)
    if position_logits.shape[-1] < 2:
        raise UserError(
            f"{shapes}: expected 2 or more classes; give a binary model's single logit s as [0, s]"
        )
    is_empty = ~content.any(-1)
    if is_empty.any():
        row = int(is_empty.int().argmax())
        raise UserError(
            f"content is False everywhere in row {row}: leave texts without content out"
        )

    attention = _normalised(attention.detach().double())
    matters = content | (attention > 0)
    position_logits = torch.where(matters[..., None], position_logits.detach().double(), 0)
    is_broken = ~position_logits.isfinite().all(-1).all(-1)
    if is_broken.any():
        row = int(is_broken.int().argmax())
        raise UserError(
            f"position_logits are not finite in row {row}: check the model for NaN or infinity"
        )
    return attention, position_logits, content


def _normalised(attention: Weights) -> Weights:
    """Rows that sum to exactly 1, of rows that do so within `SUM_TOLERANCE`."""
    # one weight after the other, so that the last digit of the sum does not depend on how much
    # padding follows
    total = attention.cumsum(-1)[:, -1:]
    sums_to_one = (total[:, 0] - 1).abs() <= SUM_TOLERANCE  # False for NaN
    is_wrong = ~sums_to_one | (attention < 0).any(-1)
    if is_wrong.any():
        row = int(is_wrong.int().argmax())
        raise UserError(
            f"attention row {row} sums to {total[row].item():.6g}, smallest weight "
            f"{attention[row].min().item():.6g}: expected weights of 0 or more that sum to 1; "
            f"give the softmax's result with padding at 0"
        )
    return attention / total


def refuse_integers(**tensors: Tensor) -> None:
    """Refuse tensors that do not hold floating-point numbers.

    Raises:
        UserError: with the name of the first.
    """
    for name, tensor in tensors.items():
        if not tensor.is_floating_point():
            raise UserError(
                f"{name} is of {tensor.dtype}: expected floating-point numbers; "
                f"convert with .double()"
            )


# When is one class ahead of another? One rule for everything that erases weights and looks at the
# decision.


def decide(attention: Weights, position_logits: Logits) -> Int[Tensor, "batch"]:
    """The class with the largest Σ α_t z_t.

    Of classes that are level up to rounding (`least_lead`), the first.
    """
    # against the first class, so that what all classes have in common costs no digits
    relative = position_logits - position_logits[..., :1]
    weight = attention.unsqueeze(-1)
    sums = (weight * relative).sum(1)
    tolerance = LEAST_MASS * torch.where(weight > 0, relative.abs(), 0).amax((1, 2))
    return (sums >= (sums.amax(-1) - tolerance).unsqueeze(-1)).byte().argmax(-1)


def leads(
    position_logits: Logits, decision: Int[Tensor, "batch"]
) -> Float[Tensor, "batch classes seq"]:
    """d_t = z_t[k] − z_t[c]: what each position says for class k against the decision c.

    0 for c itself.
    """
    index = decision.view(-1, 1, 1).expand(-1, position_logits.shape[1], 1)
    decision_logits = position_logits.gather(-1, index)
    return (position_logits - decision_logits).mT.contiguous()


def least_lead(
    lead: Float[Tensor, "batch classes seq"], matters: Content
) -> Float[Tensor, "batch classes"]:
    """How large Σ α_t d_t over what is kept must be for a class to be ahead.

    More than 1e-12 of the largest |d_t|.

    Sums that are equal in exact arithmetic differ in float64 by some 1e-16 of that, differently on
    every processor. The bound is the same for every set of one text, so that sorting stays optimal;
    and Σ α_t d_t ≤ (mass kept) · max |d_t|, so that no class is ahead where less than `LEAST_MASS`
    is kept.
    """
    return LEAST_MASS * torch.where(matters.unsqueeze(1), lead.abs(), 0).amax(-1)
