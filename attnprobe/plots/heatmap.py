"""Token heat maps: a text under the model's own attention, the adversary's and the farthest one,
side by side."""

from collections.abc import Sequence
from dataclasses import dataclass

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
WIDTH = TEXT_WIDTH * 72 - 2 * MARGIN
COLUMN = (WIDTH - 2 * GUTTER) / 3
NORM = PowerNorm(0.5, vmin=0, vmax=1)
"""Square root: a weight of 0.05 among many tokens must be seen as well as a weight of 1."""
SHADES = LinearSegmentedColormap.from_list("attention", colormaps["Blues"](np.linspace(0, 0.9, 64)))
"""White to dark blue, one hue: more weight is darker, also in a black-and-white print."""
DEEP = 0.6
"""Depth of colour from which letters are white."""


def telling(rows: pd.DataFrame) -> dict[int, str]:
    """The examples that the figure shows of one run's wide rows, each with why: those with the
    largest product of largest attention weight and optimum JSD, and those whose attention can be
    moved least; in turn from each predicted class."""
    rows = rows.dropna(subset=["max_attention", "optimum_jsd"]).sort_values("example_id")
    jsd = rows["optimum_jsd"].to_numpy()
    chosen = select_examples(
        rows["example_id"].to_numpy(),
        MOST_TEXTS,
        scores={MOVABLE: rows["max_attention"].to_numpy() * jsd, FIXED: -jsd},
        groups=rows["predicted_class"].to_numpy(),
        evenly=0,
        prefer=(rows["content_length"] >= SHORTEST).to_numpy(),
    )
    return dict(sorted(chosen.items(), key=lambda pair: pair[1] == FIXED))


def telling_examples(results: pd.DataFrame) -> list[int]:
    """The ids of the examples that `heatmaps` shows of one run."""
    return list(telling(per_example(results, "adversarial", METRICS)))


