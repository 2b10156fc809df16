"""The numbers that stand for each probe: computed here, once, and only shown elsewhere."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Int

from attnprobe.core.metrics import Scale
from attnprobe.evidence.published import published
from attnprobe.evidence.statistics import interval, wilson_of_whole_clusters
from attnprobe.readings.reading import Headline, Reading, metrics_of
from attnprobe.readings.registry import present
from attnprobe.results.directory import WHOLE_SPLIT
from attnprobe.results.numbers import Numbers, numbers_of
from attnprobe.results.pivot import ASKED, REPEATS, RUN, by_run, distinct, text_by_example
from attnprobe.results.table import scale_of

OVERALL = "overall"
"""The group of all classes together."""


@dataclass(frozen=True)
class Mean:
    """A headline number of one run and group of texts, in the unit of its metric.

    Attributes:
        group: `overall`, or the predicted class, `class_0`, `class_1`, …
        n: texts that it is of; 0 where that is not known.
        mean: the number.
        low: lower end of its 95 % interval; NaN where there is no interval.
        high: upper end of the interval.
    """

    group: str
    n: int
    mean: float
    low: float = np.nan
    high: float = np.nan


@dataclass(frozen=True)
class HeadlineRow:
    """A row of `compare`: a headline number of one run beside the published one."""

    run_id: str
    experiment: str
    data: str
    model: str
    seed: int | str
    split: str
    probe: str
    metric: str
    title: str
    group: str
    n: int
    mean: float
    low: float
    high: float
    published: float
    difference: float
    source: str


COLUMNS = [field.name for field in fields(HeadlineRow)]


def headline(results: pd.DataFrame | Numbers) -> dict[str, float]:
    """The headline numbers of one run, without intervals; NaN examples are left out.

    Args:
        results: the numbers of one run; a long table will do.

    Returns:
        `probe/number` → number, in the summary's order.

    Raises:
        ValueError: the table holds more than one run.
    """
    stored = numbers_of(results)
    runs = sorted({str(run["run_id"]) for run in stored.runs})
    if len(runs) > 1:
        raise ValueError(
            f"headline takes the results of one run, got {len(runs)}: {', '.join(runs)}"
        )
    numbers = {}
    for reading in present(stored):
        headlines = reading.headlines_of(stored.outline(reading.probe))
        rows = stored.rows(reading.probe, metrics_of(headlines))
        for number in headlines:
            value = number.reduced(rows)
            if value is not None:
                numbers[f"{reading.probe}/{number.key}"] = value
    return numbers


def compare(results: pd.DataFrame | Numbers) -> pd.DataFrame:
    """Every headline number of every run with its interval, beside the published value.

    Args:
        results: the numbers of one run or several; a long table
            (`attnprobe.results.table.read_results`) will do.

    Returns:
        One row per run, probe, headline metric and group (`overall`, and `class_0`, … by predicted
        class where the headline asks for it). `mean`, with its 95 % interval `low`, `high` over the
        `n` examples: bootstrap for means of per-example numbers, Wilson's for shares of the
        examples and of the whole split (accuracy; several answers about one text count as if they
        were all right, or all wrong), NaN for its other numbers (macro F1, areas). `difference` =
        mean − published; NaN where nothing is published.
    """
    numbers = numbers_of(results)
    rows: list[HeadlineRow] = []
    for reading in present(numbers):
        rows += _rows_of_probe(numbers, reading)
    return pd.DataFrame([asdict(row) for row in rows], columns=COLUMNS)


def _rows_of_probe(numbers: Numbers, reading: Reading) -> Iterator[HeadlineRow]:
    """The headline numbers of one probe, run after run."""
    headlines = reading.headlines_of(numbers.outline(reading.probe))
    rows_of_run: dict[tuple[int | str, ...], list[HeadlineRow]] = {}
    # run by run: a table is read once, and so many texts are resampled once for all its numbers
    for run_numbers in numbers.each_run():
        table = distinct(run_numbers.rows(reading.probe, metrics_of(headlines)))
        for identity, run in by_run(table):
            rows = rows_of_run.setdefault(identity, [])
            for number in headlines:
                for mean in _means(run, number):
                    rows.append(_beside_published(identity, reading.probe, number, mean))
    for identity in sorted(rows_of_run):
        yield from rows_of_run[identity]


def _beside_published(
    identity: tuple[int | str, ...], probe: str, number: Headline, mean: Mean
) -> HeadlineRow:
    """A headline number of one run, with what the papers report where they report it."""
    run: dict[str, Any] = dict(zip(RUN, identity, strict=True))
    table = published(str(run["data"]), str(run["model"]))
    is_same_number = (table["metric"] == number.published) & (table["group"] == mean.group)
    reported = table[is_same_number]
    value = np.nan
    source = ""
    if not reported.empty:
        value = reported["value"].iloc[0]
        source = reported["source"].iloc[0]
    return HeadlineRow(
        **run,
        probe=probe,
        metric=number.key,
        title=number.title,
        group=mean.group,
        n=mean.n,
        mean=mean.mean,
        low=mean.low,
        high=mean.high,
        published=value,
        difference=mean.mean - value,
        source=source,
    )


def _means(run: pd.DataFrame, number: Headline) -> Iterator[Mean]:
    """One headline number of one run's table of one probe; nothing if it has no such metric."""
    values = number.values(run)
    if values.empty:
        return
    if values.index[0] == WHOLE_SPLIT:
        yield _of_whole_split(run, number, float(values.iloc[0]))
        return

    groups = {OVERALL: values}
    if number.by_class:
        groups |= _by_predicted_class(values, run)
    if run.attrs.get(ASKED) and not number.spread:
        groups = {group: _mean_of_questions(part, run) for group, part in groups.items()}

    scale = scale_of_headline(run, str(run["probe"].iloc[0]), number)
    for group, part in groups.items():
        n = int(part.notna().sum())
        if number.spread:  # a standard deviation has no interval
            yield Mean(group, n, float(part.std(ddof=0)))
        else:
            yield Mean(group, n, *interval(part, scale))


