"""The runs of a study by role, and the numbers that are read from their tables."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from attnprobe.report.figures.draw import class_names
from attnprobe.report.joint import confusion
from attnprobe.report.measured import check_texts, measured, whole
from attnprobe.report.studies import STUDY
from attnprobe.results.checksums import damaged
from attnprobe.results.directory import RunDirectory, table_file
from attnprobe.results.metrics import CLASS, JSD, TRUTH, TVD, WEIGHT
from attnprobe.results.table import metrics_in

TEACHER = {"tvd": TVD, "jsd": JSD, "teacher_max_attention": WEIGHT, "teacher_predicted_class": CLASS}
ADVERSARIAL = {
    "found_jsd": JSD, "found_tvd": TVD, "optimum_jsd": JSD, "optimum_tvd": TVD, "is_exact": TRUTH,
    "max_attention": WEIGHT, "predicted_class": CLASS,
}  # fmt: skip
"""What is read of the two probes' tables."""
MARGIN = 0.01
"""F1 that is no difference worth speaking of, however little the seeds vary."""


@dataclass(frozen=True)
class Members:
    """The study's runs by role, and the numbers that are read from their tables."""

    directory: Path
    content: Mapping[str, Any]

    def __post_init__(self) -> None:
        if not any(member["role"] == "base" for member in self.content["members"]):
            raise damaged(self.directory / STUDY, "it lists no run that the others are compared with")
        check_texts(self.directory / member["directory"] for member in self.content["members"])

    @cached_property
    def runs(self) -> pd.DataFrame:
        """`role seed parameter path f1`: F1 of class 1 on the test split (macro F1 where there are more classes)."""
        rows = []
        for member in self.content["members"]:
            path = self.directory / member["directory"]
            rows.append({name: member[name] for name in ("role", "seed", "parameter")} | {"path": path, "f1": f1(path)})
        return pd.DataFrame(rows)

    def of(self, role: str) -> pd.DataFrame:
        """The runs of one role, in the order of the study."""
        return self.runs[self.runs["role"] == role]

    def confusions(self, role: str) -> dict[int, np.ndarray]:
        """By seed, what F1 is made of (`attnprobe.report.joint`)."""
        return {int(seed): confusion(path) for seed, path in self.of(role)[["seed", "path"]].to_numpy()}

    def by_seed(self, role: str) -> "pd.Series[float]":
        """F1 by seed."""
        return self.of(role).set_index("seed")["f1"]

    @property
    def base_seed(self) -> int:
        """The seed of the run that the others refer to."""
        return int(self.of("base")["seed"].iloc[0])

    @cached_property
    def to_base(self) -> pd.DataFrame:
        """`tvd jsd teacher_max_attention …` per `role seed parameter example_id`, of all runs compared with the base."""
        parts = []
        for run in self.runs[self.runs["role"].isin(["base", "adversary"])].to_dict("records"):
            if run["role"] == "base" and run["seed"] == self.base_seed:
                continue
            wide = measured(run["path"], "teacher", TEACHER)
            parts.append(wide.assign(role=run["role"], seed=run["seed"], parameter=run["parameter"]))
        return pd.concat([part for part in parts if not part.empty]) if parts else pd.DataFrame()

    @property
    def others(self) -> pd.DataFrame:
        """The rows of `to_base` of the base's other seeds; empty where there are none."""
        return self.to_base if self.to_base.empty else self.to_base[self.to_base["role"] == "base"]

    @cached_property
    def single(self) -> pd.DataFrame:
        """The base's per-example adversaries: `found_jsd found_tvd optimum_jsd optimum_tvd …` by example; empty where the
        base was not searched for them, or solved only (`probe.adversarial.restarts=0`)."""
        run = RunDirectory(self.of("base")["path"].iloc[0])
        if "adversarial" not in run.probes() or "found_jsd" not in metrics_in(run / table_file("adversarial")):
            return pd.DataFrame()
        return measured(run.path, "adversarial", ADVERSARIAL)

    @property
    def best(self) -> str:
        """What the farthest attentions of the base's examples are: `exact`, or known, and the share of them that is exact."""
        share = float((self.single["is_exact"] == 1).mean())
        return "exact" if share == 1 else f"farthest known, {100 * share:.0f} % exact"

    @property
    def classes(self) -> list[str]:
        """The names of the base's classes."""
        return class_names(Path(self.of("base")["path"].iloc[0]))

    @property
    def above(self) -> float:
        """The JSD to the base that an adversary has to exceed, as the study was told (`study.above`)."""
        if "above" not in self.content["settings"]:
            raise damaged(self.directory / STUDY, "it does not say study.above, by which its adversary is chosen")
        return float(self.content["settings"]["above"])

    def has(self, test: str) -> bool:
        """Whether the study made this test."""
        return test in self.content["settings"].get("tests", ())


def f1(run: Path) -> float:
    """F1 of class 1 of one run on the test split; macro F1 where the classes are not two."""
    classes = whole(run, "performance", ["f1"])["f1"]
    if len(classes) == 2:
        return float(classes.iloc[1])
    return float(whole(run, "performance", ["f1_macro"])["f1_macro"].iloc[0])


def seeds_vary(members: Members) -> float:
    """Standard deviation of the base's F1 over its seeds, at least `MARGIN`: a difference no larger is what another seed
    makes as well."""
    spread = members.by_seed("base").std(ddof=1)
    return max(MARGIN, 0.0 if np.isnan(spread) else round(float(spread), 3))
