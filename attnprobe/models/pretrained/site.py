"""Which rows of which attention are meant, and how rows over pieces become one weight per word and back."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import torch
from annotated_types import MinLen
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from attnprobe.core.errors import UserError
from attnprobe.core.settings import Checked, Whole


class Queries(StrEnum):
    """Whose rows reach the prediction."""

    FIRST = "first"  # the first piece's, [CLS]
    LAST = "last"  # the last piece's
    ASKED = "asked"  # that of the word whose class is asked for
    ALL = "all"  # those of all pieces: the model averages them


@dataclass(frozen=True)
class Site(metaclass=Checked):
    """Rows of attention.

    Attributes:
        layer: which of a pass's attentions, from 0, or from −1, the last, backwards. An encoder–decoder has, in order, its
            encoder's, and of each decoder layer that over the decoder's own text and that over the encoder's.
        heads: numbers of heads from 0; None: all.
        rows: `pooled`, the row that the prediction is read from, or `all`.
    """

    settings_place: ClassVar[str] = "model"
    layer: int = -1
    heads: Annotated[Sequence[Whole], MinLen(1)] | None = None
    rows: Literal["pooled", "all"] = "pooled"

    def __post_init__(self) -> None:
        if self.heads is not None and len(set(self.heads)) < len(self.heads):
            raise UserError(f"model.heads={list(self.heads)}: expected every number once")

    @property
    def name(self) -> str:
        """As tables call it: `layer 3`, `layer 3, head 7`; layers and heads count from 0."""
        if self.heads is None:
            return f"layer {self.layer}"
        return f"layer {self.layer}, head{'s' if len(self.heads) > 1 else ''} {'+'.join(map(str, self.heads))}"

    def call(self, count: int) -> int:
        """The number of the attention among `count`.

        Raises:
            UserError: there are fewer.
        """
        if not -count <= self.layer < count:
            raise UserError(
                f"model.layer={self.layer}: this model has {count} attentions, 0 to {count - 1} (or −1, the last)"
            )
        return self.layer % count

    def chosen_heads(self, count: int) -> list[int]:
        """The numbers of the heads.

        Raises:
            UserError: one is not there.
        """
        heads = list(range(count)) if self.heads is None else list(self.heads)
        if wrong := [head for head in heads if not 0 <= head < count]:
            raise UserError(f"model.heads names {wrong[0]}: this layer has {count} heads, 0 to {count - 1}")
        return heads


@dataclass(frozen=True)
class Selection:
    """The rows of a site in the weights of one attention.

    Attributes:
        heads: their numbers.
        query: of every text, the piece whose row is meant; None: all.
        mask: the pieces of each text that are not padding.
    """

    heads: list[int]
    query: Int[Tensor, "batch"] | None
    mask: Bool[Tensor, "batch pieces"]

    @property
    def valid(self) -> Bool[Tensor, "batch rows"]:
        if self.query is not None:
            return self.mask.new_ones(len(self.mask), len(self.heads))
        return self.mask.repeat(1, len(self.heads))

    def of(self, weights: Float[Tensor, "batch heads queries keys"]) -> Float[Tensor, "batch rows keys"]:
        chosen = weights[:, self.heads]
        if self.query is None:
            return chosen.flatten(1, 2)
        return chosen[torch.arange(len(chosen), device=chosen.device), :, self.query]

    def put(
        self, weights: Float[Tensor, "batch heads queries keys"], rows: Float[Tensor, "batch rows keys"]
    ) -> Float[Tensor, "batch heads queries keys"]:
        """The weights with other rows at the site; those of heads and queries that are not meant stay."""
        result, rows = weights.clone(), rows.to(weights.dtype)
        if self.query is None:
            result[:, self.heads] = rows.unflatten(1, (len(self.heads), -1))
            return result
        text = torch.arange(len(weights), device=weights.device)
        result[text[:, None], torch.tensor(self.heads, device=weights.device), self.query[:, None]] = rows
        return result

    def repeated(self, times: int) -> "Selection":
        """The same for the batch `times` times, one after the other."""
        query = None if self.query is None else self.query.repeat(times)
        return Selection(self.heads, query, self.mask.repeat(times, 1))


# Matrix scaling: the matrix nearest to another that has given sums of its rows and of its columns (Sinkhorn & Knopp 1967).
#
# Nearest in Σ KL; it is diag(e^u) M diag(e^v). For any u the columns' factors follow, so that u alone is looked for: by
# Newton's method on the convex dual, whose equations are as many as there are rows (the heads of a layer), and by a sweep of
# Sinkhorn's where a Newton step does not come nearer. Five or six steps take the place of eighty sweeps, and the gradient is
# that of the solution, by one more such system, instead of that of every step.


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

    @classmethod
    def at(
        cls,
        factors: Float[Tensor, "matrices rows"],
        matrix: Float[Tensor, "matrices rows columns"],
        columns: Float[Tensor, "matrices columns"],
    ) -> "Scaling":
        """The matrix that has these row factors (logarithms) and these sums of columns."""
        weights = matrix * (factors - factors.amax(-1, keepdim=True)).exp().unsqueeze(-1)
        sums = weights.sum(-2, keepdim=True)
        share = weights / torch.where(sums > 0, sums, 1)
        there = share * columns.unsqueeze(-2)
        return cls(share, there, there.sum(-1))

    def solved(self, right: Float[Tensor, "matrices rows"]) -> Float[Tensor, "matrices rows"]:
        """Solve for a change of the row factors that changes the rows' sums by `right`, the columns' sums being kept; 0 where
        that is not determined.

        The same factor for all rows changes nothing: of these solutions it is the one with weighted mean 0.
        """
        sums, total = self.sums, self.sums.sum(-1, keepdim=True)
        system = torch.diag_embed(torch.where(sums > 0, sums, 1)) - self.matrix @ self.share.transpose(-1, -2)
        system = system + sums.unsqueeze(-1) * (sums / torch.where(total > 0, total, 1)).unsqueeze(-2)
        result = torch.linalg.solve_ex(system, right.unsqueeze(-1)).result.squeeze(-1)
        return torch.where(result.isfinite().all(-1, keepdim=True), result, 0)


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
        ctx.shapes = rows.shape, columns.shape
        rows, columns = rows.reshape(-1, rows.shape[-1]), columns.reshape(-1, columns.shape[-1])
        many = matrix.repeat(len(rows) // max(1, len(matrix)), 1, 1)
        factors = row_factors(many, rows, columns)
        ctx.save_for_backward(matrix, factors, columns)
        return Scaling.at(factors, many, columns).matrix.reshape(*ctx.shapes[0], columns.shape[-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor, Tensor]:
        matrix, factors, columns = ctx.saved_tensors
        found = Scaling.at(factors, matrix.repeat(len(factors) // max(1, len(matrix)), 1, 1), columns)
        gradient = gradient.reshape(found.matrix.shape)
        of_columns = (gradient * found.share).sum(-2)
        of_rows = (gradient * found.matrix).sum(-1) - torch.einsum("mrc,mc->mr", found.matrix, of_columns)
        of_rows = found.solved(of_rows)
        of_columns = of_columns - torch.einsum("mrc,mr->mc", found.share, of_rows)
        return None, of_rows.reshape(ctx.shapes[0]), of_columns.reshape(ctx.shapes[1])


def row_factors(
    matrix: Float[Tensor, "matrices rows columns"],
    rows: Float[Tensor, "matrices rows"],
    columns: Float[Tensor, "matrices columns"],
) -> Float[Tensor, "matrices rows"]:
    """The logarithms of the rows' factors; what comes out of one matrix does not depend on the others."""
    result = torch.zeros_like(rows)
    left = torch.arange(len(rows), device=rows.device)
    factors, found = result, Scaling.at(result, matrix, columns)
    for _ in range(SWEEPS):
        error = (rows - found.sums).abs().sum(-1)
        far = ~(error <= TOLERANCE * rows.sum(-1))
        result[left[~far]] = factors[~far]
        if not far.any():
            return result
        left, factors, found, error = left[far], factors[far], Scaling(*(part[far] for part in found)), error[far]
        matrix, rows, columns = matrix[far], rows[far], columns[far]
        trial = factors + found.solved(rows - found.sums)
        nearer = Scaling.at(trial, matrix, columns)
        worse = ~((rows - nearer.sums).abs().sum(-1) < error)
        if worse.any():
            swept = factors + torch.where(rows > 0, (rows / found.sums.clamp_min(LEAST)).log(), 0)
            trial = torch.where(worse.unsqueeze(-1), swept, trial)
            nearer = Scaling.at(trial, matrix, columns)
        factors, found = trial, nearer
    result[left] = factors
    return result


