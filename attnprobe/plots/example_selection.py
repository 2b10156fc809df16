"""Which texts are shown where not all can be: one rule for the page, the figures, W&B and the playground."""

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int, Shaped

EVENLY, ALL = "evenly spaced", "all"
"""Reasons of examples that no score chose."""


def select_examples(
    example_id: Int[np.ndarray, " examples"],
    most: int,
    *,
    scores: Mapping[str, Float[np.ndarray, " examples"]] | None = None,
    groups: Shaped[np.ndarray, " examples"] | None = None,
    evenly: float = 0.5,
    prefer: Bool[np.ndarray, " examples"] | None = None,
) -> dict[int, str]:
    """At most that many examples, each with the reason why it is shown: half extremes, half evenly spaced.

    All of them where there are no more than `most`. Else a share `evenly` of the places is spaced evenly over the
    examples, in their order, so that not only extremes are seen. The other places go to extremes, in turn: the example
    with the largest value of each score in each group, then the second largest of each, and so on; of equal values the
    first example. Places that no score fills, such as all where there are no scores, are spaced evenly as well.

    Args:
        example_id: of the examples in question, ascending.
        most: how many to show.
        scores: reason → a number per example, whose largest values are of interest; NaN where it is undefined.
        groups: the group of each example, such as the predicted class; None: one group.
        evenly: share of the places, 0 to 1.
        prefer: the examples that are in question if these are enough, such as those with a text of a readable length.

    Returns:
        Example id → reason: extremes first, in the order in which they were chosen, then the evenly spaced ones.
    """
    asked = np.ones(len(example_id), bool) if prefer is None or prefer.sum() < most else prefer
    count = int(asked.sum())
    if count <= most:
        return dict.fromkeys(example_id[asked].tolist(), ALL)
    codes = np.zeros(count, int) if groups is None else pd.factorize(groups[asked])[0]
    names = list(scores or {})
    rows, rank, score, value = [], [], [], []
    for number, name in enumerate(names):
        values = (scores or {})[name][asked]
        for code in np.unique(codes):
            own = np.flatnonzero((codes == code) & ~np.isnan(values))
            own = own[np.argsort(-values[own], kind="stable")]
            rows.append(own)
            rank.append(np.arange(len(own)))
            score.append(np.full(len(own), number))
            value.append(-values[own])
    chosen: dict[int, str] = {}
    if rows:
        in_turn = np.lexsort([np.concatenate(part) for part in (value, score, rank)])
        candidates, reasons = np.concatenate(rows)[in_turn], np.concatenate(score)[in_turn]
        _, first = np.unique(candidates, return_index=True)
        first = np.sort(first)[: most - math.ceil(evenly * most)]
        chosen = {int(row): names[reason] for row, reason in zip(candidates[first], reasons[first], strict=True)}
    rest = np.setdiff1d(np.arange(count), np.array(list(chosen), int))
    spaced = np.linspace(0, len(rest) - 1, most - len(chosen)).round().astype(int)
    chosen |= dict.fromkeys(rest[spaced].tolist(), EVENLY)
    return {int(example_id[asked][row]): reason for row, reason in chosen.items()}
