"""The numbers of runs as the report reads them.

A few metrics of one probe at a time, never all tables at once.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pandas as pd

from attnprobe.results.directory import Places, RunDirectory, find_runs, table_file
from attnprobe.results.pivot import ASKED, ASKED_LABELS, REPEATS
from attnprobe.results.table import (
    IMPORTANCES,
    SCALES,
    Told,
    attrs_of,
    contents_of,
    frame_of,
    read_rows,
)

WHOLE_SPLITS = ("training", "performance")
"""The tables that every run has: about a whole split, not a probe's and not about one example."""
EVERY = ("*",)
"""The pattern of all metrics."""


@dataclass
class Numbers:
    """The numbers of some runs, read when they are asked for.

    Attributes:
        tables: of each run its tables, by probe: a file, or rows in memory such as a notebook works
            with.
        attrs: what else is known of them, as in a table's `attrs`
            (`attnprobe.results.table.attrs_of`, `pivot.CLASSES`).
    """

    tables: tuple[Mapping[str, Path | pd.DataFrame], ...]
    attrs: dict[Any, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, runs: Iterable[RunDirectory]) -> "Numbers":
        """The numbers of finished runs."""
        directories = list(runs)
        tables = []
        for run in directories:
            tables.append({probe: run.file(table_file(probe)) for probe in run.probes()})
        return cls(tuple(tables), attrs_of([(run.manifest(), run) for run in directories]))

    @classmethod
    def together(cls, parts: Iterable["Numbers"]) -> "Numbers":
        """The numbers of several; of what is said of a metric or a run the first counts."""
        tables: list[Mapping[str, Path | pd.DataFrame]] = []
        of_probes = {key: Told() for key in (IMPORTANCES, SCALES)}
        of_runs = {key: Told() for key in (REPEATS, ASKED, ASKED_LABELS)}
        for numbers in parts:
            tables += numbers.tables
            for key, merged in of_probes.items():
                for probe, facts in numbers.attrs.get(key, {}).items():
                    merged[probe] = facts | merged.get(probe, {})
            for key, merged in of_runs.items():
                for run_id, examples in numbers.attrs.get(key, {}).items():
                    merged.setdefault(run_id, examples)
        return cls(tuple(tables), of_probes | of_runs)

    def each_run(self) -> "Iterator[Numbers]":
        """The numbers of each run by itself, with all that is known of all runs."""
        for run_tables in self.tables:
            yield Numbers((run_tables,), self.attrs)

    def identities(self) -> list[dict[str, dict[str, Any]]]:
        """Of each run its tables that have rows: probe → what identifies the first row.

        `attnprobe.results.pivot.RUN` names what that is.
        """
        identities = []
        for run_tables in self.tables:
            run_identities = {}
            for probe, table in run_tables.items():
                identity = contents_of(table).identity
                if identity is not None:
                    run_identities[probe] = identity
            identities.append(run_identities)
        return identities

    @property
    def probes(self) -> list[str]:
        """The probes that there are numbers of, in the order of the runs' tables."""
        names = (probe for identities in self.identities() for probe in identities)
        return list(dict.fromkeys(names))

    @property
    def runs(self) -> list[dict[str, Any]]:
        """What identifies each run that there are numbers of; the split is its first table's."""
        return [next(iter(identities.values())) for identities in self.identities() if identities]

    @property
    def split(self) -> str | None:
        """The split whose examples the first run's probes measured; None where none did."""
        first_run = next(iter(self.identities()), {})
        for probe, identity in first_run.items():
            if probe not in WHOLE_SPLITS:
                return str(identity["split"])
        return None

    def metrics(self, probe: str) -> list[str]:
        """The metrics of a probe, in alphabetical order."""
        metrics: set[str] = set()
        for table in self._tables_of(probe):
            metrics.update(contents_of(table).metrics)
        return sorted(metrics)

    def _tables_of(self, probe: str) -> list[Path | pd.DataFrame]:
        """The tables of a probe, of the runs that have one."""
        return [tables[probe] for tables in self.tables if probe in tables]

    def outline(self, probe: str) -> pd.DataFrame:
        """Which metrics there are, as a table with a row for each: `probe`, `metric`."""
        outline = pd.DataFrame({"probe": probe, "metric": self.metrics(probe)}, dtype=object)
        outline.attrs = dict(self.attrs)
        return outline

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
            metrics: names, or patterns such as `regret_*`, of those whose rows without a step are
                read.
            stepped: of those whose rows with a step are read.
            example_ids: whose rows with a step are read; None: all examples'.
        """
        names = self.metrics(probe)
        without_step = _matching(names, metrics)
        with_step = _matching(names, stepped)
        ids = None if example_ids is None else list(example_ids)
        tables = self._tables_of(probe)
        frames = [
            _selected(table, without_step, with_step, ids)
            for table in tables
            if isinstance(table, pd.DataFrame)
        ]
        if frames:
            rows = pd.concat(frames)
        else:
            files = [table for table in tables if isinstance(table, Path)]
            rows = frame_of(read_rows(files, without_step, with_step, ids))
        rows.attrs = dict(self.attrs)
        return rows


def _matching(names: Iterable[str], patterns: Iterable[str]) -> list[str]:
    """The names that one of the patterns fits."""
    patterns = list(patterns)
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]


def _selected(
    table: pd.DataFrame,
    without_step: Sequence[str],
    with_step: Sequence[str],
    example_ids: Sequence[int] | None,
) -> pd.DataFrame:
    """The rows of a table in memory that `read_rows` would read of a file."""
    has_step = table["step"].notna()
    is_stepped = has_step & table["metric"].isin(with_step)
    if example_ids is not None:
        is_stepped &= table["example_id"].isin(example_ids)
    return table[(~has_step & table["metric"].isin(without_step)) | is_stepped]


def numbers_of(results: pd.DataFrame | Numbers) -> Numbers:
    """A long table in memory as `Numbers`; what is one already stays as it is."""
    if isinstance(results, Numbers):
        return results
    tables = []
    for _, run_rows in results.groupby("run_id", observed=True, sort=False):
        by_probe = run_rows.groupby("probe", observed=True, sort=False)
        tables.append({str(probe): rows for probe, rows in by_probe})
    return Numbers(tuple(tables), dict(results.attrs))


def read_numbers(places: Places) -> Numbers:
    """The numbers of all sound finished runs at or below the places; a warning names the others.

    Raises:
        UserError: if there is none.
    """
    return Numbers.of(map(RunDirectory, find_runs(places, RunDirectory.verify_tables)))
