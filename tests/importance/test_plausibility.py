import itertools
import math

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, f1_score

from attnprobe.data.columns import packed
from attnprobe.importance import plausibility

CONTENT = torch.tensor([[False, True, True, True, True, False]])
RATIONALE = torch.tensor(
    [[True, False, True, True, False, False]]
)  # a mark outside content counts for nothing


def row(*numbers):
    return torch.tensor([[9.0, *numbers, 9.0]])


def test_the_measures_of_a_short_text_are_those_computed_by_hand():
    assert float(plausibility.covered(RATIONALE, CONTENT)) == 0.5
    assert float(plausibility.top_hit(row(1, 5, 2, 0), RATIONALE, CONTENT)) == 1
    assert float(plausibility.top_hit(row(6, 5, 2, 0), RATIONALE, CONTENT)) == 0
    assert float(plausibility.mass_inside(row(6, 1, 2, 1), RATIONALE, CONTENT)) == pytest.approx(
        0.3
    )
    # ties count in part
    assert float(plausibility.top_hit(row(3, 3, 3, 0), RATIONALE, CONTENT)) == pytest.approx(2 / 3)
    assert float(plausibility.top_hit(row(0, 0, 0, 0), RATIONALE, CONTENT)) == 0.5
    # undefined scores stay undefined
    assert math.isnan(plausibility.top_hit(row(1, math.nan, 2, 0), RATIONALE, CONTENT))
    assert math.isnan(plausibility.mass_inside(row(0, 0, 0, 0), RATIONALE, CONTENT))
    assert math.isnan(plausibility.mass_inside(row(6, -1, 2, 1), RATIONALE, CONTENT))
    assert plausibility.mass_inside(row(0, 0, 0, 0), RATIONALE & False, CONTENT).isnan().all()
    assert plausibility.mass_inside(row(1, 1, 1, 1), RATIONALE & False, CONTENT).tolist() == [0]


def test_average_precision_is_sklearns_ties_and_padding_included():
    draw = torch.Generator().manual_seed(3)
    scores = torch.randint(0, 4, (40, 9), generator=draw).double()
    content = torch.arange(9) < torch.randint(1, 10, (40, 1), generator=draw)
    rationale = (torch.rand(40, 9, generator=draw) < 0.4) & content
    precision = plausibility.average_precision(scores, rationale, content)
    for row in range(40):
        if not rationale[row].any():
            assert precision[row].isnan()
            continue
        words = content[row]
        expected = average_precision_score(
            rationale[row, words].numpy(), scores[row, words].numpy()
        )
        assert precision[row].item() == pytest.approx(expected)


@pytest.mark.parametrize(("n", "marked"), [(1, 1), (4, 1), (4, 3), (5, 2)])
def test_chance_is_the_mean_over_all_orders(n, marked):
    rationale = (torch.arange(n) < marked)[None]
    content = torch.ones(1, n, dtype=torch.bool)
    orders = torch.tensor(list(itertools.permutations(range(n)))).double()
    count = len(orders)
    precision = plausibility.average_precision(
        orders, rationale.expand(count, -1), content.expand(count, -1)
    )
    chance = plausibility.average_precision_by_chance(
        torch.nn.functional.pad(rationale, (0, 2)), torch.nn.functional.pad(content, (0, 2))
    )
    assert chance.item() == pytest.approx(precision.mean().item())


def test_precision_at_the_rationales_size_is_f1_of_as_many_words():
    scores = torch.tensor([[0.9, 0.8, 0.1, 0.7, 5.0], [0.1, 0.2, 0.3, 0.4, 5.0]]).double()
    rationale = torch.tensor([[True, False, False, True, False], [False] * 5])
    content = torch.tensor([[True, True, True, True, False]] * 2)
    precision = plausibility.precision_at_size(scores, rationale, content)
    assert precision[0].item() == pytest.approx(f1_score([1, 0, 0, 1], [1, 1, 0, 0]))
    assert precision[1].isnan()


WIDE = torch.tensor([[False, True, True, True, True, True, False]])


def column_of(masks):
    column = torch.zeros(1, 7, dtype=torch.long)
    column[0, 1:6] = torch.from_numpy(packed([np.array(mask, bool) for mask in masks])).long()
    return column


@pytest.mark.parametrize(
    "masks",
    [
        [[1, 1, 0, 0, 0], [0, 1, 1, 0, 0]],
        [[1, 1, 0, 0, 0], [0, 0, 0, 0, 0], [1, 1, 1, 0, 0], [1, 0, 0, 0, 1], [0, 1, 0, 0, 1]],
    ],
)
def test_each_annotator_against_what_half_of_the_others_marked(masks):
    scores = np.array([0.1, 0.5, 0.3, 0.2, 0.4])
    f1s = []
    precisions = []
    method_precisions = []
    for number, mask in enumerate(masks):
        rest = masks[:number] + masks[number + 1 :]
        votes = np.sum(rest, 0)
        reference = (votes >= len(rest) / 2) & (votes > 0)
        if reference.any():
            f1s.append(f1_score(reference, mask, zero_division=0))
            precisions.append(average_precision_score(reference, mask))
            method_precisions.append(average_precision_score(reference, scores))
    human = plausibility.human(column_of(masks), WIDE)
    assert human["f1"].item() == pytest.approx(np.mean(f1s))
    assert human["auprc"].item() == pytest.approx(np.mean(precisions))
    wide = torch.zeros(1, 7, dtype=torch.float64)
    wide[0, 1:6] = torch.from_numpy(scores)
    method = plausibility.against_others(
        wide, column_of(masks), WIDE, plausibility.average_precision
    )
    assert method.item() == pytest.approx(np.mean(method_precisions))


def test_nobody_agrees_with_a_text_that_has_no_marks():
    column = torch.cat(
        [column_of([[1, 0, 0, 0, 0], [1, 0, 0, 0, 0]]), torch.zeros(1, 7, dtype=torch.long)]
    )
    human = plausibility.human(column, WIDE.expand(2, -1))
    assert human["f1"][0] == 1
    assert human["f1"][1].isnan()
    assert plausibility.human(column[1:], WIDE)["f1"].isnan().all()  # a batch without any
