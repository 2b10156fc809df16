"""A study's runs by their role, and the numbers that are read from their tables."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from attnprobe.evidence.evidence import Evidence
from attnprobe.evidence.statistics import f1_of, in_columns
from attnprobe.findings.members import (
    Score,
    balanced_accuracy,
    numbers_by_text,
    numbers_of_split,
    parts_of_run,
    performance,
)
from attnprobe.findings.studies.base import StudyReading
from attnprobe.findings.studies.criteria.figures import SeedScores
from attnprobe.results.directory import RunDirectory, table_file
from attnprobe.results.table import contents_of

TEACHER = ("tvd", "jsd", "teacher_max_attention", "teacher_predicted_class")
"""Metrics that are read of the probe teacher, which compares a run with the base."""
ADVERSARIAL = (
    "found_jsd",
    "found_tvd",
    "optimum_jsd",
    "optimum_tvd",
    "is_exact",
    "max_attention",
    "predicted_class",
)
"""Metrics that are read of the probe adversarial, which the base was examined with."""


@dataclass(frozen=True)
class Members:
    """The runs that a study lists.

    Attributes:
        directory: of the study.
        content: of its study.json.
    """

    directory: Path
    content: Mapping[str, Any]

    def empty_reading(self, title: str, about: str, notes: list[str]) -> StudyReading:
        """A reading without findings as yet.

        Args:
            title: `{data}` and `{model}` in it are replaced by the study's.
            about: a few sentences on what was done.
            notes: what else a reader has to know.
        """
        data = str(self.content["data"])
        model = str(self.content["model"])
        return StudyReading(
            title=title.format(data=data, model=model),
            about=about,
            data=data,
            model=model,
            directory=self.directory,
            runs=list(self.with_role("base")["path"]),
            notes=notes,
        )

    @cached_property
    def runs(self) -> pd.DataFrame:
        """A row per run: `role seed parameter path f1`.

        F1 is of class 1 on the test split; where there are more than two classes, macro F1.
        """
        rows = []
        for member in self.content["members"]:
            path = self.directory / member["directory"]
            f1 = numbers_of_split(path, "performance", "f1")
            if len(f1) != 2:
                f1 = numbers_of_split(path, "performance", "f1_macro")
            rows.append(member | {"path": path, "f1": float(f1.iloc[-1])})
        return pd.DataFrame(rows)

    def with_role(self, role: str) -> pd.DataFrame:
        """The rows of `runs` with this role; of the base the command line's own seed is first."""
        return self.runs[self.runs["role"] == role]

    def score_parts(self, role: str, score: Score = f1_of) -> dict[int, np.ndarray]:
        """Seed → what a score is made of, text by text (`parts_of_run`)."""
        runs = self.with_role(role)
        return {
            int(seed): parts_of_run(path, score)
            for seed, path in zip(runs["seed"], runs["path"], strict=True)
        }

    def compared_with_base(self, role: str) -> pd.DataFrame:
        """The runs of a role, compared with the base text by text.

        Returns:
            `TEACHER`'s metrics, `seed` and `parameter`, a row per run and text, by `example_id`;
            empty where no run was compared. Of the role base the base itself is left out.
        """
        runs = self.with_role(role).to_dict("records")
        if role == "base":
            runs = runs[1:]

        tables = []
        for run in runs:
            table = numbers_by_text(run["path"], "teacher", TEACHER)
            if not table.empty:
                tables.append(table.assign(seed=run["seed"], parameter=run["parameter"]))
        return pd.concat(tables) if tables else pd.DataFrame()

    @cached_property
    def single_adversaries(self) -> pd.DataFrame:
        """The adversaries against single predictions of the base: `ADVERSARIAL` by `example_id`.

        Empty where the base was not searched for them, or solved only
        (`probe.adversarial.restarts=0`).
        """
        run = RunDirectory(self.with_role("base")["path"].iloc[0])
        if "adversarial" not in run.probes():
            return pd.DataFrame()
        metrics = contents_of(run.file(table_file("adversarial"))).metrics
        if "found_jsd" not in metrics:
            return pd.DataFrame()
        return numbers_by_text(run.path, "adversarial", ADVERSARIAL)

    @property
    def optimum_name(self) -> str:
        """What the farthest attentions of the base's texts are: exact, or the farthest known."""
        exact = float((self.single_adversaries["is_exact"] == 1).mean())
        if exact == 1:
            return "exact"
        return f"farthest known, {100 * exact:.0f} % exact"


def f1_by_role(members: Members, roles: Iterable[str]) -> dict[str, Evidence]:
    """Mean F1 of each role with its interval over texts and seeds, for its table and figure."""
    return {role: performance(members.score_parts(role)) for role in roles}


def score_table(
    members: Members,
    roles: Mapping[str, str],
    f1_of_role: Mapping[str, Evidence],
    published: Mapping[str, float],
    *,
    balanced: bool,
) -> pd.DataFrame:
    """A row per role: F1 with its interval, beside the published one.

    Args:
        members: the study's runs.
        roles: role → what its model is called.
        f1_of_role: of `f1_by_role`.
        published: the paper's numbers, F1 as `f1_<role>`.
        balanced: balanced accuracy is shown, too.
    """
    rows = []
    for role, model in roles.items():
        f1 = f1_of_role[role]
        paper = published.get(f"f1_{role}", np.nan)
        row: dict[str, Any] = {"model": model, "texts": f1.n}
        row |= in_columns("F1", (f1.value, f1.low, f1.high))
        row |= {"published (unverified)": paper, "difference": f1.value - paper}
        if balanced:
            accuracy = performance(members.score_parts(role, balanced_accuracy), balanced_accuracy)
            row |= in_columns("balanced accuracy", (accuracy.value, accuracy.low, accuracy.high))
        rows.append(row)
    return pd.DataFrame(rows).dropna(axis="columns", how="all")


def seed_scores(
    members: Members,
    roles: Mapping[str, str],
    f1_of_role: Mapping[str, Evidence],
    published: Mapping[str, float],
    *,
    name: str,
    caption: str,
) -> SeedScores:
    """The figure beside `score_table`; `name` and `caption` are the figure's."""
    return SeedScores(
        name,
        caption,
        data=str(members.content["data"]),
        f1={model: members.with_role(role)["f1"].to_numpy() for role, model in roles.items()},
        mean={model: f1_of_role[role] for role, model in roles.items()},
        published={
            model: published[f"f1_{role}"]
            for role, model in roles.items()
            if f"f1_{role}" in published
        },
    )
