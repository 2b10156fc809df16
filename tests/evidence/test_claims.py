import numpy as np
import pandas as pd
import pytest

from attnprobe.evidence.claims import (
    CEILING,
    Claim,
    Finding,
    put_to_test,
    reliability,
    with_ceilings,
)
from attnprobe.evidence.evidence import Evidence
from attnprobe.evidence.verdicts import Verdict
from attnprobe.findings.judgement import judgement_on
from attnprobe.findings.rules import judge
from attnprobe.probes.agreement import READING
from attnprobe.results.numbers import numbers_of


def claim(**changes):
    """A claim about the mean of a table's numbers."""
    fields = {
        "name": "c",
        "criterion": "erasure",
        "statement": "s",
        "source": "p",
        "quantity": "q",
        "measure": lambda rows: Evidence.of(rows["value"]),
    }
    return Claim(**fields | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"criterion": "beauty"}, "criterion='beauty': expected one of necessity"),
        ({"speaks": "against"}, "speaks='against': expected for or neither"),
        ({"level": "sky"}, "level='sky': expected one of model"),
        ({"smallest": -1}, "smallest=-1: expected"),
        ({"primary": True}, "primary=True: expected a claim that speaks for"),
    ],
)
def test_a_claim_is_well_formed(changes, message):
    with pytest.raises(ValueError, match=message):
        claim(**changes)


ABOVE = np.linspace(1, 2, 30)
BELOW = np.linspace(-2, -1, 30)
TWO_DATA_SETS = pd.DataFrame(
    {
        "data": ["a"] * 30 + ["b"] * 30,
        "model": "m",
        "value": np.r_[ABOVE, BELOW],
    }
)


def test_each_data_set_and_model_is_tested_apart():
    above, below = put_to_test((claim(),), TWO_DATA_SETS)
    assert (above.data, above.verdict, above.evidence.n) == ("a", "meets", 30)
    assert (below.data, below.verdict, below.evidence.n) == ("b", "fails", 30)


def test_absent_numbers_say_nothing():
    assert put_to_test((claim(measure=lambda rows: None),), TWO_DATA_SETS) == []


# the reliability of an importance


def run_of(scores, measure="leave_one_out", seed=0):
    """A run with an importance of every word: `[texts, words]`."""
    rows = []
    for text, words in enumerate(scores):
        decision = {"metric": "predicted_class", "step": np.nan, "value": 0.0}
        rows.append({"example_id": text, **decision})
        for place, value in enumerate(words):
            score = {"metric": measure, "step": float(place), "value": value}
            rows.append({"example_id": text, **score})
    identity = {
        "run_id": f"r{seed}",
        "experiment": "e",
        "data": "d",
        "model": "m",
        "seed": seed,
        "split": "test",
        "probe": measure,
    }
    return numbers_of(pd.DataFrame(rows).assign(**identity))


def drawn(seed, texts=60):
    """Random scores of 12 words a text."""
    return np.random.default_rng(seed).random((texts, 12))


def agreement_with(measure):
    """A finding of `agreement` on attention and an importance."""
    (claim,) = [claim for claim in READING.claims if claim.against == measure]
    return Finding(claim, Evidence(0.6, 0.5, 0.7, 100), "d", "m")


def test_tau_by_hand():
    """1 2 3 4 against 1 2 4 3: five pairs alike, one not."""
    first = run_of([[1, 2, 3, 4]] * 3)
    second = run_of([[1, 2, 4, 3]] * 3, seed=1)
    evidence = reliability([first, second], "leave_one_out")
    assert evidence.value == pytest.approx(4 / 6)
    assert np.isnan(evidence.low)  # one pair does not say how others would differ
    assert evidence.n == 3


def test_the_same_scores_agree_entirely():
    same = [run_of(drawn(1), seed=seed) for seed in range(3)]
    assert reliability(same, "leave_one_out").value == pytest.approx(1)


def test_unrelated_scores_do_not_agree_at_all():
    runs = [run_of(drawn(seed), seed=seed) for seed in range(5)]
    unrelated = reliability(runs, "leave_one_out")
    assert unrelated.low < 0 < unrelated.high
    assert abs(unrelated.value) < 0.05


def test_noise_around_one_truth_is_between():
    noisy = [run_of(drawn(0) + drawn(seed), seed=seed) for seed in (1, 2, 3)]
    evidence = reliability(noisy, "leave_one_out")
    assert CEILING < evidence.low < evidence.value < evidence.high < 1


def test_texts_of_equal_scores_and_of_one_seed_alone_are_left_out():
    first = drawn(1, 6)
    second = first[:5].copy()
    second[2] = 0.5
    evidence = reliability([run_of(first), run_of(second, seed=1)], "leave_one_out")
    assert evidence.value == pytest.approx(1)
    assert evidence.n == 4


def test_one_seed_has_no_reliability():
    assert reliability([run_of(drawn(1))], "leave_one_out") is None


def test_an_unmeasured_importance_has_no_reliability():
    runs = [run_of(drawn(1)), run_of(drawn(2), seed=1)]
    assert reliability(runs, "gradient") is None


def test_a_finding_on_one_seed_has_no_ceiling():
    finding = agreement_with("leave_one_out")
    assert with_ceilings([finding], [run_of(drawn(1))]) == [finding]


@pytest.fixture(params=[True, False], ids=["reliable", "unreliable"])
def is_reliable(request):
    return request.param


@pytest.fixture
def ceilings(is_reliable):
    """Agreement with two importances of which one was measured, and that one's own reliability."""
    draws = [0, 0, 0] if is_reliable else [0, 1, 2]
    runs = [run_of(drawn(draw), seed=seed) for seed, draw in enumerate(draws)]
    findings = [agreement_with("leave_one_out"), agreement_with("gradient")]
    return with_ceilings(findings, runs)


def test_the_reliability_of_an_importance_is_a_finding_of_its_own(ceilings, is_reliable):
    reliability = ceilings[2]
    assert reliability.claim.name == "leave_one_out_agrees_with_itself"
    assert reliability.verdict == (Verdict.MEETS if is_reliable else Verdict.FAILS)


def test_agreement_with_an_unmeasured_importance_stays_as_it_is(ceilings):
    assert ceilings[1] == agreement_with("gradient")


def test_no_agreement_is_claimed_with_an_importance_that_does_not_agree_with_itself(
    ceilings, is_reliable
):
    line = judgement_on(ceilings[0].claim, judge(ceilings))
    if is_reliable:
        assert line.verdict == Verdict.MEETS
    else:
        assert line.verdict == Verdict.NOT_INFORMATIVE
        assert "leave-one-out hardly agrees with itself over seeds" in line.reason
