from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from torch import Tensor
from torch.testing import assert_close

from attnprobe.models.base import membership
from attnprobe.models.pretrained.site import Lifting, row_factors, scaled, word_weights
from tests.toys import toy_batch


@dataclass(frozen=True)
class Site:
    """Rows over: special, word 1, word 1, word 2, word 3, special, padding.

    Attributes:
        rows: attention `[1, rows, pieces]`.
        member: which piece is of which word.
        valid: which rows are none of padding.
    """

    rows: Tensor
    member: Tensor
    valid: Tensor

    def weights(self, rows=None):
        """The attention to each word, and the share of the rows that is on words."""
        rows = self.rows if rows is None else rows
        return word_weights(rows, self.member, self.valid)

    def lifted(self, attention):
        """Rows that show this attention, where every row sees every place."""
        seen = torch.ones_like(self.rows, dtype=torch.bool)
        lifting = Lifting(self.rows, self.member, self.valid, seen)
        return lifting(attention)

    def on_words(self, rows):
        """The mass of rows on each of the three words, as scipy takes it."""
        mass = rows @ self.member
        return mass[0, :, 1:4].numpy()


def site(rows=3, *, seed=0):
    generator = torch.Generator().manual_seed(seed)
    word = torch.tensor([[-1, 1, 1, 2, 3, -1, -2]])
    noise = torch.rand(1, rows, 7, generator=generator).double()
    mass = torch.where(word == -2, 0, noise)
    batch = replace(toy_batch([3]), piece_word=word)
    return Site(
        rows=mass / mass.sum(-1, keepdim=True),
        member=membership(batch),
        valid=torch.ones(1, rows, dtype=torch.bool),
    )


def test_an_attention_is_the_mean_mass_of_each_words_pieces():
    three_rows = site()
    attention, share = three_rows.weights()
    _, first, second, third, fourth, _, _ = three_rows.rows[0].sum(0)
    mass = torch.stack([first + second, third, fourth])
    total = mass.sum()
    assert_close(attention[0, 1:4], mass / total)
    assert_close(share[0], total / 3)


def test_the_lift_of_the_recorded_attention_is_the_recorded_rows():
    three_rows = site()
    attention, _ = three_rows.weights()
    assert_close(three_rows.lifted(attention), three_rows.rows, atol=1e-15, rtol=0)


TARGETS = torch.tensor(
    [
        [[0, 0.7, 0.1, 0.2, 0]],
        [[0, 0.0, 1.0, 0.0, 0]],
    ],
    dtype=torch.float64,
)


@pytest.mark.parametrize("sample", [0, 1])
def test_the_lift_shows_the_attention_that_it_is_given(sample):
    three_rows = site()
    _, recorded_share = three_rows.weights()
    lifted = three_rows.lifted(TARGETS)
    attention, share = three_rows.weights(lifted[sample])
    assert_close(attention, TARGETS[sample], atol=1e-11, rtol=0)
    assert_close(share, recorded_share)


def test_the_lift_keeps_sums_special_pieces_and_shares_of_a_words_pieces():
    rows = site().rows
    lifted = site().lifted(TARGETS)
    unit_sums = torch.ones(2, 1, 3).double()
    assert_close(lifted.sum(-1), unit_sums)
    for special in (0, 5, 6):
        recorded = rows[..., special]
        assert_close(lifted[..., special], recorded.expand(2, -1, -1))

    _, first, second, *_ = rows.unbind(-1)
    _, lifted_first, lifted_second, *_ = lifted[0].unbind(-1)
    assert_close(lifted_first / lifted_second, first / second)


def test_a_word_that_underflowed_can_be_attended_to():
    three_rows = site()
    three_rows.rows[..., 3] = 0
    lifted = three_rows.lifted(TARGETS[1])
    attention, _ = three_rows.weights(lifted)
    assert_close(attention, TARGETS[1])


