"""Agreement of two rankings of a whole row: Kendall's τ-b and Spearman's ρ."""

import math

import torch
from jaxtyping import Bool, Float, Int
from scipy import stats
from torch import Tensor

from attnprobe.measures.rows import masked_rows


def kendall_tau(
    a: Float[Tensor, "*#batch seq"], b: Float[Tensor, "*#batch seq"], mask: Bool[Tensor, "*#batch seq"] | None = None
) -> Float[Tensor, "*any"]:
    """Kendall's τ-b per row, −1 (reversed order) to 1 (same order), with its correction for ties.

    NaN where it is undefined: a row that is constant, has fewer than two entries or holds a NaN. Counts discordant
    pairs by merging (Knight 1966), n log² n per row, instead of comparing all pairs.

    Note:
        The entries outside the mask are left out as scipy would see the shortened row. Padding that takes part (as in
        the published code) does not add noise but changes the answer: four zeros turn a τ of −1 into +0.6.
    """
    a, b, valid = masked_rows(a, b, mask)
    rank_a, rank_b = _dense_ranks(a, valid), _dense_ranks(b, valid)
    length = valid.shape[-1] + 1
    pairs = rank_a * length + rank_b  # a's order, ties in a by b: no pair tied in either counts as an inversion
    order = pairs.argsort(-1)
    discordant = _inversions(rank_b.gather(-1, order))
    count = valid.sum(-1)
    total = count * (count - 1) // 2
    ties_a, ties_b = _tied_pairs(rank_a, valid), _tied_pairs(rank_b, valid)
    ties_both = _tied_pairs(_dense_ranks(pairs, valid), valid)
    balance = (total - ties_a - ties_b + ties_both - 2 * discordant).double()
    scale = (total - ties_a).double().sqrt() * (total - ties_b).double().sqrt()
    tau = (balance / torch.where(scale > 0, scale, torch.nan)).clamp(-1, 1)
    undefined = ((a.isnan() | b.isnan()) & valid).any(-1)
    return torch.where(undefined, torch.nan, tau).to(a.dtype)


def kendall_tau_test(
    a: Float[Tensor, "*#batch seq"], b: Float[Tensor, "*#batch seq"], mask: Bool[Tensor, "*#batch seq"] | None = None
) -> tuple[Float[Tensor, "*any"], Float[Tensor, "*any"]]:
    """Kendall's τ-b per row and its two-sided p-value for "no association", 0 to 1; NaN where τ is undefined.

    The p-value is `scipy.stats.kendalltau`'s: exact for short rows without ties, else the normal approximation. It
    takes the positions for exchangeable, which the tokens of a text are not, and is not corrected for the number of
    examples.
    """
    tau = kendall_tau(a, b, mask)
    a, b, valid = masked_rows(a, b, mask)
    flat = zip(
        *(x.reshape(tau.numel(), x.shape[-1]).cpu().numpy() for x in (a.double(), b.double(), valid)), strict=True
    )
    p = [stats.kendalltau(x[keep], y[keep]).pvalue if keep.sum() > 1 else math.nan for x, y, keep in flat]
    return tau, torch.tensor(p, dtype=tau.dtype, device=tau.device).reshape(tau.shape)


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


def _dense_ranks(x: Tensor, valid: Bool[Tensor, "*batch seq"]) -> Int[Tensor, "*batch seq"]:
    """Rank of each entry's value among its row's distinct values, from 0; entries outside the mask come last."""
    ordered, order = x.sort(-1)
    new_value = torch.zeros_like(order)
    new_value[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    ranks = torch.empty_like(order).scatter_(-1, order, new_value.cumsum(-1))
    return torch.where(valid, ranks, x.shape[-1])


def _group_sizes(ranks: Int[Tensor, "*batch seq"], valid: Bool[Tensor, "*batch seq"]) -> Int[Tensor, "*batch groups"]:
    """How many valid entries have each rank."""
    sizes = ranks.new_zeros(*ranks.shape[:-1], ranks.shape[-1] + 1)
    return sizes.scatter_add_(-1, ranks, valid.long())


def _tied_pairs(ranks: Int[Tensor, "*batch seq"], valid: Bool[Tensor, "*batch seq"]) -> Int[Tensor, "*batch"]:
    """Number of pairs of valid entries with the same rank."""
    sizes = _group_sizes(ranks, valid)
    return (sizes * (sizes - 1) // 2).sum(-1)


def _centred_ranks(x: Tensor, valid: Bool[Tensor, "*batch seq"]) -> Float[Tensor, "*batch seq"]:
    """Average ranks minus their mean, 0 outside the mask."""
    ranks = _dense_ranks(x, valid)
    sizes = _group_sizes(ranks, valid)
    middle = sizes.cumsum(-1) - (sizes + 1) / 2.0
    centre = (valid.sum(-1, keepdim=True) - 1) / 2
    return torch.where(valid, middle.double().gather(-1, ranks) - centre, 0)


def _inversions(x: Int[Tensor, "*batch seq"]) -> Int[Tensor, "*batch"]:
    """Number of pairs i < j with x[i] > x[j], by merging sorted blocks of doubling width."""
    length = x.shape[-1]
    width = 1
    padded = 1 << max(length - 1, 0).bit_length()
    # padding larger than everything, at the end: part of no inversion (pad's value goes through a double: 2^62 fits)
    x = torch.nn.functional.pad(x, (0, padded - length), value=2**62)
    found = x.new_zeros(x.shape[:-1])
    while width < padded:
        blocks = x.unflatten(-1, (-1, 2, width))
        left, right = blocks[..., 0, :].contiguous(), blocks[..., 1, :].contiguous()
        found = found + (width - torch.searchsorted(left, right, right=True)).sum((-2, -1))
        width *= 2
        x = x.unflatten(-1, (-1, width)).sort(-1).values.flatten(-2)
    return found
