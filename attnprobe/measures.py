"""Distances between distributions and agreement between rankings, one number per row.

Every function reduces the last axis (positions or classes) and broadcasts the leading ones. A boolean `mask` (True =
keep) says which entries count; what stands in the others never matters, to the value or to the gradient. Rows that are
distributions sum to 1 over their mask. What is undefined for a row is NaN, to be counted and reported by the caller.
"""

import math
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from scipy import stats
from torch import Tensor

LN2 = math.log(2)
"""The largest Jensen-Shannon divergence, in nats: that of two rows with nothing in common."""


class _HalfDivergence(torch.autograd.Function):
    """f(p, q) = ½ [p ln(2p/(p+q)) + q ln(2q/(p+q))] per entry: the summands of the Jensen-Shannon divergence.

    With m = (p+q)/2 and d = (p−q)/(p+q), f = m/2 · [2d·artanh(d) + ln(1−d²)]: no cancellation, so that tiny
    divergences keep their relative precision and are never negative, as they are in float32 by the textbook's form.
    ∂f/∂p = ½ ln(2p/(p+q)). Where p = 0 the gradient by p is −∞ (q > 0) or undefined (q = 0); it is given as 0.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(p: Tensor, q: Tensor) -> Tensor:
        total = p + q
        d = (p - q) / torch.where(total > 0, total, 1)
        inside = d.abs() < 1
        d = torch.where(inside, d, 0)
        return total / 4 * torch.where(inside, 2 * d * torch.atanh(d) + torch.log1p(-d * d), 2 * LN2)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        p, q = ctx.saved_tensors
        total = torch.where(p + q > 0, p + q, 1)
        # guarded before the division: an excluded branch that is infinite would make the next derivative NaN
        ratio_p, ratio_q = torch.where(p > 0, 2 * p / total, 1), torch.where(q > 0, 2 * q / total, 1)
        return grad * ratio_p.log() / 2, grad * ratio_q.log() / 2


def jensen_shannon(
    p: Float[Tensor, "*#batch seq"], q: Float[Tensor, "*#batch seq"], mask: Bool[Tensor, "*#batch seq"] | None = None
) -> Float[Tensor, "*any"]:
    """Jensen-Shannon divergence of two distributions in nats, 0 (equal) to ln 2 (nothing in common).

    Differentiable, also where entries are 0 in both rows (padding), where the gradient is 0.

    >>> jensen_shannon(torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.5, 0.5, 0.0]))
    tensor(0.)
    """
    p, q = _broadcast(p, q)
    if mask is not None:
        p, q = torch.where(mask, p, 0), torch.where(mask, q, 0)
    # rows that sum to 1 only up to rounding would exceed the bound by the last digit
    return _HalfDivergence.apply(p, q).sum(-1).clamp(max=LN2)


def kullback_leibler(
    p: Float[Tensor, "*#batch seq"], q: Float[Tensor, "*#batch seq"], mask: Bool[Tensor, "*#batch seq"] | None = None
) -> Float[Tensor, "*any"]:
    """Kullback-Leibler divergence KL(p ‖ q) = Σ p ln(p/q) in nats, 0 (equal) upwards.

    Entries of q below the smallest normal number of its type count as that number, so that a weight that underflowed to
    0 gives a large divergence (each such entry at most p · 88 in float32) and not an infinite one. Entries where p is 0
    add nothing, and their gradient is given as 0.

    >>> kullback_leibler(torch.tensor([0.5, 0.5]), torch.tensor([0.25, 0.75]))
    tensor(0.1438)
    """
    p, q = _broadcast(p, q)
    if mask is not None:
        p, q = torch.where(mask, p, 0), torch.where(mask, q, 0)
    there = p > 0
    # guarded before the logarithm: an excluded branch that is infinite would make the gradient NaN
    ratio = torch.where(there, p, 1) / torch.where(there, q.clamp(min=torch.finfo(q.dtype).tiny), 1)
    return torch.where(there, p * ratio.log(), 0).sum(-1)


def total_variation(
    p: Float[Tensor, "*#batch classes"],
    q: Float[Tensor, "*#batch classes"],
    mask: Bool[Tensor, "*#batch classes"] | None = None,
) -> Float[Tensor, "*any"]:
    """Total variation distance of two distributions, 0 to 1: half the L1 distance (for two classes |p − q| of one).

    >>> total_variation(torch.tensor([0.75, 0.25]), torch.tensor([0.5, 0.5]))
    tensor(0.2500)
    """
    p, q = _broadcast(p, q)
    difference = (p - q).abs()
    return (difference if mask is None else torch.where(mask, difference, 0)).sum(-1) / 2


def entropy(p: Float[Tensor, "*#batch seq"], mask: Bool[Tensor, "*#batch seq"] | None = None) -> Float[Tensor, "*any"]:
    """Shannon entropy in nats, 0 (one entry has everything) to ln n (uniform over n entries).

    Entries that are 0 add nothing, and their gradient is given as 0.
    """
    if mask is not None:
        p = torch.where(mask, p, 0)
    positive = torch.where(p > 0, p, 1)
    return -(p * positive.log()).sum(-1)


def normalised(
    scores: Float[Tensor, "*#batch seq"], mask: Bool[Tensor, "*#batch seq"] | None = None
) -> Float[Tensor, "*any"]:
    """Non-negative scores scaled to sum to 1 over the mask, 0 outside it; NaN in a row whose scores are all 0."""
    if mask is not None:
        scores = torch.where(mask, scores, 0)
    total = scores.sum(-1, keepdim=True)
    result = torch.where(total > 0, scores / torch.where(total > 0, total, 1), torch.nan)
    return result if mask is None else torch.where(mask, result, 0)


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
    a, b, valid = _rows(a, b, mask)
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
    a, b, valid = _rows(a, b, mask)
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
    a, b, valid = _rows(a, b, mask)
    x, y = _centred_ranks(a, valid), _centred_ranks(b, valid)
    scale = (x.square().sum(-1) * y.square().sum(-1)).sqrt()
    rho = ((x * y).sum(-1) / torch.where(scale > 0, scale, torch.nan)).clamp(-1, 1)
    undefined = ((a.isnan() | b.isnan()) & valid).any(-1)
    return torch.where(undefined, torch.nan, rho).to(a.dtype)


def top_k_overlap(
    a: Float[Tensor, "*#batch seq"],
    b: Float[Tensor, "*#batch seq"],
    k: int,
    mask: Bool[Tensor, "*#batch seq"] | None = None,
) -> Float[Tensor, "*any"]:
    """Share of a's k largest entries that are among b's k largest, 0 to 1.

    Rows with fewer than k entries are compared on all they have; NaN in an empty row. Of tied entries the earlier
    position comes first.
    """
    if k < 1:
        raise ValueError(f"k is {k}: expected how many of the largest entries to compare, 1 or more")
    a, b, valid = _rows(a, b, mask)
    size = valid.sum(-1).clamp(max=k)
    common = (_among_largest(a, k, valid) & _among_largest(b, k, valid)).sum(-1)
    return torch.where(size > 0, common / size.clamp(min=1), torch.nan).to(a.dtype)


def _broadcast(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
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


def _rows(a: Tensor, b: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Both rows and their mask in one shape, values outside the mask set to 0."""
    a, b = _broadcast(a.detach(), b.detach())
    valid = torch.ones_like(a, dtype=torch.bool) if mask is None else mask
    if valid.dtype != torch.bool:
        raise ValueError(f"mask is of {valid.dtype}: expected torch.bool, True where an entry counts")
    a, b, valid = torch.broadcast_tensors(a, b, valid)
    return torch.where(valid, a, 0), torch.where(valid, b, 0), valid


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


def _among_largest(x: Tensor, k: int, valid: Bool[Tensor, "*batch seq"]) -> Bool[Tensor, "*batch seq"]:
    """True at the k largest valid entries of each row, the earlier of tied ones first."""
    # NaN sorts behind everything, even behind −∞: so do entries outside the mask
    order = torch.where(valid, -x, torch.nan).argsort(dim=-1, stable=True)
    chosen = torch.zeros_like(valid).scatter_(-1, order[..., :k], True)
    return chosen & valid
