import itertools
import math

import pytest
import torch

from attnprobe.exact.removal_orders import mean_fall, order_limits
from attnprobe.probes.order_limits import READING, OrderLimits
from tests.importance.subjects import subject_of
from tests.probes.tables import values


def random_case(count, texts=12, seed=0):
    generator = torch.Generator().manual_seed(seed)
    attention = (2 * torch.randn(texts, count, generator=generator, dtype=torch.float64)).softmax(
        -1
    )
    logits = 2 * torch.randn(texts, count, 2, generator=generator, dtype=torch.float64)
    return attention, logits, torch.ones(texts, count, dtype=torch.bool)


def fall_by_hand(attention, lead, order):
    """One order, one prefix at a time."""

    def probability(positions):
        mass = sum(attention[i] for i in positions)
        return 1 / (1 + math.exp(-sum(attention[i] * lead[i] for i in positions) / mass))

    whole = probability(order)
    falls = [whole - probability(order[k:]) for k in range(1, len(order))]
    return sum(falls) / (len(order) - 1)


def all_falls(attention, lead):
    """The falls of all orders of one text."""
    weights = attention.tolist()
    leads = lead.tolist()
    orders = itertools.permutations(range(len(weights)))
    return [fall_by_hand(weights, leads, order) for order in orders]


# of 64 sets at a time none of 6 words is missed
@pytest.mark.parametrize(("beam", "least_reached"), [(1, 6), (64, 12)])
def test_every_permutation_lies_between_the_certified_limits_and_the_search_comes_near(
    beam, least_reached
):
    attention, logits, content = random_case(6)
    zeros = torch.zeros(len(attention), dtype=torch.long)
    limits = order_limits(attention, logits, content, class_=zeros, rival=zeros + 1, beam=beam)
    lead = logits[..., 0] - logits[..., 1]
    reached = 0
    for row in range(len(attention)):
        falls = all_falls(attention[row], lead[row])
        assert limits.lowest[row] <= min(falls) + 1e-12
        assert limits.highest[row] >= max(falls) - 1e-12
        assert min(falls) - 1e-12 <= limits.lowest_found[row]
        assert limits.highest_found[row] <= max(falls) + 1e-12
        is_lowest_found = abs(float(limits.lowest_found[row]) - min(falls)) < 1e-12
        is_highest_found = abs(float(limits.highest_found[row]) - max(falls)) < 1e-12
        reached += is_lowest_found and is_highest_found
    assert reached >= least_reached


@pytest.mark.parametrize("row", range(4))
def test_the_fall_of_an_order_is_that_of_its_prefixes_one_by_one(row):
    attention, logits, _ = random_case(5)
    lead = logits[..., 0] - logits[..., 1]
    orders = torch.tensor(list(itertools.permutations(range(5))))
    falls = mean_fall(attention[row], lead[row], orders)
    assert falls.tolist() == pytest.approx(all_falls(attention[row], lead[row]), abs=1e-12)


def test_of_an_even_attention_the_limits_are_exact_and_by_hand():
    """The best set of each size then is that of the largest leads: one order goes through all of
    them."""
    lead = torch.tensor([[3.0, -1.0, 2.0, 0.5]], dtype=torch.float64)
    logits = torch.stack([lead, 0 * lead], -1)
    even = torch.full((1, 4), 0.25, dtype=torch.float64)
    content = torch.ones(1, 4, dtype=torch.bool)
    zero = torch.zeros(1, dtype=torch.long)
    limits = order_limits(even, logits, content, class_=zero, rival=zero + 1, beam=1)
    best = fall_by_hand([0.25] * 4, lead[0].tolist(), [0, 2, 3, 1])
    worst = fall_by_hand([0.25] * 4, lead[0].tolist(), [1, 3, 2, 0])
    assert [float(limit) for limit in limits] == pytest.approx(
        [worst, worst, best, best], abs=1e-12
    )


NAMES = ["attention", "random", "contribution"]


@pytest.fixture(scope="module")
def numbers():
    return values(OrderLimits(NAMES), subject_of(lengths=[6, 9, 1, 40], classes=3))


@pytest.mark.parametrize("name", NAMES)
def test_the_probe_places_every_order_between_the_limits(numbers, name):
    aopc = numbers[f"aopc_{name}"]
    is_defined = ~aopc.isnan()
    assert is_defined.tolist() == [True, True, False, True]
    low = numbers[f"place_low_{name}"][is_defined]
    high = numbers[f"place_high_{name}"][is_defined]
    assert (low <= high + 1e-12).all()
    assert (numbers["aopc_lowest"][is_defined] <= aopc[is_defined] + 1e-12).all()
    assert (aopc[is_defined] <= numbers["aopc_highest"][is_defined] + 1e-12).all()


def test_where_both_limits_are_reached_the_place_is_exact(numbers):
    is_exact = numbers["limits_reached"] == 1
    low = numbers["place_low_attention"][is_exact]
    torch.testing.assert_close(low, numbers["place_high_attention"][is_exact])


def test_a_position_without_attention_leaves_it_undefined():
    attention, logits, content = random_case(4, texts=1)
    attention[0] = torch.tensor([0.5, 0.5, 0.0, 0.0])
    zero = torch.zeros(1, dtype=torch.long)
    limits = order_limits(attention, logits, content, class_=zero, rival=zero + 1, beam=4)
    assert all(bool(limit.isnan()) for limit in limits)


def test_weights_without_meaning_come_near_to_the_best_order_so_that_nothing_is_claimed():
    """The decision is what random weights make of random leads: removing the largest first is far
    from random order."""
    attention, logits, content = random_case(8, texts=200)
    order = (attention.unsqueeze(-1) * logits).sum(1).argsort(-1, descending=True)
    limits = order_limits(
        attention, logits, content, class_=order[:, 0], rival=order[:, 1], beam=16
    )
    leads = logits.gather(-1, order[:, None].expand(-1, 8, -1))
    lead = leads[..., 0] - leads[..., 1]

    def mean_place(orders):
        texts = zip(attention, lead, orders, strict=True)
        falls = torch.stack([mean_fall(*text) for text in texts])
        return float(((falls - limits.lowest) / (limits.highest - limits.lowest)).mean())

    by_attention = mean_place(attention.argsort(-1, descending=True))
    generator = torch.Generator().manual_seed(0)
    random_orders = torch.stack([torch.randperm(8, generator=generator) for _ in range(200)])
    assert by_attention > 0.5 > mean_place(random_orders) + 0.05
    assert not READING.claims
