"""Networks that are trained on a construction's rule, with its attention as their own.

The attention is given, text by text, as the hand-built model has it, and the logits are a linear
map of the states that it weights: a network whose attention is beside the words that decide has to
bring what they say to where it attends. It learns from texts of the construction and from mixtures
of two of them, labelled by the hand-built score; so the rule is learned also where words are
missing or contradict each other, as they do in the passes of the verdict on words.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnprobe.core.batch import Batch, Outputs
from attnprobe.core.readout import Readout
from attnprobe.models.encoders import CNNEncoder, Encoder, LSTMEncoder
from attnprobe.models.transformer import TransformerEncoder
from research.constructions.asking import Outcome, ask_models
from research.constructions.catalogue import catalogue
from research.constructions.models import (
    WORDS,
    Construction,
    Text,
    Weights,
    WithTable,
    mass,
    split_of,
)

WIDTH = 32
"""Features of a word vector."""
ENCODERS: dict[str, Callable[[], Encoder]] = {
    "LSTM": partial(LSTMEncoder, WIDTH, hidden_size=24),
    "CNN": partial(CNNEncoder, WIDTH, filters=16),
    "transformer": partial(TransformerEncoder, WIDTH, hidden_size=32, dropout=0.0),
}
"""Small enough to be trained in seconds."""
WRITTEN = 600
"""Training texts as the construction writes them."""
MIXED = 1_200
"""Training texts that are mixtures of two of these."""
CHECKED = 200
"""Texts of each sort that end the training, and others that say whether the rule is solved."""
EPOCHS = 60
PATIENCE = 12
"""Epochs without a better share of right decisions that end the training."""
BATCH = 64
RATE = 4e-3
LARGEST_GRADIENT = 5.0
"""Norm above which a gradient is scaled down to it."""
SOLVED = 0.95
"""Share of right decisions on the texts of each class, from which a network has solved a rule."""
SOLVED_MIXED = 0.8
"""The same of mixtures, in which cues may contradict each other."""
ENOUGH = 0.995
"""Share of right decisions that ends the training."""
DECIDED = 0.5
"""Margin of the hand-built score from which a mixture has a label."""


class Network(WithTable):
    """An encoder, a given attention, and a linear map of the mean state.

    Args:
        encoder: of `ENCODERS`.
        weights: the attention on the words of each text.
        classes: how many.
    """

    def __init__(self, encoder: Encoder, weights: Sequence[Weights], classes: int) -> None:
        super().__init__(weights, classes)
        self.embedding = nn.Embedding(WORDS, WIDTH, padding_idx=0)
        self.encoder = encoder
        self.decoder = nn.Linear(encoder.size, classes)

    def forward(self, batch: Batch) -> Outputs:
        """The logits of the states under the table's attention."""
        states = self.encoder(self.embedding(batch.ids), batch.mask, batch.content)
        attention = self.attention_of(batch).to(states.dtype)
        return Outputs(
            logits=self.decoder((attention.unsqueeze(-1) * states).sum(1)),
            attention=attention,
            scores=attention.log(),
            hidden=states,
            content=batch.content,
        )

    def readout(self, batch: Batch, outputs: Outputs) -> Readout:
        """The same states under other weights."""
        return Readout(
            outputs.attention,
            batch.content,
            batch.example_id,
            self.task,
            position_logits=self.decoder(outputs.hidden),
        )


@dataclass(frozen=True)
class Sample:
    """Texts with their labels and where the attention lies on each.

    Attributes:
        texts: written or mixed.
        labels: by the hand-built score.
        weights: on the words of each text.
    """

    texts: Sequence[Text]
    labels: Int[Tensor, " texts"]
    weights: Sequence[Weights]

    def __add__(self, other: "Sample") -> "Sample":
        labels = torch.cat([self.labels, other.labels])
        return Sample([*self.texts, *other.texts], labels, [*self.weights, *other.weights])


@dataclass(frozen=True)
class TrainedOutcome:
    """What became of a construction with a trained encoder.

    Attributes:
        construction: whose rule was learned.
        encoder: of `ENCODERS`.
        mass: weight on the words that decide, beyond chance; mean of the runs.
        right: the smallest share of right decisions on the texts of a class, of all runs.
        right_mixed: the smallest share on mixtures.
        outcome: what the verdict says; None where the rule was not solved.
    """

    construction: Construction
    encoder: str
    mass: float
    right: float
    right_mixed: float
    outcome: Outcome | None


SAME_RULE = re.compile(r"its probability (\.54|1)$|^\d+ texts, |^2 runs|^3 runs, [018] %")
"""Names of constructions that differ from another one in what labels cannot teach (how sure the
score is), or in the number of texts and runs alone: they are not trained."""


def trainable() -> list[Construction]:
    """The constructions whose rules are taught, one of those that have the same rule."""
    return [construction for construction in catalogue() if not SAME_RULE.search(construction.name)]


