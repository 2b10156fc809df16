import numpy as np
import pytest
import torch

from attnprobe.evidence.statistics import rank_biserial
from attnprobe.exact import smallest_flipping_set
from attnprobe.probes.erasure import PAIRS, Erasure, pair_table
from benchmarks import reference
from tests.probes.tables import NAN, drawn, erased, measured, subject_of, table, values
from tests.toys import toy_batch, toy_classifier, undecided

LENGTHS = [9, 4, 1, 2, 12, 7, 15, 3]
RANKINGS = ("attention", "ascending", "gradient", "gradient_attention", "value_norm", "random")


def examined(batch, *, classes=3, question=False, **settings):
    subject = subject_of(
        undecided(toy_classifier(classes=classes, spread=8, question=question), batch), batch
    )
    return subject, values(Erasure(**settings), subject)


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("question", [False, True])
def test_equals_the_published_loop(classes, question):
    batch = toy_batch(LENGTHS, padding=1, question=question)
    subject, found = examined(batch, classes=classes, question=question)
    outputs = subject.outputs
    attention = subject.readout.attention
    gradient = subject.classifier.readout(batch, outputs).gradient()
    scores = {
        "attention": attention,
        "ascending": -attention,
        "gradient": gradient,
        "gradient_attention": gradient * attention,
        "value_norm": attention * outputs.hidden.norm(dim=-1),
    }
    if not question:
        assert (found["removed_count_optimal"] > 1).any()
    assert (found["removed_count_gradient"] > 0).any()
    for name, own in scores.items():
        for row, length in enumerate(LENGTHS):
            query = None if outputs.query is None else outputs.query[[row]]
            order = (own[row, 1 : length + 1].argsort(descending=True) + 1).tolist()
            count = reference.erase_until_flip(
                lambda attended, query=query: subject.classifier.decoder(attended[None], query)[0],
                outputs.hidden[row],
                attention[row],
                order,
            )
            mass = float(attention[row, order[:count]].sum())
            expected = (count, count / length, mass) if count > 0 else (NAN,) * 3
            ours = tuple(
                float(found[f"removed_{kind}_{name}"][row])
                for kind in ("count", "fraction", "mass")
            )
            assert ours == pytest.approx(expected, nan_ok=True), name


def test_the_smallest_set_is_filed_by_position_and_flips():
    subject, _ = examined(toy_batch(LENGTHS, padding=1))
    rows = measured(Erasure(), subject)
    sizes = rows["removed_count_optimal"].value
    members = rows["smallest_set"]
    flips = (sizes > 0).nonzero().flatten().tolist()
    assert 0 < len(flips) < len(LENGTHS)
    for row, length in enumerate(LENGTHS):
        there = ~members.step[row].isnan()
        assert int(there.sum()) == (length if row in flips else 0)
        if row in flips:
            chosen = (members.value[row] > 0) & there
            assert int(chosen.sum()) == int(sizes[row])
            kept = torch.where(chosen, 0, subject.readout.attention[row])
            logits = (
                subject.readout.position_logits[row].mul((kept / kept.sum()).unsqueeze(-1)).sum(0)
            )
            assert int(logits.argmax()) != int(subject.readout.prediction()[row].argmax())


def test_nothing_needs_fewer_than_the_optimum_and_status_says_why_not():
    subject, found = examined(toy_batch(LENGTHS * 6), classes=2)
    readout = subject.readout
    outputs = subject.outputs
    best = smallest_flipping_set(readout.attention, readout.position_logits, readout.content)
    assert found["never_flips"].equal(best.size < 0)
    bias = subject.classifier.decoder.output.bias
    by_bias = (bias > 0).long() != outputs.logits.argmax(-1)
    assert found["flip_by_bias"].equal(by_bias)
    seen = set()
    for name in (*RANKINGS, "contribution", "optimal"):
        flips = ~found[f"removed_count_{name}"].isnan()
        assert found[f"status_{name}"].equal(torch.where(flips, 2, by_bias.long()))
        assert not (flips & found["never_flips"]).any()
        seen |= set(found[f"status_{name}"].tolist())
        if name != "optimal":
            regret = found[f"regret_{name}"]
            assert regret.isnan().equal(~flips)
            assert (regret[flips] >= 0).all()
    assert seen == {0, 1, 2}
    # two classes: the contributions' order is the optimum's
    assert found["regret_contribution"].nansum() == 0
    assert found["status_contribution"].equal(found["status_optimal"])


