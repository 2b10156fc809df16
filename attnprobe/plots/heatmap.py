"""Token heat maps: a text under the model's, the adversary's and the farthest attention."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from attnprobe.core.metrics import sureness
from attnprobe.plots.example_selection import select_examples
from attnprobe.plots.grid import DOT
from attnprobe.plots.style import ELLIPSIS, FAINT, INK, TEXT_WIDTH, drawable, shorten, text_width
from attnprobe.results.pivot import CLASSES, per_example

METRICS = (
    "max_attention",
    "optimum_jsd",
    "found_jsd",
    "upper_bound",
    "is_exact",
    "predicted_class",
    "content_length",
    "found_tvd",
    "optimum_tvd",
)
"""What is written above an example, and what it is chosen by."""
MOST_TEXTS = 4
SHORTEST = 6
"""Texts of fewer tokens have little attention to move."""
MOVABLE = "peaked but movable"
FIXED = "least movable"
MOST_TOKENS = 36
"""Longer texts are shown as windows around their most attended tokens."""
# all lengths in points
FONT_SIZE = 6.5
LINE = 10.0
GUTTER = 12.0
PADDING = 1.4
MARGIN = 3.0
HEAD = 30.0
FOOT = 24.0
WIDTH = TEXT_WIDTH * 72 - 2 * MARGIN
COLUMN = (WIDTH - 2 * GUTTER) / 3
NORM = PowerNorm(0.5, vmin=0, vmax=1)
"""Square root: a weight of 0.05 among many tokens must be seen as well as a weight of 1."""
GAP = -1
"""Stands for an ellipsis among positions."""
SHADES = LinearSegmentedColormap.from_list("attention", colormaps["Blues"](np.linspace(0, 0.9, 64)))
"""White to dark blue, one hue: more weight is darker, also in a black-and-white print."""
DEEP = 0.6
"""Depth of colour from which letters are white."""


def telling(rows: pd.DataFrame) -> dict[int, str]:
    """The examples that the figure shows of one run, each with why.

    Those with the largest product of largest attention weight and optimum JSD, and those whose
    attention can be moved least; in turn from each predicted class.

    Args:
        rows: wide, a row per example, with `METRICS`.
    """
    rows = rows.dropna(subset=["max_attention", "optimum_jsd"]).sort_values("example_id")
    jsd = rows["optimum_jsd"].to_numpy()
    reasons = select_examples(
        rows["example_id"].to_numpy(),
        MOST_TEXTS,
        scores={MOVABLE: rows["max_attention"].to_numpy() * jsd, FIXED: -jsd},
        groups=rows["predicted_class"].to_numpy(),
        evenly=0,
        prefer=(rows["content_length"] >= SHORTEST).to_numpy(),
    )
    return dict(sorted(reasons.items(), key=lambda pair: pair[1] == FIXED))


def telling_examples(results: pd.DataFrame) -> list[int]:
    """The ids of the examples that `heatmaps` shows of one run."""
    return list(telling(per_example(results, "adversarial", METRICS)))


def heatmaps(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """Texts whose attention is peaked but movable, and texts where it moves least.

    Every token is coloured by its weight. All three columns of an example show the same tokens.
    Long texts are shown as windows around the most attended tokens; how many of the tokens are
    shown is written above.
    """
    assert examples is not None  # it shows words
    rows = per_example(results, "adversarial", METRICS)
    blocks = []
    for example_id, reason in telling(rows).items():
        row = rows[rows["example_id"] == example_id].iloc[0]
        example = examples[examples["example_id"] == example_id].iloc[0]
        blocks.append(_Block.of(reason, row, example, results))

    height = HEAD + sum(block.height for block in blocks) + FOOT
    figure = Figure(figsize=(TEXT_WIDTH, height / 72))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(-MARGIN, WIDTH + MARGIN)
    axes.set_ylim(height, 0)  # points from the top left corner, as on a page

    is_exact = all(block.exact for block in blocks)
    _draw_head(axes, rows.iloc[0], is_exact=is_exact)
    top = HEAD
    for block in blocks:
        block.draw(axes, top)
        top += block.height
    _draw_legend(axes, top + 10)
    return figure


def _draw_head(axes: Axes, run: pd.Series, *, is_exact: bool) -> None:
    """Name the run, and the attention that each column shows."""
    name = drawable(f"{run['data']} · {run['model']} · seed {run['seed']}")
    _text(axes, 0, 7, name, size=7.5, colour=INK)
    farthest = "farthest attention" if is_exact else "farthest attention known"
    columns = ("the model's attention", "gradient adversary", farthest)
    for number, column in enumerate(columns):
        x = number * (COLUMN + GUTTER)
        axes.text(x, 21, column, va="center", fontsize=7, fontweight="bold")


def _draw_legend(axes: Axes, y: float) -> None:
    """Show which weight has which shade, and how the examples were chosen."""
    _text(axes, 0, y, "weight", size=6)
    for number, weight in enumerate((0.0, 0.01, 0.05, 0.2, 0.5, 1.0)):
        x = 26 + number * 22
        depth = float(NORM(weight))
        shade = SHADES(depth)
        axes.add_patch(Rectangle((x, y - 4), 20, 8, facecolor=shade, edgecolor=FAINT, lw=0.3))
        colour = "white" if depth > DEEP else INK
        _text(axes, x + 10, y, f"{weight:g}", size=5.5, colour=colour, align="center")
    rule = (
        f"{MOVABLE}: largest (largest weight × optimum JSD); {FIXED}: smallest optimum JSD\n"
        f"in turn per predicted class; texts of {SHORTEST} or more tokens"
    )
    _text(axes, WIDTH, y, rule, size=5.5, align="right")


def _text(
    axes: Axes,
    x: float,
    y: float,
    text: str,
    *,
    size: float,
    colour: str = FAINT,
    align: str = "left",
) -> None:
    axes.text(x, y, text, ha=align, va="center", fontsize=size, color=colour)


@dataclass(frozen=True)
class _Block:
    """One example, laid out. All lengths are in points.

    Attributes:
        header: what is written above it.
        above: height of the header, and of the question where there is one.
        question: what the text was read with; empty: nothing.
        exact: whether the farthest attention is proved.
        captions: of the three columns.
        words: the tokens that are shown, and ellipses.
        weights: of these words in each column, NaN at an ellipsis; None: no such attention exists.
        places: left end, line and width of each word.
    """

    header: str
    above: float
    question: str
    exact: bool
    captions: list[str]
    words: list[str]
    weights: list[np.ndarray | None]
    places: list[tuple[float, int, float]]

    @classmethod
    def of(cls, reason: str, row: pd.Series, example: pd.Series, results: pd.DataFrame) -> "_Block":
        """Lay out one example.

        Args:
            reason: why it is shown.
            row: its `METRICS`.
            example: its tokens, attention, label and prediction.
            results: the long table, with the adversaries' attentions.
        """
        example_id = int(row["example_id"])
        tokens = list(example["tokens"])
        maps = [
            np.asarray(example["attention"], float),
            _positions(results, example_id, "found_attention", len(tokens)),
            _positions(results, example_id, "optimum_attention", len(tokens)),
        ]
        positions = _shown_positions([weights for weights in maps if weights is not None])
        words = [
            ELLIPSIS if position == GAP else drawable(shorten(str(tokens[position])))
            for position in positions
        ]
        question = example.get("question")
        if question is not None and not isinstance(question, str):
            question = " ".join(map(str, question))
        return cls(
            header=cut(_header(reason, example_id, example, positions, results.attrs)),
            above=13 if question is None else 22,
            exact=bool(row["is_exact"]),
            captions=["", _caption(row, "found", maps[1]), _caption(row, "optimum", maps[2])],
            question="" if question is None else cut(f"read with: {question}"),
            words=words,
            places=wrap([text_width(word, FONT_SIZE) + 2 * PADDING for word in words], COLUMN),
            weights=[None if weights is None else _picked(weights, positions) for weights in maps],
        )

    @property
    def height(self) -> float:
        """Of the whole block."""
        lines = 1 + max((line for _, line, _ in self.places), default=0)
        return self.above + lines * LINE + 15

    def draw(self, axes: Axes, top: float) -> None:
        """Draw the block, its upper edge at `top`."""
        axes.plot([0, WIDTH], [top, top], lw=0.4, color=FAINT)
        _text(axes, 0, top + 7, self.header, size=6.5, colour=INK)
        if self.question:
            _text(axes, 0, top + 16, self.question, size=6.5, colour=INK)
        for number, (weights, caption) in enumerate(zip(self.weights, self.captions, strict=True)):
            left = number * (COLUMN + GUTTER)
            _text(axes, left, top + self.height - 10, caption, size=6)
            if weights is not None:
                self._draw_words(axes, left, top + self.above, weights)

    def _draw_words(self, axes: Axes, left: float, top: float, weights: np.ndarray) -> None:
        """Draw the words of one column, each on the shade of its weight."""
        for word, weight, place in zip(self.words, weights, self.places, strict=True):
            offset, line, width = place
            x = left + offset
            y = top + line * LINE
            colour = FAINT
            if not np.isnan(weight):
                depth = float(NORM(weight))
                shade = SHADES(depth)
                patch = Rectangle((x, y + 0.5), width, LINE - 1, facecolor=shade, linewidth=0)
                axes.add_patch(patch)
                colour = "white" if depth > DEEP else INK
            axes.text(
                x + width / 2,
                y + LINE / 2 + 0.3,
                word,
                ha="center",
                va="center_baseline",
                fontsize=FONT_SIZE,
                color=colour,
            )


def _shown_positions(maps: Sequence[np.ndarray]) -> list[int]:
    """Positions of the tokens that are shown, with `GAP` where tokens are left out."""
    count = len(maps[0])
    spans = windows(maps, MOST_TOKENS)
    positions: list[int] = []
    for start, stop in spans:
        if start > 0 or positions:
            positions.append(GAP)
        positions += range(start, stop)
    if not spans or spans[-1][1] < count:
        positions.append(GAP)
    return positions


def _picked(weights: np.ndarray, positions: Sequence[int]) -> np.ndarray:
    """The weights at these positions; NaN at a gap."""
    return np.array([np.nan if position == GAP else weights[position] for position in positions])


def _header(
    reason: str,
    example_id: int,
    example: pd.Series,
    positions: Sequence[int],
    attributes: Mapping[Any, Any],
) -> str:
    """Why an example is shown, its label, its prediction, and how much of it is shown."""
    names = attributes.get(CLASSES, [])
    prediction = example["prediction"]
    predicted = f"predicted {label_text(prediction, names)}"
    is_one_class = not np.ndim(prediction)
    if is_one_class:
        probability = example["probability"]
        predicted += f" ({sureness(probability, float(probability[int(prediction)]))})"

    attention = np.asarray(example["attention"], float)
    largest = f"largest weight {attention.max():.2f}" if len(attention) else "no tokens"
    label = f"label {label_text(example['label'], names)}"
    parts = [reason, f"example {example_id}", label, predicted, largest]
    tokens_shown = sum(position != GAP for position in positions)
    if tokens_shown < len(attention):
        parts.append(f"{tokens_shown} of {len(attention):,} tokens shown")
    return DOT.join(parts)


def _caption(row: pd.Series, kind: str, weights: np.ndarray | None) -> str:
    """How far an adversary's attention is from the model's, and what is proved of the optimum."""
    if weights is None:
        return "none found"
    caption = f"JSD {row[f'{kind}_jsd']:.3f}"
    tvd = row[f"{kind}_tvd"]
    if not np.isnan(tvd):
        caption += f", TVD {tvd:.4f}"
    if kind == "optimum":
        caption += ", exact" if row["is_exact"] else f"; at most {row['upper_bound']:.3f}"
    return caption


def _positions(
    results: pd.DataFrame, example_id: int, metric: str, count: int
) -> np.ndarray | None:
    """A weight per position from the long table; None where it has none for this example."""
    rows = results[
        (results["metric"] == metric)
        & (results["example_id"] == example_id)
        & results["value"].notna()
    ]
    if rows.empty:
        return None
    weights = np.zeros(count)
    weights[rows["step"].to_numpy(int)] = rows["value"].to_numpy()
    return weights


def label_text(label: object, names: Sequence[str]) -> str:
    """A class by its name, or its number where there are none; of several labels all classes.

    >>> label_text(1, ["no", "yes"]), label_text(3, [])
    ('yes', '3')
    >>> label_text(np.array([1, 0, 1]), ["a", "b", "c"])
    'a, c'
    """
    if isinstance(label, (list, np.ndarray)):
        labels = [label_text(number, names) for number, is_on in enumerate(label) if is_on]
        return ", ".join(labels) or "none"
    return names[int(str(label))] if names else str(label)


def cut(text: str) -> str:
    """The text as far as it fits into a line of the figure."""
    text = drawable(text)
    while text_width(text, 6.5) > WIDTH:
        text = text.rstrip(ELLIPSIS)[:-1] + ELLIPSIS
    return text


def windows(maps: Sequence[np.ndarray], most: int) -> list[tuple[int, int]]:
    """Stretches `[start, stop)` of a text around the largest weights of several attentions.

    All grow by one position a side for as long as they fit. A short text is shown whole.

    Args:
        maps: weights `[seq]` of one text.
        most: positions of all stretches together.
    """
    count = len(maps[0])
    if count <= most:
        return [(0, count)] if count else []
    orders = [np.argsort(-weights, kind="stable") for weights in maps]
    top_positions = dict.fromkeys(int(order[rank]) for rank in range(3) for order in orders)
    centres = list(top_positions)[: most // 3]
    positions_shown = set(centres)
    for radius in range(1, count):
        wider: set[int] = set()
        for centre in centres:
            wider.update(range(max(0, centre - radius), min(count, centre + radius + 1)))
        if len(wider) > most:
            break
        positions_shown = wider
    positions = np.array(sorted(positions_shown))
    stretches = np.split(positions, np.flatnonzero(np.diff(positions) > 1) + 1)
    return [(int(stretch[0]), int(stretch[-1]) + 1) for stretch in stretches]


def wrap(widths: Sequence[float], column: float) -> list[tuple[float, int, float]]:
    """Fill lines with words greedily; a word wider than a line gets one of its own.

    Args:
        widths: of the words, in points.
        column: width of a line, in points.

    Returns:
        Left end, line and width of each word.

    >>> wrap([40, 40, 40], 100)
    [(0.0, 0, 40), (40.5, 0, 40), (0.0, 1, 40)]
    """
    left = 0.0
    line = 0
    places = []
    for width in widths:
        if left > 0 and left + width > column:
            left = 0.0
            line += 1
        places.append((left, line, width))
        left += width + 0.5
    return places
