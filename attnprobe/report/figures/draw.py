"""All figures that the tables of some finished runs allow, as PDF for a paper and PNG for a page."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from attnprobe.report.figures.lines import shorten
from attnprobe.report.figures.style import drawable, paper_style, save
from attnprobe.report.numbers import EVERY, Numbers, StoredNumbers
from attnprobe.report.reading import Drawing, Reading, readings
from attnprobe.results.directory import RunDirectory
from attnprobe.results.finding import find_runs
from attnprobe.results.saved import read_pipeline


def draw_figures(
    run_dirs: str | os.PathLike | Iterable[str | os.PathLike], directory: str | os.PathLike, *, words: bool = True
) -> list[Path]:
    """Draw every figure whose numbers are in the tables.

    Figures of several runs show a panel per data set and model, with seeds pooled. Those that show texts are drawn
    once per run, with the run's id in the file's name where there are several.

    Args:
        run_dirs: a run directory, a directory above several runs, a glob pattern, or a list of these.
        directory: where the figures go; made if it is not there.
        words: False leaves out the figures that show texts, and the names of the classes.

    Returns:
        The files written, `<figure>.pdf` and `<figure>.png`, in the order of the probes.

    Raises:
        UserError: no finished run there.
    """
    runs = [RunDirectory(run) for run in find_runs(run_dirs)]
    return save_figures(runs, StoredNumbers.of(runs), directory, words=words)


def save_figures(
    runs: Sequence[RunDirectory], numbers: StoredNumbers, directory: str | os.PathLike, *, words: bool = True
) -> list[Path]:
    """As `draw_figures`, of runs whose numbers are known: those of each run, in the same order."""
    named = numbers.named([class_names(run.path) if words else [] for run in runs])
    endings = [""] if len(runs) == 1 else [f"-{file_name(run.path.name)}" for run in runs]
    figures = all_figures(readings().values(), runs, named, endings, words=words)
    return [path for figure in figures for path in save(figure.made, Path(directory), figure.file)]


@dataclass(frozen=True)
class DrawnFigure:
    """A figure that is there.

    Attributes:
        drawing: what it was drawn by.
        made: the figure in the house style.
        file: the stem of its files' names.
        run: the run whose texts it shows; None: it shows none.
    """

    drawing: Drawing
    made: Figure
    file: str
    run: RunDirectory | None = None


def all_figures(
    several: Iterable[Reading],
    runs: Sequence[RunDirectory],
    numbers: StoredNumbers,
    endings: Sequence[str],
    *,
    words: bool = True,
) -> Iterator[DrawnFigure]:
    """Every figure of these readings whose numbers are there, one at a time.

    Args:
        several: the readings.
        runs: the runs.
        numbers: theirs, in the same order, the classes called as the figures are to call them.
        endings: of each run what the files of its own figures, those with texts, end in.
        words: False leaves out the figures that show texts.
    """
    for drawing in (drawing for reading in several for drawing in reading.drawings):
        if not drawing.words:
            figure = drawn(drawing, numbers)
            if figure is not None:
                yield DrawnFigure(drawing, figure, drawing.name)
            continue
        for run, own, ending in zip(runs, numbers.each(), endings, strict=True) if words else ():
            figure = drawn(drawing, own.named([class_names(run.path)]), run)
            if figure is not None:
                yield DrawnFigure(drawing, figure, f"{drawing.name}{ending}", run)


def drawn(drawing: Drawing, numbers: Numbers, run: RunDirectory | None = None) -> Figure | None:
    """One figure in the house style; None where the numbers lack what it needs. They are not kept in memory.

    Args:
        drawing: the figure.
        numbers: of all runs, or of one whose texts it shows.
        run: that one.
    """
    if not drawable_from(drawing, numbers):
        return None
    if drawing.by_metric:
        return draw(drawing, numbers, None)
    shown: list[int] | None = None
    if drawing.examples is not None:
        # before anything else is in memory
        without_steps = rows_of(drawing, numbers, ())
        if without_steps.empty:
            return None
        shown = list(drawing.examples(without_steps))
        del without_steps
    results = rows_of(drawing, numbers, shown)
    examples = None if run is None else run.examples(str(results["split"].iloc[0]), example_ids=shown).to_pandas()
    return draw(drawing, results, examples)


def rows_of(drawing: Drawing, numbers: Numbers, shown: Sequence[int] | None) -> pd.DataFrame:
    """The rows that a figure is drawn from: those without steps, and of the metrics that it cannot do without also those
    with steps, of the examples `shown` (None: of all)."""
    parts = []
    for probe in drawing.probes:
        needed = [metric for owner, metric in drawing.metrics if owner == probe]
        also: tuple[str, ...] = EVERY
        if drawing.optional is not None:
            also = (*needed, *(metric for owner, metric in drawing.optional if owner == probe))
        parts.append(numbers.rows(probe, also, stepped=needed, example_ids=shown))
    if len(parts) == 1:
        return parts[0]
    results = pd.concat([part.astype({"probe": str, "metric": str}) for part in parts], ignore_index=True)
    results.attrs = dict(numbers.attrs)
    return results


def class_names(run_dir: Path) -> list[str]:
    """The names of a run's classes, fit for a figure; none where it does not say."""
    try:
        names = read_pipeline(run_dir).get("classes", [])
    except FileNotFoundError:
        return []
    return [drawable(shorten(name)) for name in names]


def draw(drawing: Drawing, results: pd.DataFrame | Numbers, examples: pd.DataFrame | None) -> Figure:
    """One figure in the house style."""
    with paper_style():
        return drawing.draw(results, examples)


def drawable_from(drawing: Drawing, numbers: Numbers) -> bool:
    """Whether there is every metric that the figure cannot do without."""
    return all(
        {metric for owner, metric in drawing.metrics if owner == probe} <= set(numbers.metrics(probe))
        for probe in drawing.probes
    )


def file_name(text: str) -> str:
    """The text with everything but letters, digits, dots, dashes and underscores made a dash.

    >>> file_name("lr=0.1,seed=3 (b)")
    'lr-0.1-seed-3-b'
    """
    return re.sub(r"[^\w.-]+", "-", text).strip("-.")
