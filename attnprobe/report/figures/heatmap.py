"""Token heat maps: a text under the model's own attention, the adversary's and the farthest one, side by side."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from attnprobe.report.figures.lines import (
    COLUMN,
    ELLIPSIS,
    FONT_SIZE,
    GUTTER,
    LINE,
    MARGIN,
    WIDTH,
    cut,
    shorten,
    width_of,
    windows,
    wrap,
)
from attnprobe.report.figures.notes import note
from attnprobe.report.figures.style import FAINT, INK, TEXT_WIDTH, drawable, fonts
from attnprobe.report.figures.telling import METRICS, SHORTEST, Choice, choose
from attnprobe.report.wide import CLASSES, per_example
from attnprobe.results.positions import check_positions

MOST_TOKENS = 36
"""Longer texts are shown as windows around their most attended tokens."""


NORM = PowerNorm(0.5, vmin=0, vmax=1)
"""Square root: a weight of 0.05 among many tokens must be seen as well as a weight of 1."""


def heatmaps(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """The most telling examples (`choose`) of one run, every token coloured by its weight.

    All three columns of an example show the same tokens. Long texts are shown as windows around the most attended
    tokens; how many of the tokens are shown is written above.

    Raises:
        ValueError: no examples' table, or it does not fit the probe's table.
    """
    if examples is None:
        raise ValueError("heatmaps needs the run's examples (attnprobe.results.table.read_examples), got None")
    rows = per_example(results, "adversarial", METRICS)
    names = results.attrs.get(CLASSES, [])
    blocks = [
        _block(choice, _row(rows, choice.example_id), _row(examples, choice.example_id), results, names)
        for choice in choose(rows)
    ]
    exact = all(block.exact for block in blocks)
    run = rows.iloc[0]
    head, foot = 30.0, 24.0
    height = head + sum(block.height for block in blocks) + foot
    figure = Figure(figsize=(TEXT_WIDTH, height / 72))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(-MARGIN, WIDTH + MARGIN)
    axes.set_ylim(height, 0)  # points from the top left corner, as on a page
    farthest = "farthest attention" if exact else "farthest attention known"
    axes.text(0, 7, drawable(f"{run['data']} · {run['model']} · seed {run['seed']}"), va="center", fontsize=7.5)
    for number, name in enumerate(("the model's attention", "gradient adversary", farthest)):
        axes.text(number * (COLUMN + GUTTER), 21, name, va="center", fontsize=7, fontweight="bold")
    top = head
    for block in blocks:
        block.draw(axes, top)
        top += block.height
    _legend(axes, top + 10)
    return figure


@dataclass(frozen=True)
class _Block:
    """One example, laid out."""

    header: str
    question: str
    exact: bool
    captions: list[str]
    words: list[str]
    weights: list[np.ndarray | None]
    places: list[tuple[float, int, float]]

    @property
    def height(self) -> float:
        lines = 1 + max((line for _, line, _ in self.places), default=0)
        return self.above + lines * LINE + 15

    @property
    def above(self) -> float:
        """Points above the words: the header, and the question where there is one."""
        return 22 if self.question else 13

    def draw(self, axes: Axes, top: float) -> None:
        axes.plot([0, WIDTH], [top, top], lw=0.4, color=FAINT)
        axes.text(0, top + 7, self.header, va="center", fontsize=6.5)
        if self.question:
            axes.text(0, top + 16, self.question, va="center", fontsize=6.5)
        below = top + self.above + LINE * (1 + max((line for _, line, _ in self.places), default=0)) + 5
        for number, (weights, caption) in enumerate(zip(self.weights, self.captions, strict=True)):
            left = number * (COLUMN + GUTTER)
            axes.text(left, below, caption, va="center", fontsize=6, color=FAINT)
            if weights is not None:
                _tokens(axes, left, top + self.above, self.words, weights, self.places)


def _row(table: pd.DataFrame, example_id: int) -> pd.Series:
    rows = table[table["example_id"] == example_id]
    if len(rows) != 1:
        raise ValueError(f"example {example_id}: expected one row in the table, got {len(rows)}")
    return rows.iloc[0]


def _block(choice: Choice, row: pd.Series, example: pd.Series, results: pd.DataFrame, names: Sequence[str]) -> _Block:
    tokens, attention = list(example["tokens"]), np.asarray(example["attention"], float)
    if len(tokens) != len(attention):
        raise ValueError(f"example {choice.example_id}: {len(tokens)} tokens but {len(attention)} attention weights")
    searched = _positions(results, choice.example_id, "found_attention", len(tokens))
    optimum = _positions(results, choice.example_id, "optimum_attention", len(tokens))
    maps = [attention, searched, optimum]
    spans = windows([weights for weights in maps if weights is not None], MOST_TOKENS)
    words: list[str] = []
    picked: list[int] = []  # −1 stands for an ellipsis
    for number, (start, stop) in enumerate(spans):
        if start > 0 or number > 0:
            picked.append(-1)
        picked.extend(range(start, stop))
    if not spans or spans[-1][1] < len(tokens):
        picked.append(-1)
    families = fonts()
    words = [ELLIPSIS if t < 0 else drawable(shorten(str(tokens[t])), families) for t in picked]
    shown = sum(t >= 0 for t in picked)
    parts = [
        choice.reason,
        f"example {choice.example_id}",
        f"label {label_text(example['label'], names)}",
        f"predicted {prediction_text(example, names)}",
        f"largest weight {attention.max():.2f}" if len(attention) else "no tokens",
    ]
    if shown < len(tokens):
        parts.append(f"{shown} of {len(tokens):,} tokens shown")
    captions = [""]
    for kind, weights in (("found", searched), ("optimum", optimum)):
        captions.append(f"JSD {row[f'{kind}_jsd']:.3f}" if weights is not None else "none found")
        if weights is not None and not np.isnan(row[f"{kind}_tvd"]):
            captions[-1] += f", TVD {row[f'{kind}_tvd']:.4f}"
        if weights is not None and kind == "optimum":
            captions[-1] += ", exact" if row["is_exact"] else f"; at most {row['upper_bound']:.3f}"
    return _Block(
        header=cut(" · ".join(parts)),
        question=question_text(example),
        exact=bool(row["is_exact"]),
        captions=captions,
        words=words,
        weights=[None if w is None else np.array([np.nan if t < 0 else w[t] for t in picked]) for w in maps],
        places=wrap([width_of(word) for word in words], COLUMN),
    )


def _positions(results: pd.DataFrame, example_id: int, metric: str, count: int) -> np.ndarray | None:
    """A weight per position from the long table `[seq]`; None where the table has none for this example."""
    rows = results[(results["metric"] == metric) & (results["example_id"] == example_id)]
    rows = rows[rows["value"].notna()]
    if rows.empty:
        return None
    steps = rows["step"].to_numpy(float)
    check_positions(steps, np.full(len(steps), count), f"{metric} of example {example_id} ({count} tokens)")
    weights = np.zeros(count)
    weights[steps.astype(int)] = rows["value"].to_numpy()
    return weights


def label_text(label: object, names: Sequence[str]) -> str:
    """A class by its name (its number where there are none), or the classes of a multi-label example.

    >>> label_text(1, ["no", "yes"]), label_text(np.array([1, 0, 1]), ["a", "b", "c"]), label_text(3, [])
    ('yes', 'a, c', '3')
    """
    if isinstance(label, (list, np.ndarray)):
        return ", ".join(label_text(number, names) for number, on in enumerate(label) if on) or "none"
    return names[int(str(label))] if names else str(label)


def prediction_text(example: pd.Series, names: Sequence[str]) -> str:
    """The predicted class with its probability, or the predicted classes of a multi-label example."""
    if isinstance(example["prediction"], (list, np.ndarray)):
        return label_text(example["prediction"], names)
    predicted = int(example["prediction"])
    return f"{label_text(predicted, names)} (p = {float(example['probability'][predicted]):.2f})"


def question_text(example: pd.Series) -> str:
    """The question or hypothesis that the text was read with, in one line; empty where there is none."""
    asked = example.get("question")
    if asked is None:
        return ""
    return cut("asked: " + (asked if isinstance(asked, str) else " ".join(map(str, asked))))


def shades() -> Colormap:
    """White to dark blue, one hue: more weight is darker, also in a black-and-white print."""
    return LinearSegmentedColormap.from_list("attention", colormaps["Blues"](np.linspace(0, 0.9, 64)))


def _tokens(
    axes: Axes,
    left: float,
    top: float,
    words: Sequence[str],
    weights: np.ndarray,
    places: Sequence[tuple[float, int, float]],
) -> None:
    blues = shades()
    for word, weight, (x, line, width) in zip(words, weights, places, strict=True):
        y = top + line * LINE
        gap = np.isnan(weight)
        depth = 0.0 if gap else float(NORM(weight))
        if not gap:
            axes.add_patch(Rectangle((left + x, y + 0.5), width, LINE - 1, facecolor=blues(depth), linewidth=0))
            note(axes, left + x + width / 2, y + LINE / 2, f"{word}: {weight:.4f}", width=width, height=LINE)
        colour = FAINT if gap else "white" if depth > 0.6 else INK
        axes.text(left + x + width / 2, y + LINE / 2 + 0.3, word, ha="center", va="center_baseline",
                  fontsize=FONT_SIZE, color=colour)  # fmt: skip


def _legend(axes: Axes, y: float) -> None:
    """The colours of a few weights, and the rule of choice."""
    blues = shades()
    axes.text(0, y, "weight", va="center", fontsize=6, color=FAINT)
    for number, weight in enumerate((0.0, 0.01, 0.05, 0.2, 0.5, 1.0)):
        x = 26 + number * 22
        axes.add_patch(Rectangle((x, y - 4), 20, 8, facecolor=blues(float(NORM(weight))), edgecolor=FAINT, lw=0.3))
        colour = "white" if NORM(weight) > 0.6 else INK
        axes.text(x + 10, y, f"{weight:g}", ha="center", va="center", fontsize=5.5, color=colour)
    rule = (
        "peaked, yet free: largest (largest weight × optimum JSD), in turn per predicted class\n"
        f"least free: smallest optimum JSD; texts of {SHORTEST} or more tokens"
    )
    axes.text(WIDTH, y, rule, ha="right", va="center", fontsize=5.5, color=FAINT)
