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
    logits[:, 0, 1], logits[:, 1:, 0] = 4.0, 0.5
    attention = torch.full((texts, words), (1 - mass) / (words - 1), dtype=torch.float64)
    attention[torch.arange(texts), attention_at] = mass
    content = torch.ones(texts, words, dtype=torch.bool)
    return Readout(
        attention, content, torch.arange(texts), Task.SINGLE_LABEL, position_logits=logits
    )


def skill(found, name="state_drop"):
    own, null, best = (float(found[f"{name}_{kind}"].mean()) for kind in ("own", "null", "best"))
    return (own - null) / (best - null)


def test_attention_on_the_deciding_state_has_skill_1_and_on_a_random_one_0():
    right = of_states(deciding(torch.zeros(200, dtype=torch.long)))
    assert skill(right) == pytest.approx(1, abs=1e-12)
    assert skill(right, "state_flip") == pytest.approx(1, abs=1e-12)
    assert (
        right["state_drop_p"].max() <= 0.3
    )  # the top lies on the deciding word in a tenth of the permutations
    anywhere = of_states(deciding(torch.randint(0, 10, (200,))))
    # a tenth of the texts has it right, as the nulls have: its standard error is a seventh of what
    # is to be gained
    assert abs(skill(anywhere)) < 0.07
    wrong = of_states(deciding(torch.full((200,), 7)))
    assert skill(wrong) < 0


def test_an_even_attention_has_no_top_and_no_skill():
    readout = deciding(torch.zeros(200, dtype=torch.long), mass=0.1)
    found = of_states(readout, samples=400)
    assert float(found["state_drop_own"].mean()) == pytest.approx(
        float(found["state_drop_uniform"].mean()), abs=1e-12
    )
    assert abs(skill(found)) < 0.02


def test_the_word_level_is_the_arithmetic_of_leave_one_out():
    classifier = toy_classifier(spread=4)
    batch = toy_batch([7, 4, 5, 1])
    subject = subject_of(classifier, batch)
    found = values(Skill(), subject)
    readout = subject.readout
    removed = leave_one_out(classifier, batch, subject.outputs)
    for row in range(3):
        at = batch.content[row]
        distance = removed.distance[row, at].numpy()
        attention = readout.attention[row, at].numpy()
        expected = {
            "own": distance[attention.argmax()],
            "null": distance.mean(),
            "best": distance.max(),
            "spread": distance.std(),
        }
        for kind, value in expected.items():
            assert float(found[f"word_distance_{kind}"][row]) == pytest.approx(value, abs=1e-12)
        assert float(found["word_mass_own"][row]) == pytest.approx(attention @ distance, abs=1e-12)
    for name in ("state_drop_own", "word_distance_own"):  # nothing is left of a text of one word
        assert found[name].isnan().tolist() == [False, False, False, True]
