"""Distances between distributions and agreement between rankings, one number per row.

Every function reduces the last axis (positions or classes) and broadcasts the leading ones. A
boolean `mask` (True = keep) says which entries count; what the others hold never matters, to the
value or to the gradient. Rows that are distributions sum to 1 over their mask. What is undefined
for a row is NaN, to be counted and reported by the caller.
"""

import math
from functools import cache
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Rows = Float[Tensor, "*#batch seq"]
Mask = Bool[Tensor, "*#batch seq"]
PerRow = Float[Tensor, "*any"]
LN2 = math.log(2)
"""The largest Jensen-Shannon divergence, in nats: that of two rows with nothing in common."""
EXACT_UP_TO = 33
"""Longest row without ties whose p-value is exact, as in `scipy.stats.kendalltau`."""


def _masked_rows(a: Tensor, b: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Both rows and their mask in one shape, the rows of one type, and 0 outside the mask.

    Only leading axes may differ: a last axis of 1 is a mistake, not a scalar.
    """
    for row in (a, b):
        if not row.ndim or not row.is_floating_point():
            raise ValueError(
                f"a tensor of {row.dtype} and shape {list(row.shape)}: expected rows of "
                f"floating-point numbers, such as torch.tensor([0.25, 0.75])"
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
    """The summands of the Jensen-Shannon divergence, f(p, q) = ½ [p ln(2p/(p+q)) + q ln(2q/(p+q))].

    With m = (p+q)/2 and d = (p−q)/(p+q), f = m/2 · [2d·artanh(d) + ln(1−d²)]: no cancellation, so
    that tiny divergences keep their relative precision and are never negative, as they are in
    float32 by the textbook's form. ∂f/∂p = ½ ln(2p/(p+q)). Where p = 0 the gradient by p is −∞ (q >
    0) or undefined (q = 0); it is given as 0.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(p: Tensor, q: Tensor) -> Tensor:
        """Compute f, elementwise, in nats."""
        total = p + q
        d = (p - q) / torch.where(total > 0, total, 1)
        is_inside = d.abs() < 1  # at ±1 one of the two is 0, and the formula has its limit 2 ln 2
        d = torch.where(is_inside, d, 0)
        formula = 2 * d * torch.atanh(d) + torch.log1p(-d * d)
        return total / 4 * torch.where(is_inside, formula, 2 * LN2)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        """Keep what the gradient is computed from."""
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        """Compute ∂f/∂p and ∂f/∂q, times the incoming gradient."""
        p, q = ctx.saved_tensors
        total = torch.where(p + q > 0, p + q, 1)
        # guarded before the division: an excluded branch that is infinite would make the next
        # derivative NaN
        ratio_p = torch.where(p > 0, 2 * p / total, 1)
        ratio_q = torch.where(q > 0, 2 * q / total, 1)
        return grad * ratio_p.log() / 2, grad * ratio_q.log() / 2


def jensen_shannon(p: Rows, q: Rows, mask: Mask | None = None) -> PerRow:
    """Jensen-Shannon divergence of two distributions, in nats.

    From 0 (equal) to ln 2 (nothing in common). Differentiable, also where entries are 0 in both
    rows (padding), where the gradient is 0.

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
    is_positive = p > 0
    # guarded before the logarithm: an excluded branch that is infinite would make the gradient NaN
    numerator = torch.where(is_positive, p, 1)
    denominator = torch.where(is_positive, q.clamp(min=torch.finfo(q.dtype).tiny), 1)
    return torch.where(is_positive, p * (numerator / denominator).log(), 0).sum(-1)


def total_variation(p: Rows, q: Rows, mask: Mask | None = None) -> PerRow:
    """Total variation distance of two distributions, 0 to 1: half the L1 distance.

    For two classes it is |p − q| of either.

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
    """The marks moved along the text; those that go off its end are gone.

    Args:
        marks: of positions.
        places: how far to the right; negative: to the left.
    """
    moved = marks.roll(places, -1)
    moved[..., : max(places, 0)] = False
    moved[..., moved.shape[-1] + min(places, 0) :] = False
    return moved


def normalised(scores: Rows, mask: Mask | None = None) -> Float[Tensor, "*any"]:
    """Non-negative scores scaled to sum to 1 over the mask, 0 outside it.

    NaN in a row whose scores are all 0.
    """
    if mask is not None:
        scores = torch.where(mask, scores, 0)
    total = scores.sum(-1, keepdim=True)
    shares = torch.where(total > 0, scores / torch.where(total > 0, total, 1), torch.nan)
    return shares if mask is None else torch.where(mask, shares, 0)


