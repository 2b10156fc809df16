"""How far is this run from another one, example by example? (Wiegreffe & Pinter 2019, sections 3.3 and 4)"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from attnprobe.batch import prediction_distance
from attnprobe.errors import UserError
from attnprobe.measures import jensen_shannon
from attnprobe.probes.base import DESCRIPTION, Measurement, ModelProbe, Subject, description
from attnprobe.randomness import Draws
from attnprobe.results.metrics import CLASS, JSD, TRUTH, TVD, WEIGHT, Metric

SOURCE = "Wiegreffe & Pinter 2019, sections 3.3 and 4"
METRICS = (
    Metric("tvd", TVD, "between this run's prediction and the teacher's", source=SOURCE),
    Metric("jsd", JSD, "between their attentions", source=SOURCE),
    Metric("same_decision", TRUTH),
    Metric("teacher_max_attention", WEIGHT),
    Metric("teacher_predicted_class", CLASS),
    *DESCRIPTION,
)
"""See `AgainstTeacher`."""


@dataclass
class AgainstTeacher(ModelProbe):
    """Distance of the predictions and of the attention to those of the run named as teacher: another seed of the same
    model, or the model that an adversary imitates.

    Yields per example `tvd` (0 to 1) between the predictions, `jsd` (nats, 0 to ln 2) between the attentions,
    `same_decision` (0 or 1), `teacher_max_attention` and `teacher_predicted_class`, and what the figures group by.

    Attributes:
        teacher: the other run's id; kept with the table, the batches bring what the run says.

    Raises:
        UserError: no teacher is named.
    """

    name: ClassVar[str] = "teacher"
    metrics = METRICS
    of_words = True
    teacher: str | None = None

    def __post_init__(self) -> None:
        if self.teacher is None:
            raise UserError("probe=teacher compares this run with another one: name it with teacher=PATH")

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement]:
        """Yield the measurements of one batch."""
        batch, readout = subject.batch, subject.readout
        assert batch.teacher_attention is not None
        assert batch.teacher_probability is not None
        theirs = batch.teacher_attention.to(readout.attention)
        # stored in float32: without this a sum of 1 + 1e-7 would show in the last digits of small divergences
        theirs = theirs / theirs.sum(-1, keepdim=True)
        probability, prediction = batch.teacher_probability.to(readout.attention), readout.prediction()
        yield Measurement("tvd", prediction_distance(prediction, probability, readout.task))
        yield Measurement("jsd", jensen_shannon(readout.attention, theirs, readout.content))
        yield Measurement("same_decision", (prediction.argmax(-1) == probability.argmax(-1)).double())
        yield Measurement("teacher_max_attention", theirs.amax(-1))
        yield Measurement("teacher_predicted_class", probability.argmax(-1))
        yield from description(readout)
