"""The long tables: how numbers become one, and how those of many runs are read back."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from jaxtyping import Float, Int

from attnprobe.core.errors import UserError
from attnprobe.results.directory import (
    COLUMNS,
    IDENTITY,
    SCHEMA,
    SITE,
    SITED,
    UNTESTED,
    WHOLE_SPLIT,
    RunDirectory,
    examples_file,
    find_runs,
    reading_parquet,
    table_file,
)
from attnprobe.results.files import damaged, write_groups
from attnprobe.results.pivot import ASKED, REPEATS

# Reading


def read_rows(
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
        DamagedRun: it is not a table.
    """
    wanted = None if metrics is None else sorted(set(metrics))
    ids = None if example_ids is None else pa.array(sorted(set(example_ids)), pa.int64())
    with _reading(path) as file:
        columns = [*COLUMNS, *([SITE] if SITE in file.schema_arrow.names else [])]
        for number in range(file.num_row_groups):
            if not _may_hold(file.metadata.row_group(number), wanted, with_steps):
                continue
            rows = file.read_row_group(number, columns, use_threads=False)
            if wanted is not None:
                rows = rows.filter(pc.is_in(rows["metric"].cast(pa.string()), pa.array(wanted, pa.string())))
            if with_steps is not None:
                rows = rows.filter(pc.is_valid(rows["step"]) if with_steps else pc.is_null(rows["step"]))
            if ids is not None:
                rows = rows.filter(pc.is_in(rows["example_id"], ids))
            if rows.num_rows:
                yield rows


@contextmanager
def _reading(path: Path) -> Iterator[pq.ParquetFile]:
    with reading_parquet(path) as file:
        if not (file.schema_arrow.equals(SCHEMA) or file.schema_arrow.equals(SITED)):
            raise damaged(path, "its columns are not those of a table")
        yield file


def _may_hold(group: pq.RowGroupMetaData, metrics: Sequence[str] | None, with_steps: bool | None) -> bool:
    """Whether a row group can hold such rows, by its statistics: tables are sorted by metric, and pyarrow's own filters do
    not look at the statistics of a column of names (a dictionary)."""
    of_metric, of_step = (group.column(COLUMNS.index(name)).statistics for name in ("metric", "step"))
    bounded = metrics is not None and of_metric is not None and of_metric.has_min_max
    if bounded and not any(of_metric.min <= metric <= of_metric.max for metric in metrics or ()):
        return False
    if with_steps is None or of_step is None or not of_step.has_null_count:
        return True
    return of_step.null_count < group.num_rows if with_steps else of_step.null_count > 0


class Contents(NamedTuple):
    """What a table has numbers of: its metrics, sorted, and what identifies its first row (`IDENTITY`), None without rows."""

    metrics: list[str]
    identity: dict[str, Any] | None


def contents_of(path: Path) -> Contents:
    """What a table has numbers of; read once per process as long as the file stays as it is.

    Raises:
        DamagedRun: it is not a table.
    """
    try:
        state = path.stat()
    except OSError:
        return _contents_of(path, ())
    return _contents_of(path, (state.st_ino, state.st_size, state.st_mtime_ns))


@lru_cache(maxsize=4096)
def _contents_of(path: Path, state: tuple[int, ...]) -> Contents:
    names: set[str] = set()
    with _reading(path) as file:
        for number in range(file.num_row_groups):
            metric = file.read_row_group(number, ["metric"], use_threads=False)["metric"]
            names.update(pc.unique(metric.cast(pa.string())).to_pylist())
            group = file.metadata.row_group(number)
            for name, least in (("value", -sys.float_info.max), ("example_id", WHOLE_SPLIT)):
                held = group.column(COLUMNS.index(name)).statistics
                if held is not None and held.has_min_max and not least <= held.min <= held.max <= sys.float_info.max:
                    raise damaged(path, f"its column {name} holds {held.min if held.min < least else held.max}")
        first = next(file.iter_batches(1, columns=list(IDENTITY), use_threads=False), None) if names else None
    return Contents(sorted(names), None if first is None else first.to_pylist()[0])


DEPTHS = {"label": (0, 1), "prediction": (0, 1), "probability": (1,), "attention": (1,), "tokens": (1,),
          "word_attention": (2,), "words": (2,)}  # fmt: skip
"""Columns of examples that everything else is made of: how many lists stand within each other in a cell."""


