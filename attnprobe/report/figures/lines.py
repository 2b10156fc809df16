"""A text laid out in lines of a figure: how wide its words are drawn, what of a long one is shown, where each word goes."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from attnprobe.report.figures.style import TEXT_WIDTH, drawable, text_width

ELLIPSIS = "…"
LONGEST_TOKEN = 22
# all lengths in points
FONT_SIZE, LINE, GUTTER, PADDING = 6.5, 10.0, 12.0, 1.4
MARGIN = 3.0
WIDTH = TEXT_WIDTH * 72 - 2 * MARGIN
COLUMN = (WIDTH - 2 * GUTTER) / 3


def cut(text: str) -> str:
    """The text as far as it fits into a line of the figure."""
    text = drawable(text)
    while text_width(text, 6.5) > WIDTH:
        text = text.rstrip(ELLIPSIS)[:-1] + ELLIPSIS
    return text


def shorten(token: str) -> str:
    """A token short enough for a line: its beginning and its end.

    >>> shorten("https://example.org/a/very/long/address")
    'https://ex…ong/address'
    """
    if len(token) <= LONGEST_TOKEN:
        return token
    half = (LONGEST_TOKEN - 1) // 2
    return token[:half] + ELLIPSIS + token[-(LONGEST_TOKEN - 1 - half) :]


def windows(maps: Sequence[np.ndarray], most: int) -> list[tuple[int, int]]:
    """Stretches `[start, stop)` of at most `most` positions in all, around the most attended tokens of every map.

    The centres are each map's largest weights, taken in turn; all windows then grow by one position a side for as
    long as they fit. A text of at most `most` tokens is shown whole.

    Args:
        maps: attention maps of one text, each `[seq]`.
        most: how many positions may be shown.
    """
    count = len(maps[0])
    if count <= most:
        return [(0, count)] if count else []
    orders = [np.argsort(-weights, kind="stable") for weights in maps]
    centres = list(dict.fromkeys(int(order[rank]) for rank in range(3) for order in orders))[: most // 3]
    shown = set(centres)
    for radius in range(1, count):
        wider = {t for c in centres for t in range(c - radius, c + radius + 1) if 0 <= t < count}
        if len(wider) > most:
            break
        shown = wider
    positions = sorted(shown)
    breaks = [0, *(i for i in range(1, len(positions)) if positions[i] > positions[i - 1] + 1), len(positions)]
    return [(positions[a], positions[b - 1] + 1) for a, b in pairwise(breaks)]


def width_of(word: str) -> float:
    """The width of a drawn word, padding included, in points."""
    return text_width(word, FONT_SIZE) + 2 * PADDING


def wrap(widths: Sequence[float], column: float) -> list[tuple[float, int, float]]:
    """(left, line, width) of each word, filling lines of `column` points greedily. A word wider than the column gets
    a line of its own.

    >>> wrap([40, 40, 40], 100)
    [(0.0, 0, 40), (40.5, 0, 40), (0.0, 1, 40)]
    """
    left, line, places = 0.0, 0, []
    for width in widths:
        if left > 0 and left + width > column:
            left, line = 0.0, line + 1
        places.append((left, line, width))
        left += width + 0.5
    return places
