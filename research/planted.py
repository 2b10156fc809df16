"""Small encoders and data whose reasons are known, which several studies train on."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from attnprobe.core.errors import UserError
from attnprobe.findings.members import numbers_by_text
from attnprobe.results.directory import RunDirectory, table_file
from attnprobe.results.files import damaged
from attnprobe.results.table import read_results

PLANTED = ("data=testbed", "data.rationale=null", "data.source.rule=word")
DATA: dict[str, tuple[str, ...]] = {
    **{
        kind: (*PLANTED, f"data.plant={kind}")
        for kind in ("token", "ordered_pair", "token_in_context")
    },
    **{rule: ("data=testbed", f"data.source.rule={rule}") for rule in ("word", "counting")},
    **{
        rule: (
            "data=testbed",
            f"data.source.rule={rule}",
            "data.source.train_size=4000",
            "training.epochs=10",
        )
        for rule in ("negation", "concession", "order")
    },
    "geco": ("data=geco", "training.epochs=10"),
}
"""Data whose reasons are known: shortcuts planted into the testbed's reviews, the testbed by rule,
natural sentences. What takes more to learn has its own number of texts and epochs."""
ENCODERS: dict[str, tuple[str, ...]] = {
    "average": ("model=average", "model.width=48"),
    "cnn": ("model=cnn", "model.encoder.filters=16"),
    "lstm": ("model=lstm", "model.width=32"),
    "transformer": (
        "model=transformer",
        "model.width=32",
        "training.epochs=12",
        "training.recipe.optimizer.lr=0.003",
    ),
}
WITHOUT_CONTEXT = ("average",)
"""Encoders that see one word at a time."""
SINGLE_WORD = ("token", "word", "geco")
"""Those of `DATA` that they can learn."""


def is_learnable(data: str, encoder: str) -> bool:
    """Whether an encoder sees what decides these texts."""
    return encoder not in WITHOUT_CONTEXT or data in SINGLE_WORD


def check_names(study: Any, **settings: Mapping[str, Any]) -> None:
    """Check that a study names seeds, and in each of its settings one or more of what is known.

    Args:
        study: that has these settings.
        settings: setting → name → what it stands for.

    Raises:
        UserError: it does not.
    """
    for setting, choices in settings.items():
        names = getattr(study, setting)
        if not names or not set(names) <= set(choices):
            raise UserError(
                f"study.{setting}={list(names)}: expected one or more of {', '.join(choices)}"
            )
    if not study.seeds:
        raise UserError(
            "study.seeds is empty: expected the seeds of the trainings, such as [0,1,2]"
        )


# What is known of a model


SOLVED = 0.95
"""Accuracy from which a model may decide by the known reason."""
FOLLOWS = 0.9
"""Accuracy with the reason changed, from which it does."""
KNOWN = {
    "accuracy": "correct",
    "accuracy_contradicted": "correct_contradicted",
    "accuracy_without": "correct_without",
    "chance": "chance",
    "mass": "mass_on_rationale",
}
"""What is known of a model: name here → metric of the probe."""


def facts_of_run(run: Path) -> dict[str, Any]:
    """Which run it is (`run_id data model seed`), and what is known of it (`KNOWN`).

    The numbers are means of the probe known_answer over the texts; NaN for what was not measured.

    Raises:
        DamagedRun: the probe has no number of any text.
    """
    rows = read_results(run, probe="known_answer")
    numbers = numbers_by_text(run, "known_answer")
    if numbers.empty:
        path = RunDirectory(run) / table_file("known_answer")
        raise damaged(path, "it has no number of any text")
    means = numbers.mean()
    first = rows.iloc[0]
    facts: dict[str, Any] = {name: str(first[name]) for name in ("run_id", "data", "model")}
    facts["seed"] = int(first["seed"])
    for name, metric in KNOWN.items():
        facts[name] = float(means.get(metric, np.nan))
    return facts
