"""Each position's least and greatest weight over all attentions with the same output.

The rows of an attention (one per head) enter what comes after them only through Σ_r Σ_t a_rt U_rt,
with U_rt the value vector of position t in head r times that head's part of the output projection.
All attentions with the same sum give the same output, digit for digit, whatever follows. They form
a polytope: a_rt ≥ 0, Σ_t a_rt = 1 for each row, and `dim` equations. Where it is a single point the
attention is identifiable (Brunner et al. 2020); where it is not, linear programmes say how much
each weight could have differed.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from attnprobe.core.errors import UserError
from attnprobe.exact.checks import LEAST_MASS, SUM_TOLERANCE, refuse_integers
from attnprobe.exact.linear_programme import Programme, Simplex
from attnprobe.measures import jensen_shannon

RANK = 1e-10
"""Directions in which the values vary by less than this share of the widest count as none."""
ROUNDING = 1e-14
"""So do those below this share of the values themselves: equal values less their mean leave this
much."""
FEASIBLE = 1e-9
"""How far a programme's solution may violate an equation (HiGHS allows 1e-10 at the least)."""
SOLVER: dict[str, Any] = {"simplex": Simplex.PRIMAL, "tolerance": FEASIBLE}
"""The primal simplex is three times as fast as the default at 12 heads and 64 pieces."""


@dataclass(frozen=True)
class WeightRanges:
    """What all attentions with an identical output have in common.

    Attributes:
        low: the least weight of each position, averaged over the rows; NaN for positions that were
            not asked for. Where the solver comes to no answer, as it may with values of very
            different sizes, a certified bound that may be farther out, down to 0.
        high: the greatest, likewise, up to 1.
        unique: no other attention has the same output; certain where it is true.
        freedom: in how many directions the attention could move if no weight had to stay above 0.
        farthest: the largest Jensen-Shannon divergence (nats, mean over rows) of an attention that
            a programme came upon: a lower bound.
        moved: the largest change of any entry of the output over all solutions. It is rounding, or
            the ranges do not hold.
        lowest: for each position an attention (mean over rows) in which its weight is the least;
            the attention itself where it was not asked for.
        highest: likewise, the greatest.
    """

    low: Float[Tensor, "seq"]
    high: Float[Tensor, "seq"]
    unique: bool
    freedom: int
    farthest: float
    moved: float
    lowest: Float[Tensor, "seq seq"]
    highest: Float[Tensor, "seq seq"]


def weight_ranges(
    attention: Shaped[Tensor, "..."],
    values: Shaped[Tensor, "..."],
    *,
    mask: Shaped[Tensor, "..."] | None = None,
    positions: Shaped[Tensor, "..."] | None = None,
    words: Shaped[Tensor, "..."] | None = None,
) -> WeightRanges:
    """The range of each position's mean weight over all attentions with the identical output.

    Two linear programmes per position, over rows · seq variables. One text is one polytope: only
    the objective changes, so that each programme starts where the last one ended.

    Args:
        attention: `[rows, seq]`, each row 0 or more and summing to 1.
        values: `[rows, seq, dim]`, the vector that one unit of weight adds to the output: V W_O of
            the row's head.
        mask: True where a position may have weight at all, bool `[seq]`; everywhere by default.
        positions: which positions to find the range of, long `[positions]`; all by default.
        words: the word that each position is a piece of, long `[seq]`, from 0, −1 for none: all of
            the above is then about words, a word's weight being that of its pieces. By default
            every position is a word.

    Raises:
        UserError: shapes that do not fit, rows that are not distributions, weight outside `mask`,
            values that are not finite, positions that are not in the text.

    >>> attention = torch.tensor([[0.5, 0.3, 0.2]])
    >>> values = torch.tensor([[[0.0], [1.0], [1.0]]])  # the last two say the same
    >>> ranges = weight_ranges(attention, values)
    >>> ranges.unique, [round(weight, 6) for weight in ranges.low.tolist() + ranges.high.tolist()]
    (False, [0.5, 0.0, 0.0, 0.5, 0.5, 0.5])
    """
    device = attention.device
    text = _checked(attention, values, mask, positions, words)
    member = text.membership()
    mean_weights = text.weights.mean(0) @ member
    low = np.full_like(mean_weights, np.nan)
    high = np.full_like(mean_weights, np.nan)
    low[text.queried] = mean_weights[text.queried]
    high[text.queried] = mean_weights[text.queried]
    lowest = np.tile(mean_weights, (len(mean_weights), 1))
    highest = np.tile(mean_weights, (len(mean_weights), 1))

    polytope = _Polytope(text.weights, text.values)
    unique = polytope.is_a_point()
    if not unique:
        has_pieces = member[:, text.queried].any(0)
        for word in text.queried[has_pieces]:
            minimum, lowest[word] = polytope.least(member[:, word], member)
            low[word] = min(mean_weights[word], max(minimum, 0))
            negated_maximum, highest[word] = polytope.least(-member[:, word], member)
            high[word] = max(mean_weights[word], min(-negated_maximum, 1))
    return WeightRanges(
        low=torch.from_numpy(low).to(device),
        high=torch.from_numpy(high).to(device),
        unique=unique,
        freedom=polytope.freedom,
        farthest=polytope.farthest,
        moved=polytope.moved,
        lowest=torch.from_numpy(lowest).to(device),
        highest=torch.from_numpy(highest).to(device),
    )


