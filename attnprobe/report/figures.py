"""All figures that the tables of finished runs allow: as files, and as pictures of the page."""

import base64
import gzip
import inspect
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure

from attnprobe.findings.groups import Group
from attnprobe.plots.style import class_names, paper_style, rendered, save
from attnprobe.readings.reading import Drawing, Reading
from attnprobe.readings.registry import readings
from attnprobe.results.directory import Places, RunDirectory, find_runs
from attnprobe.results.files import DamagedRun, write_atomically
from attnprobe.results.numbers import EVERY, Numbers
from attnprobe.results.pivot import named
from attnprobe.results.writer import OwnFolder

LARGEST = 100_000
"""Bytes of a packed SVG in the page; a larger one (thousands of points) is shown as pixels."""
PIXELS = 120
"""CSS pixels of the page per inch of paper: print is small on a screen."""


def draw_figures(
    run_dirs: Places,
    directory: str | os.PathLike,
    *,
    words: bool = True,
) -> list[Path]:
    """Draw every figure whose numbers are in the tables.

    Figures of several runs show a panel per data set and model, with seeds pooled. Those that show
    texts are drawn once per run, with the run's id in the file's name where there are several.

    Args:
        run_dirs: a run directory, a directory above several runs, a glob pattern, or a list of
            these.
        directory: of the files.
        words: False leaves out the figures that show texts, and the names of the classes.

    Returns:
        The files, `<figure>.pdf` and `<figure>.png`.

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
    probes: Iterable[str] | None = None,
) -> list[Path]:
    """As `draw_figures`, of runs whose numbers are known, in the same order.

    Args:
        runs: whose figures are drawn.
        numbers: of these runs.
        directory: of the files.
        words: False leaves out the figures that show texts, and the names of the classes.
        probes: whose figures are drawn; None: all.
    """
    named_numbers = named(numbers, [class_names(run.path) if words else [] for run in runs])
    endings = [""] if len(runs) == 1 else [run.path.name for run in runs]
    files = []
    drawn_readings = [
        reading for probe, reading in readings().items() if probes is None or probe in probes
    ]
    for drawn in all_figures(drawn_readings, runs, named_numbers, endings, words=words):
        files += save(drawn.figure, Path(directory), drawn.stem)
    return files


class DrawnFigure(NamedTuple):
    """A figure that was drawn.

    Attributes:
        drawing: what it was drawn by.
        figure: itself.
        stem: of its files' names.
        run: the run whose texts it shows; None: it shows none.
    """

    drawing: Drawing
    figure: Figure
    stem: str
    run: RunDirectory | None


def all_figures(
    several: Iterable[Reading],
    runs: Sequence[RunDirectory],
    numbers: Numbers,
    endings: Sequence[str],
    *,
    words: bool,
) -> Iterator[DrawnFigure]:
    """Every figure of some readings whose numbers are there, one at a time.

    Args:
        several: the readings.
        runs: whose numbers are drawn.
        numbers: of these runs, in the same order, the classes called as the figures are to call
            them.
        endings: of each run what follows in the names of the files of its own figures, those with
            texts.
        words: False leaves out the figures that show texts.
    """
    for reading in several:
        for drawing in reading.drawings:
            if not drawing.words:
                figure = _draw(reading.probe, drawing, numbers)
                if figure is not None:
                    yield DrawnFigure(drawing, figure, drawing.name, None)
            elif words:
                yield from _figures_of_texts(reading.probe, drawing, runs, numbers, endings)


def _figures_of_texts(
    probe: str,
    drawing: Drawing,
    runs: Sequence[RunDirectory],
    numbers: Numbers,
    endings: Sequence[str],
) -> Iterator[DrawnFigure]:
    """A figure that shows texts, once per run."""
    for run, tables, ending in zip(runs, numbers.tables, endings, strict=True):
        run_numbers = named(replace(numbers, tables=(tables,)), [class_names(run.path)])
        figure = _draw(probe, drawing, run_numbers, run)
        if figure is not None:
            yield DrawnFigure(drawing, figure, _stem_of_run(drawing, ending), run)


def _stem_of_run(drawing: Drawing, ending: str) -> str:
    """The name, without its kind, of the file of a figure that shows a run's texts."""
    return re.sub(r"[^\w.-]+", "-", f"{drawing.name}-{ending}").strip("-.")


def _draw(
    probe: str, drawing: Drawing, numbers: Numbers, run: RunDirectory | None = None
) -> Figure | None:
    """A figure of all runs, or of the one whose texts it shows.

    None where the numbers lack a metric that it cannot do without, or no text has a number of it.
    """
    if not set(drawing.metrics) <= set(numbers.metrics(probe)):
        return None
    metrics = EVERY if drawing.optional is None else (*drawing.metrics, *drawing.optional)
    example_ids: list[int] | None = None
    if drawing.examples is not None:  # chosen by their numbers without steps
        without_steps = numbers.rows(probe, metrics, stepped=drawing.metrics, example_ids=())
        if without_steps.empty:
            return None
        example_ids = list(drawing.examples(without_steps))
    # numbers with steps of the required metrics only, and of these examples (None: of all)
    results = numbers.rows(probe, metrics, stepped=drawing.metrics, example_ids=example_ids)
    defined = results[results["value"].notna()]
    if not set(drawing.metrics) <= set(defined["metric"]):
        return None
    examples = None
    if run is not None:
        split = str(results["split"].iloc[0])
        examples = run.examples(split, example_ids=example_ids).to_pandas()
    with paper_style():
        return drawing.draw(results, examples)


