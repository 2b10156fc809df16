"""Skill: is what attention points at what decides, compared with attentions without meaning and the best one?"""

from attnprobe.report.claims import Claim
from attnprobe.report.reading import Headline, Reading
from attnprobe.report.readings.leave_one_out import checked
from attnprobe.report.skill import LEAST_GAIN, skill_of

SMALLEST = 0.1
"""Skill that is worth a word: a tenth of the way from an attention without meaning to the best one."""
SMALLEST_OF_WORDS = 0.2
"""The same for all weights at the level of words: the least tenth at which no wrong attention got a yes among the first 103
models of the calibration. Raised from 0.1 after false alarms among 403 others, and judged on 650 that came after: yes of 125
of 125 right attentions and of 0 of 224 wrong ones (docs/calibration.md)."""
SCALE = "skill: 0 in the same model under its own weights in random order, 1 at best"
STATE = "Serrano & Smith 2019, section 4, with a null that keeps the mechanism"
WORD = "attnprobe: leave-one-out, compared with the same weights in random order and at best"


REACH = {"state_drop": 2.0}
"""Largest minus smallest value of a statistic, where that is not 1."""


def claim(
    name: str, level: str, statement: str, statistic: str, *, primary: bool = False, smallest: float = SMALLEST
) -> Claim:
    """A claim that attention has this skill."""
    return Claim(
        name=name,
        criterion="erasure",
        statement=statement,
        source=STATE if level == "state" else WORD,
        measure=skill_of(statistic, reach=REACH.get(statistic, 1.0)),
        quantity=f"{SCALE}; up to {smallest} is no relevant difference, and it is not asked where the best is not ahead by "
        f"{LEAST_GAIN}",
        speaks="for",
        level=level,
        smallest=smallest,
        primary=primary,
    )


CLAIMS = (
    claim(
        "top_state_decides", "state",
        "Erasing the most attended state costs the decision more than it does under an attention without meaning",
        "state_drop", primary=True,
    ),
    claim(
        "top_word_decides", "word",
        "Deleting the most attended word from the text moves the prediction farther than deleting a random one",
        "word_distance",
    ),
    claim(
        "top_state_flips", "state",
        "Erasing the most attended state flips the decision more often than it does under an attention without meaning",
        "state_flip",
    ),
    claim(
        "top_word_flips", "word",
        "Deleting the most attended word from the text flips the decision more often than deleting a random one",
        "word_flip",
    ),
    claim(
        "weights_follow_words", "word",
        "Words weigh more the farther the prediction moves without them",
        "word_mass", primary=True, smallest=SMALLEST_OF_WORDS,
    ),
)  # fmt: skip

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
    about=(
        "Erasing the most attended item moves a prediction under any attention, for a large weight is erased with it. So the "
        "same trained model is asked again under its own weights in random order, and at its best. Skill is where its own "
        "attention stands between the two: 0 is as good as meaningless, 1 as good as possible, below 0 is worse than "
        "meaningless. At the level of states the item's state is erased and the other weights are renormalised; at the level "
        "of words the word is deleted from the text, which is encoded again. With an encoder that reads context the two may "
        "differ, and a heat map is read as the second."
    ),
    claims=CLAIMS,
    headlines=tuple(
        Headline(f"{statistic}_{kind}", f"  {words}{ending}" if ending else words)
        for statistic, words in NAMES.items()
        for kind, ending in KINDS.items()
    ),
)
