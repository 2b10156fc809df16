from dataclasses import replace

import pytest
import torch

from attnprobe.measures import jensen_shannon, kendall_tau
from attnprobe.probes.base import Subject
from attnprobe.probes.single_weight import SingleWeight, flip_table
from tests.probes.tables import NAN, subject_of, table, values
from tests.toys import toy_batch, toy_classifier, undecided

LENGTHS = [9, 4, 1, 2, 12]


def examined(batch, *, question=False):
    subject = subject_of(
        undecided(toy_classifier(classes=3, spread=8, question=question), batch), batch
    )
    return subject, values(SingleWeight(), subject)


@pytest.mark.parametrize("question", [False, True])
def test_equals_a_loop_over_all_pairs_of_items(question):
    batch = toy_batch(LENGTHS, padding=1, question=question)
    subject, found = examined(batch, question=question)
    readout = subject.readout
    outputs = subject.outputs
    gradient = subject.classifier.readout(batch, outputs).gradient()
    prediction = readout.prediction()

    def effect(row, item):
        other = readout.attention.clone()
        other[row, item] = 0
        other[row] /= other[row].sum()
        q = readout.predict(other)[row]
        return float(jensen_shannon(prediction[row], q)), float(
            q.argmax() != prediction[row].argmax()
        )

    for row, length in enumerate(LENGTHS):
        if length == 1:
            continue
        effects = {item: effect(row, item) for item in range(1, length + 1)}
        attention = readout.attention[row]
        for name, scores in {
            "attention": attention,
            "gradient": gradient[row],
            "gradient_attention": gradient[row] * attention,
        }.items():
            top = max(effects, key=lambda item: float(scores[item]))
            others = [item for item in effects if item != top]
            js = [effects[item][0] for item in others]
            expected = {
                "js_top": effects[top][0],
                "flip_top": effects[top][1],
                "js_random": sum(js) / len(js),
                "flip_random": sum(effects[item][1] for item in others) / len(js),
                "delta_js": effects[top][0] - sum(js) / len(js),
                "delta_js_negative": sum(value > effects[top][0] for value in js) / len(js),
            }
            for metric, value in expected.items():
                assert float(found[f"{metric}_{name}"][row]) == pytest.approx(value, abs=1e-9), (
                    metric,
                    name,
                )
            # the drawn item is one of the others, the same one in all three numbers
            drawn = [
                item
                for item in others
                if float(attention[top] - attention[item])
                == pytest.approx(float(found[f"drawn_delta_attention_{name}"][row]))
                and effects[top][0] - effects[item][0]
                == pytest.approx(float(found[f"drawn_delta_js_{name}"][row]), abs=1e-9)
                and effects[item][1] == float(found[f"drawn_flip_{name}"][row])
            ]
            assert drawn
        order = sorted(effects, key=lambda item: -float(attention[item]))
        for name, item in (("second", order[1]), ("lowest", order[-1])):
            assert float(found[f"js_{name}"][row]) == pytest.approx(effects[item][0], abs=1e-9)
            assert float(found[f"flip_{name}"][row]) == effects[item][1]
    tau = kendall_tau(readout.attention, found["effect_js"], readout.content)
    torch.testing.assert_close(found["tau_attention_effect"], tau, equal_nan=True)


def test_an_example_of_one_item_is_undefined_and_counted():
    _, found = examined(toy_batch(LENGTHS))
    assert found["undefined_erasure"].tolist() == [0, 0, 1, 0, 0]
    compared = [m for m in found if m.startswith(("js_", "flip_", "delta_", "drawn_", "tau_"))]
    assert len(compared) == 3 * 9 + 4 + 1
    for metric in compared:
        assert found[metric].isnan().tolist() == [False, False, True, False, False], metric


def test_all_weight_on_one_item_leaves_what_needs_its_erasure_undefined():
    batch = toy_batch([4])
    subject, _ = examined(batch)
    one = torch.zeros_like(subject.readout.attention)
    one[0, 2] = 1
    outputs = replace(subject.outputs, attention=one)
    subject = Subject(
        subject.classifier, batch, outputs, subject.classifier.readout(batch, outputs)
    )
    found = values(SingleWeight(), subject)
    assert found["undefined_erasure"].item() == 1
    assert found["js_top_attention"].isnan().all()
    assert found["delta_js_negative_attention"].isnan().all()
    assert float(found["js_random_attention"]) == pytest.approx(0, abs=1e-12)
    assert float(found["drawn_delta_attention_attention"]) == 1


def test_the_drawn_item_is_every_other_one_equally_often():
    batch = toy_batch([4] * 600)
    batch.ids[:] = batch.ids[0]
    subject, found = examined(batch)
    weights = subject.readout.attention[0, 1:5]
    differences = (weights.max() - weights).sort().values[1:]
    drawn = found["drawn_delta_attention_attention"]
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
