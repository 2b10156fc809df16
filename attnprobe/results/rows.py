"""Numbers on their way into a long table, which is sorted and written a piece at a time."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from attnprobe.results.files import write_groups
from attnprobe.results.schema import IDENTITY, SCHEMA, SITE, SITED
from attnprobe.results.spill import RECORD, Spill, in_order, ordered

ROW_GROUP = 1 << 15
"""Rows of a table in one piece: with four times as many, writing and reading take 70 MB more, and the file is no smaller."""
HELD = 1 << 15
"""Rows of a table that are kept in memory before they go to the disk."""
OF_SITE = "\x1f"
"""Between a metric and the site that it is about, where rows are kept; it sorts before what can be in a name."""


Extremes = dict[str, tuple[float, float] | None]
"""Metric → its smallest and its largest number; None where all are undefined."""


class Written(NamedTuple):
    """What was written: `rows`, of these `undefined`, whose value is NaN, and every metric's `extremes`."""

    rows: int
    undefined: int
    extremes: Extremes


class Rows:
    """Numbers on their way into one table; neither the order in which they are added nor their number at a time ever
    shows in the table. What exceeds `HELD` rows waits on the disk."""

    def __init__(self, folder: Path | None = None, row_group: int = ROW_GROUP) -> None:
        """
        Args:
            folder: a directory on the disk that is to hold what does not fit; None: the system's temporary files.
            row_group: rows of the table in one piece.
        """
        self.folder, self.row_group = folder, row_group
        self.most = min(row_group, HELD)
        self.numbers: dict[str, int] = {}
        self.spill: Spill | None = None
        self._forget()

    def _forget(self) -> None:
        # one long array: many short ones, freed at other times than what lies between them, leave holes in the memory
        self.records, self.metric, self.held = np.empty(0, RECORD), np.empty(0, np.int32), 0

    @property
    def metrics(self) -> list[str]:
        """The metrics (and their sites) that rows were added of, in alphabetical order."""
        return sorted(self.numbers)

    def add(
        self,
        metric: str,
        example_id: np.ndarray,
        value: np.ndarray,
        step: np.ndarray | None = None,
        site: str = "",
    ) -> None:
        """Add one number per example (`value [n]`), or several with their steps (`value [n, k]`, `step [k]` or
        `[n, k]`). Rows whose step is NaN are dropped: that is how ragged examples leave out their padding.

        `site`: which of the model's attentions they are about; empty: its own.
        """
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
        number = self.numbers.setdefault(f"{metric}{OF_SITE}{site}" if site else metric, len(self.numbers))
        for start in range(0, len(value), self.most):
            part = slice(start, start + self.most)
            self._hold(number, owner[part], at[part], value[part])

    def _hold(self, number: int, owner: np.ndarray, at: np.ndarray, value: np.ndarray) -> None:
        stop = self.held + len(value)
        if stop > self.most:
            self._spill()
            stop = len(value)
        if stop > len(self.records):
            room = min(self.most, max(stop, 2 * len(self.records)))
            self.records.resize(room, refcheck=False)
            self.metric.resize(room, refcheck=False)
        rows = self.records[self.held : stop]
        rows["example_id"], rows["step"], rows["value"] = owner, at, value
        self.metric[self.held : stop] = number
        self.held = stop

    def _held(self, metric: str) -> np.ndarray:
        """The records of one metric that are in memory, in the order in which they came."""
        return self.records[: self.held][self.metric[: self.held] == self.numbers[metric]]

    def _spill(self) -> None:
        if self.spill is None:
            self.spill = Spill(self.folder)
        for metric in self.numbers if self.held else ():
            records = self._held(metric)
            if len(records):
                self.spill.append(metric, records)
        self.held = 0

    def write(self, path: Path, identity: dict[str, Any]) -> Written:
        """Write the table (see `groups`) and forget the rows.

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
                widen(extremes, group)
                yield group

        try:
            write_groups(SITED if self.has_sites else SCHEMA, counted(), path)
        finally:
            self.close()
        return Written(rows, undefined, extremes)

    def close(self) -> None:
        """Forget the rows."""
        if self.spill is not None:
            self.spill.close()
        self.numbers, self.spill = {}, None
        self._forget()

    @property
    def has_sites(self) -> bool:
        """Whether some numbers are about another attention than the model's own."""
        return any(OF_SITE in name for name in self.numbers)

    def table(self, identity: dict[str, Any]) -> pa.Table:
        """All rows as one table in memory; see `groups`."""
        return pa.concat_tables(self.groups(identity))

    def groups(self, identity: dict[str, Any]) -> Iterator[pa.Table]:
        """All rows by metric, site, example and step, in tables of `row_group` rows, the last one of fewer."""
        names = self.metrics
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
        return len(self._held(metric)) + (0 if self.spill is None else self.spill.count(metric))

    def ordered(self, metric: str) -> Iterator[np.ndarray]:
        """The records of one metric by example and step, a piece at a time."""
        if self.spill is None:
            yield ordered([self._held(metric)])
            return
        self._spill()
        yield from in_order(self.spill, metric, most=self.most, folder=self.folder)


def _group(names: list[str], parts: list[tuple[int, np.ndarray]], identity: dict[str, Any]) -> pa.Table:
    """Records of numbered metrics, and their sites where there are any, as a table."""
    records = np.concatenate([np.zeros(0, RECORD), *(part for _, part in parts)])
    metric = np.repeat(np.array([number for number, _ in parts], np.int32), [len(part) for _, part in parts])
    zeros = pa.array(np.zeros(len(records), np.int32))
    arrays: dict[str, pa.Array] = {
        name: pa.DictionaryArray.from_arrays(zeros, pa.array([str(identity[name])], pa.string()))
        for name in IDENTITY
        if name != "seed"
    }
    arrays["seed"] = pa.array(np.full(len(records), identity["seed"], np.int64))
    schema = SITED if any(OF_SITE in name for name in names) else SCHEMA
    for place, column in enumerate(("metric", SITE) if schema is SITED else ("metric",)):
        each = [[*name.split(OF_SITE), ""][place] for name in names]
        every = sorted(set(each))
        number = np.array([every.index(one) for one in each], np.int32)[metric]
        arrays[column] = pa.DictionaryArray.from_arrays(pa.array(number), pa.array(every, pa.string()))
    arrays["example_id"] = pa.array(np.ascontiguousarray(records["example_id"]))
    arrays["step"] = pa.array(np.ascontiguousarray(records["step"]), from_pandas=True)  # NaN = no step = null
    # NaN stays NaN: an undefined number is reported, not missing
    arrays["value"] = pa.array(np.ascontiguousarray(records["value"]))
    return pa.Table.from_arrays([arrays[name] for name in schema.names], schema=schema)


def widen(extremes: Extremes, group: pa.Table) -> None:
    """Take the smallest and the largest numbers of these rows, by metric, into `extremes`."""
    for name in pc.unique(group["metric"].cast(pa.string())).to_pylist():
        extremes.setdefault(name, None)
    known = group.select(["metric", "value"]).filter(pc.invert(pc.is_nan(group["value"])))
    # in this thread: each of Arrow's own would keep memory of its own
    ends = known.group_by("metric", use_threads=False).aggregate([("value", "min"), ("value", "max")])
    for end in ends.to_pylist():
        low, high = extremes[end["metric"]] or (np.inf, -np.inf)
        extremes[end["metric"]] = min(low, end["value_min"]), max(high, end["value_max"])
