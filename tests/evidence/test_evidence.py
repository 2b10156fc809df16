import numpy as np
import pandas as pd
import pytest
from scipy import stats

from attnprobe.evidence.claims import CEILING, Finding, reliability, with_ceilings
from attnprobe.evidence.evidence import FAILS, MEETS, NOT_INFORMATIVE, Evidence, skill_of
from attnprobe.findings.comparisons import compare_models
from attnprobe.findings.judgement import judgement_on
from attnprobe.findings.rules import judge
from attnprobe.probes.agreement import READING
from attnprobe.results.numbers import numbers_of
from attnprobe.results.table import Rows
from tests.probes.tables import NAN, table

IDENTITY = {
    "run_id": "r",
    "experiment": "e",
    "data": "d",
    "model": "m",
    "seed": 0,
    "split": "test",
    "probe": "skill",
}


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
    away = (
        stats.beta.ppf(0.975, elsewhere + 1, 60 - elsewhere)
        / Evidence.of_runs(best[None], reach=2.0).low
    )
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
    """Known answers: attention that gains all there is, which is almost nothing, about the gate, or
    plenty."""
    spread = np.random.default_rng(0).uniform(0, 2, 200)
    said = {
        gain: skill(gain * spread, 0 * spread, gain * spread).exceeds(0, 0.1)
        for gain in (0.0001, 0.019, 0.1)
    }
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


def run_of(scores, measure="leave_one_out", seed=0):
    identity = IDENTITY | {"run_id": f"r{seed}", "seed": seed, "probe": measure}
    rows = [
        {"metric": measure, "example_id": text, "step": float(place), "value": value}
        for text, of_text in enumerate(scores)
        for place, value in enumerate(of_text)
    ]
    of_text = {"metric": "predicted_class", "step": np.nan, "value": 0.0}
    rows += [{"example_id": text} | of_text for text in range(len(scores))]
    return numbers_of(pd.DataFrame(rows).assign(**identity))


def drawn(seed, texts=60):
    return np.random.default_rng(seed).random((texts, 12))


def held(against):
    claim = next(one for one in READING.claims if one.against == against)
    return Finding(claim, Evidence(0.6, 0.5, 0.7, 100), "d", "m")


def test_tau_by_hand():
    """1 2 3 4 against 1 2 4 3: five pairs alike, one not."""
    found = reliability(
        [run_of([[1, 2, 3, 4]] * 3), run_of([[1, 2, 4, 3]] * 3, seed=1)], "leave_one_out"
    )
    assert found.value == pytest.approx(4 / 6)
    assert np.isnan(found.low)  # one pair does not say how others would differ
    assert found.n == 3


def test_the_same_scores_agree_whole_unrelated_ones_not_at_all_and_noise_around_one_truth_is_between():
    same = [run_of(drawn(1), seed=seed) for seed in range(3)]
    assert reliability(same, "leave_one_out").value == pytest.approx(1)
    unrelated = reliability([run_of(drawn(seed), seed=seed) for seed in range(5)], "leave_one_out")
    assert unrelated.low < 0 < unrelated.high
    assert abs(unrelated.value) < 0.05
    found = reliability(
        [run_of(drawn(0) + drawn(seed), seed=seed) for seed in (1, 2, 3)], "leave_one_out"
    )
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
    judgements = judge([agreement, gradient, about])
    line = judgement_on(agreement.claim, judgements)
    assert line.verdict == state
    assert reliable or "leave-one-out hardly agrees with itself over seeds" in line.reason


COUNT = 40
NOISE = np.linspace(-0.05, 0.05, COUNT)
ONES = np.ones(COUNT)


def models(probe, first, second, *, names=("flanrnn", "flannoenc")):
    return pd.concat([table(probe, first, model=names[0]), table(probe, second, model=names[1])])


def by_attention(fraction, optimal=0.1, never=0.0):
    return {
        "removed_fraction_attention": fraction,
        "removed_fraction_optimal": optimal * ONES,
        "never_flips": never * ONES,
    }


