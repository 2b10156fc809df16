"""The numbers of finished runs as the report reads them: a few metrics of one probe at a time, never all tables at once."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any, Self, final

import pandas as pd
import pyarrow as pa

from attnprobe.report.wide import RUN, with_classes
from attnprobe.results.directory import RunDirectory, table_file
from attnprobe.results.finding import find_runs
from attnprobe.results.frame import frame_of
from attnprobe.results.table import IMPORTANCES, Told, identity_in, metrics_in, read_pieces, told

WHOLE_SPLITS = ("training", "performance")
"""The tables that every run has. They are about a whole split: no probe's, and no example's."""
EVERY = ("*",)
"""The pattern of all metrics."""


class Numbers(ABC):
    """The numbers of some runs, by probe and metric.

    Attributes:
        attrs: what else is known of them, as in a table's `attrs`: the facts of importances
            (`attnprobe.results.table.IMPORTANCES`) and the names of the classes (`attnprobe.report.wide.CLASSES`).
    """

    attrs: dict[Any, Any]

    @property
    @abstractmethod
    def probes(self) -> list[str]:
        """The probes that there are numbers of."""

    @property
    @abstractmethod
    def runs(self) -> list[dict[str, Any]]:
        """What identifies each run that there are numbers of (`attnprobe.report.wide.RUN`), the split of the first table
        included."""

    @abstractmethod
    def metrics(self, probe: str) -> list[str]:
        """The metrics of a probe, in alphabetical order."""

    @abstractmethod
    def rows(
        self,
        probe: str,
        metrics: Iterable[str] = EVERY,
        *,
        stepped: Iterable[str] = (),
        example_ids: Iterable[int] | None = None,
    ) -> pd.DataFrame:
        """The rows of some metrics of one probe, as a long table.

        Args:
            probe: its name.
            metrics: names, or patterns such as `regret_*`, of those whose rows without a step are there.
            stepped: names or patterns of those whose rows with a step are there.
            example_ids: only these examples' rows with a step; None: all examples'.
        """

    @abstractmethod
    def with_attrs(self, attrs: Mapping[Any, Any]) -> Self:
        """The same numbers; this is known of them as well."""

    @final
    def named(self, classes: Sequence[Sequence[str]]) -> Self:
        """The same numbers, with the names of the classes of each run (`attnprobe.report.wide.with_classes`)."""
        return self.with_attrs(with_classes(self.attrs, classes))

    @final
    def outline(self, probe: str) -> pd.DataFrame:
        """Which metrics there are, as a table with a row for each: `probe`, `metric`."""
        outline = pd.DataFrame({"probe": probe, "metric": self.metrics(probe)}, dtype=object)
        outline.attrs = dict(self.attrs)
        return outline


@dataclass(frozen=True)
class StoredTable:
    """One table's file; what is asked of it again and again is read once."""

    path: Path

    @cached_property
    def metrics(self) -> list[str]:
        """The metrics that it has numbers of, sorted."""
        return metrics_in(self.path)

    @cached_property
    def identity(self) -> dict[str, Any] | None:
        """What identifies its first row; None where it has no row."""
        return identity_in(self.path)