def check_examples(run: RunDirectory, split: str) -> None:
    """Raises `DamagedRun` where examples are not such as a run writes: a column is missing or of another type, a cell is
    empty, a text has not as many weights as words, or a class is none that there is a probability for."""
    path, schema = run / examples_file(split), run.example_columns(split)
    columns = [name for name in DEPTHS if name in schema.names or name in ("label", "prediction")]
    for name in columns:
        kind, depth = schema.field(name).type if name in schema.names else pa.null(), 0
        while pa.types.is_list(kind):
            kind, depth = kind.value_type, depth + 1
        is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
        if depth not in DEPTHS[name] or not (pa.types.is_string(kind) if name in ("tokens", "words") else is_number):
            found = f"is of the type {schema.field(name).type}" if name in schema.names else "is missing"
            raise damaged(path, f"its column {name} {found}")
    for piece in run.example_pieces(split, columns):
        cells = {name: piece[name].combine_chunks() for name in columns}
        lists = {name for name, one in cells.items() if pa.types.is_list(one.type)}
        for name, one in cells.items():
            if one.null_count or (name in lists and one.flatten().null_count):
                raise damaged(path, f"its column {name} has an empty cell")
        lengths = {name: cells[name].value_lengths() for name in lists}
        if {"tokens", "attention"} <= lists and lengths["tokens"] != lengths["attention"]:
            raise damaged(path, "a text does not have as many weights as words")
        for name in ("label", "prediction") if "probability" in lists and len(piece) else ():
            low, high = pc.min_max(lengths[name] if name in lists else cells[name]).as_py().values()
            least, most = pc.min_max(lengths["probability"]).as_py().values()
            if least != most or not (low == high == most if name in lists else 0 <= low <= high < most):
                raise damaged(path, f"its column {name} names a class that there is no probability for")


def frame_of(tables: Iterable[pa.Table]) -> pd.DataFrame:
    """Rows of long tables, with or without the column of their sites, as one DataFrame.

    Returns:
        The columns of `SITED`; the text columns are categories: those that occur, sorted.
    """
    with_site = [SITED.empty_table()]
    for table in tables:
        if SITE not in table.column_names:  # its numbers are about the model's own attention
            none = pa.repeat(pa.scalar(0, pa.int32()), table.num_rows)
            own = pa.DictionaryArray.from_arrays(none, pa.array([""], pa.string()))
            table = table.append_column(SITED.field(SITE), own)
        with_site.append(table)
    rows = pa.concat_tables(with_site).unify_dictionaries().combine_chunks()
    frame = rows.to_pandas()
    for name in (field.name for field in SITED if pa.types.is_dictionary(field.type)):
        frame[name] = frame[name].cat.set_categories(sorted(frame[name].unique()))
    return frame


IMPORTANCES, RANGES = "importances", "ranges"
"""Keys of a table's `attrs`: the facts of its runs' importances (probe → name in the metrics → facts), the least and the
greatest that each metric can be (probe → metric → both)."""


class Told(dict[str, Any]):
    """What runs say of themselves, never changed once it stands in a table's `attrs`: pandas copies those, deeply, with every
    column that is taken, and a report takes thousands."""

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


def tested_files(run: RunDirectory) -> list[str]:
    """The files that hold the examples that probes were run on."""
    return [examples_file(split) for split in run.splits() if split not in UNTESTED]


def repeats_of(run: RunDirectory) -> frozenset[int]:
    """The test examples whose words, and question, an earlier one has as well: they say nothing new of other texts."""
    return _copies(run)[0]


def first_of_text(run: RunDirectory) -> dict[int, int]:
    """The test examples whose words an earlier one has, which is asked something else → the first of these: questions about
    one text are resampled together."""
    return _copies(run)[1]


def _copies(run: RunDirectory) -> tuple[frozenset[int], dict[int, int]]:
    known, again, first, asked = set[int](), set[int](), dict[int, int](), dict[int, int]()
    for split in (one for one in run.splits() if one not in UNTESTED):
        columns = [name for name in ("tokens", "question") if name in run.example_columns(split).names]
        for piece in run.example_pieces(split, columns) if columns else ():
            texts = (pc.binary_join(piece[name], "\0").to_pylist() for name in columns)
            for number, *words in zip(piece["example_id"].to_pylist(), *texts, strict=True):
                # a hash takes 8 bytes, whatever the text's length
                if (said := hash(tuple(words))) in known:
                    again.add(number)
                elif (of_text := first.setdefault(hash(words[0]), number)) != number:
                    asked[number] = of_text
                known.add(said)
    return frozenset(again), asked


