import itertools
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import pad

from attnprobe.exact import smallest_flipping_set, smallest_overtaking_sets
from attnprobe.exact.flipping import FlippingSet


def texts(count, seq, classes, *, seed, grid):
    """Random texts: some weights 0, some positions not erasable, some padding.

    On the grid, weights are 64ths and logits small integers: exact in float64 and full of ties.
    """
    generator = torch.Generator().manual_seed(seed)
    content = torch.rand(count, seq, generator=generator) > 0.15
    content[:, 1] = True
    length = torch.randint(3, seq + 1, (count, 1), generator=generator)
    mask = torch.arange(seq) < length
    shape = (count, seq, classes)
    if grid:
        attention = sixty_fourths(length, seq, generator)
        logits = torch.randint(-2, 3, shape, generator=generator)
    else:
        scores = 2 * torch.randn(count, seq, generator=generator)
        scores = scores.masked_fill(~mask, -torch.inf)
        attention = scores.softmax(-1)
        logits = torch.randn(shape, generator=generator, dtype=torch.float64)
    favourite = torch.randint(0, classes, (count, 1, 1), generator=generator)
    is_favourite = torch.arange(classes) == favourite
    logits = logits.double() + is_favourite
    return attention.double(), logits, content & mask


def sixty_fourths(length, seq, generator):
    """Weights of texts of these lengths: each of 64 equal shares falls on a random position."""
    count = len(length)
    uniform = torch.rand(count, 64, generator=generator)
    position = (uniform * length).long()
    shares = torch.full((count, 64), 1 / 64)
    return torch.zeros(count, seq).scatter_add_(1, position, shares)


def sizes_by_brute_force(attention, logits, content):
    """The decision, and the size of the smallest set that lifts each class above the decision.

    Every set of content positions is erased in turn, from one position to all of them. The size is
    −1 where no set does it, and 0 for the decision itself.
    """
    text_logits = attention @ logits
    decision = text_logits.argmax().item()
    classes = logits.shape[1]
    sizes = [-1] * classes
    positions = content.nonzero()[:, 0].tolist()
    for size in range(1, len(positions) + 1):
        sets = torch.tensor([*itertools.combinations(positions, size)])
        rest = attention.repeat(len(sets), 1)
        rest.scatter_(1, sets, 0.0)
        rest_logits = rest @ logits
        decision_logit = rest_logits[:, [decision]]
        overtakes = (rest_logits > decision_logit).any(0)
        for label in range(classes):
            if overtakes[label] and sizes[label] == -1:
                sizes[label] = size
    sizes[decision] = 0
    return decision, sizes


@pytest.mark.parametrize("grid", [True, False])
@pytest.mark.parametrize(
    ("count", "seq", "classes"),
    [
        (500, 5, 2),
        (400, 6, 3),
        (300, 7, 5),
        (200, 8, 10),
        (6, 12, 2),
        (6, 12, 4),
    ],
)
def test_sizes_equal_brute_force_over_all_sets(count, seq, classes, grid):
    attention, logits, content = texts(count, seq, classes, seed=seq, grid=grid)
    overtaking = smallest_overtaking_sets(attention, logits, content)
    flipping = smallest_flipping_set(attention, logits, content)

    for row in range(count):
        decision, sizes = sizes_by_brute_force(attention[row], logits[row], content[row])
        possible_sizes = [size for size in sizes if size > 0]
        smallest = min(possible_sizes, default=-1)
        assert overtaking.decision[row] == decision
        assert overtaking.size[row].tolist() == sizes
        assert flipping.size[row] == smallest

    assert (flipping.size == -1).any() or seq == 12
    assert (flipping.size >= 2).any()


SHORT_AND_LONG = pytest.mark.parametrize(("seq", "classes"), [(7, 2), (9, 4), (40, 10)])


@pytest.mark.parametrize("grid", [True, False])
@SHORT_AND_LONG
def test_the_members_are_as_many_positions_of_the_content_as_the_size_says(seq, classes, grid):
    attention, logits, content = texts(300, seq, classes, seed=1, grid=grid)
    flipping = smallest_flipping_set(attention, logits, content)
    overtaking = smallest_overtaking_sets(attention, logits, content)

    outside_content = flipping.members & ~content
    assert not outside_content.any()
    flipping_members = flipping.members.sum(-1)
    assert torch.equal(flipping_members, flipping.size.clamp(min=0))
    overtaking_members = overtaking.members.sum(-1)
    assert torch.equal(overtaking_members, overtaking.size.clamp(min=0))


