"""F1 of several trainings of one model, and of two models compared, over texts and seeds together."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from attnprobe.report.evidence import Evidence
from attnprobe.results.checksums import damaged
from attnprobe.results.directory import MANIFEST, RunDirectory
from attnprobe.results.statistics import f1_of, resampled_runs

Confusions = Mapping[int, Float[np.ndarray, "texts parts"]]
"""Seed → what F1 is made of, text by text (`confusion`)."""


def confusion(run: Path) -> Float[np.ndarray, "texts parts"]:
    """True positives, false positives and false negatives of every text, in the order of their ids: of class 1, or of each
    class in turn where these are not two.

    Raises:
        DamagedRun: the run does not say its classes.
    """
    directory = RunDirectory(run)
    table = (
        directory.examples("test", columns=["example_id", "label", "prediction"]).to_pandas().sort_values("example_id")
    )
    classes = np.arange(len(directory.manifest().get("classes", [])))
    if len(classes) < 2:
        raise damaged(directory / MANIFEST, "it does not say which classes there are")
    given, said = (membership(table[name], classes) for name in ("label", "prediction"))
    parts = np.stack([given & said, ~given & said, given & ~said], -1).astype(np.float64)
    parts = parts[:, 1:] if len(classes) == 2 else parts
    return parts.reshape(len(parts), -1)


def membership(column: "pd.Series[Any]", classes: Int[np.ndarray, " classes"]) -> Bool[np.ndarray, "texts classes"]:
    """Whether each text is in each class; several labels are a list of the classes' numbers."""
    if len(column) and isinstance(column.iloc[0], list | np.ndarray):
        return np.array([np.isin(classes, one) for one in column])
    return column.to_numpy()[:, None] == classes


def f1_over_classes(sums: Float[np.ndarray, "*any parts"]) -> Float[np.ndarray, "*any"]:
    """Mean over the classes of F1 out of their sums, three for each."""
    return f1_of(sums.reshape(*sums.shape[:-1], -1, 3)).mean(-1)


def f1_gain(sums: Float[np.ndarray, "*any parts"]) -> Float[np.ndarray, "*any"]:
    """F1 of the first half of the sums minus that of the second."""
    half = sums.shape[-1] // 2
    return f1_over_classes(sums[..., :half]) - f1_over_classes(sums[..., half:])


def performance(of: Confusions) -> Evidence:
    """Mean F1, its interval over texts and seeds, 0 to 1."""
    if not of:
        return Evidence(np.nan, np.nan, np.nan, 0)
    parts = np.stack(list(of.values()))
    return Evidence(*resampled_runs(parts, f1_over_classes, low=0, high=1), n=parts.shape[1])


def difference(of: Confusions, to: Confusions) -> Evidence:
    """F1 of one model minus that of another, paired by seed and text, −1 to 1. One seed says nothing of another training:
    there is no interval then."""
    paired = [np.concatenate([of[seed], to[seed]], 1) for seed in of if seed in to]
    if not paired:
        return Evidence(np.nan, np.nan, np.nan, 0)
    parts = np.stack(paired)
    value, low, high = resampled_runs(parts, f1_gain, low=-1, high=1)
    return Evidence(value, *((low, high) if len(paired) > 1 else (np.nan, np.nan)), n=parts.shape[1])
