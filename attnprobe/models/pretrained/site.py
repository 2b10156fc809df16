"""From rows of attention over pieces to one weight per word, and back.

`Site` and `Selection` say which rows of which attention are meant, `word_weights` makes one weight
per word of them, and `Lifting` finds the rows that show other weights per word.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Weights = Float[Tensor, "batch heads queries keys"]


class Queries(StrEnum):
    """Whose rows reach the prediction."""

    FIRST = "first"  # the first piece's, [CLS]
    LAST = "last"  # the last piece's
    ASKED = "asked"  # that of the word whose class is asked for
    ALL = "all"  # those of all pieces: the model averages them


class Site(NamedTuple):
    """Which rows of which attention are examined.

    Attributes:
        layer: the number of the attention in a pass, from 0, or backwards from −1, the last. An
            encoder–decoder has first its encoder's, then for each decoder layer the one over the
            decoder's own text and the one over the encoder's.
        heads: numbers of heads from 0; None: all.
        rows: `pooled`, the row that the prediction is read from, or `all`.
    """

    layer: int = -1
    heads: Sequence[int] | None = None
    rows: Literal["pooled", "all"] = "pooled"


class Selection(NamedTuple):
    """The rows of a site in the weights of one attention.

    Attributes:
        heads: numbers of heads from 0.
        query: the piece of every text whose row is meant; None: the rows of all pieces.
        mask: the pieces that are not padding.
        valid: the rows that are not padding.
    """

    heads: list[int]
    query: Int[Tensor, "batch"] | None
    mask: Bool[Tensor, "batch pieces"]
    valid: Bool[Tensor, "batch rows"]

    def of(self, weights: Weights) -> Float[Tensor, "batch rows keys"]:
        """Take the rows of the site out of an attention."""
        heads = weights[:, self.heads]
        if self.query is None:
            return heads.flatten(1, 2)
        text = torch.arange(len(heads), device=heads.device)
        return heads[text, :, self.query]

    def seen(
        self, visible: Bool[Tensor, "batch 1 queries keys"]
    ) -> Bool[Tensor, "batch rows keys"]:
        """The places that each row of the site may see."""
        if self.query is None:
            return visible.expand(-1, len(self.heads), -1, -1).flatten(1, 2)
        text = torch.arange(len(visible), device=visible.device)
        return visible[text, :, self.query].expand(-1, len(self.heads), -1)

    def put(self, weights: Weights, rows: Float[Tensor, "batch rows keys"]) -> Weights:
        """Put other rows in the place of the site's; all other heads and queries stay."""
        result = weights.clone()
        rows = rows.to(weights.dtype)
        if self.query is None:
            result[:, self.heads] = rows.unflatten(1, (len(self.heads), -1))
            return result
        text = torch.arange(len(weights), device=weights.device)
        heads = torch.tensor(self.heads, device=weights.device)
        result[text[:, None], heads, self.query[:, None]] = rows
        return result


# Matrix scaling. Of all matrices with given sums of rows and columns, the one nearest to M (in
# Σ KL) is diag(e^u) M diag(e^v) (Sinkhorn & Knopp 1967). For any u the columns' factors v follow. u
# is found by Newton's method on the convex dual, of one equation per row (the heads of a layer),
# and by a sweep of Sinkhorn's where a Newton step does not come nearer.

SWEEPS = 1000
"""Most steps of the scaling."""
TOLERANCE = 1e-12
"""The scaling ends when the rows' sums are off by no more than this share of the whole."""
LEAST = 1e-300
"""Sums count as at least this in logarithms."""

Matrices = Float[Tensor, "matrices rows columns"]
OfRows = Float[Tensor, "matrices rows"]
OfColumns = Float[Tensor, "matrices columns"]


