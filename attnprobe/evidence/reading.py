"""How a probe is read: its headline numbers and its figures, declared in one file per probe as its
`READING`. An installed package brings readings of its own probes by entry points of the group
`attnprobe.readings` (docs/extending.md)."""

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

# What the manifests of the runs say of importances, so that nothing of an outside package, nor
# torch, is imported.


COLOURS = ("#882255", "#44AA99", "#332288", "#117733", "#AA4499", "#661100")


@dataclass(frozen=True)
class Facts:
    """An importance's title in words, its colour, and whether its scores have a sign."""

    title: str
    colour: str
    signed: bool = False

    @property
    def ascii_title(self) -> str:
        return self.title.replace("×", "x").encode("ascii", "replace").decode("ascii")


def facts_of(name: str, results: pd.DataFrame, probe: str) -> Facts:
    """What the results' runs say of the importance that a probe files under this name, or what the
    name says.

    >>> facts_of("my_own", pd.DataFrame(), "erasure").title
    'my own'
    """
    said = results.attrs.get(IMPORTANCES, {}).get(probe, {}).get(name, {})
    colour = COLOURS[sum(name.encode()) % len(COLOURS)]
    own = said.get("colour", colour)
    return Facts(
        str(said.get("title", name.replace("_", " "))),
        own if is_color_like(own) else colour,
        bool(said.get("signed")),
    )


def importances_in(results: pd.DataFrame, probe: str, mark: str) -> dict[str, Facts]:
    """The names that follow `mark` in the metrics of a probe with their facts, in the order in
    which the probe took its importances; those of which the runs say nothing follow in alphabetical
    order."""
    there = {
        one.removeprefix(mark) for one in metrics_there(results, probe) if one.startswith(mark)
    }
    said = [name for name in results.attrs.get(IMPORTANCES, {}).get(probe, {}) if name in there]
    return {
        name: facts_of(name, results, probe) for name in (*said, *sorted(there.difference(said)))
    }


def importances_and_operators(
    results: pd.DataFrame, probe: str, mark: str
) -> list[tuple[str, str]]:
    """(importance, operator) of the metrics `<mark><importance>_by_<operator>` of a probe."""
    ends = [re.fullmatch(r"(.+)_by_(\w+?)", end) for end in importances_in(results, probe, mark)]
    return [(end[1], end[2]) for end in ends if end]


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
    """A row per data set and model and line, which `lines` makes of its wide rows of these metrics;
    empty without metrics."""
    panels = facets(per_example(results, probe, metrics)) if metrics else []
    return pd.DataFrame(
        [{"data and model": one.title, **line} for one in panels for line in lines(one.rows)]
    )


def mean_table(
    results: pd.DataFrame,
    probe: str,
    lines: Iterable[tuple[Mapping[str, object], Mapping[str, str]]],
) -> pd.DataFrame:
    """A row per data set and model and line: the line's cells, in how many texts its first metric
    is known (`n`), and each metric's mean under its heading, with a 95 % bootstrap interval over
    the texts. Empty without lines.

    Args:
        results: a long table.
        probe: whose metrics they are.
        lines: (heading → cell, heading → metric), such as ({"importance": "gradient"}, {"AOPC":
            "aopc_gradient"}).
    """
    several = list(lines)

    def means(rows: pd.DataFrame) -> Iterator[dict[str, object]]:
        for cells, columns in several:
            line = {**cells, "n": int(rows[next(iter(columns.values()))].notna().sum())}
            for heading, metric in columns.items():
                line |= mean_in_columns(
                    heading, rows[metric].to_numpy(), *ends_of(results, probe, metric)
                )
            yield line

    return facet_table(
        results, probe, [one for _, columns in several for one in columns.values()], means
    )


def means_by_importance(
    results: pd.DataFrame, probe: str, mark: str, kinds: Mapping[str, str]
) -> pd.DataFrame:
    """`mean_table` with a line per importance X: of each kind the metric `<kind>_X` under its
    heading."""
    lines = (
        (
            {"importance": facts.title},
            {heading: f"{kind}_{name}" for kind, heading in kinds.items()},
        )
        for name, facts in importances_in(results, probe, mark).items()
    )
    return mean_table(results, probe, lines)


