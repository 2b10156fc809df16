from dataclasses import replace

import torch
from scipy.optimize import minimize

from attnprobe.models.base import membership
from attnprobe.models.pretrained.site import Lifting, row_factors, scaled, word_weights
from tests.toys import toy_batch


def site(rows=3, *, seed=0):
    """Rows over: special, word 1, word 1, word 2, word 3, special, padding."""
    generator = torch.Generator().manual_seed(seed)
    word = torch.tensor([[-1, 1, 1, 2, 3, -1, -2]])
    batch = replace(toy_batch([3]), piece_word=word)
    raw = torch.rand(1, rows, 7, generator=generator).double() * (word != -2).unsqueeze(1)
    return raw / raw.sum(-1, keepdim=True), membership(batch), torch.ones(1, rows, dtype=torch.bool)


def test_what_is_shown_is_the_mean_mass_of_each_words_pieces_and_gives_back_the_rows():
    rows, member, valid = site()
    attention, share = word_weights(rows, member, valid)
    by_hand = torch.stack([rows[0, :, 1:3].sum(), rows[0, :, 3].sum(), rows[0, :, 4].sum()])
    torch.testing.assert_close(attention[0, 1:4], by_hand / by_hand.sum())
    torch.testing.assert_close(share[0], by_hand.sum() / 3)
    torch.testing.assert_close(Lifting(rows, member, valid)(attention), rows, atol=1e-15, rtol=0)


def test_the_lift_shows_what_is_asked_and_keeps_what_it_must():
    rows, member, valid = site()
    wanted = torch.tensor([[[0, 0.7, 0.1, 0.2, 0]], [[0, 0.0, 1.0, 0.0, 0]]], dtype=torch.float64)
    found = Lifting(rows, member, valid)(wanted)
    for sample in range(2):
        attention, share = word_weights(found[sample], member, valid)
        torch.testing.assert_close(attention, wanted[sample], atol=1e-11, rtol=0)
        torch.testing.assert_close(share, word_weights(rows, member, valid)[1])
    torch.testing.assert_close(found.sum(-1), torch.ones(2, 1, 3).double())
    torch.testing.assert_close(found[..., [0, 5, 6]], rows[..., [0, 5, 6]].expand(2, -1, -1, -1))
    torch.testing.assert_close(found[0, ..., 1] / found[0, ..., 2], rows[..., 1] / rows[..., 2])
    rows[..., 3] = 0  # a word that underflowed can be attended to
    found = Lifting(rows, member, valid)(wanted[1])
    torch.testing.assert_close(word_weights(found, member, valid)[0], wanted[1])


def test_no_other_rows_that_show_it_are_nearer():
    """Against scipy's constrained minimum of Σ KL over two rows and three words."""
    rows, member, valid = site(rows=2, seed=3)
    wanted = torch.tensor([[0, 0.6, 0.3, 0.1, 0]], dtype=torch.float64)
    mass = (rows @ member)[0, :, 1:4].numpy()
    target = wanted[0, 1:4].numpy() * mass.sum()
    found = (Lifting(rows, member, valid)(wanted) @ member)[0, :, 1:4].numpy()

    def divergence(flat):
        x = flat.reshape(2, 3)
        return (x * torch.tensor(x / mass).log().numpy()).sum()

    best = minimize(
        divergence,
        found.ravel() * 0 + mass.mean(),
        bounds=[(1e-9, 1)] * 6,
        method="SLSQP",
        constraints=[
            {"type": "eq", "fun": lambda flat: flat.reshape(2, 3).sum(0) - target},
            {"type": "eq", "fun": lambda flat: flat.reshape(2, 3).sum(1)[:1] - mass.sum(1)[:1]},
        ],
        options={"maxiter": 500, "ftol": 1e-14},
    )
    assert best.success
    assert divergence(found.ravel()) <= best.fun + 1e-9
    assert abs(found - best.x.reshape(2, 3)).max() < 1e-4


def swept(matrix, rows, columns, sweeps=3000):
    """Sinkhorn & Knopp's own algorithm: columns to their sums, rows to theirs, alternately."""
    for _ in range(sweeps):
        sums = matrix.sum(-2, keepdim=True)
        matrix = matrix * torch.where(
            sums > 0, columns.unsqueeze(-2) / torch.where(sums > 0, sums, 1), 0
        )
        sums = matrix.sum(-1, keepdim=True)
        matrix = matrix * torch.where(
            sums > 0, rows.unsqueeze(-1) / torch.where(sums > 0, sums, 1), 0
        )
    return matrix


