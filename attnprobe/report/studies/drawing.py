"""Draws the figures of a study from the numbers that its reading holds.

Each kind of figure is a subclass of `StudyFigure`, and a function that is decorated with
`@draw.register` draws it. Those of attnprobe's own studies stand in modules beside this one and are
found by being here; a study of another package has them in the module of its reading.
"""

import importlib
import pkgutil
from functools import singledispatch
from pathlib import Path

from matplotlib.figure import Figure

from attnprobe.core.errors import UserError
from attnprobe.findings.studies.base import StudyFigure, StudyReading
from attnprobe.plots.style import paper_style

PACKAGE = "attnprobe.report.studies"


@singledispatch
def draw(figure: StudyFigure) -> Figure:
    """Draw one kind of figure.

    Raises:
        UserError: no function is registered for this kind.
    """
    raise UserError(
        f"the study's figure {figure.name!r} is of the class {type(figure).__name__}, which "
        f"nothing here draws: decorate a function that takes it with "
        f"@{PACKAGE}.drawing.draw.register, in the module of the study's reading"
    )


def draw_study(reading: StudyReading) -> list[tuple[StudyFigure, Figure]]:
    """Every figure of a study, drawn.

    Raises:
        UserError: nothing here draws one of them.
    """
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        importlib.import_module(f"{PACKAGE}.{module.name}")  # which registers its functions
    with paper_style():
        return [(figure, draw(figure)) for figure in reading.figures]
