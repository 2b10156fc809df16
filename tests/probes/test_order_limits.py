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

    def p(kept):
        mass = sum(attention[i] for i in kept)
        return 1 / (1 + math.exp(-sum(attention[i] * lead[i] for i in kept) / mass))

    whole = p(order)
    return sum(whole - p(order[k:]) for k in range(1, len(order))) / (len(order) - 1)


@pytest.mark.parametrize("beam", [1, 64])
def test_every_permutation_lies_between_the_certified_limits_and_the_search_comes_near(beam):
    attention, logits, content = random_case(6)
    zeros = torch.zeros(len(attention), dtype=torch.long)
    limits = order_limits(attention, logits, content, class_=zeros, rival=zeros + 1, beam=beam)
    lead = logits[..., 0] - logits[..., 1]
    reached = 0
    for row in range(len(attention)):
        weights = attention[row].tolist()
        leads = lead[row].tolist()
        falls = [fall_by_hand(weights, leads, order) for order in itertools.permutations(range(6))]
        low, low_found, high_found, high = (float(one[row]) for one in limits)
        assert low <= min(falls) + 1e-12
        assert high >= max(falls) - 1e-12
        assert min(falls) - 1e-12 <= low_found
        assert high_found <= max(falls) + 1e-12
        reached += abs(low_found - min(falls)) < 1e-12 and abs(high_found - max(falls)) < 1e-12
    assert reached >= (12 if beam == 64 else 6)  # of 64 sets at a time none of 6 words is missed


def test_the_fall_of_an_order_is_that_of_its_prefixes_one_by_one():
    attention, logits, _ = random_case(5)
    lead = logits[..., 0] - logits[..., 1]
    orders = torch.tensor(list(itertools.permutations(range(5))))
    for row in range(4):
        expected = [
            fall_by_hand(attention[row].tolist(), lead[row].tolist(), order.tolist())
            for order in orders
        ]
        assert mean_fall(attention[row], lead[row], orders).tolist() == pytest.approx(
            expected, abs=1e-12
        )


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
    assert [float(one) for one in limits] == pytest.approx([worst, worst, best, best], abs=1e-12)


def test_the_probe_places_every_order_between_the_limits():
    names = ["attention", "random", "contribution"]
    found = values(OrderLimits(names), subject_of(lengths=[6, 9, 1, 40], classes=3))
    for name in names:
        low = found[f"place_low_{name}"]
        high = found[f"place_high_{name}"]
        own = found[f"aopc_{name}"]
        defined = ~own.isnan()
        assert defined.tolist() == [True, True, False, True]
        assert (low[defined] <= high[defined] + 1e-12).all()
        assert (found["aopc_lowest"][defined] <= own[defined] + 1e-12).all()
        assert (own[defined] <= found["aopc_highest"][defined] + 1e-12).all()
    exact = found["limits_reached"] == 1
    torch.testing.assert_close(
        found["place_low_attention"][exact], found["place_high_attention"][exact]
    )


def test_a_position_without_attention_leaves_it_undefined():
    attention, logits, content = random_case(4, texts=1)
    attention[0] = torch.tensor([0.5, 0.5, 0.0, 0.0])
    zero = torch.zeros(1, dtype=torch.long)
    limits = order_limits(attention, logits, content, class_=zero, rival=zero + 1, beam=4)
    assert all(bool(one.isnan()) for one in limits)


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

    def place(orders):
        falls = torch.stack([mean_fall(*one) for one in zip(attention, lead, orders, strict=True)])
        return float(((falls - limits.lowest) / (limits.highest - limits.lowest)).mean())

    own = place(attention.argsort(-1, descending=True))
    generator = torch.Generator().manual_seed(0)
    shuffled = place(torch.stack([torch.randperm(8, generator=generator) for _ in range(200)]))
    assert own > 0.5 > shuffled + 0.05
    assert not READING.claims
