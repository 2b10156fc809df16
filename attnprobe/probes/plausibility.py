"""Do attention and other importances point at the known reason? (ERASER, DeYoung et al. 2020)"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor

from attnprobe.core.metrics import SCORE, SHARE, Metric, Scale
from attnprobe.core.randomness import Draws
from attnprobe.evidence.claims import Claim
from attnprobe.evidence.evidence import beyond_chance, mean_of
from attnprobe.importance import plausibility
from attnprobe.measures import shifted
from attnprobe.plots.grid import interval_figure
from attnprobe.probes.base import Measurement, Note, RankingProbe, Subject, strengths
from attnprobe.probes.leave_one_out import checked
from attnprobe.readings.importances import importances_in
from attnprobe.readings.means import facet_table, mean_in_columns, texts_with
from attnprobe.readings.reading import Column, Drawing, Headline, Reading, Tabulation

MEASURES = {
    "top_in_rationale": plausibility.top_hit,
    "mass_in_rationale": plausibility.mass_inside,
    "f1_rationale": plausibility.precision_at_size,
    "auprc_rationale": plausibility.average_precision,
}
MEASURE_OF_KIND = {
    "top": "top_in_rationale",
    "mass": "mass_in_rationale",
    "f1": "f1_rationale",
    "auprc": "auprc_rationale",
}
"""What the metrics of annotators say in short → the measure."""


@dataclass(frozen=True)
class Shift:
    """By how many places the gold links of an alignment are moved, and in words."""

    places: int
    words: str


SHIFTS = {
    "": Shift(0, "against the gold links"),
    "left_": Shift(-1, "against those one place to the left"),
    "right_": Shift(1, "against those one place to the right"),
}
"""Beginning of the metric → shift: attention may be off by one."""
SCORE_DIFFERENCE = Scale("score", -1, 1)
SHARE_DIFFERENCE = Scale("share", -1, 1)
ASKED = "data with questions"
SEVERAL = "data with several annotators"
SOURCE = "DeYoung et al. 2020, section 4.1"
METRICS = (
    Metric("rationale_share", SHARE, "of the content that is rationale: what chance would hit"),
    Metric(
        "top_in_rationale_{importance}",
        SCORE,
        "the top token is in it; between with ties",
        higher_is_better=True,
    ),
    Metric(
        "mass_in_rationale_{importance}",
        SHARE,
        "of the importance that lies on it",
        higher_is_better=True,
    ),
    Metric(
        "f1_rationale_{importance}",
        SCORE,
        "F1 of the highest-scored tokens, as many as the rationale has; chance: `rationale_share`",
        higher_is_better=True,
        source=SOURCE,
    ),
    Metric(
        "auprc_rationale_{importance}",
        SCORE,
        "average precision",
        higher_is_better=True,
        source=SOURCE,
    ),
    Metric(
        "iou_f1_rationale_{importance}",
        SCORE,
        "F1 of the spans that these tokens make; found where intersection over "
        "union with one of the rationale's is 0.5 or more",
        higher_is_better=True,
        source=SOURCE,
    ),
    Metric("auprc_chance", SCORE, "that of a random order, on average"),
    Metric(
        "human_{measure}",
        SCORE,
        "what one annotator reaches against the others: `top`, `mass`, `f1` or `auprc`, mean "
        "over the annotators",
        only=SEVERAL,
    ),
    Metric(
        "others_{measure}_{importance}",
        SCORE,
        "the same of the importance, against the same references",
        higher_is_better=True,
        only=SEVERAL,
    ),
    *(
        Metric(
            f"{name}alignment_error_{{importance}}",
            SHARE,
            f"alignment error rate, the top word being the step's one link; {shift.words}",
            only=ASKED,
            source="Och & Ney 2003",
        )
        for name, shift in SHIFTS.items()
    ),
    *(
        Metric(
            f"{name}mass_beyond_chance_{{importance}}",
            SHARE_DIFFERENCE,
            f"its share on the gold words − their share of the text; {shift.words}",
            higher_is_better=True,
            only=ASKED,
        )
        for name, shift in SHIFTS.items()
    ),
)


@dataclass
class Plausibility(RankingProbe):
    """Do the sizes of each importance's scores agree with the data's rationales?

    Rationales are the testbed's deciding words, a story's supporting sentences, a human's marks.
    Examples without a rationale get NaN, data sets without any no rows at all. Where several people
    marked each text (`data.annotators`), each annotator in turn is compared with what at least half
    of the others marked (`human_…`, the ceiling), and each importance with these same references
    (`others_…_X`), so that the two can be compared.
    """

    name = "plausibility"
    metrics = METRICS
    of_words = True
    published = ("attention", "gradient", "leave_one_out")

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield how each importance, chance and the annotators agree with the rationales."""
        rationale = subject.batch.rationale
        content = subject.batch.content
        annotators = subject.batch.annotators
        if rationale is None:
            return
        is_marked = (rationale & content).any(-1)

        def of_marked(metric: str, value: Tensor) -> Measurement:
            return Measurement(metric, torch.where(is_marked, value, torch.nan))

        yield of_marked("rationale_share", plausibility.covered(rationale, content))
        chance = plausibility.average_precision_by_chance(rationale, content)
        yield of_marked("auprc_chance", chance)
        for name, scores in strengths(subject, self.scores(subject)).items():
            for metric, measure in MEASURES.items():
                yield of_marked(f"{metric}_{name}", measure(scores, rationale, content))
            overlap = plausibility.iou_f1(scores, rationale, content)
            yield of_marked(f"iou_f1_rationale_{name}", overlap)
            if subject.batch.question is not None:
                for metric, value in alignment(scores, rationale, content).items():
                    yield of_marked(f"{metric}_{name}", value)
            if annotators is not None:
                for kind, metric in MEASURE_OF_KIND.items():
                    agreement = plausibility.against_others(
                        scores, annotators, content, MEASURES[metric]
                    )
                    yield Measurement(f"others_{kind}_{name}", agreement)
        if annotators is not None:
            for kind, ceiling in plausibility.human(annotators, content).items():
                yield Measurement(f"human_{kind}", ceiling)
        yield from self.notes(subject)


