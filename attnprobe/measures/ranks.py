"""Ranks of a row's entries."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor


def dense_ranks(x: Tensor, valid: Bool[Tensor, "*batch seq"]) -> Int[Tensor, "*batch seq"]:
    """Rank of each entry's value among its row's distinct values, from 0; entries outside the mask come last."""
    ordered, order = x.sort(-1)
    new_value = torch.zeros_like(order)
    new_value[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    ranks = torch.empty_like(order).scatter_(-1, order, new_value.cumsum(-1))
    return torch.where(valid, ranks, x.shape[-1])


def group_sizes(ranks: Int[Tensor, "*batch seq"], valid: Bool[Tensor, "*batch seq"]) -> Int[Tensor, "*batch groups"]:
    """How many valid entries have each rank."""
    sizes = ranks.new_zeros(*ranks.shape[:-1], ranks.shape[-1] + 1)
    return sizes.scatter_add_(-1, ranks, valid.long())