@dataclass(frozen=True)
class Headline:
    """One number that stands for a probe: the mean of a metric over the examples, or a number of
    the whole split.

    Attributes:
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
        return self.name or self.metric

    @property
    def metrics(self) -> tuple[str, ...]:
        bound = () if self.at_most is None else self.at_most[:1]
        predicted = ("predicted_class",) if self.by_class else ()
        return (self.metric, *bound, *predicted, self.proportion_of or "examples")

    def values(self, run: pd.DataFrame) -> "pd.Series[float]":
        """The examples' values, by example id, NaN where undefined; or the one of the whole split
        (`WHOLE_SPLIT` is its id).

        Args:
            run: rows without steps of one run and probe.
        """

        values = run[run["metric"] == self.metric].set_index("example_id")["value"]
        values = values[[WHOLE_SPLIT]] if WHOLE_SPLIT in values.index else values
        if self.at_most is not None:
            other = run[run["metric"] == self.at_most[0]].set_index("example_id")["value"]
            values = values[other.reindex(values.index) <= self.at_most[1]]
        if self.transform is None or values.empty:
            return values
        return pd.Series(self.transform(values.to_numpy()), values.index)

    def reduced(self, run: pd.DataFrame) -> float | None:
        """The number itself of one run; examples where it is undefined are left out. None where the
        run does not have it."""
        values = self.values(run)
        return None if values.empty else float(values.std(ddof=0) if self.spread else values.mean())


@dataclass(frozen=True)
class Drawing:
    """A figure: `draw(results, examples)` → Figure. It is given the rows of `metrics`, and of
    `optional` ones.

    Attributes:
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
    """A table for a paper: `build(results)` → DataFrame with its final headings, without rows where
    the results lack its numbers. `name` is the file's, `caption` plain text with the unit.
    `metrics` without steps: names or patterns."""

    name: str
    caption: str
    build: Callable[[Any], pd.DataFrame]
    metrics: tuple[str, ...] = EVERY


@dataclass(frozen=True)
class HeatMap:
    """A metric with a number per position, 0 to 1, that the page's browser and W&B show over the
    texts. `relative`: shaded relative to the text's largest number, where the numbers do not share
    out a whole."""

    metric: str
    title: str
    about: str
    relative: bool = False


@dataclass(frozen=True)
class Column:
    """A metric with a number per example that the page's browser and W&B show next to the texts.
    `sorts`: the examples can be sorted by it. `leads`: it comes first there, and W&B's examples are
    chosen by it. `one_minus`: 1 − the metric is shown. `truth`: it is 1 or 0, for yes or no."""

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
        title, about: of the probe's part of the report: what it measures and how to read it. order:
        of the probes in the summary, small first. noted: what the probe noted of its own working,
        run by run (`notes` of the manifest) → one or two sentences. of_importance, mark, closing:
        see `headlines_of`. maps, columns: shown with the single examples.
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
        """`headlines`; those `of_importance` for every importance in the table (those that have a
        metric `mark` followed by their name), with its name and title in the place of
        `{importance}` and `{title}`; and those that `closing` finds.

        Args:
            results: a long table of this probe, of any runs.
        """
        there = importances_in(results, self.probe, self.mark) if self.of_importance else {}
        of_each = [
            replace(
                one,
                metric=one.metric.replace("{importance}", importance),
                name=one.name and one.name.replace("{importance}", importance),
                title=one.title.replace("{title}", facts.ascii_title),
            )
            for importance, facts in there.items()
            for one in self.of_importance
        ]
        return (*self.headlines, *of_each, *(() if self.closing is None else self.closing(results)))


@cache
def readings() -> dict[str, Reading]:
    """Every probe's reading, by the probe's name, in the summary's order.

    Raises:
        UserError: an installed package brings a reading of a probe that has one.
    """
    package = importlib.import_module("attnprobe.probes")
    names = [
        one.name for one in pkgutil.iter_modules(package.__path__) if not one.name.startswith("_")
    ]
    modules = [importlib.import_module(f"{package.__name__}.{name}") for name in names]
    own = [module.READING for module in modules if hasattr(module, "READING")]
    installed: list[Reading] = [entry.load() for entry in entry_points(group="attnprobe.readings")]
    ordered = sorted([*own, *installed], key=lambda one: (one.order, one.probe))
    names = [reading.probe for reading in ordered]
    if twice := {name for name in names if names.count(name) > 1}:
        raise UserError(
            f"{', '.join(sorted(twice))}: two readings of one probe; give your own probe another name"
        )
    return {reading.probe: reading for reading in ordered}


def present(numbers: Numbers) -> list[Reading]:
    """The readings of those probes that there are numbers of."""
    probes = set(numbers.probes)
    return [reading for name, reading in readings().items() if name in probes]


def maps_in(numbers: Numbers) -> list[tuple[str, HeatMap]]:
    """The heat maps that there are numbers of, with their probes."""
    every = ((reading.probe, one) for reading in present(numbers) for one in reading.maps)
    return [(probe, one) for probe, one in every if one.metric in numbers.metrics(probe)]


def columns_in(numbers: Numbers) -> list[tuple[str, Column]]:
    """The columns that there are numbers of, with their probes: first those to sort by, leading
    ones before all."""
    every = ((reading.probe, one) for reading in present(numbers) for one in reading.columns)
    shown = [(probe, one) for probe, one in every if one.metric in numbers.metrics(probe)]
    return sorted(shown, key=lambda pair: (not pair[1].sorts, not pair[1].leads))
