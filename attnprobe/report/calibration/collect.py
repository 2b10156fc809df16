"""All models of a study in two tables, and the table that the package ships."""

import json
from collections.abc import Iterable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from attnprobe.report.calibration.models import answers, label_of, model_facts
from attnprobe.results.files import write_atomically

SHIPPED = ["criterion", "level", "encoder", "rightness", "models", "meets", "asked", "claim"]
"""Columns of `attnprobe/report/calibration.parquet`."""


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

    Right and wrong are known of words. A claim about states is listed for encoders without context alone, where a state is
    its word; of others the study knows no truth to hold it against.
    """
    own = answered[(answered["version"] == "current") & (answered["primary"] == True)]  # noqa: E712 (NaN is no)
    own = own[(own["level"] == "word") | (own["encoder"] == "average")]
    groups = own.groupby(["criterion", "level", "encoder", "rightness_label", "claim"], observed=True)["met"]
    table = groups.agg(models="count", meets="sum", asked="size").reset_index()
    return table.rename(columns={"rightness_label": "rightness"}).astype({"meets": int})[SHIPPED]


def ship(answered: pd.DataFrame, path: Path, made_by: str) -> None:
    """Write the shipped table; the file says by which command it was made, and of how many models."""
    table = pa.Table.from_pandas(shipped(answered), preserve_index=False)
    facts = {"made_by": made_by, "models": str(answered["run_id"].nunique())}
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), b"attnprobe": json.dumps(facts).encode()})
    write_atomically(path, lambda target: pq.write_table(table, target))
