"""Does the prediction rest on the words that an importance ranks first? (DeYoung et al. 2020,
section 4.2)"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import pandas as pd
import torch
from annotated_types import MinLen
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch.nn import functional as F

from attnprobe.core.metrics import PROBABILITY, PROBABILITY_DIFFERENCE, SHARE, Metric, Scale
from attnprobe.core.randomness import Draws
from attnprobe.core.settings import Share
from attnprobe.evidence.claims import Claim
from attnprobe.evidence.evidence import as_truth, mean_of, share_of
from attnprobe.evidence.reading import (
    Drawing,
    Headline,
    Reading,
    Tabulation,
    facts_of,
    importances_and_operators,
    importances_in,
    mean_table,
)
from attnprobe.importance import word_removal
from attnprobe.models.base import Model
from attnprobe.plots.grid import interval_figure
from attnprobe.plots.style import INK
from attnprobe.probes.base import (
    DESCRIPTION,
    Measurement,
    Note,
    RankingProbe,
    Subject,
    undefined_in,
)

GRID = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Shares of the words at which the curves are measured, in addition to the thresholds."""
SOURCE = "DeYoung et al. 2020, section 4.2"
CURVES = "Samek et al. 2017"
METRICS = (
    Metric("probability", PROBABILITY, "p of the whole text"),
    Metric(
        "deletion_{importance}_by_{operator}",
        PROBABILITY_DIFFERENCE,
        "fall of p without the highest-scored share of the words",
        step="share",
        higher_is_better=True,
        source=CURVES,
    ),
    Metric(
        "insertion_{importance}_by_{operator}",
        PROBABILITY_DIFFERENCE,
        "fall of p with these alone",
        step="share",
        higher_is_better=False,
        source=CURVES,
    ),
    Metric(
        "comprehensiveness_{importance}_by_{operator}",
        PROBABILITY_DIFFERENCE,
        "mean of `deletion` over the thresholds (AOPC: 1, 5, 10, 20, 50 %)",
        higher_is_better=True,
        source=SOURCE,
    ),
    Metric(
        "sufficiency_{importance}_by_{operator}",
        PROBABILITY_DIFFERENCE,
        "mean of `insertion` over the thresholds",
        higher_is_better=False,
        source=SOURCE,
    ),
    Metric(
        "deletion_area_{importance}_by_{operator}",
        PROBABILITY_DIFFERENCE,
        "mean height of the curve at 10, 20, … 90 % and its end",
        higher_is_better=True,
        source=CURVES,
    ),
    Metric(
        "insertion_area_{importance}_by_{operator}",
        PROBABILITY_DIFFERENCE,
        "likewise",
        higher_is_better=False,
        source=CURVES,
    ),
    Metric(
        "flip_share_{importance}_by_{operator}",
        SHARE,
        "the smallest share tried whose deletion changes the decision; NaN where none does",
        higher_is_better=False,
    ),
    Metric(
        "completeness_gap_{importance}",
        Scale("units of the logit", 0),
        "how far the scores are from adding up to what they should; of importances that should",
        higher_is_better=False,
        source="Sundararajan et al. 2017, proposition 1",
    ),
    *DESCRIPTION,
)


