"""How often a test says yes of right and wrong attention, and how well it tells: tables of
docs/results/calibration.md."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from attnprobe.evidence.statistics import clopper_pearson, in_columns
from research.calibration.records import RIGHTNESS

REPEATS = 1000
FALSE_ALARMS = 0.05
"""Bootstrap samples of the models, and share of wrong attentions that a threshold may let pass
where it is chosen."""
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
    """The AUC of each claim's number between right and wrong attention; bootstrap over models
    within data and control."""
    rows = []
    for key, part in answered[answered["rightness_label"].isin(["right", "wrong"])].groupby(
        [*KEY, *by], observed=True
    ):
        is_right = (part["rightness_label"] == "right").to_numpy()
        value = part["value"].to_numpy(np.float64)
        right = int(is_right.sum())
        wrong = int((~is_right).sum())
        if not right or not wrong:
            continue
        draw = np.random.default_rng(seed)
        cells = part.groupby(["data", "control", "rightness_label"], observed=True).indices.values()
        value = np.nan_to_num(value, nan=-np.inf)  # what is missing is lowest
        drawn = []
        for chosen in [
            np.arange(len(part)),
            *(
                np.concatenate([draw.choice(cell, len(cell)) for cell in cells])
                for _ in range(REPEATS)
            ),
        ]:
            above = stats.rankdata(value[chosen])[is_right[chosen]].sum() - right * (right + 1) / 2
            drawn.append(above / (right * wrong))
        area = (drawn[0], *np.quantile(drawn[1:], [0.025, 0.975]))
        row = dict(zip([*KEY, *by], key, strict=True)) | {
            "right models": right,
            "wrong models": wrong,
        }
        rows.append(row | in_columns("AUC", area))
    return pd.DataFrame(rows, columns=None if rows else [*KEY, *by, "AUC", "AUC low", "AUC high"])


def held_out(answered: pd.DataFrame, by: Sequence[str] = ("encoder",)) -> pd.DataFrame:
    """Thresholds that few wrong attentions of the other data sets exceed, and the shares that do of
    the one left out."""
    rows = []
    for key, part in answered.groupby([*KEY, *by], observed=True):
        kinds = {label: part[part["rightness_label"] == label] for label in ("right", "wrong")}
        beyond: dict[str, list[bool]] = {label: [] for label in kinds}
        chosen = []
        for data in sorted(part["data"].unique()):
            wrong = kinds["wrong"].loc[kinds["wrong"]["data"] != data, "value"].fillna(-np.inf)
            if not len(wrong):
                continue
            chosen.append(float(np.quantile(wrong, 1 - FALSE_ALARMS, method="higher")))
            for label, own in kinds.items():
                beyond[label] += (own.loc[own["data"] == data, "value"] > chosen[-1]).tolist()
        if all(beyond.values()):
            row: dict[str, Any] = dict(zip([*KEY, *by], key, strict=True))
            row["thresholds"] = ", ".join(f"{one:.3f}" for one in chosen)
            for label, passed in beyond.items():
                row |= {f"{label} models": len(passed)} | in_columns(
                    label, clopper_pearson(sum(passed), len(passed))
                )
            rows.append(row)
    return pd.DataFrame(rows, columns=None if rows else [*KEY, *by])


def counted(met: "pd.Series[float]", *, decided: bool = False) -> str:
    """How many of the models, or of those decided, got a yes, with the exact 95 % interval of the
    share in per cent."""
    yes = int((met == 1).sum())
    of = int(met.notna().sum()) if decided else len(met)
    _, low, high = clopper_pearson(yes, of)
    return f"{yes} of {of} [{100 * low:.0f}, {100 * high:.0f}]" if of else "–"


def tables_of(models: pd.DataFrame, answered: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Caption → table: the models, and of every test the share of yes, the AUC and thresholds from
    other data."""
    counts = (
        models.groupby(["data", "encoder", "rightness_label"], observed=True)
        .size()
        .unstack(fill_value=0)
    )
    counts = counts.reindex(columns=list(RIGHTNESS), fill_value=0)
    cells: list[Any] = [(*key, *row) for key, *row in counts.itertuples()]
    solved = models[models["rightness_label"].isin(["right", "between", "wrong"])].groupby(
        "control", observed=True
    )
    controls = (
        solved["rightness"]
        .agg(["mean", "size", "min", "max"])
        .sort_values("mean", ascending=False, kind="stable")
    )
    key = ["version", "claim"]
    kinds = ("right", "wrong", "meaningless")
    ends = ("", " low", " high")
    separated = separations(answered.assign(all="all"), ("all",)).set_index(key)
    left_out = held_out(answered.assign(all="all"), ("all",)).set_index(key)
    of_encoder = separations(answered).set_index([*key, "encoder"])["AUC"].unstack()
    yes: list[Any] = []
    told: list[Any] = []
    primary: dict[tuple[str, ...], list[Any]] = {("encoder",): [], ("data", "encoder"): []}
    for test, name in NAMES.items():
        part = answered[(answered["version"] == test[0]) & (answered["claim"] == test[1])]
        if part.empty:
            continue
        asked = f"{part['criterion'].iloc[0]}, {part['level'].iloc[0]}"
        bold = bool((part["primary"] == True).any())  # noqa: E712 (NaN is no)
        of_kind = (part.loc[part["rightness_label"] == kind, "met"] for kind in kinds)
        yes.append(
            (f"**{name.removesuffix(' *')}** *" if bold else name, asked, *map(counted, of_kind))
        )
        for by, rows in primary.items() if bold else ():
            for cell, own in part.groupby(list(by), observed=True):
                both = [
                    own.loc[own["rightness_label"] == kind, "met"] for kind in ("right", "wrong")
                ]
                if any(map(len, both)):
                    shares = (
                        counted(met, decided=decided) for met in both for decided in (False, True)
                    )
                    rows.append((name.strip("* "), *cell, *shares))
        if test in separated.index:
            auc, low, high = (separated[f"AUC{end}"].loc[[test]].item() for end in ends)
            beyond = ["–", "–"]
            for place, kind in enumerate(kinds[:2] if test in left_out.index else ()):
                share, below, above = (
                    100 * left_out[f"{kind}{end}"].loc[[test]].item() for end in ends
                )
                of = int(left_out[f"{kind} models"].loc[[test]].item())
                beyond[place] = f"{share:.0f} % of {of} [{below:.0f}, {above:.0f}]"
            of_each = [
                f"{one:.2f}" if pd.notna(one) else "–"
                for one in of_encoder.loc[[test]].to_numpy()[0]
            ]
            told.append((name, f"{auc:.2f} [{low:.2f}, {high:.2f}]", *of_each, *beyond))
    heads = [f"{kind}: {of}" for kind in kinds[:2] for of in ("yes, of all", "of those decided")]
    return {
        caption: pd.DataFrame(rows, columns=columns).replace("_", " ", regex=True)
        for caption, columns, rows in (
            ("Models", ["data", "encoder", *RIGHTNESS], [*cells, ("all", "", *counts.sum())]),
            (
                "Rightness by control",
                ["control", "models", "rightness, mean (range)"],
                [
                    (name, int(size), f"{mean:.2f} ({low:.2f} to {high:.2f})")
                    for name, mean, size, low, high in controls.itertuples()
                ],
            ),
            (
                "Yes, of all models asked",
                ["test", "criterion, level", *(f"{kind}: yes" for kind in kinds)],
                yes,
            ),
            *(
                (f"Primary claims by {' and '.join(by)}", ["primary claim", *by, *heads], rows)
                for by, rows in primary.items()
            ),
            (
                "Area under the curve",
                ["test", "all", *of_encoder.columns, "threshold from other data: right", "wrong"],
                told,
            ),
        )
    }


def markdown(table: pd.DataFrame) -> str:
    """The table without its index."""
    head = f"| {' | '.join(map(str, table))} |\n|{'---|' * table.shape[1]}"
    return "\n".join(
        [head, *(f"| {' | '.join(map(str, row))} |" for row in table.to_numpy().tolist())]
    )
