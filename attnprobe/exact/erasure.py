"""What the model predicts when attended positions are erased and the other weights renormalised."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.optimize import Bounds, LinearConstraint, milp
from torch import Tensor
from torch.nn import functional as F

from attnprobe.core.batch import Task
from attnprobe.core.readout import Readout
from attnprobe.exact.checks import LEAST_MASS, Weights, decide, leads, least_lead
from attnprobe.exact.flipping import NEVER
from attnprobe.measures import jensen_shannon

CHUNK = 4_000_000
"""Attention weights at a time where the decoder is not linear: keeps memory small."""
MARGIN = 1e-5
"""How far above 0 a sum has to be in the second attempt, relative to its largest summand.

The solver takes anything above -1e-6 for 0 or more.
"""


@dataclass(frozen=True)
class SingleErasures:
    """The effect of erasing each position alone (Serrano & Smith 2019, section 4).

    NaN outside content and where less than 1e-12 of the attention remains.

    Attributes:
        divergence: Jensen-Shannon divergence of the predictions before and after, in nats, 0 to ln
            2; NaN of scores, which are no distributions.
        flips: 1 where another class is ahead of the decision afterwards (a tie up to rounding is
            not a flip), else 0.
        prediction: probabilities afterwards.
    """

    divergence: Float[Tensor, "batch seq"]
    flips: Float[Tensor, "batch seq"]
    prediction: Float[Tensor, "batch classes seq"]


def decision(readout: Readout) -> Int[Tensor, "batch"]:
    """The class predicted under the model's own attention, the first of tied ones."""
    if readout.position_logits is None:
        return readout.logits(readout.attention).argmax(-1)
    # the exact solvers' own rule, so that a tie is decided as they decide it
    return decide(readout.attention, readout.position_logits)


def decision_margin(readout: Readout) -> Float[Tensor, "batch seq"]:
    """z_t[decision] − z_t[runner-up]: what each position says for the decision.

    The runner-up is the class with the next largest logit. With two classes, α_t times this is the
    order in which the smallest flipping set is found.
    """
    position_logits = readout.position_logits
    assert position_logits is not None
    chosen = decision(readout).unsqueeze(-1)
    logits = readout.logits(readout.attention)
    runner_up = logits.scatter(-1, chosen, -torch.inf).argmax(-1, keepdim=True)
    pair = torch.cat([chosen, runner_up], -1).unsqueeze(1).expand(-1, position_logits.shape[1], -1)
    chosen_logits, runner_up_logits = position_logits.gather(-1, pair).unbind(-1)
    return chosen_logits - runner_up_logits


def erase_each(readout: Readout) -> SingleErasures:
    """Set one weight to 0, renormalise the others to sum to 1, predict; for every content position.

    With a linear decoder this is one sum over the positions before and one over those after, for
    all positions at once; nothing is subtracted, so that erasing a weight of almost 1 costs no
    precision.

    Note:
        In float64. In float32, as published, up to a quarter of the tiny divergences come out
        negative.
    """
    chosen = decision(readout)
    mass = without(readout.attention)
    if readout.position_logits is None:
        logits = _logits_without_each(readout)
        flips = overtaken(logits.mT, chosen)
    else:
        # relative to the decision's logit, which leaves the prediction as it is
        lead = leads(readout.position_logits, chosen)
        advantage = without(readout.attention.unsqueeze(1) * lead)
        flips = (advantage > least_lead(lead, readout.attention > 0).unsqueeze(-1)).any(1)
        logits = advantage / torch.where(mass > 0, mass, 1).unsqueeze(1)

    prediction = logits.softmax(1)
    original = readout.prediction().unsqueeze(-1).expand_as(prediction).contiguous()
    divergence = jensen_shannon(original.mT, prediction.mT)
    if readout.task is Task.SCORE:
        divergence = torch.full_like(divergence, torch.nan)
    is_defined = readout.content & (mass >= LEAST_MASS)
    return SingleErasures(
        divergence=torch.where(is_defined, divergence, torch.nan),
        flips=torch.where(is_defined, flips.double(), torch.nan),
        prediction=torch.where(is_defined.unsqueeze(1), prediction, torch.nan),
    )


