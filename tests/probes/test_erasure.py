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
from tests.probes.texts import numbers_of
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
    readout = subject.classifier.readout(batch, subject.outputs)
    gradient = readout.gradient()
    scores = {
        "attention": attention,
        "ascending": -attention,
        "gradient": gradient,
        "gradient_attention": gradient * attention,
        "value_norm": attention * subject.outputs.hidden.norm(dim=-1),
    }
    return subject, numbers, scores


def erased_by_the_published_loop(subject, scores, row):
    """How many items are removed before the decision of one text flips (below 1: never), and in
    which order."""
    outputs = subject.outputs
    query = None if outputs.query is None else outputs.query[[row]]
    content = slice(1, LENGTHS[row] + 1)
    order = 1 + scores[row, content].argsort(descending=True)

    def decode(attended):
        (logits,) = subject.classifier.decoder(attended[None], query)
        return logits

    attention = subject.readout.attention[row]
    count = reference.erase_until_flip(decode, outputs.hidden[row], attention, order.tolist())
    return count, order


@pytest.mark.parametrize("row", range(len(LENGTHS)))
@pytest.mark.parametrize(
    "name", ["attention", "ascending", "gradient", "gradient_attention", "value_norm"]
)
@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("question", [False, True])
def test_equals_the_published_loop(classes, question, name, row):
    subject, numbers, rankings = published_case(classes, question)
    count, order = erased_by_the_published_loop(subject, rankings[name], row)
    expected = {"count": NAN, "fraction": NAN, "mass": NAN}
    if count > 0:
        removed = order[:count]
        expected = {
            "count": count,
            "fraction": count / LENGTHS[row],
            "mass": subject.readout.attention[row, removed].sum().item(),
        }
    result = numbers_of(numbers, row)
    for kind, number in expected.items():
        measured = result[f"removed_{kind}_{name}"]
        assert measured == pytest.approx(number, nan_ok=True), kind


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("question", [False, True])
def test_the_toys_take_more_than_one_erasure_and_the_gradient_flips_some(classes, question):
    _, numbers, _ = published_case(classes, question)
    if not question:
        assert (numbers["removed_count_optimal"] > 1).any()
    assert (numbers["removed_count_gradient"] > 0).any()


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_pairs_count_a_ranking_that_never_flips_as_beaten(first, second):
    _, numbers = examined(toy_batch(LENGTHS * 6), classes=4)
    count = numbers[f"removed_count_{first}"].nan_to_num(99)
    rival_count = numbers[f"removed_count_{second}"].nan_to_num(99)
    assert numbers[f"fewer_{first}_than_{second}"].equal(count < rival_count)


@pytest.fixture(scope="module")
def smallest_sets():
    """A subject, the sizes of its texts' smallest sets, and the sets by position."""
    subject, _ = examined(toy_batch(LENGTHS, padding=1))
    measurements = measured(Erasure(), subject)
    sizes = measurements["removed_count_optimal"].value
    assert 0 < sizes.isfinite().sum() < len(LENGTHS)
    return subject, sizes, measurements["smallest_set"]


@pytest.mark.parametrize("row", range(len(LENGTHS)))
def test_the_smallest_set_is_filed_by_position(smallest_sets, row):
    _, sizes, members = smallest_sets
    is_filed = members.step[row].isfinite()
    if sizes[row].isnan():
        assert not is_filed.any()
    else:
        assert is_filed.sum() == LENGTHS[row]
        assert members.value[row, is_filed].sum() == sizes[row]


def test_the_smallest_set_flips(smallest_sets):
    subject, sizes, members = smallest_sets
    readout = subject.readout
    for row in sizes.isfinite().nonzero().flatten():
        is_member = members.value[row] == 1
        remaining = readout.attention[row].masked_fill(is_member, 0)
        weights = remaining / remaining.sum()
        logits = weights @ readout.position_logits[row]
        assert logits.argmax() != readout.prediction()[row].argmax()


@pytest.fixture(scope="module")
def two_classes():
    return examined(toy_batch(LENGTHS * 6), classes=2)


@pytest.mark.parametrize("name", [*RANKINGS, "contribution"])
def test_nothing_needs_fewer_than_the_optimum(two_classes, name):
    _, numbers = two_classes
    flips = ~numbers[f"removed_count_{name}"].isnan()
    regret = numbers[f"regret_{name}"]
    assert regret.isnan().equal(~flips)
    assert (regret[flips] >= 0).all()


def test_what_never_flips_is_what_the_exact_search_leaves(two_classes):
    subject, numbers = two_classes
    readout = subject.readout
    best = smallest_flipping_set(readout.attention, readout.position_logits, readout.content)
    assert numbers["never_flips"].equal(best.size < 0)


