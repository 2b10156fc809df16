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
            if rest:
                weights = attention[rest]
                mean_lead = weights @ lead[rest] / weights.sum()
                leads_of_size.append(mean_lead.item())
        leads.append(leads_of_size)
    return leads


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
        for erased, leads in enumerate(leads_by_size[:8]):
            lowest = min(leads, default=float("nan"))
            highest = max(leads, default=float("nan"))
            lowest_limit = limits.lowest[row, erased].item()
            highest_limit = limits.highest[row, erased].item()
            assert lowest_limit == pytest.approx(lowest, abs=1e-10, nan_ok=True)
            assert highest_limit == pytest.approx(highest, abs=1e-10, nan_ok=True)
        beyond_text = limits.lowest[row, len(leads_by_size) :]
        assert beyond_text.isnan().all()


def test_where_the_sets_are_nested_one_order_attains_every_limit():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(500, 5, generator=generator, dtype=torch.float64)
    attention = (2 * scores).softmax(-1)
    lead = 3 * torch.rand(500, 5, generator=generator, dtype=torch.float64)
    logits = torch.stack([lead, torch.zeros_like(lead)], -1)
    content = torch.ones(500, 5, dtype=torch.bool)
    class_ = torch.zeros(500, dtype=torch.long)
    rival = torch.ones(500, dtype=torch.long)
    limits = erasure_limits(attention, logits, content, class_=class_, rival=rival)

    not_nested = (~limits.lowest_nested).nonzero()[:, 0].tolist()
    assert 0 < len(not_nested) < 50, "both kinds are what the test is about"
    for row in [*range(10), *not_nested]:
        lowest = limits.lowest[row]
        attains_all = False
        for order in itertools.permutations(range(5)):
            curve = erasure_curve(order, attention[row], lead[row])
            attains_all |= np.allclose(curve, lowest, atol=1e-9, rtol=0)
        assert attains_all == limits.lowest_nested[row].item()


def erasure_curve(order, attention, lead):
    """The lead after none, the first, the first two, … positions of the order are erased."""
    curve = []
    for erased in range(len(order)):
        rest = list(order[erased:])
        weights = attention[rest]
        mean_lead = weights @ lead[rest] / weights.sum()
        curve.append(mean_lead.item())
    return curve
