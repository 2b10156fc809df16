"""The attention furthest from the model's own that leaves its prediction (nearly) as it is: the
adversary's optimum."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.special import xlogy

from attnprobe.core.batch import Task, prediction_distance, probabilities
from attnprobe.core.errors import UserError
from attnprobe.exact.certified import certified_interval
from attnprobe.exact.checks import Content, Logits, PerText, Weights, checked
from attnprobe.exact.regions import TVD_MARGIN
from attnprobe.measures import LN2, jensen_shannon

Place = Int[Tensor, "batch"]

PAIRS_AT_ONCE = 1 << 18
"""Pairs evaluated in one go: 2 MB per intermediate tensor, which stays in the cache, whatever the
length."""
FEW_PAIRS = 1024
"""Up to this many pairs, an example's are simply all tried."""
SEEDS = 8
"""In longer texts, positions of either side that are paired first, to know early how good a pair
has to be."""
TIE = 1e-12
"""JSD in nats below which two vertices count as equally far: the one found first is kept (the last
digit of a vectorised logarithm depends on the position in memory)."""
CLOSED = 1e-6
"""Gap in nats below which an optimum counts as proved."""


@dataclass(frozen=True)
class FarthestAttention:
    """The farthest attention found, and how much farther any could be.

    `jsd` (nats) and `tvd` are those of `attention` against the given one. No attention within ε is
    farther than `upper_bound` (nats). `is_exact` says that the gap is closed: `attention` is a
    global optimum."""

    attention: Weights
    jsd: PerText
    tvd: PerText
    upper_bound: PerText
    is_exact: Bool[Tensor, "batch"]


def farthest_attention(
    attention: Float[Tensor, "..."],
    position_logits: Float[Tensor, "..."],
    content: Bool[Tensor, "..."],
    *,
    epsilon: float,
    effort: int = 64,
    exclusive: bool = True,
) -> FarthestAttention:
    """Maximise JSD(α, a) over all attentions a whose prediction stays within TVD ε of the model's.

    For two classes the global optimum, in closed form (`_farthest_two_classes` has the proof); for
    three or more the best attention found and an upper bound (`attnprobe.exact.certified`).

    Args:
        attention: α, weights of 0 or more, `[batch, seq]`, summing to 1. Weight outside `content`
            stays as it is.
        position_logits: z_t = W h_t + b, `[batch, seq, classes]`, 2 or more classes.
        content: True where attention may be moved, `[batch, seq]`.
        epsilon: the largest total variation distance allowed between the two predictions, 0 or
            more. From 1 on everything is allowed. Met with a margin of 1e-12, and below that up to
            float64's rounding.
        effort: for three or more classes, how many linear programmes the bound of an example may
            take; more close the gap further, 0 takes none.
        exclusive: a text has one of the classes. False: it may have several labels, each a sigmoid
            of its own logit, and the distance is the mean over the labels of |p − q|.

    Returns:
        Everything in float64, on the tensors' device.

    Raises:
        UserError: a negative ε; and see `attnprobe.exact.checks.checked`.

    >>> attention = torch.tensor([[0.6, 0.3, 0.1]])
    >>> margin = torch.tensor([[2.0, -1.0, 2.0]])  # of class 1 over class 0
    >>> position_logits = torch.stack([torch.zeros_like(margin), margin], -1)
    >>> content = torch.ones(1, 3, dtype=torch.bool)
    >>> farthest_attention(attention, position_logits, content, epsilon=0.2).attention
    tensor([[0., 0., 1.]], dtype=torch.float64)
    """
    if not epsilon >= 0:
        raise UserError(
            f"epsilon is {epsilon}: expected the largest allowed TVD, 0 or more; the paper's is 0.01"
        )
    if effort < 0:
        raise UserError(
            f"effort is {effort}: expected how many linear programmes a text's bound may take, 0 or more"
        )
    attention, position_logits, content = checked(attention, position_logits, content)
    if epsilon >= 1:
        epsilon = math.inf  # not even a prediction turned into its opposite is too far
    if position_logits.shape[-1] == 2 and exclusive:
        farthest = _farthest_two_classes(attention, position_logits, content, epsilon)
        bound = None
    else:
        farthest, bound = certified_interval(
            attention, position_logits, content, epsilon, effort, exclusive=exclusive
        )
    jsd = jensen_shannon(attention, farthest, content)
    task = Task.SINGLE_LABEL if exclusive else Task.MULTI_LABEL
    logits = ((one[..., None] * position_logits).sum(1) for one in (attention, farthest))
    own, moved = (probabilities(one, task) for one in logits)
    tvd = prediction_distance(own, moved, task)
    upper_bound = jsd.clone() if bound is None else torch.maximum(bound, jsd)
    return FarthestAttention(farthest, jsd, tvd, upper_bound, upper_bound - jsd < CLOSED)


