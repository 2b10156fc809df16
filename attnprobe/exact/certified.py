"""How far an attention can be for three or more classes: the best one found, and a bound that none exceeds.

The feasible set {a : TVD(softmax(Σ a_t z_t), p) ≤ ε} is no polytope here, so the optimum has no closed form. One linear
programme bounds it, its solution points at good attentions, and branching brings the two together.

*Outer polytope.* Write x_c = ln q_c = y_c − s for the new prediction q, with y = Σ a_t z_t linear in a and s the
logarithm of the normaliser, a variable of its own. TVD ≤ ε implies |q_c − p_c| ≤ ε for every class, which is linear in
(a, s): ln(p_c−ε) ≤ y_c − s ≤ ln(p_c+ε). (Eliminating s gives the bounds on all pairwise log-odds.) Further, on this box
q_c = exp(x_c) lies above its tangent at ln p_c and below its chord; put into Σ q_c = 1 and into
Σ max(0, ±(q_c − p_c)) ≤ ε, both are linear again, and every feasible attention satisfies them.

*Upper bound.* JSD = Σ f(α_t, a_t) is a sum of convex terms. On l_t ≤ a_t ≤ u_t the chord of each lies above it;
maximise the chords' sum over the outer polytope. Evaluated from the programme's multipliers by weak duality, so that no
tolerance of the solver can make it wrong. Splitting one [l_t, u_t] where chord and term differ most, and taking the
larger of the two halves' bounds, closes the gap (branch and bound, the loosest part first).

*Lower bound.* Single positions, pairs that reach the rim, and every programme's solution, moved towards the model's own
prediction within its few positions until its true TVD is at most ε; the best of them then climbs to the true rim.
"""

import heapq
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.optimize import linprog
from scipy.special import log_softmax, softmax, xlogy
from torch import Tensor

TVD_MARGIN = 1e-12
"""How far inside ε a solution is sought, so that whoever recomputes its TVD finds it at most ε; at an ε below this,
how far rounding may take it."""

NEGLIGIBLE = 1e-7
"""Gap in nats at which no further programme is worth its time."""

PLAIN = {"presolve": False}
"""The solver's setting: programmes this small are solved sooner than they are simplified (1.3 to 2 times, measured)."""

POLISHINGS = 4
"""Programmes that an example may take beyond its effort, to move the attention found to the rim of the true region."""

SHRINKINGS = (0.7, 0.4, 0.1, 0.0)
"""Shares of ε tried in turn where the bound's programme does not lead to a feasible attention (many classes)."""

PAIR_TESTS = 100_000
"""How many (pair, constraint) combinations one example may cost: all pairs up to 129 positions at 4 classes."""


@dataclass(frozen=True)
class _Example:
    """One text, its content positions only. `shift[t]` is z_t minus the own attention's mean of z: for every a of mass
    `mass`, Σ a_t shift_t is by how much its logits differ from the model's."""

    alpha: Float[np.ndarray, "seq"]
    shift: Float[np.ndarray, "seq classes"]
    log_p: Float[np.ndarray, "classes"]
    mass: float
    epsilon: float

    def jsd(self, a: Float[np.ndarray, "*samples seq"]) -> Float[np.ndarray, "*samples"]:
        return _term(self.alpha, a).sum(-1)

    def feasible(self, a: Float[np.ndarray, "*samples seq"]) -> Bool[np.ndarray, "*samples"]:
        return self.tvd(a @ self.shift) <= max(self.epsilon - TVD_MARGIN / 2, TVD_MARGIN)

    def well_within(self, moved: Float[np.ndarray, "*samples classes"]) -> Bool[np.ndarray, "*samples"]:
        """Whether logits that differ by so much from the model's are feasible, whatever their last digits."""
        return self.tvd(moved) <= max(self.epsilon - TVD_MARGIN, TVD_MARGIN / 2)

    def tvd(self, moved: Float[np.ndarray, "*samples classes"]) -> Float[np.ndarray, "*samples"]:
        return np.abs(softmax(self.log_p + moved, -1) - np.exp(self.log_p)).sum(-1) / 2

    @property
    def rounding(self) -> float:
        """What float64 may lose in the logits: the outer polytope is wider by so much, never narrower."""
        return 1e-12 * (1 + self.mass * float(np.abs(self.shift).max()))

    def log_ratio_range(self) -> tuple[Float[np.ndarray, "classes"], Float[np.ndarray, "classes"]]:
        """Lowest and highest ln(q_c / p_c) within ε; −∞ where q_c may vanish."""
        p = np.exp(self.log_p)
        positive = p > self.epsilon
        low = np.where(positive, np.log(np.where(positive, p - self.epsilon, 1)) - self.log_p, -np.inf)
        high = np.minimum(np.logaddexp(self.log_p, np.log(self.epsilon) if self.epsilon else -np.inf), 0) - self.log_p
        return low - self.rounding, high + self.rounding


