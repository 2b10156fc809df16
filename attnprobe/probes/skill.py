"""Is the most attended item the one that decides? Compared with the model's attention at random and at its best."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnprobe.errors import UserError
from attnprobe.importance.leave_one_out.member import LeaveOneOut
from attnprobe.models.base import Unit
from attnprobe.nulls.attentions import even, is_top, over_ties, permuted, random_like, top_of
from attnprobe.nulls.erasing import each_erased, each_on_top, erased
from attnprobe.probes.base import DESCRIPTION, Measurement, ModelProbe, Note, Subject, description
from attnprobe.randomness import Draws
from attnprobe.readout import Readout
from attnprobe.results.metrics import P_VALUE, PROBABILITY_DIFFERENCE, SHARE, TVD, Metric, Scale

NULL, SPREAD = "the same with the own weights in random order, mean of the orders", "their standard deviation"
METRICS = (
    Metric("state_drop_own", PROBABILITY_DIFFERENCE, "what the decision loses without the top state, under the model's own "
           "attention", higher_is_better=True),
    Metric("state_drop_null", PROBABILITY_DIFFERENCE, NULL),
    Metric("state_drop_spread", Scale("probability", 0, 1), SPREAD),
    Metric("state_drop_best", PROBABILITY_DIFFERENCE, "with the largest weight where erasing it does most"),
    Metric("state_drop_random", PROBABILITY_DIFFERENCE, "under random weights as spread out as the own ones"),
    Metric("state_drop_uniform", PROBABILITY_DIFFERENCE, "under equal weights"),
    Metric("state_drop_p", P_VALUE, "Monte-Carlo, of one text: orders that reach its own", higher_is_better=False,
           source="Davison & Hinkley 1997, section 4.2"),
    Metric("state_flip_own", SHARE, "whether the decision is another one without the top state", higher_is_better=True),
    *(Metric(f"state_flip_{kind}", SHARE, "likewise") for kind in ("null", "spread", "best", "random", "uniform")),
    Metric("word_distance_own", TVD, "without the most attended word", higher_is_better=True),
    Metric("word_distance_null", TVD, "without a random one, mean"),
    Metric("word_distance_spread", TVD, SPREAD),
    Metric("word_distance_best", TVD, "without the one that does most"),
    Metric("word_flip_own", SHARE, "whether the decision is another one without the most attended word",
           higher_is_better=True),
    *(Metric(f"word_flip_{kind}", SHARE, "likewise") for kind in ("null", "spread", "best")),
    Metric("word_mass_own", TVD, "without a word, mean over the words by their attention", higher_is_better=True),
    Metric("word_mass_null", TVD, "the mean of all words alike"),
    Metric("word_mass_best", TVD, "of the word without which it is largest"),
    *DESCRIPTION,
)  # fmt: skip
"""See `Skill`."""


@dataclass
class Skill(ModelProbe):
    """What erasing the top item does, at two levels, and what it does where the attention means nothing.

    `state_drop` (probability that the decision loses, −1 to 1) and `state_flip` (1: another decision): the top item's state
    is erased, the other weights renormalised. `word_distance` (total variation distance, 0 to 1) and `word_flip`: the top
    word is deleted from the text, which is encoded again (leave-one-out); `word_mass`: the same distance, mean over the
    words by their attention. Of each it yields

    - `…_own`: under the model's own attention; of several top items that are level, their mean;
    - `…_null`, `…_spread`: mean and standard deviation under the text's own weights in random order, in the same frozen
      model; at the word level this is a random word, and `word_mass` has no spread, for it needs no draw;
    - `…_best`: the most that is possible: the largest weight on the position where erasing it does most; the word without
      which the prediction moves farthest;
    - `state_…_random`, `state_…_uniform`: under random weights, as spread out as the text's own, and under equal ones;
    - `state_drop_p`: Monte-Carlo p-value per text, the share of the nulls that reach its own, itself counted (Davison &
      Hinkley 1997, section 4.2).

    Skill is (own − null) / (best − null) of the means over the texts, and is read off the table.

    Attributes:
        samples: random attentions per text.
        words: measure the word level too. It needs leave-one-out, and is left out for a model that attends to sentences.
    """

    name: ClassVar[str] = "skill"
    metrics = METRICS
    one_decision = True
    samples: int = 99
    words: bool = True

    def __post_init__(self) -> None:
        if self.samples < 2:
            raise UserError(
                f"probe.skill.samples={self.samples}: expected how many random attentions, 2 or more, such as 99"
            )

    @property
    def copies(self) -> int:
        """Of every sample: two numbers of noise, the weights, and what is left of them."""
        return 8 * self.samples

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield the measurements of one batch."""
        yield from self.of_states(subject.readout, draws)
        if self.words and subject.classifier.unit is Unit.WORD:
            yield from of_words(subject)
        yield from description(subject.readout)

    def of_states(self, readout: Readout, draws: Draws) -> Iterator[Measurement]:
        """The state level: arithmetic on the readout."""
        content, attention, examples = readout.content, readout.attention, readout.example_id
        noise, ties = draws.uniform(2 * self.samples, content, examples).split(self.samples)
        normal = draws.normal(self.samples, content, examples)
        own = each_erased(readout, attention)
        level = is_top(attention, content)
        top = top_of(attention.unsqueeze(0), content, ties[:1])[0]
        best = each_on_top(readout, attention, top)
        null = erased(readout, *permuted(attention, content, noise, ties))
        random = erased(readout, *random_like(attention, content, normal))
        uniform = each_erased(readout, even(content))
        for name in ("drop", "flip"):
            mine = over_ties(getattr(own, name), level)
            nulls = getattr(null, name)
            yield Measurement(f"state_{name}_own", mine)
            yield Measurement(f"state_{name}_null", nulls.mean(0))
            yield Measurement(f"state_{name}_spread", nulls.std(0))
            yield Measurement(f"state_{name}_best", largest(getattr(best, name), content))
            yield Measurement(f"state_{name}_random", getattr(random, name).nanmean(0))
            yield Measurement(f"state_{name}_uniform", over_ties(getattr(uniform, name), content))
            if name == "drop":
                reached = (nulls >= mine - 1e-12).sum(0)
                p = (1 + reached) / (1 + len(nulls))
                yield Measurement("state_drop_p", torch.where(mine.isnan(), torch.nan, p))


