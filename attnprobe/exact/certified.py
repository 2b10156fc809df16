"""How far an attention can be for three or more classes, or several labels.

The best one found, and a bound above all.

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
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.special import log_softmax

from attnprobe.exact.checks import Content, Logits, PerText, Weights
from attnprobe.exact.linear_programme import Programme, Simplex
from attnprobe.exact.regions import Incumbent, Region, jsd_terms

NEGLIGIBLE = 1e-7
"""Gap in nats at which no further programme is worth its time."""
SHRINKINGS = (0.7, 0.4, 0.1, 0.0)
"""Shares of ε tried in turn where the bound's programme does not lead to a feasible attention (many
classes)."""
POLISHINGS = 4
"""Programmes that an example may take beyond its effort, to move the attention found to the rim of
the true region."""
BISECTIONS = 45
"""Halvings of a pair's interval: to 3e-14 of its length."""
PAIR_TESTS = 100_000
"""How many (pair, constraint) combinations one example may cost: all pairs up to 129 positions at 4
classes."""


@dataclass(frozen=True)
class Relaxation:
    """Solution of one linear programme that bounds the JSD from above.

    Attributes:
        bound: upper bound on the JSD, in nats.
        attention: the programme's solution.
        looseness: how far each position's chord is above its term of the JSD there.
    """

    bound: float
    attention: Float[np.ndarray, "seq"]
    looseness: Float[np.ndarray, "seq"]


@dataclass(order=True)
class Box:
    """A node of the search: attentions between `lowest` and `highest`; the loosest is split first.

    Attributes:
        priority: minus the upper bound on the JSD within the box.
        ticket: settles ties, in the order in which boxes were made.
    """

    priority: float
    ticket: int
    lowest: Float[np.ndarray, "seq"] = field(compare=False)
    highest: Float[np.ndarray, "seq"] = field(compare=False)
    relaxation: Relaxation = field(compare=False)


class Polytope:
    """The outer polytope with the weights' sum, and the programmes over it."""

    def __init__(self, example: Region) -> None:
        self.example = example
        outer = example.outer_polytope()
        self.extra = outer.extra_bounds
        limits = np.concatenate([np.atleast_1d(limit) for _, limit in outer.constraints])
        limits = limits + example.logit_bounds().rounding
        sum_of_weights = np.r_[np.ones(len(example.alpha)), np.zeros(len(self.extra))]
        self.rows = np.vstack([*(row for row, _ in outer.constraints), sum_of_weights])
        self.limits = np.r_[limits, example.mass]
        floor = np.r_[np.full(len(limits), -np.inf), example.mass]
        unset = np.zeros(len(sum_of_weights))
        self.programme = Programme(
            self.rows, floor, self.limits, unset, unset, simplex=Simplex.DUAL
        )

    def highest(self) -> Float[np.ndarray, "seq"]:
        """u_t: the most that one position may get, by each constraint on the weights alone."""
        example = self.example
        odds, room = example.halfspaces()
        # a_t odds_t + (mass − a_t) · (lowest odds) ≤ room
        lowest_odds = odds.min(0, initial=np.inf)
        excess = odds - lowest_odds
        remaining = room - example.mass * lowest_odds
        share = np.divide(remaining, excess, out=np.full_like(excess, np.inf), where=excess > 0)
        return np.clip(share.min(1, initial=np.inf), 0, example.mass)

    def maximise(
        self, lowest: Float[np.ndarray, "seq"], highest: Float[np.ndarray, "seq"]
    ) -> Relaxation | None:
        """Bound the JSD over lowest ≤ a ≤ highest from above; None where nothing is feasible."""
        seq = len(self.example.alpha)
        alpha = self.example.alpha
        # the line through f(α, ·) at both ends of the interval; flat where they coincide
        width = highest - lowest
        start = jsd_terms(alpha, lowest)
        rise = jsd_terms(alpha, highest) - start
        slope = np.divide(rise, width, out=np.zeros_like(width), where=width > 0)
        intercept = start - slope * lowest

        cost = np.r_[-slope, np.zeros(len(self.extra))]
        self.programme.bound(np.r_[lowest, self.extra[:, 0]], np.r_[highest, self.extra[:, 1]])
        solution = self.programme.minimise(cost)  # it starts from its last solution
        if solution is None:
            return None

        if solution.at is None:  # the box alone still gives a bound
            price = np.r_[np.zeros(len(self.limits) - 1), -slope.max()]
            attention = (lowest + highest) / 2
        else:
            price = solution.price
            attention = np.clip(solution.at[:seq], lowest, highest)
        bound = float(intercept.sum() - self.programme.bound_below(cost, price))
        looseness = intercept + slope * attention - jsd_terms(alpha, attention)
        return Relaxation(bound, attention, looseness)


