"""How far an attention can be for three or more classes, or several labels: the best one found, and
a bound above all.

The feasible set {a : TVD(softmax(Σ a_t z_t), p) ≤ ε} is not a polytope here, so the optimum has no
closed form. One linear programme bounds it, its solution points at good attentions, and branching
brings the two together.

*Outer polytope.* Write x_c = ln q_c = y_c − s for the new prediction q, with y = Σ a_t z_t linear
in a and s the logarithm of the normaliser, a variable of its own. TVD ≤ ε implies |q_c − p_c| ≤ ε
for every class, which is linear in (a, s): ln(p_c−ε) ≤ y_c − s ≤ ln(p_c+ε). (Eliminating s gives
the bounds on all pairwise log-odds.) Further, on this box q_c = exp(x_c) lies above its tangents
(at p_c and at some points up to p_c + ε) and below its chord; put into Σ q_c = 1 and into Σ max(0,
±(q_c − p_c)) ≤ ε, both are linear again, and every feasible attention satisfies them.

*Upper bound.* JSD = Σ f(α_t, a_t) is a sum of convex terms. On l_t ≤ a_t ≤ u_t the chord of each
lies above it; maximise the chords' sum over the outer polytope. Evaluated from the programme's
multipliers by weak duality, so that no tolerance of the solver can make it wrong. Splitting one
[l_t, u_t] where chord and term differ most, and taking the larger of the two halves' bounds, closes
the gap (branch and bound, the loosest part first).

*Lower bound.* Single positions, pairs that reach the rim, and every programme's solution, moved
towards the model's own prediction within its few positions until its true TVD is at most ε; the
best of them then climbs to the true rim.

Several labels have another outer polytope (`attnprobe.exact.regions`); all else is the same.
"""

import heapq
from dataclasses import replace
from itertools import count

import numpy as np
import torch
from jaxtyping import Float
from scipy.special import log_softmax

from attnprobe.exact.checks import Content, Logits, PerText, Weights
from attnprobe.exact.linear_programme import Programme, Simplex
from attnprobe.exact.regions import Incumbent, Region, term

NEGLIGIBLE = 1e-7
"""Gap in nats at which no further programme is worth its time."""
SHRINKINGS = (0.7, 0.4, 0.1, 0.0)
"""Shares of ε tried in turn where the bound's programme does not lead to a feasible attention (many
classes)."""
POLISHINGS = 4
"""Programmes that an example may take beyond its effort, to move the attention found to the rim of
the true region."""
PAIR_TESTS = 100_000
"""How many (pair, constraint) combinations one example may cost: all pairs up to 129 positions at 4
classes."""


