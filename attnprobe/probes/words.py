"""Word by word over the corpus: what is attended to, and what matters."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch

from attnprobe.importance.leave_one_out.member import LeaveOneOut
from attnprobe.probes.base import DESCRIPTION, Measurement, ModelProbe, Note, Subject, description, positions
from attnprobe.randomness import Draws
from attnprobe.results.metrics import TRUTH, TVD, Metric, Scale

METRICS = (
    Metric("relative_attention", Scale("times an even share", 0), "the word's attention × the number of words",
           step="position"),
    Metric("effect", TVD, "between the predictions without the word and with it (leave-one-out)", step="position"),
    Metric("flips", TRUTH, "without the word the decision is another one", step="position"),
    Metric("direction", Scale("sign", -1, 1), "of gradient × input: 1 speaks for the decision, −1 against it",
           step="position"),
    *DESCRIPTION,
)  # fmt: skip
"""See `Words`."""


@dataclass
class Words(ModelProbe):
    """Attention and effect of every word, for a view of the whole corpus: which words does the model lean on that attention
    hides, and which does it attend to that do not matter? (`attnprobe.report.readings.words`)

    Yields per position (step) `relative_attention`, the word's attention × the number of words, 1 where it is even; `effect`,
    leave-one-out as total variation distance, 0 to 1; `flips`, whether the decision is another one without the word; and
    `direction`, the sign of gradient × input. `predicted_class`, `content_length`, `max_attention`.
    """

    name: ClassVar[str] = "words"
    metrics = METRICS
    of_words = True
    one_decision = True

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield the measurements of one batch."""
        importance = subject.importance("leave_one_out")
        assert isinstance(importance, LeaveOneOut)
        removals, content = subject.cached(importance.removals), subject.readout.content
        step = positions(content)
        relative = subject.readout.attention * content.sum(-1, keepdim=True)
        yield Measurement("relative_attention", relative, step)
        yield Measurement("effect", removals.distance, step)
        yield Measurement("flips", torch.where(removals.distance.isnan(), torch.nan, removals.flips), step)
        yield Measurement("direction", subject.scores("gradient_input").sign(), step)
        yield from description(subject.readout)
        yield from importance.notes(subject)
