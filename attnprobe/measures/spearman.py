"""Spearman's ρ, all rows at once."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnprobe.measures.ranks import dense_ranks, group_sizes
from attnprobe.measures.rows import masked_rows


def spearman(
    a: Float[Tensor, "*#batch seq"], b: Float[Tensor, "*#batch seq"], mask: Bool[Tensor, "*#batch seq"] | None = None
) -> Float[Tensor, "*any"]:
    """Spearman's rank correlation per row, −1 to 1, ties at their average rank.

    NaN where it is undefined: a row that is constant, has fewer than two entries or holds a NaN.
    """
    a, b, valid = masked_rows(a, b, mask)
    x, y = _centred_ranks(a, valid), _centred_ranks(b, valid)
    scale = (x.square().sum(-1) * y.square().sum(-1)).sqrt()
    rho = ((x * y).sum(-1) / torch.where(scale > 0, scale, torch.nan)).clamp(-1, 1)
    undefined = ((a.isnan() | b.isnan()) & valid).any(-1)
    return torch.where(undefined, torch.nan, rho).to(a.dtype)


def _centred_ranks(x: Tensor, valid: Bool[Tensor, "*batch seq"]) -> Float[Tensor, "*batch seq"]:
    """Average ranks minus their mean, 0 outside the mask."""
    ranks = dense_ranks(x, valid)
    sizes = group_sizes(ranks, valid)
    middle = sizes.cumsum(-1) - (sizes + 1) / 2.0
    centre = (valid.sum(-1, keepdim=True) - 1) / 2
    return torch.where(valid, middle.double().gather(-1, ranks) - centre, 0)
