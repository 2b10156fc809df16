"""Rates over models: how often a test says yes of right, wrong and meaningless attention, and how well its number tells."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy import stats

from attnprobe.evidence.statistics import clopper_pearson, in_columns

REPEATS = 1000
"""Bootstrap samples of the models."""
FALSE_ALARMS = 0.05
"""Share of wrong attentions that a chosen threshold may let pass, among the models that it is chosen on."""
KEY = ["version", "criterion", "level", "claim"]


def rates(answered: pd.DataFrame, by: Sequence[str] = ("encoder",)) -> pd.DataFrame:
    """Per claim, cell of `by` and rightness: how many models were asked, how many decided, how many said yes, and the share
    of yes among *all* that were asked (a test that decides nothing has said yes to nobody) with its exact interval.

    Args:
        answered: a row per model and claim: `version criterion level claim met` and the model's `rightness_label`.
        by: columns of it that divide the models.
    """
    rows = []
    for key, part in answered.groupby([*KEY, *by, "rightness_label"], observed=True):
        asked, decided, yes = len(part), int(part["met"].notna().sum()), int((part["met"] == 1).sum())
        row = dict(zip([*KEY, *by, "rightness"], key, strict=True))
        counts = {"asked": asked, "decided": decided, "yes": yes}
        rows.append(row | counts | in_columns("rate", clopper_pearson(yes, asked)))
    return pd.DataFrame(rows)


def separation(right: Float[np.ndarray, " right"], wrong: Float[np.ndarray, " wrong"]) -> float:
    """AUC: the probability that a right attention's number is above a wrong one's, ties half; 0.5 tells nothing. A number
    that is missing counts as the lowest. NaN without either kind."""
    if not len(right) or not len(wrong):
        return float("nan")
    both = np.nan_to_num(np.concatenate([right, wrong]), nan=-np.inf)
    ranks = stats.rankdata(both)[: len(right)].sum()
    return float((ranks - len(right) * (len(right) + 1) / 2) / (len(right) * len(wrong)))


def separations(answered: pd.DataFrame, by: Sequence[str] = ("encoder",), seed: int = 0) -> pd.DataFrame:
    """Per claim and cell of `by` the AUC of its number between right and wrong attention, with the 95 % bootstrap
    interval over models, drawn within each data set and control, so that the mix of controls stays the study's."""
    rows = []
    for key, part in answered.groupby([*KEY, *by], observed=True):
        part = part[part["rightness_label"].isin(["right", "wrong"])]
        counts = part["rightness_label"].value_counts()
        right, wrong = int(counts.get("right", 0)), int(counts.get("wrong", 0))
        if not right or not wrong:
            continue
        is_right, value = (part["rightness_label"] == "right").to_numpy(), part["value"].to_numpy(np.float64)
        draw = np.random.default_rng(seed)
        cells = part.groupby(["data", "control", "rightness_label"], observed=True).indices.values()
        drawn = []
        for _ in range(REPEATS):
            chosen = np.concatenate([draw.choice(cell, len(cell)) for cell in cells])
            drawn.append(separation(value[chosen][is_right[chosen]], value[chosen][~is_right[chosen]]))
        low, high = np.quantile(drawn, [0.025, 0.975])
        row = dict(zip([*KEY, *by], key, strict=True)) | {"right models": right, "wrong models": wrong}
        rows.append(row | {"AUC": separation(value[is_right], value[~is_right]), "AUC low": low, "AUC high": high})
    return pd.DataFrame(rows)


def held_out(answered: pd.DataFrame, by: Sequence[str] = ("encoder",)) -> pd.DataFrame:
    """Thresholds chosen on some data sets and judged on another, each left out in turn: the lowest number that at most
    `FALSE_ALARMS` of the wrong attentions of the *other* data sets exceed, and then the shares of right and wrong
    attentions of the data set left out that exceed it, all rounds together."""
    rows = []
    for key, part in answered.groupby([*KEY, *by], observed=True):
        counts = {(label, what): 0 for label in ("right", "wrong") for what in ("yes", "of")}
        chosen = []
        for data in sorted(part["data"].unique()):
            others, left_out = part[part["data"] != data], part[part["data"] == data]
            wrong = others.loc[others["rightness_label"] == "wrong", "value"].fillna(-np.inf)
            if not len(wrong):
                continue
            threshold = float(np.quantile(wrong, 1 - FALSE_ALARMS, method="higher"))
            chosen.append(threshold)
            for label in ("right", "wrong"):
                value = left_out.loc[left_out["rightness_label"] == label, "value"]
                counts[label, "yes"] += int((value > threshold).sum())
                counts[label, "of"] += len(value)
        if not counts["right", "of"] or not counts["wrong", "of"]:
            continue
        row: dict[str, Any] = dict(zip([*KEY, *by], key, strict=True)) | {
            "thresholds": ", ".join(f"{one:.3f}" for one in chosen)
        }
        for label in ("right", "wrong"):
            yes, of = counts[label, "yes"], counts[label, "of"]
            row |= {f"{label} models": of} | in_columns(label, clopper_pearson(yes, of))
        rows.append(row)
    return pd.DataFrame(rows)


def power_curve(answered: pd.DataFrame, edges: Sequence[float] = (0.0, 0.2, 0.4, 0.6, 0.8)) -> pd.DataFrame:
    """Share of yes against rightness, in bins of it that begin at `edges` (the first one holds all below as well): the
    middle of the scale is drawn, and not thrown away."""
    solved = answered[answered["rightness_label"].isin(["right", "between", "wrong"])]
    place = np.searchsorted(np.asarray(edges), solved["rightness"].to_numpy(), side="right").clip(1) - 1
    rows = []
    for key, part in solved.assign(bin=place).groupby([*KEY, "encoder", "bin"], observed=True):
        yes, of = int((part["met"] == 1).sum()), len(part)
        _, low, high = clopper_pearson(yes, of)
        row = dict(zip([*KEY, "encoder", "bin"], key, strict=True))
        row |= {"rightness": float(part["rightness"].mean()), "models": of, "rate": yes / of, "low": low, "high": high}
        rows.append(row)
    return pd.DataFrame(rows)
