"""Does attention point at words that speak against the decision? (Liu et al. 2022)"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from attnprobe.core.errors import UserError
from attnprobe.core.metrics import SHARE, WEIGHT, Metric
from attnprobe.core.randomness import Draws
from attnprobe.exact.nulls import is_top, over_ties
from attnprobe.probes.base import (
    DESCRIPTION,
    Measurement,
    Note,
    RankingProbe,
    Subject,
    undefined_in,
)
from attnprobe.readings.reading import Headline, Reading

METRICS = (
    Metric(
        "violation_{importance}",
        SHARE,
        "the most attended item speaks against the decision (of level ones: their share)",
        higher_is_better=False,
        source="Liu et al. 2022, section 3",
    ),
    Metric(
        "against_{importance}", WEIGHT, "attention on the items that do", higher_is_better=False
    ),
    Metric(
        "chance_{importance}",
        SHARE,
        "of the items that do: either number with the weights in random order, on average",
    ),
    *DESCRIPTION,
)


@dataclass
class Signs(RankingProbe):
    """How often does attention lie on what speaks against the decision?

    A weight is never below 0, and so cannot say "against". `chance_X` is what both other numbers
    are on average with the same weights in random order and the same decision. Weights without any
    meaning lie below it, because that decision is their own: no verdict goes by it. (Liu et al.
    call it the polarity violation test.)

    Attributes:
        importances: see `RankingProbe`; signed ones.
    """

    name = "signs"
    metrics = METRICS
    one_decision = True
    published = ("contribution", "gradient_input")

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield, for each importance, how the top item, all weights and all items are opposed."""
        attention = subject.readout.attention
        content = subject.readout.content
        top = is_top(attention, content)
        for name, scores in self.scores(subject).items():
            if not subject.importance(name).signed:
                raise UserError(
                    f"probe.signs.importances: {name} has no sign: expected importances whose "
                    f"score below 0 speaks against the decision, such as "
                    f"[contribution,gradient_input]"
                )
            opposed = (scores < 0).to(attention)
            numbers = {
                "violation": over_ties(opposed, top),
                "against": torch.where(content, attention * opposed, 0).sum(-1),
                "chance": over_ties(opposed, content),
            }
            undefined = undefined_in(scores, content)
            for metric, value in numbers.items():
                value_if_defined = value.masked_fill(undefined, torch.nan)
                yield Measurement(f"{metric}_{self.label(name)}", value_if_defined)
        yield from self.notes(subject)


def _sign_headlines(importance: str, words: str) -> tuple[Headline, ...]:
    return (
        Headline(f"violation_{importance}", f"top item speaks against the decision, by {words}"),
        Headline(f"against_{importance}", "  attention on all that do"),
        Headline(f"chance_{importance}", "  share of the items that do: weights in random order"),
    )


READING = Reading(
    probe="signs",
    order=12,
    title="Signs: does attention point at what speaks against the decision?",
    about=(
        "A weight is never below 0, so that attention cannot say that a word speaks against the "
        "decision. Where a measure has a sign, this is how often the most attended item is one "
        "that does, and how much attention lies on such items. Beside it stands the share of the "
        "items that speak against the decision: what the same weights in random order have. No "
        "claim is made: the weights themselves made the decision, so that on average less lies on "
        "what speaks against it, whether they mean something or not. Nor is a large number a "
        "fault of the attention alone: the model may have to read such words."
    ),
    headlines=(
        *_sign_headlines("contribution", "contribution to the margin"),
        *_sign_headlines("gradient_input", "gradient × input"),
    ),
)
