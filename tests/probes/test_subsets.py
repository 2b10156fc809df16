import itertools
import warnings
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.testing import assert_allclose

from attnprobe.importance.perturbation import ShapleySampling
from attnprobe.probes.subsets import Subsets
from tests.importance.subjects import subject_of
from tests.probes.tables import values
from tests.probes.texts import Text, numbers_of

LENGTHS = [5, 4, 1, 7]
NAMES = ["attention", "gradient_input", "shapley_sampling"]


@pytest.fixture(scope="module")
def subject():
    return subject_of(lengths=LENGTHS, padding=1)


@pytest.fixture(scope="module")
def numbers(subject):
    return values(Subsets(NAMES, most_words=5), subject)


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
    positions = subject.batch.content[row].nonzero()
    for place, position in enumerate(positions):
        if place not in words:
            inputs[0, position] = 0
    (logits,) = model.outputs_from(text, inputs).logits.detach()
    probability = logits.softmax(-1)
    decision = subject.outputs.logits[row].argmax()
    return Outcome(
        logit=logits[decision].item(),
        probability=probability[decision].item(),
        is_decision=(logits.argmax() == decision).item(),
    )


def outcomes_of(subject, row):
    """Set of words → what the model makes of them."""
    words = range(LENGTHS[row])
    results = {}
    for size in range(len(words) + 1):
        for subset in itertools.combinations(words, size):
            results[frozenset(subset)] = outcome(subject, row, subset)
    return results


@pytest.fixture(scope="module")
def outcomes(subject):
    """Of each text that is no longer than the probe reads."""
    return [outcomes_of(subject, row) for row in range(3)]


def aopc(results, order):
    """The mean fall of the probability over the prefixes of an order of removal."""
    every = frozenset(order)
    whole = results[every].probability
    falls = []
    for count in range(1, len(order) + 1):
        remaining = every - set(order[:count])
        falls.append(whole - results[remaining].probability)
    return np.mean(falls)


def limits_of_all_orders(results, length):
    """The least and the largest AOPC."""
    areas = [aopc(results, order) for order in itertools.permutations(range(length))]
    return min(areas), max(areas)


@pytest.mark.parametrize("row", [0, 1, 2])
def test_the_limits_are_those_of_all_permutations(outcomes, numbers, row):
    results = outcomes[row]
    lowest, highest = limits_of_all_orders(results, LENGTHS[row])
    result = numbers_of(numbers, row)
    assert result["aopc_lower"] == pytest.approx(lowest)
    assert result["aopc_upper"] == pytest.approx(highest)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("row", [0, 1, 2])
def test_the_aopc_of_an_importance_is_that_of_its_order(subject, outcomes, numbers, name, row):
    scores = Text(subject, row).scores(name)
    order = np.argsort(-scores)
    expected = aopc(outcomes[row], order)
    result = numbers_of(numbers, row)
    assert result[f"aopc_{name}"] == pytest.approx(expected)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("row", [0, 1])
def test_an_importances_order_stands_between_the_limits(outcomes, numbers, name, row):
    lowest, highest = limits_of_all_orders(outcomes[row], LENGTHS[row])
    result = numbers_of(numbers, row)
    beyond_lowest = result[f"aopc_{name}"] - lowest
    place = beyond_lowest / (highest - lowest)
    assert result[f"aopc_normalised_{name}"] == pytest.approx(place)


def minimal(sets):
    """How many of the sets have none of the others as a part."""
    return sum(not any(part < whole for part in sets) for whole in sets)


@pytest.mark.parametrize("row", [0, 1, 2])
def test_sets_are_those_of_a_search(outcomes, numbers, row):
    results = outcomes[row]
    every = frozenset(range(LENGTHS[row]))
    necessary = []
    sufficient = []
    for words in results:
        if results[words].is_decision:
            sufficient.append(words)
        if not results[every - words].is_decision:
            necessary.append(words)
    fewest = min(map(len, necessary), default=np.nan)

    result = numbers_of(numbers, row)

    assert result["necessary_sets"] == minimal(necessary)
    assert result["sufficient_sets"] == minimal(sufficient)
    assert result["input_set"] == pytest.approx(fewest, nan_ok=True)