@dataclass
class Faithfulness(RankingProbe):
    """Take out the most important words, or all others, and see what becomes of the predicted
    class's probability p.

    Per importance and operator (`attnprobe.importance.word_removal.OPERATORS`). A share is rounded
    up to whole words. NaN where an importance is undefined, and where no word would be left.

    Attributes:
        operators: ways in which words go.
        thresholds: shares of the words, above 0 and below 1 (ERASER's).

    Note:
        ERASER's authors leave to the model how a text without words is read. Here several operators
        are compared.
    """

    name = "faithfulness"
    metrics = METRICS
    of_words = one_decision = True
    published = ("attention", "random", "gradient_input", "integrated_gradients", "leave_one_out")
    operators: Annotated[Sequence[Literal[tuple(word_removal.OPERATORS)]], MinLen(1)] = (
        "delete",
        "zeros",
        "attention",
    )
    thresholds: Annotated[Sequence[Share], MinLen(1)] = (0.01, 0.05, 0.1, 0.2, 0.5)

    def refuse(self, classifier: Model) -> None:
        super().refuse(classifier)
        word_removal.refuse_mask(self.name, self.operators, word_removal.OPERATORS, classifier)

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        content = subject.batch.content
        whole = subject.readout.prediction()
        decision = whole.argmax(-1, keepdim=True)
        probability = whole.gather(-1, decision).squeeze(-1)
        yield Measurement("probability", probability)
        shares = sorted({*self.thresholds, *GRID})
        step = torch.tensor(shares, dtype=torch.float64)
        chosen, grid = (torch.isin(step, step.new_tensor(some)) for some in (self.thresholds, GRID))
        for name, scores in self.scores(subject).items():
            undefined = undefined_in(scores, content)
            filled = scores.nan_to_num(nan=0)
            for operator in self.operators:
                top = torch.stack(
                    [word_removal.top_words(filled, content, share) for share in shares]
                )
                # p without and with only the top words [2, shares, batch]; the decision flips
                # without them
                predicted = word_removal.predictions_keeping(
                    subject, torch.stack([content & ~top, top]), operator
                )
                values = (
                    predicted.gather(-1, decision.expand(*predicted.shape[:-1], 1))
                    .squeeze(-1)
                    .permute(2, 0, 1)
                )
                flips = (predicted[0].argmax(-1) != decision.squeeze(-1)) & ~predicted[
                    0
                ].isnan().any(-1)
                drops = (probability[:, None, None] - values).masked_fill(
                    undefined[:, None, None], torch.nan
                )
                on_grid = F.pad(drops[..., grid], (1, 1))
                at = F.pad(step.to(drops.device)[grid], (1, 1))
                at[-1] = 1
                end = f"{name}_by_{operator}"
                yield Measurement(f"deletion_{end}", drops[:, 0], step)
                yield Measurement(f"insertion_{end}", drops[:, 1], step)
                yield Measurement(f"comprehensiveness_{end}", drops[:, 0, chosen].mean(-1))
                yield Measurement(f"sufficiency_{end}", drops[:, 1, chosen].mean(-1))
                yield Measurement(
                    f"deletion_area_{end}", torch.trapezoid(on_grid[:, 0, :-1], at[:-1]) / at[-2]
                )
                yield Measurement(
                    f"insertion_area_{end}",
                    torch.trapezoid(on_grid[:, 1, 1:], at[1:]) / (1 - at[1]),
                )
                first = torch.where(
                    flips.any(0), step.to(flips.device)[flips.double().argmax(0)], torch.nan
                )
                yield Measurement(f"flip_share_{end}", first.masked_fill(undefined, torch.nan))
            if subject.importance(name).complete:
                gap = (scores.sum(-1) - subject.cached(subject.importance(name).total)).abs()
                yield Measurement(f"completeness_gap_{name}", gap)
        yield from self.notes(subject)


COMPLETE = 1e-3
"""Units of the logit: a gap no larger than this is none."""


def measured(results: pd.DataFrame) -> list[tuple[str, str]]:
    """(importance, operator) of every AOPC in the table, importances in the order in which the
    probe took them."""
    pairs = importances_and_operators(results, "faithfulness", "comprehensiveness_")
    said = list(results.attrs.get("importances", {}).get("faithfulness", {}))
    return sorted(pairs, key=lambda one: (said.index(one[0]) if one[0] in said else len(said), one))


def _headlines(results: pd.DataFrame) -> tuple[Headline, ...]:
    headlines = []
    for name, operator in measured(results):
        end = f"{name}_by_{operator}"
        words = facts_of(name, results, "faithfulness").ascii_title
        headlines += [
            Headline(f"comprehensiveness_{end}", f"comprehensiveness (AOPC): {words}, {operator}"),
            Headline(f"sufficiency_{end}", "  sufficiency (AOPC, lower is better)"),
            Headline(f"flip_share_{end}", "  share of the words at the first flip"),
        ]
    for name, facts in importances_in(results, "faithfulness", "completeness_gap_").items():
        headlines.append(
            Headline(f"completeness_gap_{name}", f"completeness gap: {facts.ascii_title}")
        )
    return tuple(headlines)


