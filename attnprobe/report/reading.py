"""How a probe is read: its headline numbers and its figures, declared in one file per probe.

`attnprobe/report/readings/<probe>.py` holds a `READING`; it is found by being there. An installed package brings readings of
its own probes by entry points of the group `attnprobe.readings` (docs/extending.md). The summary, the comparison with
published numbers, W&B and the figures all go through the readings, so a new probe costs a new file and no edits.
"""

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from attnprobe.errors import UserError
from attnprobe.report.claims import Claim
from attnprobe.report.importances import facts_of, importances_in
from attnprobe.report.numbers import EVERY, Numbers, numbers_of

Draw = Callable[[Any, pd.DataFrame | None], Figure]
"""A long table, or numbers by metric (`Drawing.by_metric`), and the examples' table → a figure."""


@dataclass(frozen=True)
class Headline:
    """One number that stands for a probe: the mean of a metric over the examples, or a number of the whole split.

    The number is filed under `metric`, or under `name` where a metric has several. `transform` maps the examples'
    values `[examples]` to those that are averaged (1 for significant, 0 for not; NaN stays NaN). `spread`: the
    population standard deviation over the examples instead of their mean. `at_most`: (another metric, bound), to take
    only the examples where it is no larger.
    `title` is plain ASCII (it is printed into log files). `published` names the published metric that it is compared with
    (`attnprobe.report.published`). `by_class` adds a row per predicted class. `proportion_of` names the metric
    that holds the number of examples where a whole-split number is a share of them: such a number
    gets Wilson's interval; any other whole-split number has none.
    """

    metric: str
    title: str
    published: str | None = None
    by_class: bool = False
    proportion_of: str | None = None
    name: str | None = None
    transform: Callable[[np.ndarray], np.ndarray] | None = None
    spread: bool = False
    at_most: tuple[str, float] | None = None

    @property
    def key(self) -> str:
        """What the number is called in tables and loggers."""
        return self.name or self.metric

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that it is made of."""
        others = [self.at_most[0]] if self.at_most is not None else []
        others += ["predicted_class"] if self.by_class else []
        return (self.metric, *others, self.proportion_of or "examples")

    def values(self, run: pd.DataFrame) -> "pd.Series[float]":
        """The examples' values of this number, by example id; NaN where it is undefined.

        Args:
            run: rows without steps of one run and probe.
        """

        def metric(name: str) -> "pd.Series[float]":
            rows = run[(run["metric"] == name) & (run["example_id"] >= 0)]
            return rows.set_index("example_id")["value"]

        values = metric(self.metric)
        if self.at_most is not None:
            other, bound = self.at_most
            values = values[metric(other).reindex(values.index) <= bound]
        if self.transform is None or values.empty:
            return values
        return pd.Series(self.transform(values.to_numpy()), values.index)


@dataclass(frozen=True)
class Drawing:
    """A figure: `draw(results, examples)` → Figure, with the tables that it needs.

    `metrics` lists (probe, metric) pairs without which it cannot be drawn. `words`: it shows the texts, so it needs the
    examples' table, is drawn for each run by itself, and is left out where texts must not leave the machine.

    It is given the rows of these metrics and of the `optional` ones that are there (None: of every metric without steps of
    its probes; `("erasure", "regret_*")`: of all that begin so), not those of whole tables. `examples(results)` → ids:
    those whose texts and rows with steps it shows, chosen by the rows without steps; None: of all examples.

    `by_metric`: in place of rows it is given the numbers to read (`attnprobe.report.numbers.Numbers`), so that many metrics
    of many examples are never in memory as rows; `attnprobe.report.wide.per_example` takes either.
    """

    name: str
    draw: Draw
    metrics: tuple[tuple[str, str], ...]
    words: bool = False
    optional: tuple[tuple[str, str], ...] | None = None
    examples: Callable[[pd.DataFrame], Sequence[int]] | None = None
    by_metric: bool = False

    def __post_init__(self) -> None:
        if self.by_metric and (self.words or self.optional is not None or self.examples is not None):
            raise ValueError(
                f"Drawing {self.name}: by_metric=True is given no rows, so that words, optional and examples say nothing: "
                f"leave these out, or by_metric"
            )

    @property
    def probes(self) -> list[str]:
        """The probes whose tables it needs."""
        return sorted({probe for probe, _ in self.metrics})


@dataclass(frozen=True)
class Tabulation:
    """A table for a paper: `build(results)` → DataFrame, one row per line, its columns headed as they are to be read;
    no rows where the results lack its numbers. `name` is the file's, `caption` plain text that says what is counted,
    in which unit. `metrics`: names, or patterns such as `regret_*`, of those of its probe's metrics without steps that it
    is made of.

    `parts(outline)` → the metrics of each part that can be built by itself, so that only these are in memory; lines with
    the same first cell are then put together, in the order of the parts. None: all at once. `by_metric`: it is given the
    numbers to read in place of rows, as a `Drawing` is.
    """

    name: str
    caption: str
    build: Callable[[Any], pd.DataFrame]
    metrics: tuple[str, ...] = EVERY
    parts: Callable[[pd.DataFrame], Sequence[tuple[str, ...]]] | None = None
    by_metric: bool = False

    def __post_init__(self) -> None:
        if self.by_metric and (self.metrics != EVERY or self.parts is not None):
            raise ValueError(
                f"Tabulation {self.name}: by_metric=True is given no rows, so that metrics and parts say nothing: leave "
                f"these out, or by_metric"
            )

    def built(self, numbers: Numbers, probe: str) -> pd.DataFrame:
        """The table of a probe's numbers."""
        if self.by_metric:
            return self.build(numbers)
        if self.parts is None:
            return self.build(numbers.rows(probe, self.metrics))
        tables = [self.build(numbers.rows(probe, some)) for some in self.parts(numbers.outline(probe))]
        tables = [table for table in tables if len(table)]
        if not tables:
            return pd.DataFrame()
        table = pd.concat(tables, ignore_index=True)
        order = np.argsort(pd.factorize(table.iloc[:, 0])[0], kind="stable")
        return table.iloc[order].reset_index(drop=True)