class Polytope:
    """The outer polytope with the weights' sum, and the programmes over it."""

    def __init__(self, example: Region) -> None:
        self.example = example
        pairs, self.extra = (
            example.outer_of_classes() if example.exclusive else example.outer_of_labels()
        )
        limits = np.concatenate([np.atleast_1d(limit) for _, limit in pairs]) + example.ranges()[2]
        total = np.r_[np.ones(len(example.alpha)), np.zeros(len(self.extra))]
        self.rows = np.vstack([*(row for row, _ in pairs), total])
        self.limits = np.r_[limits, example.mass]
        floor = np.r_[np.full(len(limits), -np.inf), example.mass]
        nothing = np.zeros(len(total))
        self.programme = Programme(
            self.rows, floor, self.limits, nothing, nothing, simplex=Simplex.DUAL
        )

    def highest(self) -> Float[np.ndarray, "seq"]:
        """u_t: the most that one position may get, by each constraint on the weights alone."""
        example = self.example
        odds, room = example.halfspaces()
        # a_t odds_t + (mass − a_t) · (lowest odds) ≤ room
        least = odds.min(0, initial=np.inf)
        above = odds - least
        left = room - example.mass * least
        share = np.divide(left, above, out=np.full_like(above, np.inf), where=above > 0).min(
            1, initial=np.inf
        )
        return np.clip(share, 0, example.mass)

    def maximise(
        self, lowest: np.ndarray, highest: np.ndarray
    ) -> tuple[float, Float[np.ndarray, "seq"], Float[np.ndarray, "seq"]] | None:
        """Upper bound on the JSD over l ≤ a ≤ u, the programme's solution, and how far each chord
        is above its term there; None where nothing is feasible."""
        width = highest - lowest
        seq = len(self.example.alpha)
        alpha = self.example.alpha
        # the line through f(α, ·) at both ends of [l, u]; flat where they coincide
        start = term(alpha, lowest)
        slope = np.divide(
            term(alpha, highest) - start, width, out=np.zeros_like(width), where=width > 0
        )
        intercept = start - slope * lowest
        cost = np.r_[-slope, np.zeros(len(self.extra))]
        self.programme.bound(np.r_[lowest, self.extra[:, 0]], np.r_[highest, self.extra[:, 1]])
        solution = self.programme.minimise(cost)  # it starts from its last solution
        if solution is None:
            return None
        if solution.at is None:  # the box alone still gives a bound
            price = np.r_[np.zeros(len(self.limits) - 1), -slope.max()]
            a = (lowest + highest) / 2
        else:
            price = solution.price
            a = np.clip(solution.at[:seq], lowest, highest)
        bound = float(intercept.sum() - self.programme.bound_below(cost, price))
        return bound, a, intercept + slope * a - term(alpha, a)


def _branch_and_bound(example: Region, best: Incumbent, effort: int) -> float:
    """An upper bound; improves `best` on the way."""
    polytope = Polytope(example)
    lowest = np.zeros_like(example.alpha)
    highest = polytope.highest()
    root = polytope.maximise(lowest, highest)
    spent = 1
    if root is None:
        return np.inf  # the model's own attention is inside: the solver is mistaken
    feasible = best.offer_all(_repaired(example, root[1]))
    for share in SHRINKINGS:
        if feasible or spent >= effort:
            break
        inner = Polytope(replace(example, epsilon=share * example.epsilon)).maximise(
            lowest, highest
        )
        spent += 1
        feasible = inner is not None and best.offer_all(_repaired(example, inner[1]))

    ticket = count()  # settles ties in the heap
    parts = [(-root[0], next(ticket), lowest, highest, root)]
    while parts and spent + 2 <= effort and -parts[0][0] > best.jsd + NEGLIGIBLE:
        # the position at which the chord is farthest above its term
        lowest, highest, (_, a, loss) = parts[0][2:]
        split = int(loss.argmax())
        if loss[split] < NEGLIGIBLE / 10:
            break  # the chords are tight here: what is left is the polytope's distance from the true TVD
        bound = heapq.heappop(parts)[0]
        below = highest.copy()
        above = lowest.copy()
        below[split] = above[split] = a[split]
        for low, high in ((lowest, below), (above, highest)):
            high = np.minimum(
                high, example.mass - (low.sum() - low)
            )  # the others have at least their minimum
            result = polytope.maximise(low, high) if (high >= low).all() else None
            if result is not None:
                best.offer_all(_repaired(example, result[1]))
                heapq.heappush(parts, (max(-result[0], bound), next(ticket), low, high, result))
        spent += 2
    return max([best.jsd, *(-part[0] for part in parts)])


def _repaired(example: Region, a: Float[np.ndarray, "seq"]) -> Float[np.ndarray, "samples seq"]:
    """The solution and its way towards the model's own prediction, within the positions it uses.

    The polytope is a little larger than the true region. Within the few positions in use, least
    squares finds the change of weights that undoes the change of the logits; one goes along it as
    far as the weights stay positive."""
    used = np.flatnonzero(a > 1e-9 * example.mass)
    a = np.where(a > 1e-9 * example.mass, a, 0)
    if a.sum() > 0:
        a = a * (example.mass / a.sum())
    moved = a @ example.shift
    centred = example.shift[used] - example.shift[used].mean(0)  # directions that keep the sum
    if example.exclusive:  # what all logits have in common changes nothing
        moved = moved - moved.mean()
        centred = centred - centred.mean(-1, keepdims=True)
    change = np.linalg.lstsq(
        np.vstack([centred.T, np.ones(len(used))]), np.r_[-moved, 0], rcond=None
    )[0]
    steps = np.linspace(0, 1, 65)[:, None]
    weights = a[used] + steps * change
    result = np.zeros((len(steps), len(a)))
    result[:, used] = np.maximum(weights, 0)
    return result[(weights >= 0).all(1)]


