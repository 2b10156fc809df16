"""Run directories on disk: long parquet tables, the manifest, and how both are read back.

A run directory:

    config.yaml           everything that decides the numbers, resolved
    vocabulary.json       word → id
    model.safetensors     the weights of the chosen epoch
    examples/test.parquet one row per example: text, label, prediction, and its tokens and attention as lists
    tables/<probe>.parquet  long tables, one row = one number about one example (`COLUMNS`)
    figures/              drawn from the tables alone
    manifest.json         written last and atomically; lists the finished tables. No manifest, not done.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from glob import glob
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from scipy import stats

from attnprobe.errors import UserError

MANIFEST = "manifest.json"
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


def write_atomically(path: Path, write: Any) -> None:
    """Call `write(temporary_path)` and move the result into place, so that no half-written file is ever seen."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        write(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_table(table: pa.Table, path: Path) -> None:
    """Write a parquet file; the same table gives the same bytes."""
    write_atomically(path, lambda p: pq.write_table(table, p, compression="zstd", compression_level=6))


def write_json(content: Any, path: Path) -> None:
    """Write indented JSON."""
    text = json.dumps(content, indent=2, ensure_ascii=False, sort_keys=False) + "\n"
    write_atomically(path, lambda p: Path(p).write_text(text, encoding="utf-8"))


def fingerprint(content: Any) -> str:
    """Ten hexadecimal digits that stand for a JSON-like value, whatever the order of its keys."""
    canonical = json.dumps(with_text_keys(content), sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(canonical.encode()).hexdigest()[:10]


def with_text_keys(content: Any) -> Any:
    """The same, every key as the text that JSON makes of it: 1 and "1" cannot be sorted together."""
    if isinstance(content, dict):
        return {str(key): with_text_keys(value) for key, value in content.items()}
    return [with_text_keys(item) for item in content] if isinstance(content, (list, tuple)) else content


def flattened(content: Any, prefix: str = "") -> dict[str, Any]:
    """Nested settings as dotted keys."""
    if not isinstance(content, dict):
        return {prefix: content}
    parts = [flattened(value, f"{prefix}.{key}" if prefix else str(key)) for key, value in content.items()]
    return {key: value for part in parts for key, value in part.items()}


def read_manifest(directory: Path) -> dict[str, Any] | None:
    """The manifest of a finished run, or None where there is none."""
    try:
        return json.loads((Path(directory) / MANIFEST).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None


def find_runs(places: str | os.PathLike | Iterable[str | os.PathLike]) -> list[Path]:
    """Directories of all finished runs at or below the given directories or glob patterns, sorted.

    Raises:
        UserError: nothing there, or nothing finished.
    """
    names = named_places(places)
    found = directories_with(MANIFEST, names)
    if not found:
        missing = [place for place in names if not glob(place) and not Path(place).exists()]
        reason = f"{', '.join(missing)} does not exist" if missing else "no manifest.json there"
        raise UserError(
            f"no finished run at {', '.join(names)}: {reason}. A run is finished once its manifest is written; "
            f"start one with `python -m attnprobe +experiment=jain_adversarial`, or name another directory."
        )
    return found


def named_places(places: str | os.PathLike | Iterable[str | os.PathLike]) -> list[str]:
    """One place or several as a list of texts."""
    several = [places] if isinstance(places, (str, os.PathLike)) else places
    return [os.fspath(place) for place in several]


def directories_with(file: str, places: Iterable[str]) -> list[Path]:
    """Every directory at or below these directories or glob patterns that holds a file of this name, sorted."""
    found: set[Path] = set()
    for place in places:
        # a directory may be named like a pattern
        for start in [place] if Path(place).exists() else glob(place, recursive=True):
            found.update(path.parent for path in Path(start).rglob(file))
    return sorted(found)


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


def count_undefined(table: pa.Table) -> int:
    """How many values are NaN, that is, were undefined for their example."""
    return pc.sum(pc.is_nan(table["value"])).as_py() or 0


def interval(values: Iterable[float], *, confidence: float = 0.95, seed: int = 0) -> tuple[float, float, float]:
    """Mean and its bootstrap interval over examples; NaN values are left out.

    Uses scipy's bias-corrected accelerated bootstrap (2,000 resamples), and its percentile bootstrap above 2,000
    values, where the correction vanishes and its jackknife would need values² numbers of memory.

    Returns:
        (mean, low, high); all NaN where there is no value, and three times the mean where all values are equal (to
        twelve digits).
    """
    sample = np.asarray(list(values), np.float64)
    sample = sample[~np.isnan(sample)]
    if len(sample) == 0:
        return (float("nan"),) * 3
    mean = float(sample.mean())
    if np.ptp(sample) <= 1e-12 * np.abs(sample).max():  # equal but for rounding, on which the correction has no hold
        return mean, mean, mean
    result = stats.bootstrap(
        (sample,),
        np.mean,
        n_resamples=2000,
        batch=max(1, 2_000_000 // len(sample)),
        confidence_level=confidence,
        method="BCa" if len(sample) <= 2000 else "percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return mean, float(result.low), float(result.high)
