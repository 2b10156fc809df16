"""How far attention may be from what it is while the output stays the same: each position's least
and greatest weight.

The rows of an attention (one per head) enter what comes after them only through Σ_r Σ_t a_rt U_rt,
with U_rt the value vector of position t in head r times that head's part of the output projection.
All attentions with the same sum give the same output, digit for digit, whatever follows. They form
a polytope: a_rt ≥ 0, Σ_t a_rt = 1 for each row, and `dim` equations. Where it is a single point the
attention is identifiable (Brunner et al. 2020); where it is not, linear programmes say how much
each weight could have differed."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Shaped
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
    """What every attention with an identical output has in common.

    `low` and `high` are the least and the greatest weight of each position, averaged over the rows;
    NaN for positions that were not asked for. Where the solver comes to no answer, as it may with
    values of very different sizes, they are certified bounds that may be farther out, from 0 to 1.
    `unique` says that no other attention has the same output (certain where it is true), `freedom`
    in how many directions the attention could move if no weight had to stay above 0. `farthest` is
    the largest Jensen–Shannon divergence (nats, mean over rows) of an attention that a programme
    came upon: a lower bound. `moved` is the largest change of any entry of the output over all
    solutions: rounding, or the ranges do not hold. `lowest` and `highest` are, for each position,
    an attention (mean over rows) in which its weight is the least, and one in which it is the
    greatest; the attention itself where it was not asked for."""

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
    weights, vectors, allowed, asked, belongs = _checked(attention, values, mask, positions, words)
    device = attention.device
    places = allowed.nonzero()[0]
    member = np.zeros((len(places), belongs.max(initial=-1) + 1))
    of_word = belongs[places] >= 0
    member[of_word, belongs[places][of_word]] = 1
    own = weights[:, places].mean(0) @ member
    low = np.full_like(own, np.nan)
    high = np.full_like(own, np.nan)
    low[asked] = high[asked] = own[asked]
    lowest = np.tile(own, (len(own), 1))
    highest = np.tile(own, (len(own), 1))
    polytope = _Polytope(weights[:, places], vectors[:, places])
    unique = polytope.is_a_point()
    if not unique:
        for word in asked[member[:, asked].any(0)]:
            value, lowest[word] = polytope.least(member[:, word], member)
            low[word] = min(own[word], max(value, 0))
            value, highest[word] = polytope.least(-member[:, word], member)
            high[word] = max(own[word], min(-value, 1))
    least, most, *corners = (
        torch.from_numpy(each).to(device) for each in (low, high, lowest, highest)
    )
    return WeightRanges(
        least, most, unique, polytope.freedom, polytope.farthest, polytope.moved, *corners
    )


class _Polytope:
    """All attentions [rows, seq] with the same output as one, as a linear programme whose objective
    is exchanged."""

    def __init__(
        self, attention: Float[np.ndarray, "rows seq"], values: Float[np.ndarray, "rows seq dim"]
    ) -> None:
        self.attention = attention
        rows, seq = attention.shape
        # each row sums to 1, so what all of its values have in common says nothing and only costs
        # digits
        self.values = values - values.mean(1, keepdims=True)
        sums = np.kron(np.eye(rows), np.ones(seq))
        _, size, directions = np.linalg.svd(
            self.values.reshape(rows * seq, -1).T, full_matrices=False
        )
        # orthonormal equations: dependent ones would stall the solver, short ones would hold too
        # loosely
        least = max(RANK * size.max(initial=0), ROUNDING * float(np.linalg.norm(values)))
        self.equations = np.vstack([sums, directions[size > least]])
        self.positive = attention.ravel() > LEAST_MASS
        self.freedom = rows * seq - len(self.equations)
        self.farthest = self.moved = 0.0
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
        nothing = np.zeros(len(self.equations))
        least = np.where(self.positive, -1.0, 0.0)
        most = np.ones(self.attention.size)
        programme = Programme(self.equations, nothing, nothing, least, most, **SOLVER)
        cost = np.where(self.positive, 0.0, -1.0)
        highest = -(programme.minimise(cost) or programme.no_answer(cost, np.zeros(0))).value
        return bool(highest <= np.sqrt(FEASIBLE))

    def least(
        self, cost: Float[np.ndarray, "seq"], member: Float[np.ndarray, "seq words"]
    ) -> tuple[float, Float[np.ndarray, "words"]]:
        """The least of Σ cost · mean weight, and the mean weights of all words there. Where the
        solver comes to no answer, a certified bound, and the attention's own weights."""
        if self.programme is None:
            limits = self.equations @ self.attention.ravel()
            least = np.zeros(self.attention.size)
            self.programme = Programme(self.equations, limits, limits, least, least + 1, **SOLVER)
        costs = np.tile(cost / len(self.attention), len(self.attention))
        # where the solver says that nothing is feasible it is mistaken: the attention itself is
        minimum = self.programme.minimise(costs) or self.programme.no_answer(costs, np.zeros(0))
        if minimum.at is None:
            return minimum.value, self.attention.mean(0) @ member
        solution = np.clip(minimum.at, 0, None).reshape(self.attention.shape)
        shift = np.abs(np.einsum("rt,rtd->d", solution - self.attention, self.values)).max(
            initial=0
        )
        self.moved = max(self.moved, float(shift))
        solution /= solution.sum(-1, keepdims=True)
        apart = jensen_shannon(torch.from_numpy(self.attention), torch.from_numpy(solution))
        self.farthest = max(self.farthest, float(apart.mean()))
        return minimum.value, solution.mean(0) @ member


def _checked(
    attention: Tensor,
    values: Tensor,
    mask: Tensor | None,
    positions: Tensor | None,
    words: Tensor | None,
) -> tuple[np.ndarray, ...]:
    """All of it as float64 on the CPU, rows summing to exactly 1."""
    shapes = f"attention {tuple(attention.shape)}, values {tuple(values.shape)}"
    if (
        attention.ndim != 2
        or values.ndim != 3
        or values.shape[:2] != attention.shape
        or not attention.shape[1]
    ):
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
    wrong = ~(np.abs(sums[:, 0] - 1) <= SUM_TOLERANCE) | (weights < 0).any(-1)
    if wrong.any():
        row = int(wrong.argmax())
        raise UserError(
            f"attention row {row} sums to {sums[row, 0]:.6g}: expected weights of 0 or more that sum to 1"
        )
    if weights[:, ~allowed].any():
        raise UserError("attention has weight outside mask: expected 0 where mask is False")
    vectors = values.detach().double().cpu().numpy()
    if not np.isfinite(vectors[:, allowed]).all():
        raise UserError("values are not finite: check the model for NaN or infinity")
    belongs = np.arange(seq) if words is None else words.detach().cpu().numpy()
    if belongs.shape != (seq,) or belongs.min() < -1:
        raise UserError(
            f"words is {tuple(belongs.shape)}: expected long [{seq}], numbers from 0, or -1 for none"
        )
    count = belongs.max() + 1
    asked = np.arange(count) if positions is None else positions.detach().cpu().numpy()
    if asked.ndim != 1 or not np.isin(asked, np.arange(count)).all():
        raise UserError(f"positions {asked.tolist()}: expected numbers from 0 to {count - 1}")
    return weights / sums, vectors, allowed, asked, belongs
