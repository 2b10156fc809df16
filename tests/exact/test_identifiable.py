import itertools

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch.nn.functional import pad
from torch.testing import assert_close

from attnprobe import UserError
from attnprobe.exact import linear_programme, weight_ranges


def vertices(attention, values):
    """All attentions [rows, seq] at the polytope's corners: solutions with no more weights than
    equations.

    The equations: each row sums to 1, and the values' weighted sum over all rows stays as it is.
    """
    rows, seq, _ = values.shape
    weight_count = rows * seq
    row_sums = np.kron(np.eye(rows), np.ones(seq))
    value_sums = values.reshape(weight_count, -1).T.numpy()
    equations = np.vstack([row_sums, value_sums])
    limits = equations @ attention.ravel().numpy()
    rank = np.linalg.matrix_rank(equations)
    corners = []
    for size in range(1, rank + 1):
        for support in itertools.combinations(range(weight_count), size):
            columns = equations[:, support]
            solution = np.linalg.lstsq(columns, limits, rcond=None)[0]
            error = np.abs(columns @ solution - limits).max()
            if error < 1e-9 and (solution > -1e-9).all():
                corner = np.zeros(weight_count)
                corner[list(support)] = solution
                corners.append(corner.reshape(rows, seq))
    return np.array(corners)


