"""What happens to the prediction when attended positions are erased and the other weights
renormalised."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.optimize import Bounds, LinearConstraint, milp
from torch import Tensor
from torch.nn import functional as F

from attnprobe.core.batch import Task
from attnprobe.core.readout import Readout
from attnprobe.exact.checks import LEAST_MASS, decide, leads, least_lead
from attnprobe.exact.flipping import NEVER
from attnprobe.measures import jensen_shannon

CHUNK = 4_000_000
"""Attention weights at a time where the decoder is not linear: keeps memory small."""
MARGIN = 1e-5
"""How far above 0 a sum is asked to be in the second attempt, relative to its largest summand: the
solver takes anything above -1e-6 for 0 or more."""


@dataclass(frozen=True)
class SingleErasures:
    """The effect of erasing each position alone (Serrano & Smith 2019, section 4); NaN outside
    content and where less than 1e-12 of the attention is left.

    Attributes:
        divergence: Jensen-Shannon divergence of the predictions before and after, in nats, 0 to ln
            2; NaN of scores, which are no distributions.
        flips: 1 where another class is ahead of the decision afterwards (a tie up to rounding is
            not a flip), else 0.
    """

    divergence: Float[Tensor, "batch seq"]
    flips: Float[Tensor, "batch seq"]


def decision(readout: Readout) -> Int[Tensor, "batch"]:
    """The class predicted under the model's own attention, the first of tied ones."""
    if readout.position_logits is None:
        return readout.logits(readout.attention).argmax(-1)
    # the exact solvers' own rule, so that a tie is decided as they decide it
    return decide(readout.attention, readout.position_logits)


