"""Small multiples: a grid of equal panels with shared axes, and the legend and labels around it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Patch

from attnprobe.evidence.reading import Facts
from attnprobe.plots.style import (
    CLASS_COLOURS,
    COLUMN_WIDTH,
    FAINT,
    INK,
    LETTERS,
    TEXT_WIDTH,
    drawable,
    new_figure,
    text_width,
)
from attnprobe.results.pivot import Facet, facets, per_example

DOT = " · "
TITLE_WIDTH = 1.8 * 72
"""Points of text that fit above a third of the text width."""
NOTE_SIZE = 5.5
"""Points of the letters of notes within a panel."""
TITLE_LINE = 0.125
LEGEND_GAP = 0.06
"""Inches that a line of a title takes, and between the legend and the panels."""
TALLEST = 9.0
LOWEST = 0.7
"""Inches of all panels together, titles and legend aside: what a page holds; and of the lowest row
that can be read."""
_MEASURE = RendererAgg(8, 8, 100)


def grid(count: int, *, panel_height: float, columns: int = 3) -> tuple[Figure, list[Axes]]:
    """A figure of `count` panels with shared axes, at most `columns` in a row, in reading order;
    `around` finishes it.

    Args:
        panel_height: inches per row, less where the rows together would be taller than a page.
        columns: most panels in a row; four panels make a square. One alone takes a column, two 80 %
            of the text width.
    """
    across = min(count, columns) if count != 4 else 2
    down = -(-count // columns)
    width = {1: COLUMN_WIDTH, 2: 0.8 * TEXT_WIDTH}.get(across, TEXT_WIDTH)
    height = max(LOWEST, min(panel_height, TALLEST / down))
    figure = new_figure(width, down * height + 0.3)  # the label of the x-axis
    panels = list(figure.subplots(down, across, sharex=True, sharey=True, squeeze=False).flat)
    for number, panel in enumerate(panels):
        panel.label_outer()
        if number >= count:
            panel.set_visible(False)
        elif number + across >= count:
            panel.tick_params(
                labelbottom=True
            )  # the last panel of a column, also above a hole in the grid
    return figure, panels[:count]


def facet_grid(
    results: pd.DataFrame, probe: str, metrics: Sequence[str], **layout: Any
) -> tuple[Figure, list[tuple[Axes, Facet]]]:
    """A `grid` (with its `layout`) of a panel per data set and model, each with its wide rows of a
    probe's metrics."""
    panels = facets(per_example(results, probe, metrics))
    figure, axes = grid(len(panels), **layout)
    return figure, list(zip(axes, panels, strict=True))


def title(panel: Axes, text: str, width: float = TITLE_WIDTH) -> None:
    """A left-aligned panel title, broken at its dots where it is wider than that many points, and
    cut where a part of it still is; the words may come from data."""
    lines = [""]
    for word in drawable(text).split(DOT):
        while text_width(word, LETTERS) > width:
            word = word.rstrip("…")[:-1] + "…"
        longer = lines[-1] + DOT + word if lines[-1] else word
        fits = text_width(longer, LETTERS) <= width
        lines = [*lines[:-1], longer] if fits else [*lines, word]
    panel.set_title("\n".join(lines), loc="left")


def counted(text: str, number: int, *more: str) -> str:
    """A panel's title with the number of its examples, and whatever else is to be said of them."""
    return DOT.join([text, f"n = {number:,}", *more])


def from_zero(panels: Sequence[Axes]) -> None:
    """Let the shared y-axis begin at 0 and end above all that is drawn in any panel. For the time
    when all are drawn: limits that one panel sets hold for those that come later."""
    top = max(panel.dataLim.y1 for panel in panels)
    panels[0].set_ylim(0, 1.04 * top if np.isfinite(top) and top > 0 else 1)


def quarters(panel: Axes, height: float, notes: Sequence[str]) -> None:
    """Divide an x-axis from 0 to 1 into quarters, each with a note that hangs from that height."""
    for number, note in enumerate(notes):
        at = (number / 4 + 0.125, height)
        panel.annotate(note, at, ha="center", va="top", fontsize=NOTE_SIZE, color=FAINT)
        if number:
            panel.axvline(number / 4, lw=0.4, color="#DDDDDD", zorder=0)
    panel.set_xlim(0, 1)


