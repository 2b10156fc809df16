"""The long tables: how numbers become one, and how those of many runs are read back."""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from attnprobe.results.directory import (
    IDENTITY,
    SCHEMA,
    SITE,
    SITED,
    UNTESTED,
    RunDirectory,
    find_runs,
)
from attnprobe.results.files import write_table
from attnprobe.results.pivot import ASKED, REPEATS

# Reading


def read_rows(
    files: Sequence[Path],
    metrics: Collection[str] | None = None,
    stepped: Collection[str] | None = None,
    example_ids: Iterable[int] | None = None,
    columns: Sequence[str] = tuple(SITED.names),
) -> pa.Table:
    """Rows of long tables, with the columns of `SITED`. Row groups of rows with a step are skipped
    where none are asked for.

    Args:
        files: parquet files of tables.
        metrics: of which rows without a step are read; None: of all.
        stepped: of which rows with a step (a position, a fraction) are read; None: of all.
        example_ids: only these examples' rows with a step; None: all examples'.
        columns: only these.
    """
    if not files:
        return SITED.empty_table().select(columns)

    plain, others = (
        # without names it is known before a row is read, so that row groups can be skipped
        ds.field("metric").isin(pa.array(list(names), pa.string()))
        if names
        else ds.scalar(names is None)
        for names in (metrics, stepped)
    )
    plain = ds.field("step").is_null() & plain
    others = ds.field("step").is_valid() & others
    if example_ids is not None:
        others &= ds.field("example_id").isin(pa.array(list(example_ids), pa.int64()))
    tables = ds.dataset(list(map(str, files)), schema=SITED)
    return tables.to_table(list(columns), filter=plain | others, use_threads=False)


class Contents(NamedTuple):
    """What a table has numbers of: its metrics, sorted, and what identifies its first row
    (`IDENTITY`), None without rows."""

    metrics: list[str]
    identity: dict[str, Any] | None


def contents_of(table: Path | pd.DataFrame) -> Contents:
    """What a table has numbers of; a file is read once per process as long as it stays as it is."""
    if isinstance(table, Path):
        return _contents_of(table, table.stat().st_mtime_ns)
    first: list[Any] = table[list(IDENTITY)].iloc[:1].astype(object).to_dict("records")
    return Contents(sorted(map(str, table["metric"].unique())), next(iter(first), None))


@lru_cache(maxsize=4096)
def _contents_of(path: Path, mtime: int) -> Contents:
    table = ds.dataset(str(path))
    metrics = pc.unique(table.to_table(["metric"], use_threads=False)["metric"].cast(pa.string()))
    return Contents(
        sorted(metrics.to_pylist()), next(iter(table.head(1, list(IDENTITY)).to_pylist()), None)
    )


def frame_of(rows: pa.Table) -> pd.DataFrame:
    """Rows of `read_rows` or `Rows.table` as a DataFrame with the columns of `SITED`. The text
    columns are categories: those that occur, sorted; an empty site is the model's own attention."""
    names = [field.name for field in SITED if pa.types.is_dictionary(field.type)]
    if SITE not in rows.column_names:
        rows = rows.append_column(SITED.field(SITE), pa.nulls(len(rows), SITED.field(SITE).type))
    frame = rows.unify_dictionaries().to_pandas()
    frame[SITE] = frame[SITE].cat.set_categories({*frame[SITE].cat.categories, ""}).fillna("")
    for name in names:
        frame[name] = frame[name].cat.set_categories(sorted(frame[name].unique()))
    return frame


IMPORTANCES = "importances"
RANGES = "ranges"
"""Keys of a table's `attrs`: the facts of its runs' importances (probe → name in the metrics →
facts), the least and the greatest that each metric can be (probe → metric → both)."""


class Told(dict[str, Any]):
    """What runs say of themselves, never changed once it stands in a table's `attrs`: pandas copies
    those, deeply, with every column that is taken, and a report takes thousands."""

    def __deepcopy__(self, memo: dict[int, Any]) -> "Told":
        return self


def told(manifests: Iterable[Mapping[str, Any]]) -> Told:
    """What these manifests say of importances, by probe (two may file different ones under one
    name) and by the name in its metrics, in the order in which the probe took them; of several
    manifests the first that says something counts."""
    facts = Told()
    for manifest in manifests:
        for probe, entry in manifest.get("tables", {}).items():
            for name, said in entry.get("importances", {}).items():
                facts.setdefault(probe, {}).setdefault(name, said)
    return facts


