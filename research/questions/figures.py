"""The figures of the open questions."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.figure import Figure

from attnprobe.findings.studies.base import StudyFigure
from attnprobe.plots.grid import around, grid, title
from attnprobe.report.studies.drawing import draw
from research.questions.numbers import UNIFORM, ByDraw, Cell, Grid, over_draws

BUILT = ("right_leak", "right_none", "wrong_leak", "wrong_none")
"""The built attentions: right or not, and telling the label or not."""


@dataclass(frozen=True)
class Advantages(StudyFigure):
    """Accuracy with learned minus with equal weights: `family`, `encoder`, `texts`, `gain`."""

    gains: pd.DataFrame


@draw.register
def draw_advantages(figure: Advantages) -> Figure:
    """The gain against the number of training texts: a panel per encoder, a line per family."""
    gains = figure.gains
    encoders = sorted(set(gains["encoder"]))
    families = sorted(set(gains["family"]))
    sizes = sorted(set(gains["texts"]))
    drawn, panels = grid(max(1, len(encoders)), panel_height=1.4)
    handles: dict[str, Artist] = {}
    for (family, encoder), line in gains.groupby(["family", "encoder"]):
        panel = panels[encoders.index(encoder)]
        places = line["texts"].map(sizes.index)
        colour = f"C{families.index(family)}"
        (handle,) = panel.plot(places, line["gain"], "o-", ms=3, lw=1, color=colour, label=family)
        handles.setdefault(str(family), handle)
    for panel, encoder in zip(panels, encoders, strict=False):
        panel.set_xticks(range(len(sizes)), list(map(str, sizes)))
        title(panel, encoder)
    around(drawn, x="training texts", y="learned − equal weights", handles=list(handles.values()))
    return drawn


@dataclass(frozen=True)
class Dot:
    """A cell in a figure: its place on the x-axis, and its number on the y-axis."""

    cell: Cell
    x: float
    number: ByDraw


@dataclass(frozen=True)
class Dots(StudyFigure):
    """Cells in one panel.

    Attributes:
        x, y: labels of the axes.
        ticks: labels along the x-axis from 0 on; empty: numbers.
    """

    x: str
    y: str
    dots: Sequence[Dot]
    ticks: Sequence[str] = ()


@draw.register
def draw_dots(figure: Dots) -> Figure:
    """Each cell with its interval, a colour per encoder; longer texts are squares."""
    drawn, (panel,) = grid(1, panel_height=2.2)
    encoders = list(dict.fromkeys(dot.cell.encoder for dot in figure.dots))
    handles: dict[str, Artist] = {}
    for dot in figure.dots:
        value, low, high = over_draws(dot.number)
        if np.isnan(value):
            continue
        encoder = dot.cell.encoder
        colour = f"C{encoders.index(encoder)}"
        panel.plot([dot.x, dot.x], [low, high], "-", color=colour, lw=0.8, alpha=0.5)
        shape = "s" if dot.cell.length > 1 else "o"
        (mark,) = panel.plot(dot.x, value, shape, ms=3.5, color=colour, label=encoder)
        handles.setdefault(encoder, mark)
    if figure.ticks:
        panel.set_xticks(range(len(figure.ticks)), figure.ticks)
    around(drawn, x=figure.x, y=figure.y, handles=list(handles.values()))
    return drawn


def figures_of(numbers: Grid) -> list[StudyFigure]:
    """All figures of the study."""
    rightness = [
        Dot(cell, over_draws(numbers.number("state", cell)).value, numbers.number("word", cell))
        for cell in numbers.cells("state")
    ]
    gains = [
        Dot(cell, BUILT.index(attention), numbers.number(quantity, cell, attention))
        for quantity, cell, attention in numbers.parts
        if quantity == "gain" and attention in BUILT
    ]
    distances = [
        Dot(cell, np.log2(cell.width), numbers.number("jsd", cell)) for cell in numbers.cells("jsd")
    ]
    return [
        Advantages(
            "questions_gain",
            "Accuracy of learned minus equal weights by the number of training texts, a panel per "
            "encoder.",
            advantages(numbers),
        ),
        Dots(
            "questions_states",
            "Rightness about words against rightness about states, a dot per cell.",
            x="rightness about states",
            y="rightness about words",
            dots=rightness,
        ),
        Dots(
            "questions_transfer",
            "What a model without context gains by the weights of four built attentions.",
            x="built attention",
            y="gain of the guide",
            dots=gains,
            ticks=[name.replace("_", ",\n").replace("none", "no leak") for name in BUILT],
        ),
        Dots(
            "questions_distance",
            "The farthest attention with the same prediction (nats), by length and width.",
            x="log₂ width (squares: texts four times as long)",
            y="farthest attention (nats)",
            dots=distances,
        ),
    ]


def advantages(numbers: Grid) -> pd.DataFrame:
    """`Advantages.gains`, of the cells of the middle width that have both accuracies."""
    rows = []
    for cell in sorted(numbers.cells("accuracy", width=32, length=1)):
        if ("accuracy", cell, UNIFORM) in numbers.parts:
            learned = numbers.number("accuracy", cell)
            equal = numbers.number("accuracy", cell, UNIFORM)
            gain = over_draws(learned - equal).value
            rows.append((cell.family, cell.encoder, cell.texts, gain))
    return pd.DataFrame(rows, columns=["family", "encoder", "texts", "gain"])
