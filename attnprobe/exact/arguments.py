"""The three tensors every exact solver takes, checked once and brought into double precision."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnprobe.errors import UserError

SUM_TOLERANCE = 1e-4
"""How far from 1 an attention row may sum: float32 rounding of long rows stays well below."""


def checked(
    attention: Float[Tensor, "..."], position_logits: Float[Tensor, "..."], content: Bool[Tensor, "..."]
) -> tuple[Float[Tensor, "batch seq"], Float[Tensor, "batch seq classes"], Bool[Tensor, "batch seq"]]:
    """Attention summing to exactly 1 and position logits, both float64 and detached, and content as it came.

    Position logits that can have no effect (no content, no weight: padding) become 0, so that whatever is there
    stays out of the arithmetic.

    Raises:
        UserError: shapes that do not fit, a row without content, weights that are not a distribution, logits that are
            not finite.
    """
    shapes = (
        f"attention {tuple(attention.shape)}, position_logits {tuple(position_logits.shape)}, "
        f"content {tuple(content.shape)}"
    )
    if attention.ndim != 2 or position_logits.ndim != 3:
        raise UserError(f"{shapes}: expected [batch, seq], [batch, seq, classes], [batch, seq]")
    if content.shape != attention.shape or position_logits.shape[:2] != attention.shape:
        raise UserError(f"{shapes}: batch and seq must be the same in all three")
    if not attention.shape[1]:
        raise UserError(f"{shapes}: expected texts of one or more positions")
    if content.dtype != torch.bool:
        raise UserError(
            f"content is of {content.dtype}: expected torch.bool, True where a weight may be erased or moved"
        )
    for name, given in {"attention": attention, "position_logits": position_logits}.items():
        if not given.is_floating_point():
            raise UserError(f"{name} is of {given.dtype}: expected floating-point numbers; convert with .double()")
    if position_logits.shape[-1] < 2:
        raise UserError(f"{shapes}: expected 2 or more classes; give a binary model's single logit s as [0, s]")
    attention, position_logits = attention.detach().double(), position_logits.detach().double()
    empty = ~content.any(-1)
    if empty.any():
        raise UserError(f"content is False everywhere in row {_first(empty)}: leave texts without content out")
    # one weight after the other, so that the last digit of the sum does not depend on how much padding follows
    total = attention.cumsum(-1)[:, -1:]
    wrong = ~((total[:, 0] - 1).abs() <= SUM_TOLERANCE) | (attention < 0).any(-1)  # "not ≤" so that NaN is wrong
    if wrong.any():
        row = _first(wrong)
        raise UserError(
            f"attention row {row} sums to {total[row].item():.6g}, smallest weight {attention[row].min().item():.6g}: "
            f"expected weights of 0 or more that sum to 1; give the softmax's result with padding at 0"
        )
    matters = content | (attention > 0)
    position_logits = torch.where(matters[..., None], position_logits, 0)
    broken = ~position_logits.isfinite().all(-1).all(-1)
    if broken.any():
        raise UserError(f"position_logits are not finite in row {_first(broken)}: check the model for NaN or infinity")
    return attention / total, position_logits, content


def _first(rows: Bool[Tensor, "batch"]) -> int:
    return int(rows.nonzero()[0, 0])
