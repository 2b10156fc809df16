"""Do two scorings agree about the most important positions?

Rankings of a whole text are ruled by its many unimportant tokens (Jain & Wallace 2019, appendix; Neely et al. 2022);
these look at the top only.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def tenth(content: Bool[Tensor, "*batch seq"]) -> Int[Tensor, "*batch"]:
    """A tenth of the number of positions, rounded up."""
    return (content.sum(-1) + 9) // 10


def top_overlap(
    a: Float[Tensor, "*#batch seq"],
    b: Float[Tensor, "*#batch seq"],
    k: Int[Tensor, "*#batch"],
    mask: Bool[Tensor, "*#batch seq"],
) -> Float[Tensor, "*any"]:
    """Share of a's k largest entries that are among b's k largest, 0 to 1; k per row.

    Rows with fewer entries are compared on all they have. Of tied entries the earlier position comes first. NaN in an
    empty row and in one that holds a NaN.
    """
    rank_a, rank_b, k, undefined = _ranks(a, b, k, mask)
    common = ((rank_a < k) & (rank_b < k)).sum(-1).double()
    return torch.where(undefined, torch.nan, common / k.squeeze(-1).clamp(min=1))


def top_tau(
    a: Float[Tensor, "*#batch seq"],
    b: Float[Tensor, "*#batch seq"],
    k: int,
    mask: Bool[Tensor, "*#batch seq"],
) -> Float[Tensor, "*any"]:
    """Kendall's τ of two top-k lists, −1 (as far apart as two such lists can be) to 1 (the same list).

    Every pair of entries that are in either list counts as one inversion if the lists order it differently, an entry
    that is not in a list ranking after all that are, and as half a one if one list does not say (K^(1/2) of Fagin,
    Kumar & Sivakumar 2003). τ = 1 − 2 K / K_max, K_max being the most inversions that two lists of k out of n entries
    can have; with n ≤ k this is the ordinary τ of rows without ties.

    NaN in a row of fewer than two entries or one that holds a NaN. Of tied entries the earlier position comes first.

    Note:
        The published code gives a distance, divides by the square of the number of entries in either list, which no two
        lists reach, and does not count the pairs with one entry in each list.
    """
    size = torch.full(mask.shape[:-1], k, device=mask.device)
    rank_a, rank_b, size, undefined = _ranks(a, b, size, mask)
    # the entries of either list, at most 2k of them, b's only if they are not in a's
    best_a, best_b = rank_a.argsort(-1)[..., :k], rank_b.argsort(-1)[..., :k]
    items = torch.cat([best_a, best_b], -1)
    listed_a, listed_b = rank_a.gather(-1, items), rank_b.gather(-1, items)
    in_a = torch.arange(items.shape[-1], device=items.device) < best_a.shape[-1]
    listed = torch.where(in_a, listed_a < size, (listed_b < size) & (listed_a >= size))
    place_a, place_b = listed_a.minimum(size), listed_b.minimum(size)
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


def rank_biased_overlap(
    a: Float[Tensor, "*#batch seq"],
    b: Float[Tensor, "*#batch seq"],
    mask: Bool[Tensor, "*#batch seq"],
    persistence: float = 0.9,
) -> Float[Tensor, "*any"]:
    """How alike two rankings are from the top down, 0 to 1, a reader going on from each rank to the next with probability
    `persistence` (RBO extrapolated, equation 30 of Webber et al. 2010, for two rankings of the same entries).

    With p = 0.9 the first ten ranks have 86 % of the weight. Of tied entries the earlier position comes first. NaN in an
    empty row and in one that holds a NaN.
    """
    rank_a, rank_b, size, undefined = _ranks(
        a, b, torch.full(mask.shape[:-1], mask.shape[-1], device=mask.device), mask
    )
    both = torch.maximum(rank_a, rank_b)  # from this depth on, counted from 0, both have the entry
    depth = torch.arange(1, mask.shape[-1] + 1, device=mask.device)
    inside = rank_a < size
    common = ((both.unsqueeze(-2) < depth.unsqueeze(-1)) & inside.unsqueeze(-2)).sum(-1).double()
    weight = torch.where(depth <= size, persistence ** depth.double(), 0)
    total = (1 - persistence) / persistence * (common / depth * weight).sum(-1)
    last = persistence ** size.squeeze(-1).double()  # all entries are common at the last depth
    return torch.where(undefined, torch.nan, total + last)


def _ranks(a: Tensor, b: Tensor, k: Tensor, mask: Bool[Tensor, "*batch seq"]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Place of every entry from the largest (0) on, positions outside the mask last; k `[..., 1]`, at most the number
    of entries; and where nothing can be said."""
    a, b, mask = torch.broadcast_tensors(a.detach(), b.detach(), mask)
    undefined = ((a.isnan() | b.isnan()) & mask).any(-1) | ~mask.any(-1)
    # NaN sorts after everything
    rank_a, rank_b = (torch.where(mask, -x, torch.nan).argsort(dim=-1, stable=True).argsort(dim=-1) for x in (a, b))
    return rank_a, rank_b, k.expand(mask.shape[:-1]).unsqueeze(-1).minimum(mask.sum(-1, keepdim=True)), undefined
