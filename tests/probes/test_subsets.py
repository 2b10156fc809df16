import itertools
import warnings
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.testing import assert_allclose

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
def measurements(subject):
    return measured(Subsets(NAMES, most_words=5), subject)


@dataclass(frozen=True)
class Outcome:
    """What the model makes of a text with some of its words.

    Attributes:
        logit: of the class predicted for the whole text: what is explained.
        probability: of this class.
        is_decision: whether this class is predicted.
    """

    logit: float
    probability: float
    is_decision: bool


def outcome(subject, row, words):
    """Of one text that keeps the words at these places: the others' vectors are zero."""
    model = subject.classifier
    text = subject.batch.rows(slice(row, row + 1))
    inputs = model.inputs(text).detach().clone()
    places = subject.batch.content[row].nonzero()[:, 0].tolist()
    removed = [position for place, position in enumerate(places) if place not in words]
    inputs[0, removed] = 0
    logits = model.outputs_from(text, inputs).logits[0].detach()
    decision = int(subject.outputs.logits[row].argmax())
    probability = logits.softmax(-1)[decision].item()
    return Outcome(logits[decision].item(), probability, int(logits.argmax()) == decision)


def outcomes(subject, row):
    """Set of words → what the model makes of them."""
    words = range(LENGTHS[row])
    sizes = range(LENGTHS[row] + 1)
    subsets = itertools.chain.from_iterable(itertools.combinations(words, n) for n in sizes)
    return {frozenset(subset): outcome(subject, row, subset) for subset in subsets}


def scores_of(subject, name, row):
    return subject.scores(name)[row][subject.batch.content[row]]


def aopc(subject, row):
    """A function of an order of removal: the mean fall of the probability over its prefixes."""
    every = frozenset(range(LENGTHS[row]))
    of_subset = outcomes(subject, row)
    whole = of_subset[every].probability

    def of_order(order):
        falls = []
        for k in range(1, len(order) + 1):
            remaining = every - set(order[:k])
            falls.append(whole - of_subset[remaining].probability)
        return np.mean(falls)

    return of_order


def areas_of_all_orders(subject, row):
    orders = itertools.permutations(range(LENGTHS[row]))
    return [*map(aopc(subject, row), orders)]


@pytest.mark.parametrize("row", [0, 1, 2])
def test_the_limits_are_those_of_all_permutations(subject, measurements, row):
    areas = areas_of_all_orders(subject, row)
    lower = measurements["aopc_lower"].value[row].item()
    upper = measurements["aopc_upper"].value[row].item()
    assert lower == pytest.approx(min(areas))
    assert upper == pytest.approx(max(areas))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("row", [0, 1, 2])
def test_an_importances_order_stands_between_the_limits(subject, measurements, name, row):
    scores = scores_of(subject, name, row)
    order = scores.argsort(descending=True).tolist()
    expected = aopc(subject, row)(order)
    area = measurements[f"aopc_{name}"].value[row].item()
    assert area == pytest.approx(expected)
    if LENGTHS[row] > 1:
        areas = areas_of_all_orders(subject, row)
        place = (expected - min(areas)) / (max(areas) - min(areas))
        normalised = measurements[f"aopc_normalised_{name}"].value[row].item()
        assert normalised == pytest.approx(place)


def minimal(sets):
    """How many of the sets have none of the others as a part."""
    return sum(not any(part < whole for part in sets) for whole in sets)


@pytest.mark.parametrize("row", [0, 1, 2])
def test_sets_are_those_of_a_search(subject, measurements, row):
    results = outcomes(subject, row)
    every = frozenset(range(LENGTHS[row]))
    necessary = [words for words in results if not results[every - words].is_decision]
    sufficient = [words for words in results if results[words].is_decision]
    necessary_sets = measurements["necessary_sets"].value[row].item()
    sufficient_sets = measurements["sufficient_sets"].value[row].item()
    assert necessary_sets == minimal(necessary)
    assert sufficient_sets == minimal(sufficient)

    fewest = min(map(len, necessary), default=np.nan)
    input_set = measurements["input_set"].value[row].item()
    assert input_set == pytest.approx(fewest, nan_ok=True)


