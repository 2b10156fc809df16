"""Does the prediction rest on the words that an importance ranks first? (DeYoung et al. 2020, section 4.2)"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.erasure.words import OPERATORS, check_operators, predictions_keeping, refuse_mask, top_words
from attnprobe.errors import UserError
from attnprobe.models.trained import TrainedModel
from attnprobe.probes.base import DESCRIPTION, Measurement, Note, RankingProbe, Subject, description
from attnprobe.randomness import Draws
from attnprobe.results.metrics import PROBABILITY, PROBABILITY_DIFFERENCE, SHARE, Metric, Scale

GRID = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Shares of the words at which the curves are measured, in addition to the thresholds."""


SOURCE, CURVES = "DeYoung et al. 2020, section 4.2", "Samek et al. 2017"
METRICS = (
    Metric("probability", PROBABILITY, "p of the whole text"),
    Metric("deletion_{importance}_by_{operator}", PROBABILITY_DIFFERENCE,
           "fall of p without the highest-scored share of the words", step="share", higher_is_better=True, source=CURVES),
    Metric("insertion_{importance}_by_{operator}", PROBABILITY_DIFFERENCE, "fall of p with these alone", step="share",
           higher_is_better=False, source=CURVES),
    Metric("comprehensiveness_{importance}_by_{operator}", PROBABILITY_DIFFERENCE,
           "mean of `deletion` over the thresholds (AOPC: 1, 5, 10, 20, 50 %)", higher_is_better=True, source=SOURCE),
    Metric("sufficiency_{importance}_by_{operator}", PROBABILITY_DIFFERENCE, "mean of `insertion` over the thresholds",
           higher_is_better=False, source=SOURCE),
    Metric("deletion_area_{importance}_by_{operator}", PROBABILITY_DIFFERENCE,
           "mean height of the curve at 10, 20, … 90 % and its end", higher_is_better=True, source=CURVES),
    Metric("insertion_area_{importance}_by_{operator}", PROBABILITY_DIFFERENCE, "likewise", higher_is_better=False,
           source=CURVES),
    Metric("flip_share_{importance}_by_{operator}", SHARE, "the smallest share tried whose deletion changes the decision; "
           "NaN where none does", higher_is_better=False),
    Metric("completeness_gap_{importance}", Scale("units of the logit", 0),
           "how far the scores are from adding up to what they should; of importances that should", higher_is_better=False,
           source="Sundararajan et al. 2017, proposition 1"),
    *DESCRIPTION,
)  # fmt: skip
"""See `Faithfulness`."""