# From rows of attention over pieces to one weight per word, and back by the least change.
#
# A site's rows are those of some heads at some queries. What a reader is shown is their mean, per word, over the words of
# the text: e_w = mean over rows of Σ a_rp over the pieces of w; α = e / Σ e. Another α' is shown by the rows that are
# nearest to the recorded ones (smallest Σ KL) of those that keep, each, its mass on the text and the shares of a word's
# pieces, and whose mean is α' times the recorded mean mass: matrix scaling (Sinkhorn & Knopp 1967) of the words' masses.


TINY = 1e-30
"""Least mass of a word in a row: what underflowed to 0 can be scaled up again."""


def membership(
    piece_word: Int[Tensor, "batch pieces"], content: Bool[Tensor, "batch seq"]
) -> Float[Tensor, "batch pieces seq"]:
    """1 where a piece belongs to a word of the text, else 0."""
    position = torch.arange(content.shape[1], device=content.device)
    return ((piece_word.unsqueeze(-1) == position) & content.unsqueeze(1)).double()


def masses(
    rows: Float[Tensor, "batch rows pieces"], member: Float[Tensor, "batch pieces seq"]
) -> Float[Tensor, "batch rows seq"]:
    """What each row gives to each word, 0 to 1; the rest is on special tokens and the other text."""
    return rows.to(member.dtype) @ member


