"""Any order of removing attention, in a text of any length, between limits that none passes."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnprobe.core.metrics import PROBABILITY_DIFFERENCE, SHARE, Metric
from attnprobe.core.randomness import Draws
from attnprobe.core.readout import Readout
from attnprobe.core.settings import Count
from attnprobe.exact.removal_orders import mean_fall, order_limits
from attnprobe.probes.base import DESCRIPTION, LINEAR, Measurement, Note, RankingProbe, Subject
from attnprobe.readings.means import means_by_importance
from attnprobe.readings.reading import Headline, Reading, Tabulation

SOURCE = "Edin et al. 2025; Dinkelbach 1967"
REACHED = 1e-9
"""Of probability: a limit that is nearer than this to what an order reaches is reached."""
METRICS = (
    Metric(
        "aopc_lowest",
        PROBABILITY_DIFFERENCE,
        "mean fall that no order of removal gets below, certified",
        only=LINEAR,
        source=SOURCE,
    ),
    Metric(
        "aopc_lowest_found",
        PROBABILITY_DIFFERENCE,
        "of the worst order that was found",
        only=LINEAR,
        source=SOURCE,
    ),
    Metric(
        "aopc_highest_found",
        PROBABILITY_DIFFERENCE,
        "of the best order that was found",
        only=LINEAR,
        source=SOURCE,
    ),
    Metric(
        "aopc_highest",
        PROBABILITY_DIFFERENCE,
        "mean fall that no order gets above, certified",
        only=LINEAR,
        source=SOURCE,
    ),
    Metric(
        "limits_reached",
        SHARE,
        "1 where orders reach both certified limits, so that they are exact; else 0",
        only=LINEAR,
    ),
    Metric(
        "aopc_{importance}",
        PROBABILITY_DIFFERENCE,
        "the mean fall in this order",
        only=LINEAR,
        higher_is_better=True,
    ),
    Metric(
        "place_low_{importance}",
        SHARE,
        "the lowest that its place between the true limits can be",
        only=LINEAR,
        higher_is_better=True,
    ),
    Metric(
        "place_high_{importance}",
        SHARE,
        "the highest that it can be",
        only=LINEAR,
        higher_is_better=True,
    ),
    *DESCRIPTION,
)


@dataclass
class OrderLimits(RankingProbe):
    """Where does an importance's order of removal stand between the worst and the best order?

    Positions are removed from the attention one by one, and the rest is renormalised. The number of
    an order is its AOPC: the mean fall of the decision's probability against the runner-up's (with
    two classes: of its probability) over the n − 1 prefixes. The decoder has to be linear.

    The limits are certified at any length; inner ones are reached by a beam search or an
    importance. NaN for texts of fewer than two positions, and where a position has no attention
    (sparsemax), so that some orders end before the text does.

    Attributes:
        beam: sets of positions that the search keeps at every step, 1 or more; the time is
            proportional to it.
    """

    name = "order_limits"
    metrics = METRICS
    of_words = True
    one_decision = True
    published = ("attention", "random", "gradient", "gradient_input", "contribution")
    beam: Count = 16

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield the limits, and the AOPC and the place of each importance's order."""
        readout = subject.readout
        if readout.position_logits is None:
            return
        classes = readout.prediction().argsort(dim=-1, descending=True, stable=True)
        limits = order_limits(
            readout.attention,
            readout.position_logits,
            readout.content,
            class_=classes[:, 0],
            rival=classes[:, 1],
            beam=self.beam,
        )
        lead = lead_of(readout.position_logits, classes)
        is_undefined = limits.lowest.isnan().unsqueeze(-1)
        falls = {
            name: falls_in_order(readout, lead, scores.masked_fill(is_undefined, torch.nan))
            for name, scores in self.scores(subject).items()
        }
        lowest_found = limits.lowest_found
        highest_found = limits.highest_found
        for fall in falls.values():
            lowest_found = torch.fmin(lowest_found, fall)
            highest_found = torch.fmax(highest_found, fall)
        yield Measurement("aopc_lowest", limits.lowest)
        yield Measurement("aopc_lowest_found", lowest_found)
        yield Measurement("aopc_highest_found", highest_found)
        yield Measurement("aopc_highest", limits.highest)
        gap = torch.maximum(lowest_found - limits.lowest, limits.highest - highest_found)
        yield Measurement("limits_reached", _as_truth(gap < REACHED, gap))

        for name, fall in falls.items():
            yield Measurement(f"aopc_{name}", fall)
            # a place (a − L) / (U − L) falls with L and with U: it is lowest and highest at the
            # ends of what L and U can be
            lowest_place = _place(fall, lowest_found, limits.highest)
            yield Measurement(f"place_low_{name}", lowest_place)
            highest_place = _place(fall, limits.lowest, highest_found)
            yield Measurement(f"place_high_{name}", highest_place)
        yield from self.notes(subject)


