"""Any order of removing attention, in a text of any length, placed between limits that no order passes."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from attnprobe.errors import UserError
from attnprobe.exact.removal_orders import OrderRange, mean_fall, order_limits
from attnprobe.probes.base import DESCRIPTION, LINEAR, Measurement, Note, RankingProbe, Subject, description
from attnprobe.randomness import Draws
from attnprobe.results.metrics import PROBABILITY_DIFFERENCE, SHARE, Metric

SOURCE = "Edin et al. 2025; Dinkelbach 1967"
REACHED = 1e-9
"""Of probability: a limit that is nearer than this to what an order reaches is reached."""
METRICS = (
    Metric("aopc_lowest", PROBABILITY_DIFFERENCE, "mean fall that no order of removal gets below, certified", only=LINEAR,
           source=SOURCE),
    Metric("aopc_lowest_found", PROBABILITY_DIFFERENCE, "of the worst order that was found", only=LINEAR, source=SOURCE),
    Metric("aopc_highest_found", PROBABILITY_DIFFERENCE, "of the best order that was found", only=LINEAR, source=SOURCE),
    Metric("aopc_highest", PROBABILITY_DIFFERENCE, "mean fall that no order gets above, certified", only=LINEAR,
           source=SOURCE),
    Metric("limits_reached", SHARE, "1 where orders reach both certified limits, so that they are exact; else 0",
           only=LINEAR),
    Metric("aopc_{importance}", PROBABILITY_DIFFERENCE, "the mean fall in this order", only=LINEAR, higher_is_better=True),
    Metric("place_low_{importance}", SHARE, "the lowest that its place between the true limits can be", only=LINEAR,
           higher_is_better=True),
    Metric("place_high_{importance}", SHARE, "the highest that it can be", only=LINEAR, higher_is_better=True),
    *DESCRIPTION,
)  # fmt: skip
"""See `OrderLimits`."""


@dataclass
class OrderLimits(RankingProbe):
    """Remove positions from the attention one by one in an importance's order, renormalise the rest, and take the mean fall
    of the decision's probability against the runner-up's (with two classes: of its probability) over the n − 1 prefixes
    (AOPC). What any of the n! orders can reach lies between limits that are certified at any length, for a linear decoder.
    Yields

    - `aopc_lowest` ≤ `aopc_lowest_found` ≤ `aopc_highest_found` ≤ `aopc_highest`: certified limits, and what
      orders reach that a beam search or an importance found (−1 to 1); the true limits lie between; `limits_reached`, 1 where
      they are equal;
    - per importance X `aopc_X`; `place_low_X` and `place_high_X` (0 to 1): between these lies its place on the scale from the
      worst order (0) to the best (1).

    NaN for texts of fewer than two positions, and where a position has no attention (sparsemax), so that some orders end
    before the text does.

    Attributes:
        importances: see `RankingProbe`.
        beam: sets of positions that the search keeps at every step, 1 or more; the time is proportional to it.
    """

    name: ClassVar[str] = "order_limits"
    metrics = METRICS
    of_words = True
    one_decision = True
    published = ("attention", "random", "gradient", "gradient_input", "contribution")
    beam: int = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.beam < 1:
            raise UserError(
                f"probe.order_limits.beam={self.beam}: expected how many sets to keep, 1 or more, such as 16"
            )

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield the measurements of one batch; only the description where the decoder is not linear."""
        readout = subject.readout
        if readout.position_logits is not None:
            order = readout.prediction().argsort(dim=-1, descending=True, stable=True)
            limits = order_limits(
                readout.attention, readout.position_logits, readout.content,
                class_=order[:, 0], rival=order[:, 1], beam=self.beam,
            )  # fmt: skip
            lead = readout.position_logits.gather(-1, order[:, None, :2].expand(-1, readout.content.shape[1], -1))
            own = {
                name: falls(subject, scores, lead[..., 0] - lead[..., 1]).masked_fill(limits.lowest.isnan(), torch.nan)
                for name, scores in self.scores(subject).items()
            }
            yield from placed(limits, own)
        yield from description(readout)
        yield from self.notes(subject)


def falls(subject: Subject, scores: Tensor, lead: Tensor) -> Tensor:
    """The mean fall of each text in the order of these scores; NaN where a score is."""
    readout = subject.readout
    values = torch.full_like(readout.attention[:, 0], torch.nan)
    for row in range(len(values)):
        at = readout.content[row]
        own = scores[row, at].double()
        if len(own) > 1 and not own.isnan().any():
            order = own.argsort(descending=True, stable=True)
            values[row] = mean_fall(readout.attention[row, at], lead[row, at], order)
    return values


def placed(limits: OrderRange, own: dict[str, Tensor]) -> Iterator[Measurement]:
    """The limits, with what the importances reach, and where each of these lies between them.

    A place (a − L) / (U − L) falls with L and with U, so that it is lowest and highest at the ends of what L and U can be.
    """
    lowest_found, highest_found = limits.lowest_found, limits.highest_found
    for fall in own.values():
        lowest_found = torch.fmin(lowest_found, fall)
        highest_found = torch.fmax(highest_found, fall)
    yield Measurement("aopc_lowest", limits.lowest)
    yield Measurement("aopc_lowest_found", lowest_found)
    yield Measurement("aopc_highest_found", highest_found)
    yield Measurement("aopc_highest", limits.highest)
    apart = torch.maximum(lowest_found - limits.lowest, limits.highest - highest_found)
    yield Measurement("limits_reached", (apart < REACHED).double().masked_fill(apart.isnan(), torch.nan))
    for name, fall in own.items():
        yield Measurement(f"aopc_{name}", fall)
        for metric, low, high in (
            ("place_low", lowest_found, limits.highest),
            ("place_high", limits.lowest, highest_found),
        ):
            width = torch.where(high - low > REACHED, high - low, torch.nan)
            yield Measurement(f"{metric}_{name}", ((fall - low) / width).clamp(0, 1))
