import math
from itertools import combinations, permutations, product

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import stats
from scipy.spatial import distance
from torch.nn.functional import pad
from torch.testing import assert_close

from attnprobe.measures import (
    entropy,
    jensen_shannon,
    kendall_tau,
    kendall_tau_test,
    kullback_leibler,
    normalised,
    spearman,
    tenth,
    top_overlap,
    top_tau,
    total_variation,
)

DTYPES = [torch.float32, torch.float64]


def distributions(*shape, seed=0, dtype=torch.float64, zeros=0.3):
    """Random rows that sum to 1, some of them with zeros."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(shape, generator=generator, dtype=dtype) ** 4 + 1e-9
    all_but_first = weights[..., 1:]
    is_kept = torch.rand(all_but_first.shape, generator=generator) > zeros
    all_but_first *= is_kept
    return weights / weights.sum(-1, keepdim=True)


def padded_mask(rows, length, padding):
    """True for the first entries of each row, False for the padding."""
    content = torch.ones(rows, length, dtype=torch.bool)
    return pad(content, (0, padding))


def ranked(*shape, seed=0, values=6):
    """Random rows with many ties."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, values, shape, generator=generator).double()


DIVERGENCES = [jensen_shannon, total_variation]


def gradients(measure, p, q, *mask):
    p = p.clone().requires_grad_()
    q = q.clone().requires_grad_()
    total = measure(p, q, *mask).sum()
    return torch.autograd.grad(total, (p, q))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("measure", "largest"), [(jensen_shannon, math.log(2)), (total_variation, 1.0)]
)
def test_divergences_are_symmetric_bounded_and_zero_between_equals(measure, largest, dtype):
    p = distributions(200, 7, seed=1, dtype=dtype)
    q = distributions(200, 7, seed=2, dtype=dtype)
    value = measure(p, q)
    swapped = measure(q, p)
    from_itself = measure(p, p)
    assert value.dtype == dtype
    assert_close(value, swapped, rtol=0, atol=0)
    assert (from_itself == 0).all()
    assert (value > 0).all()
    assert (value <= largest + 1e-8).all()
    corners = torch.eye(3, dtype=dtype)
    disjoint = measure(corners[0], corners[1])
    assert_close(disjoint, torch.tensor(largest, dtype=dtype))


def test_jensen_shannon_equals_scipy():
    """SciPy's is the distance, whose square the divergence is."""
    p = distributions(200, 9, seed=1)
    q = distributions(200, 9, seed=2)
    scipys_distance = distance.jensenshannon(p, q, axis=-1)
    expected = torch.tensor(scipys_distance**2)
    assert_close(jensen_shannon(p, q), expected)


def test_total_variation_is_the_largest_difference_over_all_events():
    p = distributions(20, 5, seed=1)
    q = distributions(20, 5, seed=2)
    events = list(product([0.0, 1.0], repeat=5))
    is_in_event = torch.tensor(events, dtype=torch.float64)
    differences = (p - q) @ is_in_event.T
    largest = differences.amax(-1)
    assert_close(total_variation(p, q), largest)


@pytest.mark.parametrize("dtype", DTYPES)
def test_tiny_jensen_shannon_keeps_its_digits(dtype):
    """The second-order expansion, Σ (p−q)²/8p, where the textbook's form has lost everything in
    float32."""
    p = distributions(50, 6, dtype=torch.float64, zeros=0)
    entries = torch.arange(300.0).double()
    wave = entries.sin().view(50, 6)
    step = 1e-6 * wave * p
    q = (p + step).to(dtype)
    p = p.to(dtype)
    difference = p.double() - q.double()
    total = p.double() + q.double()
    summands = difference**2 / (4 * total)
    expected = summands.sum(-1)
    assert (expected > 0).all()
    divergence = jensen_shannon(p, q)
    assert_close(divergence.double(), expected, rtol=1e-4, atol=0)


