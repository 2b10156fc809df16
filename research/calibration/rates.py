"""How often a test says yes of right and wrong attention, and how well it tells one from the other.

These are the tables of docs/results/calibration.md.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from attnprobe.evidence.statistics import clopper_pearson, in_columns
from research.calibration.records import RIGHTNESS

REPEATS = 1000
"""Bootstrap samples of the models."""
FALSE_ALARMS = 0.05
"""Share of wrong attentions that a threshold may let pass where it is chosen."""
KEY = ["version", "criterion", "level", "claim"]
PUBLISHED = "published"
CURRENT = "current"
NAMES = {
    (PUBLISHED, "tau_with_gradient"): "τ with the gradient > 0",
    (PUBLISHED, "tau_with_leave_one_out"): "τ with leave-one-out > 0",
    (CURRENT, "agrees_with_gradient"): "skill of τ with the gradient *",
    (CURRENT, "agrees_with_leave_one_out"): "skill of τ with leave-one-out *",
    (PUBLISHED, "permutation_moves"): "permutation moves the prediction (TVD > 0.05)",
    (CURRENT, "permuting_moves_the_prediction"): "the same by more than a relevant difference *",
    (
        CURRENT,
        "no_other_attention_exists",
    ): "no far attention keeps the prediction, in most texts *",
    (PUBLISHED, "top_flips_more"): "erasing the top flips more often than a random one",
    (PUBLISHED, "delta_js"): "erasing the top moves farther (ΔJS > 0)",
    (PUBLISHED, "effects_in_order"): "weights in the order of their effects (τ > 0.5)",
    (PUBLISHED, "sooner_than_random"): "sooner than a random order",
    (PUBLISHED, "nearer_to_optimum"): "nearer to the smallest set than to random",
    (CURRENT, "top_state_decides"): "skill of the top state *",
    (CURRENT, "top_word_decides"): "skill of the top word *",
    (CURRENT, "weights_follow_words"): "skill of all weights, words *",
    (PUBLISHED, "top_word_in_rationale"): "top word in the rationale, above chance",
    (PUBLISHED, "mass_on_rationale"): "mass on the rationale, above chance",
    (CURRENT, "mass_on_rationale"): "mass on the rationale, by more than a tenth *",
}
"""What the tests are called, in the order of the tables; a star marks this version's."""


def separations(
    answered: pd.DataFrame, by: Sequence[str] = ("encoder",), seed: int = 0
) -> pd.DataFrame:
    """How well each claim's number tells right attention from wrong.

    Args:
        answered: a row per model and claim (`records.collected`).
        by: columns within whose values it is asked.
        seed: of the bootstrap.

    Returns:
        A row per claim and `by`: the area under the curve as `AUC`, `AUC low`, `AUC high`, with a
        bootstrap interval over models within data and control.
    """
    columns = [*KEY, *by]
    is_known = answered["rightness_label"].isin(["right", "wrong"])
    rows = []
    for key, models in answered[is_known].groupby(columns, observed=True):
        if models["rightness_label"].nunique() == 2:
            rows.append(dict(zip(columns, key, strict=True)) | separation(models, seed))
    return pd.DataFrame(rows, columns=None if rows else [*columns, "AUC", "AUC low", "AUC high"])


def separation(models: pd.DataFrame, seed: int) -> dict[str, Any]:
    """How well one claim's number tells right models from wrong ones: a row of `separations`."""
    is_right = (models["rightness_label"] == "right").to_numpy()
    # what is missing is lowest
    values = np.nan_to_num(models["value"].to_numpy(np.float64), nan=-np.inf)

    draw = np.random.default_rng(seed)
    groups = models.groupby(["data", "control", "rightness_label"], observed=True)
    cells = list(groups.indices.values())
    areas = []
    for _ in range(REPEATS):
        resample = np.concatenate([draw.choice(cell, len(cell)) for cell in cells])
        areas.append(area_under_curve(values[resample], is_right[resample]))
    low, high = np.quantile(areas, [0.025, 0.975])

    counts = {"right models": int(is_right.sum()), "wrong models": int((~is_right).sum())}
    return counts | in_columns("AUC", (area_under_curve(values, is_right), low, high))


def area_under_curve(values: np.ndarray, is_right: np.ndarray) -> float:
    """How likely a right attention has the larger value than a wrong one, ties half, 0 to 1.

    It is Mann and Whitney's U by the number of pairs.
    """
    right = int(is_right.sum())
    wrong = int((~is_right).sum())
    above = stats.rankdata(values)[is_right].sum() - right * (right + 1) / 2
    return above / (right * wrong)


