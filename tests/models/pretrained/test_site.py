from dataclasses import replace

import pytest
import torch
from scipy.optimize import minimize
from torch.testing import assert_close

from attnprobe.models.base import membership
from attnprobe.models.pretrained.site import Lifting, row_factors, scaled, word_weights
from tests.toys import toy_batch


def site(rows=3, *, seed=0):
    """Rows over: special, word 1, word 1, word 2, word 3, special, padding."""
    generator = torch.Generator().manual_seed(seed)
    word = torch.tensor([[-1, 1, 1, 2, 3, -1, -2]])
    batch = replace(toy_batch([3]), piece_word=word)
    mass = torch.rand(1, rows, 7, generator=generator).double() * (word != -2).unsqueeze(1)
    attention = mass / mass.sum(-1, keepdim=True)
    valid = torch.ones(1, rows, dtype=torch.bool)
    return attention, membership(batch), valid


def lifting_of(rows, member, valid):
    """The lift of rows that see every place."""
    return Lifting(rows, member, valid, torch.ones_like(rows, dtype=torch.bool))


def test_an_attention_is_the_mean_mass_of_each_words_pieces():
    rows, member, valid = site()
    attention, share = word_weights(rows, member, valid)
    column = rows[0].sum(0)
    mass = torch.stack([column[1] + column[2], column[3], column[4]])
    assert_close(attention[0, 1:4], mass / mass.sum())
    assert_close(share[0], mass.sum() / 3)


def test_the_lift_of_the_recorded_attention_is_the_recorded_rows():
    rows, member, valid = site()
    attention, _ = word_weights(rows, member, valid)
    assert_close(lifting_of(rows, member, valid)(attention), rows, atol=1e-15, rtol=0)


TARGETS = torch.tensor([[[0, 0.7, 0.1, 0.2, 0]], [[0, 0.0, 1.0, 0.0, 0]]], dtype=torch.float64)


@pytest.mark.parametrize("sample", [0, 1])
def test_the_lift_shows_the_attention_that_it_is_given(sample):
    rows, member, valid = site()
    lifted = lifting_of(rows, member, valid)(TARGETS)
    attention, share = word_weights(lifted[sample], member, valid)
    assert_close(attention, TARGETS[sample], atol=1e-11, rtol=0)
    assert_close(share, word_weights(rows, member, valid)[1])


def test_the_lift_keeps_sums_special_pieces_and_shares_of_a_words_pieces():
    rows, member, valid = site()
    lifted = lifting_of(rows, member, valid)(TARGETS)
    assert_close(lifted.sum(-1), torch.ones(2, 1, 3).double())
    special = [0, 5, 6]
    expected = rows[..., special].expand(2, -1, -1, -1)
    assert_close(lifted[..., special], expected)
    share = rows[..., 1] / rows[..., 2]
    assert_close(lifted[0, ..., 1] / lifted[0, ..., 2], share)


def test_a_word_that_underflowed_can_be_attended_to():
    rows, member, valid = site()
    rows[..., 3] = 0
    lifted = lifting_of(rows, member, valid)(TARGETS[1])
    assert_close(word_weights(lifted, member, valid)[0], TARGETS[1])


def test_no_other_rows_that_show_it_are_nearer():
    """Against scipy's constrained minimum of Σ KL over two rows and three words."""
    rows, member, valid = site(rows=2, seed=3)
    target = torch.tensor([[0, 0.6, 0.3, 0.1, 0]], dtype=torch.float64)
    mass = (rows @ member)[0, :, 1:4].numpy()
    lifted = (lifting_of(rows, member, valid)(target) @ member)[0, :, 1:4].numpy()

    def divergence(flat):
        x = flat.reshape(2, 3)
        return (x * torch.tensor(x / mass).log().numpy()).sum()

    columns = target[0, 1:4].numpy() * mass.sum()
    row = mass.sum(1)[:1]
    column_sums = {"type": "eq", "fun": lambda flat: flat.reshape(2, 3).sum(0) - columns}
    row_sum = {"type": "eq", "fun": lambda flat: flat.reshape(2, 3).sum(1)[:1] - row}
    best = minimize(
        divergence,
        lifted.ravel() * 0 + mass.mean(),
        bounds=[(1e-9, 1)] * 6,
        method="SLSQP",
        constraints=[column_sums, row_sum],
        options={"maxiter": 500, "ftol": 1e-14},
    )
    assert best.success
    assert divergence(lifted.ravel()) <= best.fun + 1e-9
    assert abs(lifted - best.x.reshape(2, 3)).max() < 1e-4


