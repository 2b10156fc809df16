"""Importances of a model whose weights are random: which of them still say the same?"""

import re

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from attnprobe.report.claims import Claim
from attnprobe.report.evidence import mean_of
from attnprobe.report.figures.grid import around, counted, grid, title
from attnprobe.report.figures.notes import note
from attnprobe.report.figures.style import INK
from attnprobe.report.importances import facts_of, importances_in
from attnprobe.report.reading import Drawing, Headline, Reading, Tabulation
from attnprobe.report.wide import facets, mean_in_columns, per_example
from attnprobe.results.statistics import interval

PROBE = "sanity"
SOURCE = "Adebayo et al. 2018"
HALF = 0.5
"""An importance depends on what the model has learnt if less than half of its ranking is left in a random model."""
KINDS = {"random_weights": "random weights", "shuffled_labels": "labels by a coin", "floor": "random order (floor)",
         "ceiling": "itself redrawn (ceiling)"}  # fmt: skip


def parts(results: pd.DataFrame) -> list[str]:
    """The parts of the models in the table, from the output down."""
    ends = importances_in(results, PROBE, "similarity_")
    found = dict.fromkeys(end.rpartition("_down_to_")[2] for end in ends if "_down_to_" in end)
    return sorted(found, key=depth)


def depth(part: str) -> tuple[int, int]:
    """Where a part stands, counted from the output."""
    order = ("head", "decoder", "attention", "layer", "encoder", "question_encoder", "question_embedding", "embeddings",
             "embedding")  # fmt: skip
    name, number = re.fullmatch(r"(.+?)(?:_(\d+))?", part).groups()  # type: ignore[union-attr]
    return (order.index(name) if name in order else order.index("encoder")), -int(number or 0)


def headlines(results: pd.DataFrame) -> tuple[Headline, ...]:
    """What is left of every importance."""
    return tuple(
        Headline(
            f"random_weights_similarity_{name}",
            f"left under random weights: {facts_of(name, results, PROBE).ascii_title}",
        )
        for name in importances_in(results, PROBE, "random_weights_similarity_")
    )


def rows(results: pd.DataFrame) -> pd.DataFrame:
    """What is left of every importance's ranking, by what was made random, and whether it depends on the model."""
    names = importances_in(results, PROBE, "random_weights_similarity_")
    down = parts(results)
    there = set(results["metric"].astype(str).unique())
    metrics = [metric for name in names for kind in KINDS if (metric := f"{kind}_similarity_{name}") in there]
    metrics += [f"similarity_{name}_down_to_{part}" for name in names for part in down]
    lines = []
    for facet in facets(per_example(results, PROBE, metrics)) if names else []:
        for name in names:
            left = facet.rows[f"random_weights_similarity_{name}"].to_numpy()
            gone = facet.rows[f"ceiling_similarity_{name}"].to_numpy() * HALF - left
            line: dict[str, object] = {
                "data and model": facet.title,
                "importance": facts_of(name, results, PROBE).title,
                "n": int((~np.isnan(left)).sum()),
                "depends on the model": said(gone),
            }
            for part in down:
                line[f"down to {part.replace('_', ' ')}"] = float(
                    facet.rows[f"similarity_{name}_down_to_{part}"].mean()
                )
            for kind, heading in KINDS.items():
                if (metric := f"{kind}_similarity_{name}") in there:
                    line |= mean_in_columns(heading, facet.rows[metric].to_numpy())
            lines.append(line)
    return pd.DataFrame(lines)


def said(gone: np.ndarray) -> str:
    """Whether more than half of a ranking is gone, by the whole interval of the mean."""
    mean, low, high = interval(gone)
    if np.nanmin(gone, initial=np.inf) == np.nanmax(
        gone, initial=-np.inf
    ):  # the same in every text: there is no interval
        low = high = mean
    return "yes" if low > 0 else "no" if high < 0 else "not decided"


def lines_down(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """What is left of every importance's ranking as the model becomes random from its output down, from the ranking itself
    (1) on; a panel per data set and model."""
    table = rows(results)
    panels = list(table.groupby("data and model", sort=False))
    colours = {facts.title: facts.colour for name in importances_in(results, PROBE, "random_weights_similarity_")
               if (facts := facts_of(name, results, PROBE))}  # fmt: skip
    figure, axes = grid(len(panels), panel_height=2.2, columns=2)
    for panel, (heading, own) in zip(axes, panels, strict=True):
        steps = [name for name in own if str(name).startswith("down to ") and own[name].notna().any()]
        labels = ["trained", *(str(step).removeprefix("down to ") for step in steps)]
        for number, row in enumerate(own.to_dict("records")):
            # every model is asked with the same draws, so that a ranking by luck alone stays what it is; equal scores rank
            # nothing, and there is nothing of them to be left
            values = [1.0 if row["n"] else np.nan, *(row[step] for step in steps)]
            style = "-" if row["depends on the model"] == "yes" else "--"
            panel.plot(range(len(values)), values, style, marker="osD^v<>"[number % 7], ms=3, lw=1,
                       color=colours[row["importance"]])  # fmt: skip
            for place, (label, value) in enumerate(zip(labels, values, strict=True)):
                note(panel, place, value, f"{row['importance']}, {label}: {value:.3f}")
        panel.axhline(0, lw=0.5, color=INK, zorder=0)
        panel.set_xticks(range(len(labels)), labels, rotation=35, ha="right")
        panel.set_ylim(-0.4, 1.05)
        title(panel, counted(str(heading), int(own["n"].max())))
    handles = [Line2D([], [], color=colours[one], marker="osD^v<>"[number % 7], ms=3, lw=1, label=one)
               for number, one in enumerate(dict.fromkeys(table["importance"]))]  # fmt: skip
    around(figure, x="random from the output down to", y="what is left of the ranking", handles=handles)
    return figure


CLAIMS = (
    Claim(
        name="attention_depends_on_the_model",
        criterion="stability",
        statement="In the same model with random weights attention ranks the words differently",
        source=SOURCE,
        measure=mean_of("ceiling_similarity_attention", "random_weights_similarity_attention", value=np.subtract),
        quantity=f"1 − Spearman's correlation of the two rankings, mean of the texts; more than {HALF} is asked for",
        threshold=HALF,
    ),
)

READING = Reading(
    probe=PROBE,
    title="Sanity: does an importance depend on what the model has learnt?",
    about=(
        "The model's weights are put into random order, from the output down to the word vectors, and every importance is "
        "asked again of the same texts. One whose ranking of the words stays explains words or architecture, not "
        "this model: word counts and positions must fail, gradients must not. A twin that was trained on labels by a coin is "
        "compared as well. A method that passes need not be right; one that fails cannot be."
    ),
    order=57,
    claims=CLAIMS,
    closing=headlines,
    tables=(
        Tabulation(
            "sanity",
            "Spearman's correlation of every importance (its size) in the trained model with itself in models that are "
            "random from the output down to each part, means over the n texts; with all weights random, with labels by a "
            "coin, in random order and redrawn with 95 % bootstrap intervals. It depends on the model where, by the whole "
            "interval, less than half of its ceiling is left (Adebayo et al. 2018).",
            rows,
        ),
    ),
    drawings=(
        Drawing(
            "sanity_down", lines_down, ((PROBE, "random_weights_similarity_attention"),),
            optional=((PROBE, "*similarity_*"),),
        ),
    ),
)  # fmt: skip
