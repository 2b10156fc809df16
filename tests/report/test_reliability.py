"""A measure of importance with itself over seeds: known answers, the null, and what it stops."""

import numpy as np
import pandas as pd
import pytest

from attnprobe.evidence.claims import CEILING, Finding, reliability, with_ceilings
from attnprobe.evidence.evidence import FAILS, MEETS, NOT_INFORMATIVE, Evidence
from attnprobe.findings.verdicts import judge
from attnprobe.probes.agreement import READING
from attnprobe.results.numbers import numbers_of

WORDS = 12


def run_of(scores, measure="leave_one_out", seed=0):
    """One run's numbers: a score for every word of every text, and what every probe says of each text."""
    identity = {
        "run_id": f"r{seed}", "experiment": "x", "data": "d", "model": "m", "seed": seed, "split": "test", "probe": measure,
    }  # fmt: skip
    rows = [
        {"metric": measure, "example_id": text, "step": float(place), "value": value}
        for text, of_text in enumerate(scores)
        for place, value in enumerate(of_text)
    ]
    of_text = {"metric": "predicted_class", "step": np.nan, "value": 0.0}
    rows += [{"example_id": text} | of_text for text in range(len(scores))]
    return numbers_of(pd.DataFrame(rows).assign(**identity))


def drawn(seed, texts=60):
    return np.random.default_rng(seed).random((texts, WORDS))


def held(against):
    """A finding that attention agrees with this measure."""
    claim = next(one for one in READING.claims if one.against == against)
    return Finding(claim, Evidence(0.6, 0.5, 0.7, 100), "d", "m")


def test_tau_by_hand():
    """1 2 3 4 against 1 2 4 3: five pairs alike, one not."""
    found = reliability([run_of([[1, 2, 3, 4]] * 3), run_of([[1, 2, 4, 3]] * 3, seed=1)], "leave_one_out")
    assert found.value == pytest.approx(4 / 6)
    assert np.isnan(found.low)  # one pair does not say how others would differ
    assert found.n == 3


def test_the_same_scores_agree_whole_and_unrelated_ones_not_at_all():
    same = [run_of(drawn(1), seed=seed) for seed in range(3)]
    assert reliability(same, "leave_one_out").value == pytest.approx(1)
    unrelated = reliability([run_of(drawn(seed), seed=seed) for seed in range(5)], "leave_one_out")
    assert unrelated.low < 0 < unrelated.high
    assert abs(unrelated.value) < 0.05


def test_noise_around_one_truth_is_between():
    found = reliability([run_of(drawn(0) + drawn(seed), seed=seed) for seed in (1, 2, 3)], "leave_one_out")
    assert CEILING < found.low < found.value < found.high < 1


def test_texts_of_equal_scores_and_of_one_seed_alone_are_left_out():
    first = drawn(1, 6)
    second = first[:5].copy()
    second[2] = 0.5
    found = reliability([run_of(first), run_of(second, seed=1)], "leave_one_out")
    assert (found.value, found.n) == (pytest.approx(1), 4)


def test_one_seed_and_an_unmeasured_importance_have_none():
    assert reliability([run_of(drawn(1))], "leave_one_out") is None
    assert reliability([run_of(drawn(1)), run_of(drawn(2), seed=1)], "gradient") is None
    assert with_ceilings([held("leave_one_out")], [run_of(drawn(1))]) == [held("leave_one_out")]


@pytest.mark.parametrize(("reliable", "state"), [(True, MEETS), (False, NOT_INFORMATIVE)])
def test_no_agreement_is_claimed_with_a_measure_that_does_not_agree_with_itself(reliable, state):
    runs = [run_of(drawn(0 if reliable else seed), seed=seed) for seed in range(3)]
    agreement, gradient, about = with_ceilings([held("leave_one_out"), held("gradient")], runs)
    assert gradient == held("gradient")  # nothing is known of it
    assert about.claim.name == "leave_one_out_agrees_with_itself"
    assert about.verdict == (MEETS if reliable else FAILS)
    rows = judge([("test-agreement", one) for one in (agreement, gradient, about)])
    line = rows[rows["criterion"] == "agreement"].iloc[0]
    assert line["verdict"] == state
    assert reliable or "leave-one-out hardly agrees with itself over seeds" in line["reason"]
