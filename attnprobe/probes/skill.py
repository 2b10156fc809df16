"""Is the most attended item the one that decides? Compared with chance and with the best."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import torch
from annotated_types import Ge
from jaxtyping import Bool, Float
from torch import Tensor

from attnprobe.core.metrics import P_VALUE, PROBABILITY_DIFFERENCE, SHARE, TVD, Metric, Scale
from attnprobe.core.randomness import Draws
from attnprobe.core.readout import Readout
from attnprobe.evidence.claims import Claim
from attnprobe.evidence.evidence import LEAST_GAIN, skill_of
from attnprobe.exact import nulls
from attnprobe.importance.leave_one_out.removal import LeaveOneOut
from attnprobe.models.base import Unit
from attnprobe.probes.base import (
    DESCRIPTION,
    Measurement,
    Note,
    Probe,
    Subject,
    undefined_in,
)
from attnprobe.probes.leave_one_out import checked
from attnprobe.readings.reading import Headline, Reading

NULL = "the same with the own weights in random order, mean of the orders"
SPREAD = "their standard deviation"
METRICS = (
    Metric(
        "state_drop_own",
        PROBABILITY_DIFFERENCE,
        "what the decision loses without the top state, under the model's own attention",
        higher_is_better=True,
    ),
    Metric("state_drop_null", PROBABILITY_DIFFERENCE, NULL),
    Metric("state_drop_spread", Scale("probability", 0, 1), SPREAD),
    Metric(
        "state_drop_best",
        PROBABILITY_DIFFERENCE,
        "with the largest weight where erasing it does most",
    ),
    Metric(
        "state_drop_random",
        PROBABILITY_DIFFERENCE,
        "under random weights as spread out as the own ones",
    ),
    Metric("state_drop_uniform", PROBABILITY_DIFFERENCE, "under equal weights"),
    Metric(
        "state_drop_p",
        P_VALUE,
        "Monte-Carlo, of one text: orders that reach its own",
        higher_is_better=False,
        source="Davison & Hinkley 1997, section 4.2",
    ),
    Metric(
        "state_flip_own",
        SHARE,
        "whether the decision is another one without the top state",
        higher_is_better=True,
    ),
    *(
        Metric(f"state_flip_{kind}", SHARE, "likewise")
        for kind in ("null", "spread", "best", "random", "uniform")
    ),
    Metric("word_distance_own", TVD, "without the most attended word", higher_is_better=True),
    Metric("word_distance_null", TVD, "without a random one, mean"),
    Metric("word_distance_spread", TVD, SPREAD),
    Metric("word_distance_best", TVD, "without the one that does most"),
    Metric(
        "word_flip_own",
        SHARE,
        "whether the decision is another one without the most attended word",
        higher_is_better=True,
    ),
    *(Metric(f"word_flip_{kind}", SHARE, "likewise") for kind in ("null", "spread", "best")),
    Metric(
        "word_mass_own",
        TVD,
        "without a word, mean over the words by their attention",
        higher_is_better=True,
    ),
    Metric("word_mass_null", TVD, "the mean of all words alike"),
    Metric("word_mass_best", TVD, "of the word without which it is largest"),
    *DESCRIPTION,
)


@dataclass
class Skill(Probe):
    """What erasing the top item does, and what it does where the attention means nothing.

    Skill is read off the table: (own − null) / (best − null) of the means over the texts.

    At the state level the top item's state is erased and the other weights are renormalised; at the
    word level the top word is deleted from the text, which is encoded again (leave-one-out). Of
    several top items that are level `own` is their mean.

    Attributes:
        samples: random attentions per text.
        words: measure the word level too. It needs leave-one-out, and is left out for a model that
            attends to sentences.
    """

    name = "skill"
    metrics = METRICS
    one_decision = True
    buffers_per_sample = 8  # two numbers of noise, the weights, and what is left of them
    samples: Annotated[int, Ge(2)] = 99
    words: bool = True

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield the numbers of the state level and, where it is asked for, of the word level."""
        yield from self._state_level(subject.readout, draws)
        if self.words and subject.classifier.unit is Unit.WORD:
            yield from self._word_level(subject)

    def _state_level(self, readout: Readout, draws: Draws) -> Iterator[Measurement]:
        content = readout.content
        level_tops = nulls.is_top(readout.attention, content)
        erased = self._erased_states(readout, draws)

        own_drop = nulls.over_ties(erased["own"].drop, level_tops)
        as_large = (erased["null"].drop >= own_drop - 1e-12).sum(0)
        p = (1 + as_large) / (1 + self.samples)
        yield Measurement("state_drop_p", torch.where(own_drop.isnan(), torch.nan, p))
        for name in ("drop", "flip"):
            effect = {kind: getattr(result, name) for kind, result in erased.items()}
            numbers = {
                "own": nulls.over_ties(effect["own"], level_tops),
                "null": effect["null"].mean(0),
                "spread": effect["null"].std(0),
                "best": _largest(effect["best"], content),
                "random": effect["random"].nanmean(0),
                "uniform": nulls.over_ties(effect["uniform"], content),
            }
            for kind, value in numbers.items():
                yield Measurement(f"state_{name}_{kind}", value)

    def _erased_states(self, readout: Readout, draws: Draws) -> dict[str, nulls.Erased]:
        """Kind of attention → what erasing its top state does, or any state."""
        content = readout.content
        attention = readout.attention
        uniform_noise = draws.uniform(2 * self.samples, content, readout.example_id)
        noise, ties = uniform_noise.split(self.samples)
        normal = draws.normal(self.samples, content, readout.example_id)
        top = nulls.top_of(attention.unsqueeze(0), content, ties[:1])[0]
        return {
            "own": nulls.each_erased(readout, attention),
            "best": nulls.each_erased(readout, attention, top),
            "null": nulls.erased(readout, *nulls.permuted(attention, content, noise, ties)),
            "random": nulls.erased(readout, *nulls.random_like(attention, content, normal)),
            "uniform": nulls.each_erased(readout, nulls.even(content)),
        }

    def _word_level(self, subject: Subject) -> Iterator[Measurement | Note]:
        content = subject.readout.content
        attention = subject.readout.attention
        level_tops = nulls.is_top(attention, content)
        importance = subject.importance("leave_one_out")
        assert isinstance(importance, LeaveOneOut)
        removals = subject.cached(importance.removals)
        effects = {"word_distance": removals.distance, "word_flip": removals.flips}
        for name, values in effects.items():
            mean = nulls.over_ties(values, content)
            variance = nulls.over_ties((values - mean.unsqueeze(-1)).square(), content)
            yield Measurement(f"{name}_own", nulls.over_ties(values, level_tops))
            yield Measurement(f"{name}_null", mean)
            yield Measurement(f"{name}_spread", variance.sqrt())
            yield Measurement(f"{name}_best", _largest(values, content))

        attended = torch.where(content, attention * removals.distance, 0).sum(-1)
        yield Measurement("word_mass_own", attended)
        yield Measurement("word_mass_null", nulls.over_ties(removals.distance, content))
        yield Measurement("word_mass_best", _largest(removals.distance, content))
        yield from importance.notes(subject)


