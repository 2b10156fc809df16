"""Exact Shapley values of an attention: what each position does for a logit, at any length.

Serrano & Smith (2019) erase a set of weights and renormalise the others. That is a game between the
positions, and the one set of values that shares its outcome out fairly (Shapley 1953) needs no
sampling.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from attnprobe.core.errors import UserError
from attnprobe.exact.checks import Logits, Weights, checked

STEP = 0.25
"""Distance of the trapezoid rule's nodes in log x."""
FIRST = math.log(1e-5)
"""The first of them, where the weights sum to 1."""
DECAY = 40.0
"""An integrand e^(−40) as large as at its start has ended."""
LARGEST = 1e3
"""Above this, e^(−xα) is 0 in float64."""
NEGLIGIBLE = 1e-18
"""Nodes of x whose integrand is smaller than this for every text are left out."""
REMAINDERS = 1e-13
"""Proved error of all but the step, as a share of the largest |m_t − v(all)|: over 725 units of
log x, as many as float64 has."""
EPSILON = torch.finfo(torch.float64).eps
"""Two roundings. The integrand's parts integrate to π²/3 at most in size, and at each node they are
products of n factors: n + nodes roundings in each of them, to first order."""
CELLS = 1 << 18
"""Numbers per intermediate tensor: 2 MB in float64, which stay in the cache."""

_points, _weights = np.polynomial.legendre.leggauss(24)
SHARE_POINTS = torch.from_numpy((_points + 1) / 2)
SHARE_WEIGHTS = torch.from_numpy(_weights / 2)
"""Gauss-Legendre on [0, 1]."""


@dataclass(frozen=True)
class ShapleyValues:
    """Shapley values of every position, and how far they can be from the exact ones.

    Attributes:
        values: φ, signed, in the unit of the position logits; exactly 0 where the weight is 0.
        error: no value of this text and class is farther than this from the exact one: the proved
            error of the quadrature and of rounding, or the one that the checks observe, if larger.
        efficiency_gap: |Σ φ − v(all)|, which is 0 in exact arithmetic.
    """

    values: Logits
    error: Float[Tensor, "batch classes"]
    efficiency_gap: Float[Tensor, "batch classes"]


