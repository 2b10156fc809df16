"""What the tests say of models whose answer is known: the study `+experiment=calibration`, read from its runs' tables."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from attnprobe.core.errors import UserError
from attnprobe.evidence.claims import put_to_test
from attnprobe.evidence.evidence import FAILS, MEETS, NO_DIFFERENCE
from attnprobe.evidence.reading import present
from attnprobe.evidence.statistics import interval
from attnprobe.findings.members import measured
from attnprobe.findings.studies.base import STUDY
from attnprobe.results.directory import MANIFEST, RunDirectory, table_file
from attnprobe.results.files import damaged, read_sealed, write_atomically
from attnprobe.results.numbers import numbers_of
from attnprobe.results.pivot import per_example
from attnprobe.results.table import read_results

# The papers' criteria as they are put without a null that keeps the mechanism, so that what they would have said stays known.


@dataclass(frozen=True)
class Criterion:
    """One criterion as published: met where the mean's whole 95 % interval is above the threshold.

    Attributes:
        name: of the claim.
        criterion, level: what is asked, and of what (words, states).
        probe, metrics: the columns that `value` is given, in order.
        value: columns `[examples]` → one number per example, NaN where it is undefined.
        threshold: in that number's unit.
        source: the paper's section.
    """

    name: str
    criterion: str
    level: str
    probe: str
    metrics: tuple[str, ...]
    source: str
    value: Callable[..., np.ndarray] = lambda column: column
    threshold: float = 0.0

    def answer(self, numbers: pd.DataFrame) -> dict[str, Any]:
        """The mean with its bootstrap interval, and whether it is met: 1, 0, or NaN where the interval has the threshold
        inside; NaN everywhere without the probe's table."""
        rows = numbers[(numbers["probe"] == self.probe) & numbers["metric"].isin(self.metrics)]
        if set(rows["metric"].unique()) != set(self.metrics):
            return dict.fromkeys(("value", "low", "high", "met"), float("nan"))
        wide = per_example(rows, self.probe, self.metrics)
        values = self.value(*(wide[name].to_numpy() for name in self.metrics))
        mean, low, high = interval(np.asarray(values, np.float64))
        met = 1.0 if low > self.threshold else 0.0 if high <= self.threshold else float("nan")
        return {"value": mean - self.threshold, "low": low - self.threshold, "high": high - self.threshold, "met": met}


def removed_earlier(later: np.ndarray, earlier: np.ndarray, never: np.ndarray) -> np.ndarray:
    """How much larger a share one order removes until the decision flips; an order that does not flip it has removed all."""
    whole = (np.where(np.isnan(one), 1.0, one) for one in (later, earlier))
    return np.where(never == 0, np.subtract(*whole), np.nan)


def nearer_optimum(own: np.ndarray, random: np.ndarray, optimal: np.ndarray, never: np.ndarray) -> np.ndarray:
    """How much less attention's order removes than the middle of a random order and the smallest set."""
    own, random, optimal = (np.where(np.isnan(one), 1.0, one) for one in (own, random, optimal))
    return np.where(never == 0, (random + optimal) / 2 - own, np.nan)


def no_far_attention(jsd: np.ndarray) -> np.ndarray:
    """1 where no attention farther than 0.4 nats keeps the prediction."""
    return np.where(np.isnan(jsd), np.nan, jsd <= 0.4)


JAIN, SERRANO, ERASER = "Jain & Wallace 2019", "Serrano & Smith 2019", "DeYoung et al. 2020"
PUBLISHED = (
    Criterion("tau_with_gradient", "agreement", "word", "correlation", ("tau_attention_gradient",), f"{JAIN}, 4.1"),
    Criterion("tau_with_leave_one_out", "agreement", "word", "correlation", ("tau_attention_leave_one_out",), f"{JAIN}, 4.1"),
    Criterion("permutation_moves", "exclusivity", "state", "permutation", ("median_tvd",), f"{JAIN}, 4.2.1", threshold=0.05),
    Criterion("no_far_adversary", "exclusivity", "state", "adversarial", ("optimum_jsd",), f"{JAIN}, 4.2.2",
              no_far_attention, 0.5),
    Criterion("top_flips_more", "erasure", "state", "single_weight", ("flip_top_attention", "flip_random_attention"),
              f"{SERRANO}, 4, table 2", np.subtract),
    Criterion("delta_js", "erasure", "state", "single_weight", ("delta_js_attention",), f"{SERRANO}, 4, figure 3"),
    Criterion("effects_in_order", "erasure", "state", "single_weight", ("tau_attention_effect",), f"{SERRANO}, 4",
              threshold=0.5),
    Criterion("sooner_than_random", "erasure", "state", "erasure",
              ("removed_fraction_random", "removed_fraction_attention", "never_flips"), f"{SERRANO}, 5", removed_earlier),
    Criterion("nearer_to_optimum", "erasure", "state", "erasure",
              ("removed_fraction_attention", "removed_fraction_random", "removed_fraction_optimal", "never_flips"),
              f"{SERRANO}, 5; Edin et al. 2025", nearer_optimum),
    Criterion("top_word_in_rationale", "plausibility", "word", "plausibility",
              ("top_in_rationale_attention", "rationale_share"), f"{ERASER}, 4", np.subtract),
    Criterion("mass_on_rationale", "plausibility", "word", "plausibility",
              ("mass_in_rationale_attention", "rationale_share"), f"{ERASER}, 4", np.subtract),
)  # fmt: skip
"""Every one is worded so that yes speaks for the attention."""