@pytest.mark.parametrize("padding", [0.0, math.nan])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("measure", DIVERGENCES)
def test_padding_changes_neither_value_nor_gradient(measure, dtype, padding):
    p = distributions(40, 6, seed=1, dtype=dtype)
    q = distributions(40, 6, seed=2, dtype=dtype)
    mask = padded_mask(40, 6, padding=4)
    wide_p = pad(p, (0, 4), value=padding)
    wide_q = pad(q, (0, 4), value=padding)
    padded_value = measure(wide_p, wide_q, mask)
    value = measure(p, q)
    assert_close(padded_value, value)

    padded_gradients = gradients(measure, wide_p, wide_q, mask)
    unpadded_gradients = gradients(measure, p, q)
    for padded, gradient in zip(padded_gradients, unpadded_gradients, strict=True):
        expected = pad(gradient, (0, 4))
        assert_close(padded, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("measure", DIVERGENCES)
def test_zeros_without_a_mask_have_a_gradient_of_0(measure, dtype):
    """A trap of torchmetrics' divergence, whose gradient is NaN there."""
    p = distributions(40, 6, seed=1, dtype=dtype)
    q = distributions(40, 6, seed=2, dtype=dtype)
    wide_p = pad(p, (0, 4))
    wide_q = pad(q, (0, 4))
    for gradient in gradients(measure, wide_p, wide_q):
        at_zeros = gradient[..., 6:]
        assert torch.isfinite(gradient).all()
        assert (at_zeros == 0).all()


@pytest.mark.parametrize("measure", DIVERGENCES)
def test_divergence_gradients_equal_finite_differences(measure):
    p = distributions(5, 4, seed=1, zeros=0).requires_grad_()
    q = distributions(5, 4, seed=2, zeros=0).requires_grad_()
    assert torch.autograd.gradcheck(measure, (p, q))
    assert torch.autograd.gradgradcheck(measure, (p, q))


def test_an_adversary_can_climb_jensen_shannon_from_one_hot_rows():
    scores = torch.tensor([[0.0, -200.0, 3.0]], dtype=torch.float64, requires_grad=True)
    one_hot = torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64)
    divergence = jensen_shannon(scores.softmax(-1), one_hot)
    divergence.sum().backward()
    assert scores.grad.isfinite().all()
    assert scores.grad[0, 0] < 0


def test_kullback_leibler_equals_scipy_with_and_without_padding():
    p = distributions(200, 9, seed=1)
    q = distributions(200, 9, seed=2, zeros=0)
    scipys = stats.entropy(p.numpy(), q.numpy(), axis=-1)
    expected = torch.tensor(scipys)
    assert_close(kullback_leibler(p, q), expected)

    mask = padded_mask(200, 9, padding=3)
    wide_p = pad(p, (0, 3), value=math.nan)
    wide_q = pad(q, (0, 3), value=math.nan)
    padded = kullback_leibler(wide_p, wide_q, mask)
    assert_close(padded, expected)


SMALLEST_NORMAL = [(torch.float32, 2.0**-126), (torch.float64, 2.0**-1022)]


@pytest.mark.parametrize("share", [0.0, 1 / 8])
@pytest.mark.parametrize(("dtype", "floor"), SMALLEST_NORMAL)
def test_kullback_leibler_of_a_weight_that_underflowed_is_large_and_finite(dtype, floor, share):
    """Below the smallest normal number a weight counts as that number: 87.3 nats per unit of p in
    float32."""
    p = torch.tensor([0.5, 0.5], dtype=dtype)
    q = torch.tensor([1.0, share * floor], dtype=dtype)
    of_the_first = 0.5 * math.log(0.5 / 1.0)
    of_the_floor = 0.5 * (math.log(0.5) - math.log(floor))
    expected = of_the_first + of_the_floor
    assert kullback_leibler(p, q).item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_kullback_leibler_by_hand(dtype):
    even = torch.tensor([0.5, 0.5], dtype=dtype)
    one_hot = torch.tensor([1.0, 0.0], dtype=dtype)
    between_equals = kullback_leibler(even, even)
    assert between_equals.item() == pytest.approx(0, abs=1e-12)
    from_even = kullback_leibler(one_hot, even)
    assert from_even.item() == pytest.approx(math.log(2), rel=1e-6)


