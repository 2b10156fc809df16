import numpy as np
import pandas as pd
import pytest

from attnprobe.evidence.claims import Claim, put_to_test
from attnprobe.evidence.evidence import (
    Evidence,
    Measure,
    flips_of,
    least,
    mean_of,
    share_of,
    skill_of,
)
from attnprobe.evidence.statistics import paired_difference, wilson
from attnprobe.results.table import Rows


def claim(**changes):
    fields = {"name": "c", "criterion": "erasure", "statement": "s", "source": "p", "quantity": "q"}
    return Claim(**fields | {"measure": lambda rows: Evidence.of(rows["value"])} | changes)


@pytest.mark.parametrize(
    ("low", "high", "smallest", "verdict"),
    [
        (0.1, 0.2, 0, "meets"),
        (-0.2, -0.1, 0, "fails"),
        (-0.1, 0.1, 0, "cannot decide"),
        (np.nan, np.nan, 0, "cannot decide"),
        (0.0, 0.1, 0, "cannot decide"),
        (0.05, 0.2, 0.1, "cannot decide"),
        (0.11, 0.2, 0.1, "meets"),
        (-0.05, 0.09, 0.1, "no relevant difference"),
        (-0.3, 0.05, 0.1, "fails"),
        (-0.3, 0.11, 0.1, "cannot decide"),
    ],
)
def test_only_a_whole_interval_beyond_the_smallest_difference_decides(low, high, smallest, verdict):
    assert Evidence(0.05, low, high, 9).exceeds(0.0, smallest) == verdict


def test_rare_samples_and_questions_that_cannot_be_asked_decide_nothing():
    assert Evidence(1, 0.9, 1.1, 30, rare=True).exceeds(0) == "too rare to say"
    assert Evidence(1, 0.9, 1.1, 30, unasked="why").exceeds(0) == "not informative"
    assert np.isnan(Evidence(1, 0.9, 1.1, 30, rare=True).p(0))
    for values in ([0.0] * 400, [1.0] * 400, [0.0] * 390 + [1.0] * 10):
        assert Evidence.of(values, reach=1.0).exceeds(0, 0.05) == "too rare to say"


def test_the_p_value_is_of_what_is_decided():
    assert Evidence(0.3, 0.1, 0.5, 9).p(0, 0.1) == pytest.approx(0.05)
    assert Evidence(0.0, -0.05, 0.1, 9).p(0, 0.1) == pytest.approx(
        0.05
    )  # the nearer end of the two
    assert Evidence(-0.3, -0.5, 0.1, 9).p(0, 0.1) == pytest.approx(0.05)


def test_skewed_values_within_a_known_reach_decide_by_an_interval_that_holds_for_any():
    generator = np.random.default_rng(0)
    values = np.where(
        generator.random(1000) < 0.03, generator.random(1000) * 0.05, 1e-6 * generator.random(1000)
    )
    found = Evidence.of(values, reach=1.0)
    assert found.exceeds(0, 0.05) == "no relevant difference"
    assert found.high > 0.009  # a value of 1 in a few of a thousand texts is not excluded
    assert Evidence.of(values).exceeds(0, 0.05) == "too rare to say"


def test_flips_have_a_score_interval_where_they_are_flips():
    values = np.repeat([1.0, -1.0, 0.0], [30, 10, 60])
    flips, halves = (flips_of("a", value=np.array)(table(a=one)) for one in (values, values / 2))
    assert flips.value == Evidence.of(values).value == 0.2
    assert (flips.low, flips.high) == paired_difference(30, 10, 100)[1:]
    assert halves == Evidence.of(values / 2)


def test_skill_is_0_without_meaning_and_1_at_best():
    null, best = np.random.default_rng(0).random((2, 100)) / 4
    parts = {"a_null": null, "a_best": best + 0.5}
    at_best, at_null = (skill_of("a")(table(**parts, a_own=own)) for own in (best + 0.5, null))
    # a hundred texts alike: 0.036 of all texts may be otherwise, by as much as the whole reach of 1
    gain = (best + 0.5 - null).mean()
    assert (at_best.value, at_best.high) == (1, 1)
    assert at_best.low == pytest.approx(1 - 0.0362 / gain, abs=5e-3)
    assert at_best.exceeds(0, 0.1) == "meets"
    assert (at_null.value, at_null.low, at_null.high) == (
        0,
        pytest.approx(-0.0362 / gain, abs=5e-3),
        -at_null.low,
    )
    assert at_null.exceeds(0, 0.1) == "no relevant difference"
    half = skill_of("a")(table(**parts, a_own=(null + best + 0.5) / 2 + 0.1 * (null - best)))
    assert half.value == pytest.approx(
        ((best + 0.5 - null) / 2 + 0.1 * (null - best)).mean() / gain
    )
    assert half.low < half.value < half.high
    assert skill_of("a")(table(a_null=null)) is None


