"""The tables of docs/results/calibration.md, in Markdown."""

from collections.abc import Iterable, Sequence

import pandas as pd

from attnprobe.evidence.statistics import clopper_pearson
from research.calibration.rates import held_out, separations
from research.calibration.records import RIGHTNESS

PUBLISHED, CURRENT = "published", "current"
NAMES = {
    (PUBLISHED, "tau_with_gradient"): "τ with the gradient > 0",
    (PUBLISHED, "tau_with_leave_one_out"): "τ with leave-one-out > 0",
    (CURRENT, "agrees_with_gradient"): "skill of τ with the gradient *",
    (CURRENT, "agrees_with_leave_one_out"): "skill of τ with leave-one-out *",
    (PUBLISHED, "permutation_moves"): "permutation moves the prediction (TVD > 0.05)",
    (CURRENT, "permuting_moves_the_prediction"): "the same by more than a relevant difference *",
    (CURRENT, "no_other_attention_exists"): "no far attention keeps the prediction, in most texts *",
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
ASKED = ("right", "wrong", "meaningless")


def markdown(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table.

    >>> print(markdown(["a", "b"], [(1, "x")]))
    | a | b |
    |---|---|
    | 1 | x |
    """
    head = f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}"
    return "\n".join([head, *(f"| {' | '.join(map(str, row))} |" for row in rows)])


def counted(met: "pd.Series[float]", *, decided: bool = False) -> str:
    """How many of the models got a yes, with the exact 95 % interval of the share, in per cent.

    Args:
        met: per model 1 yes, 0 no, NaN not decided.
        decided: leave out those that are not.

    >>> counted(pd.Series([1, 1, 0, float("nan")])), counted(pd.Series([1.0, 1, float("nan")]), decided=True)
    ('2 of 4 [7, 93]', '2 of 2 [16, 100]')
    """
    yes, of = int((met == 1).sum()), int(met.notna().sum()) if decided else len(met)
    if not of:
        return "–"
    _, low, high = clopper_pearson(yes, of)
    return f"{yes} of {of} [{100 * low:.0f}, {100 * high:.0f}]"


def named(answered: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """The tests that were asked: what they are called, and their answers; a primary claim's name is bold."""
    found = []
    for (version, claim), words in NAMES.items():
        part = answered[(answered["version"] == version) & (answered["claim"] == claim)]
        if len(part):
            primary = bool((part["primary"] == True).any())  # noqa: E712 (NaN is no)
            found.append((f"**{words.removesuffix(' *')}** *" if primary else words, part))
    return found


def of_kind(part: pd.DataFrame, kind: str) -> "pd.Series[float]":
    """What a test said of one kind of attention."""
    return part.loc[part["rightness_label"] == kind, "met"]


def model_table(models: pd.DataFrame) -> str:
    """How many models there are of each kind, per data set and encoder."""
    counts = models.groupby(["data", "encoder", "rightness_label"], observed=True).size().unstack(fill_value=0)
    counts = counts.reindex(columns=list(RIGHTNESS), fill_value=0)
    rows = [(*(str(one).replace("_", " ") for one in key), *row) for key, *row in counts.itertuples()]
    return markdown(["data", "encoder", *RIGHTNESS], [*rows, ("all", "", *counts.sum())])


def control_table(models: pd.DataFrame) -> str:
    """How right the attention of each control is, of the models that solved their task."""
    solved = models[models["rightness_label"].isin(["right", "between", "wrong"])]
    parts = sorted(solved.groupby("control", observed=True), key=lambda one: -one[1]["rightness"].mean())
    rows = []
    for control, part in parts:
        right = part["rightness"]
        told = f"{right.mean():.2f} ({right.min():.2f} to {right.max():.2f})"
        rows.append((str(control).replace("_", " "), len(part), told))
    return markdown(["control", "models", "rightness, mean (range)"], rows)


def yes_table(answered: pd.DataFrame) -> str:
    """The share of yes of every test."""
    rows = []
    for words, part in named(answered):
        one = part.iloc[0]
        rows.append((words, f"{one['criterion']}, {one['level']}", *(counted(of_kind(part, kind)) for kind in ASKED)))
    return markdown(["test", "criterion, level", *(f"{kind}: yes" for kind in ASKED)], rows)


def primary_table(answered: pd.DataFrame, by: Sequence[str] = ("encoder",)) -> str:
    """The primary claims, per cell of `by`, of all models and of those decided."""
    rows = []
    for words, part in named(answered):
        if not words.startswith("**"):
            continue
        for key, cell in part.groupby(list(by), observed=True):
            right, wrong = of_kind(cell, "right"), of_kind(cell, "wrong")
            if len(right) or len(wrong):
                told = (counted(met, decided=decided) for met in (right, wrong) for decided in (False, True))
                rows.append((words.strip("* "), *(str(one).replace("_", " ") for one in key), *told))
    heads = ["right: yes, of all", "of those decided", "wrong: yes, of all", "of those decided"]
    return markdown(["primary claim", *by, *heads], rows)


def separation_table(answered: pd.DataFrame) -> str:
    """AUC of every test's number, and thresholds judged on the data set left out."""
    kept = answered[[one in NAMES for one in zip(answered["version"], answered["claim"], strict=True)]].assign(
        all="all"
    )
    key = ["version", "claim"]
    of_all, of_encoder = separations(kept, by=("all",)).set_index(key), separations(kept).set_index([*key, "encoder"])
    left_out = held_out(kept, by=("all",)).set_index(key)
    encoders = sorted(set(of_encoder.index.get_level_values("encoder")))
    rows = []
    for (version, claim), words in NAMES.items():
        if (version, claim) not in of_all.index:
            continue
        one = of_all.loc[[(version, claim)]].iloc[0]
        row = [words, f"{one['AUC']:.2f} [{one['AUC low']:.2f}, {one['AUC high']:.2f}]"]
        for encoder in encoders:
            there = (version, claim, encoder) in of_encoder.index
            row.append(f"{of_encoder.loc[(version, claim, encoder), 'AUC']:.2f}" if there else "–")
        row += [beyond(left_out, (version, claim), kind) for kind in ("right", "wrong")]
        rows.append(row)
    return markdown(["test", "all", *encoders, "threshold from other data: right", "wrong"], rows)


def beyond(left_out: pd.DataFrame, test: tuple[str, str], kind: str) -> str:
    """The share of one kind of attention beyond a threshold that was chosen on other data sets, in per cent."""
    if test not in left_out.index:
        return "–"
    told = left_out.loc[[test]].iloc[0]
    share, low, high = (100 * told[name] for name in (kind, f"{kind} low", f"{kind} high"))
    return f"{share:.0f} % of {int(told[f'{kind} models'])} [{low:.0f}, {high:.0f}]"


def summary(models: pd.DataFrame, answered: pd.DataFrame) -> str:
    """All tables, each with its caption."""
    tables = {
        "Models": model_table(models),
        "Rightness by control": control_table(models),
        "Yes, of all models asked": yes_table(answered),
        "Primary claims by encoder": primary_table(answered),
        "Primary claims by data and encoder": primary_table(answered, ["data", "encoder"]),
        "Area under the curve": separation_table(answered),
    }
    return "\n\n".join(f"## {caption}\n\n{table}" for caption, table in tables.items()) + "\n"
