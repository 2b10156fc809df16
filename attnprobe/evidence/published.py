"""Published numbers next to ours. The numbers are CSV files in this folder; each file's head says
what they are."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from attnprobe.evidence.reading import Headline, ends_of, present
from attnprobe.evidence.statistics import interval, wilson
from attnprobe.results.directory import WHOLE_SPLIT
from attnprobe.results.numbers import Numbers, numbers_of
from attnprobe.results.pivot import ASKED, REPEATS, RUN, by_run, distinct, text_of

FILES = {"Jain & Wallace 2019": "jain_wallace.csv", "Serrano & Smith 2019": "serrano_smith.csv"}
REMARKS = {
    "Jain & Wallace 2019": "pretrained word vectors; largest JSD among those with TVD <= 0.05",
    "Serrano & Smith 2019": "other word vectors and splits; a ranking that never flips is counted as needing more",
}
"""What a reader must know before comparing, in plain ASCII."""
COLUMNS = [
    *RUN,
    "probe",
    "metric",
    "title",
    "group",
    "n",
    "mean",
    "low",
    "high",
    "published",
    "difference",
    "source",
]
NUMBERS = Path(__file__).parent / "published_numbers"


@cache
def published(data: str, model: str) -> pd.DataFrame:
    """What the papers report for a data set and model, under this project's names; empty where they
    report nothing.

    Returns:
        Columns `metric group value source`: `group` is `overall` or `class_0`, `class_1`, …;
        `source` names the paper and where in it the number was read.
    """
    tables = [pd.read_csv(NUMBERS / name, comment="#") for name in FILES.values()]
    table = pd.concat(
        [
            one.assign(source=f"{paper}, " + one["source"])
            for paper, one in zip(FILES, tables, strict=True)
        ]
    )
    rows = table[(table["data"] == data) & (table["model"] == model)]
    return rows[["metric", "group", "value", "source"]].reset_index(drop=True)


def compare(results: pd.DataFrame | Numbers) -> pd.DataFrame:
    """Every headline number of every run with its interval, the published value, and the
    difference.

    Args:
        results: the numbers of one run or several; a long table
            (`attnprobe.results.table.read_results`) will do.

    Returns:
        One row per run, probe, headline metric and group (`overall`, and `class_0`, … by predicted
        class where the headline asks for it). `mean`, with its 95 % interval `low`, `high` over the
        `n` examples: bootstrap for means of per-example numbers, Wilson's for shares of the whole
        split (accuracy), NaN for its other numbers (macro F1, areas). `difference` = mean −
        published; NaN where nothing is published.
    """
    numbers = numbers_of(results)
    rows: list[dict[str, Any]] = []
    for reading in present(numbers):
        of_runs: dict[tuple[int | str, ...], list[dict[str, Any]]] = {}
        for headline in reading.headlines_of(numbers.outline(reading.probe)):
            fact = {"probe": reading.probe, "metric": headline.key, "title": headline.title}
            for key, own in by_run(distinct(numbers.rows(reading.probe, headline.metrics))):
                identity = dict(zip(RUN, key, strict=True))
                papers = published(str(identity["data"]), str(identity["model"]))
                for group, n, (mean, low, high) in _aggregates(own, headline):
                    beside = papers[
                        (papers["metric"] == headline.published) & (papers["group"] == group)
                    ]
                    value, source = (
                        (np.nan, "") if beside.empty else beside[["value", "source"]].iloc[0]
                    )
                    number = {
                        "group": group,
                        "n": n,
                        "mean": mean,
                        "low": low,
                        "high": high,
                        "published": value,
                    }
                    line = identity | fact | number | {"difference": mean - value, "source": source}
                    of_runs.setdefault(key, []).append(line)
        rows += [line for key in sorted(of_runs) for line in of_runs[key]]
    return pd.DataFrame(rows, columns=COLUMNS)


def _aggregates(
    run: pd.DataFrame, headline: Headline
) -> list[tuple[str, int, tuple[float, float, float]]]:
    """(group, n, (number, low, high)) of one headline in one run's table of one probe; empty if it
    has no such metric. Of the whole split a share of a known count has Wilson's interval for the
    distinct texts; a standard deviation has none."""
    values = headline.values(run)
    if values.empty:
        return []
    if values.index[0] == WHOLE_SPLIT:
        value = float(values.iloc[0])
        counts = run.loc[run["metric"] == (headline.proportion_of or "examples"), "value"]
        repeats = run.attrs.get(REPEATS, {}).get(str(run["run_id"].iloc[0]), ())
        n = 0 if counts.empty else int(counts.iloc[0]) - len(repeats)
        known = headline.proportion_of is not None and n > 0 and not np.isnan(value)
        return [("overall", n, (value, *(wilson(value * n, n)[1:] if known else (np.nan, np.nan))))]
    groups = [("overall", values)]
    if headline.by_class:
        predicted = (
            run[run["metric"] == "predicted_class"]
            .set_index("example_id")["value"]
            .reindex(values.index)
        )
        groups += [(f"class_{int(c)}", part) for c, part in values.groupby(predicted) if c >= 0]
    if run.attrs.get(ASKED) and not headline.spread:  # the questions about one text count together
        texts = pd.Series(text_of(run), run["example_id"])
        texts = texts[~texts.index.duplicated()]
        groups = [(group, part.groupby(texts.reindex(part.index)).mean()) for group, part in groups]
    low, high = ends_of(run, str(run["probe"].iloc[0]), headline.metric)
    if headline.transform is not None and np.isfinite([low, high]).all():
        ends = headline.transform(np.array([low, np.clip(0, low, high), high], np.float64))
        low = float(np.min(ends))
        high = float(np.max(ends))
    elif headline.transform is not None:
        low = -np.inf
        high = np.inf
    return [
        (
            group,
            int(part.notna().sum()),
            (float(part.std(ddof=0)), np.nan, np.nan)
            if headline.spread
            else interval(part, low=low, high=high),
        )
        for group, part in groups
    ]
