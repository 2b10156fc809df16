"""Jain & Wallace's probes on one trained model, as released and as a run of attnprobe does them."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from attnprobe.core.batch import Batch, Outputs
from attnprobe.core.randomness import Draws
from attnprobe.data.batching import TextSplit
from attnprobe.data.module import TextDataModule
from attnprobe.data.vocabulary import END, START
from attnprobe.exact import farthest_attention
from attnprobe.importance.gradients import gradients
from attnprobe.importance.leave_one_out import leave_one_out
from attnprobe.measures import kendall_tau_test
from attnprobe.models.classifier import AttentionClassifier
from attnprobe.probes.adversarial import Adversarial
from attnprobe.probes.permutation import Permutation
from benchmarks import released
from benchmarks.released import EPSILON, Released, Text

PAIRS = 3
"""τ of attention and gradient, attention and leave-one-out, gradient and leave-one-out."""
Part = tuple[Batch, Outputs]


@dataclass(frozen=True)
class Sides:
    """What both sides are given: the model in their precision, and the test texts.

    The texts as each side holds them, sorted by length. The published side encodes them in each of
    its procedures; ours once, in a row for itself.

    Attributes:
        encoded: our batches with the encoder's outputs, which are there before a probe begins.
        scores: for τ, per batch: two times `PAIRS` rows of numbers `[pairs, batch, seq]`, and the
            mask.
        pairs: the same numbers as the published side has them, text by text.
    """

    published: Released
    texts: list[Text]
    ours: AttentionClassifier
    encoded: list[Part]
    scores: list[tuple[Tensor, Tensor, Tensor]]
    pairs: list[tuple[list[np.ndarray], list[np.ndarray]]]

    @classmethod
    def of(cls, classifier: AttentionClassifier, data: TextDataModule, examples: int) -> "Sides":
        """Both sides on at most that many test texts, evenly over the test set."""
        test = data.splits["test"]
        rows = torch.linspace(0, len(test) - 1, min(len(test), examples)).long().unique().tolist()
        rows.sort(key=lambda row: test.words.lengths[row])
        size = data.settings.eval_batch_size
        batches = [test[rows[start : start + size]] for start in range(0, len(rows), size)]
        return cls.on(classifier, numbers_of(test, rows), batches)

    @classmethod
    def on(
        cls, classifier: AttentionClassifier, texts: list[Text], batches: list[Batch]
    ) -> "Sides":
        """Both sides on these texts and our batches of them."""
        ours = deepcopy(classifier).double().eval()
        with torch.no_grad():
            encoded = [(batch, ours(batch)) for batch in batches]
        torch.manual_seed(0)
        scores = []
        for batch, outputs in encoded:
            shape = (PAIRS, *outputs.attention.shape)
            first = torch.rand(shape, dtype=torch.float64)
            second = torch.rand(shape, dtype=torch.float64)
            scores.append((first, second, batch.content))
        pairs = [
            (each_text(first, content), each_text(second, content))
            for first, second, content in scores
        ]
        return cls(Released.of(classifier), texts, ours, encoded, scores, pairs)


def numbers_of(split: TextSplit, rows: list[int]) -> list[Text]:
    """The texts of these rows as the released code holds them."""
    return [[START, *split.vocabulary_id[split.words[row]].tolist(), END] for row in rows]


def each_text(values: Tensor, content: Tensor) -> list[np.ndarray]:
    """The numbers of every text's words, one array per pair and text."""
    arrays = []
    for pair in values:
        for row, words in zip(pair, content, strict=True):
            arrays.append(row[words].numpy())
    return arrays


@dataclass(frozen=True)
class Probe:
    """One probe, both ways, over all batches.

    Attributes:
        share: how many times the published side's work ours does.
    """

    title: str
    published: Callable[[Sides], object]
    ours: Callable[[Sides], object]
    share: float = 1


def encoding(sides: Sides) -> None:
    """The pass that a run shares among all its probes."""
    with torch.no_grad():
        for batch, _ in sides.encoded:
            sides.ours(batch)


def permutation(sides: Sides) -> None:
    """The probe, its readout built within the measured time."""
    for batch, outputs in sides.encoded:
        list(Permutation().measure(sides.ours.readout(batch, outputs), Draws(0, "permutation")))


def search(sides: Sides) -> None:
    """The same search."""
    for batch, outputs in sides.encoded:
        Adversarial(epsilon=EPSILON).search(
            sides.ours.readout(batch, outputs), Draws(0, "adversarial")
        )


def exact(sides: Sides) -> None:
    """The exact adversary."""
    for batch, outputs in sides.encoded:
        readout = sides.ours.readout(batch, outputs)
        assert readout.position_logits is not None
        farthest_attention(
            readout.attention, readout.position_logits, readout.content, epsilon=EPSILON
        )


def own_leave_one_out(sides: Sides) -> None:
    """The importance, its check included."""
    for batch, outputs in sides.encoded:
        leave_one_out(sides.ours, batch, outputs)


def own_gradients(sides: Sides) -> None:
    """Four kinds: of the word vectors and of the states, the attention held fixed and not."""
    for batch, _ in sides.encoded:
        gradients(sides.ours, batch)


def tau(sides: Sides) -> None:
    """τ and p-value of all pairs of a batch at once."""
    for first, second, content in sides.scores:
        kendall_tau_test(first, second, content)


def published_tau(sides: Sides) -> None:
    """scipy's τ and p-value, text by text and pair by pair."""
    for first, second in sides.pairs:
        released.kendall_tau(first, second)


PARTS = {
    "encoding": Probe(
        "predictions and attention", lambda s: released.predict(s.published, s.texts), encoding
    ),
    "permutation": Probe(
        "permutation, 100 per text",
        lambda s: released.permutations(s.published, s.texts),
        permutation,
    ),
    "search": Probe(
        "gradient adversary, 5 restarts, 500 steps",
        lambda s: released.adversary(s.published, s.texts),
        search,
    ),
    "exact": Probe(
        "exact adversary, against that search",
        lambda s: released.adversary(s.published, s.texts),
        exact,
    ),
    "leave_one_out": Probe(
        "leave-one-out", lambda s: released.leave_one_out(s.published, s.texts), own_leave_one_out
    ),
    "gradient": Probe(
        "gradients, per kind (3 against 4 kinds)",
        lambda s: released.gradients(s.published, s.texts),
        own_gradients,
        share=4 / 3,
    ),
    "tau": Probe("Kendall's tau with p-values, 3 pairs", published_tau, tau),
}
