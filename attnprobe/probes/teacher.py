"""How far is this run from another one, example by example? (Wiegreffe & Pinter 2019)"""

from collections.abc import Iterator
from dataclasses import dataclass

from attnprobe.core.batch import prediction_distance
from attnprobe.core.errors import UserError
from attnprobe.core.metrics import CLASS, JSD, TRUTH, TVD, WEIGHT, Metric
from attnprobe.core.randomness import Draws
from attnprobe.measures import jensen_shannon
from attnprobe.probes.base import DESCRIPTION, Measurement, Probe, Subject
from attnprobe.readings.reading import Headline, Reading

SOURCE = "Wiegreffe & Pinter 2019, sections 3.3 and 4"
METRICS = (
    Metric("tvd", TVD, "between this run's prediction and the teacher's", source=SOURCE),
    Metric("jsd", JSD, "between their attentions", source=SOURCE),
    Metric("same_decision", TRUTH),
    Metric("teacher_max_attention", WEIGHT),
    Metric("teacher_predicted_class", CLASS),
    *DESCRIPTION,
)


@dataclass
class AgainstTeacher(Probe):
    """Distance to the predictions and the attention of the run named as teacher.

    It is another seed of the same model, or the model that an adversary imitates. The batches bring
    what that run says.

    Attributes:
        teacher: the run's id, kept with the table.
    """

    name = "teacher"
    metrics = METRICS
    of_words = True
    teacher: str | None = None

    def __post_init__(self) -> None:
        if self.teacher is None:
            raise UserError(
                "probe=teacher compares this run with another one: name it with teacher=PATH"
            )

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement]:
        """Yield the distances, and what figures group the teacher's texts by."""
        batch = subject.batch
        readout = subject.readout
        assert batch.teacher_attention is not None
        assert batch.teacher_probability is not None
        attention = batch.teacher_attention.to(readout.attention)
        # stored in float32: a sum of 1 + 1e-7 would show in the last digits of small divergences
        attention = attention / attention.sum(-1, keepdim=True)
        probability = batch.teacher_probability.to(readout.attention)
        prediction = readout.prediction()
        same_decision = prediction.argmax(-1) == probability.argmax(-1)
        yield Measurement("tvd", prediction_distance(prediction, probability, readout.task))
        yield Measurement("jsd", jensen_shannon(readout.attention, attention, readout.content))
        yield Measurement("same_decision", same_decision.double())
        yield Measurement("teacher_max_attention", attention.amax(-1))
        yield Measurement("teacher_predicted_class", probability.argmax(-1))


READING = Reading(
    probe="teacher",
    order=60,
    title="Against the teacher",
    about=(
        "How different is the same model trained again, or another one, the teacher? TVD of the "
        "predictions, 0 to 1, and JSD of the attentions, 0 to 0.69 nats. Between two seeds of one "
        "model the JSD says how stable attention is. An adversary is trained to imitate the "
        "teacher. There it says how far attention can go while the predictions stay."
    ),
    headlines=(
        Headline("tvd", "TVD of the predictions to the teacher's"),
        Headline("jsd", "JSD of the attention to the teacher's"),
        Headline("same_decision", "share of equal decisions"),
    ),
)
