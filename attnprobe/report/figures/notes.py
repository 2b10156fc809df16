"""What a place of a figure says when it is pointed at: an artist that draws nothing, so that the printed figure stays."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

REACH = 5.0
"""Points around a mark that still point at it."""


class Note(Artist):
    """The words for a place of the axes that it is added to.

    Attributes:
        place: from the lower left to the upper right corner `[2, 2]`, in data coordinates; a point twice is a mark.
        words: plain text; the page escapes it.
    """

    def __init__(self, place: np.ndarray, words: str) -> None:
        super().__init__()
        self.place, self.words = place, words
        self.set_in_layout(False)

    def draw(self, renderer: RendererBase) -> None:
        """Nothing."""


def note(axes: Axes, x: float, y: float, words: str, *, width: float = 0.0, height: float = 0.0) -> None:
    """Let a mark, or a cell of that width and height around it, say these words; all in data coordinates.

    What is not finite is nowhere, and says nothing.
    """
    place = np.array([[x - width / 2, y - height / 2], [x + width / 2, y + height / 2]])
    if np.isfinite(place).all():
        axes.add_artist(Note(place, words))


@dataclass(frozen=True)
class Spot:
    """A rectangle of a figure, in points from its upper left corner, and what it says."""

    left: float
    top: float
    width: float
    height: float
    words: str


def spots(figure: Figure) -> Iterator[Spot]:
    """Where a figure that has been laid out says what; marks come last, so that they lie above the cells."""
    notes = [(axes, one) for axes in figure.axes if axes.get_visible() for one in axes.artists if isinstance(one, Note)]
    for axes, one in sorted(notes, key=lambda pair: bool((pair[1].place[0] == pair[1].place[1]).all())):
        corners = axes.transData.transform(one.place) * 72 / figure.dpi
        box = Bbox.null()
        box.update_from_data_xy(corners)
        middle = (corners[0] + corners[1]) / 2
        width, height = (max(abs(float(length)), REACH) for length in corners[1] - corners[0])
        top = figure.get_figheight() * 72 - middle[1]
        yield Spot(float(middle[0]) - width / 2, float(top) - height / 2, width, height, one.words)
