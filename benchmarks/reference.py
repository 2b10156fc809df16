"""Probes with the loop structure of the published code, on this project's own classes.

The yardstick for the tests' numbers (for speed: `benchmarks.released`).

Written again from the papers' description: what they do per step is kept (autograd, hidden states
in every step, batches of 32, one permutation at a time), nothing is made slower than it was.
"""

from copy import deepcopy
from dataclasses import replace

import torch
from torch import Tensor

from attnprobe.core.batch import Batch
from attnprobe.models.classifier import AttentionClassifier
from attnprobe.models.decoders import Decoder
from attnprobe.models.encoders import Encoder, LSTMEncoder


def divergence(p: Tensor, q: Tensor) -> Tensor:
    """Jensen-Shannon divergence over the last axis, in nats.

    As the formula stands, with a small constant against log 0.
    """
    mean = 0.5 * (p + q)
    tiny = 1e-10
    from_p = (p * ((p + tiny).log() - (mean + tiny).log())).sum(-1)
    from_q = (q * ((q + tiny).log() - (mean + tiny).log())).sum(-1)
    return 0.5 * (from_p + from_q)


def output(
    classifier: AttentionClassifier, attention: Tensor, hidden: Tensor, query: Tensor | None = None
) -> Tensor:
    """Probabilities from hidden states `[…, seq, hidden]` under attention `[…, seq]`."""
    attended = (attention.unsqueeze(-1) * hidden).sum(-2)
    return classifier.decoder(attended, query).softmax(-1)


def permutation(
    classifier: AttentionClassifier,
    hidden: Tensor,
    content: Tensor,
    samples: int = 100,
    query: Tensor | None = None,
) -> Tensor:
    """Median TVD per example over random permutations.

    As published, each permutation runs the decoder again, which there includes the attention's
    scores, and draws the order of one example at a time.
    """
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
            prediction = output(classifier, permuted, hidden, query)
            differences.append(0.5 * (prediction - original).abs().sum(-1))
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
        candidate = logits.masked_fill(~content.unsqueeze(1), -torch.inf).softmax(-1)
        prediction = output(classifier, candidate, hidden.unsqueeze(1))
        return candidate, 0.5 * (prediction - original.unsqueeze(1)).abs().sum(-1)

    for _ in range(steps):
        candidate, distance = state()
        away = divergence(candidate, attention.unsqueeze(1))
        spread = divergence(candidate.unsqueeze(1), candidate.unsqueeze(2))
        loss = (-away + 500 * (distance - epsilon).relu()).sum() - spread.sum() / restarts**2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return state()


def packed(classifier: AttentionClassifier) -> AttentionClassifier:
    """The same classifier with its LSTM as published.

    That is one bidirectional LSTM over packed sequences.
    """
    encoder = classifier.encoder
    assert isinstance(encoder, LSTMEncoder)
    size = encoder.forwards.hidden_size
    network = torch.nn.LSTM(encoder.forwards.input_size, size, batch_first=True, bidirectional=True)
    backwards = encoder.backwards.state_dict()
    reverse = {f"{name}_reverse": weight for name, weight in backwards.items()}
    network.load_state_dict(encoder.forwards.state_dict() | reverse)
    copied = deepcopy(classifier)
    dtype = encoder.forwards.weight_hh_l0.dtype
    copied.encoder = PackedLSTM(network.to(dtype), encoder.size)
    return copied.eval()


class PackedLSTM(Encoder):
    """An encoder that packs its sequences."""

    contextual = True

    def __init__(self, rnn: torch.nn.LSTM, size: int) -> None:
        super().__init__()
        self.rnn = rnn
        self.size = size

    def forward(self, embeddings: Tensor, mask: Tensor, content: Tensor) -> Tensor:
        """States of both directions, zero on padding."""
        lengths = mask.sum(1).cpu()
        text = torch.nn.utils.rnn.pack_padded_sequence(
            embeddings, lengths, batch_first=True, enforce_sorted=False
        )
        states, _ = self.rnn(text)
        return torch.nn.utils.rnn.pad_packed_sequence(
            states, batch_first=True, total_length=mask.shape[1]
        )[0]


def leave_one_out(classifier: AttentionClassifier, batch: Batch) -> Tensor:
    """TVD per position `[batch, seq]` between the predictions without it and with it.

    0 outside content.

    As published: one column after the other is dropped from the whole batch, and every shortened
    batch is embedded, encoded, attended to and decoded again. Nothing is recorded for a backward
    pass: the released code has frozen the weights by then, for the adversary that comes before.
    """
    with torch.no_grad():
        original = classifier(batch).logits.softmax(-1)
        difference = torch.zeros(batch.ids.shape, dtype=original.dtype)
        for column in batch.content.any(0).nonzero().squeeze(-1).tolist():
            keep = [number for number in range(batch.ids.shape[1]) if number != column]
            shorter = replace(
                batch,
                ids=batch.ids[:, keep],
                mask=batch.mask[:, keep],
                content=batch.content[:, keep],
            )
            moved = 0.5 * (classifier(shorter).logits.softmax(-1) - original).abs().sum(-1)
            difference[:, column] = torch.where(batch.content[:, column], moved, 0)
    return difference


def erase_singly(
    decoder: Decoder, hidden: Tensor, attention: Tensor, content: Tensor
) -> tuple[Tensor, Tensor]:
    """Erase each content position of one text `[seq, hidden]`, `[seq]` in turn.

    As published, one erasure is one call: zero the weight, renormalise, sum the states again,
    decode, compare.

    Returns:
        Jensen-Shannon divergence and whether the decision changed, NaN where nothing was erased or
        is left.
    """
    with torch.no_grad():
        original = decoder((attention.unsqueeze(-1) * hidden).sum(0)).softmax(-1)
        divergences = torch.full_like(attention, torch.nan)
        flips = torch.full_like(attention, torch.nan)
        for position in content.nonzero().squeeze(-1).tolist():
            weights = attention.clone()
            weights[position] = 0
            total = weights.sum()
            if total > 0:
                changed = decoder(((weights / total).unsqueeze(-1) * hidden).sum(0)).softmax(-1)
                divergences[position] = divergence(original, changed)
                flips[position] = float(changed.argmax() != original.argmax())
        return divergences, flips


def erase_until_flip(decoder: Decoder, hidden: Tensor, attention: Tensor, order: list[int]) -> int:
    """How many positions of one text are erased in this order until the decision changes.

    One call each; −1 if it never does.
    """
    with torch.no_grad():
        original = decoder((attention.unsqueeze(-1) * hidden).sum(0)).argmax()
        weights = attention.clone()
        for count, position in enumerate(order[:-1], start=1):
            weights[position] = 0
            total = weights.sum()
            if total <= 0:
                return -1
            if decoder(((weights / total).unsqueeze(-1) * hidden).sum(0)).argmax() != original:
                return count
        return -1
