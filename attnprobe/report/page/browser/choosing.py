"""Which examples keep their heat maps in a page that would be too large with all of them."""

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Float, Int


def choose(
    columns: Iterable[Float[np.ndarray, " examples"]], count: int, share: float
) -> Bool[np.ndarray, " examples"]:
    """Which examples keep their weights per position: all where `share` is 1.

    Half of `share · count` is spread evenly over the split; the others are those with the largest and smallest values of
    the columns that the list can be sorted by, taken in turn, so that what is at either end of a sorted list can be
    looked at.

    Args:
        columns: these numbers of every example; they are not asked for where `share` is 1.
        count: how many examples there are.
        share: of them, 0 to 1.
    """
    kept = np.ones(count, bool)
    wanted = int(share * count)
    if wanted >= count:
        return kept
    kept[:] = False
    kept[np.linspace(0, count - 1, wanted // 2).round().astype(int)] = True
    orders = []
    for values in columns if wanted else ():
        order = np.argsort(values, kind="stable")[: np.count_nonzero(~np.isnan(values))].astype(np.int32)
        orders += [np.resize(order, wanted), np.resize(order[::-1], wanted)] if len(order) else []
    if orders:
        in_turn = np.stack(orders).T.ravel()
        in_turn = in_turn[~kept[in_turn]]
        _, first = np.unique(in_turn, return_index=True)
        kept[in_turn[np.sort(first)[: wanted - np.count_nonzero(kept)]]] = True
    return kept


def spans(lengths: Int[np.ndarray, " examples"], most: int) -> list[tuple[int, int]]:
    """Stretches `[first, stop)` of examples with about `most` positions each, at least one example in each."""
    if len(lengths) == 0:
        return []
    part = (np.cumsum(lengths.astype(np.int64)) - 1) // most
    edges = [0, *(np.flatnonzero(np.diff(np.maximum(part, 0))) + 1).tolist(), len(lengths)]
    return [(a, b) for a, b in pairwise(edges) if b > a]