def test_the_status_says_why_a_ranking_does_not_flip(two_classes):
    """2: it flips; 1: the bias alone would decide otherwise; 0: it would not."""
    subject, numbers = two_classes
    bias = subject.classifier.decoder.output.bias
    decision = subject.outputs.logits.argmax(-1)
    bias_flips = (bias > 0).long() != decision
    assert numbers["flip_by_bias"].equal(bias_flips)
    occurring = set()
    for name in (*RANKINGS, "contribution", "optimal"):
        flips = ~numbers[f"removed_count_{name}"].isnan()
        status = numbers[f"status_{name}"]
        assert status.equal(torch.where(flips, 2, bias_flips.long()))
        assert not (flips & numbers["never_flips"]).any()
        occurring |= set(status.tolist())
    assert occurring == {0, 1, 2}


def test_of_two_classes_the_order_of_the_contributions_is_the_optimums(two_classes):
    _, numbers = two_classes
    assert numbers["regret_contribution"].nansum() == 0
    assert numbers["status_contribution"].equal(numbers["status_optimal"])


def test_one_random_order_is_its_own_mean():
    _, numbers = examined(toy_batch(LENGTHS * 3), classes=4, random_orders=1)
    flips = numbers["status_random"] == 2
    mean = numbers["removed_fraction_random_mean"]
    assert numbers["flip_share_random"].equal(flips.double())
    assert_close(mean, numbers["removed_fraction_random"], equal_nan=True)


def test_random_orders_are_averaged_over_those_that_flip():
    _, numbers = examined(toy_batch(LENGTHS * 3), classes=4, random_orders=20)
    never = numbers["never_flips"]
    share = numbers["flip_share_random"]
    assert (share[never] == 0).all()
    assert numbers["removed_fraction_random_mean"][never].isnan().all()
    assert ((share > 0) & (share < 1)).any()


@pytest.fixture(scope="module")
def four_classes():
    """A subject, the classes that rival its decisions, and how many items bring each to win."""
    subject, numbers = examined(toy_batch(LENGTHS), classes=4, wins=True)
    decision = subject.outputs.logits.argmax(-1, keepdim=True)
    is_rival = torch.arange(4) != decision
    return subject, is_rival, numbers


def test_a_class_wins_outright_with_no_fewer_items_than_it_needs_to_overtake(four_classes):
    subject, is_rival, numbers = four_classes
    can_win = is_rival & ~numbers["wins_size"].isnan()
    wins = numbers["wins_size"][can_win]
    assert len(wins) > 0
    assert (wins >= numbers["overtake_size"][can_win]).all()
    assert (wins >= numbers["wins_bound"][can_win]).all()
    assert numbers["wins_exact"][is_rival].all()
    overtaking = measured(Erasure(), subject)["overtake_size"]
    assert overtaking.step.isnan().equal(~is_rival)


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


def test_whoever_flips_the_decision_first_wins_outright(four_classes):
    """Nobody else is ahead of the decision by then."""
    _, is_rival, numbers = four_classes
    sizes = numbers["wins_size"].nan_to_num(99)
    fewest = sizes.masked_fill(~is_rival, 99).amin(-1)
    assert fewest.equal(numbers["removed_count_optimal"].nan_to_num(99))


def test_paired_by_hand():
    results = table("erasure", erased([5, 5, 5, 5, 7], **COUNTS))
    pairs = pair_table(results).set_index(["ranking", "against"])
    shares = ["needs fewer", "tie", "needs more", "neither flips"]
    assert len(pairs) == 4 * 3
    assert (pairs[shares].sum(axis=1) == 1).all()
    row = pairs.loc[("attention", "gradient")]
    assert row[shares].tolist() == [0.4, 0.2, 0.2, 0.2]
    assert row["n"] == 5
    assert row["low"] <= 0.4 <= row["high"]


def test_the_rank_biserial_correlation_of_ties_alone_is_undefined():
    assert np.isnan(rank_biserial(np.zeros(3)))


def test_the_rank_biserial_correlation_by_hand():
    """The differences of attention and gradient are 1, 0, 4 − 6, 0, 3: ranks 1, 2 and 3."""
    results = table("erasure", erased([5, 5, 5, 5, 7], **COUNTS))
    pairs = pair_table(results).set_index(["ranking", "against"])
    correlation = pairs["rank-biserial"]
    expected = (1 - 2 + 3) / 6
    assert correlation["attention", "gradient"] == pytest.approx(expected)
    assert correlation["gradient", "attention"] == pytest.approx(-expected)
    assert correlation["optimal", "random"] == 1


DRAWN_OF_SINGLE_WEIGHTS = (
    "drawn_delta_js_attention",
    "drawn_delta_attention_attention",
    "flip_top_attention",
    "flip_random_attention",
)


UNDEFINED_COUNTS = {name: [NAN, NAN] for name in COUNTS}


@pytest.mark.parametrize(
    ("probe", "metrics", "figures"),
    [
        ("erasure", erased([1, 1], **UNDEFINED_COUNTS), 3),
        ("single_weight", {name: [NAN, NAN] for name in DRAWN_OF_SINGLE_WEIGHTS}, 2),
    ],
)
def test_nothing_but_undefined_numbers_is_drawn_as_well(probe, metrics, figures):
    results = table(probe, metrics)
    assert len(list(drawn(probe, results))) == figures