def nearest_matrix(mass, row_sums, column_sums):
    """The least Σ x ln(x / mass) over matrices of these sums, by scipy."""

    def divergence(flat):
        x = flat.reshape(mass.shape)
        log_ratio = np.log(x / mass)
        return (x * log_ratio).sum()

    def column_errors(flat):
        x = flat.reshape(mass.shape)
        return x.sum(0) - column_sums

    def row_errors(flat):
        """Of all rows but the last, whose sum follows from the others."""
        x = flat.reshape(mass.shape)
        errors = x.sum(1) - row_sums
        return errors[:-1]

    result = minimize(
        divergence,
        np.full(mass.size, mass.mean()),
        bounds=[(1e-9, 1)] * mass.size,
        method="SLSQP",
        constraints=[
            {"type": "eq", "fun": column_errors},
            {"type": "eq", "fun": row_errors},
        ],
        options={"maxiter": 500, "ftol": 1e-14},
    )
    assert result.success
    return result.x.reshape(mass.shape), result.fun


def test_no_other_rows_that_show_it_are_nearer():
    """Against scipy's constrained minimum of Σ KL over two rows and three words."""
    two_rows = site(rows=2, seed=3)
    weights = [0.6, 0.3, 0.1]
    target = torch.tensor([[0, *weights, 0]], dtype=torch.float64)
    mass = two_rows.on_words(two_rows.rows)

    lifted = two_rows.on_words(two_rows.lifted(target))

    row_sums = mass.sum(1)
    column_sums = np.array(weights) * mass.sum()
    nearest, least = nearest_matrix(mass, row_sums, column_sums)
    log_ratio = np.log(lifted / mass)
    divergence = (lifted * log_ratio).sum()
    assert divergence <= least + 1e-9
    assert_allclose(lifted, nearest, atol=1e-4)


def scaled_to(matrix, sums, dim):
    """The matrix with these sums along a dimension; a line of nothing stays nothing."""
    current = matrix.sum(dim, keepdim=True)
    is_something = current > 0
    factor = sums.unsqueeze(dim) / torch.where(is_something, current, 1)
    return matrix * torch.where(is_something, factor, 0)


def swept(matrix, rows, columns, sweeps=3000):
    """Sinkhorn & Knopp's own algorithm: columns to their sums, rows to theirs, alternately."""
    for _ in range(sweeps):
        matrix = scaled_to(matrix, columns, -2)
        matrix = scaled_to(matrix, rows, -1)
    return matrix


@dataclass
class Heads:
    """Heads that each look at other words, and the sums that they are to have.

    Attributes:
        matrix: `[batch, rows, columns]`.
        rows: the sums of the rows, `[samples, batch, rows]`.
        columns: other sums of the columns, `[samples, batch, columns]`.
    """

    matrix: Tensor
    rows: Tensor
    columns: Tensor

    @property
    def total(self):
        return self.rows.sum(-1, keepdim=True)


def drawn(batch, rows, columns, *, samples, spread=3.0):
    generator = torch.Generator().manual_seed(0)

    def attention(*shape):
        scores = torch.randn(*shape, generator=generator, dtype=torch.float64)
        return (scores * spread).softmax(-1)

    shares = attention(batch, rows, columns)
    sums = torch.rand(batch, rows, generator=generator, dtype=torch.float64)
    targets = attention(samples, batch, columns)
    return Heads(
        matrix=shares * sums.unsqueeze(-1),
        rows=sums.expand(samples, -1, -1),
        columns=targets * sums.sum(-1, keepdim=True),
    )