def verdicts(results):
    return {finding.claim.name: finding.verdict for finding in compare_models(results)}


def agreement(at, names):
    low, high = (
        {f"tau_attention_{of}": one for of in ("gradient", "leave_one_out")}
        for one in (at, 0.3 * ONES)
    )
    return models("correlation", low, high, names=names)


@pytest.mark.parametrize(
    ("lead", "verdict"), [(0.2, "meets"), (-0.2, "fails"), (0.0, "cannot decide")]
)
def test_known_leads_of_one_model_over_the_other(lead, verdict):
    more = by_attention(0.5 + lead + NOISE)
    half = by_attention(0.5 * ONES)
    less = {"tau_attention_effect": 0.3 - lead + NOISE}
    agreeing = agreement(0.3 - lead + NOISE, ("lstm_dot", "average_dot"))
    followed = models("single_weight", less, {"tau_attention_effect": 0.3 * ONES})
    for results, expected in (
        (models("erasure", more, half), ["order_worse_flanrnn_flannoenc"]),
        (models("erasure", more, half, names=("hanconv", "hanrnn")), ["needs_more_hanconv_hanrnn"]),
        (followed, ["effects_follow_less_flanrnn_flannoenc"]),
        (
            agreeing,
            [f"{of}_agrees_less_lstm_dot_average_dot" for of in ("gradient", "leave_one_out")],
        ),
    ):
        assert verdicts(results) == dict.fromkeys(expected, verdict)
    (finding,) = compare_models(models("erasure", more, half))
    assert (finding.data, finding.model, finding.evidence.n) == (
        "yelp",
        "flanrnn, flannoenc",
        COUNT,
    )
    assert finding.evidence.value == pytest.approx(lead)
    assert finding.claim.speaks == "neither"


def test_models_are_compared_within_the_examples_that_both_have_and_can_flip():
    first = by_attention(np.array([0.5, 0.7] * 20))
    second = by_attention(np.array([0.4, NAN] * 20))
    second["never_flips"] = np.array([0.0, 1.0] * 20)
    (finding,) = compare_models(models("erasure", first, second))
    assert (finding.evidence.value, finding.evidence.n) == (pytest.approx(0.1), 20)
    second["never_flips"] = (
        0 * ONES
    )  # now attention's order alone does not flip every other one: all items
    (finding,) = compare_models(models("erasure", first, second))
    assert (finding.evidence.value, finding.evidence.n) == (pytest.approx((0.1 - 0.3) / 2), COUNT)
    shifted = models("erasure", first, second)
    shifted.loc[shifted["model"] == "flannoenc", "example_id"] += 2
    assert compare_models(shifted)[0].evidence.n == COUNT - 2


def test_seeds_are_averaged_first():
    one = by_attention(0.5 * ONES)
    other = by_attention(0.9 * ONES)
    seeds = pd.concat(
        [
            table("erasure", one, model="flanrnn"),
            table("erasure", other, model="flanrnn").assign(seed=1, run_id="s1"),
        ]
    )
    (finding,) = compare_models(pd.concat([seeds, table("erasure", one, model="flannoenc")]))
    assert (finding.evidence.value, finding.evidence.n) == (pytest.approx(0.2), COUNT)


def test_what_is_missing_is_not_compared():
    alone = table("erasure", by_attention(0.5 * ONES), model="flanrnn")
    assert compare_models(alone) == []
    elsewhere = table("erasure", by_attention(0.5 * ONES), model="flannoenc", data="imdb")
    assert compare_models(pd.concat([alone, elsewhere])) == []
    assert (
        compare_models(models("erasure", by_attention(0.5 * ONES), {"content_length": ONES})) == []
    )
    assert (
        compare_models(
            models("erasure", by_attention(0.5 * ONES), by_attention(NAN * ONES, never=1.0))
        )
        == []
    )
    few = {metric: values[:5] for metric, values in by_attention(0.5 + NOISE).items()}
    assert verdicts(models("erasure", few, few)) == {
        "order_worse_flanrnn_flannoenc": "too rare to say"
    }