def test_entropy_equals_scipy_and_ignores_what_is_masked():
    p = distributions(50, 6)
    scipys = stats.entropy(p.numpy(), axis=-1)
    expected = torch.tensor(scipys)
    assert_close(entropy(p), expected)

    wide = pad(p, (0, 3), value=math.nan).requires_grad_()
    mask = padded_mask(50, 6, padding=3)
    value = entropy(wide, mask)
    assert_close(value, expected)
    value.sum().backward()
    assert wide.grad.isfinite().all()


def test_the_entropy_of_even_weights_is_the_logarithm_of_their_number():
    even = torch.full((4,), 0.25)
    assert entropy(even).item() == pytest.approx(math.log(4))


def test_normalised_rows_sum_to_one_over_the_mask():
    scores = torch.tensor(
        [
            [1.0, 3.0, 9.0],
            [0.0, 0.0, 5.0],
        ]
    )
    mask = torch.tensor([True, True, False]).expand(2, 3)
    expected = torch.tensor(
        [
            [0.25, 0.75, 0.0],
            [torch.nan, torch.nan, 0.0],
        ]
    )
    assert_close(normalised(scores, mask), expected, equal_nan=True)
    assert_close(normalised(scores[0]), scores[0] / 13)


CORRELATIONS = [kendall_tau, spearman]


UNDEFINED_ROWS = (20, 21, 22)
"""A constant row, one without an entry, and one of a single entry."""


def rows_of_every_kind(dtype):
    """Two times 300 rows and their mask: some without ties, some undefined, the rest with ties."""
    a = ranked(300, 19, seed=1).to(dtype)
    b = ranked(300, 19, seed=2).to(dtype)
    generator = torch.Generator().manual_seed(3)
    # no ties: scipy's exact p-values
    a[:20] += torch.rand(20, 19, generator=generator)
    b[:20] += torch.rand(20, 19, generator=generator)
    mask = torch.rand(300, 19, generator=generator) > 0.4
    a[20] = 4.0
    mask[21] = False
    mask[22] = torch.arange(19) == 3
    return a, b, mask


