"""Do attention and the other importances point at the known reason? (methodology of ERASER, DeYoung et al. 2020)"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch

from attnprobe.importance.plausibility import covered, mass_inside, top_hit
from attnprobe.probes.base import Measurement, Note, RankingProbe, Subject
from attnprobe.randomness import Draws


@dataclass
class Plausibility(RankingProbe):
    """Agreement of each importance with the data's rationales: the testbed's deciding words, a story's supporting
    sentences, a human's marks.

    Yields per example `rationale_share` (of the content: what chance would hit) and for each importance X (published:
    attention, gradient, leave_one_out; the size of one that is signed) `top_in_rationale_X` (whether the most important token
    is in it; 0 to 1 with ties) and `mass_in_rationale_X` (share of the importance that lies on it). Examples without a
    rationale get NaN, data sets without any no rows at all.

    Attributes:
        importances: see `RankingProbe`.
    """

    name: ClassVar[str] = "plausibility"
    of_words = True
    published = ("attention", "gradient", "leave_one_out")

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield the measurements of one batch."""
        rationale, content = subject.batch.rationale, subject.batch.content
        if rationale is None:
            return
        given = (rationale & content).any(-1)
        yield Measurement("rationale_share", torch.where(given, covered(rationale, content), torch.nan))
        for name, scores in self.scores(subject).items():
            values = scores.abs() if subject.importance(name).signed else scores
            for metric, measure in (("top_in_rationale", top_hit), ("mass_in_rationale", mass_inside)):
                found = measure(values, rationale, content)
                yield Measurement(f"{metric}_{name}", torch.where(given, found, torch.nan))
        yield from self.notes(subject)