def _pairs(example: Region, known: float) -> Float[np.ndarray, "samples seq"]:
    """Pairs of positions at the ends of their feasible range, the most promising ones.

    Within the constraints on the weights a pair's shares form an interval; JSD is convex, so its
    ends bound the pair. Where an end misses the true distance, bisection from the interval's middle
    finds the last share that does not."""
    odds, limit = example.halfspaces()
    chosen = np.arange(len(example.alpha))
    budget = max(8, int(np.sqrt(2 * PAIR_TESTS / max(len(limit), 1))))
    if (
        len(chosen) > budget
    ):  # of a long text the least attended half, and the half that is nearest to feasible alone
        light = np.argsort(example.alpha, kind="stable")[: budget // 2]
        near = np.argsort(np.ptp(example.shift, axis=1), kind="stable")[: budget // 2]
        chosen = np.union1d(light, near)
    first, second = (chosen[index] for index in np.triu_indices(len(chosen), 1))
    odds = example.mass * odds
    # share · odds[first] + (1 − share) · odds[second] ≤ limit
    slope = odds[first] - odds[second]
    room = limit - odds[second]
    with np.errstate(divide="ignore", invalid="ignore"):
        crossing = room / slope
    least = np.where(slope < 0, crossing, 0).max(1, initial=0)
    most = np.where(slope > 0, crossing, 1).min(1, initial=1)
    possible = (least <= most) & ~((slope == 0) & (room < 0)).any(1)
    ends = np.concatenate([least, most])
    middle = np.tile((least + most) / 2, 2)
    first = np.tile(first, 2)
    second = np.tile(second, 2)
    possible = np.tile(possible, 2)
    promise = np.full(len(ends), -np.inf)
    share = ends[possible]
    i = first[possible]
    j = second[possible]
    empty = example.alpha * np.log(2) / 2
    alpha = example.alpha  # the JSD's term of a position without weight
    of_i = term(alpha[i], share * example.mass) - empty[i]
    of_j = term(alpha[j], (1 - share) * example.mass) - empty[j]
    promise[possible] = example.mass * np.log(2) / 2 + (of_i + of_j)
    order = np.argsort(-promise, kind="stable")[:64]
    order = order[promise[order] > known]
    i = first[order]
    j = second[order]
    good = middle[order]
    bad = ends[order]

    def within(share: np.ndarray) -> np.ndarray:
        moved = share[:, None] * example.shift[i] + (1 - share)[:, None] * example.shift[j]
        return example.within(example.mass * moved, well=True)

    good = np.where(within(bad), bad, good)
    start = within(good)
    i = i[start]
    j = j[start]
    good = good[start]
    bad = bad[start]
    for _ in range(45):
        trial = (good + bad) / 2
        works = within(trial)
        good = np.where(works, trial, good)
        bad = np.where(works, bad, trial)
    result = np.zeros((len(good), len(example.alpha)))
    rows = np.arange(len(good))
    result[rows, i], result[rows, j] = good * example.mass, (1 - good) * example.mass
    return result


def _polish(example: Region, best: Incumbent) -> None:
    """Climb from the incumbent within the positions it uses, by linear programmes on the gradient.

    The JSD is convex, so it never falls on the way towards a programme's solution; the prediction
    is linearised, and a step that leaves the true region is shortened."""
    classes = example.shift.shape[1]
    steps = np.r_[np.linspace(1, 0.05, 20), np.geomspace(0.05, 1e-4, 20)[1:]][:, None]
    for _ in range(POLISHINGS):
        a = best.attention
        before = best.jsd
        used = np.flatnonzero(a > 0)
        away, effect, budget = example.linearised(a @ example.shift)
        effect = effect[used]
        gradient = np.log(2 * a[used] / (example.alpha[used] + a[used])) / 2
        both = np.r_[effect.T, -effect.T]
        rows = np.c_[both, np.tile(-np.eye(classes), (2, 1))]
        rows = np.r_[rows, np.r_[np.zeros(len(used)), np.ones(classes)][None]]
        moved = (
            away - a[used] @ effect
        )  # what the linearised prediction adds to effect · new weights
        ceiling = np.r_[-moved, moved, budget, example.mass]
        floor = np.r_[np.full(len(ceiling) - 1, -np.inf), example.mass]
        rows = np.r_[rows, np.r_[np.ones(len(used)), np.zeros(classes)][None]]
        variables = np.zeros(len(used) + classes)
        programme = Programme(
            rows, floor, ceiling, variables, variables + np.inf, simplex=Simplex.DUAL
        )
        solution = programme.minimise(np.r_[-gradient, np.zeros(classes)])
        if solution is None or solution.at is None:
            return
        target = np.zeros_like(a)
        weights = solution.at[: len(used)].clip(min=0)
        target[used] = weights * (example.mass / weights.sum())
        best.offer_all(a + steps * (target - a))
        if best.jsd < before + NEGLIGIBLE:
            return


def certified_interval(
    attention: Weights,
    position_logits: Logits,
    content: Content,
    epsilon: float,
    effort: int,
    *,
    exclusive: bool = True,
) -> tuple[Weights, PerText]:
    """The farthest attention found within ε, and an upper bound (nats) on the JSD of all that are.

    Args:
        attention: sums to 1 exactly; float64, as `attnprobe.exact.checks.checked` gives it and the
            logits.
        epsilon: 0 or more; infinite where everything is allowed.
        effort: how many linear programmes the bound of an example may take (about 0.3 ms each at 6
            classes and 30 positions). 0 takes none and leaves the unconstrained maximum as the
            bound.
        exclusive: one class per text; else any of the labels.
    """
    arrays = (tensor.cpu().numpy() for tensor in (attention, position_logits, content))
    farthest = attention.clone()
    bounds = []
    for row, (weights, logits, keep) in enumerate(zip(*arrays, strict=True)):
        alpha = weights[keep]
        kept = logits[keep]
        mass = float(alpha.sum())
        matters = keep | (weights > 0)  # sums over padding would round differently in another batch
        own = weights[matters] @ logits[matters]
        shift = kept - (alpha @ kept / mass if mass > 0 else kept.mean(0))
        region = Region(
            alpha, shift, mass, epsilon, log_softmax(own) if exclusive else own, exclusive
        )
        best, bound = _interval(region, effort)
        farthest[row, content[row]] = torch.from_numpy(best).to(farthest)
        bounds.append(bound)
    return farthest, attention.new_tensor(bounds)


def _interval(example: Region, effort: int) -> tuple[Float[np.ndarray, "seq"], float]:
    """Best attention found and upper bound for one text."""
    alpha = example.alpha
    mass = np.array(example.mass)
    # with everything on one position; the best of these is the optimum without any constraint
    value = example.mass * np.log(2) / 2 + (term(alpha, mass) - alpha * np.log(2) / 2)
    free = float(value.max())
    best = Incumbent(example, alpha)
    farthest = int(
        np.where(example.within(mass * example.shift, well=True), value, -np.inf).argmax()
    )
    best.offer_all(np.eye(1, len(value), farthest) * mass)
    if best.jsd >= free - NEGLIGIBLE:
        return best.attention, free
    best.offer_all(_pairs(example, best.jsd))
    if not effort:
        return best.attention, free
    bound = min(free, _branch_and_bound(example, best, effort))
    if bound > best.jsd + NEGLIGIBLE:
        _polish(example, best)
    return best.attention, bound
