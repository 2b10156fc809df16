"""An upper bound on how far an attention can be: linear programmes over an outer polytope, branch and bound."""

import heapq
from dataclasses import replace
from itertools import count

import numpy as np
from jaxtyping import Float

from attnprobe.exact.programme import Programme, Simplex, Solution, Stalled
from attnprobe.exact.region import Incumbent, Region, term

NEGLIGIBLE = 1e-7
"""Gap in nats at which no further programme is worth its time."""
SHRINKINGS = (0.7, 0.4, 0.1, 0.0)
"""Shares of ε tried in turn where the bound's programme does not lead to a feasible attention (many classes)."""


class Polytope:
    """The outer polytope with the weights' sum, and the programmes over it."""

    def __init__(self, example: Region) -> None:
        self.example = example
        rows, limits, self.extra = example.outer()
        total = np.r_[np.ones(len(example.alpha)), np.zeros(len(self.extra))]
        self.rows, self.limits = np.vstack([rows, total]), np.r_[limits, example.mass]
        self.programme: Programme | None = None

    def highest(self) -> Float[np.ndarray, "seq"]:
        """u_t: the most that one position may get, by each constraint on the weights alone."""
        example = self.example
        odds, room = example.halfspaces()
        # a_t odds_t + (mass − a_t) · (lowest odds) ≤ room
        least = odds.min(0, initial=np.inf)
        above = odds - least
        left = room - example.mass * least
        share = np.divide(left, above, out=np.full_like(above, np.inf), where=above > 0).min(1, initial=np.inf)
        return np.clip(share, 0, example.mass)

    def maximise(self, lowest: np.ndarray, highest: np.ndarray) -> tuple[float, Float[np.ndarray, "seq"]] | None:
        """Upper bound on the JSD over l ≤ a ≤ u, and the programme's solution; None where nothing is feasible."""
        seq = len(self.example.alpha)
        intercept, slope = _chord(self.example.alpha, lowest, highest)
        cost = np.r_[-slope, np.zeros(len(self.extra))]
        bounds = np.vstack([np.stack([lowest, highest], 1), self.extra])
        try:
            solution = self._solved(cost, bounds)
        except Stalled:  # the box alone still gives a bound
            price, a = np.r_[np.zeros(len(self.limits) - 1), -slope.max()], (lowest + highest) / 2
        else:
            if solution is None:
                return None
            price = np.r_[np.minimum(solution.price[:-1], 0), solution.price[-1]]
            a = np.clip(solution.at[:seq], lowest, highest)
        # Weak duality: with any multipliers (≤ 0 but for the sum's) this is a bound, whatever the solver's tolerances.
        reduced = cost - price @ self.rows
        dual = price @ self.limits + np.minimum(*(reduced[:, None] * bounds).T).sum()
        return float(intercept.sum() - dual), a

    def _solved(self, cost: np.ndarray, bounds: Float[np.ndarray, "variables 2"]) -> Solution | None:
        """The programme with these costs and bounds; one that it has already been starts from its last solution."""
        least, most = np.ascontiguousarray(bounds[:, 0]), np.ascontiguousarray(bounds[:, 1])
        if self.programme is None:
            floor = np.r_[np.full(len(self.limits) - 1, -np.inf), self.example.mass]
            self.programme = Programme(self.rows, floor, self.limits, least, most, simplex=Simplex.DUAL)
        else:
            self.programme.bound(least, most)
        return self.programme.minimise(cost)


def branch_and_bound(example: Region, best: Incumbent, effort: int) -> float:
    """An upper bound; improves `best` on the way."""
    polytope = Polytope(example)
    lowest, highest = np.zeros_like(example.alpha), polytope.highest()
    root = polytope.maximise(lowest, highest)
    spent = 1
    if root is None:
        return np.inf  # the model's own attention is inside: the solver is mistaken
    feasible = best.offer_all(repaired(example, root[1]))
    for share in SHRINKINGS:
        if feasible or spent >= effort:
            break
        inner = Polytope(replace(example, epsilon=share * example.epsilon)).maximise(lowest, highest)
        spent += 1
        feasible = inner is not None and best.offer_all(repaired(example, inner[1]))

    ticket = count()  # settles ties in the heap
    parts = [(-root[0], next(ticket), lowest, highest, root[1])]
    while parts and spent + 2 <= effort and -parts[0][0] > best.jsd + NEGLIGIBLE:
        split, loss = _loosest(example, *parts[0][2:])
        if loss < NEGLIGIBLE / 10:
            break  # the chords are tight here: what is left is the polytope's distance from the true TVD
        bound, _, lowest, highest, a = heapq.heappop(parts)
        below, above = highest.copy(), lowest.copy()
        below[split] = above[split] = a[split]
        for low, high in ((lowest, below), (above, highest)):
            high = np.minimum(high, example.mass - (low.sum() - low))  # the others have at least their minimum
            result = polytope.maximise(low, high) if (high >= low).all() else None
            if result is not None:
                best.offer_all(repaired(example, result[1]))
                heapq.heappush(parts, (max(-result[0], bound), next(ticket), low, high, result[1]))
        spent += 2
    return max([best.jsd, *(-part[0] for part in parts)])


def _chord(alpha: np.ndarray, lowest: np.ndarray, highest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Intercept and slope of the line through f(α, ·) at both ends of [l, u]; flat where they coincide."""
    start, width = term(alpha, lowest), highest - lowest
    slope = np.divide(term(alpha, highest) - start, width, out=np.zeros_like(width), where=width > 0)
    return start - slope * lowest, slope


def _loosest(example: Region, lowest: np.ndarray, highest: np.ndarray, a: np.ndarray) -> tuple[int, float]:
    """The position at which the chord is farthest above its term, and by how much (nats)."""
    intercept, slope = _chord(example.alpha, lowest, highest)
    loss = intercept + slope * a - term(example.alpha, a)
    return int(loss.argmax()), float(loss.max())


def repaired(example: Region, a: Float[np.ndarray, "seq"]) -> Float[np.ndarray, "samples seq"]:
    """The solution and its way towards the model's own prediction, within the positions it uses.

    The polytope is a little larger than the true region. Within the few positions in use, least squares finds the
    change of weights that undoes the change of the logits; one goes along it as far as the weights stay positive.
    """
    used = np.flatnonzero(a > 1e-9 * example.mass)
    a = np.where(a > 1e-9 * example.mass, a, 0)
    if a.sum() > 0:
        a = a * (example.mass / a.sum())
    moved = a @ example.shift
    centred = example.shift[used] - example.shift[used].mean(0)  # directions that keep the sum
    change = np.linalg.lstsq(
        np.vstack([example.telling(centred).T, np.ones(len(used))]), np.r_[-example.telling(moved), 0], rcond=None
    )[0]
    steps = np.linspace(0, 1, 65)[:, None]
    weights = a[used] + steps * change
    result = np.zeros((len(steps), len(a)))
    result[:, used] = np.maximum(weights, 0)
    return result[(weights >= 0).all(1)]