def _branch_and_bound(example: Region, best: Incumbent, effort: int) -> float:
    """Bound the JSD of a region from above, and improve `best` on the way.

    Args:
        example: one text.
        best: offered every solution that the search meets.
        effort: most programmes to solve.

    Returns:
        The bound, in nats.
    """
    polytope = Polytope(example)
    lowest = np.zeros_like(example.alpha)
    highest = polytope.highest()
    root = polytope.maximise(lowest, highest)
    if root is None:
        return np.inf  # the model's own attention is inside: the solver is mistaken
    solved = 1
    feasible = best.offer_all(_repaired(example, root.attention))
    for share in SHRINKINGS:
        if feasible or solved >= effort:
            break
        inner = Polytope(replace(example, epsilon=share * example.epsilon))
        relaxation = inner.maximise(lowest, highest)
        solved += 1
        if relaxation is not None:
            feasible = best.offer_all(_repaired(example, relaxation.attention))

    tickets = count()
    boxes = [Box(-root.bound, next(tickets), lowest, highest, root)]
    while boxes and solved + 2 <= effort and -boxes[0].priority > best.jsd + NEGLIGIBLE:
        split = int(boxes[0].relaxation.looseness.argmax())
        if boxes[0].relaxation.looseness[split] < NEGLIGIBLE / 10:
            # the chords are tight here: what remains is the polytope's distance from the true TVD
            break
        box = heapq.heappop(boxes)
        for low, high in _halves(box, split, example.mass):
            relaxation = polytope.maximise(low, high) if (high >= low).all() else None
            if relaxation is not None:
                best.offer_all(_repaired(example, relaxation.attention))
                priority = max(-relaxation.bound, box.priority)
                heapq.heappush(boxes, Box(priority, next(tickets), low, high, relaxation))
        solved += 2
    return max([best.jsd, *(-box.priority for box in boxes)])


def _halves(
    box: Box, split: int, mass: float
) -> Iterator[tuple[Float[np.ndarray, "seq"], Float[np.ndarray, "seq"]]]:
    """The two parts of a box below and above its solution at one position."""
    threshold = box.relaxation.attention[split]
    highest_below = box.highest.copy()
    highest_below[split] = threshold
    lowest_above = box.lowest.copy()
    lowest_above[split] = threshold
    for low, high in ((box.lowest, highest_below), (lowest_above, box.highest)):
        # every other position has at least its minimum
        yield low, np.minimum(high, mass - (low.sum() - low))


def _repaired(example: Region, a: Float[np.ndarray, "seq"]) -> Float[np.ndarray, "samples seq"]:
    """The solution and its way towards the model's own prediction, within the positions it uses.

    The polytope is a little larger than the true region. Within the few positions in use, least
    squares finds the change of weights that undoes the change of the logits; one goes along it as
    far as the weights stay positive.
    """
    used = np.flatnonzero(a > 1e-9 * example.mass)
    a = np.where(a > 1e-9 * example.mass, a, 0)
    if a.sum() > 0:
        a = a * (example.mass / a.sum())
    moved = a @ example.shift
    directions = example.shift[used] - example.shift[used].mean(0)  # those that keep the sum
    if example.exclusive:  # what all logits have in common changes nothing
        moved = moved - moved.mean()
        directions = directions - directions.mean(-1, keepdims=True)

    equations = np.vstack([directions.T, np.ones(len(used))])
    change = np.linalg.lstsq(equations, np.r_[-moved, 0], rcond=None)[0]
    steps = np.linspace(0, 1, 65)[:, None]
    weights = a[used] + steps * change
    path = np.zeros((len(steps), len(a)))
    path[:, used] = np.maximum(weights, 0)
    return path[(weights >= 0).all(1)]


@dataclass(frozen=True)
class PairEnds:
    """Pairs of positions that share the whole mass, each at one end of its feasible interval.

    Attributes:
        first: position that has the share.
        second: position that has the rest.
        end: the share at the end of the interval, by the constraints on the weights alone.
        middle: the share at the interval's middle.
    """

    first: Int[np.ndarray, "pairs"]
    second: Int[np.ndarray, "pairs"]
    end: Float[np.ndarray, "pairs"]
    middle: Float[np.ndarray, "pairs"]

    def __getitem__(self, index: np.ndarray) -> "PairEnds":
        return PairEnds(self.first[index], self.second[index], self.end[index], self.middle[index])