class _Polytope:
    """All attentions [rows, seq] with the same output as a given attention.

    A linear programme whose objective is exchanged.
    """

    def __init__(
        self, attention: Float[np.ndarray, "rows seq"], values: Float[np.ndarray, "rows seq dim"]
    ) -> None:
        self.attention = attention
        rows, seq = attention.shape
        # each row sums to 1, so what all of its values have in common says nothing and only costs
        # digits
        self.values = values - values.mean(1, keepdims=True)
        sums = np.kron(np.eye(rows), np.ones(seq))
        # orthonormal equations: dependent ones would stall the solver, short ones would hold too
        # loosely
        flat_values = self.values.reshape(rows * seq, -1).T
        _, size, directions = np.linalg.svd(flat_values, full_matrices=False)
        negligible = max(RANK * size.max(initial=0), ROUNDING * float(np.linalg.norm(values)))
        self.equations = np.vstack([sums, directions[size > negligible]])
        self.positive = attention.ravel() > LEAST_MASS
        self.freedom = rows * seq - len(self.equations)
        self.farthest = 0.0
        self.moved = 0.0
        self.programme: Programme | None = None

    def is_a_point(self) -> bool:
        """Whether no direction leads to another attention with the same output.

        Where the weights are above 0 both ways are open, so any freedom among them is enough. Else
        a direction must raise some weight that is 0; whether one exists is a linear programme too.
        """
        if np.linalg.matrix_rank(self.equations[:, self.positive], tol=RANK) < self.positive.sum():
            return False
        if self.positive.all():
            return True
        unchanged = np.zeros(len(self.equations))
        lowest_change = np.where(self.positive, -1.0, 0.0)
        highest_change = np.ones(self.attention.size)
        programme = Programme(
            self.equations, unchanged, unchanged, lowest_change, highest_change, **SOLVER
        )
        cost = np.where(self.positive, 0.0, -1.0)
        solution = programme.minimise(cost) or programme.without_optimum(cost)
        total_rise = -solution.value
        return bool(total_rise <= np.sqrt(FEASIBLE))

    def least(
        self, cost: Float[np.ndarray, "seq"], member: Float[np.ndarray, "seq words"]
    ) -> tuple[float, Float[np.ndarray, "words"]]:
        """The least of Σ cost · mean weight.

        Returns:
            The minimum, and the mean weights of all words there. Where the solver comes to no
            answer, a certified bound, and the attention's own weights.
        """
        if self.programme is None:
            limits = self.equations @ self.attention.ravel()
            no_weight = np.zeros(self.attention.size)
            self.programme = Programme(
                self.equations, limits, limits, no_weight, no_weight + 1, **SOLVER
            )
        costs = np.tile(cost / len(self.attention), len(self.attention))
        # where the solver says that nothing is feasible it is mistaken: the attention itself is
        minimum = self.programme.minimise(costs) or self.programme.without_optimum(costs)
        if minimum.at is None:
            return minimum.value, self.attention.mean(0) @ member

        solution = np.clip(minimum.at, 0, None).reshape(self.attention.shape)
        change = np.einsum("rt,rtd->d", solution - self.attention, self.values)
        self.moved = max(self.moved, float(np.abs(change).max(initial=0)))
        solution /= solution.sum(-1, keepdims=True)
        divergence = jensen_shannon(torch.from_numpy(self.attention), torch.from_numpy(solution))
        self.farthest = max(self.farthest, float(divergence.mean()))
        return minimum.value, solution.mean(0) @ member


