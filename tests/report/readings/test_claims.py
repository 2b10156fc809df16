"""Every claim of every reading on invented tables: where it must hold, fail, and stay undecided."""

import numpy as np
import pandas as pd
import pytest

from attnprobe.report.claims import put_to_test
from attnprobe.report.reading import readings
from tests.report.readings.test_erasure import NAN, erased, table

COUNT, LENGTH = 40, 20


def shares(first, second):
    """Two shares of the items, one further from 0.4 than the other by x."""
    return lambda x: {first: 0.4 + x / 2, second: 0.4 - x / 2}


def needed(more, fewer, **others):
    """Orders of an example that can flip: the first needs x more of the items than the second, others as given."""

    def metrics(x):
        fractions = {more: 0.5 + x / 2, fewer: 0.5 - x / 2} | {name: np.full(COUNT, at) for name, at in others.items()}
        return {f"removed_fraction_{name}": values for name, values in fractions.items()} | {"never_flips": 0 * x}

    return metrics


def counts(first, second):
    """The first order needs fewer items than the second where x > 0, more where x < 0."""
    return lambda x: {f"removed_count_{first}": 5 - np.sign(x), f"removed_count_{second}": 5 + 0 * x}


# claim → the metrics of examples in which the claim's number is above its threshold as far as x is above 0
CASES = {
    ("permutation", "permuting_moves_the_prediction"): lambda x: {"median_tvd": 0.05 + x / 10},
    ("adversarial", "another_attention_exists"): lambda x: {"optimum_jsd": 0.4 + x, "upper_bound": 0.4 + x},
    ("adversarial", "the_search_falls_short"): lambda x: {
        "optimum_jsd": 0.5 + 0 * x, "found_jsd": 0.49 - x, "reached_share": 0.98 - 2 * x,
    },
    ("correlation", "attention_gradient_above_chance"): lambda x: {"tau_attention_gradient": x},
    ("correlation", "attention_leave_one_out_above_chance"): lambda x: {"tau_attention_leave_one_out": x},
    ("correlation", "attention_gradient_half_of_ceiling"): lambda x: {
        "tau_attention_gradient": 0.2 + x, "tau_gradient_leave_one_out": 0.4 + 0 * x,
    },
    ("correlation", "attention_leave_one_out_half_of_ceiling"): lambda x: {
        "tau_attention_leave_one_out": 0.2 + x, "tau_gradient_leave_one_out": 0.4 + 0 * x,
    },
    ("correlation", "importances_agree_more"): shares("tau_gradient_leave_one_out", "tau_attention_leave_one_out"),
    ("plausibility", "top_token_in_rationale"): shares("top_in_rationale_attention", "rationale_share"),
    ("plausibility", "mass_on_rationale"): shares("mass_in_rationale_attention", "rationale_share"),
    ("plausibility", "gradient_is_more_plausible"): shares("top_in_rationale_gradient", "top_in_rationale_attention"),
    ("single_weight", "top_flips_more_than_random"): shares("flip_top_attention", "flip_random_attention"),
    ("single_weight", "delta_js_is_positive"): lambda x: {"delta_js_attention": x},
    ("single_weight", "effects_follow_attention"): lambda x: {"tau_attention_effect": 0.5 + x},
    ("single_weight", "gradient_attention_finds_more"): shares("js_top_gradient_attention", "js_top_attention"),
    ("single_weight", "one_weight_rarely_decides"): lambda x: {"flip_top_attention": (x <= 0).astype(float)},
    ("single_weight", "small_differences_do_little"): lambda x: {
        "drawn_delta_js_attention": np.where(x > 0, -0.005, 0.02), "drawn_delta_attention_attention": 0.39 + 0 * x,
    },
    ("erasure", "attention_beats_random"): needed("random", "attention"),
    ("erasure", "attention_closer_to_random_than_to_optimal"): needed("attention", "ignored", random=0.8, optimal=0.2),
    ("erasure", "attention_needs_more_than_the_optimum"): lambda x: {
        "regret_attention": np.where(x > 0, 1.0, 0.0), "never_flips": 0 * x,
    },
    ("erasure", "gradient_beats_attention"): counts("gradient", "attention"),
    ("erasure", "gradient_attention_beats_attention"): counts("gradient_attention", "attention"),
    ("erasure", "random_is_worst"): needed("random", "gradient", attention=0.1, gradient_attention=0.1),
    ("erasure", "gradient_attention_is_best"): needed("gradient", "gradient_attention", attention=0.9, random=0.9),
}  # fmt: skip


def found(probe, metrics, name):
    """What becomes of one claim."""
    claims = tuple(claim for claim in readings()[probe].claims if claim.name == name)
    findings = put_to_test(claims, table(probe, metrics))
    return findings[0] if findings else None


