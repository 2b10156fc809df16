"""Jain & Wallace's gradient search for an attention that is far away and predicts the same (2019, section 4.2.2)."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.batch import Task
from attnprobe.measures import jensen_shannon
from attnprobe.readout import Readout

FLOOR = 1e-18
"""Weights count as at least this in logarithms. The gradient of a logit has the weight as a factor, so what it changes is
far below the 1e-8 that Adam adds to its denominator."""
OUTSIDE = -1e4
"""Logit of a position outside content: its weight is exactly 0, and 0 times it is 0, as it would not be with −∞."""


@dataclass(frozen=True)
class Found:
    """What the search ended with, per example.

    Attributes:
        attention: the farthest feasible end point, the original where no restart is feasible.
        jsd: its Jensen-Shannon divergence from the original in nats, 0 to ln 2.
        tvd: total variation distance of its prediction, 0 to ε.
        feasible: share of the restarts that ended with TVD ≤ ε.
    """

    attention: Float[Tensor, "batch seq"]
    jsd: Float[Tensor, "batch"]
    tvd: Float[Tensor, "batch"]
    feasible: Float[Tensor, "batch"]


@torch.no_grad()
def search_adversary(
    readout: Readout,
    start: Float[Tensor, "restarts batch seq"],
    *,
    epsilon: float,
    steps: int = 500,
    learning_rate: float = 0.01,
    penalty: float = 500.0,
    diversity: float = 1.0,
) -> Found:
    """Adam (amsgrad) on the attention's logits, all examples and restarts at once.

    The restarts r of an example together minimise

        Σ_r −JSD(a_r, α) + penalty · max(0, TVD(ŷ(a_r), ŷ) − ε) − diversity · mean over restarts q, s of JSD(a_q, a_s)

    and its last iterate counts. Adam works coordinate by coordinate and examples share no coordinate, so the result of an
    example does not depend on the batch that it is in.

    Args:
        readout: the frozen map from attention to prediction.
        start: initial logits; the paper's are a constant plus 3 · N(0, 1).
        epsilon: the largest TVD (0 to 1) that counts as the same prediction.

    Note:
        The gradient is written out and computed in place instead of built by autograd in every step: the same search at a
        fraction of the time. The published code returns every restart and leaves the choice to its plots, which filter
        at 0.05 whatever ε was optimised; here ε is one number.
    """
    by_example = start.transpose(0, 1)  # an example's restarts lie together: they share the example's position logits
    variable = by_example.masked_fill(~readout.content.unsqueeze(1), OUTSIDE).contiguous()
    objective = Objective(readout, variable, diversity, penalty, excess_gradient(readout, epsilon))
    variable.grad = objective.gradient
    optimizer = torch.optim.Adam([variable], lr=learning_rate, amsgrad=True, fused=True)
    for _ in range(steps):
        objective.differentiate(variable)
        optimizer.step()
    return best_of(readout, softmax_(variable, torch.empty_like(variable)).transpose(0, 1), epsilon)


def best_of(readout: Readout, attention: Float[Tensor, "restarts batch seq"], epsilon: float) -> Found:
    """The farthest of each example's end points that predicts the same."""
    tvd = readout.distance(readout.predict(attention), readout.prediction())
    jsd = jensen_shannon(attention, readout.attention)
    feasible = tvd <= epsilon
    score, best = jsd.masked_fill(~feasible, -1.0).max(0)
    none = score < 0
    rows = torch.arange(attention.shape[1], device=attention.device)
    zero = torch.zeros_like(score)
    return Found(
        attention=torch.where(none.unsqueeze(-1), readout.attention, attention[best, rows]),
        jsd=torch.where(none, zero, jsd[best, rows]),
        tvd=torch.where(none, zero, tvd[best, rows]),
        feasible=feasible.double().mean(0),
    )


def softmax_(logits: Tensor, out: Tensor) -> Tensor:
    """Softmax over the last axis into `out`: on a CPU a third of the time of PyTorch's own for rows as short as texts."""
    torch.sub(logits, logits.amax(-1, keepdim=True), out=out).exp_()
    return out.div_(out.sum(-1, keepdim=True))