def _dense_ranks(
    x: Tensor, valid: Bool[Tensor, "*batch seq"]
) -> tuple[Int[Tensor, "*batch seq"], Int[Tensor, "*batch groups"]]:
    """Ranks among each row's distinct values.

    Returns:
        Each entry's rank, from 0, entries outside the mask last; and how many valid entries have
        each rank.
    """
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
    """Kendall's τ-b per row and its two-sided p-value for "no association".

    The p-value is `scipy.stats.kendalltau`'s: without ties exact for rows of up to 33 entries and
    for (almost) perfect agreement, else the normal approximation. It takes the positions for
    exchangeable, which the tokens of a text are not, and is not corrected for the number of
    examples.

    Args:
        a: one ranking per row, as scores.
        b: the other.
        mask: entries that count; all by default.

    Returns:
        τ from −1 to 1, and the p-value from 0 to 1; NaN where τ is undefined.
    """
    a, b, valid = _masked_rows(a.detach(), b.detach(), mask)
    pairs = _count_pairs(a, b, valid)
    untied_a = (pairs.total - pairs.tied_a).double()
    untied_b = (pairs.total - pairs.tied_b).double()
    scale = untied_a.sqrt() * untied_b.sqrt()
    tau = (pairs.balance.double() / torch.where(scale > 0, scale, torch.nan)).clamp(-1, 1)
    has_nan = ((a.isnan() | b.isnan()) & valid).any(-1)
    tau = torch.where(has_nan, torch.nan, tau)

    # inversions of the order, or of its reverse, whichever has fewer
    inversions = (pairs.total - pairs.balance.abs()) // 2
    has_ties = pairs.tied_a + pairs.tied_b > 0
    is_countable = ~has_ties & ((pairs.size <= EXACT_UP_TO) | (inversions <= 1))
    p_value = torch.where(
        is_countable, _exact_p_value(pairs.size, inversions), _normal_p_value(pairs)
    )
    p_value = torch.where(tau.isnan(), torch.nan, p_value)
    return tau.to(a.dtype), p_value.to(a.dtype)


class _PairCounts(NamedTuple):
    """Pairs of entries of each row, by how two rankings order them.

    Attributes:
        size: valid entries.
        total: pairs of these.
        balance: concordant minus discordant pairs.
        tied_a: pairs that are tied in the first ranking.
        tied_b: pairs that are tied in the second.
        groups_a: sizes of the first ranking's groups of ties.
        groups_b: those of the second's.
    """

    size: Int[Tensor, "*batch"]
    total: Int[Tensor, "*batch"]
    balance: Int[Tensor, "*batch"]
    tied_a: Int[Tensor, "*batch"]
    tied_b: Int[Tensor, "*batch"]
    groups_a: Int[Tensor, "*batch groups"]
    groups_b: Int[Tensor, "*batch groups"]


def _count_pairs(a: Tensor, b: Tensor, valid: Bool[Tensor, "*batch seq"]) -> _PairCounts:
    """Count concordant, discordant and tied pairs by sorting (Knight 1966)."""
    rank_a, groups_a = _dense_ranks(a, valid)
    rank_b, groups_b = _dense_ranks(b, valid)
    # a's order, ties in a by b: no pair that is tied in either is an inversion
    joint_rank = rank_a * (valid.shape[-1] + 1) + rank_b
    _, joint_groups = _dense_ranks(joint_rank, valid)
    discordant = _inversions(rank_b.gather(-1, joint_rank.argsort(-1)))

    size = valid.sum(-1)
    total = _pairs_of(size)
    tied_a = _pairs_of(groups_a).sum(-1)
    tied_b = _pairs_of(groups_b).sum(-1)
    tied_in_both = _pairs_of(joint_groups).sum(-1)
    # pairs that neither ranking ties are concordant or discordant
    balance = total - tied_a - tied_b + tied_in_both - 2 * discordant
    return _PairCounts(size, total, balance, tied_a, tied_b, groups_a, groups_b)


def _pairs_of(count: Int[Tensor, "*any"]) -> Int[Tensor, "*any"]:
    """n (n − 1) / 2."""
    return count * (count - 1) // 2


def _exact_p_value(
    size: Int[Tensor, "*batch"], inversions: Int[Tensor, "*batch"]
) -> Float[Tensor, "*batch"]:
    """Twice the share of the orders of so many entries that have at most so many inversions.

    Valid without ties, for rows of up to `EXACT_UP_TO` entries; of longer ones, for 0 or 1
    inversions: one order has none, and (entries − 1) orders have a single one.
    """
    n = size.double()
    tails = _tails().to(size.device)
    counted = tails[size.clamp(max=EXACT_UP_TO), inversions.clamp(max=tails.shape[1] - 1)]
    orders = torch.where(inversions > 0, n.log(), 0)
    long_rows = torch.exp(orders - torch.lgamma(n + 1))
    return (2 * torch.where(size <= EXACT_UP_TO, counted, long_rows)).clamp(max=1)


