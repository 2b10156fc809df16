"""Tables of means, with a row per data set and model."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pandas as pd

from attnprobe.core.metrics import ANY_NUMBER, Scale
from attnprobe.evidence.evidence import Column, by_run, over_seeds
from attnprobe.evidence.statistics import in_columns, interval, means_of_runs
from attnprobe.readings.importances import importances_in
from attnprobe.results.pivot import facets, per_example
from attnprobe.results.table import scale_of


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


def mean_in_columns(
    heading: str,
    rows: pd.DataFrame,
    values: Column,
    scale: Scale = ANY_NUMBER,
) -> dict[str, float]:
    """A mean as three columns of a table: `heading`, `heading, low`, `heading, high`.

    The 95 % interval is over texts and, where the panel has several seeds, over runs: the same text
    in three runs is no three texts.

    Args:
        heading: of the columns.
        rows: of a panel, or some of them.
        values: a number for each row; NaN values are left out.
        scale: what a value can be.
    """
    return in_columns(heading, interval(by_run(rows, values), scale), ", ")


def texts_with(rows: pd.DataFrame, values: Column) -> int:
    """How many texts have a number, in any of the runs.

    Args:
        rows: of a panel, or some of them.
        values: a number for each row; NaN where there is none.
    """
    return int(over_seeds(rows, values).notna().sum())


def mean_over_texts(rows: pd.DataFrame, values: Column) -> float:
    """The mean of `mean_in_columns` alone; NaN where no text has a number.

    Args:
        rows: of a panel, or some of them.
        values: a number for each row; several questions about one text count as their mean.
    """
    means = means_of_runs(by_run(rows, values))
    return float(means.mean()) if len(means) else math.nan


def mean_table(
    results: pd.DataFrame,
    probe: str,
    lines: Iterable[tuple[Mapping[str, object], Mapping[str, str]]],
) -> pd.DataFrame:
    """A table of means with 95 % intervals over texts and runs; empty without lines.

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
            line = {**cells, "n": texts_with(rows, rows[first_metric])}
            for heading, metric in columns.items():
                scale = scale_of(results, probe, metric)
                line |= mean_in_columns(heading, rows, rows[metric], scale)
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
