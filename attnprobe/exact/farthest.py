"""The attention farthest from the model's own that leaves its prediction (nearly) as it is.

It is what an adversary searches for, as an optimum.
"""

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

    Attributes:
        attention: the attention found.
        jsd: its divergence from the model's, in nats.
        tvd: total variation distance between the two predictions.
        upper_bound: no attention within ε is farther than this, in nats.
        is_exact: the gap is closed: `attention` is a global optimum.
    """

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
            f"epsilon is {epsilon}: "
            f"expected the largest allowed TVD, 0 or more; the paper's is 0.01"
        )
    if effort < 0:
        raise UserError(
            f"effort is {effort}: "
            f"expected how many linear programmes a text's bound may take, 0 or more"
        )
    attention, position_logits, content = checked(attention, position_logits, content)
    if epsilon >= 1:
        epsilon = math.inf  # not even a prediction turned into its opposite is too far
    if position_logits.shape[-1] == 2 and exclusive:
        farthest = _farthest_two_classes(attention, position_logits, content, epsilon)
        jsd = jensen_shannon(attention, farthest, content)
        upper_bound = jsd.clone()
    else:
        farthest, bound = certified_interval(
            attention, position_logits, content, epsilon, effort, exclusive=exclusive
        )
        jsd = jensen_shannon(attention, farthest, content)
        upper_bound = torch.maximum(bound, jsd)

    task = Task.SINGLE_LABEL if exclusive else Task.MULTI_LABEL
    prediction = probabilities((attention[..., None] * position_logits).sum(1), task)
    moved_prediction = probabilities((farthest[..., None] * position_logits).sum(1), task)
    tvd = prediction_distance(prediction, moved_prediction, task)
    return FarthestAttention(
        attention=farthest,
        jsd=jsd,
        tvd=tvd,
        upper_bound=upper_bound,
        is_exact=upper_bound - jsd < CLOSED,
    )


def _farthest_two_classes(  # noqa: PLR0914  the proof's own order, all of it in view
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
    Σ_{t with weight} G_t(w_t): the first summand is the same for all and left out below.
    """
    margin = position_logits[..., 1] - position_logits[..., 0]
    mass = torch.where(content, attention, 0).sum(-1)
    fixed = torch.where(content, 0, attention * margin).sum(-1)
    reach = fixed[:, None] + mass[:, None] * margin  # the margin with all of the mass at t
    lo, hi = _margin_interval((attention * margin).sum(-1), reach, content, epsilon)

    weights = torch.where(content, attention, 1)  # outside content: unused, but safe in a logarithm
    single_gain = _single_gain(weights, mass[:, None])
    is_feasible = content & (reach >= lo[:, None]) & (reach <= hi[:, None])
    best_single, single = _first_largest(torch.where(is_feasible, single_gain, -torch.inf))

    # both ends of the interval at once, as twice the examples
    texts = _Vertices(
        alpha=weights.repeat(2, 1),
        reach=reach.repeat(2, 1),
        single_gain=single_gain.repeat(2, 1),
        content=content.repeat(2, 1),
        mass=mass.repeat(2),
        limit=torch.cat([lo, hi]),
    )
    lower_pair, upper_pair = _best_pair(texts).halves()
    takes_upper = upper_pair.gain > lower_pair.gain + TIE
    pair = lower_pair.replaced_where(takes_upper, upper_pair)
    pair_share = _share_of_first(pair, reach, torch.where(takes_upper, hi, lo))

    is_pair = pair.gain > best_single + TIE
    share = torch.where(is_pair, pair_share, 1)
    first = torch.where(is_pair, pair.first, single)
    second = torch.where(is_pair, pair.second, single)
    farthest = torch.where(content, 0, attention)
    farthest.scatter_add_(-1, first[:, None], (mass * share)[:, None])
    farthest.scatter_add_(-1, second[:, None], (mass * (1 - share))[:, None])
    # the vertices lie on the interval's rim up to rounding; without one (never seen), the model's
    # own attention stands
    has_vertex = is_pair | (best_single > -torch.inf)
    return torch.where(has_vertex[:, None], farthest, attention)


def _share_of_first(pair: "_Pairs", reach: Weights, limit: PerText) -> PerText:
    """The share of the mass that a pair's first position has where the pair meets the limit."""
    first_reach = reach.gather(-1, pair.first[:, None])[:, 0]
    second_reach = reach.gather(-1, pair.second[:, None])[:, 0]
    span = torch.where(pair.gain > -torch.inf, first_reach - second_reach, 1)
    return (limit - second_reach) / span


