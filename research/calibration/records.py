"""What the tests say of models whose answer is known: the study `+experiment=calibration`, read from its runs' tables."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from attnprobe.core.errors import UserError
from attnprobe.evidence.claims import put_to_test
from attnprobe.evidence.evidence import FAILS, MEETS, NO_DIFFERENCE, values_of
from attnprobe.evidence.reading import present
from attnprobe.evidence.statistics import interval
from attnprobe.findings.members import measured
from attnprobe.findings.studies.base import STUDY
from attnprobe.results.directory import MANIFEST, RunDirectory, table_file
from attnprobe.results.files import damaged, read_sealed, write_atomically
from attnprobe.results.numbers import numbers_of
from attnprobe.results.table import read_results


class Criterion(NamedTuple):
    """One criterion as published: met where the whole interval of the mean of `value(*columns)` is above the threshold."""

    name: str
    criterion: str
    level: str
    probe: str
    metrics: tuple[str, ...]
    value: Callable[..., np.ndarray] = lambda column: column
    threshold: float = 0.0

    def answer(self, numbers: pd.DataFrame) -> dict[str, Any]:
        """The mean with its interval, and whether it is met: 1, 0, or NaN where that is open; NaN without the table."""
        wide = values_of(numbers[numbers["probe"] == self.probe], *self.metrics)
        if wide is None:
            return dict.fromkeys(("value", "low", "high", "met"), float("nan"))
        values = self.value(*(wide[name].to_numpy() for name in self.metrics))
        mean, low, high = (one - self.threshold for one in interval(np.asarray(values, np.float64)))
        return {"value": mean, "low": low, "high": high, "met": 1.0 if low > 0 else 0.0 if high <= 0 else float("nan")}


def whole(share: np.ndarray) -> np.ndarray:
    """The share removed until the decision flips; an order that does not flip it has removed all."""
    return np.where(np.isnan(share), 1.0, share)


REMOVED, IN_RATIONALE = "removed_fraction_", "in_rationale_attention"
PUBLISHED = (
    # Jain & Wallace 2019, 4.1 and 4.2; no attention farther than 0.4 nats keeps the prediction
    Criterion("tau_with_gradient", "agreement", "word", "correlation", ("tau_attention_gradient",)),
    Criterion("tau_with_leave_one_out", "agreement", "word", "correlation", ("tau_attention_leave_one_out",)),
    Criterion("permutation_moves", "exclusivity", "state", "permutation", ("median_tvd",), threshold=0.05),
    Criterion("no_far_adversary", "exclusivity", "state", "adversarial", ("optimum_jsd",),
              lambda jsd: np.where(np.isnan(jsd), np.nan, jsd <= 0.4), 0.5),
    # Serrano & Smith 2019, 4 and 5; Edin et al. 2025
    Criterion("top_flips_more", "erasure", "state", "single_weight", ("flip_top_attention", "flip_random_attention"),
              np.subtract),
    Criterion("delta_js", "erasure", "state", "single_weight", ("delta_js_attention",)),
    Criterion("effects_in_order", "erasure", "state", "single_weight", ("tau_attention_effect",), threshold=0.5),
    Criterion("sooner_than_random", "erasure", "state", "erasure",
              (f"{REMOVED}random", f"{REMOVED}attention", "never_flips"),
              lambda later, earlier, never: np.where(never == 0, whole(later) - whole(earlier), np.nan)),
    Criterion("nearer_to_optimum", "erasure", "state", "erasure",
              (f"{REMOVED}attention", f"{REMOVED}random", f"{REMOVED}optimal", "never_flips"),
              lambda own, random, best, never: np.where(never == 0, (whole(random) + whole(best)) / 2 - whole(own), np.nan)),
    # DeYoung et al. 2020, 4
    *(Criterion(name, "plausibility", "word", "plausibility", (f"{kind}_{IN_RATIONALE}", "rationale_share"), np.subtract)
      for name, kind in (("top_word_in_rationale", "top"), ("mass_on_rationale", "mass"))),
)  # fmt: skip
"""Every one is worded so that yes speaks for the attention."""
MEANINGLESS = ("untrained", "coin_flips", "guesser")
"""Controls that cannot have learnt the task: no verdict on their attention means anything."""
SOLVED, FOLLOWS, LOST = 0.95, 0.9, 0.6
"""Accuracy, and accuracy with the reason changed, from which a model counts as one that decides by the known reason; where
no text has its reason changed, the accuracy without the reason up to which it does."""
RIGHT, WRONG = 0.8, 0.05
"""Share of what an attention could reach beyond chance from which it is right, and up to which it is wrong."""
PROBE = "known_answer"
KNOWN = {"accuracy": "correct", "accuracy_contradicted": "correct_contradicted", "accuracy_without": "correct_without",
         "chance": "chance", "mass": "mass_on_rationale"}  # fmt: skip
"""What is known of a model: name here → metric of the probe."""
MET = {MEETS: 1.0, FAILS: 0.0, NO_DIFFERENCE: 0.0}
RIGHTNESS = ("right", "between", "wrong", "meaningless", "not solved")


def answer_of(directory: Path) -> dict[str, Any]:
    """Which run it is (`run_id data model seed`), and means of `known_answer` over its texts; NaN for what was not asked."""
    rows, numbers = read_results(directory, probe=PROBE), measured(directory, PROBE)
    if numbers.empty:
        raise damaged(RunDirectory(directory) / table_file(PROBE), "it has no number of any text")
    identity = {name: str(rows[name].iloc[0]) for name in ("run_id", "data", "model")}
    means = numbers.mean()
    known = {name: float(means.get(metric, np.nan)) for name, metric in KNOWN.items()}
    return identity | {"seed": int(rows["seed"].iloc[0])} | known


def label_of(facts: Mapping[str, Any]) -> str:
    """Which of `RIGHTNESS` a model's attention is, about words."""
    if facts["control"] in MEANINGLESS:
        return "meaningless"
    changed = facts["accuracy_contradicted"]
    follows = facts["accuracy_without"] <= LOST if np.isnan(changed) else changed >= FOLLOWS
    if not (facts["accuracy"] >= SOLVED and follows):
        return "not solved"
    return "right" if facts["rightness"] >= RIGHT else "wrong" if facts["rightness"] <= WRONG else "between"


