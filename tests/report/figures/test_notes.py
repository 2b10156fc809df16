"""What a place of a figure says."""

import io

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from attnprobe.report.figures.marks import box, told_by_bin, violin
from attnprobe.report.figures.notes import REACH, note, spots
from attnprobe.report.figures.style import new_figure, paper_style


def laid_out(figure):
    FigureCanvasAgg(figure).draw()
    figure.set_layout_engine("none")
    return list(spots(figure))


def test_a_note_is_where_its_mark_is_drawn_also_on_an_axis_upside_down():
    with paper_style():
        figure = new_figure(4, 3)
        figure.set_layout_engine("none")
        axes = figure.add_axes((0.25, 0.5, 0.5, 0.25))
        axes.set_xlim(0, 10)
        axes.set_ylim(4, 0)
        note(axes, 5, 1, "a mark")
        note(axes, 2.5, 2, "a cell", width=5, height=4)
        note(axes, np.nan, 1, "nowhere")
        cell, mark = laid_out(figure)
    # the axes are 144 by 54 points, their upper left corner 72 from the left and 54 from the top
    assert (mark.words, mark.left, mark.top) == (
        "a mark",
        pytest.approx(144 - REACH / 2),
        pytest.approx(67.5 - REACH / 2),
    )
    assert (mark.width, mark.height) == (REACH, REACH)
    assert (cell.words, cell.left, cell.top) == ("a cell", pytest.approx(72), pytest.approx(54))
    assert (cell.width, cell.height) == (pytest.approx(72), pytest.approx(54))


def test_distributions_say_their_quartiles_and_bins_their_shares():
    values = np.arange(1.0, 101.0)
    with paper_style():
        figure = new_figure()
        axes = figure.subplots()
        violin(axes, values, 0, 1, "red", "search: ")
        box(axes, values, 0, 1, "red")
        told_by_bin(axes, np.array([0.0, 0.5, 1.0]), {"no": np.array([0.25, 0.0]), "yes": np.array([0.75, 0.0])})
        told = {spot.words for spot in laid_out(figure)}
    assert told == {
        "search: median 50.5, quartiles 25.8 to 75.2, n = 100",
        "median 50.5, quartiles 25.8 to 75.2, 5th to 95th percentile 5.95 to 95, n = 100",
        "0 to 0.5: no 25.0%, yes 75.0%",
    }


def test_notes_change_nothing_that_is_drawn():
    def pixels(noted):
        with paper_style():
            figure = new_figure(2, 1)
            axes = figure.subplots()
            axes.plot([1, 2], [3, 4])
            if noted:
                note(axes, 40, 50, "far outside", width=100, height=100)
            target = io.BytesIO()
            figure.savefig(target, format="png")
        return target.getvalue()

    assert pixels(True) == pixels(False)
