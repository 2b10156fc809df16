"""The whole corpus word by word: what the model leans on that attention hides, and what it attends to that does not
matter."""

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy import stats

from attnprobe.report.figures.grid import around, counted, grid, title
from attnprobe.report.figures.style import INK, drawable
from attnprobe.report.reading import Drawing, Reading
from attnprobe.results.positions import check_positions
from attnprobe.results.statistics import student

PROBE = "words"
STEPS = ("relative_attention", "effect", "flips", "direction")
FEWEST = 10
"""A word is counted from this many texts on."""
SHOWN = 12
"""Words of each kind in the figure."""
FALSE = 0.05
"""Share of false discoveries among the words that are named (Benjamini & Hochberg 1995)."""
ATTENTION, EFFECT = "#E69F00", "#332288"
HIDDEN, IDLE = "matters, hidden", "attended, idle"


def word_table(results: pd.DataFrame, examples: pd.DataFrame) -> pd.DataFrame:
    """A row per word that is in `FEWEST` texts or more, by `beyond`, largest first.

    `texts`; `attention`: mean over the texts of the word's attention in shares of an even one; `effect`: mean of
    leave-one-out (total variation distance); `beyond`: the same minus the mean effect of its text's words; `flips`,
    `direction`: means. Each of the first three with Student's 95 % interval over the texts (`… low`, `… high`), a word that
    is several times in a text counting once. `q attention`, `q effect`: p-values of "no other than its text's other words",
    adjusted by Benjamini and Hochberg over all words. `kind`: `matters, hidden` has more effect and no more attention than
    its text's words, `attended, idle` more attention and no more effect, both by q < 0.05 and the whole interval; else empty.

    Args:
        results: the probe's table of one run.
        examples: its texts.
    """
    places = placed(results, examples)
    of_text = places.groupby("example_id", observed=True)["effect"].transform("mean")
    places["beyond"] = places["effect"] - of_text
    texts = places.groupby(["word", "example_id"], observed=True)[[*STEPS, "beyond"]].mean().reset_index()
    rows = []
    for word, own in texts.groupby("word", observed=True):
        known = own[own["effect"].notna()]
        if len(known) < FEWEST:
            continue
        row: dict[str, object] = {"word": str(word), "texts": len(known)}
        for name, column in (("attention", "relative_attention"), ("effect", "effect"), ("beyond", "beyond")):
            mean, low, high = student(known[column].to_numpy())
            row |= {name: mean, f"{name} low": low, f"{name} high": high}
        row |= {"flips": known["flips"].mean(), "direction": known["direction"].mean()}
        row["p attention"] = p_of(known["relative_attention"].to_numpy() - 1)
        row["p effect"] = p_of(known["beyond"].to_numpy())
        rows.append(row)
    table = pd.DataFrame(rows)
    if table.empty:
        return table
    for name in ("attention", "effect"):
        table[f"q {name}"] = stats.false_discovery_control(table.pop(f"p {name}").to_numpy())
    more_effect = (table["q effect"] < FALSE) & (table["beyond low"] > 0)
    more_attention = (table["q attention"] < FALSE) & (table["attention low"] > 1)
    table["kind"] = ""
    table.loc[more_effect & (table["attention high"] <= 1), "kind"] = HIDDEN
    table.loc[more_attention & (table["beyond high"] <= 0), "kind"] = IDLE
    return table.sort_values("beyond", ascending=False).reset_index(drop=True)


def placed(results: pd.DataFrame, examples: pd.DataFrame) -> pd.DataFrame:
    """A row per word of every text: `example_id word` and the metrics.

    Raises:
        UserError: a number is said of a word that the examples do not have.
    """
    of_probe = results[(results["probe"] == PROBE) & results["metric"].isin(STEPS) & results["step"].notna()]
    wide = of_probe.pivot_table(
        index=["example_id", "step"], columns="metric", values="value", observed=True, dropna=False
    )
    wide = wide.reindex(columns=list(STEPS)).dropna(how="all").reset_index()
    tokens = {int(row["example_id"]): list(row["tokens"]) for row in examples.to_dict("records")}
    lengths = wide["example_id"].map({text: len(words) for text, words in tokens.items()})
    check_positions(wide["step"].to_numpy(float), lengths.fillna(0).to_numpy(int), f"the table of {PROBE}")
    wide["word"] = [tokens[int(text)][int(step)] for text, step in zip(wide["example_id"], wide["step"], strict=True)]
    return wide