def _farthest_two_classes(
    attention: Weights, position_logits: Logits, content: Content, epsilon: float
) -> Weights:
    """The global optimum for two classes, by the vertices of the feasible set.

    Proof. Let s_t be the logit margin of position t and p the probability of class 1. TVD = |p' −
    p| ≤ ε holds exactly where the margin Σ a_t s_t lies in [lo, hi] = [logit(p−ε), logit(p+ε)],
    infinite where p∓ε leaves (0, 1). The feasible set {a ≥ 0, Σ a_t = m over content, lo ≤ Σ a_t
    s_t ≤ hi} is a polytope. JSD(α, ·) is convex, so its maximum is at a vertex. A vertex has as
    many non-zero weights as independent tight equations: the sum alone (one position), or the sum
    and one end of the interval (two positions that meet lo or hi exactly). All of these are tried:
    O(seq²) pairs per example. With G_t(w) = f(α_t, w) − f(α_t, 0), a vertex's JSD is ½ ln 2 · m +
    Σ_{t with weight} G_t(w_t): the first summand is the same for all and left out below."""
    margin = position_logits[..., 1] - position_logits[..., 0]
    mass = torch.where(content, attention, 0).sum(-1)
    fixed = torch.where(content, 0, attention * margin).sum(-1)
    reach = fixed[:, None] + mass[:, None] * margin  # the margin with all of the mass at t
    own = (attention * margin).sum(-1)
    p = own.sigmoid()
    q = (-own).sigmoid()  # q is not 1 − p: it keeps its digits where p rounds to 1
    inside = max(epsilon - TVD_MARGIN, 0)
    # a logarithm of 0 or less means that this end is out of reach
    lo = (p - inside).clamp(min=0).log() - (q + inside).log()
    hi = (p + inside).log() - (q - inside).clamp(min=0).log()
    # Rounding of the margins themselves: keep away from the rim by so much, but let the model's own
    # margin in by as much; else at ε = 0 a text whose positions all have the same margin would have
    # no vertex.
    rounding = (
        64
        * torch.finfo(own.dtype).eps
        * torch.where(content, reach.abs(), 0).amax(-1).clamp(min=1e-3)
    )
    lo = torch.minimum(lo + rounding, own - rounding)
    hi = torch.maximum(hi - rounding, own + rounding)

    weights = torch.where(content, attention, 1)  # outside content: unused, but safe in a logarithm
    # G(m) = f(α, m) − f(α, 0) = ½ [α ln α + m ln m + m ln 2 − (α+m) ln(α+m)]
    whole = mass[:, None]
    both = weights + whole
    alone = (xlogy(weights, weights) + xlogy(whole, whole) + whole * LN2 - xlogy(both, both)) / 2
    feasible = content & (reach >= lo[:, None]) & (reach <= hi[:, None])
    best, first = _first_largest(torch.where(feasible, alone, -torch.inf))
    # both ends at once, as twice the examples
    twice = [x.repeat(2, 1) for x in (weights, reach, alone, content)]
    pairs = _best_pair(twice[0], twice[1], twice[2], twice[3], mass.repeat(2), torch.cat([lo, hi]))
    gain, i, j = (x.unflatten(0, (2, -1)) for x in pairs)
    upper = (gain[1] > gain[0] + TIE).long()
    gain, i, j = (x.gather(0, upper[None])[0] for x in (gain, i, j))
    limit = torch.where(upper == 1, hi, lo)
    paired = gain > best + TIE
    reach_i = reach.gather(-1, i[:, None])[:, 0]
    reach_j = reach.gather(-1, j[:, None])[:, 0]
    share = torch.where(paired, (limit - reach_j) / torch.where(paired, reach_i - reach_j, 1), 1)
    second = torch.where(paired, j, first)
    first = torch.where(paired, i, first)
    result = torch.where(content, 0, attention)
    result.scatter_add_(-1, first[:, None], (mass * share)[:, None])
    result.scatter_add_(-1, second[:, None], (mass * (1 - share))[:, None])
    # the vertices lie on the interval's rim up to rounding; without one (never seen), the model's
    # own attention stands
    return torch.where((paired | (best > -torch.inf))[:, None], result, attention)


def _first_largest(x: Float[Tensor, "*any n"]) -> tuple[Float[Tensor, "*any"], Int[Tensor, "*any"]]:
    """Each row's largest value, and the first place that comes within TIE of it."""
    largest = x.amax(-1)
    return largest, (x >= (largest - TIE)[..., None]).byte().argmax(-1)