@pytest.mark.parametrize(("probe", "name"), CASES, ids=lambda word: word)
@pytest.mark.parametrize(("centre", "verdict"), [(0.15, "holds"), (-0.15, "fails"), (0.0, "undecided")])
def test_a_claim_holds_fails_or_stays_undecided(probe, name, centre, verdict):
    half = np.linspace(0.01, 0.14, COUNT // 2)
    x = np.concatenate([half, -half]) + centre
    finding = found(probe, CASES[probe, name](x), name)
    assert finding.verdict == verdict
    assert finding.evidence.n == COUNT


@pytest.mark.parametrize(("probe", "name"), CASES, ids=lambda word: word)
def test_a_claim_without_its_numbers_is_not_made(probe, name):
    metrics = CASES[probe, name](np.linspace(-0.1, 0.1, COUNT)) | {"content_length": np.full(COUNT, LENGTH)}
    for left_out in metrics:
        if left_out not in ("content_length", "removed_fraction_ignored"):
            kept = {metric: values for metric, values in metrics.items() if metric != left_out}
            assert found(probe, kept, name) is None
    assert found(probe, {metric: np.full(COUNT, NAN) for metric in metrics}, name) is None


@pytest.mark.parametrize("probe", sorted({probe for probe, _ in CASES} | {"performance", "gradient", "leave_one_out"}))
def test_readings_say_what_they_measure_and_their_claims_are_tested(probe):
    reading = readings()[probe]
    assert {claim.name for claim in reading.claims} == {name for of, name in CASES if of == probe}
    assert len({claim.name for claim in reading.claims}) == len(reading.claims)
    assert reading.title
    assert 2 <= reading.about.count(". ") + reading.about.count("? ") + 1 <= 6
    assert reading.about.endswith(".")


def test_orders_are_compared_on_what_can_flip_and_an_order_that_does_not_flip_it_needs_everything():
    counts = {"attention": [4, 4, NAN], "random": [8, NAN, NAN], "optimal": [2, 2, NAN]}
    metrics = {name: np.tile(values, 10) for name, values in erased(np.full(3, 16), **counts).items()}
    evidence = found("erasure", metrics, "attention_beats_random").evidence
    assert evidence.n == 20
    assert evidence.value == pytest.approx(((8 - 4) / 16 + (16 - 4) / 16) / 2)
    # 4/16 − (8/16 + 2/16)/2 and 4/16 − (16/16 + 2/16)/2
    evidence = found("erasure", metrics, "attention_closer_to_random_than_to_optimal").evidence
    assert evidence.value == pytest.approx((-1 / 16 - 5 / 16) / 2)
    assert found("erasure", metrics, "attention_needs_more_than_the_optimum").evidence.value == 1


def test_an_order_that_does_not_flip_what_can_be_flipped_has_regret():
    metrics = {"regret_attention": [0.0, NAN, NAN] * 10, "never_flips": [0, 0, 1] * 10}
    evidence = found("erasure", metrics, "attention_needs_more_than_the_optimum").evidence
    assert (evidence.value, evidence.n) == (0.5, 20)


def test_two_orders_meet_where_one_of_them_flips():
    metrics = {
        "removed_count_gradient": [1, NAN, 3, NAN] * 10,
        "removed_count_attention": [2, 2, 3, NAN] * 10,
    }
    evidence = found("erasure", metrics, "gradient_beats_attention").evidence
    assert (evidence.value, evidence.n) == (0, 30)  # one sooner, one later, one tie


def test_a_bracketed_optimum_widens_the_interval_upwards_alone():
    far, near = np.full(COUNT, 0.6), np.full(COUNT, 0.3)
    assert (
        found("adversarial", {"optimum_jsd": near, "upper_bound": near}, "another_attention_exists").verdict == "fails"
    )
    bracketed = found("adversarial", {"optimum_jsd": near, "upper_bound": far}, "another_attention_exists")
    assert bracketed.verdict == "undecided"
    assert bracketed.evidence.value == 0
    assert found("adversarial", {"optimum_jsd": far, "upper_bound": far}, "another_attention_exists").verdict == "holds"


def test_where_nothing_but_the_search_is_known_it_falls_short_of_nothing():
    metrics = {
        "optimum_jsd": [0.5] * COUNT,
        "found_jsd": [0.4] * 20 + [0.2] * 20,
        "reached_share": [NAN] * 20 + [0.4] * 20,
    }
    evidence = found("adversarial", metrics, "the_search_falls_short").evidence
    assert (evidence.value, evidence.n) == (pytest.approx(0.3), 20)


@pytest.mark.parametrize("ceiling", [[0.1, -0.1] * 20, [-0.2] * COUNT])
def test_half_of_no_agreement_is_no_bar(ceiling):
    metrics = {"tau_attention_gradient": [0.3] * COUNT, "tau_gradient_leave_one_out": ceiling}
    assert found("correlation", metrics, "attention_gradient_half_of_ceiling") is None


def test_large_differences_of_weights_are_left_out():
    metrics = {
        "drawn_delta_js_attention": [0.005] * 20 + [0.3] * 20,
        "drawn_delta_attention_attention": [0.1] * 20 + [0.4] * 20,
    }
    evidence = found("single_weight", metrics, "small_differences_do_little").evidence
    assert (evidence.value, evidence.n) == (1, 20)


def test_seeds_are_no_further_examples():
    one, other = (table("permutation", {"median_tvd": np.full(COUNT, at)}) for at in (0.1, 0.3))
    both = pd.concat([one, other.assign(seed=1, run_id="another")])
    (finding,) = put_to_test(readings()["permutation"].claims, both)
    assert (finding.evidence.value, finding.evidence.n) == (pytest.approx(0.2), COUNT)
