"""`python -m research.papers RUNS … --page PAGE`: every published number beside what runs measured.

The page is made of the runs' tables alone. A published number without a run says so; data that
nobody can have say that.
"""

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from attnprobe.core.errors import UserError
from attnprobe.evidence.published import FILES, NUMBERS
from attnprobe.evidence.statistics import Interval, student
from attnprobe.findings.headlines import OVERALL, compare
from attnprobe.findings.studies.base import find_studies
from attnprobe.readings.registry import present
from attnprobe.results.directory import RunDirectory, find_runs
from attnprobe.results.numbers import numbers_of
from attnprobe.results.table import read_results
from research.markdown import markdown, put_between_markers

NO_DATA = {
    "amazon": "not at hand",
    "anemia": "hospital records, on application",
    "cnn_qa": "not at hand",
    "diabetes": "hospital records, on application",
    "imdb10": "not at hand",
    "tweets_adr": "tweets, which are not given away",
    "yahoo": "not at hand",
    "yelp": "not at hand",
}
"""Data set of a paper → why no run here has it."""
RANDOM = "random vectors"
METRICS = {
    "accuracy": "accuracy",
    "f1_macro": "macro F1",
    "roc_auc": "ROC-AUC",
    "adversarial_max_jsd_mean": "adversary's JSD",
    "tau_attention_gradient_mean": "τ(attention, gradient)",
    "tau_attention_loo_mean": "τ(attention, leave-one-out)",
    "tau_gradient_loo_mean": "τ(gradient, leave-one-out)",
}
"""Published metric of Jain & Wallace → a column's heading."""
BY_CLASS = ("adversarial_max_jsd_mean",)
"""Of these the paper reports no number over all classes."""


@dataclass(frozen=True)
class Measured:
    """A number of one model over its seeds.

    Attributes:
        start: the word vectors that training began with.
        seeds: how many.
        number: the mean with Student's interval over seeds; of one seed the run's own interval,
            over texts.
    """

    start: str
    seeds: int
    number: Interval

    def __str__(self) -> str:
        value, low, high = self.number
        ends = "" if np.isnan(low) else f" [{low:.3f}, {high:.3f}]"
        plural = "seed" if self.seeds == 1 else "seeds"
        return f"{value:.3f}{ends} ({self.seeds} {plural})"


@dataclass(frozen=True)
class Cell:
    """A number that a paper reports, and what runs here say of it."""

    paper: str
    data: str
    model: str
    metric: str
    group: str
    published: float
    measured: list[Measured] = field(default_factory=list)

    def beyond(self, start: str) -> bool | None:
        """Whether the published number is outside of the interval; None: there is none."""
        for measured in self.measured:
            if measured.start == start and not np.isnan(measured.number.low):
                return not measured.number.low <= self.published <= measured.number.high
        return None


def cells_of(places: Sequence[str]) -> list[Cell]:
    """Every published number of the two papers that report theirs per model, in their order."""
    numbers = _measured_numbers(places)
    cells = []
    for paper, name in FILES.items():
        table = pd.read_csv(NUMBERS / name, comment="#")
        for row in table.to_dict("records"):
            names = (row["data"], row["model"], row["metric"], row["group"])
            cells.append(Cell(paper, *names, row["value"], numbers.get(names, [])))
    return cells


def _measured_numbers(places: Sequence[str]) -> dict[tuple[str, ...], list[Measured]]:
    """Data, model, published metric, group → a number for each start."""
    if not places:
        return {}
    starts = {}
    for path in find_runs(list(places)):
        manifest = RunDirectory(path).manifest()
        starts[manifest["run_id"]] = _start_of(manifest["training"]["data"].get("vectors"))
    results = numbers_of(read_results(list(places)))
    reported = {
        (reading.probe, headline.key): str(headline.published)
        for reading in present(results)
        for headline in reading.headlines_of(results.outline(reading.probe))
    }
    rows = compare(results)
    rows = rows[rows["published"].notna()]
    metrics = zip(rows["probe"], rows["metric"], strict=True)
    rows = rows.assign(
        start=rows["run_id"].map(starts), reported=[reported[metric] for metric in metrics]
    )

    numbers: dict[tuple[str, ...], list[Measured]] = {}
    for names, runs in rows.groupby(["data", "model", "reported", "group", "start"], observed=True):
        *cell, start = map(str, names)
        numbers.setdefault(tuple(cell), []).append(_over_seeds(start, runs))
    return numbers


def _start_of(vectors: str | None) -> str:
    return RANDOM if vectors is None else Path(vectors).stem