@pytest.mark.parametrize("dtype", DTYPES)
def test_kendall_and_spearman_equal_scipy_with_ties_constants_and_padding(dtype):
    a, b, mask = rows_of_every_kind(dtype)
    tau, p = kendall_tau_test(a, b, mask)
    tau_alone = kendall_tau(a, b, mask)
    rho = spearman(a, b, mask)
    assert_close(tau, tau_alone, rtol=0, atol=0, equal_nan=True)
    assert tau.dtype == p.dtype == rho.dtype == dtype
    for row in range(300):
        measured = [tau[row], p[row], rho[row]]
        if row in UNDEFINED_ROWS:
            assert np.isnan(measured).all()
            continue
        is_kept = mask[row]
        x = a[row, is_kept].numpy()
        y = b[row, is_kept].numpy()
        kendall = stats.kendalltau(x, y)
        spearmans_rho = stats.spearmanr(x, y).statistic
        expected = [kendall.statistic, kendall.pvalue, spearmans_rho]
        assert_allclose(measured, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("measure", CORRELATIONS)
def test_correlations_at_their_limits(measure):
    row = torch.tensor([0.1, 0.2, 0.3, 0.4])
    reversed_row = row.flip(-1)
    assert measure(row, row) == 1
    assert measure(row, reversed_row) == -1
    infinite = torch.tensor([-torch.inf, 0.0, 1.0, torch.inf])
    assert measure(row, infinite) == 1
    undefined = torch.tensor([0.1, torch.nan, 0.3, 0.4])
    assert measure(row, undefined).isnan()
    empty = row[:0]
    assert measure(empty, empty).isnan()


@pytest.mark.parametrize("measure", CORRELATIONS)
def test_padding_does_not_correlate(measure):
    row = torch.tensor([0.1, 0.2, 0.3, 0.4])
    padded = pad(row, (0, 4))
    reversed_padded = pad(row.flip(-1), (0, 4))
    mask = padded > 0
    # four zeros turned this −1 into +0.6 in the published code
    assert measure(padded, reversed_padded, mask) == -1
    assert measure(padded, reversed_padded) > 0

    with_nan = pad(row, (0, 1), value=torch.nan)
    is_number = ~with_nan.isnan()
    assert measure(with_nan, with_nan, is_number) == 1


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("length", [2, 3, 10, 33, 34, 401])
def test_the_p_value_is_that_of_scipy_on_either_side_of_its_exact_lengths(length, tied):
    generator = torch.Generator().manual_seed(length)
    a, noise = torch.rand(2, 24, length, generator=generator, dtype=torch.float64)
    slope = torch.linspace(-1, 1, 24, dtype=torch.float64)[:, None]
    b = slope * a + 0.3 * noise
    b[0] = a[0]  # no pair disagrees
    b[1] = -a[1]  # all of them do
    a[2] = a[2].sort().values
    b[2] = a[2]
    b[2, :2] = b[2, :2].flip(0)  # one pair does
    if tied:
        a = (3 * a).round()
        b = (3 * b).round()
    tau, p = kendall_tau_test(a, b)
    for x, y, statistic, value in zip(a, b, tau, p, strict=True):
        expected = stats.kendalltau(x, y)
        assert_allclose(statistic, expected.statistic, rtol=1e-9)
        assert_allclose(value, expected.pvalue, rtol=1e-9)


def inversions(first, second):
    """K^(1/2) of two lists by Fagin, Kumar & Sivakumar's four cases, written out."""
    total = 0.0
    items = sorted(set(first) | set(second))
    for i, j in combinations(items, 2):
        pair = {i, j}
        listed_first = pair & set(first)
        listed_second = pair & set(second)
        both_in_first = listed_first == pair
        both_in_second = listed_second == pair
        if both_in_first and both_in_second:
            in_order_in_first = first.index(i) < first.index(j)
            in_order_in_second = second.index(i) < second.index(j)
            total += in_order_in_first != in_order_in_second
        elif both_in_first and listed_second:
            [ahead] = listed_second
            [behind] = pair - listed_second
            total += first.index(ahead) > first.index(behind)
        elif both_in_second and listed_first:
            [ahead] = listed_first
            [behind] = pair - listed_first
            total += second.index(ahead) > second.index(behind)
        elif both_in_first or both_in_second:
            total += 0.5
        else:
            total += 1
    return total


def most_inversions(k, n):
    """Those of the two farthest lists: what they must share stands last, in opposite orders."""
    size = min(k, n)
    shared = max(0, 2 * size - n)
    first = list(range(size))
    new_items = list(range(size, n))[: size - shared]
    shared_items = first[size - shared :]
    second = new_items + shared_items[::-1]
    return inversions(first, second)


def best(values, k):
    positions = range(len(values))
    largest_first = sorted(positions, key=lambda position: -values[position])
    return largest_first[:k]


SIZES = [(3, 8), (3, 5), (3, 4), (2, 2), (5, 3), (4, 4)]


def random_pair(n):
    generator = torch.Generator().manual_seed(n)
    a = torch.rand(40, n, generator=generator, dtype=torch.float64)
    b = torch.rand(40, n, generator=generator, dtype=torch.float64)
    return a, b


@pytest.mark.parametrize(("k", "n"), SIZES)
def test_top_tau_equals_the_four_cases_written_out(k, n):
    a, b = random_pair(n)
    mask = torch.ones(40, n).bool()
    tau = top_tau(a, b, k, mask)
    most = most_inversions(k, n)
    for row in range(40):
        best_of_a = best(a[row].tolist(), k)
        best_of_b = best(b[row].tolist(), k)
        count = inversions(best_of_a, best_of_b)
        expected = 1 - 2 * count / most
        assert tau[row].item() == pytest.approx(expected)
    assert tau.min() >= -1


@pytest.mark.parametrize(("k", "n"), SIZES)
def test_top_tau_of_equal_rows_is_1_and_padding_changes_nothing(k, n):
    a, b = random_pair(n)
    mask = torch.ones(40, n).bool()
    tau_of_equals = top_tau(a, a, k, mask)
    assert_close(tau_of_equals, torch.ones(40).double())

    wide_a = pad(a, (0, 3), value=9.0)
    wide_b = pad(b, (0, 3), value=9.0)
    wide_mask = pad(mask, (0, 3))
    padded = top_tau(wide_a, wide_b, k, wide_mask)
    unpadded = top_tau(a, b, k, mask)
    assert_close(padded, unpadded)


def test_no_two_lists_are_farther_apart_than_the_bound():
    orders = list(permutations(range(4)))
    count = len(orders)
    rows = torch.tensor(orders, dtype=torch.float64)
    mask = torch.ones(count, count, 4).bool()
    tau = top_tau(rows.unsqueeze(1), rows, 2, mask)
    assert tau.min() == -1
    assert tau.max() == 1


def test_overlap_by_hand_with_a_size_of_its_own_per_row():
    a = torch.tensor(
        [
            [0.9, 0.5, 0.1, 0.7],
            [0.9, 0.5, 0.1, 0.7],
            [0.2, 0.3, 5.0, 5.0],
            [1.0, 1.0, 1.0, 0.0],
        ]
    )
    b = torch.tensor(
        [
            [0.1, 0.2, 0.8, 0.9],
            [0.1, 0.2, 0.8, 0.9],
            [0.3, 0.2, 5.0, 5.0],
            [1.0, 1.0, 1.0, 0.0],
        ]
    )
    mask = torch.tensor(
        [
            [True, True, True, True],
            [True, True, True, True],
            [True, True, False, False],
            [True, True, True, True],
        ]
    )
    sizes = torch.tensor([1, 2, 9, 2])
    overlap = top_overlap(a, b, sizes, mask)
    # too few entries: all they have; ties: the earlier ones
    assert overlap.tolist() == [0, 0.5, 1, 1]


def test_nothing_is_said_about_rows_with_nan_or_too_few_entries():
    a = torch.tensor(
        [
            [math.nan, 1.0, 2.0],
            [1.0, 2.0, 3.0],
            [1.0, 2.0, 3.0],
            [1.0, 2.0, math.nan],
        ]
    )
    mask = torch.tensor(
        [
            [True, True, True],
            [False, True, False],
            [False, False, False],
            [True, True, False],
        ]
    )
    tau = top_tau(a, a, 2, mask)
    assert tau.isnan().tolist() == [True, True, True, False]

    sizes = torch.full((4,), 2)
    overlap = top_overlap(a, a, sizes, mask)
    assert overlap.isnan().tolist() == [True, False, True, False]


def test_a_tenth_is_rounded_up():
    counts = torch.tensor([1, 10, 11, 20, 21])
    content = torch.arange(25) < counts.unsqueeze(1)
    assert tenth(content).tolist() == [1, 1, 2, 2, 3]


MEASURES = [jensen_shannon, total_variation, kendall_tau, spearman]
ALL = torch.ones(6).bool()


def overlap_of_two(a, b):
    """The overlap of the two largest entries."""
    return top_overlap(a, b, torch.tensor(2), ALL)


@pytest.mark.parametrize("measure", [*MEASURES, overlap_of_two])
def test_rows_are_independent_and_leading_axes_broadcast(measure):
    a = distributions(3, 4, 6, seed=1)
    b = distributions(4, 6, seed=2)
    values = measure(a, b)
    assert values.shape == (3, 4)
    for i, j in product(range(3), range(4)):
        expected = measure(a[i, j], b[j])
        assert_close(values[i, j], expected)


def test_rows_of_different_length_are_refused():
    message = "rows of 3 and 1 entries: expected two rows of the same length"
    unchecked = jensen_shannon.__wrapped__
    even = torch.ones(3) / 3
    with pytest.raises(ValueError, match=message):
        unchecked(even, torch.ones(1))
