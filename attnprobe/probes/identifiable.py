"""Is the attention determined by what is computed with it? Each word's least and greatest weight at identical output."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnprobe.errors import UserError
from attnprobe.exact import WeightRanges, weight_ranges
from attnprobe.importance.base import Note, Subject
from attnprobe.measures import jensen_shannon
from attnprobe.models.trained import TrainedModel
from attnprobe.probes.base import DESCRIPTION, Measurement, ModelProbe, description, positions
from attnprobe.randomness import Draws
from attnprobe.results.metrics import JSD, TRUTH, WEIGHT, Metric, Scale

NOTHING = 1e-6
"""A word that can have no more weight than this can have none."""

METRICS = (
    Metric("unique", TRUTH, "no other attention has the identical output", higher_is_better=True,
           source="Brunner et al. 2020"),
    Metric("freedom", Scale("directions", 0), "in which the rows could move, were it not that weights are 0 or more"),
    Metric("parts", Scale("positions or pieces", 1), "special tokens included"),
    Metric("top_weight", WEIGHT, "of the most attended word, mean over the rows; what special tokens have is part of the "
           "whole"),
    Metric("top_low", WEIGHT, "its least weight at identical output"),
    Metric("top_high", WEIGHT, "its greatest weight at identical output"),
    Metric("top_can_vanish", TRUTH, "its least weight is 1e-6 or less", higher_is_better=False),
    Metric("farthest_jsd", JSD, "of the shown attention and another one with identical output: at least this",
           higher_is_better=False),
    Metric("low", WEIGHT, "least weight of the most attended words", step="position"),
    Metric("high", WEIGHT, "greatest weight of the most attended words", step="position"),
    *DESCRIPTION,
)  # fmt: skip
"""See `Identifiable`."""


@dataclass
class Identifiable(ModelProbe):
    """Which other attentions give the identical output, whatever follows, and so the identical prediction?

    The rows of attention enter the prediction through their sums Σ_t a_t v_t alone: of a transformer's head its values, of a
    model of three stages the states, or with a linear decoder what each gives to the classes. All attentions with the same
    sums, row by row, are a polytope (Brunner et al. 2020); linear programmes give each word's range in it. A word's weight
    here is the mean over the rows of what its pieces have; what special tokens have is part of the whole.

    Yields per example `unique` (1: there is no other such attention), `freedom` (in how many directions the rows could move),
    `parts` (positions or pieces, special ones included), and of the most attended word `top_weight`, `top_low`, `top_high`
    and `top_can_vanish` (1: it could have had no weight); `farthest_jsd`, the largest Jensen-Shannon divergence (nats) of the
    shown attention, words alone, and of one that a programme came upon: a lower bound of what is possible. Per position
    `low` and `high`, of the `words` most attended. `max_attention`, `predicted_class`, `content_length`.

    Attributes:
        words: how many words of a text are asked for, the most attended first; None: all.
    """

    name: ClassVar[str] = "identifiable"
    metrics = METRICS
    words: int | None = 3

    def __post_init__(self) -> None:
        if self.words is not None and self.words < 1:
            raise UserError(f"probe.identifiable.words={self.words}: expected 1 or more words, or null for all")

    def refuse(self, classifier: TrainedModel) -> None:
        """Refuse what does more with its attention than to sum up."""
        super().refuse(classifier)
        if not classifier.is_summed:
            raise UserError(
                "probe identifiable needs an attention that enters the prediction through one sum alone, and this model's is "
                "not known to (of pretrained ones: the last layer, rows=pooled, with short_way=true where it agrees): leave "
                "it out of probe=[…]"
            )

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield the measurements of one batch."""
        readout = subject.readout
        summed = subject.classifier.summed(subject.batch, subject.outputs)
        count, seq = readout.content.shape
        names = ("unique", "freedom", "parts", "top_weight", "top_low", "top_high", "farthest_jsd")
        by_metric = {name: torch.full((count,), torch.nan, dtype=torch.float64) for name in names}
        low, high = (torch.full((count, seq), torch.nan, dtype=torch.float64) for _ in range(2))
        moved = 0.0
        for text in range(count):
            there = summed.there[text]
            content = readout.content[text].nonzero()[:, 0]
            shown = readout.attention[text]
            asked = content[shown[content].argsort(descending=True, stable=True)][: self.words]
            ranges = of_rows(
                summed.weights[text][:, there], summed.values[text][:, there], summed.word[text][there], asked, seq
            )
            top = int(asked[0])
            low[text, asked], high[text, asked] = ranges.low[asked].cpu(), ranges.high[asked].cpu()
            others = torch.cat([ranges.lowest[asked], ranges.highest[asked]])[:, content]
            mass = others.sum(-1, keepdim=True)
            shares = others[mass[:, 0] > 0] / mass[mass[:, 0] > 0]
            values = {
                "unique": ranges.unique,
                "freedom": ranges.freedom,
                "parts": int(there.sum()),
                "top_weight": float(ranges.own[top]),
                "top_low": float(ranges.low[top]),
                "top_high": float(ranges.high[top]),
                "farthest_jsd": float(jensen_shannon(shown[content].expand_as(shares).cpu(), shares.cpu()).max()),
            }
            for name, value in values.items():
                by_metric[name][text] = value
            moved = max(moved, ranges.moved)
        for name, numbers in by_metric.items():
            yield Measurement(name, numbers)
        yield Measurement("top_can_vanish", (by_metric["top_low"] <= NOTHING).double())
        for name, numbers in {"low": low, "high": high}.items():
            yield Measurement(name, numbers, torch.where(numbers.isnan(), torch.nan, positions(readout.content.cpu())))
        yield Note("largest_change_of_output", moved, max)
        yield from description(readout)


@dataclass(frozen=True)
class Ranges:
    """Ranges of words over several rows; see `WeightRanges`. `own` is the weight of each word as recorded."""

    own: Float[Tensor, "seq"]
    low: Float[Tensor, "seq"]
    high: Float[Tensor, "seq"]
    lowest: Float[Tensor, "seq seq"]
    highest: Float[Tensor, "seq seq"]
    unique: bool
    freedom: int
    moved: float


def of_rows(
    weights: Float[Tensor, "rows parts"],
    values: Float[Tensor, "rows parts size"],
    word: Int[Tensor, "parts"],
    asked: Int[Tensor, "asked"],
    seq: int,
) -> Ranges:
    """The ranges of the mean of rows whose sums are kept one by one: each row is a polytope by itself, so the ends of the
    mean are the means of the ends."""
    own = torch.zeros(seq, dtype=torch.float64, device=word.device)
    own.index_add_(0, word[word >= 0], weights.double().mean(0)[word >= 0])
    several: list[WeightRanges] = [
        weight_ranges(row.unsqueeze(0), value.unsqueeze(0), positions=asked, words=word)
        for row, value in zip(weights, values, strict=True)
    ]

    def mean(name: str, *shape: int) -> Tensor:
        parts = torch.stack([getattr(one, name) for one in several]).mean(0)
        result = torch.full(shape, math.nan, dtype=torch.float64, device=word.device)
        result[tuple(slice(0, size) for size in parts.shape)] = parts
        return result

    return Ranges(
        own,
        mean("low", seq),
        mean("high", seq),
        mean("lowest", seq, seq),
        mean("highest", seq, seq),
        all(one.unique for one in several),
        sum(one.freedom for one in several),
        max(one.moved for one in several),
    )
