"""The numbers of runs as the report reads them: a few metrics of one probe at a time, never all
tables at once."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pandas as pd

from attnprobe.results.directory import RunDirectory, find_runs, table_file
from attnprobe.results.pivot import ASKED, REPEATS
from attnprobe.results.table import (
    IMPORTANCES,
    RANGES,
    Told,
    attrs_of,
    contents_of,
    frame_of,
    read_rows,
)

WHOLE_SPLITS = ("training", "performance")
"""The tables that every run has. They are about a whole split: no probe's, and no example's."""
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
        several = list(runs)
        tables = tuple(
            {probe: run.file(table_file(probe)) for probe in run.probes()} for run in several
        )
        return cls(tables, attrs_of(several))

    @classmethod
    def together(cls, several: Iterable["Numbers"]) -> "Numbers":
        """All these numbers; of what they say of one importance the first counts."""
        parts = list(several)
        attrs = {key: Told() for key in (IMPORTANCES, RANGES, REPEATS, ASKED)}
        for key, merged in attrs.items():
            for name, said in (pair for one in parts for pair in one.attrs.get(key, {}).items()):
                merged[name] = said | merged.get(name, type(said)())
        return cls(tuple(table for one in parts for table in one.tables), attrs)

    def identities(self) -> list[dict[str, dict[str, Any]]]:
        """Of each run its tables that have rows: probe → what identifies the first row
        (`attnprobe.results.pivot.RUN`)."""
        contents = [
            {probe: contents_of(table).identity for probe, table in each.items()}
            for each in self.tables
        ]
        return [{probe: one for probe, one in each.items() if one is not None} for each in contents]

    @property
    def probes(self) -> list[str]:
        """The probes that there are numbers of, in the order of the runs' tables."""
        return list(dict.fromkeys(probe for each in self.identities() for probe in each))

    @property
    def runs(self) -> list[dict[str, Any]]:
        """What identifies each run that there are numbers of, the split of the first table
        included."""
        return [next(iter(each.values())) for each in self.identities() if each]

    @property
    def split(self) -> str | None:
        """The split whose examples the first run's probes measured; None where none did."""
        first = next(iter(self.identities()), {}).items()
        return next((str(one["split"]) for probe, one in first if probe not in WHOLE_SPLITS), None)

    def metrics(self, probe: str) -> list[str]:
        """The metrics of a probe, in alphabetical order."""
        return sorted(
            {
                metric
                for each in self.tables
                if probe in each
                for metric in contents_of(each[probe]).metrics
            }
        )

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
        """The rows of some metrics of one probe, as a long table. Names may be patterns such as
        `regret_*`.

        Args:
            probe: its name.
            metrics: those whose rows without a step are there.
            stepped: those whose rows with a step are there, of these `example_ids` (None: of all).
        """
        tables = [each[probe] for each in self.tables if probe in each]
        names = {metric for table in tables for metric in contents_of(table).metrics}
        plain, others = (
            [name for name in names if any(fnmatchcase(name, one) for one in patterns)]
            for patterns in (tuple(metrics), tuple(stepped))
        )
        ids = None if example_ids is None else list(example_ids)
        frames = []
        for table in (one for one in tables if isinstance(one, pd.DataFrame)):
            has_step = table["step"].notna()
            shown = True if ids is None else table["example_id"].isin(ids)
            wanted = (~has_step & table["metric"].isin(plain)) | (
                has_step & table["metric"].isin(others) & shown
            )
            frames.append(table[wanted])
        files = [table for table in tables if isinstance(table, Path)]
        rows = pd.concat(frames) if frames else frame_of(read_rows(files, plain, others, ids))
        rows.attrs = dict(self.attrs)
        return rows


def numbers_of(results: pd.DataFrame | Numbers) -> Numbers:
    """A long table in memory as `Numbers`; what is one already stays as it is."""
    if isinstance(results, Numbers):
        return results
    runs = (own for _, own in results.groupby("run_id", observed=True, sort=False))
    tables = (
        {str(probe): part for probe, part in run.groupby("probe", observed=True, sort=False)}
        for run in runs
    )
    return Numbers(tuple(tables), dict(results.attrs))


def read_numbers(places: str | os.PathLike | Iterable[str | os.PathLike]) -> Numbers:
    """The numbers of all sound finished runs at or below the places, the others named in a warning;
    a `UserError` where there is none."""
    return Numbers.of(map(RunDirectory, find_runs(places, RunDirectory.verify_tables)))