def attrs_of(runs: Sequence[RunDirectory]) -> dict[str, Told]:
    """What the report knows of these runs beside their numbers, as a table's `attrs` hold it."""
    manifests, ranges = [run.manifest() for run in runs], Told()
    for probe, entry in (pair for one in manifests for pair in one.get("tables", {}).items()):
        for name, said in entry.get("metrics", {}).items():
            ranges.setdefault(probe, {})[name] = (said.get("low"), said.get("high"))
    repeats = Told(
        {one["run_id"]: again for one, run in zip(manifests, runs, strict=True) if (again := repeats_of(run))}
    )
    asked = Told(
        {one["run_id"]: first for one, run in zip(manifests, runs, strict=True) if (first := first_of_text(run))}
    )
    return {IMPORTANCES: told(manifests), RANGES: ranges, REPEATS: repeats, ASKED: asked}


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

    places = find_runs(directory_or_glob, lambda run: run.verify([*map(table_file, chosen(run)), *tested_files(run)]))
    runs = list(map(RunDirectory, places))
    results = frame_of(rows for run in runs for name in chosen(run) for rows in read_rows(run.file(table_file(name))))
    results.attrs.update(attrs_of(runs))
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


# Writing


ROW_GROUP = 1 << 15
"""Rows of a table in one piece: with four times as many, writing and reading take 70 MB more, and the file is no smaller."""

Extremes = dict[str, tuple[float, float] | None]
"""Metric → its smallest and its largest number; None where all are undefined."""


class Written(NamedTuple):
    """What was written: `rows`, of these `undefined`, whose value is NaN, and every metric's `extremes`."""

    rows: int
    undefined: int
    extremes: Extremes


