import numpy as np
import pytest
import torch

from attnprobe.probes.conicity import Conicity, conicity
from tests.probes.tables import subject_of, values
from tests.toys import toy_batch, toy_classifier


def test_numpy_text_by_text():
    model = toy_classifier()
    batch = toy_batch([4, 9, 1], padding=2)
    subject = subject_of(model, batch)
    found = values(Conicity(), subject)
    for row in range(3):
        states = subject.outputs.hidden[row, batch.content[row]].double().numpy()
        middle = states.mean(0)
        cosines = [
            state @ middle / (np.linalg.norm(state) * np.linalg.norm(middle)) for state in states
        ]
        assert found["conicity"][row] == pytest.approx(np.mean(cosines))
    assert found["conicity"][2] == pytest.approx(1)  # one state is its own mean
    assert found["conicity_null"][2] == pytest.approx(1)


def test_states_that_point_one_way_and_states_that_cancel():
    there = torch.ones(1, 4).bool()
    one_way = torch.tensor([[1.0], [2], [0.5], [9]]) * torch.tensor([3.0, 4])
    assert conicity(one_way[None], there) == pytest.approx(1)
    cross = torch.tensor([[[1.0, 0], [-1, 0], [0, 1], [0, -1]]])
    assert conicity(cross, there).isnan().all()


def test_random_directions_have_what_chance_gives():
    """Of n random directions in many dimensions a cosine with the mean is about 1 / √n."""
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(200, 16, 300, generator=generator, dtype=torch.float64)
    found = conicity(states, torch.ones(200, 16).bool()).mean()
    assert float(found) == pytest.approx(0.25, abs=0.01)