def alignment(
    scores: Float[Tensor, "batch seq"],
    gold: Bool[Tensor, "batch seq"],
    content: Bool[Tensor, "batch seq"],
) -> dict[str, Float[Tensor, "batch"]]:
    """How well the scores align a step with its source words, by the metric's name.

    Each number is also given for the gold links one place to the left and to the right.
    """
    numbers = {}
    for name, shift in SHIFTS.items():
        links = shifted(gold, shift.places) & content
        mass = plausibility.mass_inside(scores, links, content)
        by_chance = plausibility.covered(links, content)
        error = plausibility.alignment_error(scores, links, content)
        numbers[f"{name}alignment_error"] = error
        numbers[f"{name}mass_beyond_chance"] = mass - by_chance
    return numbers


CHANCE = {"f1": "rationale_share", "auprc": "auprc_chance", "mass": "rationale_share"}
"""Measure → what chance has of it."""
SMALLEST = 0.1
"""Smallest relevant difference, as a share of what lies between chance and the whole rationale."""
PAPER = "DeYoung et al. 2020, section 4"

claim = partial(Claim, criterion="plausibility", source=PAPER, level="word")
more_than_chance = partial(claim, speaks="for", smallest=SMALLEST)
CLAIMS = (
    more_than_chance(
        name="top_token_in_rationale",
        statement="The most attended word is in the rationale more often than a random one",
        measure=beyond_chance("top_in_rationale_attention", "rationale_share"),
        quantity=(
            "share of the texts whose top word is in the rationale, on a scale on which chance is "
            "0 and always is 1"
        ),
    ),
    more_than_chance(
        name="mass_on_rationale",
        primary=True,
        statement="More attention lies on the rationale than a uniform attention would put there",
        measure=beyond_chance("mass_in_rationale_attention", "rationale_share"),
        quantity=(
            "attention on the rationale, on a scale on which a uniform attention has 0 and all of "
            "it on the rationale 1"
        ),
    ),
    claim(
        name="gradient_is_more_plausible",
        quantity="difference of the shares of the texts, −1 to 1",
        statement=(
            "The top word by gradient is in the rationale more often than the most attended one"
        ),
        measure=mean_of(
            "top_in_rationale_gradient",
            "top_in_rationale_attention",
            value=np.subtract,
            ends=(-1, 1),
        ),
    ),
)


PERSON = "one annotator against the others"
"""The table's last line: the ceiling."""
TABLE_METRICS = {"f1": "f1_rationale", "auprc": "auprc_rationale", "mass": "mass_in_rationale"}
"""Column of the table → the metric."""


def plausibility_table(results: pd.DataFrame) -> pd.DataFrame:
    """Each importance beyond chance and, where several people marked the texts, against them.

    The last line is then one annotator against the others.
    """
    importances = importances_in(results, "plausibility", "top_in_rationale_")
    has_annotators = bool(importances_in(results, "plausibility", "human_"))

    def lines(rows: pd.DataFrame) -> Iterator[dict[str, object]]:
        for name, facts in importances.items():
            line: dict[str, object] = {
                "importance": facts.title,
                "n": texts_with(rows, rows[f"auprc_rationale_{name}"]),
            }
            for kind, metric in TABLE_METRICS.items():
                beyond = rows[f"{metric}_{name}"] - rows[CHANCE[kind]]
                line |= mean_in_columns(f"{kind} above chance", rows, beyond, SCORE_DIFFERENCE)
                if has_annotators:
                    agreement = rows[f"others_{kind}_{name}"]
                    line |= mean_in_columns(f"{kind} against the others", rows, agreement, SCORE)
            yield line
        if has_annotators:
            yield line_of_person(rows)

    if not importances:
        return facet_table(results, "plausibility", [], lines)
    metrics = list(dict.fromkeys(CHANCE.values()))
    for kind, metric in TABLE_METRICS.items():
        metrics += [f"{metric}_{name}" for name in importances]
        if has_annotators:
            metrics += [f"human_{kind}", *(f"others_{kind}_{name}" for name in importances)]
    return facet_table(results, "plausibility", metrics, lines)