class Objective:
    """The gradient of the search's objective with respect to the logits, computed in place.

    With u the gradient with respect to the weights a_r, that of the logits is a_r · (u − Σ a_r u): whatever is constant
    over a text's positions cancels. Therefore ln a_r is as good as the logits themselves, and with R restarts

        u = −½ ln(2a_r / (a_r + α)) − w Σ_s ln(2a_r / (a_r + a_s)) + penalty · excess
          = −(½ + w(R − 1)) logits + ½ ln(a_r + α) + w ln Π_s (a_r + a_s) + penalty · excess + constant

    where w = diversity / R²: the mean runs over all ordered pairs, as published, which doubles d JSD(p, q)/dp =
    ½ ln(2p / (p + q)). Products of as many sums as cannot underflow share one logarithm.
    """

    def __init__(
        self,
        readout: Readout,
        like: Float[Tensor, "batch restarts seq"],
        diversity: float,
        penalty: float,
        excess: Callable[[Tensor], Tensor],
    ) -> None:
        batch, restarts, seq = like.shape
        self.original = readout.attention.unsqueeze(1)
        self.restarts = restarts
        self.diversity = diversity / restarts**2
        self.penalty = penalty
        self.excess = excess
        self.gradient = torch.zeros_like(like)
        self.attention = torch.empty_like(like)
        self.ring = like.new_empty(batch, 2 * restarts, seq)  # the restarts twice: every rotation is a view of it
        self.sums = torch.empty_like(like)
        self.product = torch.empty_like(like)
        self.factors = int(math.log(torch.finfo(like.dtype).tiny) / math.log(FLOOR))

    def differentiate(self, logits: Float[Tensor, "batch restarts seq"]) -> None:
        """Write the gradient at these logits into `gradient`."""
        attention = softmax_(logits, self.attention)
        floored = torch.clamp_min(attention, FLOOR, out=self.ring[:, : self.restarts])
        torch.mul(logits, -0.5 - self.diversity * (self.restarts - 1), out=self.gradient)
        self.gradient.add_(torch.add(floored, self.original, out=self.sums).log_(), alpha=0.5)
        self._apart(floored)
        self.gradient.add_(self.excess(attention), alpha=self.penalty)
        of_mean = torch.mul(attention, self.gradient, out=self.sums).sum(-1, keepdim=True)
        torch.addcmul(self.sums, attention, of_mean, value=-1, out=self.gradient)

    def _apart(self, floored: Tensor) -> None:
        """Add w Σ_s ln(a_r + a_s) over the other restarts s."""
        restarts = self.restarts
        self.ring[:, restarts:] = floored
        for first in range(1, restarts, self.factors):
            last = min(first + self.factors, restarts)
            torch.add(floored, self.ring[:, first : first + restarts], out=self.product)
            for turn in range(first + 1, last):
                self.product.mul_(torch.add(floored, self.ring[:, turn : turn + restarts], out=self.sums))
            self.gradient.add_(self.product.log_(), alpha=self.diversity)


def excess_gradient(
    readout: Readout, epsilon: float
) -> Callable[[Float[Tensor, "batch restarts seq"]], Float[Tensor, "batch restarts seq"]]:
    """The gradient of max(0, TVD(ŷ(a), ŷ) − ε) with respect to a, as a function of a; up to a constant over the positions
    of a text, which changes nothing on the simplex."""
    original = readout.prediction()
    logits = readout.position_logits
    if logits is None or readout.task is not Task.SINGLE_LABEL:
        return lambda attention: by_autograd(readout, attention, original, epsilon)
    if logits.shape[-1] == 2:
        # two classes: p₁ is the logistic function of one number, d · a, and TVD is |p₁ − ŷ₁|
        apart, before = (logits[..., 1] - logits[..., 0]).unsqueeze(1), original[:, None, 1:]

        def of_two(attention: Tensor) -> Tensor:
            p = (attention * apart).sum(-1, keepdim=True).sigmoid_()
            difference = p - before
            slope = p * (1 - p) * difference.sign() * (difference.abs() > epsilon)
            return slope * apart

        return of_two
    turned, expected = logits.transpose(1, 2).contiguous(), original.unsqueeze(1)

    def of_more(attention: Tensor) -> Tensor:
        p = torch.bmm(attention, logits).softmax(-1)
        difference = p - expected
        active = 0.5 * difference.abs().sum(-1, keepdim=True) > epsilon
        signed = 0.5 * p * difference.sign_() * active
        return torch.bmm(signed - p * signed.sum(-1, keepdim=True), turned)

    return of_more


def by_autograd(
    readout: Readout,
    attention: Float[Tensor, "batch restarts seq"],
    original: Float[Tensor, "batch classes"],
    epsilon: float,
) -> Float[Tensor, "batch restarts seq"]:
    """The gradient through any decoder and task."""
    with torch.enable_grad():
        free = attention.detach().requires_grad_()
        excess = (readout.distance(readout.predict(free.transpose(0, 1)), original) - epsilon).relu()
        return torch.autograd.grad(excess.sum(), free)[0]
