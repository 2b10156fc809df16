import torch

from attnprobe.models.pretrained.scaling import row_factors, scaled


def swept(matrix, rows, columns, sweeps=3000):
    """Sinkhorn & Knopp's own algorithm: columns to their sums, rows to theirs, alternately."""
    for _ in range(sweeps):
        sums = matrix.sum(-2, keepdim=True)
        matrix = matrix * torch.where(sums > 0, columns.unsqueeze(-2) / torch.where(sums > 0, sums, 1), 0)
        sums = matrix.sum(-1, keepdim=True)
        matrix = matrix * torch.where(sums > 0, rows.unsqueeze(-1) / torch.where(sums > 0, sums, 1), 0)
    return matrix


def masses(batch, rows, columns, *, samples, seed=0, spread=3.0):
    """Heads that each look at other words, and other sums of columns."""
    generator = torch.Generator().manual_seed(seed)
    matrix = (torch.randn(batch, rows, columns, generator=generator, dtype=torch.float64) * spread).softmax(-1)
    totals = torch.rand(batch, rows, generator=generator, dtype=torch.float64)
    wanted = (torch.randn(samples, batch, columns, generator=generator, dtype=torch.float64) * spread).softmax(-1)
    matrix = matrix * totals.unsqueeze(-1)
    return matrix, totals.expand(samples, -1, -1), wanted * totals.sum(-1, keepdim=True)


def test_it_is_what_sweeps_end_with():
    matrix, rows, columns = masses(4, 6, 9, samples=3)
    columns[0, 0, :4] = 0  # erased words
    columns = columns / columns.sum(-1, keepdim=True) * rows.sum(-1, keepdim=True)
    matrix[1, 2] = 0  # a row that is padding
    matrix[1, :, 8] = 0  # a column that is none
    columns[:, 1, 8] = 0
    rows = matrix.sum(-1).expand(3, -1, -1)
    columns = columns / columns.sum(-1, keepdim=True) * rows.sum(-1, keepdim=True)
    found = scaled(matrix, rows, columns)
    torch.testing.assert_close(found, swept(matrix.expand(3, -1, -1, -1), rows, columns), atol=1e-11, rtol=0)
    torch.testing.assert_close(found.sum(-1), rows, atol=1e-11, rtol=0)
    torch.testing.assert_close(found.sum(-2), columns, atol=1e-14, rtol=0)


def test_its_gradient_is_that_of_the_sweeps():
    matrix, rows, columns = masses(2, 3, 5, samples=2, spread=1.0)
    weight = torch.linspace(-1, 2, matrix.numel() * 2, dtype=torch.float64).reshape(2, *matrix.shape)
    gradients = []
    for way in (scaled, swept):
        free = (columns / rows.sum(-1, keepdim=True)).requires_grad_()
        size = free.sum(-1, keepdim=True)
        found = way(matrix, rows * size, free * rows.sum(-1, keepdim=True))
        gradients.append(torch.autograd.grad((found * weight).sum(), free)[0])
    torch.testing.assert_close(*gradients, atol=1e-9, rtol=0)


def test_the_gradient_of_an_erased_word_is_that_of_next_to_nothing():
    matrix, rows, _ = masses(1, 3, 4, samples=1)
    gradients = []
    for little in (0.0, 1e-9):
        free = torch.tensor([[0.5, 0.3, 0.2 - little, little]], dtype=torch.float64).requires_grad_()
        found = scaled(matrix, rows[0], free * rows[0].sum(-1, keepdim=True))
        gradients.append(torch.autograd.grad((found * matrix).sum(), free)[0])
    torch.testing.assert_close(*gradients, atol=1e-6, rtol=0)
    assert gradients[0][0, 3] != 0


def test_what_comes_out_of_one_does_not_depend_on_the_others():
    matrix, rows, columns = masses(5, 4, 7, samples=2, spread=6.0)
    together = scaled(matrix, rows, columns)
    for text in range(5):
        alone = scaled(matrix[text : text + 1], rows[:, text : text + 1], columns[:, text : text + 1])
        torch.testing.assert_close(alone, together[:, text : text + 1], atol=1e-14, rtol=0)


def test_weight_may_go_where_there_was_next_to_none():
    matrix = torch.tensor([[[0.5, 1e-30, 0.2], [0.1, 1e-30, 0.4]]], dtype=torch.float64)
    rows, columns = matrix.sum(-1), torch.tensor([[0.0, 1.2, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(scaled(matrix, rows, columns)[0, :, 1], rows[0])


def test_nothing_wanted_is_nothing():
    matrix = torch.rand(1, 2, 3, dtype=torch.float64)
    assert (scaled(matrix, torch.zeros(1, 2).double(), torch.zeros(1, 3).double()) == 0).all()


def test_what_is_wanted_already_needs_no_step():
    matrix, *_ = masses(3, 4, 5, samples=1)
    assert (row_factors(matrix, matrix.sum(-1), matrix.sum(-2)) == 0).all()