def decision_margin(readout: Readout) -> Float[Tensor, "batch seq"]:
    """z_t[decision] − z_t[runner-up]: what each position says for the decision against the next
    likely class.

    With two classes, α_t times this is the order in which the smallest flipping set is found.
    """
    logits = readout.position_logits
    assert logits is not None
    chosen = decision(readout).unsqueeze(-1)
    whole = readout.logits(readout.attention)
    runner_up = whole.scatter(-1, chosen, -torch.inf).argmax(-1, keepdim=True)
    pair = torch.cat([chosen, runner_up], -1).unsqueeze(1).expand(-1, logits.shape[1], -1)
    of_chosen, of_other = logits.gather(-1, pair).unbind(-1)
    return of_chosen - of_other


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
        attention = readout.attention
        parts = []
        places = torch.arange(attention.shape[1], device=attention.device)
        for position in places.split(max(1, CHUNK // attention.numel())):
            others = attention.expand(len(position), -1, -1).clone()
            others[torch.arange(len(position)), :, position] = 0
            left = others.sum(-1, keepdim=True)
            # where nothing is left the result is not used
            parts.append(
                readout.logits(
                    torch.where(left > 0, others / torch.where(left > 0, left, 1), attention)
                )
            )
        # the few classes as the middle axis in memory, the many positions as the last: several
        # times faster
        after = torch.cat(parts).transpose(0, 1).mT.contiguous()
        flips = overtaken(after.mT, chosen)
    else:  # logits relative to the decision's
        lead = leads(readout.position_logits, chosen)
        kept = without(readout.attention.unsqueeze(1) * lead)
        flips = (kept > least_lead(lead, readout.attention > 0).unsqueeze(-1)).any(1)
        after = kept / torch.where(mass > 0, mass, 1).unsqueeze(1)
    changed = after.softmax(1)
    original = readout.prediction().unsqueeze(-1).expand_as(changed).contiguous()
    divergence = jensen_shannon(original.mT, changed.mT)
    if readout.task is Task.SCORE:
        divergence = torch.full_like(divergence, torch.nan)
    defined = readout.content & (mass >= LEAST_MASS)
    return SingleErasures(
        *(torch.where(defined, each, torch.nan) for each in (divergence, flips.double()))
    )


def without(values: Float[Tensor, "*batch seq"]) -> Float[Tensor, "*batch seq"]:
    """For every position, the sum over all the others.

    >>> without(torch.tensor([1.0, 2.0, 4.0]))
    tensor([6., 5., 3.])
    """
    others = torch.zeros_like(values)
    others[..., 1:] = values[..., :-1].cumsum(-1)
    others[..., :-1] += values[..., 1:].flip(-1).cumsum(-1).flip(-1)
    return others


def overtaken(
    logits: Float[Tensor, "batch *steps classes"], chosen: Int[Tensor, "batch"]
) -> Bool[Tensor, "batch *steps"]:
    """Where some class is ahead of the chosen one by more than rounding: 1e-12, or that share of
    the largest logit."""
    index = chosen.view(-1, *[1] * (logits.ndim - 1)).expand(*logits.shape[:-1], 1)
    lead = logits.amax(-1) - logits.gather(-1, index).squeeze(-1)
    return lead > LEAST_MASS * logits.abs().amax(-1).clamp(min=1)


@dataclass(frozen=True)
class ErasureCounts:
    """How far an order had to be followed until the decision flipped (Serrano & Smith 2019, section
    5).

    Attributes:
        count: positions erased at the first flip, 1 or more; −1 where nothing short of erasing
            everything flips it.
        mass: attention weight erased by then, 0 to 1; NaN where count is −1.
    """

    count: Int[Tensor, "*samples batch"]
    mass: Float[Tensor, "*samples batch"]


def erase_in_order(readout: Readout, scores: Float[Tensor, "*samples batch seq"]) -> ErasureCounts:
    """Erase content positions from the highest score to the lowest, renormalising the rest after
    each, until some class is ahead of the decision; for any number of rankings of the same texts.

    With a linear decoder and d_t = z_t[k] − z_t[c], class k is ahead of the decision c exactly when
    the sum of α_t d_t over what is kept is positive (renormalising does not change its sign): one
    sum from the far end of the order gives every step of every class. Any other decoder is asked
    once per step. Of tied scores the earlier position goes first. A tie up to rounding is not a
    flip, nor is anything where less than 1e-12 of the attention is kept (`attnprobe.exact.checks`).

    Note:
        Erasing everything is not a flip (as in `attnprobe.exact.smallest_flipping_set`): nothing is
        left to decide by. The published code decides by the bias there and counts it as a flip.
    """
    attention = readout.attention * readout.content
    length = readout.content.sum(-1)
    chosen = decision(readout)
    if (
        readout.position_logits is not None
    ):  # α_t d_t of every class, and what their sum must exceed
        lead = leads(readout.position_logits, chosen)
        advantage = lead * attention.unsqueeze(1)
        least = least_lead(lead, readout.content).unsqueeze(-1)
    number = torch.arange(scores.shape[-1], device=length.device)
    counts = []
    masses = []
    every = scores.reshape(-1, *attention.shape).double().masked_fill(~readout.content, -torch.inf)
    for order in every.sort(dim=-1, descending=True, stable=True).indices:
        # the last to go first, so that what is kept is a sum from the start
        backwards = order.flip(-1)
        if readout.position_logits is None:  # asked at every step until every decision has changed
            flips = torch.zeros_like(readout.content)
            weights = attention.gather(-1, backwards)
            kept = weights.cumsum(-1)
            for last in range(weights.shape[1] - 2, -1, -1):
                defined = kept[:, last, None] >= LEAST_MASS
                shares = weights / torch.where(defined, kept[:, last, None], 1)
                left = torch.where((number <= last) & defined, shares, 0)
                ahead = overtaken(
                    readout.logits(torch.zeros_like(left).scatter(-1, backwards, left)), chosen
                )
                flips[:, last] = ahead & defined.squeeze(-1)
                if flips.any(-1).all():
                    break
        else:
            ordered = advantage.gather(-1, backwards.unsqueeze(1).expand_as(advantage))
            flips = (ordered.cumsum(-1) > least).any(1)
        # the n-th place from the end holds the position that is removed n-th: what is kept then is
        # summed up one place before
        flips = flips[:, :-1].flip(-1) & (number[1:] < length.unsqueeze(-1))
        # erasing everything is not a flip: that last column also keeps texts of one item from
        # having none at all
        flips = F.pad(flips, (0, 1))
        count = torch.where(flips.any(-1), flips.int().argmax(-1) + 1, NEVER)
        erased = torch.where(number < count.unsqueeze(-1), attention.gather(-1, order), 0).sum(-1)
        counts.append(count)
        masses.append(torch.where(count > 0, erased, torch.nan))
    shape = scores.shape[:-1]
    return ErasureCounts(torch.stack(counts).reshape(shape), torch.stack(masses).reshape(shape))


@dataclass(frozen=True)
class WinningSet:
    """What is known of the smallest set of positions whose erasure makes a class win: the optimum
    where both are equal.

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
    """The fewest positions to erase so that every rival's kept sum Σ_{t∉S} margins[j, t] is above
    `least`: the class wins.

    For one rival against the decision a sort is exact (`attnprobe.exact.smallest_overtaking_sets`);
    to win, a class must be ahead of every other one: an integer programme with a binary variable
    per position and a constraint per other class.

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
    least = np.broadcast_to(least, len(margins))[:, None]
    count = margins.shape[1]

    def first(rivals: slice, scores: np.ndarray) -> int:
        """How many positions have to go, in the order of their scores, until every sum of the rest
        is above `least`."""
        order = np.argsort(scores, kind="stable")
        kept = np.cumsum(margins[rivals][:, order[::-1]], axis=1)[:, ::-1]
        wins = (kept > least[rivals]).all(0)
        return int(wins.argmax()) if wins.any() else -1

    bounds = [first(slice(rival, rival + 1), row) for rival, row in enumerate(margins)]
    if min(bounds) < 0:
        return WinningSet(-1, -1)
    bound = max(bounds)
    scale = np.abs(margins).max(1, keepdims=True)
    relative = margins / np.where(scale > 0, scale, 1)
    orders = [*relative, relative.min(0), relative.mean(0)]
    sizes = [size for scores in orders if (size := first(slice(None), scores)) >= 0]
    for margin in (0.0, MARGIN) if nodes else ():
        if bound in sizes:
            break
        # as many positions as can be kept with sums of `margin` or more
        rows = [
            LinearConstraint(relative, margin, np.inf),
            LinearConstraint(np.ones((1, count)), 1, np.inf),
        ]
        ones = np.ones(count)
        options = {"node_limit": nodes}
        result = milp(
            c=-ones, integrality=ones, bounds=Bounds(0, 1), constraints=rows, options=options
        )
        if margin == 0:
            most = (
                count
                if result.mip_dual_bound is None
                else int(np.floor(-result.mip_dual_bound + 1e-6))
            )
            if result.status == 2 or most < 1:  # infeasible
                return WinningSet(-1, -1)
            bound = max(bound, count - most)
        keep = np.zeros(count, bool) if result.x is None else result.x > 0.5
        if keep.any() and (margins[:, keep].sum(1) > least[:, 0]).all():
            sizes.append(int((~keep).sum()))
    # single positions of next to no weight are within the solver's tolerance, and easily looked at
    if nodes and bound == count - 1 and not sizes:
        bound = bound if (margins > least).all(0).any() else -1
        return WinningSet(bound, bound)
    return WinningSet(min(sizes, default=-1), bound)
