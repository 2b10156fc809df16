"""A linear programme that is solved again and again with other costs and bounds.

Each time the solver starts from where the last one ended.
"""

from dataclasses import dataclass
from enum import IntEnum

import highspy
import numpy as np
from jaxtyping import Float


class Simplex(IntEnum):
    """HiGHS's numbers of its simplex strategies."""

    DUAL = 1
    PRIMAL = 4
    """Goes on from the last solution where only the costs change: it is still feasible."""


@dataclass(frozen=True)
class Solution:
    """The optimum of a programme, or a bound where numerical trouble left the solver without one.

    Attributes:
        value: the least value; without an optimum, a bound that no feasible point is below.
        at: where it is attained; None without an optimum.
        price: by how much the value would change with each row's limit.
    """

    value: float
    at: Float[np.ndarray, "variables"] | None
    price: Float[np.ndarray, "rows"]


class Silent(highspy.Highs):
    """HiGHS without callbacks, which nobody uses here."""

    def enableCallbacks(self) -> None:
        """Do nothing: with callbacks HiGHS greets on the standard output."""


class Programme:
    """Minimise cost · v where floor ≤ rows · v ≤ ceiling and least ≤ v ≤ most.

    Args:
        rows: coefficients of the constraints.
        floor: least value of each row; −∞ where there is none.
        ceiling: greatest value of each row, likewise.
        least: least value of each variable.
        most: greatest value of each variable.
        simplex: the strategy.
        tolerance: by how much a solution may violate a row or a bound, 1e-10 or more.
    """

    def __init__(
        self,
        rows: Float[np.ndarray, "rows variables"],
        floor: Float[np.ndarray, "rows"],
        ceiling: Float[np.ndarray, "rows"],
        least: Float[np.ndarray, "variables"],
        most: Float[np.ndarray, "variables"],
        *,
        simplex: Simplex,
        tolerance: float = 1e-7,
    ) -> None:
        self.rows = rows
        self.limits = (floor, ceiling)
        self.bounds = (least, most)
        self.columns = np.arange(rows.shape[1], dtype=np.int32)
        self.solver = Silent()
        # simplifying programmes this small takes longer than solving them
        options: dict[str, bool | int | float | str] = {
            "output_flag": False,
            "threads": 1,
            "presolve": "off",
            "solver": "simplex",
            "simplex_strategy": int(simplex),
            "primal_feasibility_tolerance": tolerance,
            "dual_feasibility_tolerance": tolerance,
        }
        for name, value in options.items():
            self.solver.setOptionValue(name, value)
        self.solver.passModel(self._model())

    def _model(self) -> highspy.HighsLp:
        """The programme without costs, its rows in the compressed form that HiGHS takes."""
        programme = highspy.HighsLp()
        programme.num_row_, programme.num_col_ = self.rows.shape
        programme.col_cost_ = np.zeros(len(self.columns))
        programme.col_lower_, programme.col_upper_ = self.bounds
        programme.row_lower_, programme.row_upper_ = self.limits
        is_filled = self.rows != 0
        matrix = programme.a_matrix_
        matrix.format_ = highspy.MatrixFormat.kRowwise
        matrix.start_ = np.r_[0, is_filled.sum(1).cumsum()].astype(np.int32)
        matrix.index_ = is_filled.nonzero()[1].astype(np.int32)
        matrix.value_ = self.rows[is_filled]
        return programme

    def bound(
        self, least: Float[np.ndarray, "variables"], most: Float[np.ndarray, "variables"]
    ) -> None:
        """Set other bounds of the variables from now on."""
        self.bounds = (least, most)
        self.solver.changeColsBounds(len(self.columns), self.columns, least, most)

    def minimise(self, cost: Float[np.ndarray, "variables"]) -> Solution | None:
        """Find the least value of cost · v; None where the solver takes nothing for feasible."""
        self.solver.changeColsCost(len(self.columns), self.columns, cost)
        self.solver.run()
        status = self.solver.getModelStatus()
        if status == highspy.HighsModelStatus.kInfeasible:
            return None
        solution = self.solver.getSolution()
        price = np.array(solution.row_dual)
        if status != highspy.HighsModelStatus.kOptimal:
            return self.without_optimum(cost, price)
        value = float(self.solver.getInfo().objective_function_value)
        return Solution(value, np.array(solution.col_value), price)

    def without_optimum(
        self, cost: Float[np.ndarray, "variables"], price: Float[np.ndarray, "rows"] | None = None
    ) -> Solution:
        """The better bound of two: at the prices that the solver came to, if any, and at none."""
        no_price = np.zeros(len(self.rows))
        bound = self.bound_below(cost, no_price)
        if price is None or not len(price) or not np.isfinite(price).all():
            return Solution(bound, None, no_price)
        return Solution(max(bound, self.bound_below(cost, price)), None, price)

    def bound_below(
        self, cost: Float[np.ndarray, "variables"], price: Float[np.ndarray, "rows"]
    ) -> float:
        """A value that no feasible point is below, by weak duality.

        It holds whatever the prices and the solver's tolerances are.
        """
        ends = np.where(price > 0, *self.limits)
        price = np.where(np.isinf(ends), 0, price)
        reduced = cost - price @ self.rows
        corner = np.where(reduced > 0, *self.bounds)
        row_part = price @ np.where(price != 0, ends, 0)
        return float(row_part + reduced @ np.where(reduced != 0, corner, 0))
