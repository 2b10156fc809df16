"""The figures of a report: drawn once, as PDF for a paper and inside the page as SVG, or PNG where that is smaller."""

import base64
import inspect
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from attnprobe.report.figures.draw import all_figures, class_names, file_name
from attnprobe.report.figures.style import paper_style
from attnprobe.report.page.runs import DOT, Group, together
from attnprobe.report.reading import Drawing, Reading
from attnprobe.results.directory import RunDirectory
from attnprobe.results.files import write_atomically

LARGEST_SVG = 250_000
"""Bytes; a larger one (thousands of points, or texts drawn as outlines) is shown as pixels."""
PIXELS_PER_INCH = 180
PIXELS = 120
"""CSS pixels of the page for an inch of paper: print is small on a screen."""
MOST_HEATMAPS = 4
"""Figures with texts stand in the page for the first run of this many groups; every run's is a PDF."""


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
