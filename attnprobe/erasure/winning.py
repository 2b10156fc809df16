"""The fewest positions after whose erasure a given class wins outright: several constraints at once.

Serrano & Smith name erasure towards each class as future work. For one rival against the decision a sort is exact
(`attnprobe.exact.smallest_overtaking_sets`); to win, a class must be ahead of every other one, and which set is
smallest is then an integer programme with one binary variable per position and one constraint per other class.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import Bounds, LinearConstraint, milp

MARGIN = 1e-5
"""How far above 0 a sum is asked to be in the second attempt, relative to its largest summand: the solver takes
anything above -1e-6 for 0 or more."""


@dataclass(frozen=True)
class WinningSet:
    """What is known of the smallest set of positions whose erasure makes a class win.

    Attributes:
        size: positions of the smallest set known, 0 where the class wins already; −1 where none is known.
        bound: no set of fewer positions does it; −1 where it is proved, up to rounding, that no set does it.
        exact: `size` equals `bound`.
    """

    size: int
    bound: int

    @property
    def exact(self) -> bool:
        """Whether `size` is the optimum, or both are −1: proved that there is no such set."""
        return self.size == self.bound


NO_SET = WinningSet(-1, -1)


def smallest_winning_set(
    margins: Float[np.ndarray, "rivals seq"], *, least: Float[np.ndarray, "rivals"] | float = 0.0, nodes: int = 1000
) -> WinningSet:
    """The fewest positions to erase so that every rival's kept sum Σ_{t∉S} margins[j, t] is above `least`.

    Bounds by sorting come first. From below: the rival that is hardest to beat alone. From above: every rival's own
    order, the order by each position's worst margin and the one by its mean margin, followed until all sums are
    positive. Where the two differ, an integer programme decides (HiGHS): what it says of sums of 0 or more bounds the
    strict problem from below, and a set of its own counts only where its sums are above `least` in float64.

    Args:
        margins: α_t (z_t[k] − z_t[j]) of class k over each rival j, at the erasable positions only.
        least: what a sum must exceed not to be a tie: 1e-12 of the largest |z_t[k] − z_t[j]| (`attnprobe.exact.ties`).
        nodes: branch-and-bound nodes before the search is given up and the bounds stand as they are: nodes and not
            seconds, so that the same input gives the same answer on any machine. 0: bounds by sorting alone.
    """
    least = np.broadcast_to(least, len(margins))
    alone = [
        _first(margins[[rival]], least[[rival]], np.argsort(row, kind="stable")) for rival, row in enumerate(margins)
    ]
    if min(alone) < 0:
        return NO_SET
    bound = max(alone)
    scale = np.abs(margins).max(1, keepdims=True)
    relative = margins / np.where(scale > 0, scale, 1)
    orders = [*relative, relative.min(0), relative.mean(0)]
    sizes = [size for scores in orders if (size := _first(margins, least, np.argsort(scores, kind="stable"))) >= 0]
    size = min(sizes, default=-1)
    if size == bound or nodes == 0:
        return WinningSet(size, bound)
    for margin in (0.0, MARGIN):
        keep, most = _most_kept(relative, margin, nodes)
        if margin == 0:
            if most < 1:
                return NO_SET
            bound = max(bound, margins.shape[1] - most)
        if keep is not None and keep.any() and (margins[:, keep].sum(1) > least).all():
            erased = int((~keep).sum())
            size = erased if size < 0 else min(size, erased)
        if size == bound:
            break
    # single positions of next to no weight are within the solver's tolerance, and easily looked at
    if bound == margins.shape[1] - 1 and size < 0:
        return WinningSet(bound, bound) if (margins > least[:, None]).all(0).any() else NO_SET
    return WinningSet(size, bound)


def _first(
    margins: Float[np.ndarray, "rivals seq"], least: Float[np.ndarray, "rivals"], order: Int[np.ndarray, "seq"]
) -> int:
    """How many positions of the order have to go until every sum of the rest is above `least`; −1 if never."""
    kept = np.cumsum(margins[:, order[::-1]], axis=1)[:, ::-1]
    wins = (kept > least[:, None]).all(0)
    return int(wins.argmax()) if wins.any() else -1


def _most_kept(
    relative: Float[np.ndarray, "rivals seq"], margin: float, nodes: int
) -> tuple[Bool[np.ndarray, "seq"] | None, int]:
    """A choice of positions to keep whose sums are all `margin` or more (None: none found), and the most that can be
    kept (0: provably none)."""
    count = relative.shape[1]
    result = milp(
        c=-np.ones(count),
        integrality=np.ones(count),
        bounds=Bounds(0, 1),
        constraints=[LinearConstraint(relative, margin, np.inf), LinearConstraint(np.ones((1, count)), 1, np.inf)],
        options={"node_limit": nodes},
    )
    if result.status == 2:
        return None, 0
    most = count if result.mip_dual_bound is None else int(np.floor(-result.mip_dual_bound + 1e-6))
    return (None if result.x is None else result.x > 0.5), most
