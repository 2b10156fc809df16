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
from attnprobe.readings.importances import Facts
from attnprobe.results.pivot import Facet, facets, per_example

DOT = " · "
TITLE_WIDTH = 1.8 * 72
"""Points of text that fit above a third of the text width."""
NOTE_SIZE = 5.5
"""Points of the letters of notes within a panel."""
TITLE_LINE = 0.125
"""Height of a line of a title, in inches."""
LEGEND_GAP = 0.06
"""Space between the legend and the panels, in inches."""
TALLEST = 9.0
"""Height of all panels that a page holds, titles and legend aside, in inches."""
LOWEST = 0.7
"""Height of the lowest row of panels that can be read, in inches."""
_MEASURE = RendererAgg(8, 8, 100)


def grid(count: int, *, panel_height: float, columns: int = 3) -> tuple[Figure, list[Axes]]:
    """A figure of panels with shared axes, in reading order; `around` finishes it.

    Args:
        count: how many panels.
        panel_height: inches per row, less where the rows together would be taller than a page.
        columns: most panels in a row; four panels make a square. One alone takes a column, two 80 %
            of the text width.
    """
    in_row = min(count, columns) if count != 4 else 2
    rows = -(-count // columns)
    width = {1: COLUMN_WIDTH, 2: 0.8 * TEXT_WIDTH}.get(in_row, TEXT_WIDTH)
    height = max(LOWEST, min(panel_height, TALLEST / rows))
    figure = new_figure(width, rows * height + 0.3)  # the label of the x-axis
    panels = list(figure.subplots(rows, in_row, sharex=True, sharey=True, squeeze=False).flat)
    for number, panel in enumerate(panels):
        panel.label_outer()
        is_last_of_column = number + in_row >= count  # also above a hole in the grid
        if number >= count:
            panel.set_visible(False)
        elif is_last_of_column:
            panel.tick_params(labelbottom=True)
    return figure, panels[:count]


def facet_grid(
    results: pd.DataFrame, probe: str, metrics: Sequence[str], **layout: Any
) -> tuple[Figure, list[tuple[Axes, Facet]]]:
    """A `grid` of a panel per data set and model.

    Args:
        results: the long table.
        probe: whose metrics are drawn.
        metrics: columns of the wide rows that come with each panel.
        layout: arguments of `grid`.
    """
    panels = facets(per_example(results, probe, metrics))
    figure, axes = grid(len(panels), **layout)
    return figure, list(zip(axes, panels, strict=True))


def title(panel: Axes, text: str, width: float = TITLE_WIDTH) -> None:
    """Set a left-aligned panel title, which may come from data.

    It is broken at its dots where it is too wide, and a part that is still too wide is cut.

    Args:
        panel: that it stands above.
        text: parts joined by `DOT`.
        width: in points.
    """
    lines = [""]
    for uncut_part in drawable(text).split(DOT):
        part = uncut_part
        while text_width(part, LETTERS) > width:
            part = part.rstrip("…")[:-1] + "…"
        longer = lines[-1] + DOT + part if lines[-1] else part
        if text_width(longer, LETTERS) <= width:
            lines[-1] = longer
        else:
            lines.append(part)
    panel.set_title("\n".join(lines), loc="left")


def counted(text: str, number: int, *more: str) -> str:
    """A panel's title with the number of its examples, and further parts."""
    return DOT.join([text, f"n = {number:,}", *more])


def from_zero(panels: Sequence[Axes]) -> None:
    """Let the shared y-axis begin at 0 and end above all that is drawn in any panel.

    Call it when all are drawn: limits that one panel sets hold for those that come later.
    """
    top = max(panel.dataLim.y1 for panel in panels)
    panels[0].set_ylim(0, 1.04 * top if np.isfinite(top) and top > 0 else 1)


def quarters(panel: Axes, height: float, notes: Sequence[str]) -> None:
    """Divide an x-axis from 0 to 1 into quarters, each with a note that hangs from that height."""
    for number, note in enumerate(notes):
        place = (number / 4 + 0.125, height)
        panel.annotate(note, place, ha="center", va="top", fontsize=NOTE_SIZE, color=FAINT)
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
    """Label the axes that all panels share, and put a legend above the drawn and titled panels.

    The figure grows by the legend's height and by the further lines of the panels' titles, so that
    the panels keep their size.

    Args:
        figure: made by `grid`.
        x: label of the x-axis.
        y: label of the y-axis.
        handles: entries of the legend.
        heading: title of the legend.
    """
    panels_height = figure.get_figheight() + TITLE_LINE * _further_title_lines(figure)
    legend_height = _add_legend(figure, handles, heading) if handles else 0.0
    height = panels_height + legend_height
    figure.set_figheight(height)
    if x:
        figure.supxlabel(x, fontsize=LETTERS)
    if y:
        figure.supylabel(y, fontsize=LETTERS, y=panels_height / 2 / height)


def _further_title_lines(figure: Figure) -> int:
    """Lines of panel titles beyond the first: of each row of panels the most, summed over rows."""
    lines: dict[float, int] = {}
    for panel in figure.axes:
        place = panel.get_subplotspec()
        row = 0.0 if place is None else round(place.get_position(figure).y0, 3)
        lines[row] = max(lines.get(row, 0), panel.get_title("left").count("\n"))
    return sum(lines.values())


def _add_legend(figure: Figure, handles: Sequence[Artist], heading: str | None) -> float:
    """Put a legend above the figure, in the most columns that fit; its height in inches."""
    room = figure.bbox.width - 8
    for rows in range(1, len(handles) + 1):
        legend = figure.legend(
            handles=list(handles),
            title=heading,
            loc="outside upper left",
            ncols=-(-len(handles) // rows),
            columnspacing=1.2,
            alignment="left",
        )
        box = legend.get_window_extent(_MEASURE)
        if box.width <= room or rows == len(handles):
            break
        legend.remove()
    return float(box.height) / figure.dpi + LEGEND_GAP


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
    """A panel per group of a table, with a line per importance, the first on top.

    Each measure's mean is a dot on its 95 % interval.

    Args:
        table: with `importance`, `n`, and of each measure `<measure>`, `<measure>, low` and
            `<measure>, high`.
        by: whose values are a panel's heading.
        importances: that are shown.
        measures: heading of the columns → colour of the inside of the dots, empty for that of the
            importance.
        x: label of the x-axis.
        zero: where a vertical line is drawn; None: nowhere.
        handles: entries of the legend.

    Returns:
        The figure, and its panels by their headings.
    """
    colours = {importance.title: importance.colour for importance in importances}
    groups = list(table.groupby(by, sort=False))
    figure, axes = grid(len(groups), panel_height=0.5 + 0.2 * len(colours), columns=2)
    panels = {}
    for panel, (key, rows) in zip(axes, groups, strict=True):
        _draw_intervals(panel, rows, colours, measures)
        if zero is not None:
            panel.axvline(zero, lw=0.5, color=INK, zorder=0)
        heading = DOT.join(map(str, key)) if isinstance(key, tuple) else str(key)
        panels[heading] = panel
        title(panel, counted(heading, int(rows["n"].max())))
    around(figure, x=x, handles=handles)
    return figure, panels


def _draw_intervals(
    panel: Axes, rows: pd.DataFrame, colours: Mapping[str, str], measures: Mapping[str, str]
) -> None:
    """Draw each importance's measures on its own line of a panel."""
    names = list(colours)
    for row in rows[rows["importance"].isin(names)].to_dict("records"):
        height = len(names) - 1 - names.index(row["importance"])
        colour = colours[row["importance"]]
        for measure, fill in measures.items():
            interval = [row[f"{measure}, low"], row[f"{measure}, high"]]
            panel.plot(interval, [height, height], color=colour, lw=0.8)
            panel.plot(row[measure], height, "o", ms=4, color=colour, mfc=fill or colour)
    panel.set_yticks(range(len(names)), names[::-1])
    panel.set_ylim(-0.6, len(names) - 0.4)


def cells(
    panel: Axes,
    values: np.ndarray,
    text_of: Callable[[float], str],
    *,
    size: float,
    dark: float | None = None,
    **image: Any,
) -> AxesImage:
    """Draw a matrix as an image with its numbers in it.

    Args:
        panel: that it fills.
        values: of the cells; NaN leaves one empty.
        text_of: turns a number into text.
        size: of the letters, in points.
        dark: letters are white where |number| is larger; None: they have the default colour.
        image: arguments of `Axes.imshow`.
    """
    matrix = panel.imshow(np.ma.masked_invalid(values), aspect="auto", **image)
    for (y, x), value in np.ndenumerate(values):
        if np.isnan(value):
            continue
        colour = None
        if dark is not None:
            colour = "white" if abs(value) > dark else "black"
        panel.annotate(
            text_of(value), (x, y), ha="center", va="center", fontsize=size, color=colour
        )
    panel.tick_params(length=0)
    return matrix


def in_cell(value: float) -> str:
    """A number in as few characters as it needs, so that those of neighbouring cells do not touch.

    >>> in_cell(-0.018), in_cell(0.754), in_cell(-0.001), in_cell(-1.0)
    ('−.02', '.75', '0', '−1')
    """
    rounded = round(value, 2) + 0.0  # none is called −0
    words = f"{rounded:.0f}" if rounded == int(rounded) else f"{rounded:.2f}".replace("0.", ".", 1)
    return words.replace("-", "−")


def class_handles(names: Sequence[str]) -> list[Patch]:
    """Legend entries for the predicted classes in the colours of the panels.

    None where all examples are one group.
    """
    if len(names) < 2:
        return []
    return [
        Patch(color=colour, alpha=0.6, label=name)
        for name, colour in zip(names, CLASS_COLOURS, strict=False)
    ]
