import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from attnprobe.measures import jensen_shannon, kendall_tau
from attnprobe.probes.base import Subject
from attnprobe.probes.single_weight import SingleWeight, flip_table
from tests.probes.tables import NAN, subject_of, table, values
from tests.probes.texts import numbers_of
from tests.toys import toy_batch, toy_classifier, undecided

LENGTHS = [9, 4, 1, 2, 12]


@dataclass(frozen=True)
class Effect:
    """What the erasure of one item does.

    Attributes:
        divergence: JSD of the prediction without it, in nats.
        flip: 1 if the decision is another one without it, else 0.
    """

    divergence: float
    flip: float


def examined(batch, *, question=False):
    classifier = toy_classifier(classes=3, spread=8, question=question)
    subject = subject_of(undecided(classifier, batch), batch)
    return subject, values(SingleWeight(), subject)


@pytest.fixture(scope="module", params=[False, True], ids=["text", "question"])
def compared(request):
    batch = toy_batch(LENGTHS, padding=1, question=request.param)
    return examined(batch, question=request.param)


def effects_of(subject, row):
    """Item → its effect when it is erased by hand."""
    readout = subject.readout
    prediction = readout.prediction()[row]
    effects = {}
    for item in range(1, LENGTHS[row] + 1):
        attention = readout.attention.clone()
        attention[row, item] = 0
        attention[row] /= attention[row].sum()
        without = readout.predict(attention)[row]
        effects[item] = Effect(
            divergence=float(jensen_shannon(prediction, without)),
            flip=float(without.argmax() != prediction.argmax()),
        )
    return effects


def scores_of(subject, name, row):
    """The published importances by their formula."""
    readout = subject.classifier.readout(subject.batch, subject.outputs)
    gradient = readout.gradient()[row]
    attention = subject.readout.attention[row]
    formulas = {
        "attention": attention,
        "gradient": gradient,
        "gradient_attention": gradient * attention,
    }
    return formulas[name].tolist()


SEVERAL = [row for row, length in enumerate(LENGTHS) if length > 1]
IMPORTANCES = ["attention", "gradient", "gradient_attention"]


@pytest.mark.parametrize("name", IMPORTANCES)
@pytest.mark.parametrize("row", SEVERAL)
def test_the_top_item_is_compared_with_all_others(compared, name, row):
    subject, numbers = compared
    effects = effects_of(subject, row)
    scores = scores_of(subject, name, row)
    top = effects.pop(max(effects, key=scores.__getitem__))
    divergences = np.array([effect.divergence for effect in effects.values()])
    flips = np.array([effect.flip for effect in effects.values()])
    expected = {
        "js_top": top.divergence,
        "flip_top": top.flip,
        "js_random": divergences.mean(),
        "flip_random": flips.mean(),
        "delta_js": top.divergence - divergences.mean(),
        "delta_js_negative": (divergences > top.divergence).mean(),
    }
    result = numbers_of(numbers, row)
    for metric, number in expected.items():
        assert result[f"{metric}_{name}"] == pytest.approx(number, abs=1e-9), metric


@pytest.mark.parametrize("name", IMPORTANCES)
@pytest.mark.parametrize("row", SEVERAL)
def test_the_drawn_item_is_one_of_the_others_and_the_same_one_in_all_three_numbers(
    compared, name, row
):
    subject, numbers = compared
    effects = effects_of(subject, row)
    attention = subject.readout.attention[row].tolist()
    scores = scores_of(subject, name, row)
    top = max(effects, key=scores.__getitem__)
    differences = []
    for item, effect in effects.items():
        if item != top:
            change = attention[top] - attention[item]
            divergence = effects[top].divergence - effect.divergence
            differences.append((change, divergence, effect.flip))

    result = numbers_of(numbers, row)

    drawn = (
        result[f"drawn_delta_attention_{name}"],
        result[f"drawn_delta_js_{name}"],
        result[f"drawn_flip_{name}"],
    )
    assert any(drawn == pytest.approx(difference, abs=1e-9) for difference in differences)


@pytest.mark.parametrize("row", SEVERAL)
@pytest.mark.parametrize(("name", "place"), [("second", 1), ("lowest", -1)])
def test_the_second_and_the_lowest_item_are_those_by_attention(compared, row, name, place):
    subject, numbers = compared
    effects = effects_of(subject, row)
    attention = subject.readout.attention[row].tolist()
    order = sorted(effects, key=attention.__getitem__, reverse=True)
    effect = effects[order[place]]
    result = numbers_of(numbers, row)
    assert result[f"js_{name}"] == pytest.approx(effect.divergence, abs=1e-9)
    assert result[f"flip_{name}"] == effect.flip


def test_tau_is_that_of_attention_and_effect(compared):
    subject, numbers = compared
    readout = subject.readout
    tau = kendall_tau(readout.attention, numbers["effect_js"], readout.content)
    assert_close(numbers["tau_attention_effect"], tau, equal_nan=True)


def test_an_example_of_one_item_is_undefined_and_counted():
    _, numbers = examined(toy_batch(LENGTHS))
    assert numbers["undefined_erasure"].tolist() == [0, 0, 1, 0, 0]
    endings = ("js_", "flip_", "delta_", "drawn_", "tau_")
    comparisons = [metric for metric in numbers if metric.startswith(endings)]
    assert len(comparisons) == 3 * 9 + 4 + 1
    for metric in comparisons:
        assert numbers[metric].isnan().tolist() == [False, False, True, False, False], metric


def test_all_weight_on_one_item_leaves_what_needs_its_erasure_undefined():
    batch = toy_batch([4])
    subject, _ = examined(batch)
    classifier = subject.classifier
    attention = torch.zeros_like(subject.readout.attention)
    attention[0, 2] = 1
    outputs = replace(subject.outputs, attention=attention)
    readout = classifier.readout(batch, outputs)

    numbers = values(SingleWeight(), Subject(classifier, batch, outputs, readout))

    result = numbers_of(numbers, 0)
    assert result["undefined_erasure"] == 1
    assert math.isnan(result["js_top_attention"])
    assert math.isnan(result["delta_js_negative_attention"])
    assert result["js_random_attention"] == pytest.approx(0, abs=1e-12)
    assert result["drawn_delta_attention_attention"] == 1


def test_the_drawn_item_is_every_other_one_equally_often():
    batch = toy_batch([4] * 600)
    batch.ids[:] = batch.ids[0]
    subject, numbers = examined(batch)
    weights = subject.readout.attention[0, 1:5]
    top, *others = weights.sort(descending=True).values
    drawn = numbers["drawn_delta_attention_attention"]
    counts = []
    for weight in others:
        is_drawn = (drawn - (top - weight)).abs() < 1e-12
        counts.append(int(is_drawn.sum()))
    assert sum(counts) == 600
    assert min(counts) > 160  # 200 expected each, standard deviation 12


def test_flip_tables_by_hand():
    """Of one text the top item flips, and every second other one; of the next every fourth."""
    flips = {
        "flip_top_attention": [1, 0, 0, NAN],
        "flip_random_attention": [0.5, 0.25, 0, NAN],
    }
    results = table("single_weight", flips)
    (row,) = flip_table(results, "attention").to_dict("records")
    assert row == {
        "data and model": "yelp · hanconv",
        "top by": "attention",
        "both": pytest.approx(0.5 / 3),
        "top only": pytest.approx(0.5 / 3),
        "random only": pytest.approx(0.25 / 3),
        "neither": pytest.approx(1.75 / 3),
        "n": 3,
    }
