"""Taking out the words that an importance points at, and all others: comprehensiveness and sufficiency."""

import re

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from attnprobe.report.claims import Claim
from attnprobe.report.evidence import mean_of, share_of
from attnprobe.report.figures.grid import around, counted, grid, title
from attnprobe.report.figures.notes import note
from attnprobe.report.figures.style import INK
from attnprobe.report.importances import facts_of, importances_in
from attnprobe.report.reading import Drawing, Headline, Reading, Tabulation
from attnprobe.report.wide import facets, per_example
from attnprobe.results.statistics import interval

PROBE = "faithfulness"
SOURCE = "DeYoung et al. 2020, section 4.2"
COMPLETE = 1e-3
"""Units of the logit: a gap no larger than this is none."""


def measured(results: pd.DataFrame) -> list[tuple[str, str]]:
    """(importance, operator) of every AOPC in the table, importances in the order in which the probe took them."""
    ends = [re.fullmatch(r"(.+)_by_(\w+?)", end) for end in importances_in(results, PROBE, "comprehensiveness_")]
    pairs = [(end[1], end[2]) for end in ends if end]
    said = list(results.attrs.get("importances", {}).get(PROBE, {}))
    return sorted(pairs, key=lambda one: (said.index(one[0]) if one[0] in said else len(said), one))


def headlines(results: pd.DataFrame) -> tuple[Headline, ...]:
    """The numbers of every importance and operator, and the gaps of those that should add up."""
    lines = []
    for name, operator in measured(results):
        words = facts_of(name, results, PROBE).ascii_title
        end = f"{name}_by_{operator}"
        lines += [
            Headline(f"comprehensiveness_{end}", f"comprehensiveness (AOPC): {words}, {operator}"),
            Headline(f"sufficiency_{end}", "  sufficiency (AOPC, lower is better)"),
            Headline(f"flip_share_{end}", "  share of the words at the first flip"),
        ]
    gaps = importances_in(results, PROBE, "completeness_gap_")
    return (
        *lines,
        *(
            Headline(f"completeness_gap_{one}", f"completeness gap: {facts_of(one, results, PROBE).ascii_title}")
            for one in gaps
        ),
    )


def rows(results: pd.DataFrame) -> pd.DataFrame:
    """Comprehensiveness and sufficiency of every importance and operator, per data set and model, with intervals."""
    pairs = measured(results)
    kinds = ("comprehensiveness", "sufficiency", "deletion_area", "insertion_area")
    metrics = [f"{kind}_{name}_by_{operator}" for name, operator in pairs for kind in kinds]
    lines = []
    for facet in facets(per_example(results, PROBE, metrics)) if pairs else []:
        for name, operator in pairs:
            line: dict[str, object] = {
                "data and model": facet.title,
                "importance": facts_of(name, results, PROBE).title,
            }
            line |= {
                "operator": operator,
                "n": int(facet.rows[f"comprehensiveness_{name}_by_{operator}"].notna().sum()),
            }
            for kind in kinds:
                heading = kind.replace("_", " ")
                mean, low, high = interval(facet.rows[f"{kind}_{name}_by_{operator}"].to_numpy())
                line |= {heading: mean, f"{heading}, low": low, f"{heading}, high": high}
            lines.append(line)
    return pd.DataFrame(lines)