def line_of_person(rows: pd.DataFrame) -> dict[str, object]:
    """The annotators in the place of an importance; they are not compared with chance."""
    unknown = np.full(len(rows), np.nan)
    line: dict[str, object] = {"importance": PERSON, "n": texts_with(rows, rows["human_f1"])}
    for kind in TABLE_METRICS:
        line |= mean_in_columns(f"{kind} above chance", rows, unknown, SCORE_DIFFERENCE)
        ceiling = rows[f"human_{kind}"]
        line |= mean_in_columns(f"{kind} against the others", rows, ceiling, SCORE)
    return line


def points(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """F1 of every importance above chance, with 95 % intervals, a panel per data set and model.

    Where several people marked the texts, it is against all of them but one, and the shaded line is
    what one of them reaches.
    """
    table = plausibility_table(results)
    importances = importances_in(results, "plausibility", "top_in_rationale_").values()
    has_annotators = "f1 against the others" in table
    if has_annotators:
        measure = "f1 against the others"
        label = "F1 against all annotators but one"
        handles = [Line2D([], [], color="0.5", lw=2, label=PERSON)]
        zero = None
    else:
        measure = "f1 above chance"
        label = "F1 above chance"
        handles = []
        zero = 0
    figure, panels = interval_figure(
        table, "data and model", importances, {measure: ""}, zero=zero, handles=handles, x=label
    )
    for row in table[table["importance"] == PERSON].to_dict("records"):
        panel = panels[row["data and model"]]
        panel.axvspan(row[f"{measure}, low"], row[f"{measure}, high"], color="0.85", lw=0, zorder=0)
        panel.axvline(row[measure], color="0.5", lw=0.8, zorder=0)
    return figure


READING = Reading(
    probe="plausibility",
    mark="top_in_rationale_",
    order=60,
    noted=checked,
    title="Plausibility: does it point at the known reason?",
    claims=CLAIMS,
    of_importance=(
        Headline("top_in_rationale_{importance}", "top token in the rationale, {title}"),
        Headline("mass_in_rationale_{importance}", "mass on the rationale, {title}"),
        Headline("f1_rationale_{importance}", "F1 of as many words as it has, {title}"),
        Headline("auprc_rationale_{importance}", "average precision, {title}"),
        Headline("alignment_error_{importance}", "alignment error rate, {title}"),
        Headline("left_alignment_error_{importance}", "  links one to the left, {title}"),
        Headline("right_alignment_error_{importance}", "  links one to the right, {title}"),
        Headline(
            "mass_beyond_chance_{importance}", "mass on the gold words beyond chance, {title}"
        ),
        Headline("others_f1_{importance}", "F1 against all annotators but one, {title}"),
    ),
    about=(
        "The rationale is the words that a person, or the maker of the data, calls the reason. "
        "How often does the top word of each importance lie in it? And what share of each "
        "importance lies on it, 0 to 1? The rationale's share of the text is what chance would "
        "reach. This says that an explanation looks right, not that the model reasons that way "
        "(Jacovi & Goldberg 2020). A faithful explanation of a wrong model looks wrong."
    ),
    columns=(
        Column(
            "top_in_rationale_attention",
            "most attended is in the rationale",
            sorts=False,
            truth=True,
        ),
    ),
    headlines=(
        Headline("rationale_share", "share of the text that is rationale (chance)"),
        Headline("auprc_chance", "average precision of a random order (chance)"),
        Headline("human_f1", "F1 of one annotator against the others (human ceiling)"),
        Headline("human_auprc", "  average precision of one annotator"),
    ),
    tables=(
        Tabulation(
            "plausibility",
            "F1 (of as many words as the rationale has), average precision and mass on the "
            "rationale, each minus chance, and where several people marked the texts against what "
            "at least half of all annotators but one marked; the last line is one annotator "
            "against the others. Means over the n texts with 95 % bootstrap intervals.",
            plausibility_table,
        ),
    ),
    drawings=(
        Drawing("plausibility_points", points, ("f1_rationale_attention", "rationale_share")),
    ),
)
