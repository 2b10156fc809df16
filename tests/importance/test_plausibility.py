import math

import pytest
import torch

from attnprobe.importance.plausibility import covered, mass_inside, top_hit

CONTENT = torch.tensor([[False, True, True, True, True, False]])
RATIONALE = torch.tensor([[True, False, True, True, False, False]])  # a mark outside content counts for nothing


def row(*numbers):
    return torch.tensor([[9.0, *numbers, 9.0]])


def test_by_hand():
    assert float(covered(RATIONALE, CONTENT)) == 0.5
    assert float(top_hit(row(1, 5, 2, 0), RATIONALE, CONTENT)) == 1
    assert float(top_hit(row(6, 5, 2, 0), RATIONALE, CONTENT)) == 0
    assert float(mass_inside(row(6, 1, 2, 1), RATIONALE, CONTENT)) == pytest.approx(0.3)


def test_ties_count_in_part():
    assert float(top_hit(row(3, 3, 3, 0), RATIONALE, CONTENT)) == pytest.approx(2 / 3)
    assert float(top_hit(row(0, 0, 0, 0), RATIONALE, CONTENT)) == 0.5


def test_undefined_scores_stay_undefined():
    assert math.isnan(top_hit(row(1, math.nan, 2, 0), RATIONALE, CONTENT))
    assert math.isnan(mass_inside(row(0, 0, 0, 0), RATIONALE, CONTENT))


def test_no_scores_are_undefined_in_a_text_without_rationale_and_with_padding_too():
    content = torch.tensor([[True, True, False]])
    nothing = torch.zeros(1, 3)
    assert mass_inside(nothing, content & False, content).isnan().all()
    assert mass_inside(nothing + 1, content & False, content).tolist() == [0]
