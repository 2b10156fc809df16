import numpy as np
import pytest

from attnprobe.evidence.statistics import Interval
from attnprobe.findings.bench import rates as shipped
from attnprobe.findings.bench.rates import bench_rates, beside_attention_on_bench, shipped_rates
from attnprobe.runs.bench import importances_of_bench


def test_known_answers_are_as_they_must_be():
    truth = bench_rates("truth")
    assert (truth.auroc.value, truth.truth.value) == (1, 1)
    assert truth.yes.value > 0.8
    reverse = bench_rates("reverse")
    assert (reverse.auroc.value, reverse.yes.value) == (0, 0)
    chance = bench_rates("random")
    assert chance.auroc.low <= 0.5 <= chance.auroc.high
    assert chance.yes.value <= 0.05


def test_no_interval_leaves_its_scale():
    rates = shipped_rates()
    for name, low in {
        "auroc": 0,
        "average_precision": 0,
        "truth": -1,
        "share": -1,
        "yes": 0,
    }.items():
        assert (rates[f"{name}_low"].dropna() >= low).all()
        assert (rates[f"{name}_high"].dropna() <= 1).all()


def test_only_importances_and_known_answers_are_rated():
    rated = set(shipped_rates().index.get_level_values("scores"))
    assert {"attention", "gradient", "leave_one_out", "occlusion", "random"} <= rated
    assert rated <= {*importances_of_bench(), "truth", "reverse"}


def test_a_method_is_cited_beside_attention_on_the_same_models():
    sentence = beside_attention_on_bench("leave_one_out")
    assert sentence.startswith(f"On {bench_rates('leave_one_out').models} small models of ")
    assert f"attention: {100 * bench_rates('attention').auroc.value:.0f} %" in sentence


def test_a_method_of_layers_is_cited_on_transformers():
    assert bench_rates("rollout") is None
    assert "small transformers" in beside_attention_on_bench("rollout")


def test_of_other_methods_nothing_is_said():
    assert beside_attention_on_bench("my_own") == ""


@pytest.mark.parametrize(
    ("interval", "words"),
    [
        (Interval(0.981, 0.9, 1.0), "98 % [90, 100]"),
        (Interval(1.0, np.nan, np.nan), "100 %"),
    ],
)
def test_percentages_are_short(interval, words):
    assert shipped._percent(interval) == words
