"""Wiegreffe & Pinter's guided models by other scores: is it F1 of the one class that falls?"""

from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Int

from attnprobe.findings.members import distinct_examples
from attnprobe.findings.studies.base import STUDY
from attnprobe.findings.studies.criteria.exclusivity import distances_of_kept_epoch
from attnprobe.findings.studies.criteria.leak import GUIDES
from attnprobe.findings.studies.criteria.members import Members
from attnprobe.results.directory import RunDirectory
from attnprobe.results.files import read_sealed

ADVERSARY = "guide_adversary"


def scores(
    labels: Int[np.ndarray, " texts"], predictions: Int[np.ndarray, " texts"]
) -> dict[str, float]:
    """F1 of either class, their mean, balanced accuracy, and how often class 1 is predicted.

    Args:
        labels: 0 or 1.
        predictions: likewise.

    Returns:
        Shares, 0 to 1. F1 is 0 of a class that neither occurs nor is predicted.
    """
    f1 = []
    recalls = []
    for label in (0, 1):
        hits = int(((labels == label) & (predictions == label)).sum())
        total = int((labels == label).sum() + (predictions == label).sum())
        f1.append(2 * hits / total if total else 0.0)
        recalls.append(hits / max(1, int((labels == label).sum())))
    return {
        "F1 of class 1": f1[1],
        "F1 of class 0": f1[0],
        "macro F1": float(np.mean(f1)),
        "balanced accuracy": float(np.mean(recalls)),
        "predicted class 1": float(predictions.mean()),
    }


def guide_scores(directory: Path) -> pd.DataFrame:
    """A row per attention that guides a model without context, each score's mean over seeds.

    With the adversary stands how far it is from the base.

    Args:
        directory: of a finished study on a data set of two classes.

    Returns:
        No row where the study has no guided model.
    """
    members = Members(directory, read_sealed(directory / STUDY))
    rows = []
    for role, words in GUIDES.items():
        runs = members.with_role(role)
        if runs.empty:
            continue
        tables = [_scores_of(path) for path in runs["path"]]
        name = words
        if role == ADVERSARY:
            name += f" ({_adversary_in_words(runs['path'].iloc[0], members)})"
        by_seed = pd.DataFrame(tables)
        f1 = ", ".join(f"{value:.2f}" for value in by_seed["F1 of class 1"])
        predicted = ", ".join(f"{value:.2f}" for value in by_seed["predicted class 1"])
        row: dict[str, object] = {"guided by": name, "seeds": len(tables)}
        row |= {str(score): mean for score, mean in by_seed.mean().items()}
        row |= {"F1 of class 1, seed by seed": f1, "predicted class 1, seed by seed": predicted}
        rows.append(row)
    return pd.DataFrame(rows)


def _scores_of(path: Path) -> dict[str, float]:
    table = distinct_examples(RunDirectory(path), "label", "prediction")
    return scores(table["label"].to_numpy(), table["prediction"].to_numpy())


def _adversary_in_words(guided: Path, members: Members) -> str:
    """λ of the adversary that guides a run, and its JSD to the base on the validation split."""
    facts = RunDirectory(guided).manifest()["teacher"]
    assert facts is not None  # a guided run has one
    teacher = facts["run_id"]
    for run in members.with_role("adversary").to_dict("records"):
        if RunDirectory(run["path"]).manifest()["run_id"] == teacher:
            distance = distances_of_kept_epoch(run["path"])["jsd"]
            return f"λ = {run['parameter']:g}, JSD {distance:.2f} on the validation split"
    return f"the run {teacher}"
