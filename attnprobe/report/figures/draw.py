"""All figures that the tables of some finished runs allow, as PDF for a paper and PNG for a page."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from matplotlib.figure import Figure

from attnprobe.report.figures.heatmap import shorten
from attnprobe.report.figures.style import drawable, paper_style, save
from attnprobe.report.reading import Drawing, readings
from attnprobe.report.wide import named
from attnprobe.results.directory import RunDirectory, find_runs, table_file
from attnprobe.results.frame import frame_of
from attnprobe.results.saved import read_pipeline
from attnprobe.results.table import IMPORTANCES, metrics_in, read_pieces, told


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
    runs = {}
    for run in find_runs(run_dirs):
        runs[run] = {probe: RunDirectory(run) / table_file(probe) for probe in RunDirectory(run).probes()}
    facts = told(RunDirectory(run).manifest() for run in runs)
    return draw_tables(runs, directory, words=words, importances=facts)


def draw_tables(
    tables: Mapping[Path, Mapping[str, Path]],
    directory: str | os.PathLike,
    *,
    words: bool = True,
    opened: Callable[[Path], RunDirectory] = RunDirectory,
    importances: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Path]:
    """As `draw_figures`, from the files of each run directory's tables, by probe; `opened` gives access to the rest, and
    `importances` are the facts that the manifests have of them (`attnprobe.results.table.told`)."""
    directory = Path(directory)
    classes = [class_names(run) if words else [] for run in tables]
    written: list[Path] = []
    for reading in readings().values():
        for drawing in reading.drawings:
            if not drawing.words:
                figure = drawn(drawing, tables.values(), classes, importances)
                written += [] if figure is None else save(figure, directory, drawing.name)
                continue
            for run, files in tables.items() if words else []:
                figure = drawn(drawing, [files], classes, importances, of=opened(run))
                stem = drawing.name if len(tables) == 1 else f"{drawing.name}-{file_name(run.name)}"
                written += [] if figure is None else save(figure, directory, stem)
    return written


def drawn(
    drawing: Drawing,
    runs: Iterable[Mapping[str, Path]],
    classes: Sequence[Sequence[str]],
    importances: Mapping[str, Mapping[str, Any]] | None,
    *,
    of: RunDirectory | None = None,
) -> Figure | None:
    """One figure in the house style; None where the runs lack what it needs. Its rows are not kept in memory.

    Args:
        drawing: the figure.
        runs: of each run the files of its tables, by probe.
        classes: of each run the names of its classes, see `named`.
        importances: the facts that the manifests have of them (`attnprobe.results.table.told`).
        of: the run whose texts it shows, if it shows any.
    """
    results = named(with_facts(rows_of(drawing, runs), importances), classes)
    if not drawable_from(drawing, results):
        return None
    examples = None if of is None else examples_of(drawing, of, results)
    return draw(drawing, results, examples)


def with_facts(results: pd.DataFrame, importances: Mapping[str, Mapping[str, Any]] | None) -> pd.DataFrame:
    """The same table, with what is known of its importances."""
    results.attrs[IMPORTANCES] = importances or {}
    return results


def rows_of(drawing: Drawing, runs: Iterable[Mapping[str, Path]]) -> pd.DataFrame:
    """The rows that a figure is drawn from, and as few others as possible at any time.

    Args:
        drawing: the figure.
        runs: of each run the files of its tables, by probe.
    """
    return frame_of(
        piece
        for files in runs
        for probe in drawing.probes
        if probe in files
        for piece in _pieces(drawing, probe, files)
    )


def _pieces(drawing: Drawing, probe: str, files: Mapping[str, Path]) -> Iterator[pa.Table]:
    """What a figure needs of one probe's table."""
    path = files[probe]
    needed = [metric for owner, metric in drawing.metrics if owner == probe]
    also = None
    if drawing.optional is not None:
        wanted = [*needed, *(metric for owner, metric in drawing.optional if owner == probe)]
        also = [metric for metric in metrics_in(path) if any(fnmatchcase(metric, one) for one in wanted)]
    shown: Sequence[int] | None = None
    if drawing.examples is not None:
        # before anything else is in memory
        numbers = frame_of(read_pieces(path, metrics=also, with_steps=False))
        if numbers.empty:
            return
        shown = drawing.examples(numbers)
        del numbers
    yield from read_pieces(path, metrics=also, with_steps=False)
    yield from read_pieces(path, metrics=needed, with_steps=True, example_ids=shown)


def examples_of(drawing: Drawing, run: RunDirectory, results: pd.DataFrame) -> pd.DataFrame:
    """The examples of a run that a figure shows."""
    shown = None if drawing.examples is None else drawing.examples(results)
    return run.examples(str(results["split"].iloc[0]), example_ids=shown).to_pandas()


def class_names(run_dir: Path) -> list[str]:
    """The names of a run's classes, fit for a figure; none where it does not say."""
    try:
        names = read_pipeline(run_dir).get("classes", [])
    except FileNotFoundError:
        return []
    return [drawable(shorten(name)) for name in names]


def draw(drawing: Drawing, results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """One figure in the house style."""
    with paper_style():
        return drawing.draw(results, examples)


def drawable_from(drawing: Drawing, results: pd.DataFrame) -> bool:
    """Whether the table holds every metric that the figure cannot do without."""
    return all(
        {metric for owner, metric in drawing.metrics if owner == probe}
        <= set(results.loc[results["probe"] == probe, "metric"].unique())
        for probe in drawing.probes
    )


def file_name(text: str) -> str:
    """The text with everything but letters, digits, dots, dashes and underscores made a dash.

    >>> file_name("lr=0.1,seed=3 (b)")
    'lr-0.1-seed-3-b'
    """
    return re.sub(r"[^\w.-]+", "-", text).strip("-.")
