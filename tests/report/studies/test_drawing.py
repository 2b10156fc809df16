from dataclasses import dataclass
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from attnprobe.core.errors import UserError
from attnprobe.findings.studies.base import StudyFigure, StudyReading
from attnprobe.report.studies.drawing import draw, draw_study


@dataclass(frozen=True)
class Bars(StudyFigure):
    heights: tuple[float, ...]


@dataclass(frozen=True)
class Undrawn(StudyFigure):
    pass


@draw.register
def draw_bars(figure: Bars) -> Figure:
    drawn = Figure()
    drawn.subplots().bar(range(len(figure.heights)), figure.heights)
    return drawn


def reading(figure):
    return StudyReading("", "", "data", "model", Path(), figures=[figure])


def test_each_kind_of_figure_is_drawn_by_its_own_function():
    bars = Bars("bars", "Heights.", (1.0, 2.0))
    ((figure, drawn),) = draw_study(reading(bars))
    assert figure is bars
    assert [patch.get_height() for patch in drawn.axes[0].patches] == [1.0, 2.0]


def test_a_figure_that_nothing_draws_is_named_with_the_remedy():
    with pytest.raises(
        UserError, match=r"'waves' is of the class Undrawn.*@attnprobe\S+draw\.register"
    ):
        draw_study(reading(Undrawn("waves", "Waves.")))
