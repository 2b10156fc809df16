"""The figures of a report: drawn once, as PDF for a paper and inside the page as SVG, or PNG where that is smaller."""

import base64
import inspect
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from attnprobe.report.figures.draw import class_names, draw, drawable_from, file_name
from attnprobe.report.figures.style import paper_style
from attnprobe.report.page.runs import DOT, Group, Run
from attnprobe.report.reading import Drawing, Reading
from attnprobe.report.wide import named
from attnprobe.results.files import write_atomically
from attnprobe.results.table import read_examples, read_results

LARGEST_SVG = 250_000
"""Bytes; a larger one (thousands of points, or texts drawn as outlines) is shown as pixels."""
PIXELS_PER_INCH = 180
PIXELS = 120
"""CSS pixels of the page for an inch of paper: print is small on a screen."""
MOST_HEATMAPS = 4
"""Figures with texts stand in the page for the first run of so many groups; every run's is a PDF."""


@dataclass(frozen=True)
class Picture:
    """A figure in the page. `uri` is its data, empty where there is only the PDF; `file` the PDF's name in the report's
    folder; `title` says which run it is of, empty where it is of all; sizes are in CSS pixels."""

    name: str
    title: str
    caption: str
    uri: str
    file: str
    width: int
    height: int

    @property
    def alternative(self) -> str:
        """What a screen reader says instead of it."""
        of = f" ({self.title})" if self.title else ""
        return f"Figure{of}: {self.caption.split('. ')[0].rstrip('.')}. The table beside it has its numbers."


def pictures(
    reading: Reading, numbers: pd.DataFrame, groups: Sequence[Group], directory: Path, *, words: bool
) -> list[Picture]:
    """Every figure of a probe's reading that the numbers allow, written to `directory` as PDF too.

    Args:
        reading: of the probe.
        numbers: all runs' long tables, without weights per position.
        groups: the runs.
        directory: for the PDFs.
        words: False leaves out the figures that show texts.
    """
    found = []
    runs = [run for group in groups for run in group.runs]
    numbers = named(numbers, [class_names(run.directory) for run in runs])
    for drawing in reading.drawings:
        if not drawing.words:
            if drawable_from(drawing, numbers):
                found.append(picture(draw(drawing, numbers, None), drawing.name, caption(drawing), directory))
            continue
        shown = {id(group.runs[0]) for group in groups[:MOST_HEATMAPS]}
        for run in (run for group in groups for run in group.runs if words):
            figure = of_run(drawing, run)
            if figure is None:
                continue
            stem = f"{drawing.name}-{file_name(run.run_id)}"
            title = DOT.join([run.data, run.model, f"seed {run.seed}"])
            found.append(picture(figure, stem, caption(drawing), directory, title, shown=id(run) in shown))
    return found


def of_run(drawing: Drawing, run: Run) -> Figure | None:
    """A figure with texts, of one run; None where the run lacks what it needs."""
    if not set(drawing.probes) <= set(run.probes):
        return None
    results = read_results(run.directory, probe=drawing.probes)
    if not drawable_from(drawing, results):
        return None
    results = named(results, [class_names(run.directory)])
    return draw(drawing, results, read_examples(run.directory, split=run.split))


def picture(figure: Figure, name: str, words: str, directory: Path, title: str = "", *, shown: bool = True) -> Picture:
    """The figure for the page; its PDF is written. `shown`: False for the PDF alone."""
    uri = data_uri(figure) if shown else ""
    if shown:
        # laid out once is enough: it takes longer than drawing
        figure.set_layout_engine("none")
    write_pdf(figure, directory / f"{name}.pdf")
    width, height = (round(inches * PIXELS) for inches in figure.get_size_inches())
    return Picture(name, title, words, uri, f"{name}.pdf", width, height)


def data_uri(figure: Figure) -> str:
    """The figure as the source of an image."""
    vector = rendered(figure, "svg")
    kind, content = ("svg+xml", vector) if len(vector) <= LARGEST_SVG else ("png", rendered(figure, "png"))
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def rendered(figure: Figure, kind: str) -> bytes:
    """The figure's bytes; the same figure gives the same ones."""
    target = io.BytesIO()
    metadata: dict[str, str | None] = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}[kind]  # type: ignore[assignment]
    with paper_style():
        figure.savefig(target, format=kind, metadata=metadata, dpi=PIXELS_PER_INCH)
    return target.getvalue()


def write_pdf(figure: Figure, path: Path) -> None:
    """The figure as PDF, without dates or versions."""

    def write(target: Path) -> None:
        with paper_style():
            figure.savefig(target, format="pdf", metadata={"CreationDate": None, "Creator": None, "Producer": None})

    write_atomically(path, write)


def caption(drawing: Drawing) -> str:
    """What a figure shows, in the words that its function is documented with."""
    return prose(drawing.draw)


def prose(function: Callable[..., object]) -> str:
    """A function's docstring up to its arguments and exceptions, as one paragraph, without references to code."""
    text = re.split(r"\n\s*(?:Args|Raises|Returns|Note):", inspect.getdoc(function) or "")[0]
    text = re.sub(r":? see `\w+`| \(`\w+`\)", "", text)
    return re.sub(r"\s+", " ", text.replace("`", "")).strip()
