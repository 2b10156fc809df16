"""How a probe is read: its headline numbers, figures, tables and claims.

Each probe declares its `READING` in its own file. An installed package brings readings of its own
probes by entry points of the group `attnprobe.readings` (docs/extending.md).
"""

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import entry_points
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import is_color_like
from matplotlib.figure import Figure

from attnprobe.core.errors import UserError
from attnprobe.evidence.claims import Claim
from attnprobe.evidence.statistics import mean_in_columns
from attnprobe.results.directory import WHOLE_SPLIT
from attnprobe.results.numbers import EVERY, Numbers
from attnprobe.results.pivot import facets, metrics_there, per_example
from attnprobe.results.table import IMPORTANCES, RANGES

# What is known of importances is read from the runs' manifests, so that neither an outside package
# nor torch is imported.


COLOURS = ("#882255", "#44AA99", "#332288", "#117733", "#AA4499", "#661100")


@dataclass(frozen=True)
class Facts:
    """What is known of an importance.

    Attributes:
        title: its name in words.
        colour: of its lines in figures.
        signed: whether its scores have a sign.
    """

    title: str
    colour: str
    signed: bool = False

    @property
    def ascii_title(self) -> str:
        """The title in plain ASCII, for log files."""
        return self.title.replace("×", "x").encode("ascii", "replace").decode("ascii")


def facts_of(name: str, results: pd.DataFrame, probe: str) -> Facts:
    """What the results' runs say of an importance, or else what its name says.

    Args:
        name: what the probe files the importance under.
        results: a long table.
        probe: whose importance it is.

    >>> facts_of("my_own", pd.DataFrame(), "erasure").title
    'my own'
    """
    facts = results.attrs.get(IMPORTANCES, {}).get(probe, {}).get(name, {})
    default_colour = COLOURS[sum(name.encode()) % len(COLOURS)]
    colour = facts.get("colour", default_colour)
    return Facts(
        title=str(facts.get("title", name.replace("_", " "))),
        colour=colour if is_color_like(colour) else default_colour,
        signed=bool(facts.get("signed")),
    )


def importances_in(results: pd.DataFrame, probe: str, mark: str) -> dict[str, Facts]:
    """The importances that a probe has numbers of.

    Args:
        results: a long table.
        probe: whose metrics they are.
        mark: what stands before an importance's name in a metric.

    Returns:
        Name → facts, in the order in which the probe took its importances; those of which the runs
        say nothing follow in alphabetical order.
    """
    metrics = metrics_there(results, probe)
    names = {metric.removeprefix(mark) for metric in metrics if metric.startswith(mark)}
    declared = [name for name in results.attrs.get(IMPORTANCES, {}).get(probe, {}) if name in names]
    ordered = [*declared, *sorted(names.difference(declared))]
    return {name: facts_of(name, results, probe) for name in ordered}


def importances_and_operators(
    results: pd.DataFrame, probe: str, mark: str
) -> list[tuple[str, str]]:
    """(importance, operator) of the metrics `<mark><importance>_by_<operator>` of a probe."""
    names = importances_in(results, probe, mark)
    matches = [re.fullmatch(r"(.+)_by_(\w+?)", name) for name in names]
    return [(match[1], match[2]) for match in matches if match]


def ends_of(results: pd.DataFrame, probe: str, metric: str) -> tuple[float, float]:
    """The least and the greatest that a metric can be, as the results' runs say it."""
    low, high = results.attrs.get(RANGES, {}).get(probe, {}).get(metric, (None, None))
    return -np.inf if low is None else low, np.inf if high is None else high


def facet_table(
    results: pd.DataFrame,
    probe: str,
    metrics: Sequence[str],
    lines: Callable[[pd.DataFrame], Iterable[Mapping[str, object]]],
) -> pd.DataFrame:
    """A table with a row per data set and model and line; empty without metrics.

    Args:
        results: a long table.
        probe: whose metrics they are.
        metrics: what the lines are made of.
        lines: the wide rows of one data set and model → its lines, heading → cell.
    """
    panels = facets(per_example(results, probe, metrics)) if metrics else []
    return pd.DataFrame(
        [{"data and model": panel.title, **line} for panel in panels for line in lines(panel.rows)]
    )


def mean_table(
    results: pd.DataFrame,
    probe: str,
    lines: Iterable[tuple[Mapping[str, object], Mapping[str, str]]],
) -> pd.DataFrame:
    """A table of means with 95 % bootstrap intervals over the texts; empty without lines.

    Args:
        results: a long table.
        probe: whose metrics they are.
        lines: (heading → cell, heading → metric), such as ({"importance": "gradient"}, {"AOPC":
            "aopc_gradient"}).

    Returns:
        A row per data set and model and line: the line's cells, in how many texts its first metric
        is known (`n`), and each metric's mean and interval under its heading.
    """
    several = list(lines)

    def means(rows: pd.DataFrame) -> Iterator[dict[str, object]]:
        for cells, columns in several:
            first_metric = next(iter(columns.values()))
            line = {**cells, "n": int(rows[first_metric].notna().sum())}
            for heading, metric in columns.items():
                low, high = ends_of(results, probe, metric)
                line |= mean_in_columns(heading, rows[metric].to_numpy(), low, high)
            yield line

    metrics = [metric for _, columns in several for metric in columns.values()]
    return facet_table(results, probe, metrics, means)