def certified_interval(
    attention: Float[Tensor, "batch seq"],
    position_logits: Float[Tensor, "batch seq classes"],
    content: Bool[Tensor, "batch seq"],
    epsilon: float,
    effort: int,
) -> tuple[Float[Tensor, "batch seq"], Float[Tensor, "batch"]]:
    """The farthest attention found within TVD ε, and an upper bound (nats) on the JSD of all that are.

    Args:
        attention: sums to 1 exactly; float64, as `attnprobe.exact.arguments.checked` gives it.
        position_logits: float64.
        content: where attention may be moved.
        epsilon: 0 or more; infinite where everything is allowed.
        effort: how many linear programmes the bound of an example may take (about 1.5 ms each at 4 classes and 30
            positions). 0 takes none and leaves the unconstrained maximum as the bound.
    """
    arrays = (tensor.cpu().numpy() for tensor in (attention, position_logits, content))
    farthest, bounds = attention.clone(), []
    for row, (weights, logits, keep) in enumerate(zip(*arrays, strict=True)):
        alpha, kept = weights[keep], logits[keep]
        mass = float(alpha.sum())
        matters = keep | (weights > 0)  # sums over padding would round differently in another batch
        own = log_softmax(weights[matters] @ logits[matters])
        centre = alpha @ kept / mass if mass > 0 else kept.mean(0)
        found, bound = _interval(_Example(alpha, kept - centre, own, mass, epsilon), effort)
        farthest[row, content[row]] = torch.from_numpy(found).to(farthest)
        bounds.append(bound)
    return farthest, attention.new_tensor(bounds)


def _interval(example: _Example, effort: int) -> tuple[Float[np.ndarray, "seq"], float]:
    """Best attention found and upper bound for one text."""
    mass = np.array(example.mass)
    value = example.mass * np.log(2) / 2 + _moved(example.alpha, mass)  # with everything on one position
    free = float(value.max())  # the optimum without any constraint
    best = _Incumbent(example)
    farthest = int(np.where(example.well_within(mass * example.shift), value, -np.inf).argmax())
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


class _Incumbent:
    """The best feasible attention so far, at first the model's own."""

    def __init__(self, example: _Example) -> None:
        self.example, self.attention, self.jsd = example, example.alpha, 0.0

    def offer_all(self, candidates: Float[np.ndarray, "samples seq"]) -> bool:
        """Keep the farthest feasible one of several if it is farther than what we have. Was any feasible?"""
        values = np.where(self.example.feasible(candidates), self.example.jsd(candidates), -np.inf)
        if len(values) and values.max() > self.jsd:
            self.attention, self.jsd = candidates[values.argmax()], float(values.max())
        return bool((values > -np.inf).any())


def _term(alpha: np.ndarray, a: np.ndarray) -> np.ndarray:
    """f(α, a) = ½ [α ln(2α/(α+a)) + a ln(2a/(α+a))], elementwise."""
    total = alpha + a
    return np.maximum(total * np.log(2) + xlogy(alpha, alpha) + xlogy(a, a) - xlogy(total, total), 0) / 2


def _moved(alpha: np.ndarray, a: np.ndarray) -> np.ndarray:
    """f(α, a) − f(α, 0): what weight a adds to the JSD of an attention that leaves this position empty."""
    return _term(alpha, a) - alpha * np.log(2) / 2


def _pairs(example: _Example, known: float) -> Float[np.ndarray, "samples seq"]:
    """Pairs of positions at the ends of their feasible range, the most promising ones.

    Within the pairwise log-odds a pair's shares form an interval; JSD is convex, so its ends bound the pair. Where an
    end misses the true TVD, bisection from the interval's middle finds the last share that does not.
    """
    low, high = example.log_ratio_range()
    over, under = np.nonzero((np.isfinite(low)[None, :]) & ~np.eye(len(low), dtype=bool))
    chosen = _pair_positions(example, len(over))
    first, second = (chosen[index] for index in np.triu_indices(len(chosen), 1))
    odds = example.mass * (example.shift[:, over] - example.shift[:, under])
    # share · odds[first] + (1 − share) · odds[second] ≤ room
    slope, room = odds[first] - odds[second], (high[over] - low[under]) - odds[second]
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
    moved = _moved(example.alpha[i], share * example.mass) + _moved(example.alpha[j], (1 - share) * example.mass)
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