@dataclass
class Faithfulness(RankingProbe):
    """Take out the most important words, or all others, and see what becomes of the predicted class's probability p.

    Per importance X and operator O (`attnprobe.erasure.words.OPERATORS`):

    - `deletion_X_by_O` by share of the words (step): p(text) − p(text without the highest-scored share), −1 to 1;
    - `insertion_X_by_O` by share (step): p(text) − p(the highest-scored share alone), −1 to 1;
    - `comprehensiveness_X_by_O`, `sufficiency_X_by_O`: their means over `thresholds`, ERASER's AOPC. A faithful importance
      has a high comprehensiveness and a low sufficiency;
    - `deletion_area_X_by_O`, `insertion_area_X_by_O`: the mean heights of the two curves from nothing to 0.9 and from 0.1 to
      everything (trapezoids);
    - `flip_share_X_by_O`: the smallest share tried whose deletion changes the decision; NaN where none does.

    And `completeness_gap_X` of an importance whose scores should add up (integrated gradients, Shapley values): |sum − what
    they should add up to|, in units of the logit; `probability` (p), `predicted_class`, `content_length`.

    Of a signed importance the highest scores are those that speak for the decision. A share is rounded up to whole words.
    NaN where an importance is undefined, and where no word would be left.

    Attributes:
        importances: see `RankingProbe`.
        operators: ways in which words go.
        thresholds: shares of the words, above 0 and below 1 (ERASER's).

    Note:
        ERASER's authors take probabilities from a file, and leave to the model how a text without words is read. Here an
        operator says so, and several are compared, since texts without words are unlike those of the training.
    """

    name: ClassVar[str] = "faithfulness"
    metrics = METRICS
    of_words = True
    one_decision = True
    published = ("attention", "random", "gradient_input", "integrated_gradients", "leave_one_out")
    operators: Sequence[str] = ("delete", "zeros", "attention")
    thresholds: Sequence[float] = (0.01, 0.05, 0.1, 0.2, 0.5)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_operators(self.name, self.operators, OPERATORS)
        if not self.thresholds or not all(0 < one < 1 for one in self.thresholds):
            raise UserError(
                f"probe.faithfulness.thresholds={list(self.thresholds)}: expected shares of the words above 0 and below 1, "
                f"such as [0.1,0.5]"
            )

    def refuse(self, classifier: TrainedModel) -> None:
        """Refuse a mask where the model has none.

        Raises:
            UserError: it, or the model, cannot be examined.
        """
        super().refuse(classifier)
        refuse_mask(self.name, self.operators, OPERATORS, classifier)

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield the measurements of one batch."""
        whole = subject.readout.prediction()
        decision = whole.argmax(-1)
        probability = whole.gather(-1, decision.unsqueeze(-1)).squeeze(-1)
        yield Measurement("probability", probability)
        shares = sorted({*self.thresholds, *GRID})
        step = torch.tensor(shares, dtype=torch.float64)
        for name, scores in self.scores(subject).items():
            undefined = (scores.isnan() & subject.batch.content).any(-1)
            for operator in self.operators:
                values = self.curves(subject, scores.nan_to_num(nan=0), operator, shares)
                drops, flips = probability.unsqueeze(-1).unsqueeze(-1) - values[0], values[1]
                drops = drops.masked_fill(undefined[:, None, None], torch.nan)
                end = f"{name}_by_{operator}"
                yield Measurement(f"deletion_{end}", drops[:, 0], step)
                yield Measurement(f"insertion_{end}", drops[:, 1], step)
                for metric, value in self.summaries(drops, step.to(drops.device)).items():
                    yield Measurement(f"{metric}_{end}", value)
                first = torch.where(flips.any(-1), step.to(flips.device)[flips.double().argmax(-1)], torch.nan)
                yield Measurement(f"flip_share_{end}", first.masked_fill(undefined, torch.nan))
            if subject.importance(name).complete:
                gap = (scores.sum(-1) - subject.cached(subject.importance(name).total)).abs()
                yield Measurement(f"completeness_gap_{name}", gap)
        yield from description(subject.readout)
        yield from self.notes(subject)

    def curves(
        self, subject: Subject, scores: Float[Tensor, "batch tokens"], operator: str, shares: Sequence[float]
    ) -> tuple[Float[Tensor, "batch 2 shares"], Tensor]:
        """p without and with only the top words, by share; and whether the decision flips without them."""
        model, batch, readout = subject.classifier, subject.batch, subject.readout
        decision = readout.prediction().argmax(-1, keepdim=True)
        values, flips = [], []
        for share in shares:
            top = top_words(scores, batch.content, share)
            without = predictions_keeping(model, batch, readout, batch.content & ~top, operator)
            alone = predictions_keeping(model, batch, readout, top, operator)
            values.append(torch.cat([without.gather(-1, decision), alone.gather(-1, decision)], -1))
            flips.append((without.argmax(-1, keepdim=True) != decision) & ~without.isnan().any(-1, keepdim=True))
        return torch.stack(values, -1), torch.cat(flips, -1)

    def summaries(self, drops: Float[Tensor, "batch 2 shares"], step: Float[Tensor, "shares"]) -> dict[str, Tensor]:
        """One number of each curve."""
        chosen = torch.isin(step, step.new_tensor(sorted(self.thresholds)))
        grid = torch.isin(step, step.new_tensor(GRID))
        on_grid, at = drops[..., grid], step[grid]
        nothing = torch.zeros_like(drops[:, 0, :1])
        deletion = torch.cat([nothing, on_grid[:, 0]], -1)
        insertion = torch.cat([on_grid[:, 1], nothing], -1)
        ends = step.new_tensor([0.0]), step.new_tensor([1.0])
        return {
            "comprehensiveness": drops[:, 0, chosen].mean(-1),
            "sufficiency": drops[:, 1, chosen].mean(-1),
            "deletion_area": torch.trapezoid(deletion, torch.cat([ends[0], at])) / at[-1],
            "insertion_area": torch.trapezoid(insertion, torch.cat([at, ends[1]])) / (1 - at[0]),
        }