class Scaling(NamedTuple):
    """The matrix of some row factors u, whose columns have the sums that they should.

    Attributes:
        share: the share that each row has of each column's sum (0 in an empty column).
        matrix: the matrix.
        sums: sums of its rows.
    """

    share: Matrices
    matrix: Matrices
    sums: OfRows

    @classmethod
    def at(cls, factors: OfRows, matrix: Matrices, columns: OfColumns) -> "Scaling":
        """Scale a matrix by these row factors (logarithms) to these sums of columns."""
        # the columns' factors cancel a common factor of the rows: subtracting it avoids overflow
        weights = matrix * (factors - factors.amax(-1, keepdim=True)).exp().unsqueeze(-1)
        sums = weights.sum(-2, keepdim=True)
        share = weights / torch.where(sums > 0, sums, 1)
        result = share * columns.unsqueeze(-2)
        return cls(share, result, result.sum(-1))

    def solved(self, right: OfRows) -> OfRows:
        """Solve one Newton equation.

        With s the rows' sums, A the matrix and P the shares, the derivative of the rows' sums by
        the row factors is diag(s) − A Pᵀ, the columns' sums being kept. It is singular: a common
        factor changes nothing. Adding s sᵀ / Σ s chooses the change of weighted mean 0.

        Args:
            right: the change of the rows' sums that is wanted.

        Returns:
            The change of the row factors; 0 where it is not determined.
        """
        sums = self.sums
        total = sums.sum(-1, keepdim=True)
        diagonal = torch.diag_embed(torch.where(sums > 0, sums, 1))
        mean = sums / torch.where(total > 0, total, 1)

        system = diagonal - self.matrix @ self.share.transpose(-1, -2)
        system = system + sums.unsqueeze(-1) * mean.unsqueeze(-2)
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
        matrix: not negative; a constant. Rows and columns of zeros stay as they are.
        rows: the sums of rows that are wanted, not negative; 0 where the matrix has only zeros.
        columns: the sums of columns, likewise; equal to those of rows in total.
    """
    shape = (*rows.shape, columns.shape[-1])
    rows = rows.flatten(0, -2)
    columns = columns.flatten(0, -2)
    many = matrix.detach().repeat(len(rows) // max(1, len(matrix)), 1, 1)
    with torch.no_grad():
        factors = row_factors(many, rows, columns)
        solution = Scaling.at(factors, many, columns)
    if rows.requires_grad or columns.requires_grad:
        # one more Newton step, of length 0: its derivative is that of the solution
        step = solution.solved(rows - Scaling.at(factors, many, columns).sums)
        solution = Scaling.at(factors + step - step.detach(), many, columns)
    return solution.matrix.reshape(shape)


def row_factors(matrix: Matrices, rows: OfRows, columns: OfColumns) -> OfRows:
    """The logarithms of the rows' factors.

    Matrices that are solved drop out of the iteration, so that the result of one does not depend on
    the others.
    """
    result = torch.zeros_like(rows)
    number = torch.arange(len(rows), device=rows.device)  # of each matrix that is not solved yet
    factors = result
    current = Scaling.at(factors, matrix, columns)
    for _ in range(SWEEPS):
        error = (rows - current.sums).abs().sum(-1)
        far = ~(error <= TOLERANCE * rows.sum(-1))
        result[number[~far]] = factors[~far]
        if not far.any():
            return result
        number = number[far]
        factors = factors[far]
        current = Scaling(current.share[far], current.matrix[far], current.sums[far])
        error = error[far]
        matrix = matrix[far]
        rows = rows[far]
        columns = columns[far]

        trial = factors + current.solved(rows - current.sums)
        step = Scaling.at(trial, matrix, columns)
        worse = ~((rows - step.sums).abs().sum(-1) < error)
        if worse.any():
            correction = (rows / current.sums.clamp_min(LEAST)).log()
            swept = factors + torch.where(rows > 0, correction, 0)
            trial = torch.where(worse.unsqueeze(-1), swept, trial)
            step = Scaling.at(trial, matrix, columns)
        factors = trial
        current = step
    result[number] = factors
    return result


# From rows of attention over pieces to one weight per word: their mean is
# e_w = mean over rows r of Σ_p a_rp over the pieces p of w, and α = e / Σ e.
# And back: another α' is shown by those rows that keep their mass on the text and the shares of a
# word's pieces, whose mean is α' times the recorded mean mass, and that are nearest to the recorded
# ones (smallest Σ KL).

TINY = 1e-30
"""Least mass of a word in a row: what underflowed to 0 can be scaled up again."""

PieceRows = Float[Tensor, "batch rows pieces"]
Member = Float[Tensor, "batch pieces seq"]
Valid = Bool[Tensor, "batch rows"]
Seen = Bool[Tensor, "batch rows pieces"]


def word_weights(
    rows: PieceRows,
    member: Member,
    valid: Valid,
) -> tuple[Float[Tensor, "batch seq"], Float[Tensor, "batch"]]:
    """The mean of rows over pieces, as one weight per word.

    Args:
        rows: rows of attention.
        member: which pieces belong to which word (`membership`).
        valid: the rows that are not padding.

    Returns:
        Weights that sum to 1, and the share of all attention that is on the text, 0 to 1; the rest
        is on special tokens and on the other text of a pair. NaN where all of it is.
    """
    mass = rows.to(member.dtype) @ member
    mean = (mass * valid.unsqueeze(-1)).sum(1) / valid.sum(1, keepdim=True)
    total = mean.sum(-1, keepdim=True)
    return mean / total, total.squeeze(-1)


class Lifting:
    """The map from one weight per word to the nearest rows that show it.

    Args:
        rows: the recorded rows.
        member: which pieces belong to which word (`membership`).
        valid: the rows that are not padding; the others stay as they are.
        seen: the places that each row may see. No other place ever has a weight.
    """

    def __init__(self, rows: PieceRows, member: Member, valid: Valid, seen: Seen) -> None:
        self.rows = rows.to(member.dtype)
        self.valid = valid
        self.seen = seen
        self.share = self.rows @ member
        self.count = seen.to(member.dtype) @ member
        self.mass = torch.where(self.count > 0, self.share.clamp_min(TINY), 0)
        self.totals = self.mass.sum(-1, keepdim=True)
        # words are looked up: multiplying by `member` would take most of the time of everything
        # where texts are long
        self.word = member.argmax(-1).unsqueeze(1)
        self.is_text = member.any(-1).unsqueeze(1)
        self.is_text_word = member.any(1)

    def __call__(
        self,
        attention: Float[Tensor, "*samples batch seq"],
    ) -> Float[Tensor, "*samples batch rows pieces"]:
        """Lift one weight per word, or many.

        Args:
            attention: weights that sum to 1; an attention of sum s gives every row s times its
                mass.

        Returns:
            The rows. Each piece keeps its share of its word's mass; pieces of a word that
            underflowed get equal shares.
        """
        mass = self._masses(attention)
        is_recorded = self.share >= TINY
        factor = torch.where(is_recorded, mass / self.share.clamp_min(TINY), 0)
        even = torch.where(is_recorded, 0, mass / self.count.clamp_min(1))
        word = self.word.expand(*factor.shape[:-1], -1)
        lifted = self.rows * factor.gather(-1, word) + even.gather(-1, word) * self.seen
        return torch.where(self.is_text & self.valid.unsqueeze(-1), lifted, self.rows)

    def _masses(
        self,
        attention: Float[Tensor, "*samples batch seq"],
    ) -> Float[Tensor, "*samples batch rows seq"]:
        """The mass of every word in every row.

        Rows keep their mass on the text, and columns get the attention's share of all mass. Where
        words are not seen by all rows there may be no such rows: the nearest that keep their mass
        are taken.
        """
        if self.rows.shape[1] == 1:
            return attention.unsqueeze(-2) * self.totals * (self.count > 0)
        valid = self.valid.unsqueeze(-1).to(self.mass.dtype)
        totals = (self.totals * valid).squeeze(-1)
        size = attention.sum(-1, keepdim=True)  # 1, but where weights are taken for free inputs
        masses = scaled(self.mass * valid, totals * size, attention * totals.sum(-1, keepdim=True))
        is_word = self.is_text_word.unsqueeze(1)
        if bool(((self.count > 0) | ~is_word | ~self.valid.unsqueeze(-1)).all()):
            return masses
        sums = masses.sum(-1, keepdim=True)
        wanted = (totals * size).unsqueeze(-1)
        # a row that sees none of the words with weight stays as it was
        recorded = torch.where(self.count > 0, self.share, 0)
        return torch.where(sums > 0, masses * wanted / torch.where(sums > 0, sums, 1), recorded)
