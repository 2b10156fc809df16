"""Attentions that are far away and within the region: where a lower bound comes from."""

import numpy as np
from jaxtyping import Float

from attnprobe.exact.bound import NEGLIGIBLE
from attnprobe.exact.programme import Programme, Simplex, Stalled
from attnprobe.exact.region import Incumbent, Region, moved_term

POLISHINGS = 4
"""Programmes that an example may take beyond its effort, to move the attention found to the rim of the true region."""
PAIR_TESTS = 100_000
"""How many (pair, constraint) combinations one example may cost: all pairs up to 129 positions at 4 classes."""


def pairs(example: Region, known: float) -> Float[np.ndarray, "samples seq"]:
    """Pairs of positions at the ends of their feasible range, the most promising ones.

    Within the constraints on the weights a pair's shares form an interval; JSD is convex, so its ends bound the pair. Where
    an end misses the true distance, bisection from the interval's middle finds the last share that does not.
    """
    odds, limit = example.halfspaces()
    chosen = _pair_positions(example, len(limit))
    first, second = (chosen[index] for index in np.triu_indices(len(chosen), 1))
    odds = example.mass * odds
    # share · odds[first] + (1 − share) · odds[second] ≤ limit
    slope, room = odds[first] - odds[second], limit - odds[second]
    with np.errstate(divide="ignore", invalid="ignore"):
        crossing = room / slope
    least = np.where(slope < 0, crossing, 0).max(1, initial=0)
    most = np.where(slope > 0, crossing, 1).min(1, initial=1)
    possible = (least <= most) & ~((slope == 0) & (room < 0)).any(1)
    ends = np.concatenate([least, most])
    middle = np.tile((least + most) / 2, 2)
    first, second, possible = np.tile(first, 2), np.tile(second, 2), np.tile(possible, 2)
    promise = np.full(len(ends), -np.inf)
    share, i, j = ends[possible], first[possible], second[possible]
    moved = moved_term(example.alpha[i], share * example.mass) + moved_term(
        example.alpha[j], (1 - share) * example.mass
    )
    promise[possible] = example.mass * np.log(2) / 2 + moved
    order = np.argsort(-promise, kind="stable")[:64]
    order = order[promise[order] > known]
    i, j, good, bad = first[order], second[order], middle[order], ends[order]

    def within(share: np.ndarray) -> np.ndarray:
        return example.well_within(
            example.mass * (share[:, None] * example.shift[i] + (1 - share)[:, None] * example.shift[j])
        )

    good = np.where(within(bad), bad, good)
    start = within(good)
    i, j, good, bad = i[start], j[start], good[start], bad[start]
    for _ in range(45):
        trial = (good + bad) / 2
        works = within(trial)
        good, bad = np.where(works, trial, good), np.where(works, bad, trial)
    result = np.zeros((len(good), len(example.alpha)))
    rows = np.arange(len(good))
    result[rows, i], result[rows, j] = good * example.mass, (1 - good) * example.mass
    return result


def _pair_positions(example: Region, constraints: int) -> np.ndarray:
    """All positions, or of a long text the least attended half and the half that is nearest to feasible alone."""
    budget = max(8, int(np.sqrt(2 * PAIR_TESTS / max(constraints, 1))))
    if len(example.alpha) <= budget:
        return np.arange(len(example.alpha))
    light = np.argsort(example.alpha, kind="stable")[: budget // 2]
    near = np.argsort(np.ptp(example.shift, axis=1), kind="stable")[: budget // 2]
    return np.union1d(light, near)


def polish(example: Region, best: Incumbent) -> None:
    """Climb from the incumbent within the positions it uses, by linear programmes on the gradient.

    The JSD is convex, so it never falls on the way towards a programme's solution; the prediction is linearised, and a
    step that leaves the true region is shortened.
    """
    classes = example.shift.shape[1]
    steps = np.r_[np.linspace(1, 0.05, 20), np.geomspace(0.05, 1e-4, 20)[1:]][:, None]
    for _ in range(POLISHINGS):
        a, before = best.attention, best.jsd
        used = np.flatnonzero(a > 0)
        away, effect, budget = example.linearised(a @ example.shift)
        effect = effect[used]
        gradient = np.log(2 * a[used] / (example.alpha[used] + a[used])) / 2
        both = np.r_[effect.T, -effect.T]
        rows = np.c_[both, np.tile(-np.eye(classes), (2, 1))]
        rows = np.r_[rows, np.r_[np.zeros(len(used)), np.ones(classes)][None]]
        moved = away - a[used] @ effect  # what the linearised prediction adds to effect · new weights
        ceiling = np.r_[-moved, moved, budget, example.mass]
        floor = np.r_[np.full(len(ceiling) - 1, -np.inf), example.mass]
        rows = np.r_[rows, np.r_[np.ones(len(used)), np.zeros(classes)][None]]
        variables = np.zeros(len(used) + classes)
        programme = Programme(rows, floor, ceiling, variables, variables + np.inf, simplex=Simplex.DUAL)
        try:
            solution = programme.minimise(np.r_[-gradient, np.zeros(classes)])
        except Stalled:
            return
        if solution is None:
            return
        target = np.zeros_like(a)
        weights = solution.at[: len(used)].clip(min=0)
        target[used] = weights * (example.mass / weights.sum())
        best.offer_all(a + steps * (target - a))
        if best.jsd < before + NEGLIGIBLE:
            return