def answers(directory: Path) -> pd.DataFrame:
    """What every test says of one model, a row each: `version` (`published`, or `current`: this version's claims),
    `criterion level claim value low high`, and `met`: 1 yes, 0 no, NaN not decided; `state` says why, of the current ones."""
    numbers = read_results(directory)
    rows: list[dict[str, Any]] = [
        {"version": "published", "criterion": one.criterion, "level": one.level, "claim": one.name}
        | one.answer(numbers)
        for one in PUBLISHED
    ]
    for reading in present(numbers_of(numbers)):
        for finding in put_to_test(reading.claims, numbers[numbers["probe"] == reading.probe]):
            claim, found = finding.claim, finding.evidence
            if claim.speaks == "for":
                told = {"primary": claim.primary, "value": found.value, "low": found.low, "high": found.high}
                rows.append({"version": "current", "criterion": claim.criterion, "level": claim.level, "claim": claim.name}
                            | told | {"met": MET.get(finding.verdict, np.nan), "state": finding.verdict})  # fmt: skip
    return pd.DataFrame(rows)


def models_in(places: Iterable[Path]) -> list[Path]:
    """The directories of the models of studies, finished or cut short, by the studies' directories or the folders that their
    runs lie in (`output=…`); a `UserError` for a place without any, or of another study, and for the same model twice."""
    models: dict[str, Path] = {}
    for place in places:
        if (place / STUDY).exists():
            content = read_sealed(place / STUDY)
            if content.get("study") != "calibration":
                raise UserError(f"{place} is of the study {content.get('study')!r}: expected calibration")
            runs = [place / one["directory"] for one in content["members"]]
        else:
            runs = [path.parent for path in sorted(place.glob(f"*/*/{MANIFEST}"))]
        manifests = {run: RunDirectory(run).manifest() for run in runs}
        runs = [run for run in runs if str(manifests[run].get("experiment")).startswith("calibration_")]
        if not runs:
            raise UserError(f"{place} holds no models of a study: expected the directory of a +experiment=calibration")
        for run in runs:
            known = models.setdefault(str(manifests[run]["run_id"]), run)
            if known.resolve() != run.resolve():
                raise UserError(f"{run} is the model of {known} again: name one of the two")
    return list(models.values())


def collected(directories: Iterable[Path]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Every model's facts (a row each), and every test's answer about it (a row per model and claim, with the facts).
    `rightness`: (attention on the deciding words − chance) / (1 − chance), of the means over the texts."""
    facts, parts = [], []
    for directory in directories:
        one = answer_of(directory)
        one["encoder"], _, one["control"] = one.pop("model").partition("_")
        one["rightness"] = one["mass"] / (1 - one["chance"]) if one["chance"] < 1 else float("nan")
        facts.append(one | {"rightness_label": label_of(one)})
        parts.append(answers(directory).assign(**facts[-1]))
    return pd.DataFrame(facts), pd.concat(parts, ignore_index=True)


SHIPPED = ["criterion", "level", "encoder", "rightness", "models", "meets", "asked", "claim"]
"""Columns of `attnprobe/findings/calibration.parquet`."""


def shipped(answered: pd.DataFrame) -> pd.DataFrame:
    """What verdicts cite: per primary claim of this version, encoder and rightness how many models it decided (`models`), how
    many of these by yes (`meets`), and how many were asked. Which states decide where an attention with context is not on the
    deciding words is unknown: of claims about states these are left out."""
    own = answered[(answered["version"] == "current") & (answered["primary"] == True)]  # noqa: E712 (NaN is no)
    known = own["rightness_label"].isin(["right", "meaningless"])
    own = own[(own["level"] == "word") | (own["encoder"] == "average") | known]
    groups = own.groupby(["criterion", "level", "encoder", "rightness_label", "claim"], observed=True)["met"]
    table = groups.agg(models="count", meets="sum", asked="size").reset_index()
    return table.rename(columns={"rightness_label": "rightness"}).astype({"meets": int})[SHIPPED]


def ship(answered: pd.DataFrame, path: Path, made_by: str) -> None:
    """Write the shipped table; the file says by which command it was made, and of how many models."""
    table = pa.Table.from_pandas(shipped(answered), preserve_index=False)
    facts = {"made_by": made_by, "models": str(answered["run_id"].nunique())}
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), b"attnprobe": json.dumps(facts).encode()})
    write_atomically(path, lambda target: pq.write_table(table, target))