@pytest.mark.parametrize("grid", [True, False])
@SHORT_AND_LONG
def test_erasing_the_members_does_what_is_claimed(seq, classes, grid):
    attention, logits, content = texts(300, seq, classes, seed=1, grid=grid)
    flipping = smallest_flipping_set(attention, logits, content)
    flips = flipping.size > 0
    assert torch.equal(flips, flipping.flips_to >= 0)

    rest = torch.where(flipping.members, 0, attention)
    # up to a positive factor, which the grid would not survive
    logit_parts = rest.unsqueeze(-1) * logits
    rest_logits = logit_parts.sum(1)
    overtaking = smallest_overtaking_sets(attention, logits, content)
    decision = overtaking.decision[:, None]
    decision_logit = rest_logits.gather(1, decision).squeeze(1)
    rival_logits = rest_logits.scatter(1, decision, -torch.inf)
    highest_rival_logit, rival = rival_logits.max(-1)
    overtakes = highest_rival_logit > decision_logit
    assert torch.equal(overtakes, flips)
    assert torch.equal(rival[flips], flipping.flips_to[flips])


def one_text(attention, logits):
    """The arguments of a solver for a single text, all of it content.

    Args:
        attention: a weight per position.
        logits: a row of one logit per class for each position.
    """
    attention = torch.tensor([attention], dtype=torch.float64)
    logits = torch.tensor([logits], dtype=torch.float64)
    content = torch.ones_like(attention, dtype=torch.bool)
    return attention, logits, content


def two_classes(margins, *, shift=0.0):
    """Logits of a text where class 1 leads by `margins`, and `shift` is added to both classes."""
    return [[shift, margin + shift] for margin in margins]


def test_erasing_everything_is_no_flip():
    text = one_text([1.0], [[0.0, 9.0]])
    flipping = smallest_flipping_set(*text)
    assert flipping.size.tolist() == [-1]


def test_a_weight_of_one_never_flips():
    logits = [
        [0.0, 9.0],
        [1.0, 0.0],
        [0.0, 9.0],
    ]
    text = one_text([0.0, 1.0, 0.0], logits)
    flipping = smallest_flipping_set(*text)
    assert flipping.size.tolist() == [-1]
    assert flipping.flips_to.tolist() == [-1]
    assert not flipping.members.any()


def test_all_content_may_be_erased_where_a_weight_remains():
    weights = [0.95, 0.05]
    position_logits = [
        [1.0, 0.0],
        [0.0, 9.0],
    ]
    attention, logits, _ = one_text(weights, position_logits)
    content = torch.tensor([[True, False]])
    flipping = smallest_flipping_set(attention, logits, content)
    assert flipping.size.tolist() == [1]
    assert flipping.flips_to.tolist() == [1]


def test_ties_are_settled_by_the_lowest_class_and_the_earliest_position():
    logits = [
        [0.0, 2.0, 0.0],
        [0.0, 2.0, 0.0],
        [1.0, 0.0, 0.0],
        [0.0, 0.0, 1.0],
    ]
    text = one_text([0.25] * 4, logits)
    flipping = smallest_flipping_set(*text)
    assert flipping.size.tolist() == [2]
    assert flipping.flips_to.tolist() == [0]
    assert flipping.members.tolist() == [[True, True, False, False]]


def test_a_tied_decision_is_class_0():
    logits = [
        [1.0, 1.0],
        [0.0, 0.0],
        [0.0, 1.0],
        [1.0, 0.0],
    ]
    text = one_text([0.25] * 4, logits)
    flipping = smallest_flipping_set(*text)
    assert flipping.size.tolist() == [1]
    assert flipping.flips_to.tolist() == [1]
    assert flipping.members.tolist() == [[False, False, False, True]]


def test_a_third_class_may_win_where_a_rival_overtakes():
    logits = [
        [4.0, 0.0, 0.0],
        [0.0, 1.0, 2.0],
        [0.0, 1.0, 1.5],
    ]
    text = one_text([1 / 3] * 3, logits)
    overtaking = smallest_overtaking_sets(*text)
    assert overtaking.size.tolist() == [[0, 1, 1]]
    flipping = smallest_flipping_set(*text)
    assert flipping.flips_to.tolist() == [2]


def assert_equal_sets(flipping, expected):
    assert torch.equal(flipping.size, expected.size)
    assert torch.equal(flipping.flips_to, expected.flips_to)
    assert torch.equal(flipping.members, expected.members)


@pytest.fixture(params=[torch.float32, torch.float64])
def fifty_texts(request):
    """Attention, logits and content of texts of nine positions, in either precision."""
    dtype = request.param
    attention, logits, content = texts(50, 9, 3, seed=4, grid=False)
    return attention.to(dtype), logits.to(dtype), content


