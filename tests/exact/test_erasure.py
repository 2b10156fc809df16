import itertools

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from attnprobe.core.readout import Readout
from attnprobe.exact import smallest_flipping_set
from attnprobe.exact.erasure import (
    WinningSet,
    decision,
    erase_each,
    erase_in_order,
    overtaken,
    smallest_winning_set,
)
from attnprobe.measures import LN2
from benchmarks import reference
from tests.exact.test_flipping import texts
from tests.toys import rows_of, toy_batch, toy_classifier, toy_readout, undecided


def readout_of(attention, position_logits, content=None, *, linear=True):
    """A readout of these position logits, which shows them or (not linear) only decodes by them."""
    attention = torch.as_tensor(attention, dtype=torch.float64)
    position_logits = position_logits.double()
    if content is None:
        content = torch.ones_like(attention, dtype=torch.bool)
    ids = torch.arange(len(attention))
    readout = Readout(attention, content, ids, position_logits=position_logits)
    if linear:
        return readout
    return Readout(attention, content, ids, decode=readout.logits)


@pytest.mark.parametrize("question", [False, True])
@pytest.mark.parametrize("classes", [2, 4])
def test_single_erasures_equal_the_published_loop(classes, question):
    lengths = [9, 4, 1, *[2, 3, 5] * 6]
    batch = toy_batch(lengths, padding=2, question=question)
    classifier = toy_classifier(classes=classes, spread=8, question=question)
    classifier = undecided(classifier, batch)
    outputs, readout = toy_readout(classifier, batch)
    result = erase_each(readout)
    assert result.flips.nansum() > 0
    assert result.divergence[2].isnan().all()  # one word: nothing is left
    for row in range(21):
        query = None if outputs.query is None else outputs.query[[row]]

        def decode(attended, query=query):
            return classifier.decoder(attended[None], query)[0]

        divergence, flips = reference.erase_singly(
            decode, outputs.hidden[row], readout.attention[row], batch.content[row]
        )
        # the textbook's form of the divergence adds 1e-10 against log 0
        assert_close(result.divergence[row], divergence, atol=1e-9, rtol=1e-6, equal_nan=True)
        assert_close(result.flips[row], flips, equal_nan=True)


def test_a_weight_of_nearly_one_costs_no_precision():
    rest = 1e-11
    weights = [1 - 3 * rest, rest, 2 * rest]
    logits = torch.tensor(
        [
            [9.0, 0.0],
            [0.0, 1.0],
            [0.0, 2.0],
        ]
    )
    result = erase_each(readout_of([weights], logits[None]))
    divergence = result.divergence[0, 0]

    before = torch.tensor([9.0, 0.0], dtype=torch.float64)
    # without the first: weights 1/3 and 2/3
    after = torch.tensor([0.0, 5 / 3], dtype=torch.float64)
    expected = reference.divergence(before.softmax(-1), after.softmax(-1))
    assert_close(divergence, expected, atol=1e-9, rtol=0)
    assert result.flips[0].tolist() == [1, 0, 0]


@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize(
    ("rest", "undefined"),
    [
        (0.0, True),
        (1e-33, True),
        (0.9e-12, True),
        (2e-12, False),
    ],
)
def test_erasing_a_position_is_undefined_where_less_than_a_trillionth_of_the_mass_is_left(
    rest, undefined, linear
):
    """Rounding may leave 1e-33 beside a weight of 1: renormalised, it would decide alone."""
    weights = [1 - rest, rest]
    logits = torch.tensor([[[1.0, 0.0], [0.0, 3.0]]])
    result = erase_each(readout_of([weights], logits, linear=linear))
    assert result.divergence[0].isnan().tolist() == [undefined, False]
    assert result.flips[0].isnan().tolist() == [undefined, False]
    if not undefined:
        assert result.flips[0].tolist() == [1, 0]


def test_whether_a_lead_is_rounding_goes_by_the_largest_logit():
    lead = 1e-9
    logits = torch.tensor(
        [
            [0.0, lead, -1e4],
            [0.0, lead, -1.0],
            [0.0, lead, 1.0],
        ],
        dtype=torch.float64,
    )
    decision = torch.tensor([0, 0, 0])
    assert overtaken(logits, decision).tolist() == [False, True, True]


LENGTHS = [20, 30, 9]


@pytest.fixture
def classifier():
    return undecided(toy_classifier(classes=3, spread=4), toy_batch(LENGTHS))


@pytest.fixture
def readout(classifier):
    return toy_readout(classifier, toy_batch(LENGTHS))[1]


