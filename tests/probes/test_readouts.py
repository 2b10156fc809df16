from dataclasses import dataclass

import numpy as np
import pytest
import scipy
import torch
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.model_selection import StratifiedKFold

from attnprobe.core.batch import Outputs
from attnprobe.data.batching import Ragged, TextSplit
from attnprobe.probes.readouts import READING, Readouts, fitted, out_of_fold
from tests.probes.tables import table

WORDS = 42
FILLER = 40
TEXTS = 240


@dataclass(frozen=True)
class Texts:
    """Texts of ten words, one of which decides; one word of each label's kind is always there.

    Attributes:
        labels: of each text.
        words: `[texts, 10]`.
        places: where the word of the label's kind stands.
    """

    labels: np.ndarray
    words: np.ndarray
    places: np.ndarray


def texts_of(repeats=1):
    draw = np.random.default_rng(0)
    count = TEXTS // repeats
    words = draw.integers(0, FILLER, (count, 10))
    labels = draw.integers(0, 2, count)
    places = np.zeros(count, int)
    for row, label in enumerate(labels):
        deciding, rival, *_ = draw.permutation(10)
        words[row, deciding] = FILLER + label
        words[row, rival] = FILLER + 1 - label
        places[row] = deciding
    return Texts(
        labels=np.tile(labels, repeats),
        words=np.tile(words, (repeats, 1)),
        places=np.tile(places, repeats),
    )


def model(places, weight):
    """Attention with `weight` on the place that decides; a state is its word and nothing else."""

    def run(batch):
        rows = torch.arange(len(batch))
        deciding = 1 + torch.from_numpy(places)[batch.example_id]
        attention = batch.content.double() * (1 - weight) / 9
        attention[rows, deciding] = weight
        return Outputs(
            logits=torch.zeros(len(batch), 2, dtype=torch.float64),
            attention=attention,
            scores=attention,
            hidden=torch.nn.functional.one_hot(batch.ids, WORDS).double(),
            content=batch.content,
        )

    return run


def read_out(weight, repeats=1, relabelled=lambda labels: labels):
    """The labels, and metric → the number of each text."""
    texts = texts_of(repeats)
    labels = np.array(relabelled(texts.labels))
    split = TextSplit(
        example_id=np.arange(TEXTS),
        words=Ragged.of(list(texts.words), np.int64),
        vocabulary_id=np.arange(WORDS),
        columns={"labels": labels},
    )
    numbers = Readouts()._fit(model(texts.places, weight), split, torch.device("cpu"))
    return labels, numbers


@pytest.fixture(scope="module")
def everything():
    """The weights say everything."""
    _, numbers = read_out(0.9)
    return numbers


@pytest.fixture(scope="module")
def nothing():
    """The weights are equal."""
    _, numbers = read_out(0.1)
    return numbers


@pytest.mark.parametrize("kind", ["words", "states"])
def test_weights_that_say_everything_are_always_right(everything, kind):
    assert everything[f"readout_{kind}_attention"].mean() == 1


@pytest.mark.parametrize("kind", ["words", "states"])
def test_weights_that_say_nothing_are_equal_ones(nothing, kind):
    assert_array_equal(nothing[f"readout_{kind}_attention"], nothing[f"readout_{kind}_equal"])


def assert_no_better_than_chance(is_right, margin):
    assert is_right.mean() == pytest.approx(0.5, abs=margin)


@pytest.mark.parametrize("weights", ["everything", "nothing"])
def test_one_word_of_each_kind_in_every_text_says_nothing_where_words_count_alike(weights, request):
    numbers = request.getfixturevalue(weights)
    assert_no_better_than_chance(numbers["readout_words_equal"], 0.15)


def test_no_text_is_predicted_from_its_own_repeats():
    """With three copies of each text a fit that has seen one knows them all."""
    _, numbers = read_out(0.1, repeats=3)
    assert_no_better_than_chance(numbers["readout_words_equal"], 0.3)


def penalised_loss(weights, features, labels, strength):
    """C times the negative log-likelihood, and half of the squared weights without the biases.

    Args:
        weights: of each class, the bias last.
    """
    coefficients = weights[:, :-1]
    biases = weights[:, -1]
    logits = features @ coefficients.T + biases
    log_probability = scipy.special.log_softmax(logits, axis=1)
    likelihood = log_probability[np.arange(len(labels)), labels]
    return -strength * likelihood.sum() + np.square(coefficients).sum() / 2


def weights_of_each_class(weights):
    """Of two classes there is one vector of weights, of the second class against the first."""
    if len(weights) == 1:
        return np.concatenate([np.zeros_like(weights), weights])
    return weights


@pytest.mark.parametrize(("classes", "vectors"), [(2, 1), (3, 3)])
def test_the_fit_is_the_optimum(classes, vectors):
    draw = np.random.default_rng(1)
    features = draw.normal(size=(90, 4))
    labels = draw.integers(0, classes, 90)
    scaled = features / np.abs(features).max(0)

    def loss(flat):
        weights = weights_of_each_class(flat.reshape(vectors, 5))
        return penalised_loss(weights, scaled, labels, 2.0)

    best = scipy.optimize.minimize(
        loss,
        np.zeros(5 * vectors),
        method="L-BFGS-B",
        options={"ftol": 1e-15, "gtol": 1e-9},
    )
    regression = fitted(sparse.csr_matrix(features), labels, 2.0)[-1]
    weights = np.column_stack([regression.coef_, regression.intercept_])
    assert loss(weights) == pytest.approx(best.fun, rel=1e-6)


def test_folds_by_a_plain_loop():
    draw = np.random.default_rng(2)
    features = sparse.csr_matrix(draw.normal(size=(60, 3)))
    labels = draw.integers(0, 2, 60)

    predicted = out_of_fold(features, labels, np.arange(60), 1.0)

    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    for fitted_rows, held_out_rows in folds.split(np.zeros(60), labels):
        fit = fitted(features[fitted_rows], labels[fitted_rows], 1.0)
        for row in held_out_rows:
            assert predicted[row] == fit.predict(features[[row]])[0]


def test_classes_of_few_texts_are_left_out():
    _, numbers = read_out(0.9, relabelled=lambda labels: [2] * 10 + labels[10:].tolist())
    is_undefined = np.isnan(numbers["readout_words_attention"])
    assert is_undefined[:10].all()
    assert not is_undefined[10:].any()


def test_one_class_has_no_number():
    _, numbers = read_out(0.9, relabelled=lambda labels: [0] * TEXTS)
    assert all(np.isnan(column).all() for column in numbers.values())


def test_the_claims_are_differences_of_balanced_accuracies():
    is_kept = np.arange(TEXTS) % 3 == 0
    labels, numbers = read_out(0.5, relabelled=lambda labels: labels * is_kept)

    def balanced(kind):
        is_right = numbers[f"readout_words_{kind}"]
        of_class_0 = is_right[labels == 0].mean()
        of_class_1 = is_right[labels == 1].mean()
        return (of_class_0 + of_class_1) / 2

    (claim,) = [claim for claim in READING.claims if claim.criterion == "leak"]
    evidence = claim.measure(table("readouts", numbers))
    assert evidence.value == pytest.approx(balanced("attention") - balanced("equal"))
