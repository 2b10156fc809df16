"""Which rows of which attention are meant, and how rows over pieces become one weight per word and
back."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


class Queries(StrEnum):
    """Whose rows reach the prediction."""

    FIRST = "first"  # the first piece's, [CLS]
    LAST = "last"  # the last piece's
    ASKED = "asked"  # that of the word whose class is asked for
    ALL = "all"  # those of all pieces: the model averages them


class Site(NamedTuple):
    """Rows of attention.

    Attributes:
        layer: which of a pass's attentions, from 0, or from −1, the last, backwards. An
            encoder–decoder has, in order, its encoder's, and of each decoder layer that over the
            decoder's own text and that over the encoder's.
        heads: numbers of heads from 0; None: all.
        rows: `pooled`, the row that the prediction is read from, or `all`.
    """

    layer: int = -1
    heads: Sequence[int] | None = None
    rows: Literal["pooled", "all"] = "pooled"


class Selection(NamedTuple):
    """The rows of a site in the weights of one attention: of these heads, at the piece `query` of
    every text (None: at all pieces). `mask` says which pieces are not padding, `valid` which rows
    are not."""

    heads: list[int]
    query: Int[Tensor, "batch"] | None
    mask: Bool[Tensor, "batch pieces"]
    valid: Bool[Tensor, "batch rows"]

    def of(
        self, weights: Float[Tensor, "batch heads queries keys"]
    ) -> Float[Tensor, "batch rows keys"]:
        chosen = weights[:, self.heads]
        if self.query is None:
            return chosen.flatten(1, 2)
        return chosen[torch.arange(len(chosen), device=chosen.device), :, self.query]

    def put(
        self,
        weights: Float[Tensor, "batch heads queries keys"],
        rows: Float[Tensor, "batch rows keys"],
    ) -> Float[Tensor, "batch heads queries keys"]:
        """The weights with other rows at the site; those of heads and queries that are not meant
        stay."""
        result = weights.clone()
        rows = rows.to(weights.dtype)
        if self.query is None:
            result[:, self.heads] = rows.unflatten(1, (len(self.heads), -1))
            return result
        text = torch.arange(len(weights), device=weights.device)
        result[
            text[:, None], torch.tensor(self.heads, device=weights.device), self.query[:, None]
        ] = rows
        return result


# Matrix scaling: the matrix nearest (in Σ KL) to another that has given sums of its rows and of its
# columns, diag(e^u) M diag(e^v) (Sinkhorn & Knopp 1967). For any u the columns' factors follow. u
# is found by Newton's method on the convex dual, of one equation per row (the heads of a layer),
# and by a sweep of Sinkhorn's where a Newton step does not come nearer.


SWEEPS = 1000
TOLERANCE = 1e-12
"""The scaling ends when the rows' sums are off by no more than this share of the whole, or after
that many steps."""
LEAST = 1e-300
"""Sums count as at least this in logarithms."""


Matrices = Float[Tensor, "matrices rows columns"]
OfRows = Float[Tensor, "matrices rows"]
OfColumns = Float[Tensor, "matrices columns"]


class Scaling(NamedTuple):
    """The matrix of some row factors, its columns having the sums that they should; `share` is what
    each row has of each column's sum (0 in an empty column), `sums` are those of its rows."""

    share: Matrices
    matrix: Matrices
    sums: OfRows

    @classmethod
    def at(cls, factors: OfRows, matrix: Matrices, columns: OfColumns) -> "Scaling":
        """The matrix that has these row factors (logarithms) and these sums of columns."""
        weights = matrix * (factors - factors.amax(-1, keepdim=True)).exp().unsqueeze(-1)
        sums = weights.sum(-2, keepdim=True)
        share = weights / torch.where(sums > 0, sums, 1)
        there = share * columns.unsqueeze(-2)
        return cls(share, there, there.sum(-1))

    def solved(self, right: OfRows) -> OfRows:
        """Solve for a change of the row factors (weighted mean 0) that changes the rows' sums by
        `right`, the columns' sums being kept; 0 where that is not determined."""
        total = self.sums.sum(-1, keepdim=True)
        sums = self.sums
        system = torch.diag_embed(
            torch.where(sums > 0, sums, 1)
        ) - self.matrix @ self.share.transpose(-1, -2)
        system = system + sums.unsqueeze(-1) * (sums / torch.where(total > 0, total, 1)).unsqueeze(
            -2
        )
        inverse = torch.linalg.inv_ex(system).inverse
        inverse = torch.where(inverse.isfinite().all((-1, -2), keepdim=True), inverse, 0)
        return (inverse @ right.unsqueeze(-1)).squeeze(-1)