def _pairs(example: Region, known: float) -> Float[np.ndarray, "samples seq"]:
    """Pairs of positions at the ends of their feasible range, the most promising ones.

    Within the constraints on the weights a pair's shares form an interval; JSD is convex, so its
    ends bound the pair. Where an end misses the true distance, bisection from the interval's middle
    finds the last share that does not.

    Args:
        example: one text.
        known: a JSD that a pair must promise to exceed, in nats.
    """
    pairs = _pair_ends(example)
    promise = _promise(example, pairs)
    order = np.argsort(-promise, kind="stable")[:64]
    pairs = pairs[order[promise[order] > known]]

    share = np.where(_pair_within(example, pairs, pairs.end), pairs.end, pairs.middle)
    reachable = _pair_within(example, pairs, share)
    pairs = pairs[reachable]
    inside = share[reachable]
    outside = pairs.end
    for _ in range(BISECTIONS):
        trial = (inside + outside) / 2
        is_within = _pair_within(example, pairs, trial)
        inside = np.where(is_within, trial, inside)
        outside = np.where(is_within, outside, trial)

    attentions = np.zeros((len(inside), len(example.alpha)))
    rows = np.arange(len(inside))
    attentions[rows, pairs.first] = inside * example.mass
    attentions[rows, pairs.second] = (1 - inside) * example.mass
    return attentions


def _pair_ends(example: Region) -> PairEnds:
    """Both ends of each pair's interval, by the constraints on the weights alone.

    The lower ends of all pairs come first.
    """
    odds, limit = example.halfspaces()
    candidates = _pair_candidates(example, len(limit))
    pair_rows, pair_columns = np.triu_indices(len(candidates), 1)
    first = candidates[pair_rows]
    second = candidates[pair_columns]
    odds = example.mass * odds
    # share · odds[first] + (1 − share) · odds[second] ≤ limit
    slope = odds[first] - odds[second]
    room = limit - odds[second]
    with np.errstate(divide="ignore", invalid="ignore"):
        crossing = room / slope
    least = np.where(slope < 0, crossing, 0).max(1, initial=0)
    greatest = np.where(slope > 0, crossing, 1).min(1, initial=1)

    is_possible = (least <= greatest) & ~((slope == 0) & (room < 0)).any(1)
    ends = PairEnds(
        first=np.tile(first, 2),
        second=np.tile(second, 2),
        end=np.concatenate([least, greatest]),
        middle=np.tile((least + greatest) / 2, 2),
    )
    return ends[np.tile(is_possible, 2)]


