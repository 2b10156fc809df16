"""Distances between two distributions, and how evenly one is spread."""

import math
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnprobe.measures.rows import same_shape

LN2 = math.log(2)
"""The largest Jensen-Shannon divergence, in nats: that of two rows with nothing in common."""


class _HalfDivergence(torch.autograd.Function):
    """f(p, q) = ½ [p ln(2p/(p+q)) + q ln(2q/(p+q))] per entry: the summands of the Jensen-Shannon divergence.

    With m = (p+q)/2 and d = (p−q)/(p+q), f = m/2 · [2d·artanh(d) + ln(1−d²)]: no cancellation, so that tiny
    divergences keep their relative precision and are never negative, as they are in float32 by the textbook's form.
    ∂f/∂p = ½ ln(2p/(p+q)). Where p = 0 the gradient by p is −∞ (q > 0) or undefined (q = 0); it is given as 0.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(p: Tensor, q: Tensor) -> Tensor:
        total = p + q
        d = (p - q) / torch.where(total > 0, total, 1)
        inside = d.abs() < 1
        d = torch.where(inside, d, 0)
        return total / 4 * torch.where(inside, 2 * d * torch.atanh(d) + torch.log1p(-d * d), 2 * LN2)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        p, q = ctx.saved_tensors
        total = torch.where(p + q > 0, p + q, 1)
        # guarded before the division: an excluded branch that is infinite would make the next derivative NaN
        ratio_p, ratio_q = torch.where(p > 0, 2 * p / total, 1), torch.where(q > 0, 2 * q / total, 1)
        return grad * ratio_p.log() / 2, grad * ratio_q.log() / 2


def jensen_shannon(
    p: Float[Tensor, "*#batch seq"], q: Float[Tensor, "*#batch seq"], mask: Bool[Tensor, "*#batch seq"] | None = None
) -> Float[Tensor, "*any"]:
    """Jensen-Shannon divergence of two distributions in nats, 0 (equal) to ln 2 (nothing in common).

    Differentiable, also where entries are 0 in both rows (padding), where the gradient is 0.

    >>> jensen_shannon(torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.5, 0.5, 0.0]))
    tensor(0.)
    """
    p, q = same_shape(p, q)
    if mask is not None:
        p, q = torch.where(mask, p, 0), torch.where(mask, q, 0)
    # rows that sum to 1 only up to rounding would exceed the bound by the last digit
    return _HalfDivergence.apply(p, q).sum(-1).clamp(max=LN2)


def kullback_leibler(
    p: Float[Tensor, "*#batch seq"], q: Float[Tensor, "*#batch seq"], mask: Bool[Tensor, "*#batch seq"] | None = None
) -> Float[Tensor, "*any"]:
    """Kullback-Leibler divergence KL(p ‖ q) = Σ p ln(p/q) in nats, 0 (equal) upwards.

    Entries of q below the smallest normal number of its type count as that number, so that a weight that underflowed to
    0 gives a large divergence (each such entry at most p · 88 in float32) and not an infinite one. Entries where p is 0
    add nothing, and their gradient is given as 0.

    >>> kullback_leibler(torch.tensor([0.5, 0.5]), torch.tensor([0.25, 0.75]))
    tensor(0.1438)
    """
    p, q = same_shape(p, q)
    if mask is not None:
        p, q = torch.where(mask, p, 0), torch.where(mask, q, 0)
    there = p > 0
    # guarded before the logarithm: an excluded branch that is infinite would make the gradient NaN
    ratio = torch.where(there, p, 1) / torch.where(there, q.clamp(min=torch.finfo(q.dtype).tiny), 1)
    return torch.where(there, p * ratio.log(), 0).sum(-1)


def total_variation(
    p: Float[Tensor, "*#batch classes"],
    q: Float[Tensor, "*#batch classes"],
    mask: Bool[Tensor, "*#batch classes"] | None = None,
) -> Float[Tensor, "*any"]:
    """Total variation distance of two distributions, 0 to 1: half the L1 distance (for two classes |p − q| of one).

    >>> total_variation(torch.tensor([0.75, 0.25]), torch.tensor([0.5, 0.5]))
    tensor(0.2500)
    """
    p, q = same_shape(p, q)
    difference = (p - q).abs()
    return (difference if mask is None else torch.where(mask, difference, 0)).sum(-1) / 2


def entropy(p: Float[Tensor, "*#batch seq"], mask: Bool[Tensor, "*#batch seq"] | None = None) -> Float[Tensor, "*any"]:
    """Shannon entropy in nats, 0 (one entry has everything) to ln n (uniform over n entries).

    Entries that are 0 add nothing, and their gradient is given as 0.
    """
    if mask is not None:
        p = torch.where(mask, p, 0)
    positive = torch.where(p > 0, p, 1)
    return -(p * positive.log()).sum(-1)


def normalised(
    scores: Float[Tensor, "*#batch seq"], mask: Bool[Tensor, "*#batch seq"] | None = None
) -> Float[Tensor, "*any"]:
    """Non-negative scores scaled to sum to 1 over the mask, 0 outside it; NaN in a row whose scores are all 0."""
    if mask is not None:
        scores = torch.where(mask, scores, 0)
    total = scores.sum(-1, keepdim=True)
    result = torch.where(total > 0, scores / torch.where(total > 0, total, 1), torch.nan)
    return result if mask is None else torch.where(mask, result, 0)
