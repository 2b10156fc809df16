"""Distances between distributions and agreement between rankings, one number per row.

Every function reduces the last axis (positions or classes) and broadcasts the leading ones. A
boolean `mask` (True = keep) says which entries count; what the others hold never matters, to the
value or to the gradient. Rows that are distributions sum to 1 over their mask. What is undefined
for a row is NaN, to be counted and reported by the caller."""

import math
from functools import cache
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Rows = Float[Tensor, "*#batch seq"]
Mask = Bool[Tensor, "*#batch seq"]
PerRow = Float[Tensor, "*any"]
LN2 = math.log(2)
"""The largest Jensen-Shannon divergence, in nats: that of two rows with nothing in common."""
EXACT_UP_TO = 33
"""Entries of a row without ties up to which its p-value is counted out, as `scipy.stats.kendalltau`
does."""


def _masked_rows(a: Tensor, b: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Both rows and their mask in one shape, the rows of one type, and 0 outside the mask. Only
    leading axes may differ: a last axis of 1 is a mistake, not a scalar."""
    for row in (a, b):
        if not row.ndim or not row.is_floating_point():
            raise ValueError(
                f"a tensor of {row.dtype} and shape {list(row.shape)}: expected rows of floating-point numbers, such as "
                f"torch.tensor([0.25, 0.75])"
            )
    if a.shape[-1] != b.shape[-1]:
        raise ValueError(
            f"rows of {a.shape[-1]} and {b.shape[-1]} entries: expected two rows of the same length"
        )
    dtype = torch.promote_types(a.dtype, b.dtype)
    a, b = torch.broadcast_tensors(a.to(dtype), b.to(dtype))
    if mask is None:
        return a, b, torch.ones_like(a, dtype=torch.bool)
    if mask.dtype != torch.bool:
        raise ValueError(
            f"mask is of {mask.dtype}: expected torch.bool, True where an entry counts"
        )
    a, b, mask = torch.broadcast_tensors(a, b, mask)
    return torch.where(mask, a, 0), torch.where(mask, b, 0), mask


class _HalfDivergence(torch.autograd.Function):
    """f(p, q) = ½ [p ln(2p/(p+q)) + q ln(2q/(p+q))] per entry: the summands of the Jensen-Shannon
    divergence.

    With m = (p+q)/2 and d = (p−q)/(p+q), f = m/2 · [2d·artanh(d) + ln(1−d²)]: no cancellation, so
    that tiny divergences keep their relative precision and are never negative, as they are in
    float32 by the textbook's form. ∂f/∂p = ½ ln(2p/(p+q)). Where p = 0 the gradient by p is −∞ (q >
    0) or undefined (q = 0); it is given as 0."""

    generate_vmap_rule = True

    @staticmethod
    def forward(p: Tensor, q: Tensor) -> Tensor:
        total = p + q
        d = (p - q) / torch.where(total > 0, total, 1)
        inside = d.abs() < 1
        d = torch.where(inside, d, 0)
        return (
            total / 4 * torch.where(inside, 2 * d * torch.atanh(d) + torch.log1p(-d * d), 2 * LN2)
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        p, q = ctx.saved_tensors
        total = torch.where(p + q > 0, p + q, 1)
        # guarded before the division: an excluded branch that is infinite would make the next
        # derivative NaN
        ratio_p = torch.where(p > 0, 2 * p / total, 1)
        ratio_q = torch.where(q > 0, 2 * q / total, 1)
        return grad * ratio_p.log() / 2, grad * ratio_q.log() / 2


def jensen_shannon(p: Rows, q: Rows, mask: Mask | None = None) -> PerRow:
    """Jensen-Shannon divergence of two distributions in nats, 0 (equal) to ln 2 (nothing in
    common).

    Differentiable, also where entries are 0 in both rows (padding), where the gradient is 0.

    >>> jensen_shannon(torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.5, 0.5, 0.0]))
    tensor(0.)
    """
    p, q, _ = _masked_rows(p, q, mask)
    # rows that sum to 1 only up to rounding would exceed the bound by the last digit
    return _HalfDivergence.apply(p, q).sum(-1).clamp(max=LN2)


def kullback_leibler(p: Rows, q: Rows, mask: Mask | None = None) -> PerRow:
    """Kullback-Leibler divergence KL(p ‖ q) = Σ p ln(p/q) in nats, 0 (equal) upwards.

    Entries of q below the smallest normal number of its type count as that number, so that a weight
    that underflowed to 0 gives a large divergence (each such entry at most p · 88 in float32) and
    not an infinite one. Entries where p is 0 add nothing, and their gradient is given as 0.

    >>> kullback_leibler(torch.tensor([0.5, 0.5]), torch.tensor([0.25, 0.75]))
    tensor(0.1438)
    """
    p, q, _ = _masked_rows(p, q, mask)
    there = p > 0
    # guarded before the logarithm: an excluded branch that is infinite would make the gradient NaN
    ratio = torch.where(there, p, 1) / torch.where(there, q.clamp(min=torch.finfo(q.dtype).tiny), 1)
    return torch.where(there, p * ratio.log(), 0).sum(-1)


def total_variation(p: Rows, q: Rows, mask: Mask | None = None) -> PerRow:
    """Total variation distance of two distributions, 0 to 1: half the L1 distance (for two classes
    |p − q| of one).

    >>> total_variation(torch.tensor([0.75, 0.25]), torch.tensor([0.5, 0.5]))
    tensor(0.2500)
    """
    p, q, _ = _masked_rows(p, q, mask)
    return (p - q).abs().sum(-1) / 2


def entropy(p: Rows, mask: Mask | None = None) -> PerRow:
    """Shannon entropy in nats, 0 (one entry has everything) to ln n (uniform over n entries).

    Entries that are 0 add nothing, and their gradient is given as 0.
    """
    if mask is not None:
        p = torch.where(mask, p, 0)
    positive = torch.where(p > 0, p, 1)
    return -(p * positive.log()).sum(-1)


def shifted(marks: Bool[Tensor, "batch seq"], places: int) -> Bool[Tensor, "batch seq"]:
    """The marks so many positions to the right (negative: to the left); what goes off the end is
    gone."""
    moved = marks.roll(places, -1)
    moved[..., : max(places, 0)] = False
    moved[..., moved.shape[-1] + min(places, 0) :] = False
    return moved


def normalised(scores: Rows, mask: Mask | None = None) -> Float[Tensor, "*any"]:
    """Non-negative scores scaled to sum to 1 over the mask, 0 outside it; NaN in a row whose scores
    are all 0."""
    if mask is not None:
        scores = torch.where(mask, scores, 0)
    total = scores.sum(-1, keepdim=True)
    result = torch.where(total > 0, scores / torch.where(total > 0, total, 1), torch.nan)
    return result if mask is None else torch.where(mask, result, 0)


def _dense_ranks(
    x: Tensor, valid: Bool[Tensor, "*batch seq"]
) -> tuple[Int[Tensor, "*batch seq"], Int[Tensor, "*batch groups"]]:
    """Rank of each entry's value among its row's distinct values, from 0, entries outside the mask
    last; and how many valid entries have each rank."""
    ordered, order = x.sort(-1)
    new_value = torch.zeros_like(order)
    new_value[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    ranks = torch.empty_like(order).scatter_(-1, order, new_value.cumsum(-1))
    ranks = torch.where(valid, ranks, x.shape[-1])
    sizes = ranks.new_zeros(*ranks.shape[:-1], ranks.shape[-1] + 1)
    return ranks, sizes.scatter_add_(-1, ranks, valid.long())


def kendall_tau(a: Rows, b: Rows, mask: Mask | None = None) -> PerRow:
    """Kendall's τ-b per row, −1 (reversed order) to 1 (same order), with its correction for ties.

    NaN where it is undefined: a row that is constant, has fewer than two entries or holds a NaN.
    Counts discordant pairs by merging (Knight 1966), n log² n per row, instead of comparing all
    pairs.

    Note:
        Padding that takes part (as in the published code) changes the answer: four zeros turn a τ
        of −1 into +0.6.
    """
    return kendall_tau_test(a, b, mask)[0]


def kendall_tau_test(a: Rows, b: Rows, mask: Mask | None = None) -> tuple[PerRow, PerRow]:
    """Kendall's τ-b per row and its two-sided p-value for "no association", 0 to 1; NaN where τ is
    undefined.

    The p-value is `scipy.stats.kendalltau`'s: without ties exact for rows of up to 33 entries and
    for (almost) perfect agreement, else the normal approximation. It takes the positions for
    exchangeable, which the tokens of a text are not, and is not corrected for the number of
    examples."""
    a, b, valid = _masked_rows(a.detach(), b.detach(), mask)
    (rank_a, groups_a), (rank_b, groups_b) = _dense_ranks(a, valid), _dense_ranks(b, valid)
    # a's order, ties in a by b: no pair tied in either is an inversion
    both = rank_a * (valid.shape[-1] + 1) + rank_b
    discordant = _inversions(rank_b.gather(-1, both.argsort(-1)))
    every = (groups_a, groups_b, _dense_ranks(both, valid)[1])
    ties_a, ties_b, ties = ((group * (group - 1) // 2).sum(-1) for group in every)
    size = valid.sum(-1)
    total = size * (size - 1) // 2
    balance = total - ties_a - ties_b + ties - 2 * discordant  # concordant minus discordant pairs
    scale = (total - ties_a).double().sqrt() * (total - ties_b).double().sqrt()
    tau = (balance.double() / torch.where(scale > 0, scale, torch.nan)).clamp(-1, 1)
    tau = torch.where(((a.isnan() | b.isnan()) & valid).any(-1), torch.nan, tau)

    # without ties: twice the share of the orders with at most so many inversions, concordant or
    # discordant ones
    n = size.double()
    fewer = (total - balance.abs()) // 2
    tails = _tails().to(size.device)
    small = tails[size.clamp(max=EXACT_UP_TO), fewer.clamp(max=tails.shape[1] - 1)]
    # one order has no inversion, and (entries − 1) orders have a single one
    large = torch.exp(torch.where(fewer > 0, n.log(), 0) - torch.lgamma(n + 1))
    exact = (2 * torch.where(size <= EXACT_UP_TO, small, large)).clamp(max=1)
    # else the normal distribution, with the variance that ties leave (Kendall 1970, section 4.7)
    m = n * (n - 1)
    tied = [groups_a.double(), groups_b.double()]
    fifth = sum((g * (g - 1) * (2 * g + 5)).sum(-1) for g in tied)
    third_a, third_b = ((g * (g - 1) * (g - 2)).sum(-1) for g in tied)
    variance = (m * (2 * n + 5) - fifth) / 18 + 2 * ties_a * ties_b / m
    variance = variance + torch.where(n > 2, third_a * third_b / (9 * m * (n - 2)), 0)
    normal = torch.special.erfc(balance.abs() / (2 * variance).sqrt())
    counted = (ties_a + ties_b == 0) & ((size <= EXACT_UP_TO) | (fewer <= 1))
    p_value = torch.where(tau.isnan(), torch.nan, torch.where(counted, exact, normal))
    return tau.to(a.dtype), p_value.to(a.dtype)


@cache
def _tails() -> Float[Tensor, "sizes inversions"]:
    """Share of the orders of that many entries (row) that have at most that many inversions
    (column). The next entry comes before 0, 1, … or all of the others, each as likely, and adds as
    many inversions."""
    most = EXACT_UP_TO * (EXACT_UP_TO - 1) // 2
    share = torch.zeros(EXACT_UP_TO + 1, most + 1, dtype=torch.float64)
    share[:2, 0] = 1
    for size in range(2, EXACT_UP_TO + 1):
        for added in range(size):
            share[size, added:] += share[size - 1, : most + 1 - added] / size
    return share.cumsum(-1)


def _inversions(x: Int[Tensor, "*batch seq"]) -> Int[Tensor, "*batch"]:
    """Number of pairs i < j with x[i] > x[j], by merging sorted blocks of doubling width."""
    length = x.shape[-1]
    width = 1
    padded = 1 << max(length - 1, 0).bit_length()
    # padding larger than everything, at the end: part of no inversion (pad's value goes through a
    # double: 2^62 fits)
    x = torch.nn.functional.pad(x, (0, padded - length), value=2**62)
    count = x.new_zeros(x.shape[:-1])
    while width < padded:
        blocks = x.unflatten(-1, (-1, 2, width))
        left = blocks[..., 0, :].contiguous()
        right = blocks[..., 1, :].contiguous()
        count = count + (width - torch.searchsorted(left, right, right=True)).sum((-2, -1))
        width *= 2
        x = x.unflatten(-1, (-1, width)).sort(-1).values.flatten(-2)
    return count


def spearman(a: Rows, b: Rows, mask: Mask | None = None) -> PerRow:
    """Spearman's rank correlation per row, −1 to 1, ties at their average rank.

    NaN where it is undefined: a row that is constant, has fewer than two entries or holds a NaN.
    """
    a, b, valid = _masked_rows(a.detach(), b.detach(), mask)
    centre = (valid.sum(-1, keepdim=True) - 1) / 2
    centred = []
    for row in (a, b):  # average ranks minus their mean, 0 outside the mask
        ranks, sizes = _dense_ranks(row, valid)
        middle = sizes.cumsum(-1) - (sizes + 1) / 2.0
        centred.append(torch.where(valid, middle.double().gather(-1, ranks) - centre, 0))
    x, y = centred
    scale = (x.square().sum(-1) * y.square().sum(-1)).sqrt()
    rho = ((x * y).sum(-1) / torch.where(scale > 0, scale, torch.nan)).clamp(-1, 1)
    undefined = ((a.isnan() | b.isnan()) & valid).any(-1)
    return torch.where(undefined, torch.nan, rho).to(a.dtype)


# Rankings of a whole text are ruled by its many unimportant tokens (Jain & Wallace 2019, appendix;
# Neely et al. 2022); what follows looks at the most important positions only.


def tenth(content: Bool[Tensor, "*batch seq"]) -> Int[Tensor, "*batch"]:
    """A tenth of the number of positions, rounded up."""
    return (content.sum(-1) + 9) // 10


def top_overlap(a: Rows, b: Rows, k: Int[Tensor, "*#batch"], mask: Mask) -> PerRow:
    """Share of a's k largest entries that are among b's k largest, 0 to 1; k per row.

    Rows with fewer entries are compared on all they have. Of tied entries the earlier position
    comes first. NaN in an empty row and in one that holds a NaN."""
    rank_a, rank_b, k, undefined = _ranks(a, b, k, mask)
    common = ((rank_a < k) & (rank_b < k)).sum(-1).double()
    return torch.where(undefined, torch.nan, common / k.squeeze(-1).clamp(min=1))


def top_tau(a: Rows, b: Rows, k: int, mask: Mask) -> PerRow:
    """Kendall's τ of two top-k lists, −1 (as far apart as two such lists can be) to 1 (the same
    list).

    Every pair of entries that are in either list counts as one inversion if the lists order it
    differently, an entry that is not in a list ranking after all that are, and as half a one if one
    list does not say (K^(1/2) of Fagin, Kumar & Sivakumar 2003). τ = 1 − 2 K / K_max, K_max being
    the most inversions that two lists of k out of n entries can have; with n ≤ k this is the
    ordinary τ of rows without ties.

    NaN in a row of fewer than two entries or one that holds a NaN. Of tied entries the earlier
    position comes first."""
    rank_a, rank_b, size, undefined = _ranks(a, b, torch.tensor(k, device=mask.device), mask)
    # the entries of either list, at most 2k of them, b's only if they are not in a's
    best_a = rank_a.argsort(-1)[..., :k]
    best_b = rank_b.argsort(-1)[..., :k]
    items = torch.cat([best_a, best_b], -1)
    listed_a = rank_a.gather(-1, items)
    listed_b = rank_b.gather(-1, items)
    in_a = torch.arange(items.shape[-1], device=items.device) < best_a.shape[-1]
    listed = torch.where(in_a, listed_a < size, (listed_b < size) & (listed_a >= size))
    place_a = listed_a.minimum(size)
    place_b = listed_b.minimum(size)
    order_a = (place_a.unsqueeze(-1) - place_a.unsqueeze(-2)).sign()
    order_b = (place_b.unsqueeze(-1) - place_b.unsqueeze(-2)).sign()
    both = listed.unsqueeze(-1) & listed.unsqueeze(-2)
    inverted = (order_a * order_b < 0) + 0.5 * ((order_a == 0) ^ (order_b == 0))
    inversions = (inverted * both).double().sum((-2, -1)) / 2

    size = size.squeeze(-1)
    shared = (2 * size - mask.sum(-1)).clamp(min=0)
    apart = size - shared
    most = shared * (shared - 1) / 2 + 2 * shared * apart + apart**2 + apart * (apart - 1) / 2
    tau = 1 - 2 * inversions / torch.where(most > 0, most, torch.nan)
    return torch.where(undefined, torch.nan, tau)


def rank_biased_overlap(a: Rows, b: Rows, mask: Mask, persistence: float = 0.9) -> PerRow:
    """How alike two rankings are from the top down, 0 to 1, a reader going on from each rank to the
    next with probability `persistence` (RBO extrapolated, equation 30 of Webber et al. 2010, for
    two rankings of the same entries).

    With p = 0.9 the first ten ranks have 86 % of the weight. Of tied entries the earlier position
    comes first. NaN in an empty row and in one that holds a NaN."""
    rank_a, rank_b, size, undefined = _ranks(
        a, b, torch.tensor(mask.shape[-1], device=mask.device), mask
    )
    both = torch.maximum(rank_a, rank_b)  # from this depth on, counted from 0, both have the entry
    depth = torch.arange(1, mask.shape[-1] + 1, device=mask.device)
    inside = rank_a < size
    common = ((both.unsqueeze(-2) < depth.unsqueeze(-1)) & inside.unsqueeze(-2)).sum(-1).double()
    weight = torch.where(depth <= size, persistence ** depth.double(), 0)
    total = (1 - persistence) / persistence * (common / depth * weight).sum(-1)
    last = persistence ** size.squeeze(-1).double()  # all entries are common at the last depth
    return torch.where(undefined, torch.nan, total + last)


def _ranks(
    a: Tensor, b: Tensor, k: Tensor, mask: Bool[Tensor, "*batch seq"]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Place of every entry from the largest (0) on, positions outside the mask last; k `[..., 1]`,
    at most the number of entries; and where nothing can be said."""
    a, b, mask = torch.broadcast_tensors(a.detach(), b.detach(), mask)
    undefined = ((a.isnan() | b.isnan()) & mask).any(-1) | ~mask.any(-1)
    # NaN sorts after everything
    rank_a, rank_b = (
        torch.where(mask, -x, torch.nan).argsort(dim=-1, stable=True).argsort(dim=-1)
        for x in (a, b)
    )
    return (
        rank_a,
        rank_b,
        k.expand(mask.shape[:-1]).unsqueeze(-1).minimum(mask.sum(-1, keepdim=True)),
        undefined,
    )


__all__ = [
    "LN2",
    "entropy",
    "jensen_shannon",
    "kendall_tau",
    "kendall_tau_test",
    "kullback_leibler",
    "normalised",
    "rank_biased_overlap",
    "spearman",
    "tenth",
    "top_overlap",
    "top_tau",
    "total_variation",
]