@dataclass(frozen=True)
class _Text:
    """One text in float64 on the CPU, the positions only that may have weight.

    Attributes:
        weights: attention, each row summing to exactly 1.
        values: what one unit of weight adds to the output.
        word: the word of each position, −1 for none.
        queried: the words whose ranges are asked for.
        words: how many there are.
    """

    weights: Float[np.ndarray, "rows seq"]
    values: Float[np.ndarray, "rows seq dim"]
    word: Int[np.ndarray, "seq"]
    queried: Int[np.ndarray, "queried"]
    words: int

    def membership(self) -> Float[np.ndarray, "seq words"]:
        """1 where a position is a piece of a word, else 0."""
        member = np.zeros((len(self.word), self.words))
        is_piece = self.word >= 0
        member[is_piece, self.word[is_piece]] = 1
        return member


def _checked(
    attention: Tensor,
    values: Tensor,
    mask: Tensor | None,
    positions: Tensor | None,
    words: Tensor | None,
) -> _Text:
    """The arguments of `weight_ranges`, checked, without the positions outside the mask."""
    shapes = f"attention {tuple(attention.shape)}, values {tuple(values.shape)}"
    fits = attention.ndim == 2 and values.ndim == 3 and values.shape[:2] == attention.shape
    if not fits or not attention.shape[1]:
        raise UserError(
            f"{shapes}: expected [rows, seq] and [rows, seq, dim], with one or more positions"
        )
    refuse_integers(attention=attention, values=values)
    seq = attention.shape[1]
    allowed = np.ones(seq, dtype=bool) if mask is None else mask.detach().cpu().numpy()
    if allowed.shape != (seq,) or allowed.dtype != bool:
        raise UserError(f"mask is {tuple(allowed.shape)} of {allowed.dtype}: expected bool [{seq}]")

    weights = attention.detach().double().cpu().numpy()
    sums = weights.sum(-1, keepdims=True)
    sums_to_one = np.abs(sums[:, 0] - 1) <= SUM_TOLERANCE  # False for NaN
    is_wrong = ~sums_to_one | (weights < 0).any(-1)
    if is_wrong.any():
        row = int(is_wrong.argmax())
        raise UserError(
            f"attention row {row} sums to {sums[row, 0]:.6g}: "
            f"expected weights of 0 or more that sum to 1"
        )
    if weights[:, ~allowed].any():
        raise UserError("attention has weight outside mask: expected 0 where mask is False")
    vectors = values.detach().double().cpu().numpy()
    if not np.isfinite(vectors[:, allowed]).all():
        raise UserError("values are not finite: check the model for NaN or infinity")

    word = np.arange(seq) if words is None else words.detach().cpu().numpy()
    if word.shape != (seq,) or word.min() < -1:
        raise UserError(
            f"words is {tuple(word.shape)}: expected long [{seq}], numbers from 0, or -1 for none"
        )
    count = int(word.max()) + 1
    queried = np.arange(count) if positions is None else positions.detach().cpu().numpy()
    if queried.ndim != 1 or not np.isin(queried, np.arange(count)).all():
        raise UserError(f"positions {queried.tolist()}: expected numbers from 0 to {count - 1}")
    return _Text(
        weights=(weights / sums)[:, allowed],
        values=vectors[:, allowed],
        word=word[allowed],
        queried=queried,
        words=count,
    )
