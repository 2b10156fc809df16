"""Does the prediction rest on the words that an importance ranks first?

DeYoung et al. 2020, section 4.2.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import pandas as pd
import torch
from annotated_types import MinLen
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor
from torch.nn import functional as F

from attnprobe.core.metrics import PROBABILITY, PROBABILITY_DIFFERENCE, SHARE, Metric, Scale
from attnprobe.core.randomness import Draws
from attnprobe.core.settings import Share
from attnprobe.evidence.claims import Claim
from attnprobe.evidence.evidence import as_truth, mean_of, share_of
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
from attnprobe.readings.importances import facts_of, importances_and_operators, importances_in
from attnprobe.readings.means import mean_table
from attnprobe.readings.reading import Drawing, Headline, Reading, Tabulation

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
    """Remove the most important words, or all others, and follow the predicted class's p.

    p is the predicted class's probability. Words are those that the attention is looked at over, or
    sentences. Each importance is tested with each operator
    (`attnprobe.importance.word_removal.OPERATORS`). Of a signed importance the highest scores are
    those that speak for the decision. A share is rounded up to whole words. NaN where an importance
    is undefined, and where no word would be left.

    Attributes:
        operators: ways in which words go.
        thresholds: shares of the words, above 0 and below 1 (ERASER's).

    Note:
        ERASER's authors leave to the model how a text without words is read. Here several operators
        are compared.
    """

    name = "faithfulness"
    metrics = METRICS
    one_decision = True
    published = ("attention", "random", "gradient_input", "integrated_gradients", "leave_one_out")
    operators: Annotated[Sequence[Literal[tuple(word_removal.OPERATORS)]], MinLen(1)] = (
        "delete",
        "zeros",
        "attention",
    )
    thresholds: Annotated[Sequence[Share], MinLen(1)] = (0.01, 0.05, 0.1, 0.2, 0.5)

    def refuse(self, classifier: Model) -> None:
        """Also refuse the operator `mask` for a model without a mask token."""
        super().refuse(classifier)
        word_removal.refuse_mask(self.name, self.operators, word_removal.OPERATORS, classifier)

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield every importance's curves under every operator, and their summaries."""
        yield Measurement("probability", decided_probability(subject))
        shares = torch.tensor(sorted({*self.thresholds, *GRID}), dtype=torch.float64)
        for name, scores in self.scores(subject).items():
            for operator in self.operators:
                ending = f"{name}_by_{operator}"
                curves = curves_of(subject, scores, operator, shares)
                yield Measurement(f"deletion_{ending}", curves.deletion, shares)
                yield Measurement(f"insertion_{ending}", curves.insertion, shares)
                for metric, value in self.summaries(curves).items():
                    yield Measurement(f"{metric}_{ending}", value)

            if subject.importance(name).complete:
                total = subject.cached(subject.importance(name).total)
                yield Measurement(f"completeness_gap_{name}", (scores.sum(-1) - total).abs())
        yield from self.notes(subject)

    def summaries(self, curves: "Curves") -> dict[str, Float[Tensor, "batch"]]:
        """Metric → a number per text: ERASER's AOPC, a curve's mean height, the first flip.

        The deletion curve starts from the whole text, where nothing has fallen yet; the insertion
        curve ends there. A mean height is the area under the trapezoids divided by their width.
        """
        shares = curves.shares
        threshold = torch.isin(shares, shares.new_tensor(self.thresholds))
        on_grid = torch.isin(shares, shares.new_tensor(GRID))
        grid = shares[on_grid]
        from_nothing = F.pad(grid, (1, 0), value=0.0)
        to_everything = F.pad(grid, (0, 1), value=1.0)
        falling = F.pad(curves.deletion[:, on_grid], (1, 0))
        rising = F.pad(curves.insertion[:, on_grid], (0, 1))
        return {
            "comprehensiveness": curves.deletion[:, threshold].mean(-1),
            "sufficiency": curves.insertion[:, threshold].mean(-1),
            "deletion_area": torch.trapezoid(falling, from_nothing) / grid[-1],
            "insertion_area": torch.trapezoid(rising, to_everything) / (1 - grid[0]),
            "flip_share": curves.first_flip,
        }


@dataclass(frozen=True)
class Curves:
    """What becomes of each text as a growing share of its words goes, the highest-scored first.

    Attributes:
        shares: of the words, ascending.
        deletion: fall of p without the top words, −1 to 1; NaN where it is undefined.
        insertion: fall of p with the top words alone, −1 to 1; NaN where it is undefined.
        first_flip: the smallest share whose deletion changes the decision; NaN where none does.
    """

    shares: Float[Tensor, "shares"]
    deletion: Float[Tensor, "batch shares"]
    insertion: Float[Tensor, "batch shares"]
    first_flip: Float[Tensor, "batch"]


def curves_of(
    subject: Subject,
    scores: Float[Tensor, "batch seq"],
    operator: str,
    shares: Float[Tensor, "shares"],
) -> Curves:
    """The curves of one importance's scores when words go by one operator."""
    content = subject.outputs.text
    undefined = undefined_in(scores, content)
    ranked = scores.nan_to_num(nan=0)
    top = torch.stack([word_removal.top_words(ranked, content, share) for share in shares.tolist()])
    keep = torch.stack([content & ~top, top])
    predicted = word_removal.predictions_keeping(subject, keep, operator)

    decision = subject.readout.prediction().argmax(-1)
    index = decision.unsqueeze(-1).expand(*predicted.shape[:-1], 1)
    p = predicted.gather(-1, index).squeeze(-1)
    fall = (decided_probability(subject) - p).masked_fill(undefined, torch.nan)

    shares = shares.to(fall.device)
    without = predicted[0]
    flips = (without.argmax(-1) != decision) & ~without.isnan().any(-1)
    smallest = shares[flips.double().argmax(0)]
    first_flip = torch.where(flips.any(0) & ~undefined, smallest, torch.nan)
    return Curves(shares, deletion=fall[0].T, insertion=fall[1].T, first_flip=first_flip)


def decided_probability(subject: Subject) -> Float[Tensor, "batch"]:
    """p, the probability of the predicted class of the whole text, 0 to 1."""
    prediction = subject.readout.prediction()
    return prediction.gather(-1, prediction.argmax(-1, keepdim=True)).squeeze(-1)


COMPLETE = 1e-3
"""Units of the logit: a gap no larger than this is none."""


def measured(results: pd.DataFrame) -> list[tuple[str, str]]:
    """(importance, operator) of every AOPC in the table.

    The importances come in the order in which the probe took them; those of which the runs say
    nothing follow in alphabetical order.
    """
    pairs = importances_and_operators(results, "faithfulness", "comprehensiveness_")
    order = results.attrs.get("importances", {}).get("faithfulness", {})
    rank = {name: number for number, name in enumerate(order)}
    return sorted(pairs, key=lambda pair: (rank.get(pair[0], len(rank)), pair))


def _headlines(results: pd.DataFrame) -> tuple[Headline, ...]:
    headlines = []
    for name, operator in measured(results):
        ending = f"{name}_by_{operator}"
        heading = f"{facts_of(name, results, 'faithfulness').ascii_title}, {operator}"
        headlines += [
            Headline(f"comprehensiveness_{ending}", f"comprehensiveness (AOPC): {heading}"),
            Headline(f"sufficiency_{ending}", "  sufficiency (AOPC, lower is better)"),
            Headline(f"flip_share_{ending}", "  share of the words at the first flip"),
        ]
    for name, facts in importances_in(results, "faithfulness", "completeness_gap_").items():
        gap = f"completeness gap: {facts.ascii_title}"
        headlines.append(Headline(f"completeness_gap_{name}", gap))
    return tuple(headlines)


def faithfulness_table(results: pd.DataFrame) -> pd.DataFrame:
    """AOPCs and mean heights of curves, by importance and operator."""
    kinds = ("comprehensiveness", "sufficiency", "deletion_area", "insertion_area")
    lines = []
    for name, operator in measured(results):
        facts = facts_of(name, results, "faithfulness")
        cells = {"importance": facts.title, "operator": operator}
        columns = {kind.replace("_", " "): f"{kind}_{name}_by_{operator}" for kind in kinds}
        lines.append((cells, columns))
    return mean_table(results, "faithfulness", lines)


def points(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """Filled: the fall without the top words (comprehensiveness).

    Hollow: the fall with these alone (sufficiency). Bars are 95 % bootstrap intervals, one panel
    per data set, model and operator. The farther apart the two, the better.
    """
    figure, _ = interval_figure(
        faithfulness_table(results),
        ["data and model", "operator"],
        [facts_of(name, results, "faithfulness") for name, _ in measured(results)],
        {"comprehensiveness": "", "sufficiency": "white"},
        x="fall of the predicted class's probability",
        handles=[
            Line2D([], [], ls="", marker="o", color=INK, label="comprehensiveness"),
            Line2D([], [], ls="", marker="o", color=INK, mfc="white", label="sufficiency"),
        ],
    )
    return figure


def _than_random(name: str, statement: str, metric: str, *, larger: bool) -> Claim:
    """Attention's number beyond a random order's, or the other way round."""
    first, second = ("attention", "random") if larger else ("random", "attention")
    difference = f"{first} minus {second}".replace("random", "random order")
    return Claim(
        name=name,
        criterion="erasure",
        statement=statement,
        source=SOURCE,
        speaks="for",
        level="word",
        measure=mean_of(
            f"{metric}_{first}_by_delete",
            f"{metric}_{second}_by_delete",
            value=np.subtract,
            ends=(-2, 2),
        ),
        quantity=f"{metric} (AOPC, words deleted), {difference}, mean of the texts, −2 to 2",
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
        statement=(
            "For nearly all texts the integrated gradients add up to the prediction to within "
            f"{COMPLETE} of the logit"
        ),
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
        "Take out the top words of an importance: how far does the prediction fall "
        "(comprehensiveness, high is good)? Keep only them: how far then (sufficiency, low is "
        "good)? Both are means over several shares of the words, ERASER's AOPC. How words are "
        "taken out decides much of the number, so several ways are compared. A text without "
        "words is unlike those that the model was trained on, and a fall may say no more than "
        "that."
    ),
    headlines=(Headline("probability", "probability of the predicted class"),),
    tables=(
        Tabulation(
            "faithfulness",
            "Fall of the predicted class's probability without the highest-scored words "
            "(comprehensiveness) and with these alone (sufficiency), means over the thresholds, "
            "and the mean heights of the deletion and insertion curves; means over the n texts "
            "with 95 % bootstrap intervals (DeYoung et al. 2020; Samek et al. 2017).",
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