def heatmaps(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """Texts whose attention is peaked but movable, and texts where it moves least. Every token is
    coloured by its weight.

    All three columns of an example show the same tokens. Long texts are shown as windows around the
    most attended tokens; how many of the tokens are shown is written above."""
    assert examples is not None  # it shows words
    rows = per_example(results, "adversarial", METRICS)
    blocks = []
    for number, reason in telling(rows).items():
        row, example = (table[table["example_id"] == number].iloc[0] for table in (rows, examples))
        blocks.append(_Block.of(reason, row, example, results))
    run = rows.iloc[0]
    head = 30.0
    height = head + sum(block.height for block in blocks) + 24
    figure = Figure(figsize=(TEXT_WIDTH, height / 72))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(-MARGIN, WIDTH + MARGIN)
    axes.set_ylim(height, 0)  # points from the top left corner, as on a page
    farthest = (
        "farthest attention" if all(block.exact for block in blocks) else "farthest attention known"
    )
    _text(axes, 0, 7, drawable(f"{run['data']} · {run['model']} · seed {run['seed']}"), 7.5, INK)
    for number, name in enumerate(("the model's attention", "gradient adversary", farthest)):
        axes.text(number * (COLUMN + GUTTER), 21, name, va="center", fontsize=7, fontweight="bold")
    top = head
    for block in blocks:
        block.draw(axes, top)
        top += block.height
    y = top + 10
    _text(axes, 0, y, "weight", 6)
    for number, weight in enumerate((0.0, 0.01, 0.05, 0.2, 0.5, 1.0)):
        x = 26 + number * 22
        depth = float(NORM(weight))
        axes.add_patch(
            Rectangle((x, y - 4), 20, 8, facecolor=SHADES(depth), edgecolor=FAINT, lw=0.3)
        )
        _text(axes, x + 10, y, f"{weight:g}", 5.5, "white" if depth > DEEP else INK, ha="center")
    rule = (
        f"{MOVABLE}: largest (largest weight × optimum JSD); {FIXED}: smallest optimum JSD\n"
        f"in turn per predicted class; texts of {SHORTEST} or more tokens"
    )
    _text(axes, WIDTH, y, rule, 5.5, ha="right")
    return figure


def _text(
    axes: Axes, x: float, y: float, text: str, size: float, colour: str = FAINT, ha: str = "left"
) -> None:
    axes.text(x, y, text, ha=ha, va="center", fontsize=size, color=colour)


@dataclass(frozen=True)
class _Block:
    """One example, laid out; NaN is the weight of an ellipsis."""

    header: str
    above: float  # points: the header, and the question where there is one
    question: str
    exact: bool
    captions: list[str]
    words: list[str]
    weights: list[np.ndarray | None]
    places: list[tuple[float, int, float]]

    @classmethod
    def of(cls, reason: str, row: pd.Series, example: pd.Series, results: pd.DataFrame) -> "_Block":
        number = int(row["example_id"])
        tokens = list(example["tokens"])
        attention = np.asarray(example["attention"], float)
        names = results.attrs.get(CLASSES, [])
        others = {
            kind: _positions(results, number, f"{kind}_attention", len(tokens))
            for kind in ("found", "optimum")
        }
        maps = [attention, *others.values()]
        spans = windows([weights for weights in maps if weights is not None], MOST_TOKENS)
        picked: list[int] = []  # −1 stands for an ellipsis
        for start, stop in spans:
            picked += [-1] if start > 0 or picked else []
            picked += range(start, stop)
        if not spans or spans[-1][1] < len(tokens):
            picked.append(-1)
        words = [ELLIPSIS if t < 0 else drawable(shorten(str(tokens[t]))) for t in picked]
        parts = [reason, f"example {number}", f"label {label_text(example['label'], names)}"]
        predicted = example["prediction"]
        probability = example["probability"]
        asked = example.get("question")
        sure = (
            ""
            if np.ndim(predicted)
            else f" ({sureness(probability, float(probability[int(predicted)]))})"
        )
        parts.append(f"predicted {label_text(predicted, names)}{sure}")
        parts.append(f"largest weight {attention.max():.2f}" if len(attention) else "no tokens")
        shown = sum(t >= 0 for t in picked)
        if shown < len(tokens):
            parts.append(f"{shown} of {len(tokens):,} tokens shown")
        proof = ", exact" if row["is_exact"] else f"; at most {row['upper_bound']:.3f}"
        asked = asked if isinstance(asked, str) or asked is None else " ".join(map(str, asked))
        captions = [""]
        for kind, weights in others.items():
            tvd = "" if np.isnan(row[f"{kind}_tvd"]) else f", TVD {row[f'{kind}_tvd']:.4f}"
            found = f"JSD {row[f'{kind}_jsd']:.3f}{tvd}{proof if kind == 'optimum' else ''}"
            captions.append("none found" if weights is None else found)
        return cls(
            header=cut(DOT.join(parts)),
            above=13 if asked is None else 22,
            exact=bool(row["is_exact"]),
            captions=captions,
            question="" if asked is None else cut(f"read with: {asked}"),
            words=words,
            places=wrap([text_width(word, FONT_SIZE) + 2 * PADDING for word in words], COLUMN),
            weights=[
                None if w is None else np.array([np.nan if t < 0 else w[t] for t in picked])
                for w in maps
            ],
        )

    @property
    def height(self) -> float:
        return self.above + (1 + max((line for _, line, _ in self.places), default=0)) * LINE + 15

    def draw(self, axes: Axes, top: float) -> None:
        axes.plot([0, WIDTH], [top, top], lw=0.4, color=FAINT)
        _text(axes, 0, top + 7, self.header, 6.5, INK)
        if self.question:
            _text(axes, 0, top + 16, self.question, 6.5, INK)
        for number, (weights, caption) in enumerate(zip(self.weights, self.captions, strict=True)):
            left = number * (COLUMN + GUTTER)
            _text(axes, left, top + self.height - 10, caption, 6)
            if weights is None:
                continue
            for word, weight, (offset, line, width) in zip(
                self.words, weights, self.places, strict=True
            ):
                x = left + offset
                y = top + self.above + line * LINE
                depth = float(NORM(weight))
                colour = FAINT
                if not np.isnan(weight):
                    axes.add_patch(
                        Rectangle(
                            (x, y + 0.5), width, LINE - 1, facecolor=SHADES(depth), linewidth=0
                        )
                    )
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


def _positions(
    results: pd.DataFrame, example_id: int, metric: str, count: int
) -> np.ndarray | None:
    """A weight per position from the long table `[seq]`; None where the table has none for this
    example."""
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
    """A class by its name (its number where there are none), or the classes of a multi-label
    example.

    >>> label_text(1, ["no", "yes"]), label_text(np.array([1, 0, 1]), ["a", "b", "c"]), label_text(3, [])
    ('yes', 'a, c', '3')
    """
    if isinstance(label, (list, np.ndarray)):
        return (
            ", ".join(label_text(number, names) for number, on in enumerate(label) if on) or "none"
        )
    return names[int(str(label))] if names else str(label)


def cut(text: str) -> str:
    """The text as far as it fits into a line of the figure."""
    text = drawable(text)
    while text_width(text, 6.5) > WIDTH:
        text = text.rstrip(ELLIPSIS)[:-1] + ELLIPSIS
    return text


def windows(maps: Sequence[np.ndarray], most: int) -> list[tuple[int, int]]:
    """Stretches `[start, stop)` of at most `most` positions in all, around the largest weights of
    every map `[seq]` of one text: all grow by one position a side for as long as they fit. A text
    of at most `most` tokens is shown whole."""
    count = len(maps[0])
    if count <= most:
        return [(0, count)] if count else []
    orders = [np.argsort(-weights, kind="stable") for weights in maps]
    centres = list(dict.fromkeys(int(order[rank]) for rank in range(3) for order in orders))[
        : most // 3
    ]
    shown = set(centres)
    for radius in range(1, count):
        wider = {t for c in centres for t in range(c - radius, c + radius + 1) if 0 <= t < count}
        if len(wider) > most:
            break
        shown = wider
    positions = np.array(sorted(shown))
    stretches = np.split(positions, np.flatnonzero(np.diff(positions) > 1) + 1)
    return [(int(one[0]), int(one[-1]) + 1) for one in stretches]


def wrap(widths: Sequence[float], column: float) -> list[tuple[float, int, float]]:
    """(left, line, width) of each word, filling lines of `column` points greedily. A word wider
    than the column gets a line of its own.

    >>> wrap([40, 40, 40], 100)
    [(0.0, 0, 40), (40.5, 0, 40), (0.0, 1, 40)]
    """
    left = 0.0
    line = 0
    places = []
    for width in widths:
        if left > 0 and left + width > column:
            left = 0.0
            line = line + 1
        places.append((left, line, width))
        left += width + 0.5
    return places