def _logits_without_each(readout: Readout) -> Float[Tensor, "batch classes seq"]:
    """The logits with each position erased, from a decoder that is not linear.

    Where nothing remains they are those of the whole attention, and nobody uses them.
    """
    attention = readout.attention
    positions = torch.arange(attention.shape[1], device=attention.device)
    logits = []
    for some_positions in positions.split(max(1, CHUNK // attention.numel())):
        erased = attention.expand(len(some_positions), -1, -1).clone()
        erased[torch.arange(len(some_positions)), :, some_positions] = 0
        mass = erased.sum(-1, keepdim=True)
        renormalised = erased / torch.where(mass > 0, mass, 1)
        logits.append(readout.logits(torch.where(mass > 0, renormalised, attention)))
    # the few classes as the middle axis in memory, the many positions as the last: several times
    # faster
    return torch.cat(logits).transpose(0, 1).mT.contiguous()


def without(values: Float[Tensor, "*batch seq"]) -> Float[Tensor, "*batch seq"]:
    """For every position, the sum over all the others.

    >>> without(torch.tensor([1.0, 2.0, 4.0]))
    tensor([6., 5., 3.])
    """
    sums = torch.zeros_like(values)
    sums[..., 1:] = values[..., :-1].cumsum(-1)
    sums[..., :-1] += values[..., 1:].flip(-1).cumsum(-1).flip(-1)
    return sums


def overtaken(
    logits: Float[Tensor, "batch *steps classes"], chosen: Int[Tensor, "batch"]
) -> Bool[Tensor, "batch *steps"]:
    """Where some class is ahead of the chosen one by more than rounding.

    That is 1e-12, or this share of the largest logit.
    """
    index = chosen.view(-1, *[1] * (logits.ndim - 1)).expand(*logits.shape[:-1], 1)
    lead = logits.amax(-1) - logits.gather(-1, index).squeeze(-1)
    return lead > LEAST_MASS * logits.abs().amax(-1).clamp(min=1)


@dataclass(frozen=True)
class ErasureCounts:
    """How far an order had to be followed until the decision flipped.

    Serrano & Smith 2019, section 5.

    Attributes:
        count: positions erased at the first flip, 1 or more; −1 where nothing short of erasing
            everything flips it.
        mass: attention weight erased by then, 0 to 1; NaN where count is −1.
    """

    count: Int[Tensor, "*samples batch"]
    mass: Float[Tensor, "*samples batch"]


def erase_in_order(readout: Readout, scores: Float[Tensor, "*samples batch seq"]) -> ErasureCounts:
    """Erase positions from the highest score to the lowest until the decision flips.

    The rest is renormalised after each; for any number of rankings of the same texts. With a linear
    decoder and d_t = z_t[k] − z_t[c], class k is ahead of the decision c exactly when the sum of
    α_t d_t over what is kept is positive (renormalising does not change its sign): one sum from the
    far end of the order gives every step of every class. Any other decoder is asked once per step.

    Of tied scores the earlier position goes first. A tie up to rounding is not a flip, nor is
    anything where less than 1e-12 of the attention is kept (`attnprobe.exact.checks`).

    Args:
        readout: of a batch of texts; only its content is erased.
        scores: rankings of these texts; whatever they are outside content.

    Note:
        Erasing everything is not a flip (as in `attnprobe.exact.smallest_flipping_set`): nothing is
        left to decide by. The published code decides by the bias there and counts it as a flip.
    """
    attention = readout.attention * readout.content
    flips_at = _flips_by_asking if readout.position_logits is None else _flips_by_summing
    step = torch.arange(scores.shape[-1], device=scores.device)
    counts = []
    masses = []
    for order in _removal_orders(readout, scores):
        # the last to go first, so that what is kept is a sum from the start
        flips = flips_at(readout, attention, order.flip(-1))
        count = _first_step(flips, readout.content)
        erased = torch.where(step < count.unsqueeze(-1), attention.gather(-1, order), 0).sum(-1)
        counts.append(count)
        masses.append(torch.where(count > 0, erased, torch.nan))
    shape = scores.shape[:-1]
    return ErasureCounts(torch.stack(counts).reshape(shape), torch.stack(masses).reshape(shape))


def turn_in_order(
    readout: Readout, scores: Float[Tensor, "*samples batch seq"]
) -> Int[Tensor, "*samples batch classes"]:
    """How many positions must go, by descending score, until the answer to each class turns.

    The answer is whether the class is the prediction. For the decision it turns where
    `erase_in_order` has its flip; for every other class, where that class is ahead of all others.
    What is said there of ties and of erasing everything holds here.

    Args:
        readout: of a linear decoder.
        scores: rankings of its texts; whatever they are outside content.

    Returns:
        1 or more; −1 where nothing short of erasing everything turns it.
    """
    attention = readout.attention * readout.content
    counts = []
    for order in _removal_orders(readout, scores):
        turns = _turns_by_summing(readout, attention, order.flip(-1))
        of_classes = [_first_step(of_class, readout.content) for of_class in turns.unbind(1)]
        counts.append(torch.stack(of_classes, -1))
    return torch.stack(counts).reshape(*scores.shape[:-1], -1)


def _removal_orders(
    readout: Readout, scores: Float[Tensor, "*samples batch seq"]
) -> Int[Tensor, "orders batch seq"]:
    """Content positions by descending score, of tied ones the earlier first; then all others."""
    rankings = scores.reshape(-1, *readout.attention.shape).double()
    rankings = rankings.masked_fill(~readout.content, -torch.inf)
    return rankings.sort(dim=-1, descending=True, stable=True).indices


def _first_step(
    holds: Bool[Tensor, "batch seq"], content: Bool[Tensor, "batch seq"]
) -> Int[Tensor, "batch"]:
    """After how many removals something holds for the first time; −1 where it never does.

    Args:
        holds: whether it does when an order's positions are kept from its far end up to each place.
        content: the positions that are removed.
    """
    length = content.sum(-1, keepdim=True)
    step = torch.arange(content.shape[-1], device=content.device)
    # the n-th place from the end holds the position that is removed n-th: what is kept then is
    # summed up one place before
    holds = holds[:, :-1].flip(-1) & (step[1:] < length)
    # nothing is left to decide by when everything is erased; that last column also keeps texts of
    # one position from having none at all
    holds = F.pad(holds, (0, 1))
    return torch.where(holds.any(-1), holds.int().argmax(-1) + 1, NEVER)


def _flips_by_summing(
    readout: Readout, attention: Weights, backwards: Int[Tensor, "batch seq"]
) -> Bool[Tensor, "batch seq"]:
    """Whether a class is ahead of the decision when an order's positions up to each place are kept.

    With a linear decoder.
    """
    assert readout.position_logits is not None
    lead = leads(readout.position_logits, decision(readout))
    advantage = lead * attention.unsqueeze(1)
    ordered = advantage.gather(-1, backwards.unsqueeze(1).expand_as(advantage))
    threshold = least_lead(lead, readout.content).unsqueeze(-1)
    return (ordered.cumsum(-1) > threshold).any(1)


def _turns_by_summing(
    readout: Readout, attention: Weights, backwards: Int[Tensor, "batch seq"]
) -> Bool[Tensor, "batch classes seq"]:
    """Whether the answer to each class is another one when positions up to each place are kept."""
    logits = readout.position_logits
    assert logits is not None
    decided = decision(readout)
    turns = []
    for rival in range(logits.shape[-1]):
        ahead = -leads(logits, torch.full_like(decided, rival))
        advantage = ahead * attention.unsqueeze(1)
        ordered = advantage.gather(-1, backwards.unsqueeze(1).expand_as(advantage))
        is_ahead = ordered.cumsum(-1) > least_lead(ahead, readout.content).unsqueeze(-1)
        is_ahead[:, rival] = True  # of itself
        turns.append(is_ahead.all(1))
    turns_away = _flips_by_summing(readout, attention, backwards)
    of_rivals = torch.stack(turns, 1)
    is_decision = F.one_hot(decided, logits.shape[-1]).bool().unsqueeze(-1)
    return torch.where(is_decision, turns_away.unsqueeze(1), of_rivals)


def _flips_by_asking(
    readout: Readout, attention: Weights, backwards: Int[Tensor, "batch seq"]
) -> Bool[Tensor, "batch seq"]:
    """The same of any decoder, which is asked at every step until every decision has changed."""
    chosen = decision(readout)
    flips = torch.zeros_like(readout.content)
    weights = attention.gather(-1, backwards)
    mass = weights.cumsum(-1)
    place = torch.arange(weights.shape[1], device=weights.device)
    for last in range(weights.shape[1] - 2, -1, -1):
        kept_mass = mass[:, last, None]
        is_defined = kept_mass >= LEAST_MASS
        renormalised = weights / torch.where(is_defined, kept_mass, 1)
        remaining = torch.where((place <= last) & is_defined, renormalised, 0)
        logits = readout.logits(torch.zeros_like(remaining).scatter(-1, backwards, remaining))
        flips[:, last] = overtaken(logits, chosen) & is_defined.squeeze(-1)
        if flips.any(-1).all():
            break
    return flips


@dataclass(frozen=True)
class WinningSet:
    """What is known of the smallest set of positions whose erasure makes a class win.

    The optimum where both numbers are equal.

    Attributes:
        size: positions of the smallest set known, 0 where the class wins already; −1 where none is
            known.
        bound: no set of fewer positions does it; −1 where it is proved, up to rounding, that no set
            does it.
    """

    size: int
    bound: int


def smallest_winning_set(
    margins: Float[np.ndarray, "rivals seq"],
    *,
    least: Float[np.ndarray, "rivals"] | float = 0.0,
    nodes: int = 1000,
) -> WinningSet:
    """The fewest positions to erase so that a class wins against every rival.

    It wins where every rival's kept sum Σ_{t∉S} margins[j, t] is above `least`. For one rival
    against the decision a sort is exact (`attnprobe.exact.smallest_overtaking_sets`); to win, a
    class must be ahead of every other one: an integer programme with a binary variable per position
    and a constraint per other class.

    Bounds by sorting come first. From below: the rival that is hardest to beat alone. From above:
    every rival's own order, the order by each position's worst margin and the one by its mean
    margin, followed until all sums are positive. Where the two differ, an integer programme decides
    (HiGHS): what it says of sums of 0 or more bounds the strict problem from below, and a set of
    its own counts only where its sums are above `least` in float64.

    Args:
        margins: α_t (z_t[k] − z_t[j]) of class k over each rival j, at the erasable positions only.
        least: what a sum must exceed not to be a tie: 1e-12 of the largest |z_t[k] − z_t[j]|
            (`attnprobe.exact.checks`).
        nodes: branch-and-bound nodes before the search is given up and the bounds stand as they
            are: nodes and not seconds, so that the same input gives the same answer on any machine.
            0: bounds by sorting alone.
    """
    thresholds = np.broadcast_to(least, len(margins))[:, None]
    count = margins.shape[1]
    alone = [
        _erasures_until_ahead(margins[[rival]], thresholds[[rival]], margins[rival])
        for rival in range(len(margins))
    ]
    if min(alone) < 0:
        return WinningSet(-1, -1)
    bound = max(alone)

    scale = np.abs(margins).max(1, keepdims=True)
    relative = margins / np.where(scale > 0, scale, 1)
    sizes = []
    for scores in (*relative, relative.min(0), relative.mean(0)):
        size = _erasures_until_ahead(margins, thresholds, scores)
        if size >= 0:
            sizes.append(size)

    for margin in (0.0, MARGIN) if nodes else ():
        if bound in sizes:
            break
        programme = _most_kept(relative, margin, nodes)
        if margin == 0:
            if programme.most < 1:
                return WinningSet(-1, -1)
            bound = max(bound, count - programme.most)
        positions = programme.positions
        if positions.any() and (margins[:, positions].sum(1) > thresholds[:, 0]).all():
            sizes.append(int((~positions).sum()))

    # single positions of next to no weight are within the solver's tolerance, and easily looked at
    if nodes and bound == count - 1 and not sizes:
        wins_alone = (margins > thresholds).all(0).any()
        bound = bound if wins_alone else -1
        return WinningSet(bound, bound)
    return WinningSet(min(sizes, default=-1), bound)


def _erasures_until_ahead(
    margins: Float[np.ndarray, "rivals seq"],
    thresholds: Float[np.ndarray, "rivals 1"],
    scores: Float[np.ndarray, "seq"],
) -> int:
    """How many positions have to go, by ascending score, until the class is ahead of all rivals.

    −1 where it never is.
    """
    order = np.argsort(scores, kind="stable")
    remaining_sum = np.cumsum(margins[:, order[::-1]], axis=1)[:, ::-1]
    is_ahead = (remaining_sum > thresholds).all(0)
    return int(is_ahead.argmax()) if is_ahead.any() else -1


@dataclass(frozen=True)
class _MostKept:
    """What the integer programme says.

    Attributes:
        most: no more positions than these can be kept; 0 where none can.
        positions: those of its best solution; none where it has none.
    """

    most: int
    positions: Bool[np.ndarray, "seq"]


def _most_kept(relative: Float[np.ndarray, "rivals seq"], margin: float, nodes: int) -> _MostKept:
    """Keep as many positions as possible, one or more, with every rival's sum `margin` or more."""
    count = relative.shape[1]
    ones = np.ones(count)
    constraints = [
        LinearConstraint(relative, margin, np.inf),
        LinearConstraint(np.ones((1, count)), 1, np.inf),
    ]
    result = milp(
        c=-ones,
        integrality=ones,
        bounds=Bounds(0, 1),
        constraints=constraints,
        options={"node_limit": nodes},
    )
    is_infeasible = result.status == 2
    if is_infeasible:
        most = 0
    elif result.mip_dual_bound is None:
        most = count
    else:
        most = int(np.floor(-result.mip_dual_bound + 1e-6))
    positions = np.zeros(count, bool) if result.x is None else result.x > 0.5
    return _MostKept(most, positions)