def lead_of(
    position_logits: Float[Tensor, "batch seq classes"], classes: Int[Tensor, "batch classes"]
) -> Float[Tensor, "batch seq"]:
    """Logit of the first of the ordered classes less that of the second, at each position."""
    best_two = classes[:, None, :2].expand(-1, position_logits.shape[1], -1)
    logits = position_logits.gather(-1, best_two)
    return logits[..., 0] - logits[..., 1]


def falls_in_order(
    readout: Readout, lead: Float[Tensor, "batch seq"], scores: Float[Tensor, "batch seq"]
) -> Float[Tensor, "batch"]:
    """The mean fall when positions are removed from the highest score down.

    Args:
        readout: the texts.
        lead: logit of the decision less the runner-up's, at each position.
        scores: by which the positions are ordered.

    Returns:
        The fall in probability, −1 to 1; NaN where a score is.
    """
    falls = torch.full_like(lead[:, 0], torch.nan)
    for row, content in enumerate(readout.content):
        text_scores = scores[row, content]
        if not text_scores.isnan().any():
            order = text_scores.double().argsort(descending=True, stable=True)
            falls[row] = mean_fall(readout.attention[row, content], lead[row, content], order)
    return falls


def _as_truth(holds: Bool[Tensor, "batch"], number: Float[Tensor, "batch"]) -> Tensor:
    """1 where it holds, 0 where not, NaN where the number is NaN."""
    return holds.double().masked_fill(number.isnan(), torch.nan)


def _place(
    fall: Float[Tensor, "batch"], low: Float[Tensor, "batch"], high: Float[Tensor, "batch"]
) -> Float[Tensor, "batch"]:
    """Where a fall stands between two limits, 0 to 1; NaN where these coincide."""
    width = torch.where(high - low > REACHED, high - low, torch.nan)
    return ((fall - low) / width).clamp(0, 1)


READING = Reading(
    probe="order_limits",
    order=65,
    mark="place_low_",
    title="Limits of all orders: how good is each order of removal, at any length?",
    about=(
        "Positions are removed from the attention one by one, in each importance's order. How far "
        "does the decision's probability fall, on average (AOPC)? The answer stands between the "
        "worst (0) and the best (1) that any order can reach. No order passes the certified "
        "limits; orders that were found show how near to them one can come. The place is known up "
        "to the gap between the two, and exactly where there is none. No claim is made of "
        "attention's own place. Its largest weights have made the decision, so removing them "
        "first comes near to the best order, whether they mean something or not."
    ),
    of_importance=(
        Headline("aopc_{importance}", "AOPC: {title}"),
        Headline("place_low_{importance}", "  its place between worst (0) and best (1), at least"),
        Headline("place_high_{importance}", "  at most"),
    ),
    headlines=(
        Headline("aopc_lowest", "no order is below this AOPC"),
        Headline("aopc_lowest_found", "  the worst order found"),
        Headline("aopc_highest_found", "  the best order found"),
        Headline("aopc_highest", "no order is above this AOPC"),
        Headline("limits_reached", "texts in which both limits are reached"),
    ),
    tables=(
        Tabulation(
            "order_limits",
            "Each importance's AOPC over n texts, attention removed and renormalised, and its "
            "place between the worst (0) and the best (1) of all orders: certainly no lower and "
            "no higher than this. Means with 95 % bootstrap intervals.",
            partial(
                means_by_importance,
                probe="order_limits",
                mark="place_low_",
                kinds={
                    "aopc": "AOPC",
                    "place_low": "place, at least",
                    "place_high": "place, at most",
                },
            ),
        ),
    ),
)