def points(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """Comprehensiveness (filled) and sufficiency (hollow) of every importance with 95 % bootstrap intervals, one panel per
    data set, model and operator. The farther apart the two, the better."""
    table = rows(results)
    panels = list(table.groupby(["data and model", "operator"], sort=False))
    titles = list(dict.fromkeys(table["importance"]))
    colours = {facts.title: facts.colour for name, _ in measured(results) if (facts := facts_of(name, results, PROBE))}
    figure, axes = grid(len(panels), panel_height=0.5 + 0.2 * len(titles), columns=2)
    for panel, ((heading, operator), own) in zip(axes, panels, strict=True):
        for row in own.to_dict("records"):
            at, colour = len(titles) - 1 - titles.index(row["importance"]), colours[row["importance"]]
            for kind, fill in (("comprehensiveness", colour), ("sufficiency", "white")):
                panel.plot([row[f"{kind}, low"], row[f"{kind}, high"]], [at, at], color=colour, lw=0.8)
                panel.plot(row[kind], at, "o", ms=4, color=colour, mfc=fill)
                mean, low, high = (row[f"{kind}{end}"] for end in ("", ", low", ", high"))
                note(panel, mean, at, f"{row['importance']}, {kind}: {mean:.3f} [{low:.3f}, {high:.3f}]")
        panel.set_yticks(range(len(titles)), titles[::-1])
        panel.set_ylim(-0.6, len(titles) - 0.4)
        panel.axvline(0, lw=0.5, color=INK, zorder=0)
        title(panel, counted(f"{heading} · {operator}", int(own["n"].max())))
    handles = [Line2D([], [], ls="", marker="o", color=INK, label="comprehensiveness"),
               Line2D([], [], ls="", marker="o", color=INK, mfc="white", label="sufficiency")]  # fmt: skip
    around(figure, x="fall of the predicted class's probability", handles=handles)
    return figure


def complete(gap: np.ndarray) -> np.ndarray:
    """1 where scores add up, 0 where not, NaN where that is undefined."""
    return np.where(np.isnan(gap), np.nan, gap <= COMPLETE)


def than_random(name: str, statement: str, metric: str, *, sign: int) -> Claim:
    """A claim that attention's number differs from a random order's: upwards (`sign` 1) or downwards (−1)."""
    pair = [f"{metric}_{importance}_by_delete" for importance in ("attention", "random")][::sign]
    taken = ("attention minus random order", "random order minus attention")[sign < 0]
    return Claim(
        name=name,
        criterion="erasure",
        statement=statement,
        source=SOURCE,
        measure=mean_of(*pair, value=np.subtract),
        quantity=f"{metric} (AOPC, words deleted), {taken}, mean of the texts, −2 to 2",
        speaks="for",
        level="word",
    )


CLAIMS = (
    than_random(
        "attention_is_comprehensive",
        "Without its most attended words a text loses more of its prediction than without random ones",
        "comprehensiveness",
        sign=1,
    ),
    than_random(
        "attention_is_sufficient",
        "Its most attended words alone keep more of a text's prediction than random ones alone",
        "sufficiency",
        sign=-1,
    ),
    Claim(
        name="integrated_gradients_add_up",
        criterion="erasure",
        statement=f"For nearly all texts the integrated gradients add up to the prediction to within {COMPLETE} of the logit",
        source="Sundararajan et al. 2017, proposition 1",
        measure=share_of("completeness_gap_integrated_gradients", value=complete),
        quantity="share of the texts whose gap is no larger; more than 0.95 is asked for",
        threshold=0.95,
    ),
)  # fmt: skip

READING = Reading(
    probe=PROBE,
    title="Faithfulness: does the prediction rest on the words that are called important?",
    about=(
        "The highest-scored words of each importance are taken out, or all others are, and the fall of the predicted class's "
        "probability is averaged over several shares of the words: comprehensiveness (high is good) and sufficiency (low is "
        "good), ERASER's AOPC. How words are taken out decides much of the number, so several ways are compared. "
        "A text without words is unlike those that the model was trained on, and a fall may say no more than that."
    ),
    order=62,
    claims=CLAIMS,
    headlines=(Headline("probability", "probability of the predicted class"),),
    closing=headlines,
    tables=(
        Tabulation(
            "faithfulness",
            "Fall of the predicted class's probability without the highest-scored words (comprehensiveness) and with these "
            "alone (sufficiency), means over the thresholds, and the mean heights of the deletion and insertion curves; "
            "means over the n texts with 95 % bootstrap intervals (DeYoung et al. 2020; Samek et al. 2017).",
            rows,
        ),
    ),
    drawings=(
        Drawing(
            "faithfulness_points", points, ((PROBE, "comprehensiveness_attention_by_delete"),),
            optional=((PROBE, "comprehensiveness_*"), (PROBE, "sufficiency_*"), (PROBE, "*_area_*")),
        ),
    ),
)  # fmt: skip
