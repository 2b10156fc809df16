"""Small multiples: a grid of equal panels with shared axes."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnprobe.report.style import TEXT_WIDTH, drawable, new_figure

DOT = " · "
TITLE_WIDTH = 31
"""Characters that fit above a third of the text width."""
LEGEND_ENTRY, LEGEND_CHARACTER = 0.36, 0.072
"""Inches that an entry of a legend needs, and those of each of its characters besides."""


def grid(count: int, *, panel_height: float, columns: int = 3, margin: float = 0.35) -> tuple[Figure, list[Axes]]:
    """A figure of `count` panels with shared axes, at most `columns` in a row, in reading order.

    Args:
        count: how many panels.
        panel_height: inches per row.
        columns: most panels in a row; four panels make a square. One panel alone takes 55 % of the text width, two
            take 80 %.
        margin: inches added for the legend.
    """
    across = min(count, columns) if count != 4 else 2
    down = -(-count // columns)
    width = TEXT_WIDTH * {1: 0.55, 2: 0.8}.get(across, 1.0)
    figure = new_figure(width, down * panel_height + margin)
    axes: np.ndarray = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False)
    panels = list(axes.flat)
    for number, panel in enumerate(panels):
        panel.label_outer()
        if number >= count:
            panel.set_visible(False)
        elif number + across >= count:
            panel.tick_params(labelbottom=True)  # the last panel of a column, also above a hole in the grid
    return figure, panels[:count]


def title(panel: Axes, text: str) -> None:
    """A left-aligned panel title, broken at its dots where it is wider than a panel; the words may come from data."""
    lines = [""]
    for word in drawable(text).split(DOT):
        word = word if len(word) <= TITLE_WIDTH else word[: TITLE_WIDTH - 1] + "…"
        longer = lines[-1] + DOT + word if lines[-1] else word
        lines = [*lines[:-1], longer] if len(longer) <= TITLE_WIDTH else [*lines, word]
    panel.set_title("\n".join(lines), loc="left")


def legend_columns(figure: Figure, names: Sequence[str]) -> int:
    """How many of a legend's entries stand side by side without leaving the figure, at least 1."""
    entry = LEGEND_ENTRY + LEGEND_CHARACTER * max(map(len, names), default=0)
    return min(len(names), max(1, int(figure.get_figwidth() / entry))) or 1
