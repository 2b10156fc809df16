"""The long tables: their columns, how rows become one, and how the tables of many runs are read back."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from attnprobe.results.checksums import damaged
from attnprobe.results.directory import RunDirectory, find_runs, first_line, table_file
from attnprobe.results.files import write_groups
from attnprobe.results.schema import COLUMNS, IDENTITY, SCHEMA
from attnprobe.results.spill import RECORD, Spill, in_order, ordered

ROW_GROUP = 1 << 17
"""Rows of a table in one piece, and the most that are kept in memory before they go to the disk."""


class Written(NamedTuple):
    """What was written: `rows`, and of these `undefined`, whose value is NaN."""

    rows: int
    undefined: int


class Rows:
    """Numbers on their way into one table; neither the order in which they are added nor their number at a time ever
    shows in the table. What exceeds `ROW_GROUP` rows waits on the disk."""

    def __init__(self, folder: Path | None = None, row_group: int = ROW_GROUP) -> None:
        """
        Args:
            folder: a directory on the disk that is to hold what does not fit; None: the system's temporary files.
            row_group: rows that are held at a time.
        """
        self.folder, self.row_group = folder, row_group
        self.parts: dict[str, list[np.ndarray]] = {}
        self.held = 0
        self.spill: Spill | None = None

    def add(self, metric: str, example_id: np.ndarray, value: np.ndarray, step: np.ndarray | None = None) -> None:
        """Add one number per example (`value [n]`), or several with their steps (`value [n, k]`, `step [k]` or
        `[n, k]`). Rows whose step is NaN are dropped: that is how ragged examples leave out their padding."""
        example_id, value = np.asarray(example_id, np.int64), np.asarray(value, np.float64)
        if value.shape[:1] != example_id.shape:
            raise ValueError(f"{metric}: {len(example_id)} example ids for values of shape {value.shape}")
        if step is None:
            if value.ndim != 1:
                raise ValueError(f"{metric}: values of shape {value.shape} need a step")
            owner, at = example_id, np.full(len(value), np.nan)
        else:
            step = np.broadcast_to(np.asarray(step, np.float64), value.shape)
            keep = ~np.isnan(step)
            owner, at, value = np.broadcast_to(example_id[:, None], value.shape)[keep], step[keep], value[keep]
        records = np.empty(len(value), RECORD)
        records["example_id"], records["step"], records["value"] = owner, at, value
        self.parts.setdefault(metric, []).append(records)
        self.held += len(records)
        if self.held > self.row_group:
            self._spill()

    def _spill(self) -> None:
        if self.spill is None:
            self.spill = Spill(self.folder)
        for metric, parts in self.parts.items():
            if any(map(len, parts)):
                self.spill.append(metric, np.concatenate(parts))
            parts.clear()
        self.held = 0

    def write(self, path: Path, identity: dict[str, Any]) -> Written:
        """Write the table (see `groups`) and forget the rows.

        Args:
            path: of the parquet file.
            identity: run_id, experiment, data, model, seed, split and probe, the same in every row.
        """
        rows = undefined = 0

        def counted() -> Iterator[pa.Table]:
            nonlocal rows, undefined
            for group in self.groups(identity):
                rows += group.num_rows
                undefined += pc.sum(pc.is_nan(group["value"])).as_py() or 0
                yield group

        try:
            write_groups(SCHEMA, counted(), path)
        finally:
            self.close()
        return Written(rows, undefined)

    def close(self) -> None:
        """Forget the rows."""
        if self.spill is not None:
            self.spill.close()
        self.parts, self.held, self.spill = {}, 0, None

    def table(self, identity: dict[str, Any]) -> pa.Table:
        """All rows as one table in memory; see `groups`."""
        return pa.concat_tables(self.groups(identity))

    def groups(self, identity: dict[str, Any]) -> Iterator[pa.Table]:
        """All rows by metric, example and step, in tables of `row_group` rows, the last one of fewer."""
        names = sorted(self.parts)
        waiting: list[tuple[int, np.ndarray]] = []
        count = 0
        for number, metric in enumerate(names):
            for records in self.ordered(metric):
                while count + len(records) >= self.row_group:
                    full = self.row_group - count
                    yield _group(names, [*waiting, (number, records[:full])], identity)
                    waiting, count, records = [], 0, records[full:]
                if len(records):
                    waiting.append((number, records))
                    count += len(records)
        if waiting or not names or not any(self._count(name) for name in names):
            yield _group(names, waiting, identity)

    def _count(self, metric: str) -> int:
        return sum(map(len, self.parts[metric])) + (0 if self.spill is None else self.spill.count(metric))

    def ordered(self, metric: str) -> Iterator[np.ndarray]:
        """The records of one metric by example and step, a piece at a time."""
        if self.spill is None:
            yield ordered(self.parts[metric])
            return
        self._spill()
        yield from in_order(self.spill, metric, most=self.row_group, folder=self.folder)


def _group(names: list[str], parts: list[tuple[int, np.ndarray]], identity: dict[str, Any]) -> pa.Table:
    """Records of numbered metrics as a table."""
    records = np.concatenate([np.zeros(0, RECORD), *(part for _, part in parts)])
    metric = np.repeat(np.array([number for number, _ in parts], np.int32), [len(part) for _, part in parts])
    zeros = pa.array(np.zeros(len(records), np.int32))
    arrays: dict[str, pa.Array] = {
        name: pa.DictionaryArray.from_arrays(zeros, pa.array([str(identity[name])], pa.string()))
        for name in IDENTITY
        if name != "seed"
    }
    arrays["seed"] = pa.array(np.full(len(records), identity["seed"], np.int64))
    arrays["metric"] = pa.DictionaryArray.from_arrays(pa.array(metric), pa.array(names, pa.string()))
    arrays["example_id"] = pa.array(np.ascontiguousarray(records["example_id"]))
    arrays["step"] = pa.array(np.ascontiguousarray(records["step"]), from_pandas=True)  # NaN = no step = null
    # NaN stays NaN: an undefined number is reported, not missing
    arrays["value"] = pa.array(np.ascontiguousarray(records["value"]))
    return pa.Table.from_arrays([arrays[name] for name in COLUMNS], schema=SCHEMA)


def read_pieces(
    path: Path,
    *,
    metrics: Iterable[str] | None = None,
    with_steps: bool | None = None,
    example_ids: Iterable[int] | None = None,
) -> Iterator[pa.Table]:
    """The rows of one table, a row group at a time: what is not asked for is never in memory as a whole.

    Args:
        path: of the parquet file.
        metrics: only these.
        with_steps: True: only rows with a step (a position, a fraction); False: only those without.
        example_ids: only these examples'.

    Raises:
        DamagedRun: it is no table.
    """
    try:
        yield from _read_pieces(path, metrics, with_steps, example_ids)
    except (pa.ArrowException, OSError, KeyError) as error:
        raise damaged(path, first_line(error)) from None


def _read_pieces(
    path: Path, metrics: Iterable[str] | None, with_steps: bool | None, example_ids: Iterable[int] | None
) -> Iterator[pa.Table]:
    wanted = None if metrics is None else sorted(set(metrics))
    ids = None if example_ids is None else pa.array(sorted(set(example_ids)), pa.int64())
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        for number in range(file.num_row_groups):
            if not _may_hold(file.metadata.row_group(number), wanted, with_steps):
                continue
            group = file.read_row_group(number, columns=list(COLUMNS), use_threads=False)
            if wanted is not None:
                group = group.filter(pc.is_in(group["metric"].cast(pa.string()), pa.array(wanted, pa.string())))
            if with_steps is not None:
                group = group.filter(pc.is_valid(group["step"]) if with_steps else pc.is_null(group["step"]))
            if ids is not None:
                group = group.filter(pc.is_in(group["example_id"], ids))
            if group.num_rows:
                yield group


def metrics_in(path: Path) -> list[str]:
    """The metrics that a table has numbers of, sorted.

    Raises:
        DamagedRun: it is no table.
    """
    found: set[str] = set()
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            for number in range(file.num_row_groups):
                column = file.read_row_group(number, columns=["metric"], use_threads=False)["metric"]
                found.update(pc.unique(column.cast(pa.string())).to_pylist())
    except (pa.ArrowException, OSError, KeyError) as error:
        raise damaged(path, first_line(error)) from None
    return sorted(found)


def identity_in(path: Path) -> dict[str, Any] | None:
    """What identifies the first row of a table: run_id, experiment, data, model, seed, split, probe; None where it has no
    row.

    Raises:
        DamagedRun: it is no table.
    """
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            batches = file.iter_batches(batch_size=1, columns=list(IDENTITY), use_threads=False)
            return next((row for batch in batches for row in batch.to_pylist()), None)
    except (pa.ArrowException, OSError, KeyError) as error:
        raise damaged(path, first_line(error)) from None


def _may_hold(group: pq.RowGroupMetaData, metrics: Sequence[str] | None, with_steps: bool | None) -> bool:
    """Whether a row group can hold such rows, by its statistics: tables are sorted by metric."""
    of_metric, of_step = (group.column(COLUMNS.index(name)).statistics for name in ("metric", "step"))
    bounded = metrics is not None and of_metric is not None and of_metric.has_min_max
    if bounded and not any(of_metric.min <= metric <= of_metric.max for metric in metrics or ()):
        return False
    if with_steps is None or of_step is None or not of_step.has_null_count:
        return True
    return of_step.null_count < group.num_rows if with_steps else of_step.null_count > 0


IMPORTANCES = "importances"
"""Key of a table's `attrs` with the facts of its runs' importances: probe → name in the metrics → facts."""

Told = dict[str, dict[str, dict[str, Any]]]


def told(manifests: Iterable[Mapping[str, Any]]) -> Told:
    """What these manifests say of importances, by probe (two may file different ones under one name) and by the name in its
    metrics, in the order in which the probe took them; of several manifests the first that says something counts."""
    facts: Told = {}
    for manifest in manifests:
        for probe, entry in manifest.get("tables", {}).items():
            for name, said in entry.get("importances", {}).items():
                facts.setdefault(probe, {}).setdefault(name, said)
    return facts


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
        UserError: no finished run there, or no sound one. Of several runs those that are damaged are left out, and
            named in a `DamagedRunWarning`.
    """
    wanted = None if probe is None else {probe} if isinstance(probe, str) else set(probe)

    def chosen(run: RunDirectory) -> list[str]:
        return [name for name in run.probes() if wanted is None or name in wanted]

    found = find_runs(directory_or_glob, lambda run: run.verify(map(table_file, chosen(run))))
    tables = [run.table(name) for run in map(RunDirectory, found) for name in chosen(run)]
    if not tables:
        return SCHEMA.empty_table().to_pandas()
    results = pa.concat_tables(tables).unify_dictionaries().combine_chunks().to_pandas()
    results.attrs[IMPORTANCES] = told(RunDirectory(run).manifest() for run in found)
    return results


def read_examples(
    directory: str | os.PathLike, split: str = "test", example_ids: Iterable[int] | None = None
) -> pd.DataFrame:
    """One row per example of a finished run: example_id, label, prediction, probability, tokens, attention.

    Args:
        directory: the run's.
        split: whose examples.
        example_ids: only these; None: all.

    Raises:
        UserError: no finished run there, or it has no examples of this split.
        DamagedRun: they are not as they were written.
    """
    return RunDirectory(directory).examples(split, example_ids=example_ids).to_pandas()
