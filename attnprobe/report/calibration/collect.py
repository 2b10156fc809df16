"""All models of a study in two tables, and the table that the package ships."""

import json
from collections.abc import Iterable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from attnprobe.errors import UserError
from attnprobe.report.calibration.models import answers, label_of, model_facts
from attnprobe.report.studies import STUDY
from attnprobe.results.directory import MANIFEST, RunDirectory
from attnprobe.results.files import write_atomically
from attnprobe.results.saved import read_members

SHIPPED = ["criterion", "level", "encoder", "rightness", "models", "meets", "asked", "claim"]
"""Columns of `attnprobe/report/calibration.parquet`."""


def models_in(places: Iterable[Path]) -> list[Path]:
    """The directories of the models of finished studies, and of those that studies which were cut short had finished.

    Args:
        places: studies' directories, or folders that the runs of a study lie in (its `output=…`).

    Raises:
        UserError: a place holds neither, or another study; or two places hold the same model.
    """
    models: dict[str, Path] = {}
    for place in places:
        for directory in members(place):
            run_id = str(RunDirectory(directory).manifest()["run_id"])
            if models.setdefault(run_id, directory).resolve() != directory.resolve():
                raise UserError(f"{directory} is the model of {models[run_id]} again: name one of the two")
    return list(models.values())


def members(place: Path) -> list[Path]:
    """The directories of one place's models."""
    if (place / STUDY).exists():
        content = read_members(place / STUDY)
        if content.get("study") != "calibration":
            raise UserError(f"{place} is of the study {content.get('study')!r}: expected calibration")
        return [place / one["directory"] for one in content["members"]]
    runs = [path.parent for path in sorted(place.glob(f"*/*/{MANIFEST}"))]
    runs = [one for one in runs if str(RunDirectory(one).manifest().get("experiment")).startswith("calibration_")]
    if not runs:
        raise UserError(f"{place} holds no models of a study: expected the directory of a +experiment=calibration")
    return runs


def collected(directories: Iterable[Path]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Every model's facts (a row each), and every test's answer about it (a row per model and claim, with the facts)."""
    facts, parts = [], []
    for directory in directories:
        one = model_facts(directory)
        one["rightness_label"] = label_of(one)
        facts.append(one)
        parts.append(answers(directory).assign(**one))
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