def held_out(answered: pd.DataFrame, by: Sequence[str] = ("encoder",)) -> pd.DataFrame:
    """Shares of models beyond a threshold that was chosen on other data.

    For each data set the threshold is the value that few wrong attentions of the other data sets
    exceed.

    Args:
        answered: a row per model and claim (`records.collected`).
        by: columns within whose values it is asked.

    Returns:
        A row per claim and `by`: `thresholds`, and of `right` and `wrong` models their number and
        the share beyond, with its exact interval.
    """
    columns = [*KEY, *by]
    rows = []
    for key, models in answered.groupby(columns, observed=True):
        shares = held_out_shares(models)
        if shares:
            rows.append(dict(zip(columns, key, strict=True)) | shares)
    return pd.DataFrame(rows, columns=None if rows else columns)


def held_out_shares(models: pd.DataFrame) -> dict[str, Any]:
    """One claim's row of `held_out`; empty if no right or no wrong model meets a threshold."""
    thresholds = []
    beyond: dict[str, list[bool]] = {"right": [], "wrong": []}
    for data in sorted(models["data"].unique()):
        is_tested = models["data"] == data
        threshold = threshold_of(models[~is_tested])
        if threshold is None:
            continue
        thresholds.append(threshold)
        for label, passes in beyond.items():
            values = models.loc[is_tested & (models["rightness_label"] == label), "value"]
            passes.extend((values > threshold).tolist())
    if not all(beyond.values()):
        return {}

    row: dict[str, Any] = {"thresholds": ", ".join(f"{threshold:.3f}" for threshold in thresholds)}
    for label, passes in beyond.items():
        row[f"{label} models"] = len(passes)
        row |= in_columns(label, clopper_pearson(sum(passes), len(passes)))
    return row


def threshold_of(models: pd.DataFrame) -> float | None:
    """The value that few wrong attentions exceed; none if no attention is wrong."""
    wrong = models.loc[models["rightness_label"] == "wrong", "value"].fillna(-np.inf)
    if wrong.empty:
        return None
    return float(np.quantile(wrong, 1 - FALSE_ALARMS, method="higher"))


# The tables of the page


KINDS = ("right", "wrong", "meaningless")
DASH = "–"