def test_each_data_set_and_model_is_tested_apart_and_absent_numbers_say_nothing():
    values = np.r_[np.linspace(1, 2, 30), np.linspace(-2, -1, 30)]
    data = pd.DataFrame({"data": ["a"] * 30 + ["b"] * 30, "model": "m", "value": values})
    absent = claim(measure=lambda rows: None)
    found = put_to_test((claim(), absent), data)
    assert [(f.data, f.verdict, f.evidence.n) for f in found] == [
        ("a", "meets", 30),
        ("b", "fails", 30),
    ]


def test_a_claim_is_well_formed():
    for changes, message in (
        ({"criterion": "beauty"}, "criterion='beauty': expected one of necessity"),
        ({"speaks": "against"}, "speaks='against': expected for or neither"),
        ({"level": "sky"}, "level='sky': expected one of model"),
        ({"smallest": -1}, "smallest=-1: expected"),
        ({"primary": True}, "primary=True: expected a claim that speaks for"),
    ):
        with pytest.raises(ValueError, match=message):
            claim(**changes)


def table(run="r", **metrics):
    identity = {
        "run_id": run,
        "experiment": "e",
        "data": "d",
        "model": "m",
        "seed": 0,
        "split": "test",
        "probe": "p",
    }
    rows = Rows()
    for metric, values in metrics.items():
        rows.add(metric, np.arange(len(values)), np.array(values))
    return rows.table(identity).to_pandas()


def test_means_pair_within_the_example_and_leave_out_what_is_undefined():
    a = np.arange(40.0)
    b = np.arange(40.0) - np.linspace(1, 2, 40)
    a[0] = np.nan
    evidence = mean_of("a", "b", value=np.subtract)(table(a=a, b=b))
    assert evidence.value == pytest.approx(np.linspace(1, 2, 40)[1:].mean())
    assert evidence.n == 39
    assert (
        1 < evidence.low < evidence.value < evidence.high < 2
    )  # the spread of a alone would be far wider


def test_several_seeds_are_within_the_interval_and_no_further_examples():
    values = np.random.default_rng(0).normal(0.5, 0.2, 60)
    one = mean_of("a")(table(a=values))
    apart = pd.concat(
        [table(run, a=values + shift) for run, shift in (("r", -0.1), ("s", 0.0), ("t", 0.1))]
    )
    three = mean_of("a")(apart)
    assert (three.value, three.n) == (pytest.approx(one.value), 60)
    assert three.high - three.low > 3 * (one.high - one.low)


def test_few_examples_decide_nothing_and_none_have_no_number():
    few = mean_of("a")(table(a=[*np.linspace(1, 2, 19), np.nan]))
    assert (few.value, few.n, few.exceeds(0)) == (pytest.approx(1.5), 19, "too rare to say")
    share = share_of("a", value=lambda a: a > 0)(table(a=[1.0] * 12 + [-1.0] * 4))
    assert (share.value, share.low, share.high) == wilson(12, 16)
    assert mean_of("a")(table(a=[np.nan] * 12)) is None
    assert mean_of("b")(table(a=[1.0] * 12)) is None
    assert mean_of("a")(table(a=[1.0] * 12).iloc[:0]) is None


def test_the_least_of_several_holds_only_where_all_do():
    def just(low, high):
        return Measure((), lambda rows: Evidence((low + high) / 2, low, high, 20))

    nothing = pd.DataFrame()
    assert least(just(1, 2), just(3, 4))(nothing) == Evidence(1.5, 1, 2, 20)
    assert least(just(1, 2), just(-3, 9))(nothing).exceeds(0) == "cannot decide"
    assert least(just(-3, 9), just(-2, -1))(nothing).exceeds(0) == "fails"
    assert least(just(1, 2), just(np.nan, np.nan))(nothing).exceeds(0) == "cannot decide"
    assert least(just(1, 2), Measure((), lambda rows: None))(nothing) is None