def _pair_positions(example: _Example, constraints: int) -> np.ndarray:
    """All positions, or of a long text the least attended half and the half that is nearest to feasible alone."""
    budget = max(8, int(np.sqrt(2 * PAIR_TESTS / max(constraints, 1))))
    if len(example.alpha) <= budget:
        return np.arange(len(example.alpha))
    light = np.argsort(example.alpha, kind="stable")[: budget // 2]
    near = np.argsort(np.ptp(example.shift, axis=1), kind="stable")[: budget // 2]
    return np.union1d(light, near)


class _Polytope:
    """The outer polytope as rows of a linear programme over (a, s, rises, falls)."""

    def __init__(self, example: _Example) -> None:
        seq, classes = example.shift.shape
        self.example = example
        low, high = example.log_ratio_range()
        p = np.exp(example.log_p)
        x = np.zeros((classes, seq + 1 + 2 * classes))  # ln(q_c / p_c) as a function of the variables
        x[:, :seq], x[:, seq] = example.shift.T, -1
        rises, falls = np.zeros_like(x), np.zeros_like(x)
        rises[:, seq + 1 : seq + 1 + classes], falls[:, seq + 1 + classes :] = np.eye(classes), np.eye(classes)
        bounded = np.isfinite(low)
        # q_c ≤ chord: through the box's two ends, or its top where the bottom is 0
        width = np.where(bounded, high - low, 1)
        floor, ceiling = np.exp(example.log_p + low), np.exp(example.log_p + high)
        steep = np.where(bounded, floor * np.expm1(width) / width, 0)
        base = np.where(bounded, floor - steep * np.where(bounded, low, 0), ceiling)
        rows = [
            (x, high),
            (-x[bounded], -low[bounded]),
            (p @ x, 0),  # Σ tangents ≤ 1
            (-(steep @ x), base.sum() - 1),  # Σ chords ≥ 1
            (p[:, None] * x - rises, np.zeros(classes)),
            ((-steep[:, None] * x - falls)[bounded], (base - p)[bounded]),
            (rises.sum(0), example.epsilon),
            (falls.sum(0), example.epsilon),
        ]
        self.rows = np.vstack([np.atleast_2d(row) for row, _ in rows])
        self.limits = np.concatenate([np.atleast_1d(limit) for _, limit in rows]) + example.rounding
        self.sum = np.r_[np.ones(seq), np.zeros(1 + 2 * classes)][None]
        # |s| ≤ the largest change of a logit: the logarithm of Σ exp changes by no more
        largest = example.mass * np.abs(example.shift).max() + 1e-9
        self.extra = np.array([[-largest, largest], *[[0.0, example.epsilon + example.rounding]] * (2 * classes)])

    def highest(self) -> Float[np.ndarray, "seq"]:
        """u_t: the most that one position may get, by each pairwise log-odds alone."""
        example = self.example
        low, high = example.log_ratio_range()
        over, under = np.nonzero((np.isfinite(low)[None, :]) & ~np.eye(len(low), dtype=bool))
        odds = example.shift[:, over] - example.shift[:, under]
        # a_t odds_t + (mass − a_t) · (lowest odds) ≤ high − low
        least = odds.min(0, initial=np.inf)
        above = odds - least
        room = high[over] - low[under] - example.mass * least
        share = np.divide(room, above, out=np.full_like(above, np.inf), where=above > 0).min(1, initial=np.inf)
        return np.clip(share, 0, example.mass)

    def maximise(self, lowest: np.ndarray, highest: np.ndarray) -> tuple[float, Float[np.ndarray, "seq"]] | None:
        """Upper bound on the JSD over l ≤ a ≤ u, and the programme's solution; None where nothing is feasible."""
        seq = len(self.example.alpha)
        intercept, slope = _chord(self.example.alpha, lowest, highest)
        cost = np.r_[-slope, np.zeros(len(self.extra))]
        bounds = np.vstack([np.stack([lowest, highest], 1), self.extra])
        solution = linprog(
            cost, self.rows, self.limits, self.sum, [self.example.mass], bounds, method="highs-ds", options=PLAIN
        )
        if solution.status == 2:
            return None
        if solution.status != 0:  # numerical trouble: the box alone still gives a bound
            price, total = np.zeros(len(self.limits)), -np.sort(slope)[-1:]
        else:
            price, total = np.minimum(solution.ineqlin.marginals, 0), solution.eqlin.marginals
        # Weak duality: with any multipliers (price ≤ 0) this is a bound, whatever the solver's tolerances.
        reduced = cost - price @ self.rows - total @ self.sum
        dual = price @ self.limits + total @ [self.example.mass] + np.minimum(*(reduced[:, None] * bounds).T).sum()
        a = np.clip(solution.x[:seq], lowest, highest) if solution.status == 0 else (lowest + highest) / 2
        return float(intercept.sum() - dual), a


def _branch_and_bound(example: _Example, best: _Incumbent, effort: int) -> float:
    """An upper bound; improves `best` on the way."""
    polytope = _Polytope(example)
    lowest, highest = np.zeros_like(example.alpha), polytope.highest()
    root = polytope.maximise(lowest, highest)
    spent = 1
    if root is None:
        return np.inf  # the model's own attention is inside: the solver is mistaken
    feasible = best.offer_all(_repaired(example, root[1]))
    for share in SHRINKINGS:
        if feasible or spent >= effort:
            break
        inner = _Polytope(replace(example, epsilon=share * example.epsilon)).maximise(lowest, highest)
        spent += 1
        feasible = inner is not None and best.offer_all(_repaired(example, inner[1]))

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
            high = np.minimum(high, example.mass - (low.sum() - low))  # the others have their least at least
            result = polytope.maximise(low, high) if (high >= low).all() else None
            if result is not None:
                best.offer_all(_repaired(example, result[1]))
                heapq.heappush(parts, (max(-result[0], bound), next(ticket), low, high, result[1]))
        spent += 2
    return max([best.jsd, *(-part[0] for part in parts)])


def _chord(alpha: np.ndarray, lowest: np.ndarray, highest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Intercept and slope of the line through f(α, ·) at both ends of [l, u]; flat where they coincide."""
    start, width = _term(alpha, lowest), highest - lowest
    slope = np.divide(_term(alpha, highest) - start, width, out=np.zeros_like(width), where=width > 0)
    return start - slope * lowest, slope


def _loosest(example: _Example, lowest: np.ndarray, highest: np.ndarray, a: np.ndarray) -> tuple[int, float]:
    """The position at which the chord is farthest above its term, and by how much (nats)."""
    intercept, slope = _chord(example.alpha, lowest, highest)
    loss = intercept + slope * a - _term(example.alpha, a)
    return int(loss.argmax()), float(loss.max())


def _repaired(example: _Example, a: Float[np.ndarray, "seq"]) -> Float[np.ndarray, "samples seq"]:
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
        np.vstack([centred.T - centred.T.mean(0), np.ones(len(used))]), np.r_[-(moved - moved.mean()), 0], rcond=None
    )[0]
    steps = np.linspace(0, 1, 65)[:, None]
    weights = a[used] + steps * change
    result = np.zeros((len(steps), len(a)))
    result[:, used] = np.maximum(weights, 0)
    return result[(weights >= 0).all(1)]


def _polish(example: _Example, best: _Incumbent) -> None:
    """Climb from the incumbent within the positions it uses, by linear programmes on the gradient.

    The JSD is convex, so it never falls on the way towards a programme's solution; the prediction is linearised, and a
    step that leaves the true region is shortened.
    """
    p, classes = np.exp(example.log_p), len(example.log_p)
    steps = np.r_[np.linspace(1, 0.05, 20), np.geomspace(0.05, 1e-4, 20)[1:]][:, None]
    for _ in range(POLISHINGS):
        a, before = best.attention, best.jsd
        used = np.flatnonzero(a > 0)
        q = softmax(example.log_p + a @ example.shift)
        effect = q * (example.shift[used] - example.shift[used] @ q[:, None])  # of each weight on each probability
        gradient = np.log(2 * a[used] / (example.alpha[used] + a[used])) / 2
        both = np.r_[effect.T, -effect.T]
        rows = np.c_[both, np.tile(-np.eye(classes), (2, 1))]
        rows = np.r_[rows, np.r_[np.zeros(len(used)), np.ones(classes)][None]]
        moved = q - p - a[used] @ effect  # what the linearised prediction adds to effect · new weights
        limits = np.r_[-moved, moved, 2 * example.epsilon]
        cost = np.r_[-gradient, np.zeros(classes)]
        total = np.r_[np.ones(len(used)), np.zeros(classes)][None]
        solution = linprog(cost, rows, limits, total, [example.mass], (0, None), method="highs-ds", options=PLAIN)
        if solution.status != 0:
            return
        target = np.zeros_like(a)
        target[used] = solution.x[: len(used)] * (example.mass / solution.x[: len(used)].sum())
        best.offer_all(a + steps * (target - a))
        if best.jsd < before + NEGLIGIBLE:
            return
