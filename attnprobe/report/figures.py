"""All figures that the tables of finished runs allow: as files, and as pictures of the page."""

import base64
import gzip
import inspect
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from attnprobe.evidence.reading import Drawing, Reading, readings
from attnprobe.findings.groups import Group
from attnprobe.plots.style import class_names, paper_style, rendered, save
from attnprobe.results.directory import RunDirectory, find_runs
from attnprobe.results.numbers import EVERY, Numbers
from attnprobe.results.pivot import named
from attnprobe.results.writer import OwnFolder

LARGEST = 250_000
"""Bytes of an SVG in the page. A larger one (thousands of points, or texts drawn as outlines) is
shown as pixels."""
PIXELS = 120
"""CSS pixels of the page per inch of paper: print is small on a screen."""


def draw_figures(
    run_dirs: str | os.PathLike | Iterable[str | os.PathLike],
    directory: str | os.PathLike,
    *,
    words: bool = True,
) -> list[Path]:
    """Draw every figure whose numbers are in the tables; returns the files, `<figure>.pdf` and
    `<figure>.png`.

    Figures of several runs show a panel per data set and model, with seeds pooled. Those that show
    texts are drawn once per run, with the run's id in the file's name where there are several.

    Args:
        run_dirs: a run directory, a directory above several runs, a glob pattern, or a list of
            these.
        words: False leaves out the figures that show texts, and the names of the classes.

    Raises:
        UserError: no finished run there.
    """
    runs = [RunDirectory(run) for run in find_runs(run_dirs)]
    return save_figures(runs, Numbers.of(runs), directory, words=words)


def save_figures(
    runs: Sequence[RunDirectory],
    numbers: Numbers,
    directory: str | os.PathLike,
    *,
    words: bool = True,
) -> list[Path]:
    """As `draw_figures`, of runs whose numbers are known, in the same order."""
    called = named(numbers, [class_names(run.path) if words else [] for run in runs])
    endings = [""] if len(runs) == 1 else [run.path.name for run in runs]
    figures = all_figures(readings().values(), runs, called, endings, words=words)
    return [path for _, figure, name, _ in figures for path in save(figure, Path(directory), name)]


def all_figures(
    several: Iterable[Reading],
    runs: Sequence[RunDirectory],
    numbers: Numbers,
    endings: Sequence[str],
    *,
    words: bool,
) -> Iterator[tuple[Drawing, Figure, str, RunDirectory | None]]:
    """Every figure of these readings whose numbers are there, one at a time: what it was drawn by,
    itself, the stem of its files' names, and the run whose texts it shows (None: it shows none).

    Args:
        numbers: of these runs, in the same order, the classes called as the figures are to call
            them.
        endings: of each run what follows in the names of the files of its own figures, those with
            texts.
        words: False leaves out the figures that show texts.
    """
    for probe, drawing in (
        (reading.probe, drawing) for reading in several for drawing in reading.drawings
    ):
        if not drawing.words:
            if (figure := _drawn(probe, drawing, numbers)) is not None:
                yield drawing, figure, drawing.name, None
            continue
        for run, tables, ending in zip(runs, numbers.tables, endings, strict=True) if words else ():
            own = named(replace(numbers, tables=(tables,)), [class_names(run.path)])
            if (figure := _drawn(probe, drawing, own, run)) is not None:
                yield (
                    drawing,
                    figure,
                    re.sub(r"[^\w.-]+", "-", f"{drawing.name}-{ending}").strip("-."),
                    run,
                )


def _drawn(
    probe: str, drawing: Drawing, numbers: Numbers, run: RunDirectory | None = None
) -> Figure | None:
    # of all runs, or of the one whose texts it shows; None where the numbers lack a metric that it
    # cannot do without
    if not set(drawing.metrics) <= set(numbers.metrics(probe)):
        return None
    also = EVERY if drawing.optional is None else (*drawing.metrics, *drawing.optional)
    shown: list[int] | None = None
    if drawing.examples is not None:  # chosen by their numbers without steps
        without_steps = numbers.rows(probe, also, stepped=drawing.metrics, example_ids=())
        if without_steps.empty:
            return None
        shown = list(drawing.examples(without_steps))
    # those without steps, and of what it cannot do without also those with steps, of these examples
    # (None: of all)
    results = numbers.rows(probe, also, stepped=drawing.metrics, example_ids=shown)
    examples = (
        None
        if run is None
        else run.examples(str(results["split"].iloc[0]), example_ids=shown).to_pandas()
    )
    with paper_style():
        return drawing.draw(results, examples)


@dataclass(frozen=True)
class Picture:
    """A figure in the page, with the PDF's name in the report's folder, and width and height in CSS
    pixels. `source`: the drawing as a `data:` address, which no script can run from, an SVG packed
    by gzip; empty: only a PDF."""

    caption: str
    alternative: str
    file: str
    source: str
    width: int
    height: int


def pictures(
    reading: Reading, groups: Sequence[Group], directory: OwnFolder, *, words: bool
) -> list[Picture]:
    """Every figure of a probe's reading that these runs allow, written to `directory` as PDF too;
    without `words` none that shows texts."""
    runs = {run.directory: run for group in groups for run in group.runs}
    numbers = named(
        Numbers.together(run.numbers for run in runs.values()),
        [class_names(place) for place in runs],
    )
    endings = [run.run_id for run in runs.values()]
    figures = all_figures([reading], [*map(RunDirectory, runs)], numbers, endings, words=words)
    # what shows texts is for paper: the page's own examples show the same, and more of them
    return [
        picture(figure, name, prose(drawing.draw), directory, shown=place is None)
        for drawing, figure, name, place in figures
    ]


def picture(
    figure: Figure, name: str, caption: str, directory: OwnFolder, *, shown: bool = True
) -> Picture:
    """The figure for the page; its PDF is written. `shown`: False for the PDF alone."""
    source = ""
    if shown:
        kind = "application/gzip"
        svg = rendered(figure, "svg")
        content = gzip.compress(svg, mtime=0)
        if len(svg) > LARGEST:
            kind = "image/png"
            content = rendered(figure, "png")
        source = f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"
    (path,) = save(figure, directory, name, ["pdf"])
    width, height = (round(float(inches) * PIXELS) for inches in figure.get_size_inches())
    alternative = (
        f"Figure: {caption.split('. ')[0].rstrip('.')}. The table beside it has its numbers."
    )
    return Picture(caption, alternative, path.name, source, width, height)


def prose(function: object) -> str:
    """A function's docstring up to its arguments and exceptions, as one paragraph, without
    references to code."""
    documented = function.func if isinstance(function, partial) else function
    text = re.split(r"\n\s*(?:Args|Raises|Returns|Note):", inspect.getdoc(documented) or "")[0]
    text = re.sub(r":? see `\w+`| \(`\w+`\)", "", text)
    return re.sub(r"\s+", " ", text.replace("`", "")).strip()
