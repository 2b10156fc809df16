import pytest
import torch

from attnprobe.importance.leave_one_out import leave_one_out
from attnprobe.probes.base import Measurement, Subject
from attnprobe.probes.plausibility import Plausibility
from attnprobe.randomness import Draws
from attnprobe.results.table import read_examples, read_results
from attnprobe.running.run import run
from tests.runs import small_run
from tests.toys import toy_batch, toy_classifier, toy_readout


def measured(batch):
    classifier = toy_classifier(spread=4)
    subject = Subject(classifier, batch, *toy_readout(classifier, batch))
    return subject, {
        m.metric: m.value
        for m in Plausibility().measure(subject, Draws(0, "plausibility"))
        if isinstance(m, Measurement)
    }


def test_each_importance_is_compared_with_the_rationale():
    batch = toy_batch([6, 4, 5])
    batch.rationale = torch.zeros_like(batch.content)
    batch.rationale[0, 2:4] = True
    batch.rationale[1, 1] = True
    subject, found = measured(batch)
    removals = leave_one_out(subject.classifier, batch, subject.outputs).distance
    for name, scores in {"attention": subject.readout.attention, "leave_one_out": removals}.items():
        for row in range(2):
            top = int(scores[row].nan_to_num(-1).argmax())
            assert float(found[f"top_in_rationale_{name}"][row]) == float(batch.rationale[row, top])
            shares = scores[row].nan_to_num(0) / scores[row].nan_to_num(0).sum()
            inside = float(shares[batch.rationale[row]].sum())
            assert float(found[f"mass_in_rationale_{name}"][row]) == pytest.approx(inside)
    assert found["rationale_share"][:2].tolist() == pytest.approx([2 / 6, 1 / 4])
    assert all(value[2].isnan() for value in found.values())  # no rationale was given


def test_data_without_rationales_give_no_rows():
    assert measured(toy_batch([6, 4]))[1] == {}


def test_the_testbeds_rationales_reach_the_table(tmp_path):
    directory = run(small_run(tmp_path, probes="[plausibility]"))
    results = read_results(directory, probe="plausibility")
    share = results[results["metric"] == "rationale_share"].set_index("example_id")["value"]
    examples = read_examples(directory).set_index("example_id")
    assert len(share) == len(examples) == 30
    assert ((share > 0) & (share < 0.5)).all()
