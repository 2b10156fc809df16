"""The long tables: their columns, how rows become one, and how the tables of many runs are read back."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from attnprobe.errors import UserError
from attnprobe.results.directory import find_runs, read_manifest

WHOLE_SPLIT = -1
"""`example_id` of a number that is about the whole split (accuracy, a count) and not about one example."""

IDENTITY = ("run_id", "experiment", "data", "model", "seed", "split", "probe")
COLUMNS = (*IDENTITY, "metric", "example_id", "step", "value")
SCHEMA = pa.schema(
    [
        *[pa.field(name, pa.dictionary(pa.int32(), pa.string())) for name in ("run_id", "experiment", "data", "model")],
        pa.field("seed", pa.int64()),
        *[pa.field(name, pa.dictionary(pa.int32(), pa.string())) for name in ("split", "probe", "metric")],
        pa.field("example_id", pa.int64()),
        pa.field("step", pa.float64()),
        pa.field("value", pa.float64()),
    ]
)


@dataclass
class Rows:
    """Numbers on their way into one table; the order in which they are added never shows in the table."""

    metrics: list[str] = field(default_factory=list)
    parts: list[tuple[int, np.ndarray, np.ndarray, np.ndarray]] = field(default_factory=list)

    def add(self, metric: str, example_id: np.ndarray, value: np.ndarray, step: np.ndarray | None = None) -> None:
        """Add one number per example (`value [n]`), or several with their steps (`value [n, k]`, `step [k]` or
        `[n, k]`). Rows whose step is NaN are dropped: that is how ragged examples leave out their padding."""
        example_id, value = np.asarray(example_id, np.int64), np.asarray(value, np.float64)
        if value.shape[:1] != example_id.shape:
            raise ValueError(f"{metric}: {len(example_id)} example ids for values of shape {value.shape}")
        if metric not in self.metrics:
            self.metrics.append(metric)
        number = self.metrics.index(metric)
        if step is None:
            if value.ndim != 1:
                raise ValueError(f"{metric}: values of shape {value.shape} need a step")
            self.parts.append((number, example_id, np.full(len(value), np.nan), value))
            return
        step = np.broadcast_to(np.asarray(step, np.float64), value.shape)
        keep = ~np.isnan(step)
        owner = np.broadcast_to(example_id[:, None], value.shape)
        self.parts.append((number, owner[keep], step[keep], value[keep]))

    def table(self, identity: dict[str, Any]) -> pa.Table:
        """All rows as one table, sorted by metric, example and step."""
        names = sorted(self.metrics)
        rank = np.array([names.index(metric) for metric in self.metrics], np.int32)
        parts = self.parts or [(0, np.empty(0, np.int64), np.empty(0), np.empty(0))]
        metric = np.concatenate([np.full(len(p[1]), rank[p[0]] if len(rank) else 0, np.int32) for p in parts])
        example_id, step, value = (np.concatenate([p[i] for p in parts]) for i in (1, 2, 3))
        order = np.lexsort((np.nan_to_num(step, nan=-np.inf), example_id, metric))
        count = len(order)
        zeros = pa.array(np.zeros(count, np.int32))
        arrays: dict[str, pa.Array] = {
            name: pa.DictionaryArray.from_arrays(zeros, pa.array([str(identity[name])], pa.string()))
            for name in IDENTITY
            if name != "seed"
        }
        arrays["seed"] = pa.array(np.full(count, identity["seed"], np.int64))
        arrays["metric"] = pa.DictionaryArray.from_arrays(pa.array(metric[order]), pa.array(names, pa.string()))
        arrays["example_id"] = pa.array(example_id[order])
        arrays["step"] = pa.array(step[order], from_pandas=True)  # NaN = no step = null
        arrays["value"] = pa.array(value[order])  # NaN stays NaN: an undefined number is reported, not missing
        return pa.Table.from_arrays([arrays[name] for name in COLUMNS], schema=SCHEMA)


def count_undefined(table: pa.Table) -> int:
    """How many values are NaN, that is, were undefined for their example."""
    return pc.sum(pc.is_nan(table["value"])).as_py() or 0


def read_results(
    directory_or_glob: str | os.PathLike | Iterable[str | os.PathLike], probe: str | Sequence[str] | None = None
) -> pd.DataFrame:
    """The long tables of one run or many as one DataFrame.

    Args:
        directory_or_glob: a run directory, a directory above several runs, a glob pattern, or a list of these.
        probe: read only these probes' tables.

    Returns:
        Columns `run_id experiment data model seed split probe metric example_id step value`; one row is one number
        about one example (`example_id` −1: about the whole split). The text columns are categories.

    Raises:
        UserError: no finished run there.
    """
    wanted = None if probe is None else {probe} if isinstance(probe, str) else set(probe)
    tables = []
    for run in find_runs(directory_or_glob):
        manifest = read_manifest(run) or {}
        for name, entry in manifest.get("tables", {}).items():
            if wanted is None or name in wanted:
                tables.append(pq.read_table(run / entry["file"], schema=SCHEMA))
    if not tables:
        return SCHEMA.empty_table().to_pandas()
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks().to_pandas()


def read_examples(directory: str | os.PathLike, split: str = "test") -> pd.DataFrame:
    """One row per example of a finished run: example_id, label, prediction, probability, tokens, attention."""
    path = Path(directory) / "examples" / f"{split}.parquet"
    if not path.exists():
        raise UserError(f"{path} does not exist: expected the examples of a finished run; see attnprobe.read_results")
    return pq.read_table(path).to_pandas()
