"""Which tokens does the prediction react to most? (Jain & Wallace 2019, section 4.1)"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from attnprobe.core.metrics import SHARE, Metric, Scale
from attnprobe.core.randomness import Draws
from attnprobe.importance.gradients import gradients_of
from attnprobe.measures import normalised
from attnprobe.probes.base import DESCRIPTION, Measurement, Probe, Subject, positions
from attnprobe.readings.reading import Headline, HeatMap, Reading

SOURCE = "Jain & Wallace 2019, section 4.1"
METRICS = (
    Metric(
        "gradient",
        SHARE,
        "absolute value of gradient × word vector, attention held fixed; sums to 1",
        step="position",
        source=SOURCE,
    ),
    Metric("gradient_through_attention", SHARE, "the attention reacts as well", step="position"),
    Metric("hidden_gradient", SHARE, "`gradient` of the encoder's states", step="position"),
    Metric(
        "hidden_gradient_through_attention",
        SHARE,
        "`gradient_through_attention` of the encoder's states",
        step="position",
    ),
    Metric(
        "attention_gradient",
        Scale("probability per weight"),
        "∂ probability of the predicted class / ∂ weight, signed",
        step="position",
        source="Serrano & Smith 2019, section 5",
    ),
    Metric("max_gradient", SHARE, "the largest share of `gradient`"),
    *DESCRIPTION,
)


@dataclass
class Gradient(Probe):
    """Gradient × input of the predicted probabilities, as shares of a text's sum.

    The shares of a text sum to 1 over its content positions; where all its gradients are 0 they are
    undefined (NaN).
    """

    name = "gradient"
    metrics = METRICS

    @property
    def uses(self) -> Sequence[str]:
        """The importances whose gradients it stores."""
        return ("gradient", "gradient_through_attention", "attention_gradient")

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement]:
        """Yield every gradient by position, and the largest share of the first."""
        content = subject.outputs.content
        step = positions(content, subject.outputs.text)
        gradients = subject.cached(gradients_of)
        shares = normalised(gradients.embedding.double(), content)
        yield Measurement("gradient", shares, step)

        variants = {
            "gradient_through_attention": gradients.embedding_through_attention,
            "hidden_gradient": gradients.hidden,
            "hidden_gradient_through_attention": gradients.hidden_through_attention,
        }
        for metric, values in variants.items():
            yield Measurement(metric, normalised(values.double(), content), step)
        yield Measurement("attention_gradient", subject.scores("attention_gradient"), step)
        yield Measurement("max_gradient", shares.amax(-1))


READING = Reading(
    probe="gradient",
    order=30,
    title="Gradients: what the prediction reacts to",
    about=(
        "The gradient of the predicted probability by each token's word vector, times that "
        "vector, as a share of the text's sum: 0 to 1 per token. A large share on one token "
        "means that the prediction reacts to it most. Attention is compared with this measure, "
        "but it is not the truth. A gradient describes small changes only, and it fades where "
        "the model is very sure."
    ),
    maps=(
        HeatMap("gradient", "Gradient", "share of the gradient, attention held fixed; sums to 1"),
    ),
    headlines=(
        Headline("max_gradient", "largest share of the gradient on one token", by_class=True),
    ),
)
