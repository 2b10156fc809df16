import numpy as np
import pytest
import torch

from attnprobe.probes.conicity import Conicity, conicity
from tests.probes.tables import subject_of, values
from tests.probes.texts import Text
from tests.toys import toy_batch, toy_classifier


@pytest.fixture(scope="module")
def texts():
    """Texts of four, nine and one words, and what is measured."""
    subject = subject_of(toy_classifier(), toy_batch([4, 9, 1], padding=2))
    return subject, values(Conicity(), subject)


@pytest.mark.parametrize("row", range(3))
def test_each_texts_conicity_is_that_of_numpy(texts, row):
    subject, numbers = texts
    states = Text(subject, row).at_words(subject.outputs.hidden)
    mean = states.mean(0)
    cosines = []
    for state in states:
        lengths = np.linalg.norm(state) * np.linalg.norm(mean)
        cosines.append(state @ mean / lengths)
    assert numbers["conicity"][row] == pytest.approx(np.mean(cosines))


def test_one_state_is_its_own_mean(texts):
    _, numbers = texts
    assert numbers["conicity"][2] == pytest.approx(1)
    assert numbers["conicity_null"][2] == pytest.approx(1)


def test_states_that_point_one_way_have_a_conicity_of_1():
    lengths = torch.tensor([[1.0], [2], [0.5], [9]])
    states = lengths * torch.tensor([3.0, 4])
    content = torch.ones(1, 4, dtype=torch.bool)
    assert conicity(states[None], content) == pytest.approx(1)


def test_the_conicity_of_states_that_cancel_is_undefined():
    states = torch.tensor([[[1.0, 0], [-1, 0], [0, 1], [0, -1]]])
    content = torch.ones(1, 4, dtype=torch.bool)
    assert conicity(states, content).isnan().all()


def test_random_directions_have_what_chance_gives():
    """The cosine of one of n random directions with their mean is about 1 / √n."""
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(200, 16, 300, generator=generator, dtype=torch.float64)
    content = torch.ones(200, 16, dtype=torch.bool)
    mean = conicity(states, content).mean()
    assert float(mean) == pytest.approx(1 / 16**0.5, abs=0.01)