def of_words(subject: Subject) -> Iterator[Measurement | Note]:
    """The word level: arithmetic on leave-one-out."""
    importance = subject.importance("leave_one_out")
    assert isinstance(importance, LeaveOneOut)
    removals = subject.cached(importance.removals)
    content, attention = subject.readout.content, subject.readout.attention
    level = is_top(attention, content)
    for name, values in (("word_distance", removals.distance), ("word_flip", removals.flips)):
        yield Measurement(f"{name}_own", over_ties(values, level))
        yield Measurement(f"{name}_null", over_ties(values, content))
        yield Measurement(f"{name}_spread", spread(values, content))
        yield Measurement(f"{name}_best", largest(values, content))
    distance = removals.distance
    yield Measurement("word_mass_own", torch.where(content, attention * distance, 0).sum(-1))
    yield Measurement("word_mass_null", over_ties(distance, content))
    yield Measurement("word_mass_best", largest(distance, content))
    yield from importance.notes(subject)


def largest(values: Float[Tensor, "batch seq"], content: Bool[Tensor, "batch seq"]) -> Float[Tensor, "batch"]:
    """The largest value in content; NaN where one is undefined."""
    maximum = torch.where(content, values, -torch.inf).amax(-1)
    return torch.where((values.isnan() & content).any(-1) | ~content.any(-1), torch.nan, maximum)


def spread(values: Float[Tensor, "batch seq"], content: Bool[Tensor, "batch seq"]) -> Float[Tensor, "batch"]:
    """Standard deviation over the content positions: that of one drawn at random."""
    middle = over_ties(values, content).unsqueeze(-1)
    return over_ties((values - middle).square(), content).sqrt()
