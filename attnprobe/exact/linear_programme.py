"""A linear programme that is solved again and again with other costs and bounds, each time from where the last one ended."""

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
    """Where a programme is least, and by how much its value would change with each row's limit."""

    value: float
    at: Float[np.ndarray, "variables"]
    price: Float[np.ndarray, "rows"]


class Stalled(RuntimeError):
    """The solver came to no answer."""


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
        programme.num_col_, programme.num_row_ = variables, count
        programme.col_cost_ = np.zeros(variables)
        programme.col_lower_, programme.col_upper_ = least, most
        programme.row_lower_, programme.row_upper_ = floor, ceiling
        programme.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        filled = rows != 0
        programme.a_matrix_.start_ = np.r_[0, filled.sum(1).cumsum()].astype(np.int32)
        programme.a_matrix_.index_ = filled.nonzero()[1].astype(np.int32)
        programme.a_matrix_.value_ = rows[filled]
        self.columns = np.arange(variables, dtype=np.int32)
        self.solver = highspy.Highs()
        # simplifying programmes this small takes longer than solving them
        options: dict[str, bool | int | float | str] = {
            "output_flag": False, "threads": 1, "presolve": "off", "solver": "simplex", "simplex_strategy": int(simplex),
            "primal_feasibility_tolerance": tolerance, "dual_feasibility_tolerance": tolerance,
        }  # fmt: skip
        for name, value in options.items():
            self.solver.setOptionValue(name, value)
        self.solver.passModel(programme)

    def bound(self, least: Float[np.ndarray, "variables"], most: Float[np.ndarray, "variables"]) -> None:
        """Other bounds of the variables from now on."""
        self.solver.changeColsBounds(len(self.columns), self.columns, least, most)

    def minimise(self, cost: Float[np.ndarray, "variables"]) -> Solution | None:
        """The least value, or None where nothing is feasible.

        Raises:
            Stalled: the solver came to no answer, by numerical trouble.
        """
        self.solver.changeColsCost(len(self.columns), self.columns, cost)
        self.solver.run()
        status = self.solver.getModelStatus()
        if status == highspy.HighsModelStatus.kInfeasible:
            return None
        if status != highspy.HighsModelStatus.kOptimal:
            raise Stalled(f"linear programme ended with {status}")
        solution = self.solver.getSolution()
        value = float(self.solver.getInfo().objective_function_value)
        return Solution(value, np.array(solution.col_value), np.array(solution.row_dual))