def test_a_divergence_is_between_0_and_ln_2(readout):
    divergence = erase_each(readout).divergence
    is_within = (divergence >= 0) & (divergence <= LN2)
    assert is_within.sum() == sum(LENGTHS)


def test_padding_changes_no_erasure(classifier, readout):
    divergence = erase_each(readout).divergence
    count = erase_in_order(readout, readout.attention).count
    assert (count > 0).any()

    padded_batch = toy_batch(LENGTHS, padding=7)
    _, padded = toy_readout(classifier, padded_batch)
    padded_divergence = erase_each(padded).divergence
    length = divergence.shape[1]
    text_divergence = padded_divergence[:, :length]
    assert_close(text_divergence, divergence, atol=1e-12, rtol=0, equal_nan=True)
    padded_count = erase_in_order(padded, padded.attention).count
    assert torch.equal(padded_count, count)


@pytest.mark.parametrize("row", [0, 1, 2])
def test_a_text_alone_is_erased_as_in_its_batch(classifier, readout, row):
    text = rows_of(toy_batch(LENGTHS), [row])
    _, single = toy_readout(classifier, text)
    with_markers = LENGTHS[row] + 2
    expected = erase_each(readout).divergence[row, :with_markers]
    [divergence] = erase_each(single).divergence
    assert_close(divergence, expected, atol=1e-12, rtol=0, equal_nan=True)

    batch_count = erase_in_order(readout, readout.attention).count
    [count] = erase_in_order(single, single.attention).count
    assert count == batch_count[row]


def random_readout(count, seq, classes, *, linear=True):
    attention, logits, content = texts(count, seq, classes, seed=0, grid=False)
    has_weight = attention > 0
    return readout_of(attention, logits, content | has_weight, linear=linear)


@pytest.mark.parametrize("classes", [2, 4])
def test_erasures_in_order_equal_the_published_loop_on_hidden_states(classes):
    batch = toy_batch([12, 7, 1, 2, 9, 15], padding=1)
    classifier = toy_classifier(classes=classes, spread=4)
    classifier = undecided(classifier, batch)
    outputs, readout = toy_readout(classifier, batch)
    result = erase_in_order(readout, readout.attention)
    assert (result.count > 0).any()
    for row, weights in enumerate(readout.attention):
        words = batch.content[row].sum()
        largest_first = weights.argsort(descending=True)
        order = largest_first[:words].tolist()
        hidden = outputs.hidden[row]
        count = reference.erase_until_flip(classifier.decoder, hidden, weights, order)
        assert result.count[row] == count
        if count > 0:
            erased_weights = weights[order[:count]]
            erased_mass = erased_weights.sum().item()
            assert result.mass[row].item() == pytest.approx(erased_mass)


@pytest.mark.parametrize("sign", [1, -1])
def test_any_decoder_gives_the_same_as_a_linear_one_in_order(sign):
    linear = random_readout(80, 9, 3)
    general = random_readout(80, 9, 3, linear=False)
    order = sign * linear.attention
    expected = erase_in_order(linear, order)
    result = erase_in_order(general, order)
    assert (expected.count > 0).any()
    assert result.count.equal(expected.count)
    assert_close(result.mass, expected.mass, equal_nan=True)


def test_any_decoder_gives_the_same_as_a_linear_one_for_single_erasures():
    expected = erase_each(random_readout(80, 9, 3))
    result = erase_each(random_readout(80, 9, 3, linear=False))
    assert_close(result.divergence, expected.divergence, equal_nan=True)
    assert_close(result.flips, expected.flips, equal_nan=True)


def test_the_best_order_for_two_classes_is_the_optimum():
    """By how much each position speaks for the decision."""
    readout = random_readout(200, 12, 2)
    attention = readout.attention
    first_class, second_class = readout.position_logits.unbind(-1)
    lead_of_first = first_class - second_class
    contribution = attention * lead_of_first
    is_first = decision(readout) == 0
    order = torch.where(is_first[:, None], contribution, -contribution)

    result = erase_in_order(readout, order)

    best = smallest_flipping_set(attention, readout.position_logits, readout.content)
    best_weights = torch.where(best.members, attention, 0)
    assert result.count.equal(best.size)
    assert_close(result.mass.nan_to_num(), best_weights.sum(-1))