def repeats_of(run: RunDirectory) -> frozenset[int]:
    """The test examples whose words, and question, an earlier one has as well: they say nothing new
    of other texts."""
    texts = _texts_of(run)
    return frozenset(texts.index[texts.duplicated()].tolist())


def first_of_text(run: RunDirectory) -> dict[int, int]:
    """The test examples whose words an earlier one has, which is asked something else → the first
    of these: questions about one text are resampled together."""
    texts = _texts_of(run).drop_duplicates()
    if texts.empty:
        return {}
    first = texts.index.to_series().groupby(texts["tokens"]).transform("first")
    changed = first[first != first.index]
    return dict(zip(changed.index.tolist(), changed.tolist(), strict=True))


def _texts_of(run: RunDirectory) -> pd.DataFrame:
    """The words, and the questions where there are some, of the test examples, by their number."""
    texts = [pd.DataFrame()]
    for split in (one for one in run.splits() if one not in UNTESTED):
        names = [
            name for name in ("tokens", "question") if name in run.example_columns(split).names
        ]
        if names:
            table = run.examples(split, ["example_id", *names])
            joined = {name: pc.binary_join(table[name], "\0").to_pandas() for name in names}
            texts.append(pd.DataFrame(joined).set_axis(table["example_id"].to_pandas()))
    return pd.concat(texts)


def attrs_of(runs: Sequence[RunDirectory]) -> dict[str, Told]:
    """What the report knows of these runs beside their numbers, as a table's `attrs` hold it."""
    manifests = [run.manifest() for run in runs]
    ranges = Told()
    repeats = Told()
    asked = Told()
    for manifest, run in zip(manifests, runs, strict=True):
        for probe, entry in manifest["tables"].items():
            for name, said in entry.get("metrics", {}).items():
                ranges.setdefault(probe, {})[name] = (said.get("low"), said.get("high"))
        if again := repeats_of(run):
            repeats[manifest["run_id"]] = again
        if first := first_of_text(run):
            asked[manifest["run_id"]] = first
    return {IMPORTANCES: told(manifests), RANGES: ranges, REPEATS: repeats, ASKED: asked}


def read_results(
    directory_or_glob: str | os.PathLike | Iterable[str | os.PathLike],
    probe: str | Sequence[str] | None = None,
) -> pd.DataFrame:
    """The long tables of one run or many as one DataFrame.

    Args:
        directory_or_glob: a run directory, a directory above several runs, a glob pattern, or a
            list of these.
        probe: read only these probes' tables.

    Returns:
        Columns `run_id experiment data model seed split probe metric example_id step value site`;
        one row is one number about one example (`example_id` −1: about the whole split), and about
        one of the model's attentions (`site`; empty: its own). The text columns are categories.

    Raises:
        UserError: no finished run there, or no sound one. Of several runs those that are damaged
            are left out, and named in a `DamagedRunWarning`.
    """
    wanted = None if probe is None else {probe} if isinstance(probe, str) else set(probe)
    runs = list(
        map(RunDirectory, find_runs(directory_or_glob, lambda run: run.verify_tables(wanted)))
    )
    results = frame_of(
        read_rows([run.file(name) for run in runs for name in run.verify_tables(wanted)])
    )
    results.attrs.update(attrs_of(runs))
    return results


def read_examples(
    directory: str | os.PathLike, split: str = "test", example_ids: Iterable[int] | None = None
) -> pd.DataFrame:
    """One row per example of a finished run: example_id, label, prediction, probability, tokens,
    attention.

    Args:
        directory: the run's.
        split: whose examples.
        example_ids: only these; None: all.

    Raises:
        UserError: no finished run there, or it has no examples of this split.
        DamagedRun: they are not as they were written.
    """
    return RunDirectory(directory).examples(split, example_ids=example_ids).to_pandas()


# Writing

ROW_GROUP = 1 << 15
"""Rows of a table in one piece, or more where metrics have few: with four times as many, writing
and reading take 70 MB more, and the file is no smaller."""

Extremes = dict[str, tuple[float, float] | None]
"""Metric → its smallest and its largest number; None where all are undefined."""


class Written(NamedTuple):
    """What was written: `rows`, of these `undefined`, whose value is NaN, and every metric's
    `extremes`."""

    rows: int
    undefined: int
    extremes: Extremes