def drawn(batch, rows, columns, *, samples, seed=0, spread=3.0):
    """Heads that each look at other words, and other sums of columns."""
    generator = torch.Generator().manual_seed(seed)
    matrix = (
        torch.randn(batch, rows, columns, generator=generator, dtype=torch.float64) * spread
    ).softmax(-1)
    totals = torch.rand(batch, rows, generator=generator, dtype=torch.float64)
    wanted = (
        torch.randn(samples, batch, columns, generator=generator, dtype=torch.float64) * spread
    ).softmax(-1)
    matrix = matrix * totals.unsqueeze(-1)
    return matrix, totals.expand(samples, -1, -1), wanted * totals.sum(-1, keepdim=True)


def test_it_is_what_sweeps_end_with():
    matrix, rows, columns = drawn(4, 6, 9, samples=3)
    columns[0, 0, :4] = 0  # erased words
    columns = columns / columns.sum(-1, keepdim=True) * rows.sum(-1, keepdim=True)
    matrix[1, 2] = 0  # a row that is padding
    matrix[1, :, 8] = 0  # a column that is none
    columns[:, 1, 8] = 0
    rows = matrix.sum(-1).expand(3, -1, -1)
    columns = columns / columns.sum(-1, keepdim=True) * rows.sum(-1, keepdim=True)
    found = scaled(matrix, rows, columns)
    torch.testing.assert_close(
        found, swept(matrix.expand(3, -1, -1, -1), rows, columns), atol=1e-11, rtol=0
    )
    torch.testing.assert_close(found.sum(-1), rows, atol=1e-11, rtol=0)
    torch.testing.assert_close(found.sum(-2), columns, atol=1e-14, rtol=0)


def test_its_gradient_is_that_of_the_sweeps():
    matrix, rows, columns = drawn(2, 3, 5, samples=2, spread=1.0)
    weight = torch.linspace(-1, 2, matrix.numel() * 2, dtype=torch.float64).reshape(
        2, *matrix.shape
    )
    gradients = []
    for way in (scaled, swept):
        free = (columns / rows.sum(-1, keepdim=True)).requires_grad_()
        size = free.sum(-1, keepdim=True)
        found = way(matrix, rows * size, free * rows.sum(-1, keepdim=True))
        gradients.append(torch.autograd.grad((found * weight).sum(), free)[0])
    torch.testing.assert_close(*gradients, atol=1e-9, rtol=0)


def test_the_gradient_of_an_erased_word_is_that_of_next_to_nothing():
    matrix, rows, _ = drawn(1, 3, 4, samples=1)
    gradients = []
    for little in (0.0, 1e-9):
        free = torch.tensor(
            [[0.5, 0.3, 0.2 - little, little]], dtype=torch.float64
        ).requires_grad_()
        found = scaled(matrix, rows[0], free * rows[0].sum(-1, keepdim=True))
        gradients.append(torch.autograd.grad((found * matrix).sum(), free)[0])
    torch.testing.assert_close(*gradients, atol=1e-6, rtol=0)
    assert gradients[0][0, 3] != 0


def test_what_comes_out_of_one_does_not_depend_on_the_others():
    matrix, rows, columns = drawn(5, 4, 7, samples=2, spread=6.0)
    together = scaled(matrix, rows, columns)
    for text in range(5):
        alone = scaled(
            matrix[text : text + 1], rows[:, text : text + 1], columns[:, text : text + 1]
        )
        torch.testing.assert_close(alone, together[:, text : text + 1], atol=1e-14, rtol=0)


def test_what_is_wanted_may_be_nothing_or_where_there_was_next_to_nothing_or_what_is_there():
    matrix = torch.tensor([[[0.5, 1e-30, 0.2], [0.1, 1e-30, 0.4]]], dtype=torch.float64)
    rows = matrix.sum(-1)
    columns = torch.tensor([[0.0, 1.2, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(scaled(matrix, rows, columns)[0, :, 1], rows[0])
    assert (scaled(matrix, torch.zeros(1, 2).double(), torch.zeros(1, 3).double()) == 0).all()
    matrix, *_ = drawn(3, 4, 5, samples=1)
    assert (row_factors(matrix, matrix.sum(-1), matrix.sum(-2)) == 0).all()
