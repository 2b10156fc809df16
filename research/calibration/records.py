"""What the tests say of models whose answer is known.

The study `+experiment=calibration` is read from its runs' tables.
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
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
from attnprobe.findings.members import numbers_by_text
from attnprobe.findings.studies.base import STUDY
from attnprobe.results.directory import MANIFEST, RunDirectory, table_file
from attnprobe.results.files import damaged, read_sealed
from attnprobe.results.numbers import numbers_of
from attnprobe.results.table import read_results

# The criteria as the papers have them


@dataclass(frozen=True)
class Published:
    """A criterion as published, worded so that yes speaks for the attention.

    Attributes:
        probe: that has the metrics.
        metrics: their values per text are the arguments of `value`.
        value: the number of each text; the criterion is met where its mean is above `threshold`.
    """

    criterion: str
    level: str
    probe: str
    metrics: tuple[str, ...]
    value: Callable[..., np.ndarray]
    threshold: float = 0.0


def removed(share: np.ndarray) -> np.ndarray:
    """The share removed until the decision flips; all where an order does not flip it."""
    return np.where(np.isnan(share), 1.0, share)


def no_far_attention(jsd: np.ndarray) -> np.ndarray:
    """Whether no attention farther than 0.4 nats keeps the prediction; NaN where none is known."""
    return np.where(np.isnan(jsd), np.nan, jsd <= 0.4)


def sooner_than_random(
    random: np.ndarray, attention: np.ndarray, never_flips: np.ndarray
) -> np.ndarray:
    """How much less attention's order removes; NaN where nothing flips the decision."""
    return np.where(never_flips == 0, removed(random) - removed(attention), np.nan)


def nearer_to_optimum(
    attention: np.ndarray, random: np.ndarray, optimal: np.ndarray, never_flips: np.ndarray
) -> np.ndarray:
    """How much less attention's order removes than half way from the smallest set to random.

    NaN where nothing flips the decision.
    """
    half_way = (removed(random) + removed(optimal)) / 2
    return np.where(never_flips == 0, half_way - removed(attention), np.nan)


PUBLISHED = {
    # Jain & Wallace 2019, 4.1 and 4.2
    "tau_with_gradient": Published(
        "agreement", "word", "correlation", ("tau_attention_gradient",), np.array
    ),
    "tau_with_leave_one_out": Published(
        "agreement", "word", "correlation", ("tau_attention_leave_one_out",), np.array
    ),
    "permutation_moves": Published(
        "exclusivity", "state", "permutation", ("median_tvd",), np.array, 0.05
    ),
    "no_far_adversary": Published(
        "exclusivity", "state", "adversarial", ("optimum_jsd",), no_far_attention, 0.5
    ),
    # Serrano & Smith 2019, 4 and 5; Edin et al. 2025
    "top_flips_more": Published(
        "erasure",
        "state",
        "single_weight",
        ("flip_top_attention", "flip_random_attention"),
        np.subtract,
    ),
    "delta_js": Published("erasure", "state", "single_weight", ("delta_js_attention",), np.array),
    "effects_in_order": Published(
        "erasure", "state", "single_weight", ("tau_attention_effect",), np.array, 0.5
    ),
    "sooner_than_random": Published(
        "erasure",
        "state",
        "erasure",
        ("removed_fraction_random", "removed_fraction_attention", "never_flips"),
        sooner_than_random,
    ),
    "nearer_to_optimum": Published(
        "erasure",
        "state",
        "erasure",
        (
            "removed_fraction_attention",
            "removed_fraction_random",
            "removed_fraction_optimal",
            "never_flips",
        ),
        nearer_to_optimum,
    ),
    # DeYoung et al. 2020, 4
    "top_word_in_rationale": Published(
        "plausibility",
        "word",
        "plausibility",
        ("top_in_rationale_attention", "rationale_share"),
        np.subtract,
    ),
    "mass_on_rationale": Published(
        "plausibility",
        "word",
        "plausibility",
        ("mass_in_rationale_attention", "rationale_share"),
        np.subtract,
    ),
}

