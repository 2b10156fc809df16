"""What the tests say of models whose answer is known: the study `+experiment=calibration`, read
from its runs' tables."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from attnprobe.core.errors import UserError
from attnprobe.evidence.claims import put_to_test
from attnprobe.evidence.evidence import values_of
from attnprobe.evidence.reading import present
from attnprobe.evidence.statistics import interval
from attnprobe.evidence.verdicts import Verdict
from attnprobe.findings.members import measured
from attnprobe.findings.studies.base import STUDY
from attnprobe.results.directory import MANIFEST, RunDirectory, table_file
from attnprobe.results.files import damaged, read_sealed
from attnprobe.results.numbers import numbers_of
from attnprobe.results.table import read_results


def whole(share: np.ndarray) -> np.ndarray:
    """The share removed until the decision flips; an order that does not flip it has removed
    all."""
    return np.where(np.isnan(share), 1.0, share)


TAU = "tau_attention_"
SHARE = "removed_fraction_"
PUBLISHED: dict[str, tuple[str, str, tuple[str, ...], Callable[..., np.ndarray], float]] = {
    # Jain & Wallace 2019, 4.1 and 4.2; no attention farther than 0.4 nats keeps the prediction
    "tau_with_gradient": ("agreement word", "correlation", (f"{TAU}gradient",), np.array, 0),
    "tau_with_leave_one_out": (
        "agreement word",
        "correlation",
        (f"{TAU}leave_one_out",),
        np.array,
        0,
    ),
    "permutation_moves": ("exclusivity state", "permutation", ("median_tvd",), np.array, 0.05),
    "no_far_adversary": (
        "exclusivity state",
        "adversarial",
        ("optimum_jsd",),
        lambda jsd: np.where(np.isnan(jsd), np.nan, jsd <= 0.4),
        0.5,
    ),
    # Serrano & Smith 2019, 4 and 5; Edin et al. 2025
    "top_flips_more": (
        "erasure state",
        "single_weight",
        ("flip_top_attention", "flip_random_attention"),
        np.subtract,
        0,
    ),
    "delta_js": ("erasure state", "single_weight", ("delta_js_attention",), np.array, 0),
    "effects_in_order": ("erasure state", "single_weight", (f"{TAU}effect",), np.array, 0.5),
    "sooner_than_random": (
        "erasure state",
        "erasure",
        (f"{SHARE}random", f"{SHARE}attention", "never_flips"),
        lambda later, earlier, never: np.where(never == 0, whole(later) - whole(earlier), np.nan),
        0,
    ),
    "nearer_to_optimum": (
        "erasure state",
        "erasure",
        (f"{SHARE}attention", f"{SHARE}random", f"{SHARE}optimal", "never_flips"),
        lambda own, random, best, never: np.where(
            never == 0, (whole(random) + whole(best)) / 2 - whole(own), np.nan
        ),
        0,
    ),
    # DeYoung et al. 2020, 4
    "top_word_in_rationale": (
        "plausibility word",
        "plausibility",
        ("top_in_rationale_attention", "rationale_share"),
        np.subtract,
        0,
    ),
    "mass_on_rationale": (
        "plausibility word",
        "plausibility",
        ("mass_in_rationale_attention", "rationale_share"),
        np.subtract,
        0,
    ),
}
"""Criteria as published: of what is asked, probe, metrics, and the number whose mean is above a
threshold where it is met. Every one is worded so that yes speaks for the attention."""
MEANINGLESS = ("untrained", "coin_flips", "guesser")
"""Controls that cannot have learnt the task: no verdict on their attention means anything."""
SOLVED = 0.95
FOLLOWS = 0.9
LOST = 0.6
"""Accuracy, and with the reason changed, from which a model decides by it; or that without it, up
to which it does."""
RIGHT = 0.8
WRONG = 0.05  # share of what an attention could reach beyond chance
KNOWN = {
    "accuracy": "correct",
    "accuracy_contradicted": "correct_contradicted",
    "accuracy_without": "correct_without",
    "chance": "chance",
    "mass": "mass_on_rationale",
}
"""What is known of a model: name here → metric of the probe."""
MET = {Verdict.MEETS: 1.0, Verdict.FAILS: 0.0, Verdict.NO_DIFFERENCE: 0.0}
RIGHTNESS = ("right", "between", "wrong", "meaningless", "not solved")


def answer_of(directory: Path) -> dict[str, Any]:
    """Which run it is (`run_id data model seed`), and means of `known_answer` over its texts; NaN
    for what was not asked."""
    rows = read_results(directory, probe="known_answer")
    numbers = measured(directory, "known_answer")
    if numbers.empty:
        raise damaged(
            RunDirectory(directory) / table_file("known_answer"), "it has no number of any text"
        )
    identity = {name: str(rows[name].iloc[0]) for name in ("run_id", "data", "model")}
    means = numbers.mean()
    known = {name: float(means.get(metric, np.nan)) for name, metric in KNOWN.items()}
    return identity | {"seed": int(rows["seed"].iloc[0])} | known


def published(name: str, numbers: pd.DataFrame) -> dict[str, Any]:
    """The mean beside its threshold with its interval, and whether it is met: 1, 0, or NaN where
    the interval has it inside; NaN everywhere without the probe's table."""
    asked, probe, metrics, value, threshold = PUBLISHED[name]
    criterion, level = asked.split()
    wide = values_of(numbers[numbers["probe"] == probe], *metrics)
    found = [np.nan] * 3
    if wide is not None:
        values = value(*(wide[metric].to_numpy() for metric in metrics))
        found = [one - threshold for one in interval(np.asarray(values, np.float64))]
    met = 1.0 if found[1] > 0 else 0.0 if found[2] <= 0 else np.nan
    told = {"value": found[0], "low": found[1], "high": found[2], "met": met}
    return {"version": "published", "criterion": criterion, "level": level, "claim": name} | told