@dataclass(frozen=True)
class Picture:
    """A figure in the page.

    Attributes:
        caption: below it.
        alternative: for who does not see it.
        file: the PDF's name in the report's folder.
        source: the drawing as a `data:` address, which no script can run from, an SVG packed by
            gzip.
        width: in CSS pixels.
        height: in CSS pixels.
    """

    caption: str
    alternative: str
    file: str
    source: str
    width: int
    height: int


def pictures(reading: Reading, groups: Sequence[Group], directory: OwnFolder) -> list[Picture]:
    """Every figure of a probe's reading that shows no texts, written as PDF too.

    Args:
        reading: of the probe.
        groups: of the runs.
        directory: of the PDF files.
    """
    runs = {run.directory: run for group in groups for run in group.runs}
    numbers = named(
        Numbers.together(run.numbers for run in runs.values()),
        [class_names(place) for place in runs],
    )
    endings = [run.run_id for run in runs.values()]
    drawn_figures = all_figures(
        [reading], [*map(RunDirectory, runs)], numbers, endings, words=False
    )
    return [
        picture(drawn.figure, drawn.stem, prose(drawn.drawing.draw), directory)
        for drawn in drawn_figures
    ]


def write_figures_of_texts(
    reading: Reading, groups: Sequence[Group], directory: OwnFolder
) -> list[Path]:
    """Write every figure of a probe's reading that shows texts, for paper.

    The page's own examples show the same, and more of them. What a run has drawn is copied.

    Args:
        reading: of the probe.
        groups: of the runs.
        directory: of the files.

    Returns:
        The PDF files, `<figure>-<id of the run>.pdf`.
    """
    files: list[Path] = []
    runs = list(chain.from_iterable(group.runs for group in groups))
    for drawing in reading.drawings:
        if not drawing.words:
            continue
        for run in runs:
            own_figure = figure_of_run(run.files, f"{drawing.name}.pdf")
            if own_figure is not None:
                target = directory / f"{_stem_of_run(drawing, run.run_id)}.pdf"
                write_atomically(target, partial(shutil.copyfile, own_figure))
                files.append(target)
                continue
            drawn_figures = _figures_of_texts(
                reading.probe, drawing, [run.files], run.numbers, [run.run_id]
            )
            for drawn in drawn_figures:
                files += save(drawn.figure, directory, drawn.stem, ["pdf"])
    return files


def figure_of_run(run: RunDirectory, name: str) -> Path | None:
    """A figure that a finished run has drawn; None where there is none, or it was changed since."""
    file = f"figures/{name}"
    if file not in run.manifest()["files"]:
        return None
    try:
        return run.file(file)
    except DamagedRun:
        return None


def png_figures(run: RunDirectory, directory: Path, *, words: bool) -> list[Path]:
    """The figures of a finished run as PNG files.

    Args:
        run: itself; what it has drawn is taken from it.
        directory: where those are drawn of probes that have none in the run (`figures=false`), or
            all of them if `words` may not be shown.
        words: False leaves out the figures that show texts, and the names of the classes.

    Raises:
        DamagedRun: if a file of the run was changed since.
    """
    own_figures = []
    if words:
        own_figures = [name for name in run.manifest()["files"] if name.endswith(".png")]
    drawn_names = {Path(name).stem for name in own_figures}
    undrawn_probes = []
    for probe in run.probes():
        reading = readings().get(probe)
        drawings = () if reading is None else reading.drawings
        if drawings and drawn_names.isdisjoint(drawing.name for drawing in drawings):
            undrawn_probes.append(probe)

    files = [run.file(name) for name in own_figures]
    if undrawn_probes:
        numbers = Numbers.of([run])
        drawn = save_figures([run], numbers, directory, words=words, probes=undrawn_probes)
        files += [path for path in drawn if path.suffix == ".png"]
    return files


def picture(figure: Figure, name: str, caption: str, directory: OwnFolder) -> Picture:
    """The figure for the page; its PDF is written.

    Args:
        figure: the drawing.
        name: stem of the file.
        caption: its first sentence is the alternative text.
        directory: of the PDF.
    """
    kind = "application/gzip"
    content = gzip.compress(rendered(figure, "svg"), mtime=0)
    if len(content) > LARGEST:
        kind = "image/png"
        content = rendered(figure, "png")
    (path,) = save(figure, directory, name, ["pdf"])
    width, height = figure.get_size_inches()
    summary = caption.split(". ")[0].rstrip(".")
    return Picture(
        caption=caption,
        alternative=f"Figure: {summary}. The table beside it has its numbers.",
        file=path.name,
        source=f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}",
        width=round(float(width) * PIXELS),
        height=round(float(height) * PIXELS),
    )


def prose(function: object) -> str:
    """A function's docstring up to its sections, as one paragraph, without references to code."""
    documented = function.func if isinstance(function, partial) else function
    text = re.split(r"\n\s*(?:Args|Raises|Returns|Note):", inspect.getdoc(documented) or "")[0]
    text = re.sub(r":? see `\w+`| \(`\w+`\)", "", text)
    return re.sub(r"\s+", " ", text.replace("`", "")).strip()
