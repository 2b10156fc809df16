"""Jain & Wallace's gradient search for an attention that is far away and predicts the same (2019, section 4.2.2)."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import hardshrink
from torch.optim.adam import adam

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
    variable = start.masked_fill(~readout.content, OUTSIDE).contiguous()
    objective = Objective(readout, variable, diversity, excess_adder(readout, epsilon, penalty))
    step = adam_stepper(variable, objective.gradient, learning_rate)
    for _ in range(steps):
        objective.differentiate(variable)
        step()
    return best_of(readout, softmax_(variable, torch.empty_like(variable)), epsilon)


def adam_stepper(variable: Tensor, gradient: Tensor, learning_rate: float) -> Callable[[], None]:
    """One step of PyTorch's Adam (amsgrad) per call, without the hooks of an optimizer object: a tenth of a step."""
    mean, square, largest = (torch.zeros_like(variable) for _ in range(3))
    taken = torch.zeros((), device=variable.device)

    def step() -> None:
        adam(
            [variable], [gradient], [mean], [square], [largest], [taken], fused=True, amsgrad=True,
            beta1=0.9, beta2=0.999, lr=learning_rate, weight_decay=0.0, eps=1e-8, maximize=False,
        )  # fmt: skip

    return step


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
        like: Float[Tensor, "restarts batch seq"],
        diversity: float,
        excess: Callable[[Tensor, Tensor], object],
    ) -> None:
        restarts = len(like)
        self.original = readout.attention
        self.restarts = restarts
        self.diversity = diversity / restarts**2
        self.excess = excess
        self.gradient = torch.zeros_like(like)
        self.attention = torch.empty_like(like)
        self.ring = like.new_empty(2 * restarts, *like.shape[1:])  # the restarts twice: every rotation is a view
        self.sums = torch.empty_like(like)
        self.product = torch.empty_like(like)
        self.factors = int(math.log(torch.finfo(like.dtype).tiny) / math.log(FLOOR))

    def differentiate(self, logits: Float[Tensor, "restarts batch seq"]) -> None:
        """Write the gradient at these logits into `gradient`."""
        attention = softmax_(logits, self.attention)
        floored = torch.clamp_min(attention, FLOOR, out=self.ring[: self.restarts])
        torch.mul(logits, -0.5 - self.diversity * (self.restarts - 1), out=self.gradient)
        self.gradient.add_(torch.add(floored, self.original, out=self.sums).log_(), alpha=0.5)
        self._apart(floored)
        self.excess(attention, self.gradient)
        of_mean = torch.mul(attention, self.gradient, out=self.sums).sum(-1, keepdim=True)
        torch.addcmul(self.sums, attention, of_mean, value=-1, out=self.gradient)

    def _apart(self, floored: Tensor) -> None:
        """Add w Σ_s ln(a_r + a_s) over the other restarts s."""
        restarts = self.restarts
        self.ring[restarts:] = floored
        for first in range(1, restarts, self.factors):
            last = min(first + self.factors, restarts)
            torch.add(floored, self.ring[first : first + restarts], out=self.product)
            for turn in range(first + 1, last):
                self.product.mul_(torch.add(floored, self.ring[turn : turn + restarts], out=self.sums))
            self.gradient.add_(self.product.log_(), alpha=self.diversity)


def excess_adder(
    readout: Readout, epsilon: float, penalty: float
) -> Callable[[Float[Tensor, "restarts batch seq"], Float[Tensor, "restarts batch seq"]], object]:
    """What adds, to a gradient given second, that of penalty · max(0, TVD(ŷ(a), ŷ) − ε) with respect to the weights a given
    first; up to a constant over the positions of a text, which changes nothing on the simplex."""
    original = readout.prediction()
    logits = readout.position_logits
    if logits is None or readout.task is not Task.SINGLE_LABEL:
        return lambda weights, gradient: gradient.add_(by_autograd(readout, weights, original, epsilon), alpha=penalty)
    if logits.shape[-1] == 2:
        # two classes: p₁ is the logistic function of one number, d · a, and TVD is |p₁ − ŷ₁|
        apart, before = logits[..., 1] - logits[..., 0], original[:, 1:]

        def add_of_two(weights: Tensor, gradient: Tensor) -> None:
            p = (weights * apart).sum(-1, keepdim=True).sigmoid_()
            slope = torch.addcmul(p, p, p, value=-1)  # p(1 − p)
            slope.mul_(hardshrink(p.sub_(before), epsilon).sign_())  # 0 within ε
            gradient.addcmul_(slope, apart, value=penalty)

        return add_of_two
    transposed, expected = logits.transpose(1, 2).contiguous(), original.unsqueeze(1)

    def add_of_more(weights: Tensor, gradient: Tensor) -> None:
        p = torch.bmm(weights.transpose(0, 1), logits).softmax(-1)
        difference = p - expected
        active = difference.abs().sum(-1, keepdim=True) > 2 * epsilon
        signed = p * difference.sign_() * active
        of_logits = torch.addcmul(signed, p, signed.sum(-1, keepdim=True), value=-1)
        gradient.add_(torch.bmm(of_logits, transposed).transpose(0, 1), alpha=0.5 * penalty)

    return add_of_more


def by_autograd(
    readout: Readout,
    attention: Float[Tensor, "restarts batch seq"],
    original: Float[Tensor, "batch classes"],
    epsilon: float,
) -> Float[Tensor, "restarts batch seq"]:
    """The gradient through any decoder and task."""
    with torch.enable_grad():
        free = attention.detach().requires_grad_()
        excess = (readout.distance(readout.predict(free), original) - epsilon).relu()
        return torch.autograd.grad(excess.sum(), free)[0]
