import math
from functools import cache

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch.testing import assert_close

from attnprobe.data.vocabulary import UNKNOWN
from attnprobe.importance.base import Importance
from attnprobe.importance.word_removal import OPERATORS, predictions_keeping
from attnprobe.probes.faithfulness import GRID, Faithfulness
from tests.importance.subjects import subject_of
from tests.probes.tables import measured
from tests.probes.texts import Text
from tests.toys import predict, toy_batch

THRESHOLDS = (0.01, 0.05, 0.1, 0.2, 0.5)
SHARES = sorted({*THRESHOLDS, *GRID})


NEEDS_A_WORD = ("delete", "attention")


"""Operators under which nothing is left of a text without a word."""


IMPORTANCES = ["attention", "gradient_input"]


def p_of(subject, row, places, operator):
    """The probability of the predicted class of one text that keeps the words at these places."""
    decision = int(subject.outputs.logits[row].argmax())
    if not places and operator in NEEDS_A_WORD:
        return math.nan
    if operator == "attention":
        prediction = under_remaining_attention(subject, row, places)
    elif operator in ("delete", "mask"):
        text = changed_text(subject, row, places, operator)
        (prediction,) = predict(subject.classifier, text)
    else:
        prediction = under_changed_vectors(subject, row, places, operator)
    return prediction[decision].item()


def words_of(subject, row):
    return Text(subject, row).at_words(subject.batch.ids).tolist()


def text_of(words):
    """One text by itself."""
    text = toy_batch([len(words)])
    text.ids[0, 1:-1] = torch.tensor(words)
    return text


def changed_text(subject, row, places, operator):
    """The text whose other words are deleted, or are unknown."""
    words = words_of(subject, row)
    if operator == "delete":
        return text_of([words[place] for place in places])
    for place in range(len(words)):
        if place not in places:
            words[place] = UNKNOWN
    return text_of(words)


def under_changed_vectors(subject, row, places, operator):
    """Where the vectors of the other words are zero, or the mean of all words."""
    text = text_of(words_of(subject, row))
    inputs = subject.classifier.inputs(text).detach().clone()
    vectors = inputs[0, 1:-1]
    replacement = vectors.mean(0) if operator == "mean" else 0
    for place in range(len(vectors)):
        if place not in places:
            vectors[place] = replacement
    outputs = subject.classifier.outputs_from(text, inputs)
    return outputs.logits[0].softmax(-1)


def under_remaining_attention(subject, row, places):
    """Where the weights of the other words are 0, and the remaining ones sum to 1."""
    attention = subject.readout.attention
    positions = subject.batch.content[row].nonzero()[places]
    weights = torch.zeros_like(attention[row])
    weights[positions] = attention[row, positions]
    remaining = attention.clone()
    remaining[row] = weights / weights.sum()
    return subject.readout.predict(remaining)[row]


@cache
def examined(operator):
    """Three texts, and their numbers by attention and gradient."""
    subject = subject_of(lengths=[7, 11, 1], padding=2)
    probe = Faithfulness(operators=[operator], importances=IMPORTANCES)
    return subject, measured(probe, subject)


def falls_of(subject, name, row, operator, kind):
    """Share → the fall of p, by a loop: the top words are gone, or they alone are there."""
    scores = Text(subject, row).scores(name)
    order = np.argsort(-scores, kind="stable").tolist()
    whole = p_of(subject, row, order, "zeros")
    falls = {}
    for share in SHARES:
        count = math.ceil(share * len(order) - 1e-9)
        remaining = order[count:] if kind == "deletion" else order[:count]
        falls[share] = whole - p_of(subject, row, sorted(remaining), operator)
    return falls


@pytest.mark.parametrize("row", [0, 1, 2])
@pytest.mark.parametrize("name", IMPORTANCES)
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize(
    ("kind", "aopc"),
    [
        ("deletion", "comprehensiveness"),
        ("insertion", "sufficiency"),
    ],
)
def test_the_numbers_are_those_of_a_loop_over_texts(operator, name, row, kind, aopc):
    subject, numbers = examined(operator)
    falls = falls_of(subject, name, row, operator, kind)
    mean_fall = np.mean([falls[threshold] for threshold in THRESHOLDS])

    curve = numbers[f"{kind}_{name}_by_{operator}"]
    mean = numbers[f"{aopc}_{name}_by_{operator}"]

    assert curve.step.tolist() == SHARES
    assert_allclose(curve.value[row].detach(), list(falls.values()), atol=1e-9)
    assert mean.value[row].item() == pytest.approx(mean_fall, nan_ok=True)


@pytest.mark.parametrize("row", [0, 1, 2])
@pytest.mark.parametrize("name", IMPORTANCES)
@pytest.mark.parametrize("operator", OPERATORS)
def test_the_area_is_that_of_the_loops_curve(operator, name, row):
    subject, numbers = examined(operator)
    falls = falls_of(subject, name, row, operator, "deletion")
    on_grid = [falls[share] for share in GRID]
    largest_share = GRID[-1]
    expected = np.trapezoid([0, *on_grid], [0, *GRID]) / largest_share
    area = numbers[f"deletion_area_{name}_by_{operator}"]
    assert area.value[row].item() == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("operator", OPERATORS)
def test_texts_without_a_word_are_undefined_where_one_is_needed(operator):
    subject = subject_of(lengths=[3])
    nothing = torch.zeros_like(subject.batch.content)
    predicted = predictions_keeping(subject, nothing, operator)
    assert bool(predicted.isnan().all()) == (operator in NEEDS_A_WORD)


def test_the_gap_is_that_of_the_importances_which_should_add_up():
    subject = subject_of()
    probe = Faithfulness(
        importances=["attention", "integrated_gradients", "kernel_shap"],
        operators=["zeros"],
    )
    numbers = measured(probe, subject)
    gaps = {name for name in numbers if name.startswith("completeness_gap_")}
    assert gaps == {"completeness_gap_integrated_gradients", "completeness_gap_kernel_shap"}

    total = subject.importance("integrated_gradients").total(subject)
    scores = subject.scores("integrated_gradients")
    gap = (scores.sum(-1) - total).abs()
    assert_close(numbers["completeness_gap_integrated_gradients"].value, gap)


class Nowhere(Importance):
    name = "nowhere"
    title = "nowhere"

    def scores(self, subject):
        return torch.full_like(subject.readout.attention, torch.nan)


def test_an_undefined_importance_has_no_numbers():
    probe = Faithfulness(importances=["nowhere"], operators=["zeros"])
    subject = subject_of(importances={"nowhere": Nowhere()})
    numbers = measured(probe, subject)
    names = [name for name in numbers if "nowhere" in name]
    assert names
    for name in names:
        assert numbers[name].value.isnan().all(), name
