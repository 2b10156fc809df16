"""Kendall's τ-b and its p-value, all rows at once."""

from dataclasses import dataclass
from functools import cache

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnprobe.measures.ranks import dense_ranks, group_sizes
from attnprobe.measures.rows import masked_rows

EXACT_UP_TO = 33
"""Entries of a row without ties up to which its p-value is counted out, as `scipy.stats.kendalltau` does."""


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
    return _Pairs.of(a, b, mask).tau


def kendall_tau_test(
    a: Float[Tensor, "*#batch seq"], b: Float[Tensor, "*#batch seq"], mask: Bool[Tensor, "*#batch seq"] | None = None
) -> tuple[Float[Tensor, "*any"], Float[Tensor, "*any"]]:
    """Kendall's τ-b per row and its two-sided p-value for "no association", 0 to 1; NaN where τ is undefined.

    The p-value is `scipy.stats.kendalltau`'s: without ties exact for rows of up to 33 entries and for (almost) perfect
    agreement, else the normal approximation. It takes the positions for exchangeable, which the tokens of a text are
    not, and is not corrected for the number of examples.
    """
    pairs = _Pairs.of(a, b, mask)
    return pairs.tau, pairs.p_value


@dataclass(frozen=True)
class _Pairs:
    """What the pairs of a row's entries say, in whole numbers, one per row.

    Attributes:
        size: entries that count.
        total: pairs of them.
        ties_a, ties_b: pairs with equal entries.
        balance: concordant minus discordant pairs.
        groups_a, groups_b: how many entries share each value.
        undefined: a NaN counts.
        dtype: of the result.
    """

    size: Int[Tensor, "*batch"]
    total: Int[Tensor, "*batch"]
    ties_a: Int[Tensor, "*batch"]
    ties_b: Int[Tensor, "*batch"]
    balance: Int[Tensor, "*batch"]
    groups_a: Int[Tensor, "*batch groups"]
    groups_b: Int[Tensor, "*batch groups"]
    undefined: Bool[Tensor, "*batch"]
    dtype: torch.dtype

    @classmethod
    def of(cls, a: Tensor, b: Tensor, mask: Tensor | None) -> "_Pairs":
        a, b, valid = masked_rows(a, b, mask)
        rank_a, rank_b = dense_ranks(a, valid), dense_ranks(b, valid)
        both = (
            rank_a * (valid.shape[-1] + 1) + rank_b
        )  # a's order, ties in a by b: no pair tied in either is an inversion
        discordant = _inversions(rank_b.gather(-1, both.argsort(-1)))
        size = valid.sum(-1)
        groups_a, groups_b = group_sizes(rank_a, valid), group_sizes(rank_b, valid)
        ties_a, ties_b = _pairs_in(groups_a), _pairs_in(groups_b)
        ties_both = _pairs_in(group_sizes(dense_ranks(both, valid), valid))
        total = size * (size - 1) // 2
        balance = total - ties_a - ties_b + ties_both - 2 * discordant
        undefined = ((a.isnan() | b.isnan()) & valid).any(-1)
        return cls(size, total, ties_a, ties_b, balance, groups_a, groups_b, undefined, a.dtype)

    @property
    def tau(self) -> Float[Tensor, "*batch"]:
        scale = (self.total - self.ties_a).double().sqrt() * (self.total - self.ties_b).double().sqrt()
        tau = (self.balance.double() / torch.where(scale > 0, scale, torch.nan)).clamp(-1, 1)
        return torch.where(self.undefined, torch.nan, tau).to(self.dtype)

    @property
    def p_value(self) -> Float[Tensor, "*batch"]:
        fewer = (
            self.total - self.balance.abs()
        ) // 2  # without ties: concordant or discordant pairs, whichever are fewer
        counted = (self.ties_a + self.ties_b == 0) & ((self.size <= EXACT_UP_TO) | (fewer <= 1))
        p = torch.where(counted, _exact(self.size, fewer), self._approximate())
        return torch.where(self.tau.isnan(), torch.nan, p).to(self.dtype)

    def _approximate(self) -> Float[Tensor, "*batch"]:
        """By the normal distribution, with the variance that ties leave (Kendall 1970, section 4.7)."""
        n = self.size.double()
        m = n * (n - 1)
        a, b = self.groups_a.double(), self.groups_b.double()
        fifth = [(g * (g - 1) * (2 * g + 5)).sum(-1) for g in (a, b)]
        third = [(g * (g - 1) * (g - 2)).sum(-1) for g in (a, b)]
        variance = (m * (2 * n + 5) - fifth[0] - fifth[1]) / 18 + 2 * self.ties_a * self.ties_b / m
        variance = variance + torch.where(n > 2, third[0] * third[1] / (9 * m * (n - 2)), 0)
        return torch.special.erfc(self.balance.abs() / (2 * variance).sqrt())


def _exact(size: Int[Tensor, "*batch"], fewer: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """Twice the share of the orders of `size` entries with at most `fewer` inversions, at most 1."""
    tails = _tails().to(size.device)
    small = tails[size.clamp(max=EXACT_UP_TO), fewer.clamp(max=tails.shape[1] - 1)]
    # one order has no inversion, and (entries − 1) orders have a single one
    large = torch.exp(torch.where(fewer > 0, size.double().log(), 0) - torch.lgamma(size.double() + 1))
    return (2 * torch.where(size <= EXACT_UP_TO, small, large)).clamp(max=1)


@cache
def _tails() -> Float[Tensor, "sizes inversions"]:
    """Share of the orders of that many entries (row) that have at most that many inversions (column).

    The next entry comes before 0, 1, … or all of the others, each as likely, and adds as many inversions.
    """
    most = EXACT_UP_TO * (EXACT_UP_TO - 1) // 2
    share = torch.zeros(EXACT_UP_TO + 1, most + 1, dtype=torch.float64)
    share[:2, 0] = 1
    for size in range(2, EXACT_UP_TO + 1):
        for added in range(size):
            share[size, added:] += share[size - 1, : most + 1 - added] / size
    return share.cumsum(-1)


def _pairs_in(groups: Int[Tensor, "*batch groups"]) -> Int[Tensor, "*batch"]:
    """Number of pairs within groups of these sizes."""
    return (groups * (groups - 1) // 2).sum(-1)


def _inversions(x: Int[Tensor, "*batch seq"]) -> Int[Tensor, "*batch"]:
    """Number of pairs i < j with x[i] > x[j], by merging sorted blocks of doubling width."""
    length = x.shape[-1]
    width = 1
    padded = 1 << max(length - 1, 0).bit_length()
    # padding larger than everything, at the end: part of no inversion (pad's value goes through a double: 2^62 fits)
    x = torch.nn.functional.pad(x, (0, padded - length), value=2**62)
    count = x.new_zeros(x.shape[:-1])
    while width < padded:
        blocks = x.unflatten(-1, (-1, 2, width))
        left, right = blocks[..., 0, :].contiguous(), blocks[..., 1, :].contiguous()
        count = count + (width - torch.searchsorted(left, right, right=True)).sum((-2, -1))
        width *= 2
        x = x.unflatten(-1, (-1, width)).sort(-1).values.flatten(-2)
    return count
