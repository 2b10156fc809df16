"""One model of the study: did it solve the task, is its attention right, and what does every test say of it?"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from attnprobe.report.calibration.published import PUBLISHED
from attnprobe.report.claims import put_to_test
from attnprobe.report.measured import measured
from attnprobe.report.reading import present
from attnprobe.results.checksums import damaged
from attnprobe.results.directory import RunDirectory, table_file
from attnprobe.results.metrics import SHARE, TAU, TRUTH, Scale
from attnprobe.results.table import read_results

MEANINGLESS = ("untrained", "coin_flips", "guesser")
"""Controls that cannot have learnt the task: no verdict on their attention means anything."""
SOLVED, FOLLOWS, LOST = 0.95, 0.9, 0.6
"""Accuracy, and accuracy with the reason changed, from which a model counts as one that decides by the known reason; where
no text has its reason changed (GECO, whose sentences stand in pairs), the accuracy without the reason up to which it does."""
RIGHT, WRONG = 0.8, 0.05
"""Share of what an attention could reach beyond chance from which it is right, and up to which it is wrong."""
PROBE = "known_answer"
ABOVE_CHANCE = Scale("share above chance", -1, 1)
KNOWN = {
    "accuracy": ("correct", TRUTH), "accuracy_contradicted": ("correct_contradicted", TRUTH),
    "accuracy_without": ("correct_without", TRUTH), "accuracy_alone": ("correct_alone", TRUTH), "chance": ("chance", SHARE),
    "mass": ("mass_on_rationale", ABOVE_CHANCE), "precision": ("precision_on_rationale", ABOVE_CHANCE),
    "auprc": ("auprc_on_rationale", ABOVE_CHANCE), "state_rank_agreement": ("state_rank_agreement", TAU),
    "state_mass_agreement": ("state_mass_agreement", SHARE),
}  # fmt: skip
"""What is known of a model: name here → metric of the probe, and what it can be."""
NEEDED = ("correct", "chance", "mass_on_rationale", "precision_on_rationale", "auprc_on_rationale")
"""What every run of the probe has."""
RIGHTNESS = ("right", "between", "wrong", "meaningless", "not solved")


def model_facts(directory: Path) -> dict[str, Any]:
    """What is known of one model: its cell, its accuracies, and how right its attention is.

    `rightness`: (attention on the deciding words − chance) / (1 − chance), of the means over the texts; 0 is chance, 1 all
    that can be reached. It is about words. Of states there is no such scale: their contributions have the weight as a factor,
    so that even a weight without meaning agrees with them (`state_rank_agreement`, `state_mass_agreement`).
    """
    known = answer_of(directory)
    encoder, _, control = known.pop("model").partition("_")
    rightness = known["mass"] / (1 - known["chance"]) if known["chance"] < 1 else float("nan")
    return known | {"encoder": encoder, "control": control, "rightness": rightness}


def answer_of(directory: Path) -> dict[str, Any]:
    """Which run it is (`run_id data model seed`), and the means of `known_answer` over its texts; NaN for what was not asked.

    Raises:
        DamagedRun: the run has no such table, or not its numbers.
    """
    path, rows = RunDirectory(directory) / table_file(PROBE), read_results(directory, probe=PROBE)
    there = set(rows["metric"].unique()) | set(NEEDED)
    names = {name: (metric, scale) for name, (metric, scale) in KNOWN.items() if metric in there}
    numbers = measured(directory, PROBE, dict(names.values()))
    if numbers.empty or numbers[list(NEEDED)].isna().all().any():
        raise damaged(path, "it has no number of any text")
    identity = {name: str(rows[name].iloc[0]) for name in ("run_id", "data", "model")} | {
        "seed": int(rows["seed"].iloc[0])
    }
    means = numbers.mean()
    return identity | {name: float(means.get(metric, np.nan)) for name, (metric, _) in KNOWN.items()}


def label_of(facts: Mapping[str, Any]) -> str:
    """Which of `RIGHTNESS` a model's attention is, about words.

    >>> solved = {"control": "first", "accuracy": 1.0, "accuracy_contradicted": 1.0, "rightness": 0.01}
    >>> label_of(solved), label_of(solved | {"accuracy": 0.8})
    ('wrong', 'not solved')
    >>> pairs = solved | {"accuracy_contradicted": float("nan"), "accuracy_without": 0.5}
    >>> label_of(pairs), label_of(pairs | {"accuracy_without": 0.9})
    ('wrong', 'not solved')
    """
    if facts["control"] in MEANINGLESS:
        return "meaningless"
    changed = facts["accuracy_contradicted"]
    follows = facts["accuracy_without"] <= LOST if np.isnan(changed) else changed >= FOLLOWS
    if not (facts["accuracy"] >= SOLVED and follows):
        return "not solved"
    return "right" if facts["rightness"] >= RIGHT else "wrong" if facts["rightness"] <= WRONG else "between"


def answers(directory: Path) -> pd.DataFrame:
    """What every test says of one model, a row each: `version` (`published`: as the papers' criteria were put at first;
    `current`: this version's claims), `criterion level claim value low high`, and `met`: 1 yes, 0 no, NaN not decided;
    `state` says why, of this version's claims."""
    numbers = read_results(directory)
    rows = [
        {
            "version": "published",
            "criterion": one.criterion,
            "level": one.level,
            "claim": one.name,
            **one.answer(numbers),
        }
        for one in PUBLISHED
    ]
    for reading in present(numbers):
        for finding in put_to_test(reading.claims, numbers[numbers["probe"] == reading.probe]):
            if finding.claim.speaks == "for":
                rows.append({"version": "current", **current(finding)})
    return pd.DataFrame(rows)


def current(finding: Any) -> dict[str, Any]:
    """A claim of this version on one model."""
    claim, evidence = finding.claim, finding.evidence
    decided = {"holds": 1.0, "fails": 0.0, "no relevant difference": 0.0}
    return {
        "criterion": claim.criterion,
        "level": getattr(claim, "level", "model"),
        "claim": claim.name,
        "primary": bool(getattr(claim, "primary", False)),
        "value": evidence.value,
        "low": evidence.low,
        "high": evidence.high,
        "met": decided.get(finding.verdict, float("nan")),
        "state": finding.verdict,
    }
