"""Examples of a finished run as a table for W&B: one row each, with its heat maps as cells of HTML."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pandas as pd

from attnprobe.report.notebook import Strip, floats, page, strips_html
from attnprobe.report.wide import per_example

WORDS = ("text", "tokens", "words", "question", "candidates")
"""The columns of the examples' table that hold somebody's words."""
HEATMAPS = {
    "attention": None,
    "adversarial attention": ("adversarial", "found_attention"),
    "farthest attention": ("adversarial", "optimum_attention"),
    "gradient": ("gradient", "gradient"),
    "leave-one-out": ("leave_one_out", "leave_one_out"),
}
"""Columns of HTML, where the run has the numbers: (probe, metric) with a step per position; the attention itself is
among the examples."""
NUMBERS = (
    ("adversarial", "found_jsd"),
    ("adversarial", "optimum_jsd"),
    ("erasure", "removed_count_optimal"),
    ("correlation", "tau_attention_gradient"),
    ("correlation", "tau_attention_leave_one_out"),
)
"""Columns to sort by, where the run has them."""


def example_table(results: pd.DataFrame, examples: pd.DataFrame, *, most: int, log_text: bool) -> pd.DataFrame:
    """The chosen examples (`choose`), one row each: `example_id`, `chosen`, `label`, `prediction`, `probability`, the
    words (`text`), `max_attention`, `NUMBERS`, and `HEATMAPS` as HTML.

    Args:
        results: the long table of one run and split.
        examples: its examples.
        most: rows at most.
        log_text: False leaves out the words; the heat maps then show the positions' numbers.
    """
    chosen = choose(results, examples, most)
    table = chosen[["example_id", "chosen"]].reset_index(drop=True)
    for name in ("label", "prediction", "probability"):
        table[name] = [cell(value) for value in chosen[name]]
    if log_text:
        table["text"] = [" ".join(tokens) for tokens in chosen["tokens"]]
    table["max_attention"] = [max(floats(weights), default=float("nan")) for weights in chosen["attention"]]
    for probe, metric in NUMBERS:
        wide = per_example(results, probe, [metric])
        if not wide.empty:
            table[metric] = table["example_id"].map(wide.set_index("example_id")[metric])
    rows: list[Any] = chosen.to_dict("records")
    for name, source in HEATMAPS.items():
        if source is None:
            table[name] = [heatmap(attention_strips(row, log_text=log_text)) for row in rows]
            continue
        weights = positions(results, *source, table["example_id"].tolist())
        if weights:
            cells = [heatmap(strips(name, row, weights.get(row["example_id"]), log_text=log_text)) for row in rows]
            table[name] = cells
    return table


def choose(results: pd.DataFrame, examples: pd.DataFrame, most: int) -> pd.DataFrame:
    """At most so many examples, and why each is `chosen`; all of them where there are no more.

    Half are the `largest`: by the largest JSD at which the prediction stays (the adversarial probe's optimum, or what
    the gradient adversary found), in turn from each predicted class; by the largest attention weight where that probe
    did not run (a text of one position, whose weight is always 1, comes last); of equal ones the first example. The
    others are `evenly spaced` over the rest, in the order of the test set, so that not only extremes are seen. Sorted in
    this order.
    """
    if len(examples) <= most:
        return examples.sort_values("example_id").assign(chosen="all")
    largest = [max(weights) if len(weights) > 1 else 0.0 for weights in examples["attention"]]
    score = pd.Series(largest, examples["example_id"])
    for metric in ("optimum_jsd", "found_jsd"):
        jsd = per_example(results, "adversarial", [metric]).set_index("example_id")[metric]
        if jsd.notna().any():
            score = jsd
            break
    ranked = examples.assign(
        score=examples["example_id"].map(score).fillna(-1.0), decision=[cell(value) for value in examples["prediction"]]
    ).sort_values(["score", "example_id"], ascending=[False, True])
    ranked = ranked.assign(turn=ranked.groupby("decision").cumcount())
    ranked = ranked.sort_values(["turn", "score", "example_id"], ascending=[True, False, True])
    half = most // 2
    rest = ranked.iloc[half:].sort_values("example_id")
    picked = np.linspace(0, len(rest) - 1, most - half).round().astype(int)
    both = [ranked.iloc[:half].assign(chosen="largest"), rest.iloc[picked].assign(chosen="evenly spaced")]
    return pd.concat(both).drop(columns=["score", "decision", "turn"])


def positions(results: pd.DataFrame, probe: str, metric: str, wanted: Sequence[int]) -> dict[int, pd.Series]:
    """The numbers of a per-position metric, by position, of each wanted example that has them."""
    rows = results[(results["probe"] == probe) & (results["metric"] == metric) & results["example_id"].isin(wanted)]
    steps = rows.assign(step=rows["step"].astype(int))
    parts = [part for _, part in steps.groupby("example_id")]
    return {int(part["example_id"].iloc[0]): part.set_index("step")["value"] for part in parts}


def attention_strips(row: dict[str, Any], *, log_text: bool) -> list[Strip]:
    """The model's attention to its positions; and in a hierarchical model, among the words of each sentence."""
    sentences = row.get("words") is not None
    count = len(row["attention"])
    tokens = list(row["tokens"]) if log_text else None
    found = [Strip("attention", floats(row["attention"]), tokens, range(count) if sentences else ())]
    if sentences:
        words = [word for sentence in row["words"] for word in sentence]
        weights = [weight for sentence in row["word_attention"] for weight in sentence]
        ends = [end - 1 for end in accumulate(len(sentence) for sentence in row["words"])]
        found.append(Strip("within sentences", floats(weights), words if log_text else None, ends))
    return found


def strips(name: str, row: dict[str, Any], weights: pd.Series | None, *, log_text: bool) -> list[Strip]:
    """A measure's numbers over the positions of one example, NaN where there is none; no strip without any."""
    if weights is None:
        return []
    values = weights.reindex(range(len(row["attention"])))
    return [Strip(name, floats(values), list(row["tokens"]) if log_text else None)]


def heatmap(found: list[Strip]) -> str:
    """One cell, a page by itself; empty where there is nothing to show."""
    return f'<!doctype html><meta charset="utf-8">{page([strips_html(found)])}' if found else ""


def cell(value: Any) -> Any:
    """Numbers as they are; a list as the text of one cell, with three digits.

    >>> cell(np.array([0.25, 0.75])), cell(1)
    ('[0.25, 0.75]', 1)
    """
    return "[" + ", ".join(f"{item:.3g}" for item in value) + "]" if pd.api.types.is_list_like(value) else value