def _margin_interval(
    model_margin: PerText, reach: Weights, content: Content, epsilon: float
) -> tuple[PerText, PerText]:
    """The least and the greatest margin that keep the prediction within ε.

    Infinite where that end is out of reach.

    Args:
        model_margin: the margin under the model's attention.
        reach: the margin with all of the mass on one position.
        content: where that is possible.
        epsilon: the largest allowed change of the probability.
    """
    p = model_margin.sigmoid()
    q = (-model_margin).sigmoid()  # q is not 1 − p: it keeps its digits where p rounds to 1
    inside = max(epsilon - TVD_MARGIN, 0)
    # a logarithm of 0 or less means that this end is out of reach
    lo = (p - inside).clamp(min=0).log() - (q + inside).log()
    hi = (p + inside).log() - (q - inside).clamp(min=0).log()
    # Rounding of the margins themselves: keep away from the rim by so much, but let the model's own
    # margin in by as much; else at ε = 0 a text whose positions all have the same margin would have
    # no vertex.
    largest = torch.where(content, reach.abs(), 0).amax(-1).clamp(min=1e-3)
    rounding = 64 * torch.finfo(model_margin.dtype).eps * largest
    return torch.minimum(lo + rounding, model_margin - rounding), torch.maximum(
        hi - rounding, model_margin + rounding
    )


def _single_gain(weights: Weights, mass: Float[Tensor, "batch 1"]) -> Weights:
    """What all of the mass on one position gains, in nats.

    G(m) = f(α, m) − f(α, 0) = ½ [α ln α + m ln m + m ln 2 − (α+m) ln(α+m)].
    """
    total = weights + mass
    return (xlogy(weights, weights) + xlogy(mass, mass) + mass * LN2 - xlogy(total, total)) / 2


def _first_largest(x: Float[Tensor, "*any n"]) -> tuple[Float[Tensor, "*any"], Int[Tensor, "*any"]]:
    """Each row's largest value, and the first place that comes within TIE of it."""
    largest = x.amax(-1)
    return largest, (x >= (largest - TIE)[..., None]).byte().argmax(-1)


@dataclass(frozen=True)
class _Vertices:
    """What the gain of a pair depends on, for one end of each text's interval.

    Attributes:
        alpha: the model's attention; 1 outside content.
        reach: the margin with all of the mass on one position.
        single_gain: what that gains, in nats.
        content: where weight may be.
        mass: the content's.
        limit: the margin that a pair has to meet.
    """

    alpha: Weights
    reach: Weights
    single_gain: Weights
    content: Content
    mass: PerText
    limit: PerText

    def __getitem__(self, rows: Int[Tensor, "rows"]) -> "_Vertices":
        return _Vertices(
            alpha=self.alpha[rows],
            reach=self.reach[rows],
            single_gain=self.single_gain[rows],
            content=self.content[rows],
            mass=self.mass[rows],
            limit=self.limit[rows],
        )


@dataclass(frozen=True)
class _Pairs:
    """A pair of positions of each text.

    Attributes:
        gain: in nats; −∞ where there is no pair.
        first: the position above the limit.
        second: the position below it.
    """

    gain: PerText
    first: Place
    second: Place

    def halves(self) -> tuple["_Pairs", "_Pairs"]:
        """Those of the first half of the texts, and of the second."""
        half = len(self.gain) // 2
        return (
            _Pairs(self.gain[:half], self.first[:half], self.second[:half]),
            _Pairs(self.gain[half:], self.first[half:], self.second[half:]),
        )

    def replaced_where(self, condition: Bool[Tensor, "batch"], pairs: "_Pairs") -> "_Pairs":
        """The pairs of another search, where the condition holds."""
        return _Pairs(
            gain=torch.where(condition, pairs.gain, self.gain),
            first=torch.where(condition, pairs.first, self.first),
            second=torch.where(condition, pairs.second, self.second),
        )


def _best_pair(texts: _Vertices) -> _Pairs:
    """The best pair of each text that meets the limit exactly.

    G is convex in w, so a pair gains at most max(G_i(m), G_j(m)) (`single_gain`). In a long text
    the least attended positions of either side are paired first; that done, only pairs with a
    position above the gain found need to be looked at.
    """
    limit = texts.limit[:, None]
    within_reach = texts.content & limit.isfinite()
    above = within_reach & (texts.reach > limit)
    below = within_reach & (texts.reach < limit)
    is_long = (above.sum(-1) * below.sum(-1) > FEW_PAIRS)[:, None]
    pairs = _best_of_rectangle(
        texts, _seeds(texts.alpha, above, is_long), _seeds(texts.alpha, below, is_long)
    )
    is_strong = is_long & (texts.single_gain > (pairs.gain + TIE)[:, None])
    for side_above, side_below in (
        (above & is_strong, below & is_long),
        (above & ~is_strong & is_long, below & is_strong),
    ):
        rivals = _best_of_rectangle(texts, side_above, side_below)
        pairs = pairs.replaced_where(rivals.gain > pairs.gain + TIE, rivals)
    return pairs


