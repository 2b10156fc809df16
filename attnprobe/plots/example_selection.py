"""Which texts are shown where not all can be.

One rule for the page, the figures, W&B and the playground.
"""

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
    """Choose examples to show, each with the reason why; all of them where there are no more.

    A share `evenly` of the places is spaced evenly over the examples. The others go to extremes, in
    turn: the example with the largest value of each score in each group, then the second largest of
    each, and so on; of equal values the first.

    Args:
        example_id: of the candidates, ascending.
        most: how many to show.
        scores: reason → a number per example, whose largest values are of interest; NaN where it is
            undefined.
        groups: the group of each example, such as the predicted class; None: one group.
        evenly: share of the places, 0 to 1.
        prefer: the candidates that are considered if there are enough of them, such as those of a
            readable length.

    Returns:
        Example id → reason: extremes first, in the order in which they were chosen.
    """
    considered = np.ones(len(example_id), bool)
    if prefer is not None and prefer.sum() >= most:
        considered = prefer
    ids = example_id[considered]
    if len(ids) <= most:
        return dict.fromkeys(ids.tolist(), ALL)

    codes = np.zeros(len(ids), int) if groups is None else pd.factorize(groups[considered])[0]
    considered_scores = {name: values[considered] for name, values in (scores or {}).items()}
    reasons = _extremes(considered_scores, codes, most - math.ceil(evenly * most))
    remaining = np.setdiff1d(np.arange(len(ids)), np.array(list(reasons), int))
    spaced = np.linspace(0, len(remaining) - 1, most - len(reasons)).round().astype(int)
    reasons |= dict.fromkeys(remaining[spaced].tolist(), EVENLY)
    return {int(ids[row]): reason for row, reason in reasons.items()}


def _extremes(
    scores: Mapping[str, Float[np.ndarray, " examples"]],
    groups: Int[np.ndarray, " examples"],
    most: int,
) -> dict[int, str]:
    """Rows of the largest values of each score in each group, in turn, with the score's name."""
    if not scores:
        return {}
    candidates = []
    for number, values in enumerate(scores.values()):
        rows = np.arange(len(values))
        columns = {"row": rows, "group": groups, "score": number, "value": values}
        ranked = pd.DataFrame(columns).dropna()
        ranked = ranked.sort_values("value", ascending=False, kind="stable")
        candidates.append(ranked.assign(rank=ranked.groupby("group").cumcount()))
    in_turn = pd.concat(candidates).sort_values(
        ["rank", "score", "value", "group"], ascending=[True, True, False, True], kind="stable"
    )
    extremes = in_turn.drop_duplicates("row").head(most)
    names = list(scores)
    return {
        int(row): names[score]
        for row, score in zip(extremes["row"], extremes["score"], strict=True)
    }
