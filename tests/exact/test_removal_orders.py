import itertools

import numpy as np
import pytest
import torch

from attnprobe.exact import erasure_limits
from tests.exact.test_flipping import texts


def leads_of_all_sets(attention, lead, content):
    """For each number of erased positions, the lead after each set of that size (none where no
    weight is left)."""
    positions = content.nonzero()[:, 0].tolist()
    weighty = (attention >= 1e-12).nonzero()[:, 0].tolist()
    leads = []
    for size in range(len(positions) + 1):
        leads_of_size = []
        for erased in itertools.combinations(positions, size):
            rest = [position for position in weighty if position not in erased]
            mass = sum(float(attention[position]) for position in rest)
            if mass > 0:
                total = sum(float(attention[position] * lead[position]) for position in rest)
                leads_of_size.append(total / mass)
        leads.append(leads_of_size)
    return leads


@pytest.mark.parametrize("grid", [False, True])
def test_no_set_of_its_size_does_more(grid):
    attention, logits, content = texts(40, 8, 3, seed=0, grid=grid)
    class_ = logits.sum(1).argmax(-1)
    rival = logits.sum(1).argmin(-1)
    limits = erasure_limits(attention, logits, content, class_=class_, rival=rival)
    for row in range(40):
        lead = logits[row, :, class_[row]] - logits[row, :, rival[row]]
        for erased, leads in enumerate(leads_of_all_sets(attention[row], lead, content[row])):
            if erased >= 8:
                continue
            if leads:
                assert limits.lowest[row, erased].item() == pytest.approx(min(leads), abs=1e-10)
                assert limits.highest[row, erased].item() == pytest.approx(max(leads), abs=1e-10)
            else:
                assert limits.lowest[row, erased].isnan()
                assert limits.highest[row, erased].isnan()
        assert limits.lowest[row, content[row].sum() + 1 :].isnan().all()


def test_where_the_sets_are_nested_one_order_attains_every_limit():
    generator = torch.Generator().manual_seed(0)
    attention = (torch.randn(500, 5, generator=generator, dtype=torch.float64) * 2).softmax(-1)
    lead = torch.rand(500, 5, generator=generator, dtype=torch.float64) * 3
    zero = torch.zeros(500, dtype=torch.long)
    logits = torch.stack([lead, torch.zeros_like(lead)], -1)
    limits = erasure_limits(
        attention, logits, torch.ones(500, 5, dtype=torch.bool), class_=zero, rival=zero + 1
    )
    nested = limits.lowest_nested
    assert 0 < (~nested).sum() < 50, "both kinds are what the test is about"
    for row in [*range(10), *(~nested).nonzero()[:, 0].tolist()]:
        attains_all = any(
            np.allclose(
                erasure_curve(order, attention[row], lead[row]),
                limits.lowest[row],
                atol=1e-9,
                rtol=0,
            )
            for order in itertools.permutations(range(5))
        )
        assert attains_all == nested[row].item()


def erasure_curve(order, attention, lead):
    """The lead after none, the first, the first two, … positions of the order are erased."""
    curve = []
    for erased in range(len(order)):
        rest = list(order[erased:])
        curve.append((attention[rest] @ lead[rest] / attention[rest].sum()).item())
    return curve
