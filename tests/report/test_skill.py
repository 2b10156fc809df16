"""Skill of texts of which nearly all are alike: bounded, because a bootstrap knows nothing of the others."""

import numpy as np
import pytest
from scipy import stats

from attnprobe.evidence.evidence import Evidence, skill_of
from attnprobe.results.table import Rows

IDENTITY = {"run_id": "r", "experiment": "e", "data": "d", "model": "m", "seed": 0, "split": "test", "probe": "skill"}


def skill(own, null, best, reach=1.0):
    rows = Rows()
    for name, values in (("own", own), ("null", null), ("best", best)):
        rows.add(f"loss_{name}", np.arange(len(values)), np.asarray(values, float))
    return skill_of("loss", reach=reach)(rows.table(IDENTITY).to_pandas())


@pytest.mark.parametrize("elsewhere", [0, 1])
def test_texts_that_are_all_at_their_best_are_bounded_by_clopper_and_pearson(elsewhere):
    best = np.random.default_rng(0).uniform(0.4, 0.9, 60)
    own = best.copy()
    own[:elsewhere] = 0.3
    found = skill(own, np.zeros(60), best)
    away = stats.beta.ppf(0.975, elsewhere + 1, 60 - elsewhere) / Evidence.of_runs(best[None], reach=2.0).low
    assert found.value == pytest.approx(own.mean() / best.mean())
    assert found.low == pytest.approx(1 - away)
    assert found.high == pytest.approx(1)
    assert not found.rare


def test_texts_that_are_all_at_the_null_may_be_on_either_side_of_it():
    best = np.random.default_rng(1).uniform(0.4, 0.9, 60)
    found = skill(np.zeros(60), np.zeros(60), best, reach=0.5)
    away = 0.5 * stats.beta.ppf(0.975, 1, 60) / Evidence.of_runs(best[None], reach=2.0).low
    assert (found.value, found.low, found.high) == pytest.approx((0, -away, away))


def test_what_may_be_within_the_gate_decides_nothing_and_what_is_ahead_is_asked():
    """Known answers: attention that gains all there is, which is almost nothing, about the gate, or plenty."""
    spread = np.random.default_rng(0).uniform(0, 2, 200)
    said = {gain: skill(gain * spread, 0 * spread, gain * spread).exceeds(0, 0.1) for gain in (0.0001, 0.019, 0.1)}
    assert said == {0.0001: "not informative", 0.019: "cannot decide", 0.1: "meets"}
    half = skill(np.where(np.arange(200) % 2, 0.1, 0) * spread, 0 * spread, 0.1 * spread)
    assert 0.1 < half.low < 0.5 < half.high < 1


def test_no_skill_is_above_that_of_the_best():
    best = np.random.default_rng(2).uniform(0.1, 0.9, 40)
    own = np.where(np.arange(40) % 2, best, best - 0.05)
    found = skill(own, np.zeros(40), best)
    assert found.low < found.value < found.high <= 1
    bounded = skill(np.where(np.arange(40) == 0, 0, best), np.zeros(40), best)
    assert bounded.low < bounded.value < bounded.high == 1
