"""Do attention and the other importances point at the known reason?"""

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
from attnprobe.report.reading import Column, Drawing, Headline, Reading, Tabulation
from attnprobe.report.readings.leave_one_out import checked
from attnprobe.report.skill import beyond_chance
from attnprobe.report.wide import facets, mean_in_columns, per_example

PROBE = "plausibility"
MEASURES = {"f1": "rationale_share", "auprc": "auprc_chance", "mass": "rationale_share"}
"""Measure → what chance has of it."""
SOURCE = "DeYoung et al. 2020, section 4"
SMALLEST = 0.1
"""Of what lies between chance and the whole rationale, what is worth a word."""


def more_than_chance(name: str, statement: str, metric: str, quantity: str, *, primary: bool = False) -> Claim:
    """A claim that attention is on the rationale more than chance would be."""
    return Claim(
        name=name,
        criterion="plausibility",
        statement=statement,
        source=SOURCE,
        measure=beyond_chance(f"{metric}_attention", "rationale_share"),
        quantity=quantity,
        speaks="for",
        level="word",
        smallest=SMALLEST,
        primary=primary,
    )


CLAIMS = (
    more_than_chance(
        "top_token_in_rationale",
        "The most attended word is in the rationale more often than a random one",
        "top_in_rationale",
        "share of the texts whose top word is in the rationale, on a scale on which chance is 0 and always is 1",
    ),
    more_than_chance(
        "mass_on_rationale",
        "More attention lies on the rationale than a uniform attention would put there",
        "mass_in_rationale",
        "attention on the rationale, on a scale on which a uniform attention has 0 and all of it on the rationale 1",
        primary=True,
    ),
    Claim(
        name="gradient_is_more_plausible",
        criterion="plausibility",
        statement="The top word by gradient is in the rationale more often than the most attended one",
        source=SOURCE,
        measure=mean_of("top_in_rationale_gradient", "top_in_rationale_attention", value=np.subtract),
        quantity="difference of the shares of the texts, −1 to 1",
        level="word",
    ),
)


def of_importance(name: str, title: str) -> tuple[Headline, ...]:
    """The numbers of one importance."""
    return (
        Headline(f"top_in_rationale_{name}", f"top token in the rationale, {title}"),
        Headline(f"mass_in_rationale_{name}", f"mass on the rationale, {title}"),
        Headline(f"f1_rationale_{name}", f"F1 of as many words as it has, {title}"),
        Headline(f"auprc_rationale_{name}", f"average precision, {title}"),
        Headline(f"others_f1_{name}", f"F1 against all annotators but one, {title}"),
    )


def rows(results: pd.DataFrame) -> pd.DataFrame:
    """Each importance's F1, average precision and mass, each minus chance; and where several people marked the texts the same
    against all of them but one, last the people themselves: the ceiling."""
    names = importances_in(results, PROBE, "top_in_rationale_")
    several = bool(importances_in(results, PROBE, "human_"))
    own = {kind: "mass_in_rationale_{}" if kind == "mass" else f"{kind}_rationale_{{}}" for kind in MEASURES}
    wanted = [own[kind].format(name) for kind in MEASURES for name in names]
    wanted += [f"others_{kind}_{name}" for kind in MEASURES for name in names if several]
    wanted += [f"human_{kind}" for kind in MEASURES if several]
    lines = []
    for facet in facets(per_example(results, PROBE, [*wanted, *set(MEASURES.values())])) if names else []:
        for name in [*names, *(["human"] if several else [])]:
            person = name == "human"
            words = "one annotator against the others" if person else facts_of(name, results, PROBE).title
            line: dict[str, object] = {"data and model": facet.title, "importance": words}
            line["n"] = int(facet.rows["human_f1" if person else f"auprc_rationale_{name}"].notna().sum())
            for kind, chance in MEASURES.items():
                metric = own[kind].format(name)
                above = np.full(len(facet.rows), np.nan) if person else facet.rows[metric] - facet.rows[chance]
                line |= mean_in_columns(f"{kind} above chance", np.asarray(above))
                if several:
                    metric = f"human_{kind}" if person else f"others_{kind}_{name}"
                    line |= mean_in_columns(f"{kind} against the others", facet.rows[metric].to_numpy())
            lines.append(line)
    return pd.DataFrame(lines)


