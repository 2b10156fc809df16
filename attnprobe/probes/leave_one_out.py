"""What does the prediction lose with each single token? (Jain & Wallace 2019, section 4.1)"""

from collections.abc import Iterator
from dataclasses import dataclass
from operator import add
from typing import ClassVar, final

import torch

from attnprobe.errors import UserError
from attnprobe.importance.leave_one_out import CHUNK, TOLERANCE, Removals, leave_one_out
from attnprobe.probes.base import Measurement, ModelProbe, Note, Subject, description, positions
from attnprobe.probes.randomness import Draws


@dataclass
class RemovingProbe(ModelProbe):
    """A probe that takes out each token in turn; several of the same settings share the work.

    Attributes:
        tolerance: an LSTM's state of a shortened text that is this close to the unchanged text's is taken for it, and from
            1e-6 on states are computed in float32. What that does to the distances is checked, see `leave_one_out`.
        chunk: hidden states at a time; lower it where memory is short.
    """

    of_words = True
    tolerance: float = TOLERANCE
    chunk: int = CHUNK

    def __post_init__(self) -> None:
        if not 0 <= self.tolerance < 1:
            raise UserError(
                f"probe.{self.name}.tolerance={self.tolerance}: expected a difference of states from 0, for example 1e-6"
            )
        if self.chunk < 1:
            raise UserError(
                f"probe.{self.name}.chunk={self.chunk}: expected how many hidden states at a time, for example {CHUNK}"
            )

    @final
    def removals(self, subject: Subject) -> Removals:
        """The batch's predictions without each token, computed once for all probes of these settings."""
        return subject.once(
            ("leave_one_out", self.tolerance, self.chunk),
            lambda: leave_one_out(
                subject.classifier, subject.batch, subject.outputs, tolerance=self.tolerance, chunk=self.chunk
            ),
        )

    @final
    def check_notes(self, subject: Subject) -> Iterator[Note]:
        """How exact the batch's leave-one-out is: `removals_checked` by encoding the shortened text in full, the
        `largest_error` of their distances in the table, and texts that were measured again because it was too large at
        first (`texts_remeasured`, `largest_error_before`), or that were all encoded in full (`texts_reencoded`)."""
        check, texts = self.removals(subject).check, len(subject.batch)
        yield Note("removals_checked", check.sampled, add)
        if check.sampled:
            yield Note("largest_error", check.error, max)
        if check.rejected is not None:
            yield Note("largest_error_before", check.rejected, max)
        yield Note("texts_remeasured", texts if check.rejected is not None else 0, add)
        yield Note("texts_reencoded", texts if check.reencoded else 0, add)


@dataclass
class LeaveOneOut(RemovingProbe):
    """Total variation distance (0 to 1) between the predictions without and with each token, the text encoded again.

    Yields per content position (step) `leave_one_out`; per example `max_leave_one_out` (the largest), `decisive_tokens`
    (share of the tokens without any one of which the decision is another), `predicted_class` and `content_length`.
    In a text of one word nothing is left without it: undefined (NaN). Attributes: see `RemovingProbe`.
    """

    name: ClassVar[str] = "leave_one_out"

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield the measurements of one batch."""
        content = subject.outputs.content
        found = self.removals(subject)
        yield Measurement("leave_one_out", found.distance, positions(content))
        # NaN wins, as it should: it stands for the whole text
        yield Measurement("max_leave_one_out", torch.where(content, found.distance, 0).amax(-1))
        yield Measurement("decisive_tokens", torch.where(content, found.flips, 0).sum(-1) / content.sum(-1))
        yield from description(subject.readout)
        yield from self.check_notes(subject)