def tables_of(models: pd.DataFrame, answered: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Caption → table: the models, and what every test says of them.

    Of every test: the share of yes, the AUC, and thresholds from other data.

    Args:
        models: a row per model (`records.collected`).
        answered: a row per model and claim.
    """
    tables = {
        "Models": model_counts(models),
        "Rightness by control": rightness_by_control(models),
        "Yes, of all models asked": yes_table(answered),
        "Primary claims by encoder": primary_table(answered, ["encoder"]),
        "Primary claims by data and encoder": primary_table(answered, ["data", "encoder"]),
        "Area under the curve": area_table(answered),
    }
    return {caption: table.replace("_", " ", regex=True) for caption, table in tables.items()}


def model_counts(models: pd.DataFrame) -> pd.DataFrame:
    """How many models of each rightness, by data set and encoder, and of all."""
    groups = models.groupby(["data", "encoder", "rightness_label"], observed=True)
    counts = groups.size().unstack(fill_value=0)
    counts = counts.reindex(columns=list(RIGHTNESS), fill_value=0)
    rows: list[Any] = [(*key, *numbers) for key, *numbers in counts.itertuples()]
    rows.append(("all", "", *counts.sum()))
    return pd.DataFrame(rows, columns=["data", "encoder", *RIGHTNESS])


def rightness_by_control(models: pd.DataFrame) -> pd.DataFrame:
    """How right the attentions of each control are, of models that solve their task."""
    solved = models[models["rightness_label"].isin(["right", "between", "wrong"])]
    rightness = solved.groupby("control", observed=True)["rightness"]
    summary = rightness.agg(["mean", "size", "min", "max"])
    summary = summary.sort_values("mean", ascending=False, kind="stable")
    rows = [
        (control, int(size), f"{mean:.2f} ({low:.2f} to {high:.2f})")
        for control, mean, size, low, high in summary.itertuples()
    ]
    return pd.DataFrame(rows, columns=["control", "models", "rightness, mean (range)"])


def answers_by_test(
    answered: pd.DataFrame,
) -> Iterator[tuple[tuple[str, str], str, pd.DataFrame]]:
    """Each test that was asked, in the order of `NAMES`.

    Returns:
        Its (version, claim), its name, and its rows.
    """
    for test, name in NAMES.items():
        version, claim = test
        rows = answered[(answered["version"] == version) & (answered["claim"] == claim)]
        if not rows.empty:
            yield test, name, rows


def is_primary(rows: pd.DataFrame) -> bool:
    """Whether the verdict on a criterion goes by this test."""
    return bool((rows["primary"] == True).any())  # noqa: E712 (NaN is no)


def yes_table(answered: pd.DataFrame) -> pd.DataFrame:
    """How many models of each kind got a yes from each test; primary claims are bold."""
    table = []
    for _, name, rows in answers_by_test(answered):
        label = f"**{name.removesuffix(' *')}** *" if is_primary(rows) else name
        question = f"{rows['criterion'].iloc[0]}, {rows['level'].iloc[0]}"
        counts = [counted(rows.loc[rows["rightness_label"] == kind, "met"]) for kind in KINDS]
        table.append((label, question, *counts))
    columns = ["test", "criterion, level", *(f"{kind}: yes" for kind in KINDS)]
    return pd.DataFrame(table, columns=columns)


def primary_table(answered: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """How many right and wrong attentions got a yes from each primary claim.

    Of all models, and of those that it decided.
    """
    table = []
    for _, name, rows in answers_by_test(answered):
        if not is_primary(rows):
            continue
        for cell, models in rows.groupby(list(by), observed=True):
            right = models.loc[models["rightness_label"] == "right", "met"]
            wrong = models.loc[models["rightness_label"] == "wrong", "met"]
            if right.empty and wrong.empty:
                continue
            counts = []
            for met in (right, wrong):
                counts += [counted(met), counted(met, decided=True)]
            table.append((name.strip("* "), *cell, *counts))
    headings = ["primary claim", *by]
    for kind in ("right", "wrong"):
        headings += [f"{kind}: yes, of all", f"{kind}: of those decided"]
    return pd.DataFrame(table, columns=headings)


def area_table(answered: pd.DataFrame) -> pd.DataFrame:
    """Each test's area under the curve, and the shares beyond thresholds from other data.

    The area is of all models and by encoder, the shares are of right and of wrong attentions.
    """
    key = ["version", "claim"]
    everything = answered.assign(all="all")
    areas = separations(everything, ("all",)).set_index(key)
    shares = held_out(everything, ("all",)).set_index(key)
    encoder_areas = separations(answered).set_index([*key, "encoder"])["AUC"].unstack()
    encoder_cells = encoder_areas.map("{:.2f}".format).where(encoder_areas.notna(), DASH)
    table = []
    for test, name, _ in answers_by_test(answered):
        if test not in areas.index:
            continue
        area = areas.loc[[test]].iloc[0]
        interval = f"{area['AUC']:.2f} [{area['AUC low']:.2f}, {area['AUC high']:.2f}]"
        encoders = encoder_cells.loc[[test]].to_numpy()[0]
        table.append((name, interval, *encoders, *passing_shares(shares, test)))
    headings = ["test", "all", *encoder_areas.columns, "threshold from other data: right", "wrong"]
    return pd.DataFrame(table, columns=headings)


def passing_shares(shares: pd.DataFrame, test: tuple[str, str]) -> list[str]:
    """The shares of right and of wrong models beyond a test's threshold, in per cent.

    Args:
        shares: see `held_out`, by version and claim.
        test: version and claim.
    """
    if test not in shares.index:
        return [DASH, DASH]
    row = shares.loc[[test]].iloc[0]
    cells = []
    for kind in ("right", "wrong"):
        interval = f"[{100 * row[f'{kind} low']:.0f}, {100 * row[f'{kind} high']:.0f}]"
        cells.append(f"{100 * row[kind]:.0f} % of {int(row[f'{kind} models'])} {interval}")
    return cells


def counted(met: "pd.Series[float]", *, decided: bool = False) -> str:
    """How many models got a yes, with the exact 95 % interval of the share in per cent.

    Args:
        met: 1, 0, or NaN where the test did not decide.
        decided: the share is of those that it decided.
    """
    yes = int((met == 1).sum())
    count = int(met.notna().sum()) if decided else len(met)
    if not count:
        return DASH
    _, low, high = clopper_pearson(yes, count)
    return f"{yes} of {count} [{100 * low:.0f}, {100 * high:.0f}]"


def markdown(table: pd.DataFrame) -> str:
    """The table without its index, in Markdown."""
    lines = [f"| {' | '.join(map(str, table))} |", f"|{'---|' * table.shape[1]}"]
    lines += [f"| {' | '.join(map(str, row))} |" for row in table.to_numpy().tolist()]
    return "\n".join(lines)