@dataclass(frozen=True)
class HeatMap:
    """A metric with a number per position, 0 to 1, that the page's browser and W&B show over the texts.

    `about` says in a few words what the number is. `relative`: shaded relative to the text's largest number, where the
    numbers do not share out a whole.
    """

    metric: str
    title: str
    about: str
    relative: bool = False


@dataclass(frozen=True)
class Column:
    """A metric with a number per example that the page's browser and W&B show next to the texts.

    `sorts`: the list of examples can be sorted by it. `leads`: it comes first there, and W&B's examples are chosen by it.
    `one_minus`: the number shown is 1 − the metric, large for disagreement. `truth`: it is 1 or 0, for yes or no. `digits`
    after the point.
    """

    metric: str
    title: str
    digits: int = 3
    one_minus: bool = False
    sorts: bool = True
    leads: bool = False
    truth: bool = False


def none(results: pd.DataFrame) -> tuple[Headline, ...]:
    """No headlines."""
    return ()


@dataclass(frozen=True)
class Reading:
    """All that the report knows of one probe. `order` sorts the probes in the summary, small first; `title` heads the
    probe's part of the report, and `about` says in a few sentences what it measures and how to read it. `noted` makes one
    or two sentences of what the probe noted of its own working, run by run (`notes` of the manifest). `of_importance`,
    `mark` and `closing`: see `headlines_of`. `maps` and `columns` are shown with the single examples."""

    probe: str
    headlines: tuple[Headline, ...] = ()
    drawings: tuple[Drawing, ...] = ()
    tables: tuple[Tabulation, ...] = ()
    claims: tuple[Claim, ...] = ()
    title: str = ""
    about: str = ""
    order: int = 100
    noted: Callable[[Sequence[Mapping[str, float]]], str] | None = None
    of_importance: Callable[[str, str], tuple[Headline, ...]] | None = None
    mark: str = ""
    closing: Callable[[pd.DataFrame], tuple[Headline, ...]] = none
    maps: tuple[HeatMap, ...] = ()
    columns: tuple[Column, ...] = ()

    def headlines_of(self, results: pd.DataFrame) -> tuple[Headline, ...]:
        """`headlines`; `of_importance(name, title)` for every importance in the table, those that have a metric `mark`
        followed by their name; and those that `closing` finds in the table.

        Args:
            results: a long table of this probe, of any runs.
        """
        if self.of_importance is None:
            return self.headlines
        names = importances_in(results, self.probe, self.mark)
        of_each = [self.of_importance(name, facts_of(name, results, self.probe).ascii_title) for name in names]
        return (*self.headlines, *(one for several in of_each for one in several), *self.closing(results))


@cache
def readings() -> dict[str, Reading]:
    """Every probe's reading, by the probe's name, in the summary's order.

    Raises:
        UserError: an installed package brings a reading of a probe that has one.
    """
    package = importlib.import_module("attnprobe.report.readings")
    modules = [
        importlib.import_module(f"{package.__name__}.{entry.name}") for entry in pkgutil.iter_modules(package.__path__)
    ]
    installed: list[Reading] = [entry.load() for entry in entry_points(group="attnprobe.readings")]
    ordered = sorted([*(module.READING for module in modules), *installed], key=lambda one: (one.order, one.probe))
    names = [reading.probe for reading in ordered]
    if twice := {name for name in names if names.count(name) > 1}:
        raise UserError(f"{', '.join(sorted(twice))}: two readings of one probe; give your own probe another name")
    return {reading.probe: reading for reading in ordered}


def present(results: pd.DataFrame | Numbers) -> list[Reading]:
    """The readings of those probes that there are numbers of."""
    probes = set(numbers_of(results).probes)
    return [reading for reading in readings().values() if reading.probe in probes]


def maps_in(numbers: Numbers) -> list[tuple[str, HeatMap]]:
    """The heat maps that there are numbers of, with their probes."""
    return [
        (reading.probe, one)
        for reading in readings().values()
        for one in reading.maps
        if one.metric in numbers.metrics(reading.probe)
    ]


def columns_in(numbers: Numbers) -> list[tuple[str, Column]]:
    """The columns that there are numbers of, with their probes: first those to sort by, leading ones before all."""
    shown = [
        (reading.probe, one)
        for reading in readings().values()
        for one in reading.columns
        if one.metric in numbers.metrics(reading.probe)
    ]
    return sorted(shown, key=lambda pair: (not pair[1].sorts, not pair[1].leads))