def means_by_importance(
    results: pd.DataFrame, probe: str, mark: str, kinds: Mapping[str, str]
) -> pd.DataFrame:
    """`mean_table` with a line per importance.

    Args:
        results: a long table.
        probe: whose metrics they are.
        mark: what stands before an importance's name in one of the metrics.
        kinds: of the importance X the metric `<kind>_X` → its heading.
    """
    lines = []
    for name, facts in importances_in(results, probe, mark).items():
        columns = {heading: f"{kind}_{name}" for kind, heading in kinds.items()}
        lines.append(({"importance": facts.title}, columns))
    return mean_table(results, probe, lines)


@dataclass(frozen=True)
class Headline:
    """One number that stands for a probe: a mean over the examples, or of the whole split.

    Attributes:
        metric: whose mean it is.
        title: plain ASCII (it is printed into log files).
        published: the published metric that it is compared with (`attnprobe.evidence.published`).
        by_class: adds a row per predicted class.
        proportion_of: the metric with the number of examples, where a whole-split number is a share
            of them.
        name: what the number is filed under, where a metric has several.
        transform: values `[examples]` → those that are averaged; NaN stays NaN.
        spread: the population standard deviation instead of the mean.
        at_most: (another metric, bound): only the examples where it is no larger.
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
        """What the number is filed under."""
        return self.name or self.metric

    @property
    def metrics(self) -> tuple[str, ...]:
        """Every metric that the number is made of."""
        metrics = [self.metric]
        if self.at_most is not None:
            metrics.append(self.at_most[0])
        if self.by_class:
            metrics.append("predicted_class")
        return (*metrics, self.proportion_of or "examples")

    def values(self, run: pd.DataFrame) -> "pd.Series[float]":
        """What the number is the mean of.

        Args:
            run: rows without steps of one run and probe.

        Returns:
            The examples' values, by example id, NaN where undefined; or the one of the whole split
            (`WHOLE_SPLIT` is its id).
        """
        values = run[run["metric"] == self.metric].set_index("example_id")["value"]
        if WHOLE_SPLIT in values.index:
            values = values[[WHOLE_SPLIT]]
        if self.at_most is not None:
            metric, bound = self.at_most
            bounded = run[run["metric"] == metric].set_index("example_id")["value"]
            values = values[bounded.reindex(values.index) <= bound]
        if self.transform is None or values.empty:
            return values
        return pd.Series(self.transform(values.to_numpy()), values.index)

    def reduced(self, run: pd.DataFrame) -> float | None:
        """The number of one run; examples where it is undefined are left out.

        Args:
            run: rows without steps of one run and probe.

        Returns:
            None where the run does not have it.
        """
        values = self.values(run)
        if values.empty:
            return None
        return float(values.std(ddof=0) if self.spread else values.mean())


@dataclass(frozen=True)
class Drawing:
    """A figure.

    Attributes:
        name: of its files.
        draw: the rows of `metrics` and of `optional` ones, and the examples' table where it shows
            words → the figure.
        metrics: of its probe, without which it cannot be drawn; with their steps.
        words: it shows the texts, so it needs the examples' table, is drawn for each run by itself,
            and is left out where texts must not leave the machine.
        optional: further ones without steps, and patterns such as `regret_*`; None: every one.
        examples: rows without steps → ids of the examples whose texts and rows with steps it shows;
            None: of all.
    """

    name: str
    draw: Callable[[Any, pd.DataFrame | None], Figure]
    metrics: tuple[str, ...]
    words: bool = False
    optional: tuple[str, ...] | None = None
    examples: Callable[[pd.DataFrame], Sequence[int]] | None = None


@dataclass(frozen=True)
class Tabulation:
    """A table for a paper.

    Attributes:
        name: of its files.
        caption: plain text with the unit.
        build: the rows of `metrics` → the table with its final headings, without rows where the
            results lack its numbers.
        metrics: names or patterns; without steps.
    """

    name: str
    caption: str
    build: Callable[[Any], pd.DataFrame]
    metrics: tuple[str, ...] = EVERY


@dataclass(frozen=True)
class HeatMap:
    """A metric with a number per position, which the page's browser and W&B show over the texts.

    Attributes:
        metric: with steps, which are the positions; 0 to 1.
        title: a few words.
        about: what the numbers are, in a sentence.
        relative: shaded relative to the text's largest number, where the numbers are no shares of a
            whole.
    """

    metric: str
    title: str
    about: str
    relative: bool = False


@dataclass(frozen=True)
class Column:
    """A metric with a number per example that the page's browser and W&B show next to the texts.

    Attributes:
        metric: without steps.
        title: a few words.
        digits: decimals that are shown.
        one_minus: 1 − the metric is shown.
        sorts: the examples can be sorted by it.
        leads: it comes first there, and W&B's examples are chosen by it.
        truth: it is 1 or 0, for yes or no.
    """

    metric: str
    title: str
    digits: int = 3
    one_minus: bool = False
    sorts: bool = True
    leads: bool = False
    truth: bool = False


@dataclass(frozen=True)
class Reading:
    """All that the report knows of one probe.

    Attributes:
        probe: its name.
        headlines: its numbers in the summary.
        drawings: its figures.
        tables: its tables for a paper.
        claims: what its numbers can confirm.
        title: heading of its part of the report.
        about: what it measures and how to read it.
        order: of the probes in the summary, small first.
        noted: diagnostics, run by run (`notes` of the manifest) → one or two sentences.
        of_importance: headlines of every importance; see `headlines_of`.
        mark: what stands before an importance's name in a metric.
        closing: a long table of this probe → further headlines, which come last.
        maps: shown over the single examples.
        columns: shown next to the single examples.
    """

    probe: str
    headlines: tuple[Headline, ...] = ()
    drawings: tuple[Drawing, ...] = ()
    tables: tuple[Tabulation, ...] = ()
    claims: tuple[Claim, ...] = ()
    title: str = ""
    about: str = ""
    order: int = 100
    noted: Callable[[Sequence[Mapping[str, float]]], str] | None = None
    of_importance: tuple[Headline, ...] = ()
    mark: str = ""
    closing: Callable[[pd.DataFrame], tuple[Headline, ...]] | None = None
    maps: tuple[HeatMap, ...] = ()
    columns: tuple[Column, ...] = ()

    def headlines_of(self, results: pd.DataFrame) -> tuple[Headline, ...]:
        """The headlines that a table has numbers for.

        Args:
            results: a long table of this probe, of any runs.

        Returns:
            `headlines`; those `of_importance` for every importance in the table (those that have a
            metric `mark` followed by their name), with its name and title in the place of
            `{importance}` and `{title}`; and those that `closing` finds.
        """
        headlines = list(self.headlines)
        if self.of_importance:
            for importance, facts in importances_in(results, self.probe, self.mark).items():
                headlines += [_filled(each, importance, facts) for each in self.of_importance]
        if self.closing is not None:
            headlines += self.closing(results)
        return tuple(headlines)


def _filled(headline: Headline, importance: str, facts: Facts) -> Headline:
    """A headline of every importance, for one of them."""
    return replace(
        headline,
        metric=headline.metric.replace("{importance}", importance),
        name=None if headline.name is None else headline.name.replace("{importance}", importance),
        title=headline.title.replace("{title}", facts.ascii_title),
    )


@cache
def readings() -> dict[str, Reading]:
    """Every probe's reading, by the probe's name, in the summary's order.

    Raises:
        UserError: an installed package brings a reading of a probe that has one.
    """
    package = importlib.import_module("attnprobe.probes")
    declared: list[Reading] = []
    for info in pkgutil.iter_modules(package.__path__):
        if not info.name.startswith("_"):
            module = importlib.import_module(f"{package.__name__}.{info.name}")
            if hasattr(module, "READING"):
                declared.append(module.READING)
    declared += [entry.load() for entry in entry_points(group="attnprobe.readings")]
    ordered = sorted(declared, key=lambda reading: (reading.order, reading.probe))
    names = [reading.probe for reading in ordered]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise UserError(
            f"{', '.join(repeated)}: two readings of one probe; give your own probe another name"
        )
    return {reading.probe: reading for reading in ordered}


def present(numbers: Numbers) -> list[Reading]:
    """The readings of those probes that there are numbers of."""
    probes = set(numbers.probes)
    return [reading for name, reading in readings().items() if name in probes]


def maps_in(numbers: Numbers) -> list[tuple[str, HeatMap]]:
    """The heat maps that there are numbers of, with their probes."""
    return [
        (reading.probe, heat_map)
        for reading in present(numbers)
        for heat_map in reading.maps
        if heat_map.metric in numbers.metrics(reading.probe)
    ]


def columns_in(numbers: Numbers) -> list[tuple[str, Column]]:
    """The columns that there are numbers of, with their probes.

    First come those to sort by, and leading ones before all.
    """
    columns = [
        (reading.probe, column)
        for reading in present(numbers)
        for column in reading.columns
        if column.metric in numbers.metrics(reading.probe)
    ]
    return sorted(columns, key=lambda pair: (not pair[1].sorts, not pair[1].leads))