def swept(matrix, rows, columns, sweeps=3000):
    """Sinkhorn & Knopp's own algorithm: columns to their sums, rows to theirs, alternately."""
    for _ in range(sweeps):
        sums = matrix.sum(-2, keepdim=True)
        factor = columns.unsqueeze(-2) / torch.where(sums > 0, sums, 1)
        matrix = matrix * torch.where(sums > 0, factor, 0)
        sums = matrix.sum(-1, keepdim=True)
        factor = rows.unsqueeze(-1) / torch.where(sums > 0, sums, 1)
        matrix = matrix * torch.where(sums > 0, factor, 0)
    return matrix


def drawn(batch, rows, columns, *, samples, seed=0, spread=3.0):
    """Heads that each look at other words, the sums of their rows, and other sums of columns."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64) * spread

    matrix = normal(batch, rows, columns).softmax(-1)
    totals = torch.rand(batch, rows, generator=generator, dtype=torch.float64)
    targets = normal(samples, batch, columns).softmax(-1)
    return (
        matrix * totals.unsqueeze(-1),
        totals.expand(samples, -1, -1),
        targets * totals.sum(-1, keepdim=True),
    )


def test_it_is_what_sweeps_end_with():
    matrix, rows, columns = drawn(4, 6, 9, samples=3)
    columns[0, 0, :4] = 0  # erased words
    columns = columns / columns.sum(-1, keepdim=True) * rows.sum(-1, keepdim=True)
    matrix[1, 2] = 0  # a row that is padding
    matrix[1, :, 8] = 0  # a column that is none
    columns[:, 1, 8] = 0
    rows = matrix.sum(-1).expand(3, -1, -1)
    columns = columns / columns.sum(-1, keepdim=True) * rows.sum(-1, keepdim=True)

    result = scaled(matrix, rows, columns)
    expected = swept(matrix.expand(3, -1, -1, -1), rows, columns)
    assert_close(result, expected, atol=1e-11, rtol=0)
    assert_close(result.sum(-1), rows, atol=1e-11, rtol=0)
    assert_close(result.sum(-2), columns, atol=1e-14, rtol=0)


def test_its_gradient_is_that_of_the_sweeps():
    matrix, rows, columns = drawn(2, 3, 5, samples=2, spread=1.0)
    weight = torch.linspace(-1, 2, matrix.numel() * 2, dtype=torch.float64)
    weight = weight.reshape(2, *matrix.shape)
    total = rows.sum(-1, keepdim=True)

    def gradient(scale):
        free = (columns / total).requires_grad_()
        result = scale(matrix, rows * free.sum(-1, keepdim=True), free * total)
        return torch.autograd.grad((result * weight).sum(), free)[0]

    assert_close(gradient(scaled), gradient(swept), atol=1e-9, rtol=0)


def test_the_gradient_of_an_erased_word_is_that_of_next_to_nothing():
    matrix, rows, _ = drawn(1, 3, 4, samples=1)

    def gradient(little):
        free = torch.tensor([[0.5, 0.3, 0.2 - little, little]], dtype=torch.float64)
        free.requires_grad_()
        result = scaled(matrix, rows[0], free * rows[0].sum(-1, keepdim=True))
        return torch.autograd.grad((result * matrix).sum(), free)[0]

    erased = gradient(0.0)
    assert_close(erased, gradient(1e-9), atol=1e-6, rtol=0)
    assert erased[0, 3] != 0


def test_what_comes_out_of_one_does_not_depend_on_the_others():
    matrix, rows, columns = drawn(5, 4, 7, samples=2, spread=6.0)
    together = scaled(matrix, rows, columns)
    for text in range(5):
        only = slice(text, text + 1)
        result = scaled(matrix[only], rows[:, only], columns[:, only])
        assert_close(result, together[:, only], atol=1e-14, rtol=0)


def test_a_column_of_next_to_nothing_can_get_all_mass():
    matrix = torch.tensor([[[0.5, 1e-30, 0.2], [0.1, 1e-30, 0.4]]], dtype=torch.float64)
    rows = matrix.sum(-1)
    columns = torch.tensor([[0.0, 1.2, 0.0]], dtype=torch.float64)
    assert_close(scaled(matrix, rows, columns)[0, :, 1], rows[0])


def test_sums_of_0_give_a_matrix_of_0():
    matrix = torch.tensor([[[0.5, 1e-30, 0.2], [0.1, 1e-30, 0.4]]], dtype=torch.float64)
    assert (scaled(matrix, torch.zeros(1, 2).double(), torch.zeros(1, 3).double()) == 0).all()


def test_a_matrix_that_has_its_sums_already_is_not_scaled():
    matrix, *_ = drawn(3, 4, 5, samples=1)
    assert (row_factors(matrix, matrix.sum(-1), matrix.sum(-2)) == 0).all()