def _normal_p_value(pairs: _PairCounts) -> Float[Tensor, "*batch"]:
    """The normal approximation, with the variance that ties leave (Kendall 1970, section 4.7)."""
    n = pairs.size.double()
    m = n * (n - 1)
    sizes_a = pairs.groups_a.double()
    sizes_b = pairs.groups_b.double()
    fifths = [(g * (g - 1) * (2 * g + 5)).sum(-1) for g in (sizes_a, sizes_b)]
    thirds = [(g * (g - 1) * (g - 2)).sum(-1) for g in (sizes_a, sizes_b)]
    variance = (m * (2 * n + 5) - sum(fifths)) / 18 + 2 * pairs.tied_a * pairs.tied_b / m
    variance = variance + torch.where(n > 2, thirds[0] * thirds[1] / (9 * m * (n - 2)), 0)
    return torch.special.erfc(pairs.balance.abs() / (2 * variance).sqrt())


@cache
def _tails() -> Float[Tensor, "sizes inversions"]:
    """Share of the orders of so many entries (row) that have at most so many inversions (column).

    The next entry comes before 0, 1, … or all of the others, each as likely, and adds as many
    inversions.
    """
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
    padded_length = 1 << max(length - 1, 0).bit_length()
    # padding larger than everything, at the end: part of no inversion (pad's value goes through a
    # double: 2^62 fits)
    x = torch.nn.functional.pad(x, (0, padded_length - length), value=2**62)
    count = x.new_zeros(x.shape[:-1])
    width = 1
    while width < padded_length:
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
    x = _centred_ranks(a, valid)
    y = _centred_ranks(b, valid)
    scale = (x.square().sum(-1) * y.square().sum(-1)).sqrt()
    rho = ((x * y).sum(-1) / torch.where(scale > 0, scale, torch.nan)).clamp(-1, 1)
    is_undefined = ((a.isnan() | b.isnan()) & valid).any(-1)
    return torch.where(is_undefined, torch.nan, rho).to(a.dtype)


def _centred_ranks(x: Tensor, valid: Bool[Tensor, "*batch seq"]) -> Float[Tensor, "*batch seq"]:
    """Average ranks minus their mean; 0 outside the mask."""
    ranks, sizes = _dense_ranks(x, valid)
    average_rank = (sizes.cumsum(-1) - (sizes + 1) / 2.0).double().gather(-1, ranks)
    mean = (valid.sum(-1, keepdim=True) - 1) / 2
    return torch.where(valid, average_rank - mean, 0)


# Rankings of a whole text are ruled by its many unimportant tokens (Jain & Wallace 2019, appendix;
# Neely et al. 2022); what follows looks at the most important positions only.


def tenth(content: Bool[Tensor, "*batch seq"]) -> Int[Tensor, "*batch"]:
    """A tenth of the number of positions, rounded up."""
    return (content.sum(-1) + 9) // 10


def top_overlap(a: Rows, b: Rows, k: Int[Tensor, "*#batch"], mask: Mask) -> PerRow:
    """Share of a's k largest entries that are among b's k largest, 0 to 1; k per row.

    Rows with fewer entries are compared on all they have. Of tied entries the earlier position
    comes first. NaN in an empty row and in one that holds a NaN.
    """
    rank_a, rank_b, k, is_undefined = _ranks(a, b, k, mask)
    common = ((rank_a < k) & (rank_b < k)).sum(-1).double()
    return torch.where(is_undefined, torch.nan, common / k.squeeze(-1).clamp(min=1))


