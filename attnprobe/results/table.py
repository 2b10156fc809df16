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

from attnprobe.core.metrics import ANY_NUMBER, Scale
from attnprobe.results.directory import (
    IDENTITY,
    SCHEMA,
    SITE,
    SITED,
    UNTESTED,
    Places,
    RunDirectory,
    find_runs,
)
from attnprobe.results.files import write_table
from attnprobe.results.pivot import ASKED, ASKED_LABELS, REPEATS

# Reading


def read_rows(
    files: Sequence[Path],
    metrics: Collection[str] | None = None,
    stepped: Collection[str] | None = None,
    example_ids: Iterable[int] | None = None,
    columns: Sequence[str] = tuple(SITED.names),
) -> pa.Table:
    """Rows of long tables, with the columns of `SITED`.

    Row groups of rows with a step are skipped where none are queried.

    Args:
        files: parquet files of tables.
        metrics: of which rows without a step are read; None: of all.
        stepped: of which rows with a step (a position, a fraction) are read; None: of all.
        example_ids: only these examples' rows with a step; None: all examples'.
        columns: only these.
    """
    if not files:
        return SITED.empty_table().select(columns)

    without_step = ds.field("step").is_null() & _is_metric(metrics)
    with_step = ds.field("step").is_valid() & _is_metric(stepped)
    if example_ids is not None:
        with_step &= ds.field("example_id").isin(pa.array(list(example_ids), pa.int64()))
    tables = ds.dataset(list(map(str, files)), schema=SITED)
    return tables.to_table(list(columns), filter=without_step | with_step, use_threads=False)


def _is_metric(names: Collection[str] | None) -> ds.Expression:
    """Whether a row is of one of these metrics; None: of any."""
    if names:
        return ds.field("metric").isin(pa.array(list(names), pa.string()))
    # without names it is known before a row is read, so that row groups can be skipped
    return ds.scalar(names is None)


class Contents(NamedTuple):
    """What a table has numbers of.

    Attributes:
        metrics: sorted.
        identity: what identifies its first row (`IDENTITY`); None without rows.
    """

    metrics: list[str]
    identity: dict[str, Any] | None


def contents_of(table: Path | pd.DataFrame) -> Contents:
    """What a table has numbers of; a file is read once per process as long as it stays as it is."""
    if isinstance(table, Path):
        return _contents_of(table, table.stat().st_mtime_ns)
    first_row: list[Any] = table[list(IDENTITY)].iloc[:1].astype(object).to_dict("records")
    return Contents(sorted(map(str, table["metric"].unique())), next(iter(first_row), None))


@lru_cache(maxsize=4096)
def _contents_of(path: Path, mtime: int) -> Contents:
    table = ds.dataset(str(path))
    metrics = pc.unique(table.to_table(["metric"], use_threads=False)["metric"].cast(pa.string()))
    first_row = table.head(1, list(IDENTITY)).to_pylist()
    return Contents(sorted(metrics.to_pylist()), next(iter(first_row), None))


def frame_of(rows: pa.Table) -> pd.DataFrame:
    """Rows of `read_rows` or `Rows.table` as a DataFrame with the columns of `SITED`.

    The text columns are categories: those that occur, sorted. An empty site is the model's own
    attention.
    """
    names = [field.name for field in SITED if pa.types.is_dictionary(field.type)]
    if SITE not in rows.column_names:
        rows = rows.append_column(SITED.field(SITE), pa.nulls(len(rows), SITED.field(SITE).type))
    frame = rows.unify_dictionaries().to_pandas()
    if frame[SITE].isna().any():
        frame[SITE] = frame[SITE].cat.set_categories({*frame[SITE].cat.categories, ""}).fillna("")
    for name in names:
        frame[name] = _with_occurring_categories(frame[name])
    return frame


def _with_occurring_categories(column: pd.Series) -> pd.Series:
    """A column without missing values, whose categories are those that occur, sorted."""
    categories = column.cat.categories
    counts = np.bincount(column.cat.codes, minlength=len(categories))
    occurring = sorted(categories[counts > 0])
    if occurring == list(categories):  # as in most tables, which are of one run
        return column
    return column.cat.set_categories(occurring)


IMPORTANCES = "importances"
"""Key of a table's `attrs`: facts of its runs' importances, probe → name in the metrics → facts."""
SCALES = "scales"
"""Key of a table's `attrs`: probe → metric → its facts, `unit`, `low` and `high` among them."""


class Told(dict[str, Any]):
    """What runs say of themselves, never changed once it stands in a table's `attrs`.

    pandas copies those, deeply, with every column that is taken, and a report takes thousands.
    """

    def __deepcopy__(self, memo: dict[int, Any]) -> "Told":
        return self


def told(manifests: Iterable[Mapping[str, Any]]) -> Told:
    """What manifests say of importances: probe → name in its metrics → facts.

    By probe, as two may file different importances under one name. Of several manifests the first
    that says something counts.
    """
    importances = Told()
    for manifest in manifests:
        for probe, entry in manifest.get("tables", {}).items():
            for name, facts in entry.get("importances", {}).items():
                importances.setdefault(probe, {}).setdefault(name, facts)
    return importances


