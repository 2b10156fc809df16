"""Leave-one-out as an importance: its settings, and how exact a batch's numbers are."""

from collections.abc import Iterator
from dataclasses import dataclass
from operator import add
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from attnprobe.errors import UserError
from attnprobe.importance.base import Importance, Note, Subject
from attnprobe.importance.leave_one_out.removal import CHUNK, TOLERANCE, Removals, leave_one_out


@dataclass(frozen=True)
class LeaveOneOut(Importance):
    """Total variation distance, 0 to 1, between the predictions without the token and with it; the text encoded again.

    NaN in a text of one word: nothing is left without it.

    Attributes:
        tolerance: an LSTM's state of a shortened text that is this close to the unchanged text's is taken for it, and from
            1e-6 on states are computed in float32. What that does to the distances is checked, see `leave_one_out`.
        chunk: hidden states at a time; lower it where memory is short.
    """

    name: ClassVar[str] = "leave_one_out"
    title: ClassVar[str] = "leave-one-out"
    colour: ClassVar[str] = "#332288"
    of_words: ClassVar[bool] = True
    tolerance: float = TOLERANCE
    chunk: int = CHUNK

    def __post_init__(self) -> None:
        if not 0 <= self.tolerance < 1:
            raise UserError(
                f"importance.{self.name}.tolerance={self.tolerance}: expected a difference of states from 0, for example "
                f"1e-6"
            )
        if self.chunk < 1:
            raise UserError(
                f"importance.{self.name}.chunk={self.chunk}: expected how many hidden states at a time, for example {CHUNK}"
            )

    def removals(self, subject: Subject) -> Removals:
        """The batch's predictions without each token."""
        return leave_one_out(
            subject.classifier, subject.batch, subject.outputs, tolerance=self.tolerance, chunk=self.chunk
        )

    def scores(self, subject: Subject) -> Float[Tensor, "batch seq"]:
        """0 to 1; NaN outside content and in a text of one word."""
        return subject.cached(self.removals).distance

    def notes(self, subject: Subject) -> Iterator[Note]:
        """How exact the batch's leave-one-out is: `removals_checked` by encoding the shortened text in full, the
        `largest_error` of their distances in the table, and texts that were measured again because it was too large at
        first (`texts_remeasured`, `largest_error_before`), or that were all encoded in full (`texts_reencoded`)."""
        check, texts = subject.cached(self.removals).check, len(subject.batch)
        yield Note("removals_checked", check.sampled, add)
        if check.sampled:
            yield Note("largest_error", check.error, max)
        if check.rejected is not None:
            yield Note("largest_error_before", check.rejected, max)
        yield Note("texts_remeasured", texts if check.rejected is not None else 0, add)
        yield Note("texts_reencoded", texts if check.reencoded else 0, add)
