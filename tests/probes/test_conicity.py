import numpy as np
import pytest
import torch

from attnprobe.probes.conicity import Conicity, conicity
from tests.probes.tables import subject_of, values
from tests.toys import toy_batch, toy_classifier


def test_each_texts_conicity_is_that_of_numpy():
    model = toy_classifier()
    batch = toy_batch([4, 9, 1], padding=2)
    subject = subject_of(model, batch)
    numbers = values(Conicity(), subject)
    for row in range(3):
        states = subject.outputs.hidden[row, batch.content[row]].double().numpy()
        mean = states.mean(0)
        lengths = np.linalg.norm(states, axis=1) * np.linalg.norm(mean)
        cosines = states @ mean / lengths
        assert numbers["conicity"][row] == pytest.approx(np.mean(cosines))
    assert numbers["conicity"][2] == pytest.approx(1)  # one state is its own mean
    assert numbers["conicity_null"][2] == pytest.approx(1)


def test_states_that_point_one_way_have_a_conicity_of_1():
    states = torch.tensor([[1.0], [2], [0.5], [9]]) * torch.tensor([3.0, 4])
    assert conicity(states[None], torch.ones(1, 4).bool()) == pytest.approx(1)


def test_the_conicity_of_states_that_cancel_is_undefined():
    states = torch.tensor([[[1.0, 0], [-1, 0], [0, 1], [0, -1]]])
    assert conicity(states, torch.ones(1, 4).bool()).isnan().all()


def test_random_directions_have_what_chance_gives():
    """The cosine of one of n random directions with their mean is about 1 / √n."""
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(200, 16, 300, generator=generator, dtype=torch.float64)
    numbers = conicity(states, torch.ones(200, 16).bool()).mean()
    assert float(numbers) == pytest.approx(0.25, abs=0.01)