def scale_of(results: pd.DataFrame, probe: str, metric: str) -> Scale:
    """The unit of a metric and what it can be, as the results' runs say it."""
    facts = results.attrs.get(SCALES, {}).get(probe, {}).get(metric)
    return ANY_NUMBER if facts is None else Scale.of(facts)


def texts_of(run: RunDirectory) -> pd.DataFrame:
    """The words, and the questions where there are some, of the test examples, by their number."""
    texts = [pd.DataFrame()]
    for split in run.splits():
        if split in UNTESTED:
            continue
        known_columns = run.example_columns(split).names
        columns = [name for name in ("tokens", "question") if name in known_columns]
        if columns:
            table = run.examples(split, ["example_id", *columns])
            joined = {name: pc.binary_join(table[name], "\0").to_pandas() for name in columns}
            texts.append(pd.DataFrame(joined).set_axis(table["example_id"].to_pandas()))
    return pd.concat(texts)


def repeats_of(texts: pd.DataFrame) -> list[int]:
    """The examples whose words, and question, an earlier one has as well.

    They say nothing new about other texts.

    Args:
        texts: as `texts_of` gives them.
    """
    return texts.index[texts.duplicated()].tolist()


def first_of_text(texts: pd.DataFrame) -> dict[str, int]:
    """Examples with another question about an earlier one's words → the first of these.

    Questions about one text are resampled together. Examples are written out, as keys in JSON are.

    Args:
        texts: as `texts_of` gives them.
    """
    questions = texts.drop_duplicates()
    if questions.empty:
        return {}
    first = questions.index.to_series().groupby(questions["tokens"]).transform("first")
    changed = first[first != first.index]
    return dict(zip(changed.index.astype(str), changed.tolist(), strict=True))


def asked_labels(manifest: Mapping[str, Any], texts: pd.DataFrame) -> dict[str, str]:
    """The label that each example, written out, asks for; none where rows ask for none.

    Args:
        manifest: of the run.
        texts: as `texts_of` gives them.
    """
    data = manifest.get("training", {}).get("data", {})
    if data.get("question_kind") != "label":
        return {}
    questions = texts["question"]
    return dict(zip(questions.index.astype(str), questions.astype(str), strict=True))


def attrs_of(runs: Sequence[tuple[Mapping[str, Any], RunDirectory]]) -> dict[str, Told]:
    """What the report knows of these runs beside their numbers, as a table's `attrs` hold it.

    It is of JSON's types, so that pandas keeps it in a Parquet file.

    Args:
        runs: each with its manifest, of which `run_id`, `tables` and `training` are read.
    """
    scales = Told()
    repeats = Told()
    first_texts = Told()
    labels = Told()
    for manifest, run in runs:
        for probe, entry in manifest["tables"].items():
            for name, facts in entry.get("metrics", {}).items():
                scales.setdefault(probe, {})[name] = facts
        texts = texts_of(run)
        run_repeats = repeats_of(texts)
        if run_repeats:
            repeats[manifest["run_id"]] = run_repeats
        run_first_texts = first_of_text(texts)
        if run_first_texts:
            first_texts[manifest["run_id"]] = run_first_texts
        run_labels = asked_labels(manifest, texts)
        if run_labels:
            labels[manifest["run_id"]] = run_labels
    return {
        IMPORTANCES: told(manifest for manifest, _ in runs),
        SCALES: scales,
        REPEATS: repeats,
        ASKED: first_texts,
        ASKED_LABELS: labels,
    }