def points(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """F1 of every importance with 95 % intervals, a panel per data set and model: where several people marked the texts,
    against all of them but one, the shaded line being what one of them reaches; else above chance."""
    table = rows(results)
    several = "f1 against the others" in table
    measure = "f1 against the others" if several else "f1 above chance"
    colours = {facts.title: facts.colour for name in importances_in(results, PROBE, "top_in_rationale_")
               if (facts := facts_of(name, results, PROBE))}  # fmt: skip
    panels = list(table.groupby("data and model", sort=False))
    titles = [one for one in dict.fromkeys(table["importance"]) if one in colours]
    figure, axes = grid(len(panels), panel_height=0.5 + 0.2 * len(titles), columns=2)
    for panel, (heading, own) in zip(axes, panels, strict=True):
        for row in own.to_dict("records"):
            low, high = row[f"{measure}, low"], row[f"{measure}, high"]
            span = f" [{low:.3f}, {high:.3f}]" if low == low else ""
            words = f"{row['importance']}: {row[measure]:.3f}{span}, n = {row['n']:,}"
            if row["importance"] not in colours:
                note(
                    panel,
                    row[measure],
                    (len(titles) - 1) / 2,
                    words,
                    width=np.nan_to_num(high - low),
                    height=len(titles),
                )
                panel.axvspan(low, high, color="0.85", lw=0, zorder=0)
                panel.axvline(row[measure], color="0.5", lw=0.8, zorder=0)
                continue
            at, colour = len(titles) - 1 - titles.index(row["importance"]), colours[row["importance"]]
            panel.plot([low, high], [at, at], color=colour, lw=0.8)
            panel.plot(row[measure], at, "o", ms=4, color=colour)
            note(panel, row[measure], at, words)
        panel.set_yticks(range(len(titles)), titles[::-1])
        panel.set_ylim(-0.6, len(titles) - 0.4)
        if not several:
            panel.axvline(0, lw=0.5, color=INK, zorder=0)
        title(panel, counted(str(heading), int(own["n"].max())))
    handles = [Line2D([], [], color="0.5", lw=2, label="one annotator against the others")] if several else []
    around(figure, x="F1 against all annotators but one" if several else "F1 above chance", handles=handles)
    return figure


READING = Reading(
    probe=PROBE,
    of_importance=of_importance,
    mark="top_in_rationale_",
    order=60,
    noted=checked,
    title="Plausibility: does it point at the known reason?",
    about=(
        "How often the top word of each importance lies in the rationale (the words that a human, or the "
        "maker of the data, calls the reason), and what share of each lies on it: 0 to 1. The rationale's share of the "
        "text is what chance would reach. This says that an explanation looks right, not that the model reasons that way "
        "(Jacovi & Goldberg 2020): a faithful explanation of a wrong model looks wrong."
    ),
    claims=CLAIMS,
    columns=(Column("top_in_rationale_attention", "most attended is in the rationale", sorts=False, truth=True),),
    headlines=(
        Headline("rationale_share", "share of the text that is rationale (chance)"),
        Headline("auprc_chance", "average precision of a random order (chance)"),
        Headline("human_f1", "F1 of one annotator against the others (human ceiling)"),
        Headline("human_auprc", "  average precision of one annotator"),
    ),
    tables=(
        Tabulation(
            "plausibility",
            "F1 (of as many words as the rationale has), average precision and mass on the rationale, each minus chance, and "
            "where several people marked the texts against what at least half of all annotators but one marked; the last "
            "line is one annotator against the others. Means over the n texts with 95 % bootstrap intervals.",
            rows,
        ),
    ),
    drawings=(
        Drawing(
            "plausibility_points", points, ((PROBE, "f1_rationale_attention"), (PROBE, "rationale_share")),
            optional=((PROBE, "*"),),
        ),
    ),
)  # fmt: skip
