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


def texts_of(seed=0, repeats=1):
    """Labels, texts of ten words, and the place of the word that decides.

    That word is of the label's kind; one of each kind is always there.
    """
    draw = np.random.default_rng(seed)
    labels = []
    texts = []
    places = []
    for _ in range(TEXTS // repeats):
        text = draw.integers(0, FILLER, 10)
        label = draw.integers(2)
        deciding, rival = draw.permutation(10)[:2]
        text[deciding] = FILLER + label
        text[rival] = FILLER + 1 - label
        labels.append(label)
        texts.append(text)
        places.append(deciding)
    return labels * repeats, texts * repeats, places * repeats


def model(places, weight):
    """Attention with `weight` on the place that decides; a state is its word and nothing else."""

    def run(batch):
        hidden = torch.nn.functional.one_hot(batch.ids, WORDS).double()
        content = batch.content
        attention = content.double() * (1 - weight) / 9
        for row, number in enumerate(batch.example_id.tolist()):
            attention[row, 1 + places[number]] = weight
        logits = torch.zeros(len(batch), 2, dtype=torch.float64)
        return Outputs(logits, attention, attention, hidden, content)

    return run


def read_out(weight, repeats=1, relabelled=lambda labels: labels):
    """The labels, and metric → the number of each text."""
    labels, texts, places = texts_of(repeats=repeats)
    labels = np.array(relabelled(labels))
    words = Ragged.of([np.array(text) for text in texts], np.int64)
    split = TextSplit(np.arange(TEXTS), words, np.arange(WORDS), {"labels": labels})
    return labels, Readouts()._fit(model(places, weight), split, torch.device("cpu"))


@pytest.fixture(scope="module")
def everything():
    """The weights say everything."""
    return read_out(0.9)[1]


@pytest.fixture(scope="module")
def nothing():
    """The weights are equal."""
    return read_out(0.1)[1]


@pytest.mark.parametrize("kind", ["words", "states"])
def test_weights_that_say_everything_are_always_right(everything, kind):
    assert everything[f"readout_{kind}_attention"].mean() == 1


@pytest.mark.parametrize("kind", ["words", "states"])
def test_weights_that_say_nothing_are_equal_ones(nothing, kind):
    assert_array_equal(nothing[f"readout_{kind}_attention"], nothing[f"readout_{kind}_equal"])


@pytest.mark.parametrize("weights", ["everything", "nothing"])
def test_one_word_of_each_kind_in_every_text_says_nothing_where_words_count_alike(weights, request):
    numbers = request.getfixturevalue(weights)
    assert abs(numbers["readout_words_equal"].mean() - 0.5) < 0.15


def test_no_text_is_predicted_from_its_own_repeats():
    """With three copies of each text a fit that has seen one knows them all."""
    _, numbers = read_out(0.1, repeats=3)
    assert abs(numbers["readout_words_equal"].mean() - 0.5) < 0.3


@pytest.mark.parametrize("classes", [2, 3])
def test_the_fit_is_the_optimum(classes):
    draw = np.random.default_rng(1)
    features = draw.normal(size=(90, 4))
    labels = draw.integers(0, classes, 90)
    ours = fitted(sparse.csr_matrix(features), labels, 2.0)
    scaled = features / np.abs(features).max(0)

    def loss(flat):
        weights = flat.reshape(classes, 5)
        if classes == 2:  # one vector of weights, of the second class against the first
            weights = np.stack([np.zeros(5), weights[0]])
        logits = scaled @ weights[:, :4].T + weights[:, 4]
        log_probability = logits - scipy.special.logsumexp(logits, axis=1, keepdims=True)
        likelihood = log_probability[np.arange(90), labels]
        return -2.0 * likelihood.sum() + (weights[:, :4] ** 2).sum() / 2

    best = scipy.optimize.minimize(
        loss, np.zeros(5 * classes), method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-9}
    ).fun
    regression = ours[-1]
    coefficients = np.concatenate([regression.coef_, regression.intercept_[:, None]], 1)
    weights = np.zeros((classes, 5))
    weights[: len(coefficients)] = coefficients
    assert loss(weights.ravel()) == pytest.approx(best, rel=1e-6)


def test_folds_by_a_plain_loop():
    draw = np.random.default_rng(2)
    features = sparse.csr_matrix(draw.normal(size=(60, 3)))
    labels = draw.integers(0, 2, 60)
    groups = np.arange(60)
    predicted = out_of_fold(features, labels, groups, 1.0)
    folds = StratifiedKFold(5, shuffle=True, random_state=0).split(np.zeros(60), labels)
    for fitted_rows, held_out_rows in folds:
        fit = fitted(features[fitted_rows], labels[fitted_rows], 1.0)
        for row in held_out_rows:
            assert predicted[row] == fit.predict(features[[row]])[0]


def test_classes_of_few_texts_are_left_out():
    _, numbers = read_out(0.9, relabelled=lambda labels: [2] * 10 + labels[10:])
    assert np.isnan(numbers["readout_words_attention"][:10]).all()
    assert not np.isnan(numbers["readout_words_attention"][10:]).any()


def test_one_class_has_no_number():
    _, numbers = read_out(0.9, relabelled=lambda labels: [0] * TEXTS)
    assert all(np.isnan(column).all() for column in numbers.values())


def test_the_claims_are_differences_of_balanced_accuracies():
    labels, numbers = read_out(
        0.5, relabelled=lambda labels: np.where(np.arange(TEXTS) % 3, 0, labels)
    )

    def balanced(kind):
        is_right = numbers[f"readout_words_{kind}"]
        return np.mean([is_right[labels == label].mean() for label in (0, 1)])

    (claim,) = [claim for claim in READING.claims if claim.criterion == "leak"]
    evidence = claim.measure(table("readouts", numbers))
    assert evidence.value == pytest.approx(balanced("attention") - balanced("equal"))
