"""Jain & Wallace's gradient search for an attention that is far away and predicts the same (2019, section 4.2.2)."""

from dataclasses import dataclass
from itertools import combinations

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.batch import Task
from attnprobe.measures import jensen_shannon
from attnprobe.readout import Readout

TINY = 1e-300  # keeps log(0) out of products that are 0 anyway


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
        The gradients of the divergences are written out, d JSD(p, q)/dp = ½ ln(2p/(p+q)), instead of built by autograd
        in every step: the same search at a fraction of the time. The published code returns every restart and leaves
        the choice to its plots, which filter at 0.05 whatever ε was optimised; here ε is one number.
    """
    restarts = len(start)
    pairs = list(combinations(range(restarts), 2))
    left, right = [list(side) for side in zip(*pairs, strict=True)] if pairs else ([], [])
    original = readout.attention
    prediction = readout.prediction()
    weight = diversity / restarts**2  # the mean runs over all ordered pairs, as published

    variable = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([variable], lr=learning_rate, amsgrad=True)
    for _ in range(steps):
        with torch.no_grad():
            attention = softmax_over(variable, readout)
            floor = attention.clamp_min(TINY)
            log_attention = floor.log()
            gradient = -0.5 * (log_attention - (0.5 * (floor + original)).log())
            if pairs:
                log_mean = (0.5 * (floor[left] + floor[right])).log()
                # Σ over ordered pairs doubles each of ½ ln(2a/(a+b)) to ln(2a/(a+b))
                gradient.index_add_(0, index(left, start), weight * (log_mean - log_attention[left]))
                gradient.index_add_(0, index(right, start), weight * (log_mean - log_attention[right]))
        gradient = gradient + penalty * excess_gradient(readout, attention, prediction, epsilon)
        # chain rule through the softmax
        variable.grad = attention * (gradient - (attention * gradient).sum(-1, keepdim=True))
        optimizer.step()

    with torch.no_grad():
        attention = softmax_over(variable, readout)
        tvd = readout.distance(readout.predict(attention), prediction)
        jsd = jensen_shannon(attention, original)
        feasible = tvd <= epsilon
        score, best = jsd.masked_fill(~feasible, -1.0).max(0)
        none = score < 0
        rows = torch.arange(attention.shape[1], device=attention.device)
        zero = torch.zeros_like(score)
        return Found(
            attention=torch.where(none.unsqueeze(-1), original, attention[best, rows]),
            jsd=torch.where(none, zero, jsd[best, rows]),
            tvd=torch.where(none, zero, tvd[best, rows]),
            feasible=feasible.double().mean(0),
        )


def softmax_over(variable: Tensor, readout: Readout) -> Tensor:
    """Logits → attention over the content positions."""
    return variable.masked_fill(~readout.content, -torch.inf).softmax(-1)


def index(numbers: list[int], like: Tensor) -> Tensor:
    """A list of positions as an index tensor on the same device."""
    return torch.tensor(numbers, device=like.device)


def excess_gradient(
    readout: Readout,
    attention: Float[Tensor, "restarts batch seq"],
    prediction: Float[Tensor, "batch classes"],
    epsilon: float,
) -> Float[Tensor, "restarts batch seq"]:
    """Gradient of max(0, TVD(ŷ(a), ŷ) − ε) with respect to a."""
    if readout.position_logits is None or readout.task is not Task.SINGLE_LABEL:
        with torch.enable_grad():
            free = attention.detach().requires_grad_()
            excess = (readout.distance(readout.predict(free), prediction) - epsilon).relu()
            return torch.autograd.grad(excess.sum(), free)[0]
    with torch.no_grad():
        p = readout.predict(attention)
        difference = p - prediction
        active = (0.5 * difference.abs().sum(-1, keepdim=True) > epsilon).to(p.dtype)
        sign = 0.5 * difference.sign() * active
        of_logits = p * (sign - (p * sign).sum(-1, keepdim=True))
        return torch.einsum("rbc,bsc->rbs", of_logits, readout.position_logits)
