"""Which tokens does the prediction react to most? (Jain & Wallace 2019, section 4.1)"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from attnprobe.importance.gradient import gradients_of
from attnprobe.measures import normalised
from attnprobe.probes.base import DESCRIPTION, Measurement, ModelProbe, Subject, description, positions
from attnprobe.randomness import Draws
from attnprobe.results.metrics import SHARE, Metric, Scale

SOURCE = "Jain & Wallace 2019, section 4.1"
METRICS = (
    Metric("gradient", SHARE, "absolute value of gradient × word vector, attention held fixed; sums to 1", step="position",
           source=SOURCE),
    Metric("gradient_through_attention", SHARE, "the attention reacts as well", step="position"),
    Metric("hidden_gradient", SHARE, "`gradient` of the encoder's states", step="position"),
    Metric("hidden_gradient_through_attention", SHARE, "`gradient_through_attention` of the encoder's states",
           step="position"),
    Metric("attention_gradient", Scale("probability per weight"), "∂ probability of the predicted class / ∂ weight, signed",
           step="position", source="Serrano & Smith 2019, section 5"),
    Metric("max_gradient", SHARE, "the largest share of `gradient`"),
    *DESCRIPTION,
)  # fmt: skip
"""See `Gradient`."""


@dataclass
class Gradient(ModelProbe):
    """Gradient × input of the predicted probabilities, as shares that sum to 1 over the content positions.

    Yields per content position (step) `gradient` (of the word vectors, attention held fixed: the paper's),
    `gradient_through_attention` (the attention reacting too), `hidden_gradient`, `hidden_gradient_through_attention`
    (of the encoder's states), and `attention_gradient` (∂ probability of the predicted class / ∂ attention weight,
    signed and not normalised); per example `max_gradient` (the largest share of `gradient`), `predicted_class` and
    `content_length`. Where all gradients are 0 shares are undefined (NaN).
    """

    name: ClassVar[str] = "gradient"
    metrics = METRICS
    of_words = True

    @property
    def uses(self) -> Sequence[str]:
        """Those that it keeps by position."""
        return ("gradient", "gradient_through_attention", "attention_gradient")

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement]:
        """Yield the measurements of one batch."""
        step = positions(subject.outputs.content)
        content = subject.outputs.content
        gradients = subject.cached(gradients_of)
        shares = normalised(gradients.embedding.double(), content)
        yield Measurement("gradient", shares, step)
        for metric, values in (
            ("gradient_through_attention", gradients.embedding_through_attention),
            ("hidden_gradient", gradients.hidden),
            ("hidden_gradient_through_attention", gradients.hidden_through_attention),
        ):
            yield Measurement(metric, normalised(values.double(), content), step)
        yield Measurement("attention_gradient", subject.scores("attention_gradient"), step)
        yield Measurement("max_gradient", shares.amax(-1))
        yield from description(subject.readout)