def _largest(
    values: Float[Tensor, "batch seq"], content: Bool[Tensor, "batch seq"]
) -> Float[Tensor, "batch"]:
    """The largest value of each text; NaN where one is undefined, or the text is empty."""
    maximum = torch.where(content, values, -torch.inf).amax(-1)
    is_undefined = undefined_in(values, content) | ~content.any(-1)
    return torch.where(is_undefined, torch.nan, maximum)


LEAST_SKILL = 0.1
"""Smallest relevant skill: a tenth of the way from permuted weights to the best attention."""
LEAST_SKILL_OF_WORDS = 0.2
"""The same for all weights at the level of words: the smallest tenth at which no wrong attention
got a yes in the first calibration. Skill fails where words are redundant, where places count and
where many vote (docs/results/calibration.md), so that the verdict on words goes by
`attnprobe.evidence.deciding_words`."""
STATE = "Serrano & Smith 2019, section 4, with a null that keeps the mechanism"
WORD = "Leave-one-out, beside the same weights in random order and at best (attnprobe)"

QUANTITY = (
    "skill: 0 in the same model under its own weights in random order, 1 at best; up to {} is no "
    f"relevant difference, and it is not asked where the best is not ahead by {LEAST_GAIN}"
)
claim = partial(
    Claim,
    criterion="erasure",
    speaks="for",
    smallest=LEAST_SKILL,
    quantity=QUANTITY.format(LEAST_SKILL),
)
of_state = partial(claim, level="state", source=STATE)
of_word = partial(claim, level="word", source=WORD)
CLAIMS = (
    of_state(
        name="top_state_decides",
        measure=skill_of("state_drop", reach=2.0),  # a difference, from −1 to 1
        primary=True,
        statement=(
            "Erasing the most attended state costs the decision more than it does under an "
            "attention without meaning"
        ),
    ),
    of_word(
        name="top_word_decides",
        measure=skill_of("word_distance"),
        statement=(
            "Deleting the most attended word moves the prediction farther than deleting a random "
            "one"
        ),
    ),
    of_state(
        name="top_state_flips",
        measure=skill_of("state_flip"),
        statement=(
            "Erasing the most attended state flips the decision more often than it does under an "
            "attention without meaning"
        ),
    ),
    of_word(
        name="top_word_flips",
        measure=skill_of("word_flip"),
        statement=(
            "Deleting the most attended word flips the decision more often than deleting a random "
            "one"
        ),
    ),
    of_word(
        name="weights_follow_words",
        measure=skill_of("word_mass"),
        smallest=LEAST_SKILL_OF_WORDS,
        quantity=QUANTITY.format(LEAST_SKILL_OF_WORDS),
        statement="Words weigh more the farther the prediction moves without them",
    ),
)

NAMES = {
    "state_drop": "probability lost without the top state",
    "state_flip": "decision flips without the top state",
    "word_distance": "TVD without the top word",
    "word_flip": "decision flips without the top word",
    "word_mass": "TVD without a word, by its attention",
}
KINDS = {"own": "", "null": ": weights in random order", "best": ": at best"}

READING = Reading(
    probe="skill",
    order=5,
    noted=checked,
    title="Skill: does what it points at decide?",
    claims=CLAIMS,
    about=(
        "A large weight is erased with its item, so any attention moves the prediction. So the "
        "same model is asked again with its own weights in random order, and at its best. Skill "
        "is where its attention stands between the two: 0 is as good as meaningless, 1 as good as "
        "possible. For states, the item's state is erased and the rest renormalised. For words, "
        "the word is deleted and the text read again. The two may differ where the encoder reads "
        "context. A heat map is read as the second."
    ),
    headlines=tuple(
        Headline(f"{statistic}_{kind}", f"  {words}{ending}" if ending else words)
        for statistic, words in NAMES.items()
        for kind, ending in KINDS.items()
    ),
)