def _by_predicted_class(
    values: "pd.Series[float]", run: pd.DataFrame
) -> dict[str, "pd.Series[float]"]:
    """The values of the texts of each predicted class; those without one are left out."""
    decisions = run[run["metric"] == "predicted_class"].set_index("example_id")["value"]
    return {
        f"class_{int(predicted_class)}": part
        for predicted_class, part in values.groupby(decisions.reindex(values.index))
        if predicted_class >= 0
    }


def _of_whole_split(run: pd.DataFrame, number: Headline, value: float) -> Mean:
    """A number of the whole split.

    A share of a known count has Wilson's interval for the distinct rows; several about one text
    count as if they were all right or all wrong, as a table does not say which are.
    """
    counts = run.loc[run["metric"] == (number.proportion_of or "examples"), "value"]
    run_id = str(run["run_id"].iloc[0])
    repeats = run.attrs.get(REPEATS, {}).get(run_id, ())
    n = 0 if counts.empty else int(counts.iloc[0]) - len(repeats)
    if number.proportion_of is None or n <= 0 or np.isnan(value):
        return Mean(OVERALL, n, value)
    sizes = _rows_of_texts(n, run.attrs.get(ASKED, {}).get(run_id, {}))
    _, low, high = wilson_of_whole_clusters(value, sizes)
    return Mean(OVERALL, n, value, low, high)


def _rows_of_texts(rows: int, first_of_text: Mapping[int, int]) -> Int[np.ndarray, " texts"]:
    """How many rows each text has.

    Args:
        rows: of all texts.
        first_of_text: each row about the text of an earlier one → the first of these.
    """
    further = np.array(list(Counter(first_of_text.values()).values()), int)
    asked_once = rows - len(further) - int(further.sum())
    return np.concatenate([further + 1, np.ones(max(0, asked_once), int)])


def _mean_of_questions(values: "pd.Series[float]", run: pd.DataFrame) -> "pd.Series[float]":
    """The values text by text: the questions about one text count together."""
    return values.groupby(text_by_example(run).reindex(values.index)).mean()


def scale_of_headline(results: pd.DataFrame, probe: str, number: Headline) -> Scale:
    """What the values can be that the number is the mean of, as the results' runs say it."""
    if number.transform is not None:
        return number.scale
    return scale_of(results, probe, number.metric)
