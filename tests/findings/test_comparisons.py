import numpy as np
import pandas as pd
import pytest
from scipy import stats

from attnprobe.findings.comparisons import compare_models
from tests.probes.tables import NAN, table

COUNT = 40
NOISE = np.linspace(-0.05, 0.05, COUNT)
ONES = np.ones(COUNT)


def models(probe, first, second, *, names=("flanrnn", "flannoenc")):
    """The long table of two models."""
    first_name, second_name = names
    first_table = table(probe, first, model=first_name)
    second_table = table(probe, second, model=second_name)
    return pd.concat([first_table, second_table])


def removals(attention, optimal=0.1, never=0.0):
    """Fractions removed by attention's order and by the smallest set."""
    return {
        "removed_fraction_attention": attention,
        "removed_fraction_optimal": optimal * ONES,
        "never_flips": never * ONES,
    }


def agreements(tau):
    """Attention's agreement with both importances."""
    return {"tau_attention_gradient": tau, "tau_attention_leave_one_out": tau}


def verdicts(results):
    return {finding.claim.name: finding.verdict for finding in compare_models(results)}


HALF = removals(0.5 * ONES)
LEADS = pytest.mark.parametrize(
    ("lead", "verdict"),
    [
        (0.2, "meets"),
        (-0.2, "fails"),
        (0.0, "cannot decide"),
    ],
)


@LEADS
def test_a_worse_order_with_context(lead, verdict):
    results = models("erasure", removals(0.5 + lead + NOISE), HALF)
    (finding,) = compare_models(results)
    assert verdicts(results) == {"order_worse_flanrnn_flannoenc": verdict}
    assert (finding.data, finding.model) == ("yelp", "flanrnn, flannoenc")
    assert finding.evidence.n == COUNT
    assert finding.evidence.value == pytest.approx(lead)
    assert finding.claim.speaks == "neither"


@LEADS
def test_more_removals_with_convolution(lead, verdict):
    more = removals(0.5 + lead + NOISE)
    results = models("erasure", more, HALF, names=("hanconv", "hanrnn"))
    assert verdicts(results) == {"needs_more_hanconv_hanrnn": verdict}


@LEADS
def test_effects_that_follow_the_weights_less_with_context(lead, verdict):
    less = {"tau_attention_effect": 0.3 - lead + NOISE}
    results = models("single_weight", less, {"tau_attention_effect": 0.3 * ONES})
    assert verdicts(results) == {"effects_follow_less_flanrnn_flannoenc": verdict}


@LEADS
def test_less_agreement_with_context_for_each_importance(lead, verdict):
    less = agreements(0.3 - lead + NOISE)
    names = ("lstm_dot", "average_dot")
    results = models("correlation", less, agreements(0.3 * ONES), names=names)
    assert verdicts(results) == {
        "gradient_agrees_less_lstm_dot_average_dot": verdict,
        "leave_one_out_agrees_less_lstm_dot_average_dot": verdict,
    }


@pytest.fixture
def every_other():
    """Two models, of which the second flips every other example by no order."""
    first = removals(np.array([0.5, 0.7] * 20))
    second = removals(np.array([0.4, NAN] * 20))
    return first, second


def test_models_are_compared_within_the_examples_that_both_can_flip(every_other):
    first, second = every_other
    second["never_flips"] = np.array([0.0, 1.0] * 20)
    (finding,) = compare_models(models("erasure", first, second))
    assert finding.evidence.value == pytest.approx(0.1)
    assert finding.evidence.n == 20


def test_an_example_that_only_attentions_order_does_not_flip_counts_as_all_items(every_other):
    (finding,) = compare_models(models("erasure", *every_other))
    assert finding.evidence.value == pytest.approx((0.1 - 0.3) / 2)
    assert finding.evidence.n == COUNT


def test_models_are_compared_within_the_examples_that_both_have(every_other):
    results = models("erasure", *every_other)
    results.loc[results["model"] == "flannoenc", "example_id"] += 2
    (finding,) = compare_models(results)
    assert finding.evidence.n == COUNT - 2


def test_seeds_are_averaged_first():
    first_seed = table("erasure", HALF, model="flanrnn")
    second_seed = table("erasure", removals(0.9 * ONES), model="flanrnn")
    second_seed = second_seed.assign(seed=1, run_id="s1")
    rival = table("erasure", HALF, model="flannoenc")
    (finding,) = compare_models(pd.concat([first_seed, second_seed, rival]))
    assert finding.evidence.value == pytest.approx(0.2)
    assert finding.evidence.n == COUNT


def test_the_spread_between_a_models_seeds_is_in_the_interval():
    shifts = (0.1, 0.2, 0.3)
    seeds = []
    for number, shift in enumerate(shifts):
        rows = table("erasure", removals(0.5 + shift + NOISE), model="flanrnn")
        seeds.append(rows.assign(seed=number, run_id=f"seed {number}"))
    rival = table("erasure", HALF, model="flannoenc")
    (finding,) = compare_models(pd.concat([*seeds, rival]))
    (over_texts,) = compare_models(models("erasure", removals(0.7 + NOISE), HALF))

    standard_error = np.std(shifts, ddof=1) / np.sqrt(3)
    students_half_width = stats.t.ppf(0.975, 2) * standard_error
    texts_half_width = over_texts.evidence.high - 0.2
    expected_half_width = np.hypot(texts_half_width, students_half_width)
    half_width = finding.evidence.high - 0.2
    assert finding.evidence.value == pytest.approx(0.2)
    assert half_width == pytest.approx(expected_half_width)


def test_a_seed_without_a_number_changes_no_comparison():
    """It has no mean that could differ from those of the other seeds."""
    with_numbers = models("erasure", removals(0.7 + NOISE), HALF)
    nothing = table("erasure", removals(NAN * ONES, never=1.0), model="flanrnn")
    (expected,) = compare_models(with_numbers)
    (finding,) = compare_models(
        pd.concat([with_numbers, nothing.assign(seed=1, run_id="without a number")])
    )
    assert finding.evidence == expected.evidence
    assert finding.evidence.low > 0.1


ALONE = table("erasure", HALF, model="flanrnn")


@pytest.mark.parametrize(
    "results",
    [
        ALONE,
        pd.concat([ALONE, table("erasure", HALF, model="flannoenc", data="imdb")]),
        models("erasure", HALF, {"content_length": ONES}),
        models("erasure", HALF, removals(NAN * ONES, never=1.0)),
    ],
    ids=["one model", "another data set", "another metric", "no example of both"],
)
def test_what_is_missing_is_not_compared(results):
    assert compare_models(results) == []


def test_few_examples_decide_nothing():
    five_examples = {metric: values[:5] for metric, values in removals(0.5 + NOISE).items()}
    results = models("erasure", five_examples, five_examples)
    assert verdicts(results) == {"order_worse_flanrnn_flannoenc": "too rare to say"}