MEANINGLESS = ("untrained", "coin_flips", "guesser")
"""Controls that cannot have learnt the task: no verdict on their attention means anything."""
SOLVED, FOLLOWS, LOST = 0.95, 0.9, 0.6
"""Accuracy, and accuracy with the reason changed, from which a model counts as one that decides by the known reason; where
no text has its reason changed (GECO, whose sentences stand in pairs), the accuracy without the reason up to which it does."""
RIGHT, WRONG = 0.8, 0.05
"""Share of what an attention could reach beyond chance from which it is right, and up to which it is wrong."""
PROBE = "known_answer"
KNOWN = {
    "accuracy": "correct", "accuracy_contradicted": "correct_contradicted", "accuracy_without": "correct_without",
    "accuracy_alone": "correct_alone", "chance": "chance", "mass": "mass_on_rationale",
    "precision": "precision_on_rationale", "auprc": "auprc_on_rationale", "state_rank_agreement": "state_rank_agreement",
    "state_mass_agreement": "state_mass_agreement",
}  # fmt: skip
"""What is known of a model: name here → metric of the probe."""
NEEDED = ("correct", "chance", "mass_on_rationale", "precision_on_rationale", "auprc_on_rationale")
"""What every run of the probe has."""
MET = {MEETS: 1.0, FAILS: 0.0, NO_DIFFERENCE: 0.0}
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
    numbers = measured(directory, PROBE, [metric for metric in KNOWN.values() if metric in there])
    if numbers.empty or numbers[list(NEEDED)].isna().all().any():
        raise damaged(path, "it has no number of any text")
    identity = {name: str(rows[name].iloc[0]) for name in ("run_id", "data", "model")}
    means = numbers.mean()
    known = {name: float(means.get(metric, np.nan)) for name, metric in KNOWN.items()}
    return identity | {"seed": int(rows["seed"].iloc[0])} | known


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
    rows: list[dict[str, Any]] = []
    for one in PUBLISHED:
        about = {"version": "published", "criterion": one.criterion, "level": one.level, "claim": one.name}
        rows.append(about | one.answer(numbers))
    for reading in present(numbers_of(numbers)):
        for finding in put_to_test(reading.claims, numbers[numbers["probe"] == reading.probe]):
            claim, found = finding.claim, finding.evidence
            if claim.speaks == "for":
                about = {"version": "current", "criterion": claim.criterion, "level": claim.level, "claim": claim.name}
                told = {"primary": claim.primary, "value": found.value, "low": found.low, "high": found.high}
                met = {"met": MET.get(finding.verdict, np.nan), "state": finding.verdict}
                rows.append({**about, **told, **met})
    return pd.DataFrame(rows)


SHIPPED = ["criterion", "level", "encoder", "rightness", "models", "meets", "asked", "claim"]
"""Columns of `attnprobe/findings/calibration.parquet`."""


def models_in(places: Iterable[Path]) -> list[Path]:
    """The directories of the models of finished studies, and of those that studies which were cut short had finished.

    Args:
        places: studies' directories, or folders that the runs of a study lie in (its `output=…`).

    Raises:
        UserError: a place holds neither, or another study; or two places hold the same model.
    """
    models: dict[str, Path] = {}
    for place in places:
        if (place / STUDY).exists():
            content = read_sealed(place / STUDY)
            if content.get("study") != "calibration":
                raise UserError(f"{place} is of the study {content.get('study')!r}: expected calibration")
            runs = [place / one["directory"] for one in content["members"]]
        else:
            runs = [path.parent for path in sorted(place.glob(f"*/*/{MANIFEST}"))]
            runs = [
                one for one in runs if str(RunDirectory(one).manifest().get("experiment")).startswith("calibration_")
            ]
        if not runs:
            raise UserError(f"{place} holds no models of a study: expected the directory of a +experiment=calibration")
        for directory in runs:
            run_id = str(RunDirectory(directory).manifest()["run_id"])
            if models.setdefault(run_id, directory).resolve() != directory.resolve():
                raise UserError(f"{directory} is the model of {models[run_id]} again: name one of the two")
    return list(models.values())


def collected(directories: Iterable[Path]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Every model's facts (a row each), and every test's answer about it (a row per model and claim, with the facts)."""
    facts, parts = [], []
    for directory in directories:
        one = model_facts(directory)
        facts.append(one | {"rightness_label": label_of(one)})
        parts.append(answers(directory).assign(**facts[-1]))
    return pd.DataFrame(facts), pd.concat(parts, ignore_index=True)


def shipped(answered: pd.DataFrame) -> pd.DataFrame:
    """What verdicts cite: per primary claim of this version, encoder and rightness how many models it decided (`models`), how
    many of these by yes (`meets`), and how many were asked.

    Right and wrong are known of words. With an encoder without context a state is its word. With others an attention on the
    words that decide is right about states as well, but which states decide where it is not is unknown: of claims about
    states the wrong and the middling attentions of these encoders are left out.
    """
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
