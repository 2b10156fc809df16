import itertools
import warnings

import numpy as np
import pytest

from attnprobe.importance.perturbation import ShapleySampling
from attnprobe.probes.subsets import Subsets
from tests.importance.subjects import subject_of
from tests.probes.tables import measured, values

LENGTHS = [5, 4, 1, 7]
NAMES = ["attention", "gradient_input", "shapley_sampling"]


@pytest.fixture(scope="module")
def subject():
    return subject_of(lengths=LENGTHS, padding=1)


@pytest.fixture(scope="module")
def found(subject):
    return measured(Subsets(NAMES, most_words=5), subject)


def outcome(subject, row, kept):
    """(what is explained, p, decision) of one text that keeps the words at these places: the
    others' vectors are zero."""
    model = subject.classifier
    content = subject.batch.content[row]
    alone = subject.batch.rows(slice(row, row + 1))
    inputs = model.inputs(alone).detach().clone()
    places = content.nonzero()[:, 0]
    inputs[0, [int(places[place]) for place in range(len(places)) if place not in kept]] = 0
    logits = model.outputs_from(alone, inputs).logits[0].detach()
    chosen = int(subject.outputs.logits[row].argmax())
    return logits[chosen].item(), logits.softmax(-1)[chosen].item(), int(logits.argmax()) == chosen


def subsets_of(words):
    return [
        frozenset(some)
        for size in range(words + 1)
        for some in itertools.combinations(range(words), size)
    ]


@pytest.mark.parametrize("row", [0, 1, 2])
def test_limits_and_orders_are_those_of_all_permutations(subject, found, row):
    words = LENGTHS[row]
    p = {kept: outcome(subject, row, kept)[1] for kept in subsets_of(words)}
    every = frozenset(range(words))

    def aopc(order):
        return np.mean([p[every] - p[every - set(order[: k + 1])] for k in range(words)])

    areas = [aopc(order) for order in itertools.permutations(range(words))]
    assert found["aopc_lower"].value[row].item() == pytest.approx(min(areas))
    assert found["aopc_upper"].value[row].item() == pytest.approx(max(areas))
    for name in NAMES:
        scores = subject.scores(name)[row][subject.batch.content[row]]
        own = aopc(scores.argsort(descending=True).tolist())
        assert found[f"aopc_{name}"].value[row].item() == pytest.approx(own)
        if words > 1:
            place = (own - min(areas)) / (max(areas) - min(areas))
            assert found[f"aopc_normalised_{name}"].value[row].item() == pytest.approx(place)


@pytest.mark.parametrize("row", [0, 1, 2])
def test_sets_are_those_of_a_search(subject, found, row):
    words = LENGTHS[row]
    same = {kept: outcome(subject, row, kept)[2] for kept in subsets_of(words)}
    every = frozenset(range(words))
    necessary = [gone for gone in same if not same[every - gone]]
    sufficient = [kept for kept in same if same[kept]]
    for metric, sets in (("necessary_sets", necessary), ("sufficient_sets", sufficient)):
        assert found[metric].value[row].item() == sum(
            not any(other < one for other in sets) for one in sets
        )
    fewest = min(map(len, necessary), default=np.nan)
    assert found["input_set"].value[row].item() == pytest.approx(fewest, nan_ok=True)


def of_content(subject, found, row):
    return found["shapley"].value[row][subject.batch.content[row]].numpy()


@pytest.mark.parametrize("row", [0, 1])
def test_the_shapley_values_are_what_a_word_adds_on_average_over_all_orders(subject, found, row):
    words = LENGTHS[row]
    value = {kept: outcome(subject, row, kept)[0] for kept in subsets_of(words)}
    orders = list(itertools.permutations(range(words)))
    expected = np.zeros(words)
    for order in orders:
        for place, word in enumerate(order):
            expected[word] += (
                value[frozenset(order[: place + 1])] - value[frozenset(order[:place])]
            ) / len(orders)
    np.testing.assert_allclose(of_content(subject, found, row), expected, atol=1e-9)
    sampled = subject.scores("shapley_sampling")[row][subject.batch.content[row]].numpy()
    error = np.abs(sampled - expected).sum() / np.abs(expected).sum()
    assert found["shapley_error_shapley_sampling"].value[row].item() == pytest.approx(error)
    assert "shapley_error_gradient_input" not in found
    for name, wanted in (
        ("attention", np.abs(expected)),
        ("gradient_input", expected),
        ("shapley_sampling", expected),
    ):
        own = subject.scores(name)[row][subject.batch.content[row]].numpy()
        apart = np.abs(own / np.abs(own).sum() - wanted / np.abs(wanted).sum()).sum() / 2
        assert found[f"shapley_share_error_{name}"].value[row].item() == pytest.approx(apart)
        assert found[f"shapley_top_{name}"].value[row].item() == (own.argmax() == wanted.argmax())


@pytest.mark.slow
def test_the_shapley_values_are_shaps_exact_ones(subject, found):
    """pytest -m slow tests/probes/test_subsets.py: shap alone takes ten seconds to import."""
    row = 0
    words = LENGTHS[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shap = pytest.importorskip("shap")

        def explained(kept):
            return np.array([outcome(subject, row, set(np.flatnonzero(one)))[0] for one in kept])

        explainer = shap.explainers.Exact(explained, shap.maskers.Independent(np.zeros((1, words))))
        expected = explainer(np.ones((1, words))).values[0]
    np.testing.assert_allclose(of_content(subject, found, row), expected, atol=1e-9)


@pytest.mark.parametrize("lengths", [[7, 4, 6], [7, 6], [6]])
def test_no_method_is_asked_about_longer_texts(lengths, monkeypatch):
    asked = []
    of_text = ShapleySampling.of_text
    monkeypatch.setattr(
        ShapleySampling,
        "of_text",
        lambda one, *rest: asked.append(rest[1].shape[1]) or of_text(one, *rest),
    )
    found = values(Subsets(NAMES, most_words=5), subject_of(lengths=lengths))
    assert asked == [length for length in lengths if length <= 5]
    for metric in ("aopc_upper", "shapley_tau_attention", "shapley_error_shapley_sampling"):
        assert found[metric].isfinite().tolist() == [length <= 5 for length in lengths]
    assert found["shapley"].isfinite().sum() == sum(asked)
