import itertools

import pytest
import torch
from torch.nn.functional import pad

from attnprobe.exact import smallest_flipping_set, smallest_overtaking_sets


def texts(count, seq, classes, *, seed, grid):
    """Random texts: some weights 0, some positions not erasable, some padding. On the grid, weights
    are 64ths and logits small integers: exact in float64 and full of ties."""
    generator = torch.Generator().manual_seed(seed)
    content = torch.rand(count, seq, generator=generator) > 0.15
    content[:, 1] = True
    length = torch.randint(3, seq + 1, (count, 1), generator=generator)
    mask = torch.arange(seq) < length
    if grid:
        draws = (torch.rand(count, 64, generator=generator) * length).long()
        shares = torch.full((count, 64), 1 / 64)
        attention = torch.zeros(count, seq).scatter_add_(1, draws, shares)
        logits = torch.randint(-2, 3, (count, seq, classes), generator=generator).double()
    else:
        scores = torch.randn(count, seq, generator=generator) * 2
        attention = scores.masked_fill(~mask, -torch.inf).softmax(-1)
        logits = torch.randn(count, seq, classes, generator=generator, dtype=torch.float64)
    favourite = torch.randint(0, classes, (count,), generator=generator)
    logits[torch.arange(count), :, favourite] += 1
    return attention.double(), logits, content & mask


def sizes_by_brute_force(attention, logits, content):
    """The decision, and for each class the size of the smallest set of all that lifts it above the
    decision."""
    positions = content.nonzero()[:, 0]
    subsets = list(itertools.product([False, True], repeat=len(positions)))[1:]  # not the empty one
    sets = torch.zeros(len(subsets), len(content), dtype=torch.bool)
    sets[:, positions] = torch.tensor(subsets)
    rest_logits = torch.where(sets, 0, attention) @ logits
    decision = int((attention @ logits).argmax())
    above = rest_logits > rest_logits[:, [decision]]
    sizes = torch.where(above, sets.sum(-1, keepdim=True), len(content) + 1).amin(0)
    sizes = torch.where(sizes > len(content), -1, sizes)
    sizes[decision] = 0
    return decision, sizes


@pytest.mark.parametrize("grid", [True, False])
@pytest.mark.parametrize(
    ("count", "seq", "classes"),
    [(500, 5, 2), (400, 6, 3), (300, 7, 5), (200, 8, 10), (6, 12, 2), (6, 12, 4)],
)
def test_sizes_equal_brute_force_over_all_sets(count, seq, classes, grid):
    attention, logits, content = texts(count, seq, classes, seed=seq, grid=grid)
    overtaking = smallest_overtaking_sets(attention, logits, content)
    flipping = smallest_flipping_set(attention, logits, content)
    for row in range(count):
        decision, sizes = sizes_by_brute_force(attention[row], logits[row], content[row])
        assert overtaking.decision[row] == decision
        assert overtaking.size[row].tolist() == sizes.tolist()
        possible = sizes[sizes > 0]
        assert flipping.size[row] == (possible.min() if len(possible) else -1)
    assert (flipping.size == -1).any() or seq == 12
    assert (flipping.size >= 2).any()


@pytest.mark.parametrize("grid", [True, False])
@pytest.mark.parametrize(("seq", "classes"), [(7, 2), (9, 4), (40, 10)])
def test_erasing_the_members_does_what_is_claimed(seq, classes, grid):
    attention, logits, content = texts(300, seq, classes, seed=1, grid=grid)
    flipping = smallest_flipping_set(attention, logits, content)
    overtaking = smallest_overtaking_sets(attention, logits, content)
    assert not (flipping.members & ~content).any()
    assert torch.equal(flipping.members.sum(-1), flipping.size.clamp(min=0))
    assert torch.equal(overtaking.members.sum(-1), overtaking.size.clamp(min=0))
    flips = flipping.size > 0
    assert torch.equal(flips, flipping.flips_to >= 0)

    rest = torch.where(flipping.members, 0, attention)
    # up to a positive factor, which the grid would not survive
    rest_logits = (rest.unsqueeze(-1) * logits).sum(1)
    decision = overtaking.decision[:, None]
    decision_logit = rest_logits.gather(1, decision).squeeze(1)
    rival_logits = rest_logits.scatter(1, decision, -torch.inf)
    assert torch.equal(rival_logits.argmax(-1)[flips], flipping.flips_to[flips])
    overtakes = rival_logits.amax(-1) > decision_logit
    assert torch.equal(overtakes, flips)


