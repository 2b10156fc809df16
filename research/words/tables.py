"""The tables of docs/results/calibration.md, from the shipped rows."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa

from attnprobe.findings.lines import WORDS
from attnprobe.findings.track_record import (
    ANSWERS,
    CHIP,
    YES,
    Rate,
    answers_of,
    answers_to,
    rate,
    rates,
)
from research.markdown import percent

MODES = ("run", "audit")
"""How a model is asked."""
DECIDED = ("right", "wrong")
TRUTHS = (*DECIDED, "between", "unsolved", "failed")
BINS = (-np.inf, 0.05, 0.2, 0.4, 0.6, 0.8, np.inf)
"""Ends of the intervals of rightness that the curve is drawn over, the lower ones included."""
NONE = "–"


def rates_table(answers: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """What right and wrong attentions were told, by these columns (`rates`), in words.

    Args:
        answers: of one claim, a row per model.
        by: columns; empty: all models together.
    """
    numbers = rates(answers, by)
    table = numbers[[*by, "truth", "models", "rules", *ANSWERS]].copy()
    for units, prefix in (("rules", "rule "), ("models", "")):
        ends = numbers[["yes share", f"{prefix}low", f"{prefix}high"]]
        table[f"yes, over {units}"] = [percent(*row) for row in ends.itertuples(index=False)]
    return table


def counts_table(models: pd.DataFrame) -> pd.DataFrame:
    """How many models of each truth there are, by how they are asked and by encoder."""
    counts = models.groupby(["mode", "encoder", "truth"], observed=True).size()
    table = counts.unstack(fill_value=0).reindex(columns=list(TRUTHS), fill_value=0)
    table["all"] = table.sum(axis=1)
    return table.reset_index()


def curve_table(answers: pd.DataFrame) -> pd.DataFrame:
    """What was told of attentions of every rightness, of models that solve their rule."""
    solved = answers[answers["truth"].isin([*DECIDED, "between"])]
    rows = []
    for low, high in pairwise(BINS):
        group = solved[solved["rightness"].between(low, high, inclusive="left")]
        if group.empty:
            continue
        yes = rate(group)
        row: dict[str, object] = {"rightness": name_of_bin(low, high), "models": len(group)}
        for answer in ANSWERS:
            row[answer] = int((group["answer"] == answer).sum())
        row["yes, interval over rules"] = percent(
            yes.over_models.value, yes.over_rules.low, yes.over_rules.high
        )
        rows.append(row)
    return pd.DataFrame(rows, columns=["rightness", "models", *ANSWERS, "yes, interval over rules"])


def name_of_bin(low: float, high: float) -> str:
    """An interval of rightness in words; either end may be infinite."""
    if np.isinf(low):
        return f"below {high:g}"
    if np.isinf(high):
        return f"{low:g} and more"
    return f"{low:g} to {high:g}"


def numbers_table(answers: pd.DataFrame) -> pd.DataFrame:
    """How far the number on the line of words is from the rightness that it is to tell.

    Args:
        answers: of all claims (`answers_of`).

    Returns:
        By mode and encoder, of models that solve their rule and have a number: Pearson's r, the
        root mean square difference, and in how many the interval holds the rightness.
    """
    is_criterion = answers["criterion"] == WORDS.criterion
    is_level = answers["level"] == WORDS.level
    is_known = answers["truth"].isin([*DECIDED, "between"])
    words = answers[answers["primary"] & is_criterion & is_level & is_known]
    numbers = words.dropna(subset=["value", "rightness"])
    rows = []
    for (mode, encoder), group in numbers.groupby(["mode", "encoder"], observed=True):
        rightness = group["rightness"]
        difference = group["value"] - rightness
        root_mean_square = np.sqrt((difference**2).mean())
        is_held = rightness.between(group["low"], group["high"])
        rows.append(
            {
                "mode": mode,
                "encoder": encoder,
                "models": len(group),
                "r": f"{group['value'].corr(rightness):.2f}",
                "root mean square": f"{root_mean_square:.2f}",
                "interval holds it": f"{100 * is_held.mean():.0f} %",
            }
        )
    return pd.DataFrame(rows)


def worth_table(answers: pd.DataFrame) -> pd.DataFrame:
    """What every claim says of right and of wrong attention; a card's lines go by the bold ones.

    Args:
        answers: of all claims (`answers_of`).
    """
    claims = answers[answers["claim"] != CHIP]
    claims = claims.drop_duplicates("claim").sort_values(["criterion", "level"], kind="stable")
    rows = []
    for row in claims.itertuples():
        name = str(row.claim).replace("_", " ")
        cells = {
            "question": f"{row.criterion}, {row.level}",
            "claim": f"**{name}**" if row.primary else name,
        }
        claim_answers = answers_to(str(row.claim), answers)
        for truth in DECIDED:
            group = claim_answers[claim_answers["truth"] == truth]
            cells[f"yes on {truth}"] = NONE if group.empty else rate(group).words()
        rows.append(cells)
    return pd.DataFrame(rows, columns=["question", "claim", "yes on right", "yes on wrong"])


def seconds_table(models: pd.DataFrame) -> pd.DataFrame:
    """What training and asking took, medians of the models."""
    grouped = models.groupby(["mode", "encoder"], observed=True)
    medians = grouped[["training_seconds", "asking_seconds", "passes"]].median().reset_index()
    table = medians[["mode", "encoder"]].copy()
    table["training, s"] = medians["training_seconds"].map("{:.1f}".format)
    table["asking, s"] = medians["asking_seconds"].map("{:.1f}".format)
    table["passes of a text, setting"] = medians["passes"].map("{:.0f}".format)
    return table


def tables_of(table: pa.Table) -> dict[str, pd.DataFrame]:
    """Name → table, of the shipped rows."""
    models = table.drop_columns("answers").to_pandas()
    answers = answers_of(table)
    tables = {
        "models": counts_table(models),
        "numbers": numbers_table(answers),
        "old tests": worth_table(answers),
        "seconds": seconds_table(models),
    }
    for mode in MODES:
        chips = answers_to(CHIP, answers, mode)
        tables[f"chip, {mode}"] = rates_table(chips, [])
        for column in ("encoder", "kind", "standing", "attention"):
            tables[f"chip by {column}, {mode}"] = rates_table(chips, [column])
        tables[f"curve, {mode}"] = curve_table(chips)
    return tables


def headline(table: pa.Table) -> str:
    """README's sentence: how often the chip of one run is right."""
    chips = answers_to(CHIP, answers_of(table), "run")
    right = rate(chips[chips["truth"] == "right"], YES)
    wrong = rate(chips[chips["truth"] == "wrong"], YES)
    if not (right.models and wrong.models):
        return "How often the chip is right has not been measured for this version."
    return (
        f"One run says yes to {share_of(right)} right attentions and to {share_of(wrong)} wrong "
        "ones (intervals over rules; open counts against a yes)."
    )


def share_of(yes: Rate) -> str:
    """Such as `95 % [83, 99] of 40`, the interval over rules."""
    share = percent(yes.over_models.value, yes.over_rules.low, yes.over_rules.high)
    return f"{share} of {yes.models:,}"