def word_weights(
    mass: Float[Tensor, "batch rows seq"], valid: Bool[Tensor, "batch rows"]
) -> tuple[Float[Tensor, "batch seq"], Float[Tensor, "batch"]]:
    """The explanation, one weight per word that sums to 1, and the share of all attention that is on the text."""
    mean = mean_row(mass, valid)
    total = mean.sum(-1, keepdim=True)
    return mean / total, total.squeeze(-1)


def mean_row(rows: Float[Tensor, "batch rows any"], valid: Bool[Tensor, "batch rows"]) -> Float[Tensor, "batch any"]:
    """The mean of the rows that there are."""
    return (rows * valid.unsqueeze(-1)).sum(1) / valid.sum(1, keepdim=True)


class Lifting:
    """From another attention to the rows that show it, nearest to the recorded ones. What does not depend on that attention
    is computed once.

    Args:
        rows: as recorded.
        member: see `membership`.
        valid: which rows there are; others are padding, and stay as they are.
    """

    def __init__(
        self,
        rows: Float[Tensor, "batch rows pieces"],
        member: Float[Tensor, "batch pieces seq"],
        valid: Bool[Tensor, "batch rows"],
    ) -> None:
        self.rows, self.valid = rows.to(member.dtype), valid
        self.share = masses(rows, member)
        self.count = member.sum(1, keepdim=True)
        self.mass = torch.where(self.count > 0, self.share.clamp_min(TINY), 0)
        self.totals = self.mass.sum(-1, keepdim=True)
        # words are looked up: multiplying by `member` would take most of the time of everything where texts are long
        self.word = member.argmax(-1).unsqueeze(1)
        self.of_text = member.any(-1).unsqueeze(1)

    def __call__(self, attention: Float[Tensor, "*samples batch seq"]) -> Float[Tensor, "*samples batch rows pieces"]:
        """The rows.

        Args:
            attention: one weight per word; sums to 1 (an attention of sum s gives every row s times its mass).
        """
        if self.rows.shape[1] == 1:
            wanted = attention.unsqueeze(-2) * self.totals
        else:  # the nearest masses: columns with the attention's share of all mass, rows with their own
            valid = self.valid.unsqueeze(-1).to(self.mass.dtype)
            totals = (self.totals * valid).squeeze(-1)
            size = attention.sum(-1, keepdim=True)  # 1, but where weights are taken for free inputs
            wanted = scaled(self.mass * valid, totals * size, attention * totals.sum(-1, keepdim=True))
        # each piece keeps its share of its word's mass; of a word that underflowed, all the same share
        there = self.share >= TINY
        factor = torch.where(there, wanted / self.share.clamp_min(TINY), 0)
        even = torch.where(there, 0, wanted / self.count.clamp_min(1))
        word = self.word.expand(*factor.shape[:-1], -1)
        changed = self.rows * factor.gather(-1, word) + even.gather(-1, word)
        return torch.where(self.of_text & self.valid.unsqueeze(-1), changed, self.rows)