def p_of(differences: np.ndarray) -> float:
    """Two-sided p-value of the t-test that the mean is 0; 1 where nothing differs."""
    if np.ptp(differences) == 0:
        return 1.0 if differences[0] == 0 else 0.0
    return float(stats.ttest_1samp(differences, 0).pvalue)


def leaning(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """Attention and effect of the words that stand out, of each kind the largest: first those that matter and are hidden,
    then those that are attended to and do not matter; both in shares of the average word's.

    Raises:
        ValueError: no examples' table.
    """
    if examples is None:
        raise ValueError("leaning needs the run's examples (attnprobe.results.table.read_examples), got None")
    table = word_table(results, examples)
    figure, (panel,) = grid(1, panel_height=0.6 + 0.15 * 2 * SHOWN, columns=1)
    scale, at, labels = mean_effect(table), 0.0, dict[float, str]()
    for kind, by in ((HIDDEN, "beyond"), (IDLE, "attention")):
        own = table[table["kind"] == kind] if len(table) else table
        beside = panel.get_yaxis_transform()
        panel.text(0.99, at, f"{kind}: {len(own)}", ha="right", va="center", fontsize=7, transform=beside)
        at -= 1  # a line of its own
        for row in own.nlargest(SHOWN, by).to_dict("records") if len(own) else ():
            pair(panel, row, at, scale)
            labels[at] = drawable(f"{row['word']} ({row['texts']})")
            at -= 1
        at -= 0.5
    panel.set_yticks(list(labels), list(labels.values()))
    panel.set_ylim(at + 0.4, 0.8)
    panel.axvline(1, lw=0.5, color=INK, zorder=0)
    title(panel, counted("words by texts that they are in", len(table)))
    handles = [Line2D([], [], ls="", marker="o", color=ATTENTION, label="attention"),
               Line2D([], [], ls="", marker="s", color=EFFECT, label="effect of leaving it out")]  # fmt: skip
    around(figure, x="in shares of the average word's", handles=handles)
    return figure


def pair(panel: Axes, row: Mapping[Hashable, Any], at: float, scale: float) -> None:
    """One word's attention and effect, with their intervals."""
    for shift, name, unit, colour, marker in (
        (0.15, "attention", 1.0, ATTENTION, "o"),
        (-0.15, "effect", scale, EFFECT, "s"),
    ):
        panel.plot([row[f"{name} low"] / unit, row[f"{name} high"] / unit], [at + shift] * 2, color=colour, lw=0.8)
        panel.plot(row[name] / unit, at + shift, marker, ms=3.5, color=colour)


def mean_effect(table: pd.DataFrame) -> float:
    """The effect of the average word in the table, weighted by texts."""
    return (float(np.average(table["effect"], weights=table["texts"])) if len(table) else 0.0) or 1.0


READING = Reading(
    probe=PROBE,
    title="Words: what does the model lean on that attention hides?",
    about=(
        "Over all texts, word by word: the attention that it gets, in shares of an even one, and what leaving it out does to "
        "the prediction, beside the other words of the same texts. Above, words that matter more than their neighbours and "
        "are attended to no more than an even share; below, words that are attended to and matter less than their "
        f"neighbours. Of the words that are named {FALSE:.0%} may be there by chance (Benjamini & Hochberg 1995). A word "
        f"counts from {FEWEST} texts on."
    ),
    order=58,
    drawings=(
        Drawing("words_leaning", leaning, tuple((PROBE, metric) for metric in STEPS), words=True,
                optional=((PROBE, "content_length"),)),
    ),
)  # fmt: skip
