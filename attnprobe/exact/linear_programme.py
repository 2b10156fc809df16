"""A linear programme that is solved again and again with other costs and bounds, each time from
where the last one ended."""

from dataclasses import dataclass
from enum import IntEnum

import highspy
import numpy as np
from jaxtyping import Float


class Simplex(IntEnum):
    """HiGHS's numbers of its ways."""

    DUAL = 1
    PRIMAL = 4
    """Goes on from the last solution where only the costs are others: it is feasible still."""


@dataclass(frozen=True)
class Solution:
    """Where a programme is least, and by how much its value would change with each row's limit.
    Where the solver came to no answer, by numerical trouble, `at` is None, and `value` a bound: the
    programme has none below it."""

    value: float
    at: Float[np.ndarray, "variables"] | None
    price: Float[np.ndarray, "rows"]


class Silent(highspy.Highs):
    """HiGHS without callbacks, which nobody uses here: with them it greets on the standard
    output."""

    def enableCallbacks(self) -> None:
        pass


class Programme:
    """Minimise cost · v where floor ≤ rows · v ≤ ceiling and least ≤ v ≤ most.

    Args:
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
        count, variables = rows.shape
        programme = highspy.HighsLp()
        programme.num_col_ = variables
        programme.num_row_ = count
        programme.col_cost_ = np.zeros(variables)
        programme.col_lower_ = least
        programme.col_upper_ = most
        programme.row_lower_ = floor
        programme.row_upper_ = ceiling
        programme.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        filled = rows != 0
        programme.a_matrix_.start_ = np.r_[0, filled.sum(1).cumsum()].astype(np.int32)
        programme.a_matrix_.index_ = filled.nonzero()[1].astype(np.int32)
        programme.a_matrix_.value_ = rows[filled]
        self.rows = rows
        self.limits = (floor, ceiling)
        self.bounds = (least, most)
        self.columns = np.arange(variables, dtype=np.int32)
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
        self.solver.passModel(programme)

    def bound(
        self, least: Float[np.ndarray, "variables"], most: Float[np.ndarray, "variables"]
    ) -> None:
        """Other bounds of the variables from now on."""
        self.bounds = least, most
        self.solver.changeColsBounds(len(self.columns), self.columns, least, most)

    def minimise(self, cost: Float[np.ndarray, "variables"]) -> Solution | None:
        """The least value, or None where the solver takes nothing for feasible."""
        self.solver.changeColsCost(len(self.columns), self.columns, cost)
        self.solver.run()
        status = self.solver.getModelStatus()
        if status == highspy.HighsModelStatus.kInfeasible:
            return None
        solution = self.solver.getSolution()
        price = np.array(solution.row_dual)
        if status == highspy.HighsModelStatus.kOptimal:
            return Solution(
                float(self.solver.getInfo().objective_function_value),
                np.array(solution.col_value),
                price,
            )
        return self.no_answer(cost, price)

    def no_answer(
        self, cost: Float[np.ndarray, "variables"], price: Float[np.ndarray, "rows"]
    ) -> Solution:
        """The better bound of two: at the prices that the solver came to, if it did, and at
        none."""
        prices = [
            np.zeros(len(self.rows)),
            *([price] if np.isfinite(price).all() and len(price) else []),
        ]
        return Solution(max(self.bound_below(cost, one) for one in prices), None, prices[-1])

    def bound_below(
        self, cost: Float[np.ndarray, "variables"], price: Float[np.ndarray, "rows"]
    ) -> float:
        """What no feasible point is below, by weak duality: whatever the prices, and whatever the
        solver's tolerances."""
        ends = np.where(price > 0, *self.limits)
        price = np.where(np.isinf(ends), 0, price)
        reduced = cost - price @ self.rows
        corner = np.where(reduced > 0, *self.bounds)
        return float(
            price @ np.where(price != 0, ends, 0) + reduced @ np.where(reduced != 0, corner, 0)
        )
