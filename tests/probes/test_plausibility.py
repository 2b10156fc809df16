import numpy as np
import pytest
import torch

from attnprobe.data.columns import packed
from attnprobe.importance.leave_one_out import leave_one_out
from attnprobe.probes.plausibility import Plausibility, plausibility_table, points
from attnprobe.results.table import read_results
from attnprobe.runs.run import run
from tests.probes.tables import subject_of, table, values
from tests.small_runs import small_run
from tests.toys import toy_batch, toy_classifier


def measured(batch):
    subject = subject_of(toy_classifier(spread=4), batch)
    return subject, values(Plausibility(), subject)


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
    assert measured(toy_batch([6, 4]))[1] == {}


def test_the_human_ceiling_stands_beside_each_importance():
    people = [[True, False, True, False], [True, False, False, False], [False, True, False, False]]
    batch = toy_batch([4, 4])
    batch.rationale = torch.zeros_like(batch.content)
    batch.annotators = torch.zeros_like(batch.ids)
    batch.rationale[0, 1] = True
    batch.annotators[0, batch.content[0]] = torch.from_numpy(
        packed([np.array(one) for one in people])
    ).long()
    found = measured(batch)[1]
    # A: half right of two and two; B: its one word of three; C: nothing of what the others marked
    assert float(found["human_f1"][0]) == pytest.approx((2 * 1 / 4 + 2 * 1 / 4 + 0) / 3)
    assert found["human_f1"][1].isnan()
    assert set(found) >= {"others_f1_attention", "others_auprc_gradient"}
    numbers = table("plausibility", found)
    lines = plausibility_table(numbers).set_index("importance")
    row = lines.loc["one annotator against the others"]
    assert row["f1 against the others"] == pytest.approx(1 / 3)
    assert np.isnan(row["f1 above chance"])
    assert len(points(numbers, None).axes) == 1


def test_alignment_error_and_mass_are_those_of_a_plain_loop_over_links():
    batch = toy_batch([6, 4, 5, 5], question=True, classes=3)
    batch.rationale = torch.zeros_like(batch.content)
    for row, place in enumerate(
        [1, 3, 5]
    ):  # the first and the last word have a neighbour on one side only
        batch.rationale[row, place] = True
    subject = subject_of(toy_classifier(spread=6, question="additive", classes=3), batch)
    found = values(Plausibility(), subject)
    for prefix, places in {"": 0, "left_": -1, "right_": 1}.items():
        for row, place in enumerate([1, 3, 5]):
            weights = subject.readout.attention[row].tolist()
            words = range(1, 1 + int(batch.content[row].sum()))
            gold = {place + places} & set(words)
            links = {max(words, key=weights.__getitem__)}
            error = 1 - 2 * len(links & gold) / (len(links) + len(gold))
            beyond = sum(weights[one] for one in gold) - len(gold) / len(words)
            assert float(found[f"{prefix}alignment_error_attention"][row]) == pytest.approx(error)
            assert float(found[f"{prefix}mass_beyond_chance_attention"][row]) == pytest.approx(
                beyond
            )
        assert found[f"{prefix}alignment_error_attention"][3].isnan()  # nothing is gold


@pytest.mark.parametrize(
    ("attention", "shift", "beyond"),
    [("rationale", "", 1.0), ("rationale_off", "right_", None), ("uniform", None, 0.0)],
)
def test_imposed_gold_has_no_error_and_equal_weights_are_at_chance(
    attention, shift, beyond, tmp_path
):
    mass = [] if attention == "uniform" else ["model.attention.mass=1.0"]
    config = small_run(
        tmp_path,
        "task=qa",
        "data=transductions",
        "model/decoder=additive",
        f"model/attention={attention}",
        *mass,
        "data.source.train_size=40",
        "data.source.test_size=40",
        "probe.plausibility.importances=[attention]",
        probes="[plausibility]",
    )
    results = read_results(run(config), probe="plausibility")
    mean = results.groupby("metric", observed=True)["value"].mean()
    share = mean["rationale_share"]
    if beyond is not None:
        assert mean["mass_beyond_chance_attention"] == pytest.approx(
            beyond - beyond * share, abs=1e-6
        )
    if shift is None:  # the null
        assert mean["alignment_error_attention"] == pytest.approx(1 - share)
    for prefix in () if shift is None else ("", "left_", "right_"):
        error = mean[f"{prefix}alignment_error_attention"]
        # a copy's last word has no neighbour to the right, and one step in as many as there are
        # words is about it
        expected = (share if shift else 0) if prefix == shift else 1
        assert error == pytest.approx(expected, abs=1e-6 if prefix == shift else 0.1)
