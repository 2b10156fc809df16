"""Does attention point at words that speak against the decision? (Liu et al. 2022, the polarity violation test)"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from attnprobe.errors import UserError
from attnprobe.nulls.attentions import is_top, over_ties
from attnprobe.probes.base import DESCRIPTION, Measurement, Note, RankingProbe, Subject, description
from attnprobe.randomness import Draws
from attnprobe.results.metrics import SHARE, WEIGHT, Metric

METRICS = (
    Metric("violation_{importance}", SHARE, "the most attended item speaks against the decision (of level ones: their share)",
           higher_is_better=False, source="Liu et al. 2022, section 3"),
    Metric("against_{importance}", WEIGHT, "attention on the items that do", higher_is_better=False),
    Metric("chance_{importance}", SHARE, "of the items that do: either number with the weights in random order, on average"),
    *DESCRIPTION,
)  # fmt: skip
"""See `Signs`."""


@dataclass
class Signs(RankingProbe):
    """A weight is never below 0, and so cannot say "against": how often does it lie on what speaks against the decision?

    Per signed importance X, whose score below 0 speaks against the decision, it yields `violation_X` (1: the most attended
    item has such a score; of level items their share), `against_X` (attention on all such items, 0 to 1), and `chance_X`, the
    share of the items that have one, which is what both are on average with the same weights in random order and the same
    decision. That decision is the weights' own: weights without any meaning lie below this chance as well, so that no
    verdict goes by it.
    `max_attention`, `predicted_class`, `content_length`. NaN where an importance is undefined.

    Attributes:
        importances: see `RankingProbe`; signed ones.
    """

    name: ClassVar[str] = "signs"
    metrics = METRICS
    one_decision = True
    published = ("contribution", "gradient_input")

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield the measurements of one batch."""
        attention, content = subject.readout.attention, subject.readout.content
        level = is_top(attention, content)
        for name, scores in self.scores(subject).items():
            if not subject.importance(name).signed:
                raise UserError(
                    f"probe.signs.importances: {name} has no sign: expected importances whose score below 0 speaks against "
                    f"the decision, such as [contribution,gradient_input]"
                )
            opposed = (scores < 0).to(attention)
            unknown = (scores.isnan() & content).any(-1)

            def known(value: Tensor, unknown: Tensor = unknown) -> Tensor:
                return value.masked_fill(unknown, torch.nan)

            label = self.label(name)
            yield Measurement(f"violation_{label}", known(over_ties(opposed, level)))
            yield Measurement(f"against_{label}", known(torch.where(content, attention * opposed, 0).sum(-1)))
            yield Measurement(f"chance_{label}", known(over_ties(opposed, content)))
        yield from description(subject.readout)
        yield from self.notes(subject)