def scaled(
    matrix: Float[Tensor, "batch rows columns"],
    rows: Float[Tensor, "*samples batch rows"],
    columns: Float[Tensor, "*samples batch columns"],
) -> Float[Tensor, "*samples batch rows columns"]:
    """The nearest matrix with these sums; differentiable (once) by the sums.

    Args:
        matrix: not negative; a constant. Rows and columns of zeros stay as they are. rows, columns:
        wanted sums, not negative, equal in total, 0 where the matrix has nothing but zeros.
    """
    shape = (*rows.shape, columns.shape[-1])
    rows = rows.flatten(0, -2)
    columns = columns.flatten(0, -2)
    many = matrix.detach().repeat(len(rows) // max(1, len(matrix)), 1, 1)
    with torch.no_grad():
        factors = row_factors(many, rows, columns)
        found = Scaling.at(factors, many, columns)
    if rows.requires_grad or columns.requires_grad:
        # a further step of Newton's of length 0, whose derivative is that of the solution
        step = found.solved(rows - Scaling.at(factors, many, columns).sums)
        found = Scaling.at(factors + step - step.detach(), many, columns)
    return found.matrix.reshape(shape)


def row_factors(matrix: Matrices, rows: OfRows, columns: OfColumns) -> OfRows:
    """The logarithms of the rows' factors; what comes out of one matrix does not depend on the
    others."""
    result = torch.zeros_like(rows)
    left = torch.arange(len(rows), device=rows.device)
    factors = result
    found = Scaling.at(result, matrix, columns)
    for _ in range(SWEEPS):
        error = (rows - found.sums).abs().sum(-1)
        far = ~(error <= TOLERANCE * rows.sum(-1))
        result[left[~far]] = factors[~far]
        if not far.any():
            return result
        left = left[far]
        factors = factors[far]
        found = Scaling(*(part[far] for part in found))
        error = error[far]
        matrix = matrix[far]
        rows = rows[far]
        columns = columns[far]
        trial = factors + found.solved(rows - found.sums)
        nearer = Scaling.at(trial, matrix, columns)
        worse = ~((rows - nearer.sums).abs().sum(-1) < error)
        if worse.any():
            swept = factors + torch.where(rows > 0, (rows / found.sums.clamp_min(LEAST)).log(), 0)
            trial = torch.where(worse.unsqueeze(-1), swept, trial)
            nearer = Scaling.at(trial, matrix, columns)
        factors = trial
        found = nearer
    result[left] = factors
    return result


# From rows of attention over pieces to one weight per word: their mean e_w = mean over rows of Σ
# a_rp over the pieces of w, α = e / Σ e. And back: another α' is shown by the rows nearest
# (smallest Σ KL) to the recorded ones of those that each keep their mass on the text and the shares
# of a word's pieces, and whose mean is α' times the recorded mean mass.


TINY = 1e-30
"""Least mass of a word in a row: what underflowed to 0 can be scaled up again."""


PieceRows = Float[Tensor, "batch rows pieces"]
Member = Float[Tensor, "batch pieces seq"]
Valid = Bool[Tensor, "batch rows"]


def word_weights(
    rows: PieceRows, member: Member, valid: Valid
) -> tuple[Float[Tensor, "batch seq"], Float[Tensor, "batch"]]:
    """The explanation, one weight per word that sums to 1, and the share of all attention that is
    on the text; the rest is on special tokens and the other text."""
    mass = rows.to(member.dtype) @ member
    mean = (mass * valid.unsqueeze(-1)).sum(1) / valid.sum(1, keepdim=True)
    total = mean.sum(-1, keepdim=True)
    return mean / total, total.squeeze(-1)


class Lifting:
    """From another attention to the rows that show it, nearest to the recorded `rows`. `member` is
    as `membership` has it; rows that are not `valid` are padding, and stay as they are."""

    def __init__(self, rows: PieceRows, member: Member, valid: Valid) -> None:
        self.rows = rows.to(member.dtype)
        self.valid = valid
        self.share = self.rows @ member
        self.count = member.sum(1, keepdim=True)
        self.mass = torch.where(self.count > 0, self.share.clamp_min(TINY), 0)
        self.totals = self.mass.sum(-1, keepdim=True)
        # words are looked up: multiplying by `member` would take most of the time of everything
        # where texts are long
        self.word = member.argmax(-1).unsqueeze(1)
        self.of_text = member.any(-1).unsqueeze(1)

    def __call__(
        self, attention: Float[Tensor, "*samples batch seq"]
    ) -> Float[Tensor, "*samples batch rows pieces"]:
        """The rows for one weight per word, which sum to 1 (an attention of sum s gives every row s
        times its mass)."""
        if self.rows.shape[1] == 1:
            wanted = attention.unsqueeze(-2) * self.totals
        else:  # the nearest masses: columns with the attention's share of all mass, rows with their own
            valid = self.valid.unsqueeze(-1).to(self.mass.dtype)
            totals = (self.totals * valid).squeeze(-1)
            size = attention.sum(-1, keepdim=True)  # 1, but where weights are taken for free inputs
            wanted = scaled(
                self.mass * valid, totals * size, attention * totals.sum(-1, keepdim=True)
            )
        # each piece keeps its share of its word's mass; of a word that underflowed, all the same
        # share
        there = self.share >= TINY
        factor = torch.where(there, wanted / self.share.clamp_min(TINY), 0)
        even = torch.where(there, 0, wanted / self.count.clamp_min(1))
        word = self.word.expand(*factor.shape[:-1], -1)
        changed = self.rows * factor.gather(-1, word) + even.gather(-1, word)
        return torch.where(self.of_text & self.valid.unsqueeze(-1), changed, self.rows)
