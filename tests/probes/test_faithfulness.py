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
from tests.toys import predict, toy_batch

THRESHOLDS = (0.01, 0.05, 0.1, 0.2, 0.5)
SHARES = sorted({*THRESHOLDS, *GRID})


def p_of(subject, row, places, operator):
    """The probability of the predicted class of one text that keeps the words at these places."""
    decision = int(subject.outputs.logits[row].argmax())
    if not places and operator in ("delete", "attention"):
        return math.nan
    if operator == "attention":
        attention = subject.readout.attention
        positions = subject.batch.content[row].nonzero()[:, 0][places]
        weights = attention.clone()
        weights[row] = 0
        weights[row, positions] = attention[row, positions] / attention[row, positions].sum()
        return subject.readout.predict(weights)[row, decision].item()
    text, inputs = changed(subject, row, places, operator)
    if inputs is None:
        return predict(subject.classifier, text)[0, decision].item()
    logits = subject.classifier.outputs_from(text, inputs).logits
    return logits.softmax(-1)[0, decision].item()


def changed(subject, row, places, operator):
    """One text by itself without the other words; and its vectors, where these are changed."""
    batch = subject.batch
    ids = batch.ids[row][batch.content[row]].tolist()
    if operator == "delete":
        ids = [ids[place] for place in places]
    elif operator == "mask":
        ids = [word if place in places else UNKNOWN for place, word in enumerate(ids)]
    text = toy_batch([len(ids)])
    text.ids[0, 1:-1] = torch.tensor(ids)
    if operator in ("delete", "mask"):
        return text, None
    inputs = subject.classifier.inputs(text).detach().clone()
    replacement = inputs[0, 1:-1].mean(0) if operator == "mean" else 0
    for place in range(len(ids)):
        if place not in places:
            inputs[0, place + 1] = replacement
    return text, inputs


@cache
def examined(operator):
    """Three texts, and their numbers by attention and gradient."""
    subject = subject_of(lengths=[7, 11, 1], padding=2)
    probe = Faithfulness(operators=[operator], importances=["attention", "gradient_input"])
    return subject, measured(probe, subject)


def falls_of(subject, name, row, operator):
    """The curves of one text by a loop over the shares: fall of p by deletion and insertion."""
    scores = subject.scores(name)[row][subject.batch.content[row]].tolist()
    length = len(scores)
    order = sorted(range(length), key=lambda place: -scores[place])
    whole = p_of(subject, row, list(range(length)), "zeros")
    falls = {"deletion": [], "insertion": []}
    for share in SHARES:
        count = math.ceil(share * length - 1e-9)
        without = p_of(subject, row, sorted(order[count:]), operator)
        top = p_of(subject, row, sorted(order[:count]), operator)
        falls["deletion"].append(whole - without)
        falls["insertion"].append(whole - top)
    return falls


@pytest.mark.parametrize("row", [0, 1, 2])
@pytest.mark.parametrize("name", ["attention", "gradient_input"])
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize(
    ("kind", "aopc"), [("deletion", "comprehensiveness"), ("insertion", "sufficiency")]
)
def test_the_numbers_are_those_of_a_loop_over_texts(operator, name, row, kind, aopc):
    subject, numbers = examined(operator)
    falls = falls_of(subject, name, row, operator)[kind]
    curve = numbers[f"{kind}_{name}_by_{operator}"]
    mean = numbers[f"{aopc}_{name}_by_{operator}"]

    assert curve.step.tolist() == SHARES
    assert_allclose(curve.value[row].detach().numpy(), falls, atol=1e-9)
    expected_mean = np.mean([falls[SHARES.index(threshold)] for threshold in THRESHOLDS])
    assert mean.value[row].item() == pytest.approx(expected_mean, nan_ok=True)


@pytest.mark.parametrize("row", [0, 1, 2])
@pytest.mark.parametrize("name", ["attention", "gradient_input"])
@pytest.mark.parametrize("operator", OPERATORS)
def test_the_area_is_that_of_the_loops_curve(operator, name, row):
    subject, numbers = examined(operator)
    falls = falls_of(subject, name, row, operator)["deletion"]
    on_grid = [falls[SHARES.index(share)] for share in GRID]
    expected = np.trapezoid([0, *on_grid], [0, *GRID]) / GRID[-1]
    area = numbers[f"deletion_area_{name}_by_{operator}"]
    assert area.value[row].item() == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("operator", OPERATORS)
def test_texts_without_a_word_are_undefined_where_one_is_needed(operator):
    subject = subject_of(lengths=[3])
    nothing = torch.zeros_like(subject.batch.content)
    predicted = predictions_keeping(subject, nothing, operator)
    assert bool(predicted.isnan().all()) == (operator in ("delete", "attention"))


def test_the_gap_is_that_of_the_importances_which_should_add_up():
    subject = subject_of()
    numbers = measured(
        Faithfulness(
            importances=["attention", "integrated_gradients", "kernel_shap"], operators=["zeros"]
        ),
        subject,
    )
    gaps = {name for name in numbers if name.startswith("completeness_gap_")}
    assert gaps == {"completeness_gap_integrated_gradients", "completeness_gap_kernel_shap"}
    total = subject.importance("integrated_gradients").total(subject)
    expected = (subject.scores("integrated_gradients").sum(-1) - total).abs()
    assert_close(numbers["completeness_gap_integrated_gradients"].value, expected)


def test_an_undefined_importance_has_no_numbers():
    class Nowhere(Importance):
        name = "nowhere"
        title = "nowhere"

        def scores(self, subject):
            return torch.full_like(subject.readout.attention, torch.nan)

    numbers = measured(
        Faithfulness(importances=["nowhere"], operators=["zeros"]),
        subject_of(importances={"nowhere": Nowhere()}),
    )
    assert all(curve.value.isnan().all() for name, curve in numbers.items() if "nowhere" in name)