class Column:
    """The numbers of one metric as they come: of each example some values, and their steps.

    Every value takes 8 bytes, every step 4, and every example 16: of 100,000 texts of 200 words a metric with a number per
    word takes 240 MB.
    """

    def __init__(self) -> None:
        self.ids: list[np.ndarray] = []
        self.counts: list[np.ndarray] = []
        self.values: list[np.ndarray] = []
        self.steps: list[np.ndarray] = []

    def add(self, example_id: np.ndarray, counts: np.ndarray, values: np.ndarray, steps: np.ndarray) -> None:
        """Some examples (`[n]`), how many values each has, and these one after the other; a step of NaN stands for none."""
        short = steps.astype(np.float32)
        self.ids.append(example_id)
        self.counts.append(counts)
        self.values.append(values)
        self.steps.append(short if np.array_equal(short, steps, equal_nan=True) else steps)

    def lists(self, most: int = ROW_GROUP) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Example ids, steps and values by example and step, some `most` rows at a time; the rows of one example stay
        together."""
        if not self.ids:
            return
        ids, counts, steps, values = map(np.concatenate, (self.ids, self.counts, self.steps, self.values))
        self.ids, self.counts, self.steps, self.values = [ids], [counts], [steps], [values]  # never held twice
        starts = counts.cumsum() - counts
        order = np.argsort(ids, kind="stable")
        ids, counts, starts = ids[order], counts[order], starts[order]
        part = (counts.cumsum() - 1) // most
        firsts = np.flatnonzero(np.concatenate([[True], (np.diff(part) > 0) & (np.diff(ids) > 0)]))
        for first, last in zip(firsts, [*firsts[1:], len(ids)], strict=True):
            own = counts[first:last]
            within = np.arange(own.sum()) - np.repeat(own.cumsum() - own, own)
            rows = np.repeat(starts[first:last], own) + within
            owner, step, value = np.repeat(ids[first:last], own), steps[rows].astype(np.float64), values[rows]
            sort = np.lexsort((np.nan_to_num(step, nan=-np.inf), owner))
            yield owner[sort], step[sort], value[sort]


class Rows:
    """Numbers on their way into one table; neither the order in which they are added nor their number at a time ever
    shows in the table."""

    def __init__(self) -> None:
        self.columns: dict[tuple[str, str], Column] = {}

    @property
    def metrics(self) -> list[str]:
        """The metrics that rows were added of, in alphabetical order."""
        return sorted({metric for metric, _ in self.columns})

    def add(
        self, metric: str, example_id: np.ndarray, value: np.ndarray, step: np.ndarray | None = None, site: str = ""
    ) -> None:
        """Add one number per example (`value [n]`), or several with their steps (`value [n, k]`, `step [k]` or
        `[n, k]`). Rows whose step is NaN are dropped: that is how ragged examples leave out their padding.

        `site`: which of the model's attentions they are about; empty: its own.
        """
        example_id, value = np.array(example_id, np.int64), np.array(value, np.float64)
        if value.shape[:1] != example_id.shape:
            raise ValueError(f"{metric}: {len(example_id)} example ids for values of shape {value.shape}")
        if step is None:
            if value.ndim != 1:
                raise ValueError(f"{metric}: values of shape {value.shape} need a step")
            counts, at = np.ones(len(value), np.int64), np.full(len(value), np.nan)
        else:
            step = np.broadcast_to(np.asarray(step, np.float64), value.shape)
            keep = ~np.isnan(step)
            counts, at, value = keep.sum(1), step[keep], value[keep]
        if len(value):
            self.columns.setdefault((metric, site), Column()).add(example_id, counts, value, at)

    def write(self, path: Path, identity: dict[str, Any]) -> Written:
        """Write the table, in row groups of `ROW_GROUP` rows, and forget the rows.

        Args:
            path: of the parquet file.
            identity: run_id, experiment, data, model, seed, split and probe, the same in every row.
        """
        rows = undefined = 0
        extremes: Extremes = {}

        def counted() -> Iterator[pa.Table]:
            nonlocal rows, undefined
            for group in self.groups(identity):
                rows += group.num_rows
                undefined += pc.sum(pc.is_nan(group["value"])).as_py() or 0
                for name in pc.unique(group["metric"].cast(pa.string())).to_pylist():
                    extremes.setdefault(name, None)
                known = group.select(["metric", "value"]).filter(pc.invert(pc.is_nan(group["value"])))
                ends = known.group_by("metric", use_threads=False).aggregate([("value", "min"), ("value", "max")])
                for end in ends.to_pylist():
                    low, high = extremes[end["metric"]] or (np.inf, -np.inf)
                    extremes[end["metric"]] = min(low, end["value_min"]), max(high, end["value_max"])
                yield group

        write_groups(self.schema, counted(), path)
        self.columns = {}
        return Written(rows, undefined, extremes)

    @property
    def schema(self) -> pa.Schema:
        """The table's: with a column of sites where some numbers are about another attention than the model's own."""
        return SITED if any(site for _, site in self.columns) else SCHEMA

    def table(self, identity: dict[str, Any]) -> pa.Table:
        """All rows as one table in memory; see `groups`."""
        return pa.concat_tables([self.schema.empty_table(), *self.groups(identity)])

    def groups(self, identity: dict[str, Any]) -> Iterator[pa.Table]:
        """All rows by metric, site, example and step, in tables of `ROW_GROUP` rows, the last one of fewer."""
        waiting: list[pa.Table] = []
        count = 0
        for metric, site in sorted(self.columns):
            for owner, step, value in self.columns[metric, site].lists():
                names = identity | {"metric": metric, SITE: site}
                same = {name: pa.repeat(names[name], len(owner)) for name in (*IDENTITY, "metric", SITE)}
                # NaN = no step = null; a value of NaN stays: an undefined number is reported, not missing
                own = {"example_id": owner, "step": pa.array(step, from_pandas=True), "value": value}
                waiting.append(pa.table(same | own))
                count += len(value)
                if count >= ROW_GROUP:
                    together, full = pa.concat_tables(waiting), count - count % ROW_GROUP
                    for start in range(0, full, ROW_GROUP):
                        yield self._encoded(together.slice(start, ROW_GROUP))
                    waiting, count = [together.slice(full)], count - full
        if count:
            yield self._encoded(pa.concat_tables(waiting))

    def _encoded(self, group: pa.Table) -> pa.Table:
        """With dictionaries that hold the names that occur, so that a file's bytes depend on its rows alone."""
        return group.combine_chunks().select(self.schema.names).cast(self.schema)


def check_positions(
    step: Float[np.ndarray, " rows"] | Int[np.ndarray, " rows"], lengths: Int[np.ndarray, " rows"], where: str
) -> None:
    """Whether every position that a table says something of is one of its text.

    Args:
        step: from 0.
        lengths: of each row's text; 0 where there is no such text.
        where: what has the positions, for the message.

    Raises:
        UserError: one is not; the files do not belong together.
    """
    if not ((step >= 0) & (step < lengths) & (step == np.floor(step))).all():
        raise UserError(
            f"{where} has a position that its text does not have: the run's tables and examples do not belong together. Copy "
            f"the run again from where it came, or give its command again with on_finished=replace"
        )
