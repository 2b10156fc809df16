"""Which texts are shown where not all can be: one rule for the page, the figures, W&B and the
playground."""

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int, Shaped

EVENLY = "evenly spaced"
ALL = "all"
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
    """At most that many examples, each with the reason why it is shown; all of them where there are
    no more.

    A share `evenly` of the places is spaced evenly over the examples. The others go to extremes, in
    turn: the example with the largest value of each score in each group, then the second largest of
    each, and so on; of equal values the first.

    Args:
        example_id: of the examples in question, ascending.
        most: how many to show.
        scores: reason → a number per example, whose largest values are of interest; NaN where it is
            undefined.
        groups: the group of each example, such as the predicted class; None: one group.
        evenly: share of the places, 0 to 1.
        prefer: the examples that are in question if these are enough, such as those of a readable
            length.

    Returns:
        Example id → reason: extremes first, in the order in which they were chosen.
    """
    asked = np.ones(len(example_id), bool) if prefer is None or prefer.sum() < most else prefer
    ids = example_id[asked]
    if len(ids) <= most:
        return dict.fromkeys(ids.tolist(), ALL)
    codes = np.zeros(len(ids), int) if groups is None else pd.factorize(groups[asked])[0]
    candidates = []
    for number, values in enumerate((scores or {}).values()):
        own = pd.DataFrame(
            {"row": np.arange(len(ids)), "group": codes, "score": number, "value": values[asked]}
        ).dropna()
        own = own.sort_values("value", ascending=False, kind="stable")
        candidates.append(own.assign(rank=own.groupby("group").cumcount()))
    chosen: dict[int, str] = {}
    if candidates:
        order = ["rank", "score", "value", "group"]
        in_turn = pd.concat(candidates).sort_values(
            order, ascending=[True, True, False, True], kind="stable"
        )
        extremes = in_turn.drop_duplicates("row").head(most - math.ceil(evenly * most))
        names = list(scores or {})
        chosen = {
            int(row): names[score]
            for row, score in zip(extremes["row"], extremes["score"], strict=True)
        }
    rest = np.setdiff1d(np.arange(len(ids)), np.array(list(chosen), int))
    spaced = np.linspace(0, len(rest) - 1, most - len(chosen)).round().astype(int)
    chosen |= dict.fromkeys(rest[spaced].tolist(), EVENLY)
    return {int(ids[row]): reason for row, reason in chosen.items()}