def drawn(rows, seq, dim, *, seed, zeros=0):
    """Random attention, of whose weights so many are 0 in each row, and random values."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(rows, seq, generator=generator, dtype=torch.float64)
    attention = scores.softmax(-1)
    for weights in attention:
        without_weight = torch.randperm(seq, generator=generator)[:zeros]
        weights[without_weight] = 0
    attention /= attention.sum(-1, keepdim=True)
    values = torch.randn(rows, seq, dim, generator=generator, dtype=torch.float64)
    return attention, values


def assert_ranges(ranges, low, high, near):
    """The lowest and the highest weight of each position are these, up to `near`."""
    assert_allclose(ranges.low, low, atol=near, rtol=0)
    assert_allclose(ranges.high, high, atol=near, rtol=0)


@pytest.mark.parametrize(
    ("rows", "seq", "dim", "zeros"),
    [
        (1, 4, 1, 0),
        (1, 5, 2, 0),
        (1, 5, 2, 2),
        (2, 3, 1, 0),
        (2, 4, 2, 1),
        (3, 3, 2, 0),
        (2, 3, 10, 0),
    ],
)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_ranges_are_those_of_the_corners(rows, seq, dim, zeros, seed):
    attention, values = drawn(rows, seq, dim, seed=seed, zeros=zeros)
    corners = vertices(attention, values)
    ranges = weight_ranges(attention, values)
    means = corners.mean(1)
    near = 1e-7 if ranges.freedom else 1e-12
    assert_ranges(ranges, means.min(0), means.max(0), near)

    spread = np.ptp(corners, axis=0)
    assert ranges.unique == (spread.max() < 1e-7)
    assert ranges.moved < 1e-7
    assert (ranges.farthest > 0) == (not ranges.unique)

    weights = rows * seq
    equations = rows + dim
    assert ranges.freedom == max(0, weights - equations)


ZERO_TO_TWO = torch.tensor([[[0.0], [1.0], [2.0]]])
"""The values of three positions."""


def test_all_weight_at_an_extreme_value_is_unique_although_there_is_freedom():
    attention = torch.tensor([[1.0, 0.0, 0.0]])
    ranges = weight_ranges(attention, ZERO_TO_TWO)
    assert ranges.unique
    assert ranges.freedom == 1


def test_all_weight_between_two_values_can_move_to_both():
    attention = torch.tensor([[0.0, 1.0, 0.0]])
    ranges = weight_ranges(attention, ZERO_TO_TWO)
    assert not ranges.unique
    assert_ranges(ranges, [0, 0, 0], [0.5, 1, 0.5], 1e-9)


minimise = linear_programme.Programme.minimise


def stalled(programme, cost):
    return programme.without_optimum(cost, minimise(programme, cost).price)


def without_prices(programme, cost):
    return programme.without_optimum(cost, np.zeros(0))


def infeasible(programme, cost):
    return None


@pytest.mark.parametrize("answer", [stalled, without_prices, infeasible])
def test_a_solver_without_an_answer_leaves_bounds_and_never_raises(answer, monkeypatch):
    attention, values = drawn(2, 4, 2, seed=1, zeros=1)
    means = torch.tensor(vertices(attention, values).mean(1))
    monkeypatch.setattr(linear_programme.Programme, "minimise", answer)
    ranges = weight_ranges(attention, values)
    assert not ranges.unique
    assert (ranges.low >= 0).all()
    assert (ranges.low <= means.amin(0) + 1e-9).all()
    assert (ranges.high <= 1).all()
    assert (ranges.high >= means.amax(0) - 1e-9).all()


def test_with_the_right_prices_a_bound_is_the_range(monkeypatch):
    attention, values = drawn(2, 4, 2, seed=1, zeros=1)
    means = vertices(attention, values).mean(1)
    monkeypatch.setattr(linear_programme.Programme, "minimise", stalled)
    ranges = weight_ranges(attention, values)
    assert_ranges(ranges, means.min(0), means.max(0), 1e-7)


@pytest.mark.parametrize("seed", range(8))
def test_values_of_very_different_sizes_have_ranges(seed):
    """HiGHS gives up on some of these: a one-hot attention, values of 1e-8 to 1e8."""
    random = np.random.default_rng(seed)
    attention = np.eye(6)[random.integers(0, 6, 2)]
    values = random.normal(size=(2, 6, 4))
    exponents = random.integers(-8, 8, size=(2, 6, 1))
    values *= 10.0**exponents
    ranges = weight_ranges(torch.tensor(attention), torch.tensor(values))
    weights = torch.tensor(attention.mean(0))
    assert (ranges.low >= 0).all()
    assert (ranges.low <= weights).all()
    assert (weights <= ranges.high).all()
    assert (ranges.high <= 1).all()


@pytest.mark.parametrize("value", [0.0, 0.1, 1.0])  # the mean of several 0.1 is not 0.1
def test_equal_values_leave_everything_open(value):
    attention, _ = drawn(1, 4, 1, seed=0)
    values = torch.full((1, 4, 3), value, dtype=torch.float64)
    ranges = weight_ranges(attention, values)
    assert not ranges.unique
    assert ranges.freedom == 3  # four weights, one sum
    assert_ranges(ranges, np.zeros(4), np.ones(4), 1e-9)


@pytest.mark.parametrize("value", [0.0, 0.1, 1.0])
def test_where_everything_is_open_all_weight_on_the_least_position_is_farthest(value):
    """The JSD of a one-hot attention from α: half of Σ α log(α / m) + log(1 / m), m their mean."""
    attention, _ = drawn(1, 4, 1, seed=0)
    values = torch.full((1, 4, 3), value, dtype=torch.float64)
    ranges = weight_ranges(attention, values)
    least = attention.min().item()
    mean_weight = (1 + least) / 2
    lost = (1 - least) * np.log(2)
    kept = least * np.log(least / mean_weight)
    raised = np.log(1 / mean_weight)
    divergence = (lost + kept + raised) / 2
    assert ranges.farthest == pytest.approx(divergence, abs=1e-9)


def test_padding_changes_nothing():
    attention, values = drawn(2, 5, 1, seed=6)
    expected = weight_ranges(attention, values)
    padded = weight_ranges(
        pad(attention, (0, 2)),
        pad(values, (0, 0, 0, 2), value=9.0),
        mask=torch.arange(7) < 5,
    )
    low, low_of_padding = padded.low.split([5, 2])
    high, high_of_padding = padded.high.split([5, 2])
    assert_close(low, expected.low, atol=1e-9, rtol=0)
    assert_close(high, expected.high, atol=1e-9, rtol=0)
    assert (low_of_padding == 0).all()
    assert (high_of_padding == 0).all()


def test_positions_that_are_not_asked_for_have_no_range_and_change_nothing():
    attention, values = drawn(2, 5, 1, seed=6)
    expected = weight_ranges(attention, values)
    ranges = weight_ranges(
        pad(attention, (0, 2)),
        pad(values, (0, 0, 0, 2), value=9.0),
        mask=torch.arange(7) < 5,
        positions=torch.tensor([1, 3, 6]),
    )
    for position in (1, 3):
        low = ranges.low[position]
        high = ranges.high[position]
        assert_close(low, expected.low[position], atol=1e-9, rtol=0)
        assert_close(high, expected.high[position], atol=1e-9, rtol=0)
    padding = 6
    assert ranges.low[padding] == ranges.high[padding] == 0
    not_asked_for = [0, 2, 4, 5]
    assert ranges.low[not_asked_for].isnan().all()
    assert ranges.high[not_asked_for].isnan().all()


@pytest.mark.parametrize("scale", [1e4, 1e-12])
def test_neither_scale_nor_what_all_values_share_matters(scale):
    attention, values = drawn(2, 5, 2, seed=5)
    plain = weight_ranges(attention, values)
    moved = weight_ranges(attention, scale * (values + 50))
    assert moved.freedom == plain.freedom == 10 - 2 - 2
    assert_close(moved.low, plain.low, atol=1e-7, rtol=0)
    assert_close(moved.high, plain.high, atol=1e-7, rtol=0)


THIRDS = torch.full((2, 3), 1 / 3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"attention": torch.ones(2, 3)},
            "attention row 0 sums to 3",
        ),
        (
            {"attention": THIRDS[:1]},
            r"expected \[rows, seq\] and \[rows, seq, dim\]",
        ),
        (
            {"values": torch.full((2, 3, 1), torch.nan)},
            "values are not finite",
        ),
        (
            {"mask": torch.tensor([True, True, False])},
            "weight outside mask",
        ),
        (
            {"mask": torch.ones(2, dtype=torch.bool)},
            r"mask is \(2,\) of bool: expected bool \[3\]",
        ),
        (
            {"positions": torch.tensor([3])},
            r"positions \[3\]: expected numbers from 0 to 2",
        ),
    ],
)
def test_what_is_no_attention_is_refused(changes, message):
    arguments = {"attention": THIRDS, "values": torch.zeros(2, 3, 1)}
    with pytest.raises(UserError, match=message):
        weight_ranges(**(arguments | changes))


def test_the_solver_prints_nothing(capfd):
    unit_sum = np.ones(1)
    programme = linear_programme.Programme(
        np.ones((1, 2)),
        unit_sum,
        unit_sum,
        np.zeros(2),
        np.ones(2),
        simplex=linear_programme.Simplex.DUAL,
    )
    cost = np.array([2.0, 1.0])
    assert programme.minimise(cost).value == 1
    assert capfd.readouterr() == ("", "")
