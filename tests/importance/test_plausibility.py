import itertools
import math

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, f1_score

from attnprobe.data.columns import packed
from attnprobe.importance import plausibility

CONTENT = torch.tensor([[False, True, True, True, True, False]])
# a mark outside content counts for nothing
RATIONALE = torch.tensor([[True, False, True, True, False, False]])
NO_RATIONALE = torch.zeros_like(RATIONALE)


def measure_of(measure, *scores, rationale=RATIONALE):
    """The measure of the four words' scores, the markers at both ends scored 9."""
    text = torch.tensor([[9.0, *scores, 9.0]])
    return float(measure(text, rationale, CONTENT))


@pytest.mark.parametrize(
    ("scores", "hit"),
    [
        pytest.param((1, 5, 2, 0), 1, id="a marked word"),
        pytest.param((6, 5, 2, 0), 0, id="another word"),
        pytest.param((3, 3, 3, 0), 2 / 3, id="two of three level words are marked"),
        pytest.param((0, 0, 0, 0), 0.5, id="all are level"),
        pytest.param((1, math.nan, 2, 0), math.nan, id="an undefined score"),
    ],
)
def test_the_top_hit_of_a_short_text_by_hand(scores, hit):
    top_hit = measure_of(plausibility.top_hit, *scores)
    assert top_hit == pytest.approx(hit, nan_ok=True)


@pytest.mark.parametrize(
    ("scores", "rationale", "mass"),
    [
        pytest.param((6, 1, 2, 1), RATIONALE, 0.3, id="three tenths on marked words"),
        pytest.param((0, 0, 0, 0), RATIONALE, math.nan, id="no mass"),
        pytest.param((6, -1, 2, 1), RATIONALE, math.nan, id="a score below 0"),
        pytest.param((0, 0, 0, 0), NO_RATIONALE, math.nan, id="no mass, nothing marked"),
        pytest.param((1, 1, 1, 1), NO_RATIONALE, 0, id="nothing marked"),
    ],
)
def test_the_mass_inside_the_rationale_of_a_short_text_by_hand(scores, rationale, mass):
    inside = measure_of(plausibility.mass_inside, *scores, rationale=rationale)
    assert inside == pytest.approx(mass, nan_ok=True)


def test_half_of_a_short_text_is_marked():
    assert float(plausibility.covered(RATIONALE, CONTENT)) == 0.5


def test_average_precision_is_sklearns_ties_and_padding_included():
    draw = torch.Generator().manual_seed(3)
    scores = torch.randint(0, 4, (40, 9), generator=draw).double()
    length = torch.randint(1, 10, (40, 1), generator=draw)
    content = torch.arange(9) < length
    rationale = (torch.rand(40, 9, generator=draw) < 0.4) & content
    precision = plausibility.average_precision(scores, rationale, content)
    for row, words in enumerate(content):
        marks = rationale[row, words]
        expected = math.nan
        if marks.any():
            expected = average_precision_score(marks.numpy(), scores[row, words].numpy())
        assert precision[row].item() == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(("n", "marked"), [(1, 1), (4, 1), (4, 3), (5, 2)])
def test_chance_is_the_mean_over_all_orders(n, marked):
    """Two columns of padding change nothing."""
    is_word = torch.arange(n + 2) < n
    is_marked = torch.arange(n + 2) < marked
    chance = plausibility.average_precision_by_chance(is_marked[None], is_word[None])

    orders = torch.tensor([*itertools.permutations(range(n))]).double()
    rationale = is_marked[:n].expand_as(orders)
    content = is_word[:n].expand_as(orders)
    precision = plausibility.average_precision(orders, rationale, content)
    assert chance.item() == pytest.approx(precision.mean().item())


def test_precision_at_the_rationales_size_is_f1_of_as_many_words():
    """Two of four words are marked in the first text, and none in the second."""
    scores = torch.tensor(
        [
            [0.9, 0.8, 0.1, 0.7, 5.0],
            [0.1, 0.2, 0.3, 0.4, 5.0],
        ]
    ).double()
    rationale = torch.zeros(2, 5, dtype=torch.bool)
    rationale[0, [0, 3]] = True
    content = torch.ones(2, 5, dtype=torch.bool)
    content[:, 4] = False

    first, second = plausibility.precision_at_size(scores, rationale, content)

    marked = [1, 0, 0, 1]
    highest = [1, 1, 0, 0]
    assert first.item() == pytest.approx(f1_score(marked, highest))
    assert second.isnan()


WIDE = torch.tensor([[False, True, True, True, True, True, False]])


def column_of(masks):
    """The batch's column of a text of five words, marked so by its annotators."""
    column = torch.zeros(1, 7, dtype=torch.long)
    bits = packed([np.array(mask, bool) for mask in masks])
    column[0, 1:6] = torch.from_numpy(bits).long()
    return column


def halves_of_others(masks):
    """Each annotator's marks beside what at least half of the others marked, where they marked
    anything."""
    pairs = []
    for number, mask in enumerate(masks):
        rest = masks[:number] + masks[number + 1 :]
        votes = np.sum(rest, 0)
        reference = (votes >= len(rest) / 2) & (votes > 0)
        if reference.any():
            pairs.append((mask, reference))
    return pairs


TWO_ANNOTATORS = [
    [1, 1, 0, 0, 0],
    [0, 1, 1, 0, 0],
]
FIVE_ANNOTATORS = [
    [1, 1, 0, 0, 0],
    [0, 0, 0, 0, 0],
    [1, 1, 1, 0, 0],
    [1, 0, 0, 0, 1],
    [0, 1, 0, 0, 1],
]
MARKS = pytest.mark.parametrize(
    "masks",
    [
        pytest.param(TWO_ANNOTATORS, id="two annotators"),
        pytest.param(FIVE_ANNOTATORS, id="five annotators"),
    ],
)


@MARKS
def test_each_annotator_against_what_half_of_the_others_marked(masks):
    human = plausibility.human(column_of(masks), WIDE)
    f1s = []
    precisions = []
    for mask, reference in halves_of_others(masks):
        f1s.append(f1_score(reference, mask, zero_division=0))
        precisions.append(average_precision_score(reference, mask))
    assert human["f1"].item() == pytest.approx(np.mean(f1s))
    assert human["auprc"].item() == pytest.approx(np.mean(precisions))


@MARKS
def test_a_method_against_what_half_of_the_others_marked(masks):
    scores = np.array([0.1, 0.5, 0.3, 0.2, 0.4])
    expected = []
    for _, reference in halves_of_others(masks):
        expected.append(average_precision_score(reference, scores))
    wide_scores = torch.zeros(1, 7, dtype=torch.float64)
    wide_scores[0, 1:6] = torch.from_numpy(scores)
    precision = plausibility.against_others(
        wide_scores, column_of(masks), WIDE, plausibility.average_precision
    )
    assert precision.item() == pytest.approx(np.mean(expected))


def test_nobody_agrees_with_a_text_that_has_no_marks():
    marked = column_of([[1, 0, 0, 0, 0], [1, 0, 0, 0, 0]])
    without_marks = torch.zeros_like(marked)
    both = torch.cat([marked, without_marks])
    first, second = plausibility.human(both, WIDE.expand(2, -1))["f1"]
    assert first == 1
    assert second.isnan()


def test_nobody_agrees_in_a_batch_without_any_marks():
    without_marks = torch.zeros(1, 7, dtype=torch.long)
    human = plausibility.human(without_marks, WIDE)
    assert human["f1"].isnan().all()
