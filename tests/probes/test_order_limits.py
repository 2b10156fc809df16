import itertools
import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from attnprobe.exact.removal_orders import mean_fall, order_limits
from attnprobe.probes.order_limits import READING, OrderLimits
from tests.importance.subjects import subject_of
from tests.probes.tables import values


@dataclass(frozen=True)
class Case:
    """Texts without padding, with a linear decoder of two classes."""

    attention: Tensor
    logits: Tensor

    @property
    def lead(self):
        return self.logits[..., 0] - self.logits[..., 1]

    def limits(self, beam):
        """Of class 0 against class 1."""
        content = torch.ones_like(self.attention, dtype=torch.bool)
        decision = torch.zeros(len(self.attention), dtype=torch.long)
        return order_limits(
            self.attention,
            self.logits,
            content,
            class_=decision,
            rival=decision + 1,
            beam=beam,
        )


def random_case(count, texts=12, seed=0):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(texts, count, generator=generator, dtype=torch.float64)
    logits = torch.randn(texts, count, 2, generator=generator, dtype=torch.float64)
    return Case((2 * scores).softmax(-1), 2 * logits)


def fall_by_hand(attention, lead, order):
    """One order, one prefix at a time."""

    def probability(positions):
        mass = sum(attention[i] for i in positions)
        margin = sum(attention[i] * lead[i] for i in positions)
        return 1 / (1 + math.exp(-margin / mass))

    whole = probability(order)
    falls = []
    for removed in range(1, len(order)):
        falls.append(whole - probability(order[removed:]))
    return sum(falls) / len(falls)


def all_falls(case, row):
    """The falls of all orders of one text."""
    weights = case.attention[row].tolist()
    leads = case.lead[row].tolist()
    orders = itertools.permutations(range(len(weights)))
    return [fall_by_hand(weights, leads, order) for order in orders]


# of 64 sets at a time none of 6 words is missed
@pytest.mark.parametrize(("beam", "least_reached"), [(1, 6), (64, 12)])
def test_every_permutation_lies_between_the_certified_limits_and_the_search_comes_near(
    beam, least_reached
):
    case = random_case(6)
    limits = case.limits(beam)
    reached = 0
    for row in range(12):
        falls = all_falls(case, row)
        lowest = min(falls)
        highest = max(falls)
        assert limits.lowest[row] <= lowest + 1e-12
        assert limits.highest[row] >= highest - 1e-12

        lowest_found = float(limits.lowest_found[row])
        highest_found = float(limits.highest_found[row])
        assert lowest_found >= lowest - 1e-12
        assert highest_found <= highest + 1e-12
        is_lowest_found = abs(lowest_found - lowest) < 1e-12
        is_highest_found = abs(highest_found - highest) < 1e-12
        reached += is_lowest_found and is_highest_found
    assert reached >= least_reached


@pytest.mark.parametrize("row", range(4))
def test_the_fall_of_an_order_is_that_of_its_prefixes_one_by_one(row):
    case = random_case(5)
    orders = torch.tensor(list(itertools.permutations(range(5))))
    falls = mean_fall(case.attention[row], case.lead[row], orders)
    expected = pytest.approx(all_falls(case, row), abs=1e-12)
    assert falls.tolist() == expected


def test_of_an_even_attention_the_limits_are_exact_and_by_hand():
    """The best set of each size then is that of the largest leads: one order goes through all of
    them."""
    leads = [3.0, -1.0, 2.0, 0.5]
    weights = [0.25] * 4
    lead = torch.tensor([leads], dtype=torch.float64)
    case = Case(
        attention=torch.tensor([weights], dtype=torch.float64),
        logits=torch.stack([lead, 0 * lead], -1),
    )
    limits = [float(limit) for limit in case.limits(beam=1)]
    best = fall_by_hand(weights, leads, [0, 2, 3, 1])
    worst = fall_by_hand(weights, leads, [1, 3, 2, 0])
    assert limits == pytest.approx([worst, worst, best, best], abs=1e-12)


NAMES = ["attention", "random", "contribution"]


@pytest.fixture(scope="module")
def numbers():
    return values(OrderLimits(NAMES), subject_of(lengths=[6, 9, 1, 40], classes=3))


@pytest.mark.parametrize("name", NAMES)
def test_the_probe_places_every_order_between_the_limits(numbers, name):
    aopc = numbers[f"aopc_{name}"]
    is_defined = ~aopc.isnan()
    assert is_defined.tolist() == [True, True, False, True]

    place_low = numbers[f"place_low_{name}"][is_defined]
    place_high = numbers[f"place_high_{name}"][is_defined]
    assert (place_low <= place_high + 1e-12).all()

    aopc = aopc[is_defined]
    lowest = numbers["aopc_lowest"][is_defined]
    highest = numbers["aopc_highest"][is_defined]
    assert (lowest <= aopc + 1e-12).all()
    assert (aopc <= highest + 1e-12).all()


def test_where_both_limits_are_reached_the_place_is_exact(numbers):
    is_exact = numbers["limits_reached"] == 1
    low = numbers["place_low_attention"][is_exact]
    assert_close(low, numbers["place_high_attention"][is_exact])


def test_a_position_without_attention_leaves_it_undefined():
    case = random_case(4, texts=1)
    case.attention[0] = torch.tensor([0.5, 0.5, 0.0, 0.0])
    limits = case.limits(beam=4)
    assert all(bool(limit.isnan()) for limit in limits)


def test_weights_without_meaning_come_near_to_the_best_order_so_that_nothing_is_claimed():
    """The decision is what random weights make of random leads: removing the largest first is far
    from random order."""
    case = random_case(8, texts=200)
    attention = case.attention
    class_logits = (attention.unsqueeze(-1) * case.logits).sum(1)
    order = class_logits.argsort(-1, descending=True)
    limits = order_limits(
        attention,
        case.logits,
        torch.ones_like(attention, dtype=torch.bool),
        class_=order[:, 0],
        rival=order[:, 1],
        beam=16,
    )
    classes = order[:, None].expand(-1, 8, -1)
    class_, rival, *_ = case.logits.gather(-1, classes).unbind(-1)
    lead = class_ - rival

    def mean_place(orders):
        texts = zip(attention, lead, orders, strict=True)
        falls = torch.stack([mean_fall(*text) for text in texts])
        place = (falls - limits.lowest) / (limits.highest - limits.lowest)
        return float(place.mean())

    by_attention = mean_place(attention.argsort(-1, descending=True))
    generator = torch.Generator().manual_seed(0)
    random_orders = torch.stack([torch.randperm(8, generator=generator) for _ in range(200)])
    assert by_attention > 0.5 > mean_place(random_orders) + 0.05
    assert not READING.claims
