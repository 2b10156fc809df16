"""Which examples of a run are shown: those whose attention is peaked and can yet be moved far, and the least movable."""

from dataclasses import dataclass

import pandas as pd

from attnprobe.report.wide import per_example

TELLING = 3
SHORTEST = 6
"""Texts of fewer tokens have little attention to move and are chosen only where there are no longer ones."""
METRICS = (
    "max_attention",
    "optimum_jsd",
    "found_jsd",
    "upper_bound",
    "is_exact",
    "predicted_class",
    "content_length",
    "found_tvd",
    "optimum_tvd",
)
"""What is written above an example, and what it is chosen by."""


@dataclass(frozen=True)
class Choice:
    """An example and why it is shown."""

    example_id: int
    reason: str


def choose(rows: pd.DataFrame) -> list[Choice]:
    """The most telling examples, among texts of at least `SHORTEST` tokens where there are such.

    First those with the largest product of largest attention weight and optimum JSD, in turn from each predicted
    class: a peaked attention, which looks like an explanation, and which can be moved far without the prediction
    noticing. Last the one whose attention can be moved least (smallest optimum JSD).

    Args:
        rows: wide rows of one run with `max_attention`, `optimum_jsd`, `predicted_class` and `content_length`.
    """
    rows = rows.dropna(subset=["max_attention", "optimum_jsd"])
    if (rows["content_length"] >= SHORTEST).any():
        rows = rows[rows["content_length"] >= SHORTEST]
    score = rows["max_attention"] * rows["optimum_jsd"]
    rows = rows.assign(score=score).sort_values(["score", "example_id"], ascending=[False, True])
    turn = rows.groupby(rows["predicted_class"].fillna(-1)).cumcount()
    telling = rows.assign(turn=turn).sort_values(["turn", "score", "example_id"], ascending=[True, False, True])
    chosen = [Choice(int(number), "peaked, yet free") for number in telling["example_id"].head(TELLING)]
    taken = {choice.example_id for choice in chosen}
    rest = rows[~rows["example_id"].isin(taken)]
    if not rest.empty:
        least = rest.sort_values(["optimum_jsd", "example_id"])["example_id"].iloc[0]
        chosen.append(Choice(int(least), "least free"))
    return chosen


def shown(results: pd.DataFrame) -> list[int]:
    """The ids of the examples that `heatmaps` shows of one run."""
    return [choice.example_id for choice in choose(per_example(results, "adversarial", METRICS))]
