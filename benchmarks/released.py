"""Jain & Wallace's procedure for classification as its code was released.

What it computes, in which order and precision.

Written again from reading it (`Trainers`, `model/Binary_Classification.py` and `model/modules` of
their repository). float32; batches of 32 texts, padded again from lists of numbers whenever one is
used; one packed bidirectional LSTM; every forward pass recorded for a backward pass, also where
none comes, until the adversary freezes the weights for itself and for leave-one-out, which follows
it. Left out, and not charged: start-up, reading and tokenising, scikit-learn's reports after each
epoch, saving weights and results, figures.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from attnprobe.models.attention import AdditiveAttention
from attnprobe.models.classifier import AttentionClassifier
from attnprobe.models.decoders import LinearDecoder
from attnprobe.models.encoders import LSTMEncoder

BATCH = 32
PERMUTATIONS = 100
RESTARTS = 5
STEPS = 500
EPSILON = 0.01
DRAWS = np.random.default_rng(0)
NOISE = 0.1
"""Texts are sorted by their length, off by up to this share of it."""
Text = list[int]
"""Word numbers, start and end marker included."""


@dataclass(frozen=True)
class Padded:
    """Some texts: ids and True at markers and padding `[batch, tokens]`, lengths `[batch]`."""

    ids: Tensor
    masked: Tensor
    lengths: Tensor

    @classmethod
    def of(cls, texts: Sequence[Text]) -> "Padded":
        """From lists of numbers."""
        width = max(map(len, texts))
        ids = [text + [0] * (width - len(text)) for text in texts]
        masked = [[1] + [0] * (len(text) - 2) + [1] * (width - len(text) + 1) for text in texts]
        lengths = torch.tensor(np.array([len(text) for text in texts]))
        return cls(torch.tensor(np.array(ids)), torch.tensor(np.array(masked)).bool(), lengths)

    def without(self, column: int) -> "Padded":
        """One token of every text dropped, or its padding."""
        ids = torch.cat([self.ids[:, :column], self.ids[:, column + 1 :]], -1)
        masked = torch.cat([self.masked[:, :column], self.masked[:, column + 1 :]], -1)
        return Padded(ids, masked, self.lengths - 1)


class Released(nn.Module):
    """The released model: one logit from the attended state of a bidirectional LSTM."""

    def __init__(self, words: int, embed: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, embed, padding_idx=0)
        self.rnn = nn.LSTM(embed, hidden, batch_first=True, bidirectional=True)
        self.inner = nn.Linear(2 * hidden, hidden)
        self.score = nn.Linear(hidden, 1, bias=False)
        self.output = nn.Linear(2 * hidden, 1)

    @classmethod
    def of(cls, classifier: AttentionClassifier) -> "Released":
        """With the weights of one of ours, in float32.

        Raises:
            TypeError: it is not the model that was released.
        """
        encoder = classifier.encoder
        attention = classifier.attention
        decoder = classifier.decoder
        if not (isinstance(encoder, LSTMEncoder) and isinstance(attention, AdditiveAttention)):
            raise TypeError(
                "the released code is timed with an LSTM and additive attention: train model=lstm"
            )
        if not (isinstance(decoder, LinearDecoder) and decoder.single_logit):
            raise TypeError("the released code knows two classes only: take data of two classes")
        model = cls(*classifier.embedding.weight.shape, encoder.forwards.hidden_size)
        backwards = encoder.backwards.state_dict()
        reverse = {f"{name}_reverse": weight for name, weight in backwards.items()}
        model.embedding.load_state_dict(classifier.embedding.state_dict())
        model.rnn.load_state_dict(encoder.forwards.state_dict() | reverse)
        model.inner.load_state_dict(attention.states.state_dict())
        model.score.load_state_dict(attention.score.state_dict())
        model.output.load_state_dict(decoder.output.state_dict())
        return model

    def encoded(self, batch: Padded) -> tuple[Tensor, Tensor]:
        """Word vectors and hidden states `[batch, tokens, …]`."""
        vectors = self.embedding(batch.ids)
        packed = pack_padded_sequence(
            vectors, batch.lengths, batch_first=True, enforce_sorted=False
        )
        hidden, _ = pad_packed_sequence(
            self.rnn(packed)[0], batch_first=True, total_length=batch.ids.shape[1]
        )
        return vectors, hidden

    def attended(self, batch: Padded, hidden: Tensor) -> Tensor:
        """The attention `[batch, tokens]`."""
        scores = self.score(self.inner(hidden).tanh()).squeeze(-1)
        return scores.masked_fill(batch.masked, -torch.inf).softmax(-1)

    def decoded(self, attention: Tensor, hidden: Tensor) -> Tensor:
        """One logit `[…, 1]` of the states `[…, tokens, hidden]` under an attention."""
        return self.output((attention.unsqueeze(-1) * hidden).sum(-2))

    def forward(self, batch: Padded) -> Tensor:
        """One logit `[batch, 1]`."""
        hidden = self.encoded(batch)[1]
        return self.decoded(self.attended(batch, hidden), hidden)


def batches(texts: Sequence[Text]) -> Iterator[list[Text]]:
    """32 texts at a time."""
    for start in range(0, len(texts), BATCH):
        yield list(texts[start : start + BATCH])


def train(
    model: Released,
    texts: Sequence[Text],
    labels: Sequence[int],
    development: Sequence[Text],
    epochs: int,
) -> None:
    """Train as released.

    Batches of similar length in random order, summed loss, three Adams (encoder, attention without
    weight decay, decoder), and after every epoch the development texts.
    """
    model.requires_grad_()
    encoder = [*model.embedding.parameters(), *model.rnn.parameters()]
    attention = [*model.inner.parameters(), *model.score.parameters()]
    optimizers = [
        torch.optim.Adam(parameters, lr=1e-3, weight_decay=decay, amsgrad=True)
        for parameters, decay in (
            (encoder, 1e-5),
            (attention, 0),
            (model.output.parameters(), 1e-5),
        )
    ]
    weight = torch.tensor([len(labels) / max(sum(labels), 1) - 1])
    for _ in range(epochs):
        noisy_lengths = []
        for length in map(len, texts):
            low = int(np.floor(-length * NOISE))
            high = int(np.ceil(length * NOISE))
            noisy_lengths.append(length + DRAWS.integers(low, high))
        order = np.argsort(noisy_lengths)
        for start in DRAWS.permutation(np.arange(0, len(order), BATCH)):
            rows = order[start : start + BATCH]
            target = torch.tensor([float(labels[row]) for row in rows]).unsqueeze(-1)
            logits = model(Padded.of([texts[row] for row in rows]))
            loss = nn.functional.binary_cross_entropy_with_logits(logits, target, reduction="none")
            loss = (loss * (target * weight + (1 - target))).mean(1).sum()
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            loss.item()
        predict(model, development)


def predict(model: Released, texts: Sequence[Text]) -> np.ndarray:
    """Probabilities `[texts, 1]`, and the attention on the way."""
    probabilities = []
    for part in batches(texts):
        batch = Padded.of(part)
        hidden = model.encoded(batch)[1]
        attention = model.attended(batch, hidden)
        probabilities.append(model.decoded(attention, hidden).sigmoid().detach().numpy())
        attention.detach().numpy()
    return np.concatenate(probabilities)


def gradients(model: Released, texts: Sequence[Text]) -> list[np.ndarray]:
    """Three kinds `[3, batch, tokens]` of each batch, the attention held fixed.

    Word vector times gradient, the sum of all word vectors times gradient, sum of the state's
    gradient. The backward pass goes on to all weights.
    """
    model.requires_grad_()
    results = []
    for part in batches(texts):
        batch = Padded.of(part)
        vectors, hidden = model.encoded(batch)
        for leaf in (vectors, hidden):
            leaf.retain_grad()
        model.decoded(model.attended(batch, hidden).detach(), hidden).sigmoid().sum().backward()
        assert vectors.grad is not None
        assert hidden.grad is not None
        kinds = (vectors.grad * vectors, vectors.grad * model.embedding.weight.sum(0), hidden.grad)
        results.append(np.stack([kind.sum(-1).detach().numpy() for kind in kinds]))
    return results


def permutations(model: Released, texts: Sequence[Text]) -> list[np.ndarray]:
    """Probabilities `[batch, 100]` under permuted attention.

    Scores and attention again for each, and the order drawn text by text.
    """
    model.requires_grad_()
    results = []
    for part in batches(texts):
        batch = Padded.of(part)
        hidden = model.encoded(batch)[1]
        outputs = np.zeros((len(part), PERMUTATIONS))
        for number in range(PERMUTATIONS):
            order = np.tile(np.arange(batch.ids.shape[1]), (len(part), 1))
            for row, length in enumerate(batch.lengths.tolist()):
                order[row, 1 : length - 1] = DRAWS.permutation(length - 2) + 1
            attention = model.attended(batch, hidden).gather(-1, torch.from_numpy(order))
            outputs[:, number] = model.decoded(attention, hidden).sigmoid().detach().numpy()[:, 0]
        results.append(outputs)
    return results


def adversary(model: Released, texts: Sequence[Text]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Attentions `[batch, 5, tokens]` after 500 steps, and their probabilities `[batch, 5, 1]`.

    By Adam.
    """
    model.requires_grad_(False)
    results = []
    for part in batches(texts):
        batch = Padded.of(part)
        hidden = model.encoded(batch)[1]
        attention = model.attended(batch, hidden)
        probability = model.decoded(attention, hidden).sigmoid()
        states = hidden.unsqueeze(1)
        start = -batch.lengths.log()[:, None, None].expand(-1, RESTARTS, batch.ids.shape[1])
        logits = (start + 3 * torch.randn(start.shape)).requires_grad_()

        def candidate(logits: Tensor = logits, batch: Padded = batch) -> Tensor:
            return logits.masked_fill(batch.masked.unsqueeze(1), -torch.inf).softmax(-1)

        optimizer = torch.optim.Adam([logits], lr=0.01, amsgrad=True)
        for _ in range(STEPS):
            weights = candidate()
            change = model.decoded(weights, states).sigmoid() - probability.unsqueeze(1)
            loss = objective(weights, attention, change.abs().sum(-1, keepdim=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            weights = candidate()
            final = model.decoded(weights, states).sigmoid()
            results.append((weights.numpy(), final.numpy()))
    return results


def objective(weights: Tensor, attention: Tensor, moved: Tensor) -> Tensor:
    """What the adversary minimises: near the prediction, far from the attention and each other."""
    away = divergence(weights, attention.unsqueeze(1))
    spread = divergence(weights.unsqueeze(1), weights.unsqueeze(2))
    return (500 * (moved - EPSILON).relu() - away).sum() - spread.sum(0).mean()


def divergence(p: Tensor, q: Tensor) -> Tensor:
    """Jensen-Shannon divergence `[…, 1]` over the last axis, a small constant against log 0."""
    mean = 0.5 * (p + q)
    from_p = p.clamp(0, 1) * ((p + 1e-10).log() - (mean + 1e-10).log())
    from_q = q.clamp(0, 1) * ((q + 1e-10).log() - (mean + 1e-10).log())
    return (0.5 * (from_p.sum(-1) + from_q.sum(-1))).unsqueeze(-1)


def leave_one_out(model: Released, texts: Sequence[Text]) -> list[np.ndarray]:
    """Probabilities `[batch, tokens]` without each token.

    The batch is made and encoded again for each. The weights are frozen: the adversary came before.
    """
    model.requires_grad_(False)
    results = []
    for part in batches(texts):
        width = max(map(len, part))
        outputs = np.zeros((len(part), width))
        for column in range(1, width - 1):
            outputs[:, column] = model(Padded.of(part).without(column)).sigmoid().numpy()[:, 0]
        results.append(outputs)
    return results


def kendall_tau(
    first: Sequence[np.ndarray], second: Sequence[np.ndarray]
) -> list[tuple[float, float]]:
    """τ and p-value, text by text."""
    return [
        tuple(stats.kendalltau(list(values), list(rivals)))
        for values, rivals in zip(first, second, strict=True)
    ]