@dataclass
class Rows:
    """Numbers on their way into one table; neither the order in which they are added nor their
    number at a time ever shows in the table. `columns`: (metric, site) → the example ids, steps
    (NaN: none) and values, as they came: 24 bytes each."""

    columns: dict[tuple[str, str], tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]] = (
        field(default_factory=dict)
    )

    def add(
        self,
        metric: str,
        example_id: np.ndarray,
        value: np.ndarray,
        step: np.ndarray | None = None,
        site: str = "",
    ) -> None:
        """Add one number per example (`value [n]`), or several with their steps (`value [n, k]`,
        `step [k]` or `[n, k]`). Rows whose step is NaN are dropped: that is how ragged examples
        leave out their padding.

        `site`: which of the model's attentions they are about; empty: its own.
        """
        example_id = np.array(example_id, np.int64)
        value = np.array(value, np.float64)
        if value.shape[:1] != example_id.shape:
            raise ValueError(
                f"{metric}: {len(example_id)} example ids for values of shape {value.shape}"
            )
        if step is None:
            if value.ndim != 1:
                raise ValueError(f"{metric}: values of shape {value.shape} need a step")
            counts = np.ones(len(value), np.int64)
            at = np.full(len(value), np.nan)
        else:
            step = np.broadcast_to(np.asarray(step, np.float64), value.shape)
            keep = ~np.isnan(step)
            counts = keep.sum(1)
            at = step[keep]
            value = value[keep]
        if len(value):
            parts = (np.repeat(example_id, counts), at, value)
            for column, part in zip(
                self.columns.setdefault((metric, site), ([], [], [])), parts, strict=True
            ):
                column.append(part)

    def write(self, path: Path, identity: dict[str, Any]) -> Written:
        """Write the table, and forget the rows. `identity`: run_id, experiment, data, model, seed,
        split and probe of every row."""
        rows = undefined = 0
        extremes: Extremes = {}
        for (metric, _), columns in sorted(self.columns.items(), key=lambda pair: pair[0]):
            values = np.concatenate(columns[2])
            known = values[~np.isnan(values)]
            rows = rows + len(values)
            undefined = undefined + len(values) - len(known)
            low, high = extremes.get(metric) or (np.inf, -np.inf)
            low = known.min(initial=low)
            high = known.max(initial=high)
            extremes[metric] = (float(low), float(high)) if low <= high else None
        write_table(self.groups(identity), path, self.schema)
        self.columns = {}
        return Written(rows, undefined, extremes)

    @property
    def schema(self) -> pa.Schema:
        """The table's: with a column of sites where some numbers are about another attention than
        the model's own."""
        return SITED if any(site for _, site in self.columns) else SCHEMA

    def table(self, identity: dict[str, Any]) -> pa.Table:
        """All rows as one table in memory; see `groups`."""
        return pa.concat_tables([self.schema.empty_table(), *self.groups(identity)])

    def groups(self, identity: dict[str, Any]) -> Iterator[pa.Table]:
        """All rows by metric, site, example and step, in tables of at least `ROW_GROUP` rows, the
        last one of fewer."""
        waiting = [self.schema.empty_table()]
        count = 0
        for (metric, site), columns in sorted(self.columns.items(), key=lambda pair: pair[0]):
            for parts in columns:
                parts[:] = [np.concatenate(parts)]  # never held twice
            order = np.lexsort((np.nan_to_num(columns[1][0], nan=-np.inf), columns[0][0]))
            for parts in columns:
                parts[:] = [parts[0][order]]
            (owner,), (step,), (value,) = columns
            for start in range(0, len(owner), ROW_GROUP):
                part = slice(start, start + ROW_GROUP)
                names = identity | {"metric": metric, SITE: site}
                same = {
                    name: pa.repeat(names[name], len(owner[part]))
                    for name in (*IDENTITY, "metric", SITE)
                }
                # NaN = no step = null; a value of NaN stays: an undefined number is reported, not
                # missing
                own = {
                    "example_id": owner[part],
                    "step": pa.array(step[part], from_pandas=True),
                    "value": value[part],
                }
                waiting.append(pa.table(same | own).select(self.schema.names).cast(self.schema))
                count += len(owner[part])
                if count >= ROW_GROUP:
                    yield pa.concat_tables(waiting).unify_dictionaries().combine_chunks()
                    waiting = []
                    count = 0
        if count:
            yield pa.concat_tables(waiting).unify_dictionaries().combine_chunks()
