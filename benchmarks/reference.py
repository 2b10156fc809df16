"""Probes with the loop structure of the published code, as the yardstick for speed and for the tests' numbers.

Written anew from the papers' description: what they do per step is kept (autograd, hidden states in every step, batches
of 32, one permutation at a time), nothing is made slower than it was.
"""

import torch
from torch import Tensor

from attnprobe.models.classifier import AttentionClassifier


def divergence(p: Tensor, q: Tensor) -> Tensor:
    """Jensen-Shannon divergence over the last axis, as the formula stands, with a small constant against log 0."""
    mean = 0.5 * (p + q)
    tiny = 1e-10
    left = (p * ((p + tiny).log() - (mean + tiny).log())).sum(-1)
    right = (q * ((q + tiny).log() - (mean + tiny).log())).sum(-1)
    return 0.5 * (left + right)


def output(
    classifier: AttentionClassifier, attention: Tensor, hidden: Tensor, query: Tensor | None = None
) -> Tensor:
    """Probabilities from hidden states `[…, seq, hidden]` under attention `[…, seq]`."""
    attended = (attention.unsqueeze(-1) * hidden).sum(-2)
    return classifier.decoder(attended, query).softmax(-1)


def permutation(
    classifier: AttentionClassifier, hidden: Tensor, content: Tensor, samples: int = 100, query: Tensor | None = None
) -> Tensor:
    """Median TVD per example over random permutations. As published, each permutation runs the decoder afresh, which
    there includes the attention's scores, and draws the order of one example at a time."""
    with torch.no_grad():
        _, attention = classifier.attend(hidden, content, query)
        original = output(classifier, attention, hidden, query)
        differences = []
        for _ in range(samples):
            _, attention = classifier.attend(hidden, content, query)
            permuted = attention.clone()
            for row in range(len(attention)):
                places = content[row].nonzero().squeeze(-1)
                permuted[row, places] = attention[row, places[torch.randperm(len(places))]]
            differences.append(0.5 * (output(classifier, permuted, hidden, query) - original).abs().sum(-1))
        return torch.stack(differences).quantile(0.5, dim=0)


def adversary(
    classifier: AttentionClassifier,
    hidden: Tensor,
    attention: Tensor,
    content: Tensor,
    *,
    epsilon: float = 0.01,
    restarts: int = 5,
    steps: int = 500,
    start: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The gradient adversary by autograd through hidden states and decoder in every step.

    Returns:
        attention `[batch, restarts, seq]` of the last iterate and its TVD `[batch, restarts]`.
    """
    original = output(classifier, attention, hidden).detach()
    if start is None:
        start = 3 * torch.randn(len(attention), restarts, attention.shape[1], dtype=attention.dtype)
    logits = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([logits], lr=0.01, amsgrad=True)

    def state() -> tuple[Tensor, Tensor]:
        other = logits.masked_fill(~content.unsqueeze(1), -torch.inf).softmax(-1)
        prediction = output(classifier, other, hidden.unsqueeze(1))
        return other, 0.5 * (prediction - original.unsqueeze(1)).abs().sum(-1)

    for _ in range(steps):
        other, distance = state()
        away = divergence(other, attention.unsqueeze(1))
        apart = divergence(other.unsqueeze(1), other.unsqueeze(2))
        loss = (-away + 500 * (distance - epsilon).relu()).sum() - apart.sum() / restarts**2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return state()