def test_erasing_everything_is_no_flip_and_a_weight_of_one_never_flips():
    content = torch.ones(1, 3, dtype=torch.bool)
    attention = torch.tensor([[0.0, 1.0, 0.0]])
    logits = torch.tensor([[[0.0, 9.0], [1.0, 0.0], [0.0, 9.0]]])
    flipping = smallest_flipping_set(attention, logits, content)
    assert flipping.size.tolist() == [-1]
    assert flipping.flips_to.tolist() == [-1]
    assert not flipping.members.any()
    single = smallest_flipping_set(torch.ones(1, 1), logits[:, :1], content[:, :1])
    assert single.size.tolist() == [-1]


def test_all_content_may_be_erased_where_a_weight_remains():
    attention = torch.tensor([[0.95, 0.05]])
    logits = torch.tensor([[[1.0, 0.0], [0.0, 9.0]]])
    flipping = smallest_flipping_set(attention, logits, torch.tensor([[True, False]]))
    assert flipping.size.tolist() == [1]
    assert flipping.flips_to.tolist() == [1]


def test_ties_are_settled_by_the_lowest_class_and_the_earliest_position():
    content = torch.ones(1, 4, dtype=torch.bool)
    attention = torch.full((1, 4), 0.25)
    logits = torch.tensor([[[0.0, 2.0, 0.0], [0.0, 2.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]])
    flipping = smallest_flipping_set(attention, logits, content)
    assert flipping.size.tolist() == [2]
    assert flipping.flips_to.tolist() == [0]
    assert flipping.members.tolist() == [[True, True, False, False]]


def test_a_tied_decision_is_class_0():
    content = torch.ones(1, 4, dtype=torch.bool)
    attention = torch.full((1, 4), 0.25)
    logits = torch.tensor([[[1.0, 1.0], [0.0, 0.0], [0.0, 1.0], [1.0, 0.0]]])
    flipping = smallest_flipping_set(attention, logits, content)
    assert flipping.size.tolist() == [1]
    assert flipping.flips_to.tolist() == [1]
    assert flipping.members.tolist() == [[False, False, False, True]]


def test_a_third_class_may_win_where_a_rival_overtakes():
    attention = torch.full((1, 3), 1 / 3)
    logits = torch.tensor([[[4.0, 0.0, 0.0], [0.0, 1.0, 2.0], [0.0, 1.0, 1.5]]])
    content = torch.ones(1, 3, dtype=torch.bool)
    assert smallest_overtaking_sets(attention, logits, content).size.tolist() == [[0, 1, 1]]
    assert smallest_flipping_set(attention, logits, content).flips_to.tolist() == [2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_padding_batch_and_precision_change_nothing(dtype):
    attention, logits, content = texts(50, 9, 3, seed=4, grid=False)
    attention = attention.to(dtype)
    logits = logits.to(dtype)
    whole = smallest_flipping_set(attention, logits, content)
    wide = smallest_flipping_set(
        pad(attention, (0, 5)), pad(logits, (0, 0, 0, 5), value=7.0), pad(content, (0, 5))
    )
    assert torch.equal(whole.size, wide.size)
    assert torch.equal(whole.flips_to, wide.flips_to)
    assert torch.equal(pad(whole.members, (0, 5)), wide.members)
    for row in range(50):
        single = smallest_flipping_set(attention[[row]], logits[[row]], content[[row]])
        for name, value in vars(whole).items():
            assert torch.equal(getattr(single, name)[0], value[row])


def test_weights_near_one_do_not_cancel():
    """The rest of the mass, 1e-10 in all, decides once the one large weight is gone; 1e-17 is
    nothing left."""
    rest = torch.tensor([[0.0, 3.0, 4.0, 3.0]], dtype=torch.float64)
    logits = torch.tensor([[[9.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 2.0]]], dtype=torch.float64)
    one_hot = torch.eye(4, dtype=torch.float64)[:1]
    content = torch.ones(1, 4, dtype=torch.bool)
    flipping = smallest_flipping_set(one_hot + 1e-11 * rest, logits, content)
    assert flipping.size.tolist() == [1]
    assert flipping.members.tolist() == [[True, False, False, False]]
    assert smallest_flipping_set(one_hot + 1e-18 * rest, logits, content).size.tolist() == [-1]


TIED_MARGINS = torch.tensor([[-1.0, 1.0, 1.0, -1.0]], dtype=torch.float64)
"""Of class 1 over class 0."""
SHIFTS = [0.0, 1.0, 1 / 3]
"""What both classes have in common decides nothing."""


@pytest.mark.parametrize("shift", SHIFTS)
def test_a_tie_up_to_rounding_is_decided_as_a_tie(shift):
    """Sums that are equal on paper and not in float64: 0.1 + 0.2 − 0.3 is 5.6e-17."""
    weights = torch.tensor([[0.4, 0.1, 0.2, 0.3]], dtype=torch.float64)
    assert (weights[:, 1] + weights[:, 2] - weights[:, 3]).item() != 0
    content = torch.ones(1, 4, dtype=torch.bool)
    logits = torch.stack([torch.full_like(TIED_MARGINS, shift), TIED_MARGINS + shift], -1)
    # without the first a tie; the first and the last have to go
    flipping = smallest_flipping_set(weights, logits, content)
    assert flipping.size.tolist() == [2]
    assert flipping.members.tolist() == [[True, False, False, True]]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("shift", SHIFTS)
def test_a_text_tied_up_to_rounding_is_decided_for_class_0_from_either_side(shift, turned):
    """The first position has no weight, and 0.3 − 0.2 − 0.1 is −2.8e-17 in float64."""
    weights = torch.tensor([[0.0, 1.0, 2.0, 3.0]], dtype=torch.float64) / 6
    content = torch.ones(1, 4, dtype=torch.bool)
    logits = torch.stack([torch.full_like(TIED_MARGINS, shift), TIED_MARGINS + shift], -1)
    if turned:
        logits = logits.flip(-1)
    assert smallest_overtaking_sets(weights, logits, content).decision.tolist() == [0]
    assert smallest_flipping_set(weights, logits, content).size.tolist() == [1]


def test_what_all_classes_have_in_common_neither_costs_digits_nor_makes_a_tie():
    attention = torch.full((1, 2), 0.5, dtype=torch.float64)
    content = torch.ones(1, 2, dtype=torch.bool)
    margins = torch.tensor([[-(2.0**-20), 2.0**-19]], dtype=torch.float64)  # exact beside 2^20
    logits = torch.stack([torch.zeros_like(margins), margins], -1) + 2.0**20
    overtaking = smallest_overtaking_sets(attention, logits, content)
    assert overtaking.decision.tolist() == [1]
    assert overtaking.size.tolist() == [[1, 0]]


def test_no_class_is_ahead_with_less_than_a_trillionth_of_the_mass():
    """Weights over many orders of magnitude: what is kept after the smallest set is never
    rounding."""
    generator = torch.Generator().manual_seed(0)
    attention = (30 * torch.randn(500, 6, generator=generator, dtype=torch.float64)).softmax(-1)
    logits = torch.randn(500, 6, 3, generator=generator, dtype=torch.float64)
    flipping = smallest_flipping_set(attention, logits, torch.ones(500, 6, dtype=torch.bool))
    flips = flipping.size > 0
    assert flips.any()
    assert not flips.all()
    assert (torch.where(flipping.members, 0, attention).sum(-1)[flips] > 1e-12).all()
