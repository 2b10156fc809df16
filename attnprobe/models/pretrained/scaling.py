"""Matrix scaling: the matrix nearest to another that has given sums of its rows and of its columns (Sinkhorn & Knopp 1967).

Nearest in Σ KL; it is diag(e^u) M diag(e^v). For any u the columns' factors follow, so that u alone is looked for: by
Newton's method on the convex dual, whose equations are as many as there are rows (the heads of a layer), and by a sweep of
Sinkhorn's where a Newton step does not come nearer. Five or six steps take the place of eighty sweeps, and the gradient is
that of the solution, by one more such system, instead of that of every step.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

SWEEPS, TOLERANCE = 1000, 1e-12
"""The scaling ends when the rows' sums are off by no more than this share of the whole, or after that many steps."""
LEAST = 1e-300
"""Sums count as at least this in logarithms."""


class Scaling(NamedTuple):
    """The matrix of some row factors, its columns having the sums that they should."""

    share: Float[Tensor, "matrices rows columns"]
    """Of each column's sum that which is in each row; 0 in an empty column."""
    matrix: Float[Tensor, "matrices rows columns"]
    sums: Float[Tensor, "matrices rows"]
    """Of its rows."""


def scaled(
    matrix: Float[Tensor, "batch rows columns"],
    rows: Float[Tensor, "*samples batch rows"],
    columns: Float[Tensor, "*samples batch columns"],
) -> Float[Tensor, "*samples batch rows columns"]:
    """The nearest matrix with these sums; differentiable (once) by the sums.

    Args:
        matrix: not negative; a constant. Rows and columns of zeros stay as they are.
        rows, columns: wanted sums, not negative, equal in total, 0 where the matrix has nothing but zeros.
    """
    result: Tensor = _Scaled.apply(matrix.detach(), rows, columns)
    return result


class _Scaled(torch.autograd.Function):
    """`scaled`, with the derivative of what it solves: dX = diag(du) X + X diag(dv), where row and column sums are given."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        wanted = rows.reshape(-1, rows.shape[-1]), columns.reshape(-1, columns.shape[-1])
        factors = row_factors(matrix, *wanted)
        found = at(factors, matrix[_text(matrix, factors)], wanted[1])
        ctx.shapes = rows.shape, columns.shape
        ctx.save_for_backward(matrix, factors, wanted[1])
        return found.matrix.reshape(*rows.shape, columns.shape[-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor, Tensor]:
        matrix, factors, columns = ctx.saved_tensors
        found = at(factors, matrix[_text(matrix, factors)], columns)
        gradient = gradient.reshape(found.matrix.shape)
        of_columns = (gradient * found.share).sum(-2)
        of_rows = (gradient * found.matrix).sum(-1) - torch.einsum("mrc,mc->mr", found.matrix, of_columns)
        of_rows = solved(found, of_rows)
        of_columns = of_columns - torch.einsum("mrc,mr->mc", found.share, of_rows)
        return None, of_rows.reshape(ctx.shapes[0]), of_columns.reshape(ctx.shapes[1])


def row_factors(
    matrix: Float[Tensor, "batch rows columns"],
    rows: Float[Tensor, "matrices rows"],
    columns: Float[Tensor, "matrices columns"],
) -> Float[Tensor, "matrices rows"]:
    """The logarithms of the rows' factors. Matrix k of those wanted is nearest to `matrix[k % batch]`; what comes out of one
    does not depend on the others."""
    result = torch.zeros_like(rows)
    left = torch.arange(len(rows), device=rows.device)
    matrix = matrix[_text(matrix, rows)]
    factors, found = result, at(result, matrix, columns)
    for _ in range(SWEEPS):
        error = (rows - found.sums).abs().sum(-1)
        far = ~(error <= TOLERANCE * rows.sum(-1))
        result[left[~far]] = factors[~far]
        if not far.any():
            return result
        left, factors, found, error = left[far], factors[far], Scaling(*(part[far] for part in found)), error[far]
        matrix, rows, columns = matrix[far], rows[far], columns[far]
        trial = factors + solved(found, rows - found.sums)
        nearer = at(trial, matrix, columns)
        worse = ~((rows - nearer.sums).abs().sum(-1) < error)
        if worse.any():
            swept = factors + torch.where(rows > 0, (rows / found.sums.clamp_min(LEAST)).log(), 0)
            trial = torch.where(worse.unsqueeze(-1), swept, trial)
            nearer = at(trial, matrix, columns)
        factors, found = trial, nearer
    result[left] = factors
    return result


def at(
    factors: Float[Tensor, "matrices rows"],
    matrix: Float[Tensor, "matrices rows columns"],
    columns: Float[Tensor, "matrices columns"],
) -> Scaling:
    """The matrix that has these row factors (logarithms) and these sums of columns."""
    weights = matrix * (factors - factors.amax(-1, keepdim=True)).exp().unsqueeze(-1)
    sums = weights.sum(-2, keepdim=True)
    share = weights / torch.where(sums > 0, sums, 1)
    there = share * columns.unsqueeze(-2)
    return Scaling(share, there, there.sum(-1))


def solved(found: Scaling, right: Float[Tensor, "matrices rows"]) -> Float[Tensor, "matrices rows"]:
    """Solve for a change of the row factors that changes the rows' sums by `right`, the columns' sums being kept; 0 where
    that is not determined.

    The same factor for all rows changes nothing: of these solutions it is the one with weighted mean 0.
    """
    sums, total = found.sums, found.sums.sum(-1, keepdim=True)
    system = torch.diag_embed(torch.where(sums > 0, sums, 1)) - found.matrix @ found.share.transpose(-1, -2)
    system = system + sums.unsqueeze(-1) * (sums / torch.where(total > 0, total, 1)).unsqueeze(-2)
    result = torch.linalg.solve_ex(system, right.unsqueeze(-1)).result.squeeze(-1)
    return torch.where(result.isfinite().all(-1, keepdim=True), result, 0)


def _text(matrix: Float[Tensor, "batch rows columns"], many: Tensor) -> Int[Tensor, "matrices"]:
    """Which matrix each of the wanted ones starts from."""
    return torch.arange(len(many), device=matrix.device) % len(matrix)
