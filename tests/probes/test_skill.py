from dataclasses import replace

import pytest
import torch

from attnprobe.core.readout import Readout
from attnprobe.importance.leave_one_out.removal import leave_one_out
from attnprobe.probes.skill import Skill
from tests.probes.tables import subject_of, values
from tests.probes.texts import Text, numbers_of
from tests.toys import toy_batch, toy_classifier


def of_states(readout, **settings):
    subject = replace(subject_of(toy_classifier(), toy_batch([3])), readout=readout)
    return values(Skill(words=False, **settings), subject)


def deciding(attention_at, mass=0.9):
    """A frozen model of 200 texts of ten words.

    The first word's state alone says class 1. The attention has this mass on one word of each text.
    """
    texts = len(attention_at)
    logits = torch.zeros(texts, 10, 2, dtype=torch.float64)
    logits[:, 0, 1] = 4.0
    logits[:, 1:, 0] = 0.5
    attention = torch.full((texts, 10), (1 - mass) / 9, dtype=torch.float64)
    attention[torch.arange(texts), attention_at] = mass
    return Readout(
        attention=attention,
        content=torch.ones(texts, 10, dtype=torch.bool),
        example_id=torch.arange(texts),
        position_logits=logits,
    )


def skill(numbers, name="state_drop"):
    """How far attention is on the way from chance to the best."""
    own = numbers[f"{name}_own"].mean()
    null = numbers[f"{name}_null"].mean()
    best = numbers[f"{name}_best"].mean()
    return float((own - null) / (best - null))


FIRST_WORDS = torch.zeros(200, dtype=torch.long)


def test_attention_on_the_deciding_state_has_skill_1():
    numbers = of_states(deciding(FIRST_WORDS))
    assert skill(numbers) == pytest.approx(1, abs=1e-12)
    assert skill(numbers, "state_flip") == pytest.approx(1, abs=1e-12)
    # the top lies on the deciding word in a tenth of the permutations
    assert numbers["state_drop_p"].max() <= 0.3


def test_attention_on_a_random_state_has_skill_0():
    """A tenth of the texts has it right, as the nulls have.

    The skill's standard error is the deviation √(0.1 · 0.9) / √200 of that share, over the 0.9 that
    is to be gained: 0.024.
    """
    generator = torch.Generator().manual_seed(0)
    random_words = torch.randint(0, 10, (200,), generator=generator)
    numbers = of_states(deciding(random_words))
    assert abs(skill(numbers)) < 0.07


def test_attention_on_a_wrong_state_has_less_than_none():
    numbers = of_states(deciding(torch.full((200,), 7)))
    assert skill(numbers) < 0


def test_an_even_attention_has_no_top_and_no_skill():
    readout = deciding(FIRST_WORDS, mass=0.1)
    numbers = of_states(readout, samples=400)
    own = numbers["state_drop_own"].mean()
    uniform = numbers["state_drop_uniform"].mean()
    assert float(own) == pytest.approx(float(uniform), abs=1e-12)
    assert abs(skill(numbers)) < 0.02


@pytest.fixture(scope="module")
def subject():
    return subject_of(toy_classifier(spread=4), toy_batch([7, 4, 5, 1]))


@pytest.fixture(scope="module")
def numbers(subject):
    return values(Skill(), subject)


@pytest.mark.parametrize("row", range(3))
def test_the_word_level_is_the_arithmetic_of_leave_one_out(subject, numbers, row):
    text = Text(subject, row)
    removals = leave_one_out(subject.classifier, subject.batch, subject.outputs)
    distance = text.at_words(removals.distance)
    weights = text.weights
    expected = {
        "word_distance_own": distance[weights.argmax()],
        "word_distance_null": distance.mean(),
        "word_distance_best": distance.max(),
        "word_distance_spread": distance.std(),
        "word_mass_own": weights @ distance,
    }
    result = numbers_of(numbers, row)
    for metric, number in expected.items():
        assert result[metric] == pytest.approx(number, abs=1e-12), metric


@pytest.mark.parametrize("metric", ["state_drop_own", "word_distance_own"])
def test_nothing_is_left_of_a_text_of_one_word(numbers, metric):
    assert numbers[metric].isnan().tolist() == [False, False, False, True]
