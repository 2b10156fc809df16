"""Word by word over the corpus: what is attended to, and what matters."""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy import stats

from attnprobe.core.metrics import TRUTH, TVD, Metric, Scale
from attnprobe.core.randomness import Draws
from attnprobe.evidence.statistics import in_columns, student
from attnprobe.importance.leave_one_out.removal import LeaveOneOut
from attnprobe.plots.grid import around, counted, grid, title
from attnprobe.plots.style import INK, drawable
from attnprobe.probes.base import DESCRIPTION, Measurement, Note, Probe, Subject, positions
from attnprobe.readings.reading import Drawing, Reading
from attnprobe.results.pivot import distinct
from attnprobe.results.table import scale_of

METRICS = (
    Metric(
        "relative_attention",
        Scale("times an even share", 0),
        "the word's attention × the number of words",
        step="position",
    ),
    Metric(
        "effect",
        TVD,
        "between the predictions without the word and with it (leave-one-out)",
        step="position",
    ),
    Metric("flips", TRUTH, "without the word the decision is another one", step="position"),
    Metric(
        "direction",
        Scale("sign", -1, 1),
        "of gradient × input: 1 speaks for the decision, −1 against it",
        step="position",
    ),
    *DESCRIPTION,
)


@dataclass
class Words(Probe):
    """Attention and effect of every word, for a view of the whole corpus (`word_table`)."""

    name = "words"
    metrics = METRICS
    of_words = True
    one_decision = True

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield four numbers of each word."""
        importance = subject.importance("leave_one_out")
        assert isinstance(importance, LeaveOneOut)
        removals = subject.cached(importance.removals)
        content = subject.readout.content
        step = positions(content, subject.readout.text)
        relative_attention = subject.readout.attention * content.sum(-1, keepdim=True)
        flips = torch.where(removals.distance.isnan(), torch.nan, removals.flips)
        yield Measurement("relative_attention", relative_attention, step)
        yield Measurement("effect", removals.distance, step)
        yield Measurement("flips", flips, step)
        yield Measurement("direction", subject.scores("gradient_input").sign(), step)
        yield from importance.notes(subject)


PROBE = "words"
STEPS = ("relative_attention", "effect", "flips", "direction")
FEWEST_TEXTS = 10
"""Texts that a word has to be in to be counted."""
MOST_DRAWN = 12
"""Words of each kind in the figure."""
FALSE_DISCOVERIES = 0.05
"""Share of false discoveries among the words that are named (Benjamini & Hochberg 1995)."""
ATTENTION = "#E69F00"
EFFECT = "#332288"
HIDDEN = "matters, hidden"
IDLE = "attended, idle"


def word_table(results: pd.DataFrame, examples: pd.DataFrame) -> pd.DataFrame:
    """A row per word that is in `FEWEST_TEXTS` texts or more, by `beyond`, largest first.

    A word that is several times in a text counts once.

    Args:
        results: a long table of one run.
        examples: the texts, with their `tokens`.

    Returns:
        Means over the texts, with Student's 95 % interval (`… low`, `… high`): `attention` in
        shares of an even one; `effect` of leaving the word out; `beyond`: the same minus the mean
        effect of its text's words. `q attention`, `q effect`: p-values of "no other than its text's
        other words", adjusted by Benjamini and Hochberg. `kind`: `matters, hidden` has more effect
        and no more attention than its text's words, `attended, idle` the other way round, both by q
        < 0.05 and the whole interval; else empty.

    Raises:
        KeyError: the table has a number of a text that the examples do not have.
    """
    places = _places(results, examples)
    largest_effect = scale_of(results, PROBE, "effect").high
    texts = places.groupby(["word", "example_id"], observed=True)[[*STEPS, "beyond"]].mean()
    lines = []
    for word, rows in texts.reset_index().groupby("word", observed=True):
        measured = rows[rows["effect"].notna()]
        if len(measured) >= FEWEST_TEXTS:
            lines.append(_line_of(str(word), measured, largest_effect))
    table = pd.DataFrame(lines)
    if table.empty:
        return table

    for name in ("attention", "effect"):
        table[f"q {name}"] = stats.false_discovery_control(table.pop(f"p {name}").to_numpy())
    has_more_effect = (table["q effect"] < FALSE_DISCOVERIES) & (table["beyond low"] > 0)
    has_more_attention = (table["q attention"] < FALSE_DISCOVERIES) & (table["attention low"] > 1)
    table["kind"] = ""
    table.loc[has_more_effect & (table["attention high"] <= 1), "kind"] = HIDDEN
    table.loc[has_more_attention & (table["beyond high"] <= 0), "kind"] = IDLE
    return table.sort_values("beyond", ascending=False).reset_index(drop=True)


def _places(results: pd.DataFrame, examples: pd.DataFrame) -> pd.DataFrame:
    """A row per place of a text: its word, the numbers of the probe, and `beyond`."""
    is_measured = (results["probe"] == PROBE) & results["metric"].isin(STEPS)
    measured = distinct(results[is_measured & results["step"].notna()])
    table = measured.pivot_table(
        index=["example_id", "step"], columns="metric", values="value", observed=True, dropna=False
    )
    table = table.reindex(columns=list(STEPS)).dropna(how="all").reset_index()
    tokens = dict(zip(examples["example_id"].astype(int), examples["tokens"], strict=True))
    table["word"] = [
        tokens[int(example_id)][int(step)]
        for example_id, step in zip(table["example_id"], table["step"], strict=True)
    ]
    by_text = table.groupby("example_id", observed=True)
    table["beyond"] = table["effect"] - by_text["effect"].transform("mean")
    return table


def _line_of(word: str, texts: pd.DataFrame, largest_effect: float) -> dict[str, object]:
    """The numbers of one word, from those of the texts that it is in, each on its scale."""
    line: dict[str, object] = {"word": word, "texts": len(texts)}
    attention = student(texts["relative_attention"].to_numpy(), low=0)
    effect = student(texts["effect"].to_numpy(), low=0, high=largest_effect)
    beyond = student(texts["beyond"].to_numpy(), low=-largest_effect, high=largest_effect)
    line |= in_columns("attention", attention)
    line |= in_columns("effect", effect)
    line |= in_columns("beyond", beyond)
    line["flips"] = texts["flips"].mean()
    line["direction"] = texts["direction"].mean()
    line["p attention"] = _p_of_no_difference(texts["relative_attention"] - 1)
    line["p effect"] = _p_of_no_difference(texts["beyond"])
    return line


def _p_of_no_difference(differences: "pd.Series[float]") -> float:
    """Two-sided p-value of the t-test that the mean is 0; 1 where nothing differs."""
    if np.ptp(differences) == 0:
        return float(differences.iloc[0] == 0)
    return float(stats.ttest_1samp(differences, 0).pvalue)


def leaning(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """Attention and effect of the words that stand out, both in shares of the average word's.

    First the words that matter and are hidden, then those that are attended to and do not matter.
    """
    assert examples is not None  # it shows words
    table = word_table(results, examples)
    figure, (panel,) = grid(1, panel_height=0.6 + 0.15 * 2 * MOST_DRAWN, columns=1)
    scale = 1.0
    if len(table):
        # the average word's effect, weighted by texts
        scale = float(np.average(table["effect"], weights=table["texts"])) or 1.0

    height = 0.0
    labels: dict[float, str] = {}
    for kind, order in ((HIDDEN, "beyond"), (IDLE, "attention")):
        words = table[table["kind"] == kind] if len(table) else table
        panel.text(
            0.99,
            height,
            f"{kind}: {len(words)}",
            ha="right",
            va="center",
            fontsize=7,
            transform=panel.get_yaxis_transform(),
        )
        height -= 1  # a line of its own
        for row in words.nlargest(MOST_DRAWN, order).to_dict("records") if len(words) else ():
            _draw_word(panel, row, height, scale)
            labels[height] = drawable(f"{row['word']} ({row['texts']})")
            height -= 1
        height -= 0.5
    panel.set_yticks(list(labels), list(labels.values()))
    panel.set_ylim(height + 0.4, 0.8)
    panel.axvline(1, lw=0.5, color=INK, zorder=0)
    title(panel, counted("words by texts that they are in", len(table)))
    handles = [
        Line2D([], [], ls="", marker="o", color=ATTENTION, label="attention"),
        Line2D([], [], ls="", marker="s", color=EFFECT, label="effect of leaving it out"),
    ]
    around(figure, x="in shares of the average word's", handles=handles)
    return figure


def _draw_word(panel: Axes, row: Mapping[Hashable, Any], height: float, scale: float) -> None:
    """A word's attention and, below it, its effect in units of `scale`, with their intervals."""
    _draw_number(panel, row, "attention", 1.0, height + 0.15, color=ATTENTION, marker="o")
    _draw_number(panel, row, "effect", scale, height - 0.15, color=EFFECT, marker="s")


def _draw_number(
    panel: Axes,
    row: Mapping[Hashable, Any],
    name: str,
    unit: float,
    height: float,
    *,
    color: str,
    marker: str,
) -> None:
    ends = [row[f"{name} low"] / unit, row[f"{name} high"] / unit]
    panel.plot(ends, [height, height], color=color, lw=0.8)
    panel.plot(row[name] / unit, height, marker, ms=3.5, color=color)


READING = Reading(
    probe=PROBE,
    order=58,
    title="Words: what does the model lean on that attention hides?",
    about=(
        "Over all texts, word by word: how much attention does it get, in shares of an even one? "
        "And what does leaving it out do to the prediction, beside the other words of the same "
        "texts? Above are words that matter more than their neighbours and get no more than an "
        "even share. Below are words that get more attention and matter less. Of the words that "
        f"are named {FALSE_DISCOVERIES:.0%} may be there by chance (Benjamini & Hochberg 1995). A "
        f"word counts from {FEWEST_TEXTS} texts on."
    ),
    drawings=(Drawing("words_leaning", leaning, STEPS, words=True, optional=("content_length",)),),
)