def ask_trained(construction: Construction, encoder: str, seed: int = 0) -> TrainedOutcome:
    """Train a network for each run of a construction, and ask them about the construction's texts.

    Args:
        construction: whose rule is learned.
        encoder: of `ENCODERS`.
        seed: of texts, attention, weights and probe.
    """
    texts = construction.written(seed)
    networks = []
    masses = []
    right = []
    right_mixed = []
    for run in range(construction.runs):
        network = trained(construction, encoder, seed, run)
        draw = np.random.default_rng((seed, run, 3))
        right.append(smallest_share(network, written(construction, draw, CHECKED)))
        right_mixed.append(share_right(network, mixed(construction, draw, CHECKED)).mean().item())
        weights = construction.attention(texts, seed, run)
        masses.append(mass(texts, weights))
        network.attend(weights)
        networks.append(network)
    outcome = None
    if min(right) >= SOLVED and min(right_mixed) >= SOLVED_MIXED:
        outcome = ask_models(construction, texts, networks, seed)
    return TrainedOutcome(
        construction, encoder, float(np.mean(masses)), min(right), min(right_mixed), outcome
    )


def ask_all_trained() -> Iterator[TrainedOutcome]:
    """What the verdict says of every trainable construction with every encoder."""
    for construction in trainable():
        for encoder in ENCODERS:
            yield ask_trained(construction, encoder)


def trained(construction: Construction, encoder: str, seed: int, run: int = 0) -> Network:
    """Train a network until it decides as the score does; the best one, in float64.

    Args:
        construction: whose score it learns, under its attention.
        encoder: of `ENCODERS`.
        seed: of texts, attention and weights.
        run: of the construction.
    """
    draw = np.random.default_rng((seed, run, 2))
    sample = written(construction, draw, WRITTEN) + mixed(construction, draw, MIXED)
    check = written(construction, draw, CHECKED) + mixed(construction, draw, CHECKED)
    torch.manual_seed(1000 * seed + run)
    network = Network(ENCODERS[encoder](), sample.weights, len(construction.shares))
    optimizer = torch.optim.Adam(network.parameters(), lr=RATE)
    split = split_of(sample.texts)

    best_share = -1.0
    best_epoch = 0
    best_weights = network.state_dict()
    for epoch in range(EPOCHS):
        network.attend(sample.weights)
        network.train()
        order = draw.permutation(len(sample.texts))
        for rows in np.array_split(order, len(order) // BATCH):
            logits = network(split[rows.tolist()]).logits
            loss = nn.functional.cross_entropy(logits, sample.labels[rows])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), LARGEST_GRADIENT)
            optimizer.step()
        share = share_right(network, check).mean().item()
        if share > best_share:
            best_share = share
            best_epoch = epoch
            best_weights = {name: value.clone() for name, value in network.state_dict().items()}
        if share >= ENOUGH or epoch - best_epoch >= PATIENCE:
            break
    network.load_state_dict(best_weights)
    return network.eval().double()


@torch.no_grad()
def share_right(network: Network, sample: Sample) -> Float[Tensor, " texts"]:
    """1 for each text that a network decides as the score does, else 0."""
    network.eval()
    network.attend(sample.weights)
    logits = network(split_of(sample.texts)[range(len(sample.texts))]).logits
    return (logits.argmax(-1) == sample.labels).double()


def smallest_share(network: Network, sample: Sample) -> float:
    """The share of right decisions on the texts of the class where it is smallest."""
    is_right = share_right(network, sample)
    return min(is_right[sample.labels == label].mean().item() for label in sample.labels.unique())


def written(construction: Construction, draw: np.random.Generator, count: int) -> Sample:
    """Texts as the construction writes them."""
    labels = draw.permutation(construction.with_texts(count).labels()).tolist()
    texts = [construction.write(draw, label) for label in labels]
    weights = [construction.attend(draw, text) for text in texts]
    return Sample(texts, torch.tensor(labels), weights)


def mixed(construction: Construction, draw: np.random.Generator, count: int) -> Sample:
    """Texts that have some of their words from another one, as far as the score decides them.

    The attention is that of the first text, as it is in a pass.
    """
    sample = written(construction, draw, 2 * count)
    pairs = zip(sample.texts[:count], sample.texts[count:], strict=True)
    texts = [mixture(draw, text, other) for text, other in pairs]
    split = split_of(texts)
    scores = construction.score(split[range(count)].ids)
    first, second = scores.topk(2, -1).values.unbind(-1)
    rows = torch.nonzero(first - second > DECIDED).flatten().tolist()
    return Sample(
        [texts[row] for row in rows],
        scores.argmax(-1)[rows],
        [sample.weights[row] for row in rows],
    )


def mixture(draw: np.random.Generator, text: Text, other: Text) -> Text:
    """A text with a random share of its words from the same places of another one."""
    words = text.words.copy()
    length = min(len(words), len(other.words))
    is_replaced: Bool[np.ndarray, " words"] = draw.random(length) < draw.random()
    words[:length][is_replaced] = other.words[:length][is_replaced]
    return Text(words, text.decides, text.cues)
