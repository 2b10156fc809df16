from functools import cache

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from attnprobe.evidence.statistics import rank_biserial
from attnprobe.exact import smallest_flipping_set
from attnprobe.probes.erasure import PAIRS, Erasure, pair_table
from benchmarks import reference
from tests.probes.tables import NAN, drawn, erased, measured, subject_of, table, values
from tests.toys import toy_batch, toy_classifier, undecided

LENGTHS = [9, 4, 1, 2, 12, 7, 15, 3]
RANKINGS = ("attention", "ascending", "gradient", "gradient_attention", "value_norm", "random")


def examined(batch, *, classes=3, question=False, **settings):
    classifier = toy_classifier(classes=classes, spread=8, question=question)
    subject = subject_of(undecided(classifier, batch), batch)
    return subject, values(Erasure(**settings), subject)


@cache
def published_case(classes, question):
    """Texts, their numbers, and the scores of the published rankings from the model's outputs."""
    batch = toy_batch(LENGTHS, padding=1, question=question)
    subject, numbers = examined(batch, classes=classes, question=question)
    attention = subject.readout.attention
    gradient = subject.classifier.readout(batch, subject.outputs).gradient()
    scores = {
        "attention": attention,
        "ascending": -attention,
        "gradient": gradient,
        "gradient_attention": gradient * attention,
        "value_norm": attention * subject.outputs.hidden.norm(dim=-1),
    }
    return subject, numbers, scores


@pytest.mark.parametrize(
    "name", ["attention", "ascending", "gradient", "gradient_attention", "value_norm"]
)
@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("question", [False, True])
def test_equals_the_published_loop(classes, question, name):
    subject, numbers, rankings = published_case(classes, question)
    outputs = subject.outputs
    attention = subject.readout.attention
    scores = rankings[name]
    for row, length in enumerate(LENGTHS):
        query = None if outputs.query is None else outputs.query[[row]]
        order = (scores[row, 1 : length + 1].argsort(descending=True) + 1).tolist()
        count = reference.erase_until_flip(
            lambda attended, query=query: subject.classifier.decoder(attended[None], query)[0],
            outputs.hidden[row],
            attention[row],
            order,
        )
        expected = [NAN, NAN, NAN]
        if count > 0:
            expected = [count, count / length, float(attention[row, order[:count]].sum())]
        removed = [numbers[f"removed_{kind}_{name}"][row] for kind in ("count", "fraction", "mass")]
        assert [float(number) for number in removed] == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("question", [False, True])
def test_the_toys_take_more_than_one_erasure_and_the_gradient_flips_some(classes, question):
    _, numbers, _ = published_case(classes, question)
    if not question:
        assert (numbers["removed_count_optimal"] > 1).any()
    assert (numbers["removed_count_gradient"] > 0).any()


def test_the_smallest_set_is_filed_by_position_and_flips():
    subject, _ = examined(toy_batch(LENGTHS, padding=1))
    rows = measured(Erasure(), subject)
    sizes = rows["removed_count_optimal"].value
    members = rows["smallest_set"]
    flips = (sizes > 0).nonzero().flatten().tolist()
    assert 0 < len(flips) < len(LENGTHS)
    for row, length in enumerate(LENGTHS):
        filed = ~members.step[row].isnan()
        assert int(filed.sum()) == (length if row in flips else 0)
        if row in flips:
            chosen = (members.value[row] > 0) & filed
            assert int(chosen.sum()) == int(sizes[row])
            rest = torch.where(chosen, 0, subject.readout.attention[row])
            shares = (rest / rest.sum()).unsqueeze(-1)
            logits = (subject.readout.position_logits[row] * shares).sum(0)
            assert int(logits.argmax()) != int(subject.readout.prediction()[row].argmax())


def test_nothing_needs_fewer_than_the_optimum_and_status_says_why_not():
    subject, numbers = examined(toy_batch(LENGTHS * 6), classes=2)
    readout = subject.readout
    outputs = subject.outputs
    best = smallest_flipping_set(readout.attention, readout.position_logits, readout.content)
    assert numbers["never_flips"].equal(best.size < 0)
    bias = subject.classifier.decoder.output.bias
    bias_flips = (bias > 0).long() != outputs.logits.argmax(-1)
    assert numbers["flip_by_bias"].equal(bias_flips)
    seen = set()
    for name in (*RANKINGS, "contribution", "optimal"):
        flips = ~numbers[f"removed_count_{name}"].isnan()
        assert numbers[f"status_{name}"].equal(torch.where(flips, 2, bias_flips.long()))
        assert not (flips & numbers["never_flips"]).any()
        seen |= set(numbers[f"status_{name}"].tolist())
        if name != "optimal":
            regret = numbers[f"regret_{name}"]
            assert regret.isnan().equal(~flips)
            assert (regret[flips] >= 0).all()
    assert seen == {0, 1, 2}
    # two classes: the contributions' order is the optimum's
    assert numbers["regret_contribution"].nansum() == 0
    assert numbers["status_contribution"].equal(numbers["status_optimal"])


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_pairs_count_a_ranking_that_never_flips_as_beaten(first, second):
    _, numbers = examined(toy_batch(LENGTHS * 6), classes=4)
    count = numbers[f"removed_count_{first}"].nan_to_num(99)
    rival_count = numbers[f"removed_count_{second}"].nan_to_num(99)
    assert numbers[f"fewer_{first}_than_{second}"].equal(count < rival_count)


