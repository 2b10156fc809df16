from itertools import combinations

import pytest
import torch

from attnprobe.core.readout import Readout
from attnprobe.probes.near_ties import NearTies, near_ties, top_gap
from tests.probes.tables import values


def readout_of(*weights):
    attention = torch.tensor(weights, dtype=torch.float64)
    content = attention >= 0
    logits = torch.zeros(*attention.shape, 2, dtype=torch.float64)
    return Readout(
        attention.clamp(min=0), content, torch.arange(len(attention)), position_logits=logits
    )


@pytest.fixture(scope="module")
def texts():
    """The weights of 30 texts."""
    generator = torch.Generator().manual_seed(3)
    content = torch.rand(30, 12, generator=generator) < 0.8
    scores = torch.randn(30, 12, generator=generator, dtype=torch.float64)
    attention = (0.1 * scores).masked_fill(~content, -torch.inf).softmax(-1)
    return attention, content


def test_near_ties_are_counted_over_all_pairs_one_by_one(texts):
    attention, content = texts
    near = near_ties(attention, content, 0.05)
    for row in range(30):
        weights = attention[row, content[row]].tolist()
        pairs = list(combinations(weights, 2))
        level = sum(abs(a - b) <= 0.05 * max(a, b) for a, b in pairs)
        assert near[row] == pytest.approx(level / len(pairs))


def test_the_top_gap_is_that_of_the_two_largest_weights(texts):
    attention, content = texts
    gap = top_gap(attention, content)
    for row in range(30):
        weights = attention[row, content[row]].tolist()
        second, first = sorted(weights)[-2:]
        assert gap[row] == pytest.approx((first - second) / first)


def test_equal_weights_are_all_level_and_far_ones_never():
    equal = [0.25, 0.25, 0.25, 0.25]
    distinct = [0.8, 0.15, 0.04, 0.01]
    numbers = values(NearTies(samples=200), readout_of(equal, distinct))
    assert numbers["near_ties"].tolist() == [1, 0]
    assert numbers["top_gap"].tolist() == pytest.approx([0, 0.8125])
    tau_of_equal, tau_of_distinct = numbers["tau_moved"]
    assert tau_of_equal.isnan()
    assert tau_of_distinct == 1
    equal_stays, distinct_stays = numbers["top_stays"]
    assert equal_stays == pytest.approx(0.25, abs=0.1)  # by chance
    assert distinct_stays == 1


def test_two_of_three_weights_that_noise_exchanges_half_of_the_time():
    numbers = values(NearTies(samples=2000), readout_of([0.4, 0.4 * (1 - 1e-7), 0.2]))
    # τ is 1 in one order of the two and 1/3 in the other
    assert float(numbers["tau_moved"]) == pytest.approx(2 / 3, abs=0.03)
    assert float(numbers["top_stays"]) == pytest.approx(0.5, abs=0.05)


def test_weights_of_nothing_are_level_and_a_text_of_one_word_has_no_pairs():
    numbers = values(NearTies(), readout_of([0.5, 0.5, 0, 0], [1.0, -1, -1, -1]))
    assert numbers["near_ties"][0] == pytest.approx(2 / 6)
    assert numbers["near_ties"][1].isnan()
    assert numbers["top_gap"][1].isnan()