def test_padding_changes_nothing(fifty_texts):
    attention, logits, content = fifty_texts
    expected = smallest_flipping_set(attention, logits, content)
    wide_attention = pad(attention, (0, 5))
    wide_logits = pad(logits, (0, 0, 0, 5), value=7.0)
    wide_content = pad(content, (0, 5))
    padded = smallest_flipping_set(wide_attention, wide_logits, wide_content)
    members = padded.members[:, :9]
    padding = padded.members[:, 9:]
    assert not padding.any()
    without_padding = replace(padded, members=members)
    assert_equal_sets(without_padding, expected)


def test_a_text_alone_has_the_set_it_has_in_its_batch(fifty_texts):
    batch = smallest_flipping_set(*fifty_texts)
    for row in range(50):
        text = [column[[row]] for column in fifty_texts]
        single = smallest_flipping_set(*text)
        expected = FlippingSet(
            size=batch.size[[row]],
            members=batch.members[[row]],
            flips_to=batch.flips_to[[row]],
        )
        assert_equal_sets(single, expected)


@pytest.mark.parametrize(
    ("unit", "size", "members"),
    [
        pytest.param(1e-11, 1, [True, False, False, False], id="1e-10 of the mass decides"),
        pytest.param(1e-18, -1, [False] * 4, id="1e-17 of the mass is nothing left"),
    ],
)
def test_weights_near_one_do_not_cancel(unit, size, members):
    """What little mass there is beside one large weight decides once that weight is gone."""
    weights = [1.0, 3 * unit, 4 * unit, 3 * unit]
    logits = [
        [9.0, 0.0],
        [0.0, 1.0],
        [1.0, 0.0],
        [0.0, 2.0],
    ]
    text = one_text(weights, logits)
    flipping = smallest_flipping_set(*text)
    assert flipping.size.tolist() == [size]
    assert flipping.members.tolist() == [members]


TIED_MARGINS = [-1.0, 1.0, 1.0, -1.0]
"""Of class 1 over class 0."""
SHIFTS = [0.0, 1.0, 1 / 3]
"""What both classes have in common decides nothing."""


@pytest.mark.parametrize("shift", SHIFTS)
def test_a_tie_up_to_rounding_is_decided_as_a_tie(shift):
    """Sums that are equal on paper and not in float64: 0.1 + 0.2 − 0.3 is 5.6e-17."""
    assert 0.1 + 0.2 - 0.3 != 0
    # without the first a tie; the first and the last have to go
    logits = two_classes(TIED_MARGINS, shift=shift)
    text = one_text([0.4, 0.1, 0.2, 0.3], logits)
    flipping = smallest_flipping_set(*text)
    assert flipping.size.tolist() == [2]
    assert flipping.members.tolist() == [[True, False, False, True]]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("shift", SHIFTS)
def test_a_text_tied_up_to_rounding_is_decided_for_class_0_from_either_side(shift, turned):
    """The first position has no weight, and 0.3 − 0.2 − 0.1 is −2.8e-17 in float64."""
    weights = [0.0, 1 / 6, 2 / 6, 3 / 6]
    logits = two_classes(TIED_MARGINS, shift=shift)
    attention, logits, content = one_text(weights, logits)
    if turned:
        logits = logits.flip(-1)
    overtaking = smallest_overtaking_sets(attention, logits, content)
    assert overtaking.decision.tolist() == [0]
    flipping = smallest_flipping_set(attention, logits, content)
    assert flipping.size.tolist() == [1]


def test_what_all_classes_have_in_common_neither_costs_digits_nor_makes_a_tie():
    margins = [-(2.0**-20), 2.0**-19]  # exact beside 2^20
    logits = two_classes(margins, shift=2.0**20)
    text = one_text([0.5, 0.5], logits)
    overtaking = smallest_overtaking_sets(*text)
    assert overtaking.decision.tolist() == [1]
    assert overtaking.size.tolist() == [[1, 0]]


def test_no_class_is_ahead_with_less_than_a_trillionth_of_the_mass():
    """Weights over many orders of magnitude: what is kept after the smallest set is never
    rounding."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(500, 6, generator=generator, dtype=torch.float64)
    attention = (30 * scores).softmax(-1)
    logits = torch.randn(500, 6, 3, generator=generator, dtype=torch.float64)
    content = torch.ones(500, 6, dtype=torch.bool)
    flipping = smallest_flipping_set(attention, logits, content)

    flips = flipping.size > 0
    assert flips.any()
    assert not flips.all()
    rest = torch.where(flipping.members, 0, attention)
    rest_mass = rest.sum(-1)[flips]
    assert (rest_mass > 1e-12).all()