@final
@dataclass(frozen=True)
class StoredNumbers(Numbers):
    """Numbers in files: of each run its tables, by probe. They are read when they are asked for."""

    tables: tuple[Mapping[str, StoredTable], ...]
    attrs: dict[Any, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, runs: Iterable[RunDirectory]) -> "StoredNumbers":
        """The numbers of finished runs."""
        several = list(runs)
        tables = tuple({probe: StoredTable(run / table_file(probe)) for probe in run.probes()} for run in several)
        return cls(tables, {IMPORTANCES: told(run.manifest() for run in several)})

    @classmethod
    def together(cls, several: Iterable["StoredNumbers"]) -> "StoredNumbers":
        """All these numbers; of what they say of one importance the first counts."""
        parts = list(several)
        facts = Told()
        for probe, by_name in (pair for one in parts for pair in one.attrs.get(IMPORTANCES, {}).items()):
            facts[probe] = facts.get(probe, {}) | {
                name: said for name, said in by_name.items() if name not in facts.get(probe, {})
            }
        return cls(tuple(table for one in parts for table in one.tables), {IMPORTANCES: facts})

    def each(self) -> list["StoredNumbers"]:
        """The numbers of each run by themselves."""
        return [replace(self, tables=(one,)) for one in self.tables]

    def with_attrs(self, attrs: Mapping[Any, Any]) -> "StoredNumbers":
        """The same numbers; this is known of them as well."""
        return replace(self, attrs=dict(attrs))

    def _filled(self) -> Iterator[tuple[str, StoredTable]]:
        """The tables that have rows, with their probes."""
        return ((probe, one) for each in self.tables for probe, one in each.items() if one.identity is not None)

    @property
    def probes(self) -> list[str]:
        """The probes that there are numbers of, in the order of the runs' tables."""
        return list(dict.fromkeys(probe for probe, _ in self._filled()))

    @property
    def runs(self) -> list[dict[str, Any]]:
        """What identifies each run; see `Numbers`."""
        first = (next((one.identity for one in each.values() if one.identity), None) for each in self.tables)
        return [identity for identity in first if identity is not None]

    @property
    def split(self) -> str | None:
        """The split whose examples the first run's probes measured; None where none did."""
        ids = (one.identity for each in self.tables[:1] for probe, one in each.items() if probe not in WHOLE_SPLITS)
        return next((str(one["split"]) for one in ids if one is not None), None)

    def metrics(self, probe: str) -> list[str]:
        """The metrics of a probe, in alphabetical order."""
        return sorted({metric for each in self.tables if probe in each for metric in each[probe].metrics})

    def rows(
        self,
        probe: str,
        metrics: Iterable[str] = EVERY,
        *,
        stepped: Iterable[str] = (),
        example_ids: Iterable[int] | None = None,
    ) -> pd.DataFrame:
        """The rows of some metrics of one probe; see `Numbers`."""
        plain, others, ids = tuple(metrics), tuple(stepped), None if example_ids is None else list(example_ids)

        def pieces() -> Iterator[pa.Table]:
            for table in (each[probe] for each in self.tables if probe in each):
                yield from read_pieces(table.path, metrics=matching(plain, table.metrics), with_steps=False)
                if others:
                    names = matching(others, table.metrics)
                    yield from read_pieces(table.path, metrics=names, with_steps=True, example_ids=ids)

        rows = frame_of(pieces())
        rows.attrs = dict(self.attrs)
        return rows


@final
@dataclass(frozen=True)
class HeldNumbers(Numbers):
    """Numbers in memory: a long table, such as a notebook works with."""

    table: pd.DataFrame

    @property
    def attrs(self) -> dict[Any, Any]:  # type: ignore[override]
        """What else is known of them."""
        return dict(self.table.attrs)

    def with_attrs(self, attrs: Mapping[Any, Any]) -> "HeldNumbers":
        """The same numbers; this is known of them as well."""
        table = self.table.copy(deep=False)
        table.attrs = dict(attrs)
        return HeldNumbers(table)

    @property
    def probes(self) -> list[str]:
        """The probes that there are numbers of."""
        return [str(probe) for probe in self.table["probe"].unique()]

    @property
    def runs(self) -> list[dict[str, Any]]:
        """What identifies each run; see `Numbers`."""
        runs: list[Any] = self.table.drop_duplicates("run_id")[list(RUN)].astype(object).to_dict("records")
        return runs

    def metrics(self, probe: str) -> list[str]:
        """The metrics of a probe, in alphabetical order."""
        return sorted(str(one) for one in self.table.loc[self.table["probe"] == probe, "metric"].unique())

    def rows(
        self,
        probe: str,
        metrics: Iterable[str] = EVERY,
        *,
        stepped: Iterable[str] = (),
        example_ids: Iterable[int] | None = None,
    ) -> pd.DataFrame:
        """The rows of some metrics of one probe; see `Numbers`."""
        known, has_step = self.metrics(probe), self.table["step"].notna()
        plain, others = (self.table["metric"].isin(matching(names, known)) for names in (metrics, stepped))
        if example_ids is not None:
            others &= self.table["example_id"].isin(list(example_ids))
        rows = self.table[(self.table["probe"] == probe) & ((plain & ~has_step) | (others & has_step))]
        rows.attrs = dict(self.table.attrs)
        return rows


def matching(patterns: Iterable[str], names: Iterable[str]) -> list[str]:
    """Those of the names that one of the patterns describes.

    >>> matching(["never_flips", "regret_*"], ["never_flips", "regret_random", "removed_count_random"])
    ['never_flips', 'regret_random']
    """
    several = tuple(patterns)
    return [name for name in names if any(fnmatchcase(name, one) for one in several)]


def numbers_of(results: pd.DataFrame | Numbers) -> Numbers:
    """A long table in memory as `Numbers`; what is one already stays as it is."""
    return HeldNumbers(results) if isinstance(results, pd.DataFrame) else results


def read_numbers(places: str | os.PathLike | Iterable[str | os.PathLike]) -> StoredNumbers:
    """The numbers of all sound finished runs at or below the places; the others are named in a warning.

    Raises:
        UserError: no finished run there, or no sound one.
    """
    sound = find_runs(places, lambda run: run.verify(map(table_file, run.probes())))
    return StoredNumbers.of(map(RunDirectory, sound))
