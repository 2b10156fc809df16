"""What does the prediction lose with each single token? (Jain & Wallace 2019, section 4.1)"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from attnprobe.importance.leave_one_out.member import LeaveOneOut as Removal
from attnprobe.probes.base import DESCRIPTION, Measurement, ModelProbe, Note, Subject, description, positions
from attnprobe.randomness import Draws
from attnprobe.results.metrics import SHARE, TVD, Metric

METRICS = (
    Metric("leave_one_out", TVD, "between the predictions without and with the token, the text encoded again",
           step="position", source="Jain & Wallace 2019, section 4.1"),
    Metric("max_leave_one_out", TVD, "the largest of them"),
    Metric("decisive_tokens", SHARE, "tokens without any one of which the decision is another"),
    *DESCRIPTION,
)  # fmt: skip
"""See `LeaveOneOut`."""


@dataclass
class LeaveOneOut(ModelProbe):
    """Total variation distance (0 to 1) between the predictions without and with each token, the text encoded again.

    Yields per content position (step) `leave_one_out`; per example `max_leave_one_out` (the largest), `decisive_tokens`
    (share of the tokens without any one of which the decision is another), `predicted_class` and `content_length`.
    In a text of one word nothing is left without it: undefined (NaN). Its settings are those of the importance,
    `importance.leave_one_out`.
    """

    name: ClassVar[str] = "leave_one_out"
    metrics = METRICS
    of_words = True

    @property
    def uses(self) -> Sequence[str]:
        """The importance of this name."""
        return (self.name,)

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield the measurements of one batch."""
        importance = subject.importance(self.name)
        assert isinstance(importance, Removal)
        content, removals = subject.outputs.content, subject.cached(importance.removals)
        yield Measurement("leave_one_out", removals.distance, positions(content))
        # NaN wins, as it should: it stands for the whole text
        yield Measurement("max_leave_one_out", torch.where(content, removals.distance, 0).amax(-1))
        yield Measurement("decisive_tokens", torch.where(content, removals.flips, 0).sum(-1) / content.sum(-1))
        yield from description(subject.readout)
        yield from importance.notes(subject)