def test_one_random_order_is_its_own_mean():
    _, numbers = examined(toy_batch(LENGTHS * 3), classes=4, random_orders=1)
    assert numbers["flip_share_random"].equal((numbers["status_random"] == 2).double())
    assert_close(
        numbers["removed_fraction_random_mean"], numbers["removed_fraction_random"], equal_nan=True
    )


def test_random_orders_are_averaged_over_those_that_flip():
    _, numbers = examined(toy_batch(LENGTHS * 3), classes=4, random_orders=20)
    never = numbers["never_flips"]
    share = numbers["flip_share_random"]
    assert (share[never] == 0).all()
    assert numbers["removed_fraction_random_mean"][never].isnan().all()
    assert ((share > 0) & (share < 1)).any()


def test_a_class_wins_outright_with_no_fewer_items_than_it_needs_to_overtake():
    subject, numbers = examined(toy_batch(LENGTHS), classes=4, wins=True)
    decided = subject.outputs.logits.argmax(-1)
    rivals = torch.ones(8, 4).bool().scatter(-1, decided[:, None], False)
    wins = numbers["wins_size"][rivals]
    can_win = ~wins.isnan()
    assert can_win.any()
    assert (wins[can_win] >= numbers["overtake_size"][rivals][can_win]).all()
    assert (wins[can_win] >= numbers["wins_bound"][rivals][can_win]).all()
    assert numbers["wins_exact"][rivals].all()
    # whoever flips the decision first wins outright: nobody else is ahead of the decision by then
    fewest = numbers["wins_size"].nan_to_num(99).where(rivals, torch.tensor(99.0).double()).amin(-1)
    assert fewest.equal(numbers["removed_count_optimal"].nan_to_num(99))
    assert measured(Erasure(), subject)["overtake_size"].step.isnan().equal(~rivals)


def test_a_decoder_that_is_not_linear_leaves_out_what_needs_position_logits():
    _, numbers = examined(toy_batch(LENGTHS, question=True), question=True)
    missing = {
        "never_flips",
        "regret_attention",
        "overtake_size",
        "status_contribution",
        "status_optimal",
    }
    assert not missing & set(numbers)
    assert {f"status_{name}" for name in RANKINGS} <= set(numbers)
    assert numbers["flip_by_bias"].dtype is torch.bool


COUNTS = {
    "attention": [1, 3, NAN, NAN, 2],
    "gradient": [2, 3, 4, NAN, 5],
    "random": [4, NAN, NAN, NAN, 6],
    "optimal": [1, 2, 3, NAN, 2],
}


def test_paired_by_hand():
    results = table("erasure", erased([5, 5, 5, 5, 7], **COUNTS))
    pairs = pair_table(results).set_index(["ranking", "against"])
    assert len(pairs) == 4 * 3
    shares = ["needs fewer", "tie", "needs more", "neither flips"]
    row = pairs.loc[("attention", "gradient")]
    assert row[[*shares, "n"]].tolist() == [0.4, 0.2, 0.2, 0.2, 5]
    assert row["low"] <= 0.4 <= row["high"]
    # differences 1, 0, 4 − 6, 0, 3: ranks 1, 2 and 3
    assert row["rank-biserial"] == pytest.approx((1 - 2 + 3) / 6)
    assert pairs.loc[("gradient", "attention"), "rank-biserial"] == pytest.approx(-(1 - 2 + 3) / 6)
    assert pairs.loc[("optimal", "random"), "rank-biserial"] == 1
    assert (pairs[shares].sum(axis=1) == 1).all()


def test_the_rank_biserial_correlation_of_ties_alone_is_undefined():
    assert np.isnan(rank_biserial(np.zeros(3)))


@pytest.mark.parametrize(
    ("probe", "metrics", "figures"),
    [
        ("erasure", erased([1, 1], **{name: [NAN, NAN] for name in COUNTS}), 3),
        (
            "single_weight",
            {
                f"{name}_attention": [NAN, NAN]
                for name in ("drawn_delta_js", "drawn_delta_attention", "flip_top", "flip_random")
            },
            2,
        ),
    ],
)
def test_nothing_but_undefined_numbers_is_drawn_as_well(probe, metrics, figures):
    assert len(list(drawn(probe, table(probe, metrics)))) == figures