def read_results(
    directory_or_glob: Places,
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
    probes = {probe} if isinstance(probe, str) else probe
    paths = find_runs(directory_or_glob, lambda run: run.verify_tables(probes))
    runs = [RunDirectory(path) for path in paths]
    tables = [run.file(name) for run in runs for name in run.verify_tables(probes)]
    results = frame_of(read_rows(tables))
    results.attrs.update(attrs_of([(run.manifest(), run) for run in runs]))
    return results


def read_examples(
    directory: str | os.PathLike, split: str = "test", example_ids: Iterable[int] | None = None
) -> pd.DataFrame:
    """One row per example of a finished run.

    Columns: example_id, label, prediction, probability, tokens, attention.

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
"""Rows of a row group, or more where metrics have few.

With four times as many, writing and reading take 70 MB more, and the file is no smaller.
"""

Extremes = dict[str, tuple[float, float] | None]
"""Metric → its smallest and its largest number; None where all are undefined."""


class Written(NamedTuple):
    """What was written.

    Attributes:
        rows: how many.
        undefined: those whose value is NaN.
        extremes: of every metric.
    """

    rows: int
    undefined: int
    extremes: Extremes


@dataclass
class MetricColumns:
    """Numbers of one metric, in the pieces in which they came: 24 bytes each.

    Attributes:
        example_id: of each number.
        step: of each number; NaN: none.
        value: the numbers.
    """

    example_id: list[np.ndarray] = field(default_factory=list)
    step: list[np.ndarray] = field(default_factory=list)
    value: list[np.ndarray] = field(default_factory=list)

    def sort(self) -> None:
        """Join the pieces, by example and step; of each column, both are never held at once."""
        for column in (self.example_id, self.step, self.value):
            column[:] = [np.concatenate(column)]
        order = np.lexsort((np.nan_to_num(self.step[0], nan=-np.inf), self.example_id[0]))
        for column in (self.example_id, self.step, self.value):
            column[:] = [column[0][order]]


@dataclass
class Rows:
    """Numbers on their way into one table.

    Neither the order in which they are added nor their number at a time shows in the table.

    Attributes:
        columns: by metric and site.
    """

    columns: dict[tuple[str, str], MetricColumns] = field(default_factory=dict)

    def add(
        self,
        metric: str,
        example_id: np.ndarray,
        value: np.ndarray,
        step: np.ndarray | None = None,
        site: str = "",
    ) -> None:
        """Add one number per example, or several with their steps.

        Args:
            metric: its name.
            example_id: `[n]`.
            value: `[n]`, or `[n, k]` with steps.
            step: `[k]` or `[n, k]`. Numbers whose step is NaN are dropped: that is how ragged
                examples leave out their padding.
            site: which of the model's attentions they are about; empty: its own.

        Raises:
            ValueError: if the shapes do not fit.
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
            step = np.full(len(value), np.nan)
        else:
            step = np.broadcast_to(np.asarray(step, np.float64), value.shape)
            is_step = ~np.isnan(step)
            example_id = np.repeat(example_id, is_step.sum(1))
            step = step[is_step]
            value = value[is_step]
        if len(value):
            columns = self.columns.setdefault((metric, site), MetricColumns())
            columns.example_id.append(example_id)
            columns.step.append(step)
            columns.value.append(value)

    def join(self, other: "Rows") -> None:
        """Add the numbers of other examples, as another device measured them."""
        for key, more in other.columns.items():
            columns = self.columns.setdefault(key, MetricColumns())
            columns.example_id += more.example_id
            columns.step += more.step
            columns.value += more.value

    def copy(self) -> "Rows":
        """The same numbers, which are not forgotten when these are written."""
        return Rows(
            {
                key: MetricColumns(
                    list(columns.example_id), list(columns.step), list(columns.value)
                )
                for key, columns in self.columns.items()
            }
        )

    def per_example(self) -> "Rows":
        """The metrics that have one number per example, without those that have steps."""
        rows = self.copy()
        for key, columns in self.columns.items():
            if not all(np.isnan(step).all() for step in columns.step):
                del rows.columns[key]
        return rows

    def write(self, path: Path, identity: dict[str, Any]) -> Written:
        """Write the table, and forget the rows.

        Args:
            path: of the file.
            identity: run_id, experiment, data, model, seed, split and probe of every row.
        """
        rows = 0
        undefined = 0
        extremes: Extremes = {}
        for (metric, _), columns in sorted(self.columns.items(), key=lambda pair: pair[0]):
            values = np.concatenate(columns.value)
            defined = values[~np.isnan(values)]
            rows += len(values)
            undefined += len(values) - len(defined)
            low, high = extremes.get(metric) or (np.inf, -np.inf)
            low = defined.min(initial=low)
            high = defined.max(initial=high)
            extremes[metric] = (float(low), float(high)) if low <= high else None
        write_table(self.groups(identity), path, self.schema)
        self.columns = {}
        return Written(rows, undefined, extremes)

    @property
    def schema(self) -> pa.Schema:
        """The table's; it has sites where a number is about another attention than the model's."""
        return SITED if any(site for _, site in self.columns) else SCHEMA

    def table(self, identity: dict[str, Any]) -> pa.Table:
        """All rows as one table in memory; see `groups`."""
        return pa.concat_tables([self.schema.empty_table(), *self.groups(identity)])

    def groups(self, identity: dict[str, Any]) -> Iterator[pa.Table]:
        """All rows by metric, site, example and step, in tables of at least `ROW_GROUP` rows.

        The last one may have fewer.
        """
        pending = [self.schema.empty_table()]
        count = 0
        for (metric, site), columns in sorted(self.columns.items(), key=lambda pair: pair[0]):
            columns.sort()
            names = identity | {"metric": metric, SITE: site}
            for start in range(0, len(columns.value[0]), ROW_GROUP):
                piece = self._piece(columns, slice(start, start + ROW_GROUP), names)
                pending.append(piece)
                count += len(piece)
                if count >= ROW_GROUP:
                    yield _joined(pending)
                    pending = []
                    count = 0
        if count:
            yield _joined(pending)

    def _piece(self, columns: MetricColumns, rows: slice, names: dict[str, Any]) -> pa.Table:
        """Some rows of sorted columns as a table; `names` are the same in all of them."""
        example_id = columns.example_id[0][rows]
        table = {name: pa.repeat(names[name], len(example_id)) for name in names}
        table["example_id"] = example_id
        # NaN = no step = null; a value of NaN stays: an undefined number is reported, not missing
        table["step"] = pa.array(columns.step[0][rows], from_pandas=True)
        table["value"] = columns.value[0][rows]
        return pa.table(table).select(self.schema.names).cast(self.schema)


def _joined(tables: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()