def answers(directory: Path) -> pd.DataFrame:
    """What every test says of one model, a row each: as published and this version's claims; `met`:
    1, 0, NaN not decided."""
    numbers = read_results(directory)
    rows: list[dict[str, Any]] = [published(name, numbers) for name in PUBLISHED]
    for reading in present(numbers_of(numbers)):
        for finding in put_to_test(reading.claims, numbers[numbers["probe"] == reading.probe]):
            claim = finding.claim
            found = finding.evidence
            if claim.speaks == "for":
                told = {
                    "primary": claim.primary,
                    "value": found.value,
                    "low": found.low,
                    "high": found.high,
                }
                rows.append(
                    {
                        "version": "current",
                        "criterion": claim.criterion,
                        "level": claim.level,
                        "claim": claim.name,
                    }
                    | told
                    | {"met": MET.get(finding.verdict, np.nan), "state": finding.verdict}
                )
    return pd.DataFrame(rows)


def models_in(places: Iterable[Path]) -> list[Path]:
    """The models of studies, finished or cut short, by the studies' directories or what their runs
    lie in (`output=…`)."""
    models: dict[str, Path] = {}
    for place in places:
        if (place / STUDY).exists():
            runs = [place / one["directory"] for one in read_sealed(place / STUDY)["members"]]
        else:
            runs = [path.parent for path in sorted(place.glob(f"*/*/{MANIFEST}"))]
        manifests = {run: RunDirectory(run).manifest() for run in runs}
        runs = [
            run for run in runs if str(manifests[run].get("experiment")).startswith("calibration_")
        ]
        if not runs:
            raise UserError(
                f"{place} holds no models of a study: expected the directory of a +experiment=calibration"
            )
        for run in runs:
            known = models.setdefault(str(manifests[run]["run_id"]), run)
            if known.resolve() != run.resolve():
                raise UserError(f"{run} is the model of {known} again: name one of the two")
    return list(models.values())


def collected(directories: Iterable[Path]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Every model's facts with the rightness of its attention, and every test's answer about it
    with these facts."""
    facts = []
    parts = []
    for directory in directories:
        one = answer_of(directory)
        one["encoder"], _, one["control"] = one.pop("model").partition("_")
        one["rightness"] = one["mass"] / (1 - one["chance"]) if one["chance"] < 1 else float("nan")
        changed = one["accuracy_contradicted"]
        label = "between"
        follows = one["accuracy_without"] <= LOST if np.isnan(changed) else changed >= FOLLOWS
        if one["control"] in MEANINGLESS or not (one["accuracy"] >= SOLVED and follows):
            label = "meaningless" if one["control"] in MEANINGLESS else "not solved"
        elif one["rightness"] >= RIGHT or one["rightness"] <= WRONG:
            label = "right" if one["rightness"] >= RIGHT else "wrong"
        facts.append(one | {"rightness_label": label})
        parts.append(answers(directory).assign(**facts[-1]))
    return pd.DataFrame(facts), pd.concat(parts, ignore_index=True)


SHIPPED = ["criterion", "level", "encoder", "rightness", "models", "meets", "asked", "claim"]
"""Columns of `attnprobe/findings/calibration.parquet`."""


def shipped(answered: pd.DataFrame) -> pd.DataFrame:
    """What verdicts cite: per primary claim, encoder and rightness how many models were asked,
    decided and said yes of. Which states decide where an attention with context is not on the
    deciding words is unknown: these are left out."""
    own = answered[(answered["version"] == "current") & (answered["primary"] == True)]  # noqa: E712 (NaN is no)
    known = own["rightness_label"].isin(["right", "meaningless"])
    own = own[(own["level"] == "word") | (own["encoder"] == "average") | known]
    groups = own.groupby(
        ["criterion", "level", "encoder", "rightness_label", "claim"], observed=True
    )["met"]
    table = groups.agg(models="count", meets="sum", asked="size").reset_index()
    return table.rename(columns={"rightness_label": "rightness"}).astype({"meets": int})[SHIPPED]