def shapley_by_hand(results):
    """What a word adds on average over all orders."""
    length = max(map(len, results))
    orders = list(itertools.permutations(range(length)))
    shapley = np.zeros(length)
    for order in orders:
        words = frozenset()
        for word in order:
            before = results[words].logit
            words |= {word}
            after = results[words].logit
            shapley[word] += after - before
    return shapley / len(orders)


@pytest.mark.parametrize("row", [0, 1])
def test_the_shapley_values_are_what_a_word_adds_on_average_over_all_orders(
    subject, outcomes, numbers, row
):
    expected = shapley_by_hand(outcomes[row])
    shapley = Text(subject, row).at_words(numbers["shapley"])
    assert_allclose(shapley, expected, atol=1e-9)


@pytest.mark.parametrize("row", [0, 1])
def test_the_error_is_that_of_importances_that_should_add_up(subject, outcomes, numbers, row):
    shapley = shapley_by_hand(outcomes[row])
    sampled = Text(subject, row).scores("shapley_sampling")
    difference = np.abs(sampled - shapley)
    error = difference.sum() / np.abs(shapley).sum()
    result = numbers_of(numbers, row)
    assert result["shapley_error_shapley_sampling"] == pytest.approx(error)
    assert "shapley_error_gradient_input" not in result


SIGNED = {
    "attention": False,
    "gradient_input": True,
    "shapley_sampling": True,
}


@pytest.mark.parametrize("row", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_scores_without_a_sign_are_compared_with_the_sizes(subject, outcomes, numbers, row, name):
    scores = Text(subject, row).scores(name)
    shapley = shapley_by_hand(outcomes[row])
    if not SIGNED[name]:
        shapley = np.abs(shapley)
    share = scores / np.abs(scores).sum()
    shapley_share = shapley / np.abs(shapley).sum()
    difference = np.abs(share - shapley_share)
    distance = difference.sum() / 2
    is_same_top = scores.argmax() == shapley.argmax()

    result = numbers_of(numbers, row)

    assert result[f"shapley_share_error_{name}"] == pytest.approx(distance)
    assert result[f"shapley_top_{name}"] == is_same_top


@pytest.mark.slow
def test_the_shapley_values_are_shaps_exact_ones(subject, numbers):
    """pytest -m slow tests/probes/test_subsets.py: shap alone takes ten seconds to import."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shap = pytest.importorskip("shap")

        def logits(masks):
            outcomes = [outcome(subject, 0, np.flatnonzero(mask)) for mask in masks]
            return np.array([result.logit for result in outcomes])

        background = shap.maskers.Independent(np.zeros((1, LENGTHS[0])))
        explainer = shap.explainers.Exact(logits, background)
        explanation = explainer(np.ones((1, LENGTHS[0])))
    shapley = Text(subject, 0).at_words(numbers["shapley"])
    assert_allclose(shapley, explanation.values[0], atol=1e-9)


@pytest.mark.parametrize("lengths", [[7, 4, 6], [7, 6], [6]])
def test_no_method_is_asked_about_longer_texts(lengths, monkeypatch):
    lengths_read = []
    of_text = ShapleySampling.of_text

    def counted(importance, explained, whole):
        lengths_read.append(whole.shape[1])
        return of_text(importance, explained, whole)

    monkeypatch.setattr(ShapleySampling, "of_text", counted)
    subject = subject_of(lengths=lengths)
    numbers = values(Subsets(NAMES, most_words=5), subject)

    is_short = [length <= 5 for length in lengths]
    assert lengths_read == [length for length in lengths if length <= 5]
    for metric in ("aopc_upper", "shapley_tau_attention", "shapley_error_shapley_sampling"):
        is_defined = numbers[metric].isfinite()
        assert is_defined.tolist() == is_short, metric
    assert numbers["shapley"].isfinite().sum() == sum(lengths_read)