def test_pairs_count_a_ranking_that_never_flips_as_beaten():
    _, found = examined(toy_batch(LENGTHS * 6), classes=4)
    for first, second in PAIRS:
        a, b = (found[f"removed_count_{name}"].nan_to_num(99) for name in (first, second))
        assert found[f"fewer_{first}_than_{second}"].equal(a < b)


def test_random_orders_are_averaged():
    _, found = examined(toy_batch(LENGTHS * 3), classes=4, random_orders=20)
    _, one = examined(toy_batch(LENGTHS * 3), classes=4, random_orders=1)
    assert one["flip_share_random"].equal((one["status_random"] == 2).double())
    torch.testing.assert_close(
        one["removed_fraction_random_mean"], one["removed_fraction_random"], equal_nan=True
    )
    never = found["never_flips"]
    assert (found["flip_share_random"][never] == 0).all()
    assert found["removed_fraction_random_mean"][never].isnan().all()
    assert ((found["flip_share_random"] > 0) & (found["flip_share_random"] < 1)).any()


def test_towards_each_class():
    batch = toy_batch(LENGTHS)
    subject, found = examined(batch, classes=4, wins=True)
    chosen = subject.outputs.logits.argmax(-1)
    others = torch.ones(8, 4).bool().scatter(-1, chosen[:, None], False)
    overtake, wins, bound = (
        found[name][others] for name in ("overtake_size", "wins_size", "wins_bound")
    )
    known = ~wins.isnan()
    assert known.any()
    assert (wins[known] >= overtake[known]).all()
    assert (wins[known] >= bound[known]).all()
    assert found["wins_exact"][others].all()
    # whoever flips the decision first wins outright: nobody else is ahead of the decision by then
    smallest = found["wins_size"].nan_to_num(99).where(others, torch.tensor(99.0).double()).amin(-1)
    assert smallest.equal(found["removed_count_optimal"].nan_to_num(99))
    assert measured(Erasure(), subject)["overtake_size"].step.isnan().equal(~others)


def test_a_decoder_that_is_not_linear_leaves_out_what_needs_position_logits():
    _, found = examined(toy_batch(LENGTHS, question=True), question=True)
    missing = {
        "never_flips",
        "regret_attention",
        "overtake_size",
        "status_contribution",
        "status_optimal",
    }
    assert not missing & set(found)
    assert {f"status_{name}" for name in RANKINGS} <= set(found)
    assert found["flip_by_bias"].dtype is torch.bool


COUNTS = {
    "attention": [1, 3, NAN, NAN, 2],
    "gradient": [2, 3, 4, NAN, 5],
    "random": [4, NAN, NAN, NAN, 6],
    "optimal": [1, 2, 3, NAN, 2],
}


def test_paired_by_hand():
    pairs = pair_table(table("erasure", erased([5, 5, 5, 5, 7], **COUNTS))).set_index(
        ["ranking", "against"]
    )
    assert len(pairs) == 4 * 3
    row = pairs.loc[("attention", "gradient")]
    assert row[["needs fewer", "tie", "needs more", "neither flips", "n"]].tolist() == [
        0.4,
        0.2,
        0.2,
        0.2,
        5,
    ]
    assert row["low"] <= 0.4 <= row["high"]
    # differences 1, 0, 4 − 6, 0, 3: ranks 1, 2 and 3
    assert row["rank-biserial"] == pytest.approx((1 - 2 + 3) / 6)
    assert pairs.loc[("gradient", "attention"), "rank-biserial"] == pytest.approx(-(1 - 2 + 3) / 6)
    assert pairs.loc[("optimal", "random"), "rank-biserial"] == 1
    assert (pairs[["needs fewer", "tie", "needs more", "neither flips"]].sum(axis=1) == 1).all()
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
