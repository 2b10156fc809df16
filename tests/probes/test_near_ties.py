import math
from itertools import combinations

import pytest
import torch

from attnprobe.core.readout import Readout
from attnprobe.probes.near_ties import NearTies, near_ties, top_gap
from tests.probes.tables import values
from tests.probes.texts import numbers_of


def readout_of(*weights):
    """Texts of these weights, those below 0 being padding."""
    attention = torch.tensor(weights, dtype=torch.float64)
    return Readout(
        attention=attention.clamp(min=0),
        content=attention >= 0,
        example_id=torch.arange(len(attention)),
        position_logits=torch.zeros(*attention.shape, 2, dtype=torch.float64),
    )


@pytest.fixture(scope="module")
def texts():
    """The weights of 30 texts."""
    generator = torch.Generator().manual_seed(3)
    content = torch.rand(30, 12, generator=generator) < 0.8
    scores = torch.randn(30, 12, generator=generator, dtype=torch.float64) / 10
    attention = scores.masked_fill(~content, -torch.inf).softmax(-1)
    return attention, content


def test_near_ties_are_counted_over_all_pairs_one_by_one(texts):
    attention, content = texts
    near = near_ties(attention, content, 0.05)
    for row in range(30):
        weights = attention[row, content[row]].tolist()
        is_near = []
        for a, b in combinations(weights, 2):
            difference = abs(a - b)
            is_near.append(difference <= 0.05 * max(a, b))
        assert near[row] == pytest.approx(sum(is_near) / len(is_near))


def test_the_top_gap_is_that_of_the_two_largest_weights(texts):
    attention, content = texts
    gap = top_gap(attention, content)
    for row in range(30):
        weights = attention[row, content[row]].tolist()
        second, first = sorted(weights)[-2:]
        assert gap[row] == pytest.approx((first - second) / first)


def test_equal_weights_are_all_level():
    """The top of four stays the top by chance alone."""
    equal = readout_of([0.25, 0.25, 0.25, 0.25])
    numbers = numbers_of(values(NearTies(samples=400), equal), 0)
    assert numbers["near_ties"] == 1
    assert numbers["top_gap"] == 0
    assert math.isnan(numbers["tau_moved"])
    assert numbers["top_stays"] == pytest.approx(0.25, abs=0.1)


def test_weights_that_are_far_apart_are_never_level():
    distinct = readout_of([0.8, 0.15, 0.04, 0.01])
    numbers = numbers_of(values(NearTies(samples=200), distinct), 0)
    assert numbers["near_ties"] == 0
    assert numbers["top_gap"] == pytest.approx(0.8125)
    assert numbers["tau_moved"] == 1
    assert numbers["top_stays"] == 1


def test_two_of_three_weights_that_noise_exchanges_half_of_the_time():
    """τ is 1 in one order of the two and 1/3 in the other."""
    nearly_equal = readout_of([0.4, 0.4 * (1 - 1e-7), 0.2])
    numbers = numbers_of(values(NearTies(samples=2000), nearly_equal), 0)
    assert numbers["tau_moved"] == pytest.approx(2 / 3, abs=0.03)
    assert numbers["top_stays"] == pytest.approx(0.5, abs=0.05)


def test_weights_of_nothing_are_level_and_a_text_of_one_word_has_no_pairs():
    readout = readout_of([0.5, 0.5, 0, 0], [1.0, -1, -1, -1])
    numbers = values(NearTies(), readout)
    assert numbers["near_ties"][0] == pytest.approx(2 / 6)
    assert numbers["near_ties"][1].isnan()
    assert numbers["top_gap"][1].isnan()