def _seeds(alpha: Weights, side: Content, is_long: Bool[Tensor, "batch 1"]) -> Content:
    """Positions of a side that are paired first: of a long text the least attended, else all."""
    order = alpha.masked_fill(~side, torch.inf).argsort(dim=-1, stable=True)[:, :SEEDS]
    return side & (~is_long | torch.zeros_like(side).scatter_(-1, order, True))


def _best_of_rectangle(texts: _Vertices, above: Content, below: Content) -> _Pairs:
    """The best of all pairs of a position of `above` and one of `below`."""
    best = _Pairs(
        gain=torch.full_like(texts.mass, -torch.inf),
        first=torch.zeros_like(texts.mass, dtype=torch.long),
        second=torch.zeros_like(texts.mass, dtype=torch.long),
    )
    wide = above.sum(-1)
    tall = below.sum(-1)
    # examples with about as many pairs go together: little is lost to padding
    rows = (wide * tall).argsort(stable=True)
    rows = rows[(wide * tall)[rows] > 0]
    # each side's positions moved to the front, so that the pairs form a rectangle
    above_places = above.byte().argsort(dim=-1, descending=True, stable=True)
    below_places = below.byte().argsort(dim=-1, descending=True, stable=True)
    while len(rows):
        # the largest examples first, as many as fit; one that does not fit goes in slices
        width = int(wide[rows].amax())
        height = int(tall[rows].amax())
        fitting = max(1, PAIRS_AT_ONCE // (width * height))
        chunk = rows[-fitting:]
        rows = rows[:-fitting]
        step = max(1, PAIRS_AT_ONCE // height)
        for start in range(0, width, step):
            rectangle = _Rectangle(
                first=above_places[chunk, start : min(start + step, width)],
                second=below_places[chunk, :height],
                above=above[chunk],
                below=below[chunk],
            )
            _keep_better(best, chunk, _best_in(texts[chunk], rectangle))
    return best


@dataclass(frozen=True)
class _Rectangle:
    """Pairs of positions of some texts: every one of `first` with every one of `second`.

    Positions count where they are on their side, `above` or `below`.
    """

    first: Int[Tensor, "batch wide"]
    second: Int[Tensor, "batch tall"]
    above: Content
    below: Content


def _best_in(texts: _Vertices, rectangle: _Rectangle) -> _Pairs:
    """The best pair of each text's rectangle."""
    gains = _pair_gains(texts, rectangle)
    rows = torch.arange(len(gains), device=gains.device)
    gain, first_place = _first_largest(gains.amax(-1))
    second_place = _first_largest(gains[rows, first_place])[1]
    return _Pairs(
        gain=gain,
        first=rectangle.first[rows, first_place],
        second=rectangle.second[rows, second_place],
    )


def _keep_better(best: _Pairs, rows: Int[Tensor, "rows"], pairs: _Pairs) -> None:
    """Put these pairs of some texts into `best` where they gain more."""
    is_better = pairs.gain > best.gain[rows] + TIE
    best.gain[rows] = torch.where(is_better, pairs.gain, best.gain[rows])
    best.first[rows] = torch.where(is_better, pairs.first, best.first[rows])
    best.second[rows] = torch.where(is_better, pairs.second, best.second[rows])


def _pair_gains(texts: _Vertices, rectangle: _Rectangle) -> Float[Tensor, "batch wide tall"]:
    """G_i(w) + G_j(m − w), in nats, with the w at which the pair meets the limit.

    −∞ where i or j is not on its side.
    """
    i = rectangle.first
    j = rectangle.second
    valid_i = rectangle.above.gather(-1, i)[:, :, None]
    valid_j = rectangle.below.gather(-1, j)[:, None, :]
    # distances to the limit; what is on the wrong side gets 1, which keeps w inside (0, m)
    limit = texts.limit[:, None]
    over = torch.where(valid_i, (texts.reach.gather(-1, i) - limit)[:, :, None], 1)
    under = torch.where(valid_j, (limit - texts.reach.gather(-1, j))[:, None, :], 1)
    alpha_i = texts.alpha.gather(-1, i)[:, :, None]
    alpha_j = texts.alpha.gather(-1, j)[:, None, :]
    m = texts.mass[:, None, None]

    # the innermost arithmetic: x·ln x by hand (x > 0 here) and in place takes half of xlogy's time
    tiny = torch.finfo(m.dtype).tiny
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