def _best_pair(
    alpha: Weights, reach: Weights, alone: Weights, content: Content, mass: PerText, limit: PerText
) -> tuple[PerText, Place, Place]:
    """The best pair (i above the limit, j below it) that meets the limit exactly, and its gain (−∞:
    no pair).

    G is convex in w, so a pair gains at most max(G_i(m), G_j(m)) (`alone`). In a long text the
    least attended positions of either side are paired first; that done, only pairs with a position
    above the gain found need to be looked at."""
    within_reach = content & limit.isfinite()[:, None]
    above = within_reach & (reach > limit[:, None])
    below = within_reach & (reach < limit[:, None])
    long = (above.sum(-1) * below.sum(-1) > FEW_PAIRS)[:, None]
    seeds = []
    for side in (above, below):
        order = alpha.masked_fill(~side, torch.inf).argsort(dim=-1, stable=True)[:, :SEEDS]
        seeds.append(side & (~long | torch.zeros_like(side).scatter_(-1, order, True)))
    gain, first, second = _best_of_rectangle(alpha, reach, mass, limit, *seeds)
    strong = long & (alone > (gain + TIE)[:, None])
    for side_i, side_j in (
        (above & strong, below & long),
        (above & ~strong & long, below & strong),
    ):
        new, i, j = _best_of_rectangle(alpha, reach, mass, limit, side_i, side_j)
        better = new > gain + TIE
        gain, first, second = (
            torch.where(better, *x) for x in ((new, gain), (i, first), (j, second))
        )
    return gain, first, second


def _best_of_rectangle(
    alpha: Weights, reach: Weights, mass: PerText, limit: PerText, above: Content, below: Content
) -> tuple[PerText, Place, Place]:
    """The best of all pairs (i of `above`, j of `below`) and its gain, −∞ where there is no
    pair."""
    best = torch.full_like(mass, -torch.inf)
    first = torch.zeros_like(mass, dtype=torch.long)
    second = torch.zeros_like(mass, dtype=torch.long)
    wide = above.sum(-1)
    tall = below.sum(-1)
    rows = (wide * tall).argsort(stable=True)
    rows = rows[
        (wide * tall)[rows] > 0
    ]  # examples with about as many pairs go together: little is lost to padding
    # each side's positions moved to the front, so that the pairs form a rectangle
    high, low = (
        side.byte().argsort(dim=-1, descending=True, stable=True) for side in (above, below)
    )
    while len(rows):
        # the largest examples first, as many as fit; one that does not fit goes in slices
        width = int(wide[rows].amax())
        height = int(tall[rows].amax())
        take = max(1, PAIRS_AT_ONCE // (width * height))
        part = rows[-take:]
        rows = rows[:-take]
        here = torch.arange(len(part), device=part.device)
        for start in range(0, width, step := max(1, PAIRS_AT_ONCE // height)):
            i = high[part, start : min(start + step, width)]
            j = low[part, :height]
            gains = _pair_gains(
                alpha[part], reach[part], mass[part], limit[part], i, j, above[part], below[part]
            )
            gain, place_i = _first_largest(gains.amax(-1))
            place_j = _first_largest(gains[here, place_i])[1]
            better = gain > best[part] + TIE
            best[part] = torch.where(better, gain, best[part])
            first[part] = torch.where(better, i[here, place_i], first[part])
            second[part] = torch.where(better, j[here, place_j], second[part])
    return best, first, second


def _pair_gains(
    alpha: Weights,
    reach: Weights,
    mass: PerText,
    limit: PerText,
    i: Int[Tensor, "batch wide"],
    j: Int[Tensor, "batch tall"],
    above: Content,
    below: Content,
) -> Float[Tensor, "batch wide tall"]:
    """G_i(w) + G_j(m − w) with the w at which the pair meets the limit; −∞ where i or j is not on
    its side."""
    valid_i = above.gather(-1, i)[:, :, None]
    valid_j = below.gather(-1, j)[:, None, :]
    # distances to the limit; what is on the wrong side gets 1, which keeps w inside (0, m)
    over = torch.where(valid_i, (reach.gather(-1, i) - limit[:, None])[:, :, None], 1)
    under = torch.where(valid_j, (limit[:, None] - reach.gather(-1, j))[:, None, :], 1)
    alpha_i = alpha.gather(-1, i)[:, :, None]
    alpha_j = alpha.gather(-1, j)[:, None, :]
    m = mass[:, None, None]
    # the innermost arithmetic: x·ln x by hand (x > 0 here) and in place takes half of xlogy's time
    tiny = torch.finfo(mass.dtype).tiny
    w = (m * under / (over + under)).clamp_(min=tiny)
    gain = w.log().mul_(w)
    alpha_and_w = w + alpha_i
    gain -= alpha_and_w.log().mul_(alpha_and_w)
    v = (m - w).clamp_(min=tiny)
    gain += v.log().mul_(v)
    v += alpha_j
    gain -= v.log().mul_(v)
    gain += torch.where(valid_i, xlogy(alpha_i, alpha_i) + m * LN2, -torch.inf)
    gain += torch.where(valid_j, xlogy(alpha_j, alpha_j), -torch.inf)
    return gain.div_(2)
