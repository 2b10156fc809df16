"""Does attention agree with gradients and leave-one-out more than an attention without meaning would?"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnprobe.errors import UserError
from attnprobe.measures import kendall_tau
from attnprobe.nulls.attentions import even, permuted
from attnprobe.nulls.importances import aligned, gradients_under, removals_under
from attnprobe.probes.base import DESCRIPTION, Measurement, ModelProbe, Subject, description
from attnprobe.randomness import Draws
from attnprobe.results.metrics import TAU, Metric, Scale

METRICS = (
    Metric("tau_{measure}_own", TAU, "of attention and the measure (`gradient`, which is gradient × input, or "
           "`leave_one_out`), taken with the attention held fixed", higher_is_better=True),
    Metric("tau_{measure}_null", TAU, "the same under the own weights in random order, mean of the orders"),
    Metric("tau_{measure}_spread", Scale("τ-b", 0, math.sqrt(2)), "their standard deviation"),
    Metric("tau_{measure}_best", TAU, "of the own weights in the measure's order: below 1 where weights are level"),
    Metric("tau_free_gradient", TAU, "of attention and the gradient under equal weights, of which attention is not a factor",
           higher_is_better=True),
    Metric("tau_ceiling", TAU, "of gradient and leave-one-out"),
    *DESCRIPTION,
)  # fmt: skip
"""See `Agreement`."""


@dataclass
class Agreement(ModelProbe):
    """Kendall's τ-b, −1 to 1, of attention with gradient × input and with leave-one-out, and the same under nulls.

    A gradient with the attention held fixed has the weight of a position as a factor, and so has leave-one-out where the
    encoder sees no context: they agree with any attention. So both are taken again in the same model under other attentions,
    and each attention is compared with the measure taken under it. For M = `gradient`, `leave_one_out` (the attention held
    fixed here too) it yields

    - `tau_M_own`; `tau_M_null`, `tau_M_spread`: mean and standard deviation under the text's own weights in random order;
    - `tau_M_best`: of the text's own weights in the order of the measure, below 1 where weights are tied;

    and `tau_free_gradient`, with the gradient under uniform attention, of which attention is not a factor; `tau_ceiling`, of
    gradient and leave-one-out with each other; `predicted_class`, `max_attention`, `content_length`.

    Attributes:
        samples: attentions without meaning per text, each with a backward pass of its own.
        share: of the texts, drawn at random; of the others there is no number (NaN).
        removals: with leave-one-out, for which every shortened text is encoded.
    """

    name: ClassVar[str] = "agreement"
    metrics = METRICS
    of_words = True
    samples: int = 9
    share: float = 1.0
    removals: bool = True

    def __post_init__(self) -> None:
        if self.samples < 2:
            raise UserError(f"probe.agreement.samples={self.samples}: expected how many random attentions, 2 or more")
        if not 0 < self.share <= 1:
            raise UserError(f"probe.agreement.share={self.share}: expected a share of the texts above 0, up to 1")

    @property
    def copies(self) -> int:
        """Of every sample: noise, weights, and both measures."""
        return 8 * self.samples

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement]:
        """Yield the measurements of one batch."""
        readout = subject.readout
        chosen = self.chosen(readout.example_id, draws).to(readout.content.device)
        statistics = self.of_texts(subject, draws, chosen.nonzero().squeeze(-1)) if chosen.any() else {}
        for name in self.own_metrics:
            values = torch.full(chosen.shape, torch.nan, dtype=torch.float64, device=chosen.device)
            if statistics:
                values[chosen] = statistics[name].double()
            yield Measurement(name, values)
        yield from description(readout)

    @property
    def own_metrics(self) -> list[str]:
        """The names of its metrics, but for those of every probe."""
        measures = ["gradient", "leave_one_out"] if self.removals else ["gradient"]
        of_measures = [f"tau_{name}_{kind}" for name in measures for kind in ("own", "null", "spread", "best")]
        return ["tau_free_gradient", *of_measures, *(["tau_ceiling"] if self.removals else [])]

    def chosen(self, example_id: Tensor, draws: Draws) -> Bool[Tensor, "batch"]:
        """Which texts take part; it depends on the text's number alone."""
        lots = [float(torch.rand(1, generator=draws.generator(number))) for number in example_id.tolist()]
        return torch.tensor(lots) < self.share

    def of_texts(self, subject: Subject, draws: Draws, rows: Tensor) -> dict[str, Float[Tensor, "some"]]:
        """All metrics of some rows of the batch."""
        batch, outputs = subject.batch.rows(rows), subject.outputs.rows(rows)
        readout = subject.classifier.readout(batch, outputs)
        attention, content = readout.attention, readout.content
        noise, ties = draws.uniform(2 * self.samples, content, readout.example_id).split(self.samples)
        nulls = permuted(attention, content, noise, ties).attention
        under = torch.cat([attention.unsqueeze(0), nulls])
        gradient = gradients_under(subject.classifier, batch, torch.cat([under, even(content).unsqueeze(0)]))
        measures = {"gradient": gradient[:-1]}
        if self.removals:
            measures["leave_one_out"] = removals_under(subject.classifier, batch, readout, under)
        statistics = {"tau_free_gradient": kendall_tau(attention, gradient[-1], content)}
        for name, taken in measures.items():
            taus = kendall_tau(under, taken, content)
            statistics[f"tau_{name}_own"] = taus[0]
            statistics[f"tau_{name}_null"], statistics[f"tau_{name}_spread"] = taus[1:].mean(0), taus[1:].std(0)
            statistics[f"tau_{name}_best"] = kendall_tau(aligned(attention, taken[0], content), taken[0], content)
        if self.removals:
            statistics["tau_ceiling"] = kendall_tau(gradient[0], measures["leave_one_out"][0], content)
        return statistics
