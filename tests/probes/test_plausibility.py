import numpy as np
import pandas as pd
import pytest
import torch

from attnprobe.core.randomness import Draws
from attnprobe.data.columns import packed
from attnprobe.importance.leave_one_out import leave_one_out
from attnprobe.probes.base import Measurement, Subject
from attnprobe.probes.plausibility import Plausibility, plausibility_table, points
from attnprobe.results.table import read_examples, read_results
from attnprobe.runs.run import run
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


def test_the_human_ceiling_stands_beside_each_importance(tmp_path):
    people = [[True, False, True, False], [True, False, False, False], [False, True, False, False]]
    batch = toy_batch([4, 4])
    batch.rationale = torch.zeros_like(batch.content)
    batch.annotators = torch.zeros_like(batch.ids)
    batch.rationale[0, 1] = True
    batch.annotators[0, batch.content[0]] = torch.from_numpy(packed([np.array(one) for one in people])).long()
    found = measured(batch)[1]
    # A: half right of two and two; B: its one word of three; C: nothing of what the others marked
    assert float(found["human_f1"][0]) == pytest.approx((2 * 1 / 4 + 2 * 1 / 4 + 0) / 3)
    assert found["human_f1"][1].isnan()
    assert set(found) >= {"others_f1_attention", "others_auprc_gradient"}
    numbers = pd.concat(
        pd.DataFrame({"metric": metric, "example_id": range(2), "value": value.tolist()})
        for metric, value in found.items()
    ).assign(
        step=np.nan, probe="plausibility", data="toy", model="lstm", seed=0, run_id="a", split="test", experiment="x"
    )
    table = plausibility_table(numbers).set_index("importance")
    assert table.loc["one annotator against the others", "f1 against the others"] == pytest.approx(1 / 3)
    assert np.isnan(table.loc["one annotator against the others", "f1 above chance"])
    figure = points(numbers, None)
    assert len(figure.axes) == 1