def around(
    figure: Figure,
    *,
    x: str = "",
    y: str = "",
    handles: Sequence[Artist] = (),
    heading: str | None = None,
) -> None:
    """Label the axes that all panels share, and put a legend above the drawn and titled panels. The
    figure grows by the legend's height and by the further lines of the panels' titles, so that the
    panels keep their size."""
    lines: dict[float, int] = {}
    for panel in figure.axes:
        place = panel.get_subplotspec()
        row = 0.0 if place is None else round(place.get_position(figure).y0, 3)
        lines[row] = max(lines.get(row, 0), panel.get_title("left").count("\n"))
    below = figure.get_figheight() + TITLE_LINE * sum(lines.values())
    above = 0.0
    room = figure.bbox.width - 8
    for rows in range(1, len(handles) + 1):  # the most columns that fit
        legend = figure.legend(
            handles=list(handles),
            title=heading,
            loc="outside upper left",
            ncols=-(-len(handles) // rows),
            columnspacing=1.2,
            alignment="left",
        )
        box = legend.get_window_extent(_MEASURE)
        above = float(box.height) / figure.dpi + LEGEND_GAP
        if box.width <= room or rows == len(handles):
            break
        legend.remove()
    figure.set_figheight(below + above)
    if x:
        figure.supxlabel(x, fontsize=LETTERS)
    if y:
        figure.supylabel(y, fontsize=LETTERS, y=below / 2 / (below + above))


def interval_figure(
    table: pd.DataFrame,
    by: str | list[str],
    importances: Iterable[Facts],
    measures: Mapping[str, str],
    *,
    x: str,
    zero: float | None = 0,
    handles: Sequence[Artist] = (),
) -> tuple[Figure, dict[str, Axes]]:
    """A panel per group of a table, a line of it per importance, the first on top: each measure's
    mean as a dot on its 95 % interval. The figure, and its panels by their headings.

    Args:
        table: with `importance`, `n`, and of each measure `<measure>`, `<measure>, low` and
            `<measure>, high`.
        by: whose values are a panel's heading.
        importances: that are shown.
        measures: heading of the columns → colour of the inside of the dots, empty for that of the
            importance.
        zero: where a vertical line is drawn.
    """
    colours = {one.title: one.colour for one in importances}
    names = list(colours)
    groups = list(table.groupby(by, sort=False))
    figure, axes = grid(len(groups), panel_height=0.5 + 0.2 * len(names), columns=2)
    panels = {}
    for panel, (key, rows) in zip(axes, groups, strict=True):
        for row in rows[rows["importance"].isin(names)].to_dict("records"):
            at = len(names) - 1 - names.index(row["importance"])
            colour = colours[row["importance"]]
            for measure, inside in measures.items():
                panel.plot(
                    [row[f"{measure}, low"], row[f"{measure}, high"]],
                    [at, at],
                    color=colour,
                    lw=0.8,
                )
                panel.plot(row[measure], at, "o", ms=4, color=colour, mfc=inside or colour)
        panel.set_yticks(range(len(names)), names[::-1])
        panel.set_ylim(-0.6, len(names) - 0.4)
        if zero is not None:
            panel.axvline(zero, lw=0.5, color=INK, zorder=0)
        heading = DOT.join(map(str, key)) if isinstance(key, tuple) else str(key)
        panels[heading] = panel
        title(panel, counted(heading, int(rows["n"].max())))
    around(figure, x=x, handles=handles)
    return figure, panels


def cells(
    panel: Axes,
    values: np.ndarray,
    shown: Callable[[float], str],
    *,
    size: float,
    dark: float | None = None,
    **image: Any,
) -> AxesImage:
    """A matrix as an image with its numbers in it, `size` points tall, in white from |number| >
    `dark` on."""
    drawn = panel.imshow(np.ma.masked_invalid(values), aspect="auto", **image)
    for (y, x), value in np.ndenumerate(values):
        if not np.isnan(value):
            colour = None if dark is None else "white" if abs(value) > dark else "black"
            panel.annotate(
                shown(value), (x, y), ha="center", va="center", fontsize=size, color=colour
            )
    panel.tick_params(length=0)
    return drawn


def in_cell(value: float) -> str:
    """A number in as few characters as it needs, so that those of neighbouring cells do not touch.

    >>> in_cell(-0.018), in_cell(0.754), in_cell(-0.001), in_cell(-1.0)
    ('−.02', '.75', '0', '−1')
    """
    rounded = round(value, 2) + 0.0  # none is called −0
    words = f"{rounded:.0f}" if rounded == int(rounded) else f"{rounded:.2f}".replace("0.", ".", 1)
    return words.replace("-", "−")


def class_handles(names: Sequence[str]) -> list[Patch]:
    """Legend entries for the predicted classes in the colours of the panels; none where all
    examples are one group."""
    if len(names) < 2:
        return []
    return [
        Patch(color=colour, alpha=0.6, label=name)
        for name, colour in zip(names, CLASS_COLOURS, strict=False)
    ]
