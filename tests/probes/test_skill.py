from dataclasses import replace

import pytest
import torch

from attnprobe.core.batch import Task
from attnprobe.core.readout import Readout
from attnprobe.importance.leave_one_out.removal import leave_one_out
from attnprobe.probes.skill import Skill
from tests.probes.tables import subject_of, values
from tests.toys import toy_batch, toy_classifier


def of_states(readout, **settings):
    subject = replace(subject_of(toy_classifier(), toy_batch([3])), readout=readout)
    return values(Skill(words=False, **settings), subject)


def deciding(attention_at, mass=0.9, texts=200, words=10):
    """A frozen model in which the first word's state alone says class 1, and an attention with its
    mass elsewhere."""
    logits = torch.zeros(texts, words, 2, dtype=torch.float64)
    logits[:, 0, 1] = 4.0
    logits[:, 1:, 0] = 0.5
    attention = torch.full((texts, words), (1 - mass) / (words - 1), dtype=torch.float64)
    attention[torch.arange(texts), attention_at] = mass
    content = torch.ones(texts, words, dtype=torch.bool)
    return Readout(
        attention, content, torch.arange(texts), Task.SINGLE_LABEL, position_logits=logits
    )


def skill(numbers, name="state_drop"):
    own, null, best = (float(numbers[f"{name}_{kind}"].mean()) for kind in ("own", "null", "best"))
    return (own - null) / (best - null)


def test_attention_on_the_deciding_state_has_skill_1():
    numbers = of_states(deciding(torch.zeros(200, dtype=torch.long)))
    assert skill(numbers) == pytest.approx(1, abs=1e-12)
    assert skill(numbers, "state_flip") == pytest.approx(1, abs=1e-12)
    # the top lies on the deciding word in a tenth of the permutations
    assert numbers["state_drop_p"].max() <= 0.3


def test_attention_on_a_random_state_has_skill_0_and_on_a_wrong_one_less():
    # a tenth of the texts has it right, as the nulls have: its standard error is a seventh of what
    # is to be gained
    assert abs(skill(of_states(deciding(torch.randint(0, 10, (200,)))))) < 0.07
    assert skill(of_states(deciding(torch.full((200,), 7)))) < 0


def test_an_even_attention_has_no_top_and_no_skill():
    readout = deciding(torch.zeros(200, dtype=torch.long), mass=0.1)
    numbers = of_states(readout, samples=400)
    under_uniform = float(numbers["state_drop_uniform"].mean())
    assert float(numbers["state_drop_own"].mean()) == pytest.approx(under_uniform, abs=1e-12)
    assert abs(skill(numbers)) < 0.02


@pytest.fixture(scope="module")
def subject():
    return subject_of(toy_classifier(spread=4), toy_batch([7, 4, 5, 1]))


@pytest.fixture(scope="module")
def numbers(subject):
    return values(Skill(), subject)


@pytest.mark.parametrize("row", range(3))
def test_the_word_level_is_the_arithmetic_of_leave_one_out(subject, numbers, row):
    content = subject.batch.content[row]
    removals = leave_one_out(subject.classifier, subject.batch, subject.outputs)
    distance = removals.distance[row, content].numpy()
    attention = subject.readout.attention[row, content].numpy()
    expected = {
        "word_distance_own": distance[attention.argmax()],
        "word_distance_null": distance.mean(),
        "word_distance_best": distance.max(),
        "word_distance_spread": distance.std(),
        "word_mass_own": attention @ distance,
    }
    measured = {metric: float(numbers[metric][row]) for metric in expected}
    assert measured == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("metric", ["state_drop_own", "word_distance_own"])
def test_nothing_is_left_of_a_text_of_one_word(numbers, metric):
    assert numbers[metric].isnan().tolist() == [False, False, False, True]