def faithfulness_table(results: pd.DataFrame) -> pd.DataFrame:
    """AOPCs and heights of curves, by importance and operator."""
    kinds = ("comprehensiveness", "sufficiency", "deletion_area", "insertion_area")
    lines = (
        (
            {"importance": facts_of(name, results, "faithfulness").title, "operator": operator},
            {kind.replace("_", " "): f"{kind}_{name}_by_{operator}" for kind in kinds},
        )
        for name, operator in measured(results)
    )
    return mean_table(results, "faithfulness", lines)


def points(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """Filled: the fall without the top words (comprehensiveness). Hollow: the fall with these alone
    (sufficiency). Bars are 95 % bootstrap intervals, one panel per data set, model and operator.
    The farther apart the two, the better."""
    return interval_figure(
        faithfulness_table(results),
        ["data and model", "operator"],
        [facts_of(name, results, "faithfulness") for name, _ in measured(results)],
        {"comprehensiveness": "", "sufficiency": "white"},
        x="fall of the predicted class's probability",
        handles=[
            Line2D([], [], ls="", marker="o", color=INK, label="comprehensiveness"),
            Line2D([], [], ls="", marker="o", color=INK, mfc="white", label="sufficiency"),
        ],
    )[0]


def _than_random(name: str, statement: str, metric: str, *, larger: bool) -> Claim:
    # attention's number beyond a random order's, or the other way round
    pair = ["attention", "random"] if larger else ["random", "attention"]
    return Claim(
        name=name,
        criterion="erasure",
        statement=statement,
        source=SOURCE,
        speaks="for",
        level="word",
        measure=mean_of(
            *(f"{metric}_{one}_by_delete" for one in pair), value=np.subtract, ends=(-2, 2)
        ),
        quantity=f"{metric} (AOPC, words deleted), {' minus '.join(pair).replace('random', 'random order')}, mean of the "
        "texts, −2 to 2",
    )


CLAIMS = (
    _than_random(
        "attention_is_comprehensive",
        "Without its most attended words a text loses more of its prediction than without "
        "random ones",
        "comprehensiveness",
        larger=True,
    ),
    _than_random(
        "attention_is_sufficient",
        "Its most attended words alone keep more of a text's prediction than random ones alone",
        "sufficiency",
        larger=False,
    ),
    Claim(
        name="integrated_gradients_add_up",
        criterion="erasure",
        statement=f"For nearly all texts the integrated gradients add up to the prediction to within {COMPLETE} of the logit",
        source="Sundararajan et al. 2017, proposition 1",
        measure=share_of(
            "completeness_gap_integrated_gradients", value=as_truth(lambda gap: gap <= COMPLETE)
        ),
        quantity="share of the texts whose gap is no larger; more than 0.95 is asked for",
        threshold=0.95,
    ),
)

READING = Reading(
    probe="faithfulness",
    order=62,
    claims=CLAIMS,
    closing=_headlines,
    title="Faithfulness: does the prediction rest on the words that are called important?",
    about=(
        "Take out the top words of an importance: how far does the prediction fall (comprehensiveness, high is good)? "
        "Keep only them: how far then (sufficiency, low is good)? Both are means over several shares of the words, "
        "ERASER's AOPC. How words are taken out decides much of the number, so several ways are compared. A text without "
        "words is unlike those that the model was trained on, and a fall may say no more than that."
    ),
    headlines=(Headline("probability", "probability of the predicted class"),),
    tables=(
        Tabulation(
            "faithfulness",
            "Fall of the predicted class's probability without the highest-scored words (comprehensiveness) and with these "
            "alone (sufficiency), means over the thresholds, and the mean heights of the deletion and insertion curves; "
            "means over the n texts with 95 % bootstrap intervals (DeYoung et al. 2020; Samek et al. 2017).",
            faithfulness_table,
        ),
    ),
    drawings=(
        Drawing(
            "faithfulness_points",
            points,
            ("comprehensiveness_attention_by_delete",),
            optional=("comprehensiveness_*", "sufficiency_*", "*_area_*"),
        ),
    ),
)
