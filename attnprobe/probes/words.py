"""Word by word over the corpus: what is attended to, and what matters."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy import stats

from attnprobe.core.metrics import TRUTH, TVD, Metric, Scale
from attnprobe.core.randomness import Draws
from attnprobe.evidence.reading import Drawing, Reading
from attnprobe.evidence.statistics import student
from attnprobe.importance.leave_one_out.removal import LeaveOneOut
from attnprobe.plots.grid import around, counted, grid, title
from attnprobe.plots.style import INK, drawable
from attnprobe.probes.base import DESCRIPTION, Measurement, Note, Probe, Subject, positions
from attnprobe.results.pivot import distinct

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
    of_words = one_decision = True

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        importance = subject.importance("leave_one_out")
        assert isinstance(importance, LeaveOneOut)
        removals = subject.cached(importance.removals)
        content = subject.readout.content
        step = positions(content)
        relative = subject.readout.attention * content.sum(-1, keepdim=True)
        yield Measurement("relative_attention", relative, step)
        yield Measurement("effect", removals.distance, step)
        yield Measurement(
            "flips", torch.where(removals.distance.isnan(), torch.nan, removals.flips), step
        )
        yield Measurement("direction", subject.scores("gradient_input").sign(), step)
        yield from importance.notes(subject)


PROBE = "words"
STEPS = ("relative_attention", "effect", "flips", "direction")
FEWEST = 10
"""A word is counted from this many texts on."""
SHOWN = 12
"""Words of each kind in the figure."""
FALSE = 0.05
"""Share of false discoveries among the words that are named (Benjamini & Hochberg 1995)."""
ATTENTION = "#E69F00"
EFFECT = "#332288"
HIDDEN = "matters, hidden"
IDLE = "attended, idle"


def word_table(results: pd.DataFrame, examples: pd.DataFrame) -> pd.DataFrame:
    """A row per word that is in `FEWEST` texts or more, by `beyond`, largest first.

    Means over the texts, with Student's 95 % interval (`… low`, `… high`): `attention` in shares of
    an even one; `effect` of leaving the word out; `beyond`: the same minus the mean effect of its
    text's words. A word that is several times in a text counts once. `q attention`, `q effect`:
    p-values of "no other than its text's other words", adjusted by Benjamini and Hochberg. `kind`:
    `matters, hidden` has more effect and no more attention than its text's words, `attended, idle`
    the other way round, both by q < 0.05 and the whole interval; else empty.

    Raises:
        UserError: a number is said of a word that the examples do not have.
    """
    wanted = (results["probe"] == PROBE) & results["metric"].isin(STEPS) & results["step"].notna()
    of_probe = distinct(results[wanted])
    places = of_probe.pivot_table(
        index=["example_id", "step"], columns="metric", values="value", observed=True, dropna=False
    )
    places = places.reindex(columns=list(STEPS)).dropna(how="all").reset_index()
    tokens = {int(row["example_id"]): list(row["tokens"]) for row in examples.to_dict("records")}
    words = zip(places["example_id"], places["step"], strict=True)
    places["word"] = [tokens[int(text)][int(step)] for text, step in words]
    places["beyond"] = places["effect"] - places.groupby("example_id", observed=True)[
        "effect"
    ].transform("mean")
    texts = (
        places.groupby(["word", "example_id"], observed=True)[[*STEPS, "beyond"]]
        .mean()
        .reset_index()
    )
    rows = []
    for word, own in texts.groupby("word", observed=True):
        known = own[own["effect"].notna()]
        if len(known) < FEWEST:
            continue
        row: dict[str, object] = {"word": str(word), "texts": len(known)}
        for name, column in (
            ("attention", "relative_attention"),
            ("effect", "effect"),
            ("beyond", "beyond"),
        ):
            mean, low, high = student(known[column].to_numpy())
            row |= {name: mean, f"{name} low": low, f"{name} high": high}
        row |= {"flips": known["flips"].mean(), "direction": known["direction"].mean()}
        for name, differences in (
            ("attention", known["relative_attention"] - 1),
            ("effect", known["beyond"]),
        ):
            # two-sided, of the t-test that the mean is 0; 1 where nothing differs
            same = np.ptp(differences) == 0
            p = (
                float(differences.iloc[0] == 0)
                if same
                else float(stats.ttest_1samp(differences, 0).pvalue)
            )
            row[f"p {name}"] = p
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


def leaning(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """Attention and effect of the words that stand out, both in shares of the average word's. First
    those that matter and are hidden. Then those that are attended to and do not matter."""
    assert examples is not None  # it shows words
    table = word_table(results, examples)
    figure, (panel,) = grid(1, panel_height=0.6 + 0.15 * 2 * SHOWN, columns=1)
    # the average word's effect, weighted by texts
    scale = (
        float(np.average(table["effect"], weights=table["texts"])) if len(table) else 0.0
    ) or 1.0
    at = 0.0
    labels = dict[float, str]()
    for kind, by in ((HIDDEN, "beyond"), (IDLE, "attention")):
        own = table[table["kind"] == kind] if len(table) else table
        beside = panel.get_yaxis_transform()
        panel.text(
            0.99, at, f"{kind}: {len(own)}", ha="right", va="center", fontsize=7, transform=beside
        )
        at -= 1  # a line of its own
        for row in own.nlargest(SHOWN, by).to_dict("records") if len(own) else ():
            for shift, name, unit, colour, marker in (
                (0.15, "attention", 1.0, ATTENTION, "o"),
                (-0.15, "effect", scale, EFFECT, "s"),
            ):
                ends = [row[f"{name} low"] / unit, row[f"{name} high"] / unit]
                panel.plot(ends, [at + shift] * 2, color=colour, lw=0.8)
                panel.plot(row[name] / unit, at + shift, marker, ms=3.5, color=colour)
            labels[at] = drawable(f"{row['word']} ({row['texts']})")
            at -= 1
        at -= 0.5
    panel.set_yticks(list(labels), list(labels.values()))
    panel.set_ylim(at + 0.4, 0.8)
    panel.axvline(1, lw=0.5, color=INK, zorder=0)
    title(panel, counted("words by texts that they are in", len(table)))
    handles = [
        Line2D([], [], ls="", marker="o", color=ATTENTION, label="attention"),
        Line2D([], [], ls="", marker="s", color=EFFECT, label="effect of leaving it out"),
    ]
    around(figure, x="in shares of the average word's", handles=handles)
    return figure


READING = Reading(
    probe=PROBE,
    order=58,
    title="Words: what does the model lean on that attention hides?",
    about=(
        "Over all texts, word by word: how much attention does it get, in shares of an even one? "
        "And what does leaving it out do to the prediction, beside the other words of the same "
        "texts? Above are words that matter more than their neighbours and get no more than an "
        "even share. Below are words that get more attention and matter less. Of the words that "
        f"are named {FALSE:.0%} may be there by chance (Benjamini & Hochberg 1995). A word counts "
        f"from {FEWEST} texts on."
    ),
    drawings=(Drawing("words_leaning", leaning, STEPS, words=True, optional=("content_length",)),),
)