# What is known of a model


MEANINGLESS = ("untrained", "coin_flips", "guesser")
"""Controls that cannot have learnt the task: no verdict on their attention means anything."""
SOLVED = 0.95
"""Accuracy from which a model may decide by the known reason."""
FOLLOWS = 0.9
"""Accuracy with the reason changed, from which it does."""
LOST = 0.6
"""Accuracy without the reason, up to which it does, where no text has its reason changed."""
RIGHT = 0.8
"""Share of what an attention could reach beyond chance, from which it is right."""
WRONG = 0.05
"""The same share, up to which it is wrong."""
KNOWN = {
    "accuracy": "correct",
    "accuracy_contradicted": "correct_contradicted",
    "accuracy_without": "correct_without",
    "chance": "chance",
    "mass": "mass_on_rationale",
}
"""What is known of a model: name here → metric of the probe."""
RIGHTNESS = ("right", "between", "wrong", "meaningless", "not solved")


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
    facts: dict[str, Any] = {name: str(rows[name].iloc[0]) for name in ("run_id", "data", "model")}
    facts["seed"] = int(rows["seed"].iloc[0])
    return facts | {name: float(means.get(metric, np.nan)) for name, metric in KNOWN.items()}


def facts_of_model(run: Path) -> dict[str, Any]:
    """`facts_of_run`, with `encoder` and `control` for the model, and how right its attention is.

    Returns:
        With `rightness`, 0 for chance and 1 for all that can be reached, and `rightness_label`.
    """
    facts = facts_of_run(run)
    facts["encoder"], _, facts["control"] = facts.pop("model").partition("_")
    facts["rightness"] = float("nan")
    if facts["chance"] < 1:
        facts["rightness"] = facts["mass"] / (1 - facts["chance"])
    facts["rightness_label"] = rightness_label(facts)
    return facts


def rightness_label(facts: dict[str, Any]) -> str:
    """One of `RIGHTNESS`, from a model's numbers."""
    if facts["control"] in MEANINGLESS:
        return "meaningless"
    goes_by_reason = facts["accuracy_contradicted"] >= FOLLOWS
    if np.isnan(facts["accuracy_contradicted"]):
        goes_by_reason = facts["accuracy_without"] <= LOST
    if not (facts["accuracy"] >= SOLVED and goes_by_reason):
        return "not solved"
    if facts["rightness"] >= RIGHT:
        return "right"
    if facts["rightness"] <= WRONG:
        return "wrong"
    return "between"


# What the tests say of it


MET = {Verdict.MEETS: 1.0, Verdict.FAILS: 0.0, Verdict.NO_DIFFERENCE: 0.0}
"""Verdict → whether the claim is met; other verdicts are not decided."""


@dataclass(frozen=True)
class ClaimResult:
    """What one test says of one model.

    Attributes:
        version: `published`, or `current` for this version's claims.
        value: of a published criterion minus its threshold.
        met: 1 or 0; NaN: not decided.
        primary: whether the verdict on the criterion goes by this claim.
        state: the verdict in words.
    """

    version: str
    criterion: str
    level: str
    claim: str
    value: float
    low: float
    high: float
    met: float
    primary: bool | None = None
    state: str | None = None


def published_answer(name: str, numbers: pd.DataFrame) -> ClaimResult:
    """The mean beside its threshold with its interval; NaN without the probe's table.

    Args:
        name: of `PUBLISHED`.
        numbers: a run's long table.
    """
    test = PUBLISHED[name]
    value = low = high = np.nan
    columns = values_of(numbers[numbers["probe"] == test.probe], *test.metrics)
    if columns is not None:
        values = test.value(*(columns[metric].to_numpy() for metric in test.metrics))
        value, low, high = interval(np.asarray(values, np.float64))
        value -= test.threshold
        low -= test.threshold
        high -= test.threshold

    met = np.nan
    if low > 0:
        met = 1.0
    elif high <= 0:
        met = 0.0
    return ClaimResult("published", test.criterion, test.level, name, value, low, high, met)


