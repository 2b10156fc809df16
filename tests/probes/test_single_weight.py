from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from attnprobe.measures import jensen_shannon, kendall_tau
from attnprobe.probes.base import Subject
from attnprobe.probes.single_weight import SingleWeight, flip_table
from tests.probes.tables import NAN, subject_of, table, values
from tests.toys import toy_batch, toy_classifier, undecided

LENGTHS = [9, 4, 1, 2, 12]


def examined(batch, *, question=False):
    classifier = undecided(toy_classifier(classes=3, spread=8, question=question), batch)
    subject = subject_of(classifier, batch)
    return subject, values(SingleWeight(), subject)


@pytest.fixture(scope="module", params=[False, True], ids=["text", "question"])
def compared(request):
    return examined(toy_batch(LENGTHS, padding=1, question=request.param), question=request.param)


def effects_of(subject, row):
    """Item → JSD and flip when it is erased by hand."""
    readout = subject.readout
    prediction = readout.prediction()[row]
    effects = {}
    for item in range(1, LENGTHS[row] + 1):
        attention = readout.attention.clone()
        attention[row, item] = 0
        attention[row] /= attention[row].sum()
        without = readout.predict(attention)[row]
        flip = float(without.argmax() != prediction.argmax())
        effects[item] = (float(jensen_shannon(prediction, without)), flip)
    return effects


def scores_of(subject, name, row):
    """The published importances by their formula."""
    gradient = subject.classifier.readout(subject.batch, subject.outputs).gradient()[row]
    attention = subject.readout.attention[row]
    formulas = {
        "attention": attention,
        "gradient": gradient,
        "gradient_attention": gradient * attention,
    }
    return formulas[name]


SEVERAL = [row for row, length in enumerate(LENGTHS) if length > 1]
IMPORTANCES = ["attention", "gradient", "gradient_attention"]


@pytest.mark.parametrize("name", IMPORTANCES)
@pytest.mark.parametrize("row", SEVERAL)
def test_the_top_item_is_compared_with_all_others(compared, name, row):
    subject, numbers = compared
    effects = effects_of(subject, row)
    scores = scores_of(subject, name, row)
    top = max(effects, key=lambda item: float(scores[item]))
    js_top, flip_top = effects.pop(top)
    js = [divergence for divergence, _ in effects.values()]
    flips = [flip for _, flip in effects.values()]
    expected = {
        "js_top": js_top,
        "flip_top": flip_top,
        "js_random": sum(js) / len(js),
        "flip_random": sum(flips) / len(js),
        "delta_js": js_top - sum(js) / len(js),
        "delta_js_negative": sum(divergence > js_top for divergence in js) / len(js),
    }
    measured = {metric: float(numbers[f"{metric}_{name}"][row]) for metric in expected}
    assert measured == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("name", IMPORTANCES)
@pytest.mark.parametrize("row", SEVERAL)
def test_the_drawn_item_is_one_of_the_others_and_the_same_one_in_all_three_numbers(
    compared, name, row
):
    subject, numbers = compared
    effects = effects_of(subject, row)
    attention = subject.readout.attention[row]
    scores = scores_of(subject, name, row)
    top = max(effects, key=lambda item: float(scores[item]))
    js_top, _ = effects.pop(top)
    drawn = {
        metric: float(numbers[f"drawn_{metric}_{name}"][row])
        for metric in ("delta_attention", "delta_js", "flip")
    }
    candidates = []
    for item, (divergence, flip) in effects.items():
        has_weight = float(attention[top] - attention[item]) == pytest.approx(
            drawn["delta_attention"]
        )
        has_effect = js_top - divergence == pytest.approx(drawn["delta_js"], abs=1e-9)
        if has_weight and has_effect and flip == drawn["flip"]:
            candidates.append(item)
    assert candidates


@pytest.mark.parametrize("row", SEVERAL)
@pytest.mark.parametrize(("name", "place"), [("second", 1), ("lowest", -1)])
def test_the_second_and_the_lowest_item_are_those_by_attention(compared, row, name, place):
    subject, numbers = compared
    effects = effects_of(subject, row)
    attention = subject.readout.attention[row]
    order = sorted(effects, key=lambda item: -float(attention[item]))
    divergence, flip = effects[order[place]]
    assert float(numbers[f"js_{name}"][row]) == pytest.approx(divergence, abs=1e-9)
    assert float(numbers[f"flip_{name}"][row]) == flip


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
    attention = torch.zeros_like(subject.readout.attention)
    attention[0, 2] = 1
    outputs = replace(subject.outputs, attention=attention)
    readout = subject.classifier.readout(batch, outputs)
    subject = Subject(subject.classifier, batch, outputs, readout)
    numbers = values(SingleWeight(), subject)
    assert numbers["undefined_erasure"].item() == 1
    assert numbers["js_top_attention"].isnan().all()
    assert numbers["delta_js_negative_attention"].isnan().all()
    assert float(numbers["js_random_attention"]) == pytest.approx(0, abs=1e-12)
    assert float(numbers["drawn_delta_attention_attention"]) == 1


def test_the_drawn_item_is_every_other_one_equally_often():
    batch = toy_batch([4] * 600)
    batch.ids[:] = batch.ids[0]
    subject, numbers = examined(batch)
    weights = subject.readout.attention[0, 1:5]
    differences = (weights.max() - weights).sort().values[1:]
    drawn = numbers["drawn_delta_attention_attention"]
    counts = [(drawn - difference).abs().lt(1e-12).sum().item() for difference in differences]
    assert sum(counts) == 600
    assert min(counts) > 160  # 200 expected each, standard deviation 12


def test_flip_tables_by_hand():
    flips = {"flip_top_attention": [1, 0, 0, NAN], "flip_random_attention": [0.5, 0.25, 0, NAN]}
    (row,) = flip_table(table("single_weight", flips), "attention").to_dict("records")
    assert row["data and model"] == "yelp · hanconv"
    assert [row[name] for name in ("both", "top only", "random only", "neither")] == pytest.approx(
        [0.5 / 3, 0.5 / 3, 0.25 / 3, 1.75 / 3]
    )
    assert row["n"] == 3