def _pair_candidates(example: Region, constraints: int) -> Int[np.ndarray, "candidates"]:
    """Positions whose pairs are tried.

    All; of a long text those with the least attention and those that are nearest to feasible by
    themselves.
    """
    seq = len(example.alpha)
    budget = max(8, int(np.sqrt(2 * PAIR_TESTS / max(constraints, 1))))
    if seq <= budget:
        return np.arange(seq)
    lightest = np.argsort(example.alpha, kind="stable")[: budget // 2]
    nearest = np.argsort(np.ptp(example.shift, axis=1), kind="stable")[: budget // 2]
    return np.union1d(lightest, nearest)


def _promise(example: Region, pairs: PairEnds) -> Float[np.ndarray, "pairs"]:
    """JSD of each pair at its end, in nats, whether that end is feasible or not."""
    alpha = example.alpha
    unattended = alpha * np.log(2) / 2  # the JSD's term of a position without weight
    first_gain = jsd_terms(alpha[pairs.first], pairs.end * example.mass) - unattended[pairs.first]
    second_weight = (1 - pairs.end) * example.mass
    second_gain = jsd_terms(alpha[pairs.second], second_weight) - unattended[pairs.second]
    return example.mass * np.log(2) / 2 + (first_gain + second_gain)


def _pair_within(
    example: Region, pairs: PairEnds, share: Float[np.ndarray, "pairs"]
) -> Bool[np.ndarray, "pairs"]:
    """Whether pairs with these shares stay within the true distance, whatever the last digits."""
    first_part = share[:, None] * example.shift[pairs.first]
    second_part = (1 - share)[:, None] * example.shift[pairs.second]
    return example.within(example.mass * (first_part + second_part), well=True)


def _polish(example: Region, best: Incumbent) -> None:
    """Climb from the incumbent within the positions it uses, by linear programmes on the gradient.

    The JSD is convex, so it never falls on the way towards a programme's solution; the prediction
    is linearised, and a step that leaves the true region is shortened.
    """
    steps = np.r_[np.linspace(1, 0.05, 20), np.geomspace(0.05, 1e-4, 20)[1:]][:, None]
    for _ in range(POLISHINGS):
        attention = best.attention
        jsd = best.jsd
        target = _ascent_target(example, attention)
        if target is None:
            return
        best.offer_all(attention + steps * (target - attention))
        if best.jsd < jsd + NEGLIGIBLE:
            return


def _ascent_target(
    example: Region, attention: Float[np.ndarray, "seq"]
) -> Float[np.ndarray, "seq"] | None:
    """The attention on the same positions that maximises the JSD's linearisation.

    A linear programme over (new weights w, slacks d): |q − p| ≤ d per class, Σ d ≤ budget and
    Σ w = mass. None where the solver finds nothing.
    """
    used = np.flatnonzero(attention > 0)
    weights = attention[used]
    linear = example.linearised(attention @ example.shift)
    effect = linear.effect[used]
    gradient = np.log(2 * weights / (example.alpha[used] + weights)) / 2

    offset = linear.change - weights @ effect  # q − p = offset + w · effect
    programme = _slack_programme(effect, offset, linear.budget, example.mass)
    solution = programme.minimise(np.r_[-gradient, np.zeros(effect.shape[1])])
    if solution is None or solution.at is None:
        return None

    target = np.zeros_like(attention)
    new_weights = solution.at[: len(used)].clip(min=0)
    target[used] = new_weights * (example.mass / new_weights.sum())
    return target


def _slack_programme(
    effect: Float[np.ndarray, "used classes"],
    offset: Float[np.ndarray, "classes"],
    budget: float,
    mass: float,
) -> Programme:
    """Variables (w, d) of 0 or more with |offset + w · effect| ≤ d, Σ d ≤ budget and Σ w = mass."""
    used, classes = effect.shape
    both_signs = np.r_[effect.T, -effect.T]
    within_slack = np.c_[both_signs, np.tile(-np.eye(classes), (2, 1))]
    sum_of_slacks = np.r_[np.zeros(used), np.ones(classes)]
    sum_of_weights = np.r_[np.ones(used), np.zeros(classes)]
    rows = np.vstack([within_slack, sum_of_slacks, sum_of_weights])
    ceiling = np.r_[-offset, offset, budget, mass]
    floor = np.r_[np.full(len(ceiling) - 1, -np.inf), mass]
    least = np.zeros(used + classes)
    return Programme(rows, floor, ceiling, least, least + np.inf, simplex=Simplex.DUAL)


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
        position_logits: the model's logits with all attention on one position.
        content: positions whose weights may change.
        epsilon: 0 or more; infinite where everything is allowed.
        effort: how many linear programmes the bound of an example may take (about 0.3 ms each at 6
            classes and 30 positions). 0 takes none and leaves the unconstrained maximum as the
            bound.
        exclusive: one class per text; else any of the labels.
    """
    farthest = attention.clone()
    bounds = []
    arrays = (tensor.cpu().numpy() for tensor in (attention, position_logits, content))
    for row, (weights, logits, is_content) in enumerate(zip(*arrays, strict=True)):
        region = _region_of(weights, logits, is_content, epsilon, exclusive=exclusive)
        best, bound = _interval(region, effort)
        farthest[row, content[row]] = torch.from_numpy(best).to(farthest)
        bounds.append(bound)
    return farthest, attention.new_tensor(bounds)


def _region_of(
    weights: Float[np.ndarray, "seq"],
    logits: Float[np.ndarray, "seq classes"],
    is_content: Bool[np.ndarray, "seq"],
    epsilon: float,
    *,
    exclusive: bool,
) -> Region:
    """The region of one text.

    It leaves padding out: sums over it would round differently in another batch.
    """
    alpha = weights[is_content]
    content_logits = logits[is_content]
    mass = float(alpha.sum())
    counts = is_content | (weights > 0)
    model_logits = weights[counts] @ logits[counts]
    mean = alpha @ content_logits / mass if mass > 0 else content_logits.mean(0)
    return Region(
        alpha=alpha,
        shift=content_logits - mean,
        mass=mass,
        epsilon=epsilon,
        model_scores=log_softmax(model_logits) if exclusive else model_logits,
        exclusive=exclusive,
    )


def _interval(example: Region, effort: int) -> tuple[Float[np.ndarray, "seq"], float]:
    """Best attention found and upper bound for one text."""
    alpha = example.alpha
    mass = np.array(example.mass)
    # JSD with everything on one position; the best of these is the optimum without any constraint
    gain = jsd_terms(alpha, mass) - alpha * np.log(2) / 2
    single = example.mass * np.log(2) / 2 + gain
    unconstrained = float(single.max())

    best = Incumbent(example, alpha)
    is_within = example.within(mass * example.shift, well=True)
    farthest = int(np.where(is_within, single, -np.inf).argmax())
    best.offer_all(np.eye(1, len(single), farthest) * mass)
    if best.jsd >= unconstrained - NEGLIGIBLE:
        return best.attention, unconstrained
    best.offer_all(_pairs(example, best.jsd))
    if not effort:
        return best.attention, unconstrained

    bound = min(unconstrained, _branch_and_bound(example, best, effort))
    if bound > best.jsd + NEGLIGIBLE:
        _polish(example, best)
    return best.attention, bound