def answers(run: Path) -> pd.DataFrame:
    """What every test says of one model, a `ClaimResult` per row.

    Tests are the criteria as published, and this version's claims that speak for attention.
    """
    numbers = read_results(run)
    rows = [published_answer(name, numbers) for name in PUBLISHED]
    for reading in present(numbers_of(numbers)):
        for finding in put_to_test(reading.claims, numbers[numbers["probe"] == reading.probe]):
            claim = finding.claim
            if claim.speaks != "for":
                continue
            answer = ClaimResult(
                version="current",
                criterion=claim.criterion,
                level=claim.level,
                claim=claim.name,
                value=finding.evidence.value,
                low=finding.evidence.low,
                high=finding.evidence.high,
                met=MET.get(finding.verdict, np.nan),
                primary=claim.primary,
                state=finding.verdict,
            )
            rows.append(answer)
    return pd.DataFrame([asdict(row) for row in rows])


def models_in(places: Iterable[Path]) -> list[Path]:
    """The models of calibration studies, finished or cut short.

    Args:
        places: the studies' directories, or what their runs lie in (`output=…`).

    Raises:
        UserError: a place has no such model, or one model is there twice.
    """
    models: dict[str, Path] = {}
    for place in places:
        manifests = {run: RunDirectory(run).manifest() for run in runs_in(place)}
        runs = {
            run: manifest
            for run, manifest in manifests.items()
            if str(manifest.get("experiment")).startswith("calibration_")
        }
        if not runs:
            raise UserError(
                f"{place} holds no models of a study: expected the directory of a "
                "+experiment=calibration"
            )
        for run, manifest in runs.items():
            first_run = models.setdefault(str(manifest["run_id"]), run)
            if first_run.resolve() != run.resolve():
                raise UserError(f"{run} is the model of {first_run} again: name one of the two")
    return list(models.values())


def runs_in(place: Path) -> list[Path]:
    """The runs of a finished study, or the finished runs of one that was cut short."""
    if (place / STUDY).exists():
        return [place / member["directory"] for member in read_sealed(place / STUDY)["members"]]
    return [path.parent for path in sorted(place.glob(f"*/*/{MANIFEST}"))]


def collected(runs: Iterable[Path]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Every model's facts, and every test's answer about it with these facts."""
    facts = []
    tables = []
    for run in runs:
        facts.append(facts_of_model(run))
        tables.append(answers(run).assign(**facts[-1]))
    return pd.DataFrame(facts), pd.concat(tables, ignore_index=True)


SHIPPED = ["criterion", "level", "encoder", "rightness", "models", "meets", "asked", "claim"]
"""Columns of `attnprobe/findings/calibration.parquet`."""


def shipped(answered: pd.DataFrame) -> pd.DataFrame:
    """What verdicts cite: how many models were asked, decided, and said yes of.

    A row per primary claim, encoder and rightness. Which states decide where an attention with
    context is not on the deciding words is unknown: these models are left out.
    """
    is_primary = answered["primary"] == True  # noqa: E712 (NaN is no)
    primary = answered[(answered["version"] == "current") & is_primary]
    states_are_known = (primary["encoder"] == "average") | primary["rightness_label"].isin(
        ["right", "meaningless"]
    )
    primary = primary[(primary["level"] == "word") | states_are_known]
    groups = primary.groupby(
        ["criterion", "level", "encoder", "rightness_label", "claim"], observed=True
    )
    table = groups["met"].agg(models="count", meets="sum", asked="size").reset_index()
    return table.rename(columns={"rightness_label": "rightness"}).astype({"meets": int})[SHIPPED]