def _over_seeds(start: str, runs: pd.DataFrame) -> Measured:
    """The mean of several runs; of one its own number and interval.

    Raises:
        UserError: two runs have one seed, so that they are no sample of seeds.
    """
    repeated = runs["seed"][runs["seed"].duplicated()].unique()
    if len(repeated):
        name = f"{runs['data'].iloc[0]}, {runs['model'].iloc[0]}, {start}"
        raise UserError(
            f"{name}: several runs with seed {repeated[0]}, which differ in other settings: name "
            f"the directories of those that belong together"
        )
    if len(runs) == 1:
        (row,) = runs.to_dict("records")
        return Measured(start, 1, Interval(row["mean"], row["low"], row["high"]))
    return Measured(start, len(runs), student(runs["mean"].to_numpy()))


def jain_tables(cells: Iterable[Cell], starts: Sequence[str]) -> dict[str, pd.DataFrame]:
    """Data set → a row per model and metric: over all classes where the paper reports that.

    Args:
        cells: of `cells_of`.
        starts: word vectors, a column each.
    """
    rows: dict[str, list[dict[str, str]]] = {}
    for cell in cells:
        has_overall = cell.metric not in BY_CLASS
        if cell.metric not in METRICS or has_overall != (cell.group == OVERALL):
            continue
        predicted = "" if has_overall else f", predicted {cell.group.replace('_', ' ')}"
        row = {
            "model": cell.model,
            "number": METRICS[cell.metric] + predicted,
            "published": f"{cell.published:.3f}",
        }
        rows.setdefault(cell.data, []).append(row | _columns(cell, starts))
    return {data: pd.DataFrame(table) for data, table in rows.items()}


def serrano_table(cells: Iterable[Cell], starts: Sequence[str]) -> pd.DataFrame:
    """A row per data set and network: how often the gradient's order flips a decision sooner."""
    rows = [
        {"data": cell.data, "model": cell.model, "published": f"{cell.published:.3f}"}
        | _columns(cell, starts)
        for cell in cells
        if cell.metric.startswith("fewer_")
    ]
    return pd.DataFrame(rows)


def _columns(cell: Cell, starts: Sequence[str]) -> dict[str, str]:
    """What was measured, a column per start; bold where the published number is outside of it."""
    if cell.data in NO_DATA:
        return dict.fromkeys(starts, f"no data: {NO_DATA[cell.data]}")
    columns = dict.fromkeys(starts, "not run")
    for measured in cell.measured:
        text = str(measured)
        columns[measured.start] = f"**{text}**" if cell.beyond(measured.start) else text
    return columns


def page_of(places: Sequence[str]) -> str:
    """The generated part of the page: a table per paper and data set."""
    cells = cells_of(places)
    measured_starts = {measured.start for cell in cells for measured in cell.measured}
    starts = [RANDOM, *sorted(measured_starts - {RANDOM})]
    parts = [_counted(cells)]

    parts.append("## Jain & Wallace 2019")
    for data, table in jain_tables(cells, starts).items():
        if data in NO_DATA:
            parts.append(f"**{data}**: {len(table)} published numbers, no data: {NO_DATA[data]}.")
        else:
            parts.append(f"### {data}\n\n{markdown(table)}")

    parts.append("## Serrano & Smith 2019")
    parts.append(markdown(serrano_table(cells, starts)))

    parts.append("## Wiegreffe & Pinter 2019")
    studies = [study for study in find_studies(list(places))[0] if "Wiegreffe" in study.about]
    if not studies:
        parts.append("No study was run.")
    for study in studies:
        for caption, table in study.tables.items():
            parts.append(f"### {study.data}: {caption}\n\n{markdown(_rounded(table))}")
    return "\n\n".join(parts)


def _counted(cells: Sequence[Cell]) -> str:
    """How much of what was published has been run, in a sentence."""
    possible = [cell for cell in cells if cell.data not in NO_DATA]
    done = [cell for cell in possible if cell.measured]
    outside = []
    for cell in done:
        starts = {measured.start for measured in cell.measured}
        if any(cell.beyond(start) for start in starts):
            outside.append(cell)
    return (
        f"Of {len(cells):,} published numbers {len(possible):,} are of data at hand; "
        f"{len(done):,} of them have a run, and in {len(outside):,} the published number is "
        f"outside of a run's interval (**bold**)."
    )


def _rounded(table: pd.DataFrame) -> pd.DataFrame:
    """Numbers with three digits after the point, an empty cell where there is none."""

    def cell(value: object) -> object:
        if not isinstance(value, float):
            return value
        return "" if np.isnan(value) else f"{value:.3f}"

    return table.map(cell)


def main() -> None:
    """Carry out the command; a mistake is one line."""
    parser = argparse.ArgumentParser(prog="python -m research.papers", description=__doc__)
    parser.add_argument("runs", nargs="*", help="run directories, or folders above them")
    parser.add_argument("--page", type=Path, help="write into this page between its markers")
    options = parser.parse_args()
    try:
        content = page_of(options.runs)
        if options.page is None:
            print(content)
        else:
            put_between_markers(options.page, "cells", content)
    except UserError as error:
        raise SystemExit(f"research.papers: {error}") from None


if __name__ == "__main__":
    main()
