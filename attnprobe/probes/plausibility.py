"""Do attention and the other importances point at the known reason? (methodology of ERASER, DeYoung et al. 2020)"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch

from attnprobe.importance.annotators import against_others, human
from attnprobe.importance.plausibility import (
    average_precision,
    average_precision_by_chance,
    covered,
    iou_f1,
    mass_inside,
    precision_at_size,
    top_hit,
)
from attnprobe.probes.base import Measurement, Note, RankingProbe, Subject
from attnprobe.randomness import Draws
from attnprobe.results.metrics import SCORE, SHARE, Metric

MEASURES = {
    "top_in_rationale": top_hit,
    "mass_in_rationale": mass_inside,
    "f1_rationale": precision_at_size,
    "auprc_rationale": average_precision,
}
IOU = "iou_f1_rationale"
"""Of the rationale alone: what annotators mark need not be spans."""


SEVERAL = "data with several annotators"
SOURCE = "DeYoung et al. 2020, section 4.1"
METRICS = (
    Metric("rationale_share", SHARE, "of the content that is rationale: what chance would hit"),
    Metric("top_in_rationale_{importance}", SCORE, "the top token is in it; between with ties", higher_is_better=True),
    Metric("mass_in_rationale_{importance}", SHARE, "of the importance that lies on it", higher_is_better=True),
    Metric("f1_rationale_{importance}", SCORE, "F1 of the highest-scored tokens, as many as the rationale has; chance: "
           "`rationale_share`", higher_is_better=True, source=SOURCE),
    Metric("auprc_rationale_{importance}", SCORE, "average precision", higher_is_better=True, source=SOURCE),
    Metric("iou_f1_rationale_{importance}", SCORE, "F1 of the spans that these tokens make; found where intersection over "
           "union with one of the rationale's is 0.5 or more", higher_is_better=True, source=SOURCE),
    Metric("auprc_chance", SCORE, "that of a random order, on average"),
    Metric("human_{measure}", SCORE, "what one annotator reaches against the others: `top`, `mass`, `f1` or `auprc`, mean "
           "over the annotators", only=SEVERAL),
    Metric("others_{measure}_{importance}", SCORE, "the same of the importance, against the same references",
           higher_is_better=True, only=SEVERAL),
)  # fmt: skip
"""See `Plausibility`."""


@dataclass
class Plausibility(RankingProbe):
    """Agreement of each importance with the data's rationales: the testbed's deciding words, a story's supporting
    sentences, a human's marks.

    Yields per example `rationale_share` (of the content: what chance would hit) and for each importance X (published:
    attention, gradient, leave_one_out; the size of one that is signed) `top_in_rationale_X` (whether the most important token
    is in it; 0 to 1 with ties), `mass_in_rationale_X` (share of the importance that lies on it), `f1_rationale_X` (of the
    highest-scored tokens, as many as the rationale has: share that is in it), `iou_f1_rationale_X` (of the spans that these
    make) and `auprc_rationale_X` (average precision over
    all numbers of tokens; `auprc_chance` is what a random order has on average, for the others `rationale_share`).
    Examples without a rationale get NaN, data sets without any no rows at all.

    Where several people marked each text (`data.annotators`), each annotator in turn is compared with what at least half of
    the others marked: `human_top`, `human_mass` (share of what they marked that the others marked), `human_f1` and
    `human_auprc`, the ceiling; and each importance with these same references: `others_top_X` and so on, so that the two can
    be compared.

    Attributes:
        importances: see `RankingProbe`.
    """

    name: ClassVar[str] = "plausibility"
    metrics = METRICS
    of_words = True
    published = ("attention", "gradient", "leave_one_out")

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield the measurements of one batch."""
        rationale, content = subject.batch.rationale, subject.batch.content
        if rationale is None:
            return
        given = (rationale & content).any(-1)
        yield Measurement("rationale_share", torch.where(given, covered(rationale, content), torch.nan))
        yield Measurement(
            "auprc_chance", torch.where(given, average_precision_by_chance(rationale, content), torch.nan)
        )
        for name, scores in self.scores(subject).items():
            values = scores.abs() if subject.importance(name).signed else scores
            for metric, measure in MEASURES.items():
                agreement = measure(values, rationale, content)
                yield Measurement(f"{metric}_{name}", torch.where(given, agreement, torch.nan))
            spans = iou_f1(values, rationale, content)
            yield Measurement(f"{IOU}_{name}", torch.where(given, spans, torch.nan))
            if subject.batch.annotators is not None:
                for metric, measure in MEASURES.items():
                    agreement = against_others(values, subject.batch.annotators, content, measure)
                    yield Measurement(f"others_{metric.split('_')[0]}_{name}", agreement)
        if subject.batch.annotators is not None:
            for metric, ceiling in human(subject.batch.annotators, content).items():
                yield Measurement(f"human_{metric}", ceiling)
        yield from self.notes(subject)