def attention_shapley(
    attention: Shaped[Tensor, "..."],
    position_logits: Shaped[Tensor, "..."],
    content: Shaped[Tensor, "..."],
) -> ShapleyValues:
    """Shapley values of v(S) = Σ_{t∈S} α_t m_t / Σ_{t∈S} α_t with v(∅) = 0, for every class.

    The mean gain in a class's logit m from a position, over all n! orders in which positions get
    their weight back, the weights that are there being renormalised. They add up to v(all), the
    logit under the whole attention.

    Every other position is in S with probability q, independently, and q is drawn from [0, 1]
    (Owen 1972); 1/A = ∫₀^∞ e^(−xA) dx then makes the expectation a product over positions. With
    e_j = e^(−xα_j), g_j = 1 − q + q e_j, P = Π g_j and R = Σ_j q α_j m_j e_j / g_j,

        φ_i = ∫₀^∞ ∫₀¹ (P / g_i) (α_i m_i e_i / g_i − (1 − e_i) R) dq dx

    so that all n values cost O(n) per node (x, q), and the number of nodes grows with the logarithm
    of the smallest weight only, not with n.

    **q.** At each x this is a polynomial in q whose terms fall at least as fast as e^(−(C − 2) q)
    with C = Σ (1 − e_j), and grow no faster than e^(C|q|) away from the real axis. So 24
    Gauss-Legendre nodes on [0, min(1, 40/C)] leave less than 1e-16 max|m| per unit of log x,
    whatever n: by the bound over Bernstein's ellipse e^(−45), and e^(−38) for what lies beyond
    40/C.

    **x.** In u = log x the integrand is analytic for |Im u| < π/2, and bounded there by that on the
    real line at x cos(Im u): each g_j is at most 1 − q + q e^(−α_j Re x). A trapezoid rule of step
    h errs by less than 8 max|m| (2π/h) e^(1 − π²/h): 4e-15 for h = 1/4, whatever the weights. It
    ends where the smallest weight has e^(−xα) = e^(−40) / n. Towards x = 0 the integrand is
    x (F(0) + F'(0) x + …) with F(0) = α_i m_i and F'(0) = −α_i (m_i + M) / 2, M = v(all); with
    α_i ((m_i − M) e^(−x/2) + M e^(−x)) taken off, whose integral is known, it falls as x³, so that
    the rule may begin at 1e-5 and lose less than 1e-15.

    Two checks are made in every call. Σ φ = v(all) tests the integral over q alone: with M = 0 it
    holds at every x. Therefore the game m = 1 is solved beside the others, whose values are 1/n for
    every position, however the weights are; it tests both integrals and every position, but where
    weights are equal: there symmetry makes it 1/n with any nodes, and the proof stands alone.

    Note:
        The limit of a weight that goes to 0 is another game than the weight 0: alone in S, a tiny
        weight is renormalised to 1, and a weight of 0 is not. A position without weight changes
        nothing and gets 0. Adding c to all m adds c/n to each value: subtract a decoder's bias
        first, if v(∅) is to mean the prediction under no attention.

    Args:
        attention: α, weights of 0 or more, `[batch, seq]`, summing to 1 over `content`.
        position_logits: m, `[batch, seq, classes]`, 2 or more classes.
        content: the positions that take part, `[batch, seq]`.

    Returns:
        Everything in float64, on the tensors' device.

    Raises:
        UserError: a weight outside content; and see `attnprobe.exact.checks.checked`.

    >>> attention = torch.tensor([[0.6, 0.3, 0.1]])
    >>> margin = torch.tensor([[2.0, -1.0, 2.0]])  # of class 1 over class 0
    >>> position_logits = torch.stack([torch.zeros_like(margin), margin], -1)
    >>> content = torch.ones(1, 3, dtype=torch.bool)
    >>> shapley = attention_shapley(attention, position_logits, content)
    >>> shapley.values[0, :, 1].round(decimals=3).tolist()
    [1.45, -1.175, 0.825]
    >>> bool(shapley.error.max() < 1e-11)
    True
    """
    attention, position_logits, content = checked(attention, position_logits, content)
    is_outside = (attention > 0) & ~content
    if is_outside.any():
        row, place = is_outside.nonzero()[0].tolist()
        raise UserError(
            f"attention[{row}, {place}] is {attention[row, place].item():.6g} outside content: "
            f"expected 0 there; make content True wherever there is weight"
        )
    if not len(attention):
        nothing = position_logits[:, 0]
        return ShapleyValues(position_logits, nothing, nothing)

    texts_at_once = max(1, CELLS // (len(SHARE_POINTS) * attention.shape[1]))
    weight_parts = attention.split(texts_at_once)
    logit_parts = position_logits.split(texts_at_once)
    parts = [
        _solved(weights, logits) for weights, logits in zip(weight_parts, logit_parts, strict=True)
    ]
    return ShapleyValues(
        values=torch.cat([part.values for part in parts]),
        error=torch.cat([part.error for part in parts]),
        efficiency_gap=torch.cat([part.efficiency_gap for part in parts]),
    )


def _solved(weights: Weights, logits: Logits) -> ShapleyValues:
    """The values of some texts, and their errors."""
    has_weight = (weights > 0)[..., None]
    players = has_weight.sum(1).double()
    equal_share = has_weight / players[:, None]
    # m and m − v(all) differ by a game whose values are known; the smaller one loses fewer digits
    logits = torch.where(has_weight, logits, 0)
    whole = (weights[..., None] * logits).sum(1, keepdim=True)
    centred = torch.where(has_weight, logits - whole, 0)
    spread = centred.abs().amax(1)

    log_steps = _log_steps(weights)
    solutions = _integrated(weights, torch.cat([centred, has_weight.double()], -1), log_steps)
    values = solutions[..., :-1] + equal_share * whole

    gap = (values.sum(1) - whole[:, 0]).abs()
    constant_gap = (solutions[..., -1:] - equal_share).abs().amax(1)
    observed_error = torch.maximum(gap / players, constant_gap * spread)

    nodes = len(log_steps) * len(SHARE_POINTS)
    proved_error = (_quadrature_error() + 2 * EPSILON * (players + nodes)) * spread
    proved_error += 2 * EPSILON * logits.abs().amax(1)
    return ShapleyValues(values, torch.maximum(proved_error, observed_error), gap)


def _quadrature_error() -> float:
    """Proved error of both rules, as a share of the largest |m_t − v(all)|."""
    return REMAINDERS + 16 * math.pi / STEP * math.exp(1 - math.pi**2 / STEP)


def _log_steps(weights: Weights) -> Float[Tensor, "steps"]:
    """The nodes of log x: from where every e^(−xα) is 1 to where the last one has vanished."""
    smallest = torch.where(weights > 0, weights, 1).amin().log().item()
    last = math.log(DECAY + math.log(weights.shape[1])) - smallest
    count = math.ceil((last - FIRST) / STEP) + 1
    steps = torch.arange(count, dtype=weights.dtype, device=weights.device)
    return FIRST + STEP * steps


def _integrated(
    weights: Weights, games: Float[Tensor, "batch seq games"], log_steps: Float[Tensor, "steps"]
) -> Float[Tensor, "batch seq games"]:
    """The double integral, for every position and game."""
    gain_factor = torch.zeros_like(weights)
    deduction = torch.zeros_like(games)
    for exponents in _exponents(weights, log_steps):
        gain_factor_part, deduction_part = _over_shares(exponents, games)
        gain_factor += gain_factor_part
        deduction += deduction_part
    values = gain_factor[..., None] * games - deduction

    # what the trapezoid rule was spared: the integral of the first two terms at x = 0, less what
    # the rule makes of it
    x = log_steps[log_steps < math.log(LARGEST)].exp()
    missing_half = 2 - STEP * (x * (-x / 2).exp()).sum()
    missing_whole = 1 - STEP * (x * (-x).exp()).sum()
    mean = (weights[..., None] * games).sum(1, keepdim=True)
    values += weights[..., None] * ((games - mean) * missing_half + mean * missing_whole)
    return values


def _exponents(
    weights: Weights, log_steps: Float[Tensor, "steps"]
) -> Iterator[Float[Tensor, "batch some seq"]]:
    """x α_j at the nodes of x that matter, some at a time.

    Of the logarithms, so that neither a weight of 1e-300 nor its x leaves the range of float64.
    """
    log_weights = weights.log().unsqueeze(1)
    steps_at_once = max(1, CELLS // (len(SHARE_POINTS) * weights.numel()))
    for steps in log_steps.split(steps_at_once):
        exponents = (log_weights + steps[:, None]).exp().clamp(max=LARGEST)
        size = (exponents * (-exponents).exp()).sum(-1)
        matters = (size > NEGLIGIBLE).any(0)
        if matters.any():
            yield exponents[:, matters]


def _over_shares(
    exponents: Float[Tensor, "batch some seq"], games: Float[Tensor, "batch seq games"]
) -> tuple[Weights, Float[Tensor, "batch seq games"]]:
    """The integral over q at some nodes of x, times dx.

    Returns:
        The gain factor, which a position's own m_i is multiplied by, ∫ P α_i e_i / g_i²; and the
        deduction, what all positions together take off, ∫ P (1 − e_i) R / g_i.
    """
    gone = -(-exponents).expm1()  # 1 − e_j
    density = exponents * (-exponents).exp()  # x α_j e_j
    end = (DECAY / gone.sum(-1, keepdim=True)).clamp(max=1)
    share = (end * SHARE_POINTS.to(end.device)).flatten(1)[..., None]  # q
    node_weight = (STEP * end * SHARE_WEIGHTS.to(end.device)).flatten(1)[..., None]

    gone = gone.repeat_interleave(len(SHARE_POINTS), 1)
    density = density.repeat_interleave(len(SHARE_POINTS), 1)
    factors = 1 - share * gone  # g_j
    product = node_weight * factors.prod(-1, keepdim=True)
    density /= factors
    gone /= factors
    rate = share * (density @ games)  # x R
    gain_factor = (product * density / factors).sum(1)
    deduction = gone.mT @ (product * rate)
    return gain_factor, deduction
