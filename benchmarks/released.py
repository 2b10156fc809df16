"""Jain & Wallace's procedure for classification as its code was released: what it computes, in
which order and precision.

Written again from reading it (`Trainers`, `model/Binary_Classification.py` and `model/modules` of
their repository). float32; batches of 32 texts, padded again from lists of numbers whenever one is
used; one packed bidirectional LSTM; every forward pass recorded for a backward pass, also where
none comes, until the adversary freezes the weights for itself and for leave-one-out, which follows
it. Left out, and not charged: start-up, reading and tokenising, scikit-learn's reports after each
epoch, saving weights and results, figures."""

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
        ids, masked = (
            torch.cat([part[:, :column], part[:, column + 1 :]], -1)
            for part in (self.ids, self.masked)
        )
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
        both = encoder.forwards.state_dict() | {
            f"{name}_reverse": weight for name, weight in encoder.backwards.state_dict().items()
        }
        for own, given in (
            (model.embedding, classifier.embedding.state_dict()),
            (model.rnn, both),
            (model.inner, attention.states.state_dict()),
            (model.score, attention.score.state_dict()),
            (model.output, decoder.output.state_dict()),
        ):
            own.load_state_dict(given)
        return model

    def encoded(self, batch: Padded) -> tuple[Tensor, Tensor]:
        """Word vectors and hidden states `[batch, tokens, …]`."""
        vectors = self.embedding(batch.ids)
        packed = pack_padded_sequence(
            vectors, batch.lengths, batch_first=True, enforce_sorted=False
        )
        return vectors, pad_packed_sequence(
            self.rnn(packed)[0], batch_first=True, total_length=batch.ids.shape[1]
        )[0]

    def attended(self, batch: Padded, hidden: Tensor) -> Tensor:
        """The attention `[batch, tokens]`."""
        return (
            self.score(self.inner(hidden).tanh())
            .squeeze(-1)
            .masked_fill(batch.masked, -torch.inf)
            .softmax(-1)
        )

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
    """Batches of similar length in random order, summed loss, three Adams (encoder, attention
    without weight decay, decoder), and after every epoch the development texts."""
    model.requires_grad_()
    rest = {"lr": 1e-3, "amsgrad": True}
    optimizers = [
        torch.optim.Adam(
            [*model.embedding.parameters(), *model.rnn.parameters()], weight_decay=1e-5, **rest
        ),
        torch.optim.Adam(
            [*model.inner.parameters(), *model.score.parameters()], weight_decay=0, **rest
        ),
        torch.optim.Adam(model.output.parameters(), weight_decay=1e-5, **rest),
    ]
    weight = torch.tensor([len(labels) / max(sum(labels), 1) - 1])
    for _ in range(epochs):
        noisy = [
            n + DRAWS.integers(int(np.floor(-n * NOISE)), int(np.ceil(n * NOISE)))
            for n in map(len, texts)
        ]
        order = np.argsort(noisy)
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
    found = []
    for part in batches(texts):
        batch = Padded.of(part)
        hidden = model.encoded(batch)[1]
        attention = model.attended(batch, hidden)
        found.append(model.decoded(attention, hidden).sigmoid().detach().numpy())
        attention.detach().numpy()
    return np.concatenate(found)


def gradients(model: Released, texts: Sequence[Text]) -> list[np.ndarray]:
    """Three kinds `[3, batch, tokens]` of each batch, the attention held fixed: word vector times
    gradient, the sum of all word vectors times gradient, sum of the state's gradient. The backward
    pass goes on to all weights."""
    model.requires_grad_()
    found = []
    for part in batches(texts):
        batch = Padded.of(part)
        vectors, hidden = model.encoded(batch)
        for leaf in (vectors, hidden):
            leaf.retain_grad()
        model.decoded(model.attended(batch, hidden).detach(), hidden).sigmoid().sum().backward()
        assert vectors.grad is not None
        assert hidden.grad is not None
        kinds = (vectors.grad * vectors, vectors.grad * model.embedding.weight.sum(0), hidden.grad)
        found.append(np.stack([kind.sum(-1).detach().numpy() for kind in kinds]))
    return found


def permutations(model: Released, texts: Sequence[Text]) -> list[np.ndarray]:
    """Probabilities `[batch, 100]` under permuted attention; scores and attention again for each,
    and the order drawn text by text."""
    model.requires_grad_()
    found = []
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
        found.append(outputs)
    return found


def adversary(model: Released, texts: Sequence[Text]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Attentions `[batch, 5, tokens]` after 500 steps of Adam, and their probabilities `[batch, 5,
    1]`."""
    model.requires_grad_(False)
    found = []
    for part in batches(texts):
        batch = Padded.of(part)
        hidden = model.encoded(batch)[1]
        attention = model.attended(batch, hidden)
        before = model.decoded(attention, hidden).sigmoid()
        states = hidden.unsqueeze(1)
        masked = batch.masked.unsqueeze(1)
        start = -batch.lengths.log()[:, None, None].expand(-1, RESTARTS, batch.ids.shape[1])
        logits = (start + 3 * torch.randn(start.shape)).requires_grad_()
        optimizer = torch.optim.Adam([logits], lr=0.01, amsgrad=True)
        for _ in range(STEPS):
            other = logits.masked_fill(masked, -torch.inf).softmax(-1)
            moved = (
                (model.decoded(other, states).sigmoid() - before.unsqueeze(1))
                .abs()
                .sum(-1, keepdim=True)
            )
            away = divergence(other, attention.unsqueeze(1))
            apart = divergence(other.unsqueeze(1), other.unsqueeze(2))
            loss = (500 * (moved - EPSILON).relu() - away).sum() - apart.sum(0).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            other = logits.masked_fill(masked, -torch.inf).softmax(-1)
            found.append((other.numpy(), model.decoded(other, states).sigmoid().numpy()))
    return found


def divergence(p: Tensor, q: Tensor) -> Tensor:
    """Jensen-Shannon divergence `[…, 1]` over the last axis, a small constant against log 0."""
    mean = 0.5 * (p + q)
    parts = [one.clamp(0, 1) * ((one + 1e-10).log() - (mean + 1e-10).log()) for one in (p, q)]
    return (0.5 * (parts[0].sum(-1) + parts[1].sum(-1))).unsqueeze(-1)


def leave_one_out(model: Released, texts: Sequence[Text]) -> list[np.ndarray]:
    """Probabilities `[batch, tokens]` without each token; the batch is made and encoded again for
    each. The weights are frozen: the adversary came before."""
    model.requires_grad_(False)
    found = []
    for part in batches(texts):
        width = max(map(len, part))
        outputs = np.zeros((len(part), width))
        for column in range(1, width - 1):
            outputs[:, column] = model(Padded.of(part).without(column)).sigmoid().numpy()[:, 0]
        found.append(outputs)
    return found


def kendall_tau(
    left: Sequence[np.ndarray], right: Sequence[np.ndarray]
) -> list[tuple[float, float]]:
    """τ and p-value, text by text."""
    return [
        tuple(stats.kendalltau(list(one), list(other)))
        for one, other in zip(left, right, strict=True)
    ]
