"""Two rows and their mask, checked and brought into one shape."""

import torch
from torch import Tensor


def same_shape(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Both rows in one shape and type. Only leading axes may differ: a last axis of 1 is a mistake, not a scalar."""
    for row in (a, b):
        if not row.ndim or not row.is_floating_point():
            raise ValueError(
                f"a tensor of {row.dtype} and shape {list(row.shape)}: expected rows of floating-point numbers, such as "
                f"torch.tensor([0.25, 0.75])"
            )
    if a.shape[-1] != b.shape[-1]:
        raise ValueError(f"rows of {a.shape[-1]} and {b.shape[-1]} entries: expected two rows of the same length")
    dtype = torch.promote_types(a.dtype, b.dtype)
    a, b = torch.broadcast_tensors(a.to(dtype), b.to(dtype))
    return a, b


def masked_rows(a: Tensor, b: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Both rows and their mask in one shape, values outside the mask set to 0."""
    a, b = same_shape(a.detach(), b.detach())
    valid = torch.ones_like(a, dtype=torch.bool) if mask is None else mask
    if valid.dtype != torch.bool:
        raise ValueError(f"mask is of {valid.dtype}: expected torch.bool, True where an entry counts")
    a, b, valid = torch.broadcast_tensors(a, b, valid)
    return torch.where(valid, a, 0), torch.where(valid, b, 0), valid