def top_tau(a: Rows, b: Rows, k: int, mask: Mask) -> PerRow:
    """Kendall's τ of two top-k lists, from −1 (as far apart as possible) to 1 (the same list).

    Every pair of entries that are in either list counts as one inversion if the lists order it
    differently, an entry that is not in a list ranking after all that are, and as half a one if one
    list does not say (K^(1/2) of Fagin, Kumar & Sivakumar 2003). τ = 1 − 2 K / K_max, K_max being
    the most inversions that two lists of k out of n entries can have; with n ≤ k this is the
    ordinary τ of rows without ties.

    NaN in a row of fewer than two entries or one that holds a NaN. Of tied entries the earlier
    position comes first.
    """
    rank_a, rank_b, size, is_undefined = _ranks(a, b, torch.tensor(k, device=mask.device), mask)
    # the entries of either list, at most 2k of them, b's only if they are not in a's
    entries = torch.cat([rank_a.argsort(-1)[..., :k], rank_b.argsort(-1)[..., :k]], -1)
    entry_rank_a = rank_a.gather(-1, entries)
    entry_rank_b = rank_b.gather(-1, entries)
    is_from_a = torch.arange(entries.shape[-1], device=entries.device) < entries.shape[-1] // 2
    is_only_in_b = (entry_rank_b < size) & (entry_rank_a >= size)
    is_listed = torch.where(is_from_a, entry_rank_a < size, is_only_in_b)

    inverted = _pair_inversions(entry_rank_a.minimum(size), entry_rank_b.minimum(size))
    is_listed_pair = is_listed.unsqueeze(-1) & is_listed.unsqueeze(-2)
    inversions = (inverted * is_listed_pair).double().sum((-2, -1)) / 2

    most = _most_inversions(size.squeeze(-1), mask.sum(-1))
    tau = 1 - 2 * inversions / torch.where(most > 0, most, torch.nan)
    return torch.where(is_undefined, torch.nan, tau)


def _pair_inversions(
    rank_a: Int[Tensor, "*batch entries"], rank_b: Int[Tensor, "*batch entries"]
) -> Float[Tensor, "*batch entries entries"]:
    """1 where two rankings order a pair differently, a half where one of them does not say."""
    order_a = (rank_a.unsqueeze(-1) - rank_a.unsqueeze(-2)).sign()
    order_b = (rank_b.unsqueeze(-1) - rank_b.unsqueeze(-2)).sign()
    is_unsaid = (order_a == 0) ^ (order_b == 0)
    return (order_a * order_b < 0) + 0.5 * is_unsaid


def _most_inversions(
    size: Int[Tensor, "*#batch"], entries: Int[Tensor, "*#batch"]
) -> Float[Tensor, "*any"]:
    """The most inversions that two lists of `size` out of so many entries can have.

    Then as few entries as possible are in both, in opposite orders.
    """
    shared = (2 * size - entries).clamp(min=0)
    unshared = size - shared
    among_shared = shared * (shared - 1) / 2
    within_a_list = unshared * (unshared - 1) / 2
    return among_shared + 2 * shared * unshared + unshared**2 + within_a_list


def rank_biased_overlap(a: Rows, b: Rows, mask: Mask, persistence: float = 0.9) -> PerRow:
    """How alike two rankings of the same entries are from the top down, 0 to 1.

    A reader goes on from each rank to the next with probability `persistence` (RBO extrapolated,
    equation 30 of Webber et al. 2010); with 0.9 the first ten ranks have 86 % of the weight. Of
    tied entries the earlier position comes first. NaN in an empty row and in one that holds a NaN.
    """
    length = torch.tensor(mask.shape[-1], device=mask.device)
    rank_a, rank_b, size, is_undefined = _ranks(a, b, length, mask)
    # from this depth on, counted from 0, both rankings have the entry
    shared_from = torch.maximum(rank_a, rank_b)
    depth = torch.arange(1, mask.shape[-1] + 1, device=mask.device)
    is_entry = rank_a < size
    is_common = (shared_from.unsqueeze(-2) < depth.unsqueeze(-1)) & is_entry.unsqueeze(-2)
    overlap = is_common.sum(-1).double() / depth
    weight = torch.where(depth <= size, persistence ** depth.double(), 0)
    total = (1 - persistence) / persistence * (overlap * weight).sum(-1)
    last = persistence ** size.squeeze(-1).double()  # all entries are common at the last depth
    return torch.where(is_undefined, torch.nan, total + last)


def _ranks(
    a: Tensor, b: Tensor, k: Tensor, mask: Bool[Tensor, "*batch seq"]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What the measures of the most important positions start from.

    Returns:
        The place of every entry in either row, the largest first, from 0, positions outside the
        mask last; k per row `[..., 1]`, at most the number of entries; where nothing can be said.
    """
    a, b, mask = torch.broadcast_tensors(a.detach(), b.detach(), mask)
    is_undefined = ((a.isnan() | b.isnan()) & mask).any(-1) | ~mask.any(-1)
    entries = mask.sum(-1, keepdim=True)
    size = k.expand(mask.shape[:-1]).unsqueeze(-1).minimum(entries)
    return _descending_ranks(a, mask), _descending_ranks(b, mask), size, is_undefined


def _descending_ranks(x: Tensor, mask: Bool[Tensor, "*batch seq"]) -> Int[Tensor, "*batch seq"]:
    """Place of every entry from the largest (0) on, equal ones in reading order."""
    masked = torch.where(mask, -x, torch.nan)  # NaN sorts after everything
    return masked.argsort(dim=-1, stable=True).argsort(dim=-1)


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