def test_it_is_what_sweeps_end_with():
    heads = drawn(4, 6, 9, samples=3)
    heads.columns[0, 0, :4] = 0  # erased words
    heads.columns[:, 1, 8] = 0  # a column that is none
    heads.matrix[1, :, 8] = 0
    heads.matrix[1, 2] = 0  # a row that is padding
    row_sums = heads.matrix.sum(-1)
    heads.rows = row_sums.expand(3, -1, -1)
    mass = heads.columns.sum(-1, keepdim=True)
    heads.columns = heads.columns / mass * heads.total

    result = scaled(heads.matrix, heads.rows, heads.columns)

    matrices = heads.matrix.expand(3, -1, -1, -1)
    expected = swept(matrices, heads.rows, heads.columns)
    assert_close(result, expected, atol=1e-11, rtol=0)
    assert_close(result.sum(-1), heads.rows, atol=1e-11, rtol=0)
    assert_close(result.sum(-2), heads.columns, atol=1e-14, rtol=0)


def gradient_of(scale, heads, attention, weight):
    """Of a weighted sum of the scaled heads by the attention that their columns show."""
    attention = attention.clone().requires_grad_()
    rows = heads.rows * attention.sum(-1, keepdim=True)
    columns = attention * heads.total
    result = scale(heads.matrix, rows, columns)
    weighted_sum = (result * weight).sum()
    (gradient,) = torch.autograd.grad(weighted_sum, attention)
    return gradient


def test_its_gradient_is_that_of_the_sweeps():
    heads = drawn(2, 3, 5, samples=2, spread=1.0)
    attention = heads.columns / heads.total
    weight = torch.linspace(-1, 2, 60, dtype=torch.float64)
    weight = weight.reshape(2, 2, 3, 5)
    gradient = gradient_of(scaled, heads, attention, weight)
    expected = gradient_of(swept, heads, attention, weight)
    assert_close(gradient, expected, atol=1e-9, rtol=0)


def test_the_gradient_of_an_erased_word_is_that_of_next_to_nothing():
    heads = drawn(1, 3, 4, samples=1)

    def gradient_at(weight):
        weights = [0.5, 0.3, 0.2 - weight, weight]
        attention = torch.tensor([[weights]], dtype=torch.float64)
        return gradient_of(scaled, heads, attention, heads.matrix)

    erased = gradient_at(0.0)
    assert_close(erased, gradient_at(1e-9), atol=1e-6, rtol=0)
    assert erased[..., 3] != 0


@pytest.mark.parametrize("text", range(5))
def test_what_comes_out_of_one_does_not_depend_on_the_others(text):
    heads = drawn(5, 4, 7, samples=2, spread=6.0)
    batch = scaled(heads.matrix, heads.rows, heads.columns)
    matrix = heads.matrix[[text]]
    rows = heads.rows[:, [text]]
    columns = heads.columns[:, [text]]
    single = scaled(matrix, rows, columns)
    assert_close(single, batch[:, [text]], atol=1e-14, rtol=0)


NEARLY_EMPTY_COLUMN = torch.tensor(
    [
        [
            [0.5, 1e-30, 0.2],
            [0.1, 1e-30, 0.4],
        ]
    ],
    dtype=torch.float64,
)


def test_a_column_of_next_to_nothing_can_get_all_mass():
    rows = NEARLY_EMPTY_COLUMN.sum(-1)
    columns = torch.tensor([[0.0, 1.2, 0.0]], dtype=torch.float64)
    result = scaled(NEARLY_EMPTY_COLUMN, rows, columns)
    assert_close(result[..., 1], rows)


def test_sums_of_0_give_a_matrix_of_0():
    rows = torch.zeros(1, 2, dtype=torch.float64)
    columns = torch.zeros(1, 3, dtype=torch.float64)
    result = scaled(NEARLY_EMPTY_COLUMN, rows, columns)
    assert (result == 0).all()


def test_a_matrix_that_has_its_sums_already_is_not_scaled():
    matrix = drawn(3, 4, 5, samples=1).matrix
    row_sums = matrix.sum(-1)
    column_sums = matrix.sum(-2)
    factors = row_factors(matrix, row_sums, column_sums)
    assert (factors == 0).all()
