"""The figures of a report: drawn once, as PDF for a paper and inside the page as SVG, or pixels where that is smaller."""

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup
from matplotlib.figure import Figure

from attnprobe.report.figures.draw import all_figures, class_names, file_name
from attnprobe.report.figures.style import paper_style
from attnprobe.report.page.runs import DOT, Group, together
from attnprobe.report.page.vector import PIXELS, inline
from attnprobe.report.reading import Drawing, Reading
from attnprobe.results.directory import RunDirectory
from attnprobe.results.files import write_atomically

MOST_HEATMAPS = 4
"""Figures with texts are shown in the page for the first run of this many groups; every run's is a PDF."""


@dataclass(frozen=True)
class Picture:
    """A figure in the page. `drawing` is its SVG element, empty where there is only the PDF; `file` the PDF's name in the
    report's folder; `title` says which run it is of, empty where it is of all; `width` is in CSS pixels."""

    title: str
    caption: str
    drawing: Markup
    file: str
    width: int


def pictures(reading: Reading, groups: Sequence[Group], directory: Path, *, words: bool) -> list[Picture]:
    """Every figure of a probe's reading that the numbers allow, written to `directory` as PDF too.

    Args:
        reading: of the probe.
        groups: the runs.
        directory: for the PDFs.
        words: False leaves out the figures that show texts.
    """
    runs = [run for group in groups for run in group.runs]
    numbers = together(runs).named([class_names(run.directory) for run in runs])
    endings = [f"-{file_name(run.run_id)}" for run in runs]
    directories = {run.directory: run for run in runs}
    shown = {group.runs[0].run_id for group in groups[:MOST_HEATMAPS]}
    made = []
    for one in all_figures([reading], [RunDirectory(place) for place in directories], numbers, endings, words=words):
        run = None if one.run is None else directories[one.run.path]
        title = "" if run is None else DOT.join([run.data, run.model, f"seed {run.seed}"])
        in_page = run is None or run.run_id in shown
        made.append(picture(one.made, one.file, caption(one.drawing), directory, title, shown=in_page))
    return made


def picture(figure: Figure, name: str, words: str, directory: Path, title: str = "", *, shown: bool = True) -> Picture:
    """The figure for the page; its PDF is written. `shown`: False for the PDF alone."""
    drawing = inline(figure, file_name(name), alternative(words, title)) if shown else Markup()
    write_pdf(figure, directory / f"{name}.pdf")
    return Picture(title, words, drawing, f"{name}.pdf", round(figure.get_figwidth() * PIXELS))


def alternative(words: str, title: str) -> str:
    """What a screen reader says instead of a figure."""
    of = f" ({title})" if title else ""
    return f"Figure{of}: {words.split('. ')[0].rstrip('.')}. The table beside it has its numbers."


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
