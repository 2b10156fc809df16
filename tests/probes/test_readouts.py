import numpy as np
import pytest
import scipy
import torch
from scipy import sparse
from sklearn.model_selection import StratifiedKFold

from attnprobe.core.batch import Outputs
from attnprobe.data.batching import Ragged, TextSplit
from attnprobe.probes.readouts import READING, Readouts, fitted, out_of_fold
from tests.probes.tables import table

WORDS = 42
FILLER = 40
TEXTS = 240


def drawn(seed=0, repeats=1):
    """Ten words, of which the one at a random place is of the label's kind; and one of each kind is
    always there."""
    draw = np.random.default_rng(seed)
    labels = []
    rows = []
    places = []
    for _ in range(TEXTS // repeats):
        row = draw.integers(0, FILLER, 10)
        label = draw.integers(2)
        decides, other = draw.permutation(10)[:2]
        row[decides], row[other] = FILLER + label, FILLER + 1 - label
        labels = [*labels, label]
        rows = [*rows, row]
        places = [*places, decides]
    order = np.tile(np.arange(len(rows)), repeats)
    return (
        [labels[one] for one in order],
        [rows[one] for one in order],
        [places[one] for one in order],
    )


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


def told(weight, repeats=1, relabelled=lambda labels: labels):
    """The labels, and what of them is told by the read-outs."""
    labels, rows, places = drawn(repeats=repeats)
    labels = np.array(relabelled(labels))
    words = Ragged.of([np.array(row) for row in rows], np.int64)
    split = TextSplit(np.arange(TEXTS), words, np.arange(WORDS), {"labels": labels})
    return labels, Readouts()._of_split(model(places, weight), split, torch.device("cpu"))


def test_weights_that_say_everything_and_weights_that_say_nothing():
    everything, nothing = (told(weight)[1] for weight in (0.9, 0.1))
    assert everything["readout_words_attention"].mean() == 1
    assert everything["readout_states_attention"].mean() == 1
    for found in (
        everything,
        nothing,
    ):  # one word of each kind is in every text: alike, they say nothing
        assert abs(found["readout_words_equal"].mean() - 0.5) < 0.15
    for kind in ("words", "states"):
        np.testing.assert_array_equal(
            nothing[f"readout_{kind}_attention"], nothing[f"readout_{kind}_equal"]
        )


def test_a_text_is_not_told_by_its_own_repeats():
    """With three copies of each text a fit that has seen one knows them all."""
    _, found = told(0.1, repeats=3)
    assert abs(found["readout_words_equal"].mean() - 0.5) < 0.3


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
        likelihood = (logits - scipy.special.logsumexp(logits, axis=1, keepdims=True))[
            np.arange(90), labels
        ]
        return -2.0 * likelihood.sum() + (weights[:, :4] ** 2).sum() / 2

    best = scipy.optimize.minimize(
        loss, np.zeros(5 * classes), method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-9}
    ).fun
    regression = ours[-1]
    own = np.concatenate([regression.coef_, regression.intercept_[:, None]], 1)
    flat = np.zeros((classes, 5))
    flat[: len(own)] = own
    assert loss(flat.ravel()) == pytest.approx(best, rel=1e-6)


def test_folds_by_a_plain_loop():
    draw = np.random.default_rng(2)
    features = sparse.csr_matrix(draw.normal(size=(60, 3)))
    labels = draw.integers(0, 2, 60)
    groups = np.arange(60)
    found = out_of_fold(features, labels, groups, 1.0)
    for fit, ask in StratifiedKFold(5, shuffle=True, random_state=0).split(np.zeros(60), labels):
        for one in ask:
            assert found[one] == fitted(features[fit], labels[fit], 1.0).predict(features[[one]])[0]


def test_classes_of_few_texts_are_left_out():
    _, found = told(0.9, relabelled=lambda labels: [2] * 10 + labels[10:])
    assert np.isnan(found["readout_words_attention"][:10]).all()
    assert not np.isnan(found["readout_words_attention"][10:]).any()
    _, alone = told(0.9, relabelled=lambda labels: [0] * TEXTS)
    assert all(np.isnan(column).all() for column in alone.values())


def test_the_claims_are_differences_of_balanced_accuracies():
    labels, found = told(0.5, relabelled=lambda labels: np.where(np.arange(TEXTS) % 3, 0, labels))

    def balanced(kind):
        right = found[f"readout_words_{kind}"]
        return np.mean([right[labels == label].mean() for label in (0, 1)])

    number = next(one for one in READING.claims if one.criterion == "leak").measure(
        table("readouts", found)
    )
    assert number.value == pytest.approx(balanced("attention") - balanced("equal"))
