"""Draws the figures of a study from the numbers that its reading holds.

Each kind of figure is a subclass of `StudyFigure`, and a function of a module beside this one draws
it: `@draw.register`, found by being here. An installed package names such a function of its own in
the entry points' group `attnprobe.study_figures`.
"""

import importlib
import pkgutil
from functools import cache, singledispatch
from importlib.metadata import entry_points
from pathlib import Path

from matplotlib.figure import Figure

from attnprobe.core.errors import UserError
from attnprobe.findings.studies.base import StudyFigure, StudyReading
from attnprobe.plots.style import paper_style

PACKAGE = "attnprobe.report.studies"
ENTRY_POINTS = "attnprobe.study_figures"


@singledispatch
def draw(figure: StudyFigure) -> Figure:
    """Draw one kind of figure.

    Raises:
        UserError: no function is registered for this kind.
    """
    raise UserError(
        f"the study's figure {figure.name!r} is of the class {type(figure).__name__}, which nothing "
        f"here draws: expected a function that takes it, registered with {PACKAGE}.drawing.draw and "
        f"named in the entry points' group {ENTRY_POINTS}"
    )


@cache
def register_drawings() -> None:
    """Import every function that draws a figure of a study, which registers it."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        importlib.import_module(f"{PACKAGE}.{module.name}")
    for entry in entry_points(group=ENTRY_POINTS):
        entry.load()


def draw_study(reading: StudyReading) -> list[tuple[StudyFigure, Figure]]:
    """Every figure of a study, drawn.

    Raises:
        UserError: nothing here draws one of them.
    """
    register_drawings()
    with paper_style():
        return [(figure, draw(figure)) for figure in reading.figures]