def shapley_of(subject, measurements, row):
    return measurements["shapley"].value[row][subject.batch.content[row]].numpy()


def shapley_by_hand(subject, row):
    """What a word adds on average over all orders."""
    results = outcomes(subject, row)
    orders = list(itertools.permutations(range(LENGTHS[row])))
    shapley = np.zeros(LENGTHS[row])
    for order in orders:
        for place, word in enumerate(order):
            before = results[frozenset(order[:place])]
            after = results[frozenset(order[: place + 1])]
            shapley[word] += (after.logit - before.logit) / len(orders)
    return shapley


@pytest.mark.parametrize("row", [0, 1])
def test_the_shapley_values_are_what_a_word_adds_on_average_over_all_orders(
    subject, measurements, row
):
    expected = shapley_by_hand(subject, row)
    assert_allclose(shapley_of(subject, measurements, row), expected, atol=1e-9)


@pytest.mark.parametrize("row", [0, 1])
def test_the_error_is_that_of_importances_that_should_add_up(subject, measurements, row):
    expected = shapley_by_hand(subject, row)
    sampled = scores_of(subject, "shapley_sampling", row).numpy()
    error = np.abs(sampled - expected).sum() / np.abs(expected).sum()
    measured_error = measurements["shapley_error_shapley_sampling"].value[row].item()
    assert measured_error == pytest.approx(error)
    assert "shapley_error_gradient_input" not in measurements


@pytest.mark.parametrize("row", [0, 1])
@pytest.mark.parametrize(
    ("name", "signed"), [("attention", False), ("gradient_input", True), ("shapley_sampling", True)]
)
def test_scores_without_a_sign_are_compared_with_the_sizes(
    subject, measurements, row, name, signed
):
    shapley = shapley_by_hand(subject, row)
    wanted = shapley if signed else np.abs(shapley)
    scores = scores_of(subject, name, row).numpy()
    share = scores / np.abs(scores).sum()
    wanted_share = wanted / np.abs(wanted).sum()
    distance = np.abs(share - wanted_share).sum() / 2
    share_error = measurements[f"shapley_share_error_{name}"].value[row].item()
    assert share_error == pytest.approx(distance)

    same_top = measurements[f"shapley_top_{name}"].value[row].item()
    assert same_top == (scores.argmax() == wanted.argmax())


@pytest.mark.slow
def test_the_shapley_values_are_shaps_exact_ones(subject, measurements):
    """pytest -m slow tests/probes/test_subsets.py: shap alone takes ten seconds to import."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shap = pytest.importorskip("shap")

        def logits(masks):
            return np.array(
                [outcome(subject, 0, set(np.flatnonzero(mask))).logit for mask in masks]
            )

        background = shap.maskers.Independent(np.zeros((1, LENGTHS[0])))
        explainer = shap.explainers.Exact(logits, background)
        expected = explainer(np.ones((1, LENGTHS[0]))).values[0]
    assert_allclose(shapley_of(subject, measurements, 0), expected, atol=1e-9)


@pytest.mark.parametrize("lengths", [[7, 4, 6], [7, 6], [6]])
def test_no_method_is_asked_about_longer_texts(lengths, monkeypatch):
    lengths_read = []
    of_text = ShapleySampling.of_text

    def counted(importance, explained, whole):
        lengths_read.append(whole.shape[1])
        return of_text(importance, explained, whole)

    monkeypatch.setattr(ShapleySampling, "of_text", counted)
    numbers = values(Subsets(NAMES, most_words=5), subject_of(lengths=lengths))
    assert lengths_read == [length for length in lengths if length <= 5]
    for metric in ("aopc_upper", "shapley_tau_attention", "shapley_error_shapley_sampling"):
        assert numbers[metric].isfinite().tolist() == [length <= 5 for length in lengths]
    assert numbers["shapley"].isfinite().sum() == sum(lengths_read)
