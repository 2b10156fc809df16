"""The long tables: their columns, how rows become one, and how the tables of many runs are read back."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from attnprobe.results.checksums import damaged
from attnprobe.results.directory import RunDirectory, first_line, table_file
from attnprobe.results.finding import find_runs
from attnprobe.results.schema import COLUMNS, IDENTITY, SITE, SITED

PIECE = 1 << 14
"""Rows of a table that are read at a time."""


def read_pieces(
    path: Path,
    *,
    metrics: Iterable[str] | None = None,
    with_steps: bool | None = None,
    example_ids: Iterable[int] | None = None,
) -> Iterator[pa.Table]:
    """The rows of one table, `PIECE` of them at a time: what is not asked for is never in memory as a whole.

    Args:
        path: of the parquet file.
        metrics: only these.
        with_steps: True: only rows with a step (a position, a fraction); False: only those without.
        example_ids: only these examples'.

    Raises:
        DamagedRun: it is not a table.
    """
    try:
        yield from _read_pieces(path, metrics, with_steps, example_ids)
    except (pa.ArrowException, OSError, KeyError) as error:
        raise damaged(path, first_line(error)) from None
    finally:
        # Arrow keeps the memory that it has read into, for the next table: of 100,000 texts some 15 MB
        pa.default_memory_pool().release_unused()


def _read_pieces(
    path: Path, metrics: Iterable[str] | None, with_steps: bool | None, example_ids: Iterable[int] | None
) -> Iterator[pa.Table]:
    wanted = None if metrics is None else sorted(set(metrics))
    ids = None if example_ids is None else pa.array(sorted(set(example_ids)), pa.int64())
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        columns = [*COLUMNS, *([SITE] if SITE in file.schema_arrow.names else [])]
        groups = [
            number
            for number in range(file.num_row_groups)
            if _may_hold(file.metadata.row_group(number), wanted, with_steps)
        ]
        for rows in file.iter_batches(PIECE, row_groups=groups, columns=columns, use_threads=False):
            keep = []
            if wanted is not None:
                known = pc.is_in(rows["metric"].dictionary, pa.array(wanted, pa.string()))
                keep.append(known.take(rows["metric"].indices))
            if with_steps is not None:
                keep.append(pc.is_valid(rows["step"]) if with_steps else pc.is_null(rows["step"]))
            if ids is not None:
                keep.append(pc.is_in(rows["example_id"], ids))
            piece = rows.filter(reduce(pc.and_, keep)) if keep else rows
            if piece.num_rows:
                yield pa.Table.from_batches([piece])


def metrics_in(path: Path) -> list[str]:
    """The metrics that a table has numbers of, sorted.

    Raises:
        DamagedRun: it is not a table.
    """
    names: set[str] = set()
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            for rows in file.iter_batches(PIECE, columns=["metric"], use_threads=False):
                names.update(rows["metric"].dictionary.take(pc.unique(rows["metric"].indices)).to_pylist())
    except (pa.ArrowException, OSError, KeyError) as error:
        raise damaged(path, first_line(error)) from None
    return sorted(names)


def sites_in(path: Path, metric: str) -> list[str]:
    """The sites that a table has numbers of this metric for, sorted; one without a name in a table of one site.

    Raises:
        DamagedRun: it is not a table.
    """
    pieces = read_pieces(path, metrics=[metric])
    names = {
        site for one in pieces for site in (pc.unique(one[SITE]).to_pylist() if SITE in one.column_names else [""])
    }
    return sorted(names)


def identity_in(path: Path) -> dict[str, Any] | None:
    """What identifies the first row of a table: run_id, experiment, data, model, seed, split, probe; None where it has no
    row.

    Raises:
        DamagedRun: it is not a table.
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


class Told(dict[str, dict[str, dict[str, Any]]]):
    """The facts of importances by probe and name, never changed once they stand in a table's `attrs`: pandas copies those,
    deeply, with every column that is taken, and a report takes thousands."""

    def __deepcopy__(self, memo: dict[int, Any]) -> "Told":
        return self


def told(manifests: Iterable[Mapping[str, Any]]) -> Told:
    """What these manifests say of importances, by probe (two may file different ones under one name) and by the name in its
    metrics, in the order in which the probe took them; of several manifests the first that says something counts."""
    facts = Told()
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
        Columns `run_id experiment data model seed split probe metric example_id step value site`; one row is one number
        about one example (`example_id` −1: about the whole split), and about one of the model's attentions (`site`; empty:
        its own). The text columns are categories.

    Raises:
        UserError: no finished run there, or no sound one. Of several runs those that are damaged are left out, and
            named in a `DamagedRunWarning`.
    """
    wanted = None if probe is None else {probe} if isinstance(probe, str) else set(probe)

    def chosen(run: RunDirectory) -> list[str]:
        return [name for name in run.probes() if wanted is None or name in wanted]

    directories = find_runs(directory_or_glob, lambda run: run.verify(map(table_file, chosen(run))))
    tables = [with_site(run.table(name)) for run in map(RunDirectory, directories) for name in chosen(run)]
    if not tables:
        return SITED.empty_table().to_pandas()
    results = pa.concat_tables(tables).unify_dictionaries().combine_chunks().to_pandas()
    results.attrs[IMPORTANCES] = told(RunDirectory(run).manifest() for run in directories)
    return results


def with_site(table: pa.Table) -> pa.Table:
    """A table with the column `site`, empty where it had none: its numbers are about the model's own attention."""
    if SITE in table.column_names:
        return table
    own = pa.DictionaryArray.from_arrays(
        pa.repeat(pa.scalar(0, pa.int32()), table.num_rows), pa.array([""], pa.string())
    )
    return table.append_column(SITED.field(SITE), own)


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
