"""Is attention needed, and do its weights carry the label? Convex read-outs, nothing retrained."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
import torch
from annotated_types import Ge
from jaxtyping import Float, Int
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MaxAbsScaler
from torch import Tensor

from attnprobe.core.batch import Batch, Outputs
from attnprobe.core.clock import CLOCK
from attnprobe.core.errors import UserError
from attnprobe.core.metrics import SHARE, Metric, Scale
from attnprobe.core.randomness import Draws
from attnprobe.core.settings import Positive
from attnprobe.data.batching import TextSplit, short_enough
from attnprobe.evidence.claims import Claim
from attnprobe.evidence.evidence import mean_of
from attnprobe.exact.nulls import even
from attnprobe.importance.word_swaps import POSITIONS_AT_ONCE, in_float32
from attnprobe.probes.base import Measurement, Probe, Subject
from attnprobe.readings.reading import Headline, Reading

KINDS = ("words_attention", "words_equal", "states_attention", "states_equal")
FOLDS = 5
FEWEST_TEXTS = 20
"""Texts of a class below which these texts are left out."""
FEATURES = {
    "words_attention": "Σ α_t of each word of the vocabulary",
    "words_equal": "each word's share of the text",
    "states_attention": "Σ α_t h_t, the model's own attended vector",
    "states_equal": "the plain mean of these very states h_t",
}
METRICS = (
    *(
        Metric(
            f"readout_{kind}",
            SHARE,
            f"whether a logistic regression on {FEATURES[kind]}, fitted on other texts, tells the "
            "label",
            higher_is_better=True,
        )
        for kind in KINDS
    ),
    Metric(
        "readout_weight",
        Scale("texts", 0),
        "of a text in a balanced accuracy: texts / (classes × texts of its label)",
    ),
)


@dataclass
class Readouts(Probe):
    """Logistic regressions on what attention picks out, and on all words or states alike.

    They are convex: one optimum, no seed. The label of each text is predicted by a fit on the other
    texts of the split (five folds, each class in each fold), so that a checkpoint is examined as it
    is. The claims are not those of a model that is trained anew with equal weights
    (`+experiment=audit`, `+experiment=wiegreffe`): there the states change as well.

    Attributes:
        penalty: C of `sklearn.linear_model.LogisticRegression`, the inverse of the weight of the
            squared norm; every feature is scaled to at most 1.
        texts: texts that take part at most, evenly over the split; the others have no number (NaN).
    """

    name = "readouts"
    metrics = METRICS
    one_decision = True
    of_words = True
    penalty: Positive = 10.0
    texts: Annotated[int, Ge(100)] = 2000

    _split: TextSplit | None = field(default=None, init=False, repr=False)
    _numbers: dict[str, Float[np.ndarray, " rows"]] | None = field(
        default=None, init=False, repr=False
    )

    def prepare(self, splits: Mapping[str, TextSplit]) -> None:
        """Keep the test split, on which the read-outs are fitted."""
        self._split = splits["test"]
        self._numbers = None

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement]:
        """Yield whether each read-out is right, fitting all of them at the first batch."""
        if self._split is None:
            raise UserError(
                "probe readouts fits on the other texts of a split, which only a run has: leave it "
                "out here"
            )
        if self._numbers is None:
            model = in_float32(subject.classifier)
            self._numbers = self._fit(model, self._split, subject.batch.content.device)
        rows = [self._split.row_of(example) for example in subject.batch.example_id.tolist()]
        for metric, values in self._numbers.items():
            yield Measurement(metric, torch.from_numpy(values[rows]))

    def _fit(
        self, model: Callable[[Batch], Outputs], split: TextSplit, device: torch.device
    ) -> dict[str, Float[np.ndarray, " rows"]]:
        """Metric → its number for each text of the split, NaN where the text does not take part."""
        labels = np.asarray(split.labels)
        first_copy = first_copies(split)
        is_sampled = np.zeros(len(split), bool)
        places = np.linspace(0, len(split) - 1, min(self.texts, len(split)))
        is_sampled[places.round().astype(int)] = True
        is_distinct = is_sampled & (first_copy == np.arange(len(split)))
        classes, counts = np.unique(labels[is_distinct], return_counts=True)
        classes = classes[counts >= FEWEST_TEXTS]

        metrics = [*(f"readout_{kind}" for kind in KINDS), "readout_weight"]
        numbers = {metric: np.full(len(split), np.nan) for metric in metrics}
        if len(classes) < 2:
            return numbers
        rows = np.flatnonzero(is_sampled & np.isin(labels, classes))
        class_number = np.searchsorted(classes, labels[rows])
        weight_of_class = len(rows) / (len(classes) * np.bincount(class_number))
        numbers["readout_weight"][rows] = weight_of_class[class_number]
        matrices = features_of(model, split, rows, device)
        for kind, features in CLOCK.track(matrices.items(), "fit", "read-outs", len(matrices)):
            prediction = out_of_fold(features, class_number, first_copy[rows], self.penalty)
            numbers[f"readout_{kind}"][rows] = prediction == class_number
        return numbers


def first_copies(split: TextSplit) -> Int[np.ndarray, " rows"]:
    """The first row with the same text, for each row: its copies share a fold.

    Otherwise a text would be predicted by itself.
    """
    first_row: dict[bytes, int] = {}
    copies = [first_row.setdefault(split.words[row].tobytes(), row) for row in range(len(split))]
    return np.array(copies)


def features_of(
    model: Callable[[Batch], Outputs],
    split: TextSplit,
    rows: Int[np.ndarray, " texts"],
    device: torch.device,
) -> dict[str, sparse.csr_matrix]:
    """Each of `KINDS` → a row of features for each of these texts."""
    by_attention = TextFeatures()
    equal = TextFeatures()
    parts = short_enough(split.words.lengths[rows], most=POSITIONS_AT_ONCE)
    for part in CLOCK.track(parts, "states of all texts", "batches"):
        with torch.no_grad():
            outputs = model(split[rows[part].tolist()].to(device))
        words = [split.words[row] for row in rows[part]]
        by_attention.add(part, words, outputs, outputs.attention.double())
        equal.add(part, words, outputs, even(outputs.content).double())
    return {
        "words_attention": by_attention.words(),
        "words_equal": equal.words(),
        "states_attention": by_attention.states(),
        "states_equal": equal.states(),
    }


@dataclass
class TextFeatures:
    """Texts under one kind of weights, on their way into matrices with a row per text.

    Attributes:
        text: number of the text that each word is in.
        word: its number in the vocabulary.
        weight: its weight.
        order: the texts in the order in which they came.
        state: the weighted mean of each text's states, in this order.
    """

    text: list[Int[np.ndarray, " words"]] = field(default_factory=list)
    word: list[Int[np.ndarray, " words"]] = field(default_factory=list)
    weight: list[Float[np.ndarray, " words"]] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    state: list[Float[np.ndarray, "batch features"]] = field(default_factory=list)

    def add(
        self,
        numbers: Sequence[int],
        words: Sequence[Int[np.ndarray, " _"]],
        outputs: Outputs,
        weights: Float[Tensor, "batch seq"],
    ) -> None:
        """A batch of texts.

        Args:
            numbers: of the texts, each once.
            words: of each text.
            outputs: the model's.
            weights: of each position.
        """
        self.order += numbers
        attended = torch.einsum("bs,bsh->bh", weights, outputs.hidden.double())
        self.state.append(attended.cpu().numpy())
        texts = zip(numbers, words, weights.cpu(), outputs.content.cpu(), strict=True)
        for number, text_words, row, content in texts:
            self.text.append(np.full(len(text_words), number))
            self.word.append(text_words)
            self.weight.append(row[content].numpy()[: len(text_words)])

    def words(self) -> sparse.csr_matrix:
        """A column per word of the vocabulary; the weights of a repeated word add up."""
        vocabulary, column = np.unique(np.concatenate(self.word), return_inverse=True)
        places = (np.concatenate(self.text), column)
        shape = (len(self.order), len(vocabulary))
        return sparse.csr_matrix((np.concatenate(self.weight), places), shape)

    def states(self) -> sparse.csr_matrix:
        """A column per number of a state."""
        return sparse.csr_matrix(np.concatenate(self.state)[np.argsort(self.order)])


def out_of_fold(
    features: sparse.csr_matrix,
    labels: Int[np.ndarray, " texts"],
    groups: Int[np.ndarray, " texts"],
    penalty: float,
) -> Int[np.ndarray, " texts"]:
    """The class of each text by a fit on the texts of the other folds.

    Args:
        features: a row per text.
        labels: class numbers.
        groups: the texts of one group are in one fold.
        penalty: see `Readouts`.

    Returns:
        Class numbers; −1 where the other folds have one class only.
    """
    predicted = np.full(len(labels), -1)
    distinct, place = np.unique(groups, return_index=True)
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    parts = folds.split(distinct, labels[place])
    for fitted_part, held_out_part in CLOCK.track(parts, "folds", total=FOLDS):
        is_fitted = np.isin(groups, distinct[fitted_part])
        is_held_out = np.isin(groups, distinct[held_out_part])
        if len(np.unique(labels[is_fitted])) > 1:
            model = fitted(features[is_fitted], labels[is_fitted], penalty)
            predicted[is_held_out] = model.predict(features[is_held_out])
    return predicted


def fitted(
    features: sparse.csr_matrix, labels: Int[np.ndarray, " texts"], penalty: float
) -> Pipeline:
    """The minimum of C Σ log loss + ½ ‖w‖² over features that are scaled to at most 1."""
    regression = LogisticRegression(C=penalty, tol=1e-8, max_iter=10_000)
    return make_pipeline(MaxAbsScaler(), regression).fit(features, labels)


def _claim(name: str, criterion: str, statement: str, kind: str) -> Claim:
    metrics = f"readout_{kind}_attention", f"readout_{kind}_equal", "readout_weight"
    return Claim(
        name=name,
        criterion=criterion,
        statement=statement,
        speaks="for",
        source="attnprobe: docs/concepts.md",
        measure=mean_of(
            *metrics,
            value=lambda attention, equal, weight: weight * (attention - equal),
            ends=(-1, 1),
        ),
        quantity="difference of balanced accuracies, −1 to 1",
        smallest=0.01,
    )


READING = Reading(
    probe="readouts",
    order=7,
    title="Read-outs: do the weights tell more than equal ones, with nothing trained again?",
    about=(
        "Logistic regressions are fitted on four descriptions of each text: its words by their "
        "weight, its words alike, its states by their weight, and the same states alike. Each "
        "text is told by a fit on other texts. Where weights tell no more than equal ones, a "
        "reader of this very model loses nothing without them. A model that is trained with equal "
        "weights from the start may differ, for its states adapt: that is another claim."
    ),
    claims=(
        _claim(
            "states_by_weight_tell_more",
            "necessity",
            "The model's states, weighted, tell the label better than the same states alike",
            "states",
        ),
        _claim(
            "words_by_weight_tell_more",
            "leak",
            "Words by their weight tell the label better than words alike, to a "
            "model without context",
            "words",
        ),
    ),
    headlines=tuple(
        Headline(
            f"readout_{kind}", f"a read-out of {FEATURES[kind]} is right", proportion_of="examples"
        )
        for kind in KINDS
    ),
)