@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize(
    ("weights", "margins", "count"),
    [
        pytest.param([1.0, 1e-33], [-1.0, 3.0], -1, id="rounding is left"),
        pytest.param([1.0, 0.9e-12], [-1.0, 1.0], -1, id="less than a trillionth is left"),
        pytest.param([1.0, 2e-12], [-1.0, 1.0], 1, id="more than a trillionth is left"),
        # 0.1 + 0.2 − 0.3 is 5.6e-17 in float64, then 0.2 − 0.3 and −0.3 are left
        pytest.param([0.4, 0.1, 0.2, 0.3], [-1.0, 1.0, 1.0, -1.0], -1, id="a tie is no flip"),
        pytest.param([0.4, 0.3, 0.2, 0.1], [-1.0, -1.0, 1.0, 1.0], 2, id="a flip"),
    ],
)
def test_next_to_no_mass_and_ties_up_to_rounding_are_no_flip(weights, margins, count, linear):
    margins = torch.tensor([margins])
    nothing = torch.zeros_like(margins)
    logits = torch.stack([nothing, margins], -1)
    readout = readout_of([weights], logits, linear=linear)
    first_to_last = torch.arange(len(weights), 0, -1.0)
    result = erase_in_order(readout, first_to_last[None])
    assert result.count.tolist() == [count]


def smallest_size_by_brute_force(margins):
    """The fewest columns without which every row has a positive sum; −1 where none do it."""
    count = margins.shape[1]
    for size in range(count):
        for erased in itertools.combinations(range(count), size):
            rest = np.delete(margins, erased, axis=1)
            if (rest.sum(1) > 0).all():
                return size
    return -1


def random_margins(draw, rivals, count, *, integers):
    """By how much each position speaks for the class over each rival."""
    shape = (rivals, count)
    weight = draw.dirichlet(np.full(count, 0.5))
    margins = draw.normal(0.2, 1, shape) * weight
    if integers:  # ties and zeros, exact in binary
        margins = draw.integers(-3, 5, shape).astype(float)
    return margins


SIZES = pytest.mark.parametrize(
    ("rivals", "count"),
    [
        (1, 6),
        (2, 7),
        (3, 8),
        (4, 9),
        (9, 8),
    ],
)


@SIZES
@pytest.mark.parametrize("integers", [False, True])
def test_winning_sets_equal_brute_force_over_all_sets(rivals, count, integers):
    draw = np.random.default_rng([rivals, count, integers])
    sizes = set()
    for _ in range(60):
        margins = random_margins(draw, rivals, count, integers=integers)
        result = smallest_winning_set(margins)
        size = smallest_size_by_brute_force(margins)
        # sums of exactly 0 satisfy the solver and not us: there the bounds may stay apart
        is_open = result.size == -1 and result.bound != -1
        assert result.size == result.bound or integers
        assert result.size == size or is_open
        assert result.bound <= size or size == -1
        sizes.add(result.size)
    assert len(sizes) > 2


@SIZES
@pytest.mark.parametrize("integers", [False, True])
def test_without_a_search_the_bounds_of_a_winning_set_hold(rivals, count, integers):
    draw = np.random.default_rng([rivals, count, integers])
    for _ in range(60):
        margins = random_margins(draw, rivals, count, integers=integers)
        sorted_only = smallest_winning_set(margins, nodes=0)
        size = smallest_size_by_brute_force(margins)
        assert sorted_only.bound <= size or size == -1
        assert size <= sorted_only.size or sorted_only.size == -1


# 0.1 + 0.2 − 0.3 is 5.6e-17 in float64: a tie, which erasing the last position breaks
TIE = [[0.1, 0.2, -0.3]]


TWO_OPPOSED_RIVALS = [[-3.0, 1.0, 1.0], [1.0, -3.0, 1.0]]
"""Alone, either rival is beaten by erasing one position; both together only by erasing two."""


ONE_OF_TWO_RIVALS = [[1.0, -2.0], [-2.0, 1.0]]
"""Each rival can be beaten, but never by the same position."""


@pytest.mark.parametrize(
    ("margins", "least", "smallest"),
    [
        pytest.param(TWO_OPPOSED_RIVALS, 0.0, WinningSet(2, 2), id="two rivals"),
        pytest.param(ONE_OF_TWO_RIVALS, 0.0, WinningSet(-1, -1), id="one of two rivals"),
        pytest.param(
            np.ones((2, 3)), np.array([0.0, 3.0]), WinningSet(-1, -1), id="3 is not above 3"
        ),
        pytest.param(TIE, 1e-12, WinningSet(1, 1), id="a tie"),
        pytest.param(TIE, 0.0, WinningSet(0, 0), id="a lead by rounding"),
    ],
)
def test_the_smallest_winning_sets_of_small_problems_are_those_found_by_hand(
    margins, least, smallest
):
    assert smallest_winning_set(np.array(margins), least=least) == smallest
