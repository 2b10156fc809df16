"""The reading of a probe, and what it is made of.

Each probe declares its `READING` in its own file.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from attnprobe.core.metrics import ANY_NUMBER, Scale
from attnprobe.evidence.claims import Claim
from attnprobe.readings.importances import Facts, importances_in
from attnprobe.results.directory import WHOLE_SPLIT
from attnprobe.results.numbers import EVERY
from attnprobe.results.pivot import class_of


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
        scale: what the transformed values can be; those of the metric itself are on its own.
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
    scale: Scale = ANY_NUMBER
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


def metrics_of(headlines: Iterable[Headline]) -> list[str]:
    """Every metric that some headlines are made of, each once."""
    return list(dict.fromkeys(metric for headline in headlines for metric in headline.metrics))


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
        metric: with steps, which are the positions; 0 to 1, or signed where it is `relative`. One
            that ends in `{class}` stands for a metric of every class.
        title: a few words, in which `{name}` stands for the class's name.
        about: what the numbers are, in a sentence.
        relative: shaded relative to the text's largest number, where the numbers are no shares of a
            whole.
        is_set: the numbers are 1 for positions that belong to a set, and 0 for all others.
    """

    metric: str
    title: str
    about: str
    relative: bool = False
    is_set: bool = False

    def among(self, metrics: Sequence[str], classes: Sequence[str]) -> "list[HeatMap]":
        """The heat maps that there are numbers of: itself, or one for each class.

        Args:
            metrics: that there are numbers of.
            classes: their names; empty: they are called by their numbers.
        """
        start = self.metric.removesuffix("{class}")
        if start == self.metric:
            return [self] if self.metric in metrics else []
        groups = [metric.removeprefix(start) for metric in metrics if metric.startswith(start)]
        return [
            replace(
                self,
                metric=start + group,
                title=self.title.replace("{name}", class_of(group, classes)),
            )
            for group in sorted(groups, key=lambda group: int(group.removeprefix("class_")))
        ]


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
