"""Jain & Wallace's probes on one trained model, as the published code does them and as a run of attnprobe does."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor

from attnprobe.batch import Batch, Outputs
from attnprobe.data.batching import TextSplit
from attnprobe.data.module import TextDataModule
from attnprobe.exact import farthest_attention
from attnprobe.importance.gradient import gradients
from attnprobe.importance.leave_one_out import leave_one_out
from attnprobe.measures import kendall_tau_test
from attnprobe.models.classifier import AttentionClassifier
from attnprobe.probes.adversarial import Adversarial
from attnprobe.probes.permutation import Permutation
from attnprobe.randomness import Draws
from benchmarks import reference

BATCH = 32
"""As in the published code."""
EPSILON = 0.01
PAIRS = 3
"""τ of attention and gradient, attention and leave-one-out, gradient and leave-one-out."""
Part = tuple[Batch, Outputs]


@dataclass(frozen=True)
class Sides:
    """What both sides are given: the model in their precision, and the test texts in their batches with the encoder's
    outputs, which are there before a probe begins.

    Attributes:
        texts: how many.
        scores: for τ, per batch: two times `PAIRS` rows of numbers `[pairs, batch, seq]`, and the mask.
    """

    texts: int
    published: AttentionClassifier
    ours: AttentionClassifier
    theirs: list[Part]
    own: list[Part]
    scores: list[tuple[Tensor, Tensor, Tensor]]

    @classmethod
    def of(cls, classifier: AttentionClassifier, data: TextDataModule, examples: int) -> "Sides":
        """Both sides on at most that many test texts, evenly over the test set."""
        test = data.splits["test"]
        rows = torch.linspace(0, len(test) - 1, min(len(test), examples)).long().unique().tolist()
        rows.sort(key=lambda row: test.words.lengths[row])
        published, ours = reference.packed(classifier.float()), deepcopy(classifier).double().eval()
        own = forward(ours, test, rows, data.settings.serving.eval_batch_size)
        torch.manual_seed(0)
        scores = []
        for batch, outputs in own:
            left, right = (torch.rand(PAIRS, *outputs.attention.shape, dtype=torch.float64) for _ in range(2))
            scores.append((left, right, batch.content))
        return cls(len(rows), published, ours, forward(published, test, rows, BATCH), own, scores)


def forward(classifier: AttentionClassifier, texts: TextSplit, rows: list[int], size: int) -> list[Part]:
    """The encoder's part, outside the measured time on both sides."""
    batches = [texts[rows[start : start + size]] for start in range(0, len(rows), size)]
    with torch.no_grad():
        return [(batch, classifier(batch)) for batch in batches]


@dataclass(frozen=True)
class Probe:
    """One probe, both ways, over all batches.

    Attributes:
        share: how many times the published side's work ours does.
    """

    title: str
    published: Callable[[Sides], object]
    ours: Callable[[Sides], object]
    share: int = 1


def published_permutation(sides: Sides) -> None:
    """100 permutations of every text."""
    for batch, outputs in sides.theirs:
        reference.permutation(sides.published, outputs.hidden, batch.content)


def permutation(sides: Sides) -> None:
    """The probe, its readout built within the measured time."""
    for batch, outputs in sides.own:
        list(Permutation().measure(sides.ours.readout(batch, outputs), Draws(0, "permutation")))


def published_search(sides: Sides) -> None:
    """5 restarts of 500 steps."""
    for batch, outputs in sides.theirs:
        reference.adversary(sides.published, outputs.hidden, outputs.attention, batch.content, epsilon=EPSILON)


def search(sides: Sides) -> None:
    """The same search."""
    for batch, outputs in sides.own:
        Adversarial(epsilon=EPSILON).search(sides.ours.readout(batch, outputs), Draws(0, "adversarial"))


def exact(sides: Sides) -> None:
    """The exact adversary."""
    for batch, outputs in sides.own:
        readout = sides.ours.readout(batch, outputs)
        assert readout.position_logits is not None
        farthest_attention(readout.attention, readout.position_logits, readout.content, epsilon=EPSILON)


def published_leave_one_out(sides: Sides) -> None:
    """Every shortened text encoded again, autograd on as released."""
    for batch, _ in sides.theirs:
        reference.leave_one_out(sides.published, batch, autograd=True)


def own_leave_one_out(sides: Sides) -> None:
    """The importance, its check included."""
    for batch, outputs in sides.own:
        leave_one_out(sides.ours, batch, outputs)


def published_gradient(sides: Sides) -> None:
    """One kind: of the word vectors, the attention held fixed."""
    for batch, _ in sides.theirs:
        reference.gradient(sides.published, batch)


def own_gradients(sides: Sides) -> None:
    """Four kinds: of the word vectors and of the states, the attention held fixed and not."""
    for batch, _ in sides.own:
        gradients(sides.ours, batch)


def published_tau(sides: Sides) -> None:
    """scipy's τ and p-value, text by text and pair by pair."""
    for left, right, content in sides.scores:
        for pair in range(PAIRS):
            reference.kendall_tau(left[pair], right[pair], content)


def tau(sides: Sides) -> None:
    """τ and p-value of all pairs of a batch at once."""
    for left, right, content in sides.scores:
        kendall_tau_test(left, right, content)


PARTS = {
    "permutation": Probe("permutation, 100 per text", published_permutation, permutation),
    "search": Probe("gradient adversary, 5 restarts, 500 steps", published_search, search),
    "exact": Probe("exact adversary, against that search", published_search, exact),
    "leave_one_out": Probe("leave-one-out", published_leave_one_out, own_leave_one_out),
    "gradient": Probe("gradients, per kind (ours computes 4 kinds)", published_gradient, own_gradients, share=4),
    "tau": Probe("Kendall's tau with p-values, 3 pairs", published_tau, tau),
}
