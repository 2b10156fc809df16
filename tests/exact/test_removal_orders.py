import itertools
import math

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
            if rest:
                mean_lead = lead_of(rest, attention, lead)
                leads_of_size.append(mean_lead)
        leads.append(leads_of_size)
    return leads


def lead_of(rest, attention, lead):
    """The mean lead of these positions under their weights."""
    weights = attention[rest]
    weighted_sum = weights @ lead[rest]
    return (weighted_sum / weights.sum()).item()


@pytest.mark.parametrize("grid", [False, True])
def test_no_set_of_its_size_does_more(grid):
    attention, logits, content = texts(40, 8, 3, seed=0, grid=grid)
    total = logits.sum(1)
    class_ = total.argmax(-1)
    rival = total.argmin(-1)
    limits = erasure_limits(attention, logits, content, class_=class_, rival=rival)
    for row, text_logits in enumerate(logits):
        lead = text_logits[:, class_[row]] - text_logits[:, rival[row]]
        leads_by_size = leads_of_all_sets(attention[row], lead, content[row])
        sizes = len(leads_by_size)
        lowest_limits = limits.lowest[row]
        highest_limits = limits.highest[row]
        for erased, leads in enumerate(leads_by_size[:8]):
            lowest = min(leads, default=math.nan)
            highest = max(leads, default=math.nan)
            assert lowest_limits[erased].item() == pytest.approx(lowest, abs=1e-10, nan_ok=True)
            assert highest_limits[erased].item() == pytest.approx(highest, abs=1e-10, nan_ok=True)
        assert lowest_limits[sizes:].isnan().all()


def test_where_the_sets_are_nested_one_order_attains_every_limit():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(500, 5, generator=generator, dtype=torch.float64)
    attention = (2 * scores).softmax(-1)
    lead = 3 * torch.rand(500, 5, generator=generator, dtype=torch.float64)
    nothing = torch.zeros_like(lead)
    logits = torch.stack([lead, nothing], -1)
    content = torch.ones(500, 5, dtype=torch.bool)
    class_ = torch.zeros(500, dtype=torch.long)
    rival = torch.ones(500, dtype=torch.long)
    limits = erasure_limits(attention, logits, content, class_=class_, rival=rival)

    is_nested = limits.lowest_nested
    not_nested = (~is_nested).nonzero()[:, 0].tolist()
    assert 0 < len(not_nested) < 50, "both kinds are what the test is about"
    for row in [*range(10), *not_nested]:
        lowest = limits.lowest[row]
        attains_all = False
        for order in itertools.permutations(range(5)):
            curve = erasure_curve(order, attention[row], lead[row])
            attains_all |= np.allclose(curve, lowest, atol=1e-9, rtol=0)
        assert attains_all == is_nested[row].item()


def erasure_curve(order, attention, lead):
    """The lead after none, the first, the first two, … positions of the order are erased."""
    curve = []
    for erased in range(len(order)):
        rest = list(order[erased:])
        curve.append(lead_of(rest, attention, lead))
    return curve
