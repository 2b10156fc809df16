"""Examples of a finished run as a table for W&B: one row each, with its heat maps as cells of HTML."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from attnprobe.report.notebook import Strip, attention_strips, floats, page, strips_html
from attnprobe.report.numbers import Numbers, numbers_of
from attnprobe.report.reading import HeatMap, columns_in, maps_in
from attnprobe.results.directory import RunDirectory

WORDS = ("text", "tokens", "words", "question", "candidates")
"""The columns of the examples' table that hold somebody's words."""
ATTENTION = "attention"
"""The column with the model's own attention as a heat map."""


def example_table(
    results: pd.DataFrame | Numbers, run: RunDirectory, split: str, *, most: int, log_text: bool
) -> pd.DataFrame:
    """The chosen examples (`choose`), one row each: `example_id`, `chosen`, `label`, `prediction`, `probability`, the
    words (`text`), `max_attention`; of the readings the columns to sort by, called by their metrics; and as HTML the
    `attention` and the readings' maps, called by their titles.

    Args:
        results: the numbers of the run; its long table will do.
        run: has the examples.
        split: whose examples.
        most: rows at most.
        log_text: False leaves out the words; the heat maps then show the positions' numbers.
    """
    numbers = numbers_of(results)
    picked = choose(numbers, run, split, most)
    examples = run.examples(split, example_ids=picked["example_id"]).to_pandas()
    chosen = picked.merge(examples, on="example_id", validate="one_to_one")
    table = chosen[["example_id", "chosen"]].reset_index(drop=True)
    for name in ("label", "prediction", "probability"):
        table[name] = [cell(value) for value in chosen[name]]
    if log_text:
        table["text"] = [" ".join(tokens) for tokens in chosen["tokens"]]
    table["max_attention"] = [max(floats(weights), default=float("nan")) for weights in chosen["attention"]]
    for probe, column in columns_in(numbers):
        if column.sorts:
            values = numbers.rows(probe, (column.metric,)).set_index("example_id")["value"]
            table[column.metric] = table["example_id"].map(values)
    rows: list[Any] = chosen.to_dict("records")
    table[ATTENTION] = [heatmap(attention_strips(row, shows_words=log_text)) for row in rows]
    for probe, shown in maps_in(numbers):
        weights = positions(numbers, probe, shown.metric, table["example_id"].tolist())
        if weights:
            drawn = (strips(shown, row, weights.get(row["example_id"]), log_text=log_text) for row in rows)
            table[shown.title] = [heatmap(one) for one in drawn]
    return table


def is_heatmap(column: str, numbers: Numbers) -> bool:
    """Whether a column of the table holds heat maps."""
    return column == ATTENTION or any(column == shown.title for _, shown in maps_in(numbers))


def choose(results: pd.DataFrame | Numbers, run: RunDirectory, split: str, most: int) -> pd.DataFrame:
    """At most that many examples, `example_id`, and why each is `chosen`; all of them where there are no more.

    Half are the `largest`: by the first of the readings' leading columns that the run has (the largest JSD at which the
    prediction stays: the adversarial probe's optimum, or what the gradient adversary found), in turn from each predicted
    class; by the largest attention weight where there is none (a text of one position, whose weight is always 1, comes
    last); of equal ones the first example. The others are `evenly spaced` over the rest, in the order of the test set, so
    that not only extremes are seen. Sorted in this order.
    """
    numbers = numbers_of(results)
    examples = decisions(run, split)
    if len(examples) <= most:
        return examples[["example_id"]].assign(chosen="all")
    score = examples.set_index("example_id")["largest"]
    for probe, column in columns_in(numbers):
        values = numbers.rows(probe, (column.metric,)).set_index("example_id")["value"]
        if column.leads and values.notna().any():
            score = values
            break
    ranked = examples.assign(score=examples["example_id"].map(score).fillna(-1.0))
    ranked = ranked.sort_values(["score", "example_id"], ascending=[False, True])
    ranked = ranked.assign(turn=ranked.groupby("decision").cumcount())
    ranked = ranked.sort_values(["turn", "score", "example_id"], ascending=[True, False, True])
    half = most // 2
    rest = ranked.iloc[half:].sort_values("example_id")
    picked = np.linspace(0, len(rest) - 1, most - half).round().astype(int)
    both = [ranked.iloc[:half].assign(chosen="largest"), rest.iloc[picked].assign(chosen="evenly spaced")]
    return pd.concat(both)[["example_id", "chosen"]]


def decisions(run: RunDirectory, split: str) -> pd.DataFrame:
    """What is predicted for every example (`decision`, as text), and its `largest` attention weight, 0 for a text of one
    position; by `example_id`."""
    ids: list[int] = []
    decided: list[str] = []
    largest: list[float] = []
    for piece in run.example_pieces(split, ["prediction", "attention"]):
        ids += piece["example_id"].to_pylist()
        decided += [str(cell(value)) for value in piece["prediction"].to_pylist()]
        largest += [max(weights) if len(weights) > 1 else 0.0 for weights in piece["attention"].to_pylist()]
    return pd.DataFrame({"example_id": ids, "decision": pd.Categorical(decided), "largest": largest})


def positions(numbers: Numbers, probe: str, metric: str, wanted: Sequence[int]) -> dict[int, pd.Series]:
    """The numbers of a per-position metric, by position, of each wanted example that has them."""
    rows = numbers.rows(probe, (), stepped=(metric,), example_ids=wanted)
    steps = rows.assign(step=rows["step"].astype(int))
    parts = [part for _, part in steps.groupby("example_id")]
    return {int(part["example_id"].iloc[0]): part.set_index("step")["value"] for part in parts}


def strips(shown: HeatMap, row: dict[str, Any], weights: pd.Series | None, *, log_text: bool) -> list[Strip]:
    """A map's numbers over the positions of one example, NaN where there is none; no strip without any."""
    if weights is None:
        return []
    values = weights.reindex(range(len(row["attention"])))
    return [Strip(shown.title, floats(values), list(row["tokens"]) if log_text else None)]


def heatmap(drawn: list[Strip]) -> str:
    """One cell, a page by itself; empty where there is nothing to show."""
    return f'<!doctype html><meta charset="utf-8">{page([strips_html(drawn)])}' if drawn else ""


def cell(value: Any) -> Any:
    """Numbers as they are; a list as the text of one cell, with three digits.

    >>> cell(np.array([0.25, 0.75])), cell(1)
    ('[0.25, 0.75]', 1)
    """
    return "[" + ", ".join(f"{item:.3g}" for item in value) + "]" if pd.api.types.is_list_like(value) else value
