import math
from functools import cache
from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from scipy.spatial.distance import jensenshannon

from attnprobe.evidence.statistics import discovered
from attnprobe.findings.headlines import compare
from attnprobe.importance.baselines import is_function_word
from attnprobe.probes.correlation import CEILINGS, PUBLISHED, READING, Correlation
from tests.probes.tables import draw, subject_of, table, values
from tests.toys import VOCABULARY, toy_batch, toy_classifier

WORDS = [
    "<PAD>",
    "<UNK>",
    "<SOS>",
    "<EOS>",
    *np.repeat(["the", "film", "not", "--", "good"], 6).tolist(),
]


def read(batch, **facts):
    return subject_of(toy_classifier(spread=3, **facts), batch, WORDS[:VOCABULARY])


PAIRS = [*(("attention", name) for name in Correlation.published[1:]), *CEILINGS]
CASES = list(product([False, True], PAIRS, range(4)))


@cache
def examined(question):
    """Four texts, with a question each or without, and what is measured."""
    subject = read(
        toy_batch([9, 14, 6, 11], question=question, classes=3), question=question, classes=3
    )
    return subject, values(Correlation(), subject)


def row_of(subject, pair, row, positions):
    """The two scores of a pair at some positions of a text."""
    return [subject.scores(name)[row][positions].numpy() for name in pair]


@pytest.mark.parametrize(("question", "pair", "row"), CASES)
def test_every_pair_equals_scipy_on_each_text_by_itself(question, pair, row):
    subject, numbers = examined(question)
    a, b = row_of(subject, pair, row, subject.batch.content[row])
    tau = stats.kendalltau(a, b)
    expected = {
        "tau": tau.statistic,
        "p": tau.pvalue,
        "spearman": stats.spearmanr(a, b).statistic,
        "jsd": jensenshannon(a, b) ** 2,
    }
    for kind, count in (("top", 5), ("tenth", math.ceil(len(a) / 10))):
        top_of_a = set(np.argsort(-a)[:count])
        top_of_b = set(np.argsort(-b)[:count])
        expected[f"{kind}_overlap"] = len(top_of_a & top_of_b) / count
    for metric, number in expected.items():
        measured = numbers[f"{metric}_{'_'.join(pair)}"][row]
        assert float(measured) == pytest.approx(number), metric


@pytest.mark.parametrize(("question", "pair", "row"), CASES)
def test_tau_over_content_words_leaves_out_function_words(question, pair, row):
    subject, numbers = examined(question)
    positions = [
        place
        for place in subject.batch.content[row].nonzero().squeeze(-1).tolist()
        if WORDS[subject.batch.ids[row, place]] in ("film", "good")
    ]
    assert float(numbers["content_words"][row]) == len(positions)
    tau = math.nan
    if len(positions) >= 2:
        tau = stats.kendalltau(*row_of(subject, pair, row, positions)).statistic
    assert float(numbers[f"tau_words_{'_'.join(pair)}"][row]) == pytest.approx(tau, nan_ok=True)


@pytest.mark.parametrize("question", [False, True])
@pytest.mark.parametrize("row", range(4))
def test_evenness_is_the_entropy_as_a_share_of_its_largest_value(question, row):
    subject, numbers = examined(question)
    weights = subject.readout.attention[row][subject.batch.content[row]].numpy()
    expected = stats.entropy(weights) / math.log(len(weights))
    assert_allclose(numbers["attention_evenness"][row], expected)


@cache
def many_texts():
    return values(Correlation(), read(toy_batch([12] * 400)))


@pytest.mark.parametrize("name", ["gradient", "gradient_through_attention", "leave_one_out"])
def test_the_shuffled_attention_says_nothing(name):
    tau = many_texts()[f"tau_shuffled_{name}"]
    # standard deviation of τ of 12 exchangeable entries is 0.22, so of this mean 0.011
    assert abs(float(tau.mean())) < 0.05
    assert float(tau.abs().mean()) == pytest.approx(0.17, abs=0.03)


RANKED = ("tau_attention", "p_", "spearman", "top_tau", "tau_shuffled", "attention_evenness")
"""What is undefined for a single word begins like this, or is about leave-one-out."""


def test_one_word_is_undefined_everywhere_and_two_words_are_not():
    numbers = values(Correlation(), read(toy_batch([1, 2])))
    for metric, value in numbers.items():
        if metric.startswith(RANKED) or ("leave_one_out" in metric and "words" not in metric):
            assert value.isnan().tolist() == [True, False], metric


def test_even_attention_has_no_rank_correlation_and_is_called_even():
    batch = toy_batch([6])
    classifier = toy_classifier()
    with torch.no_grad():
        classifier.attention.score.weight.zero_()
    numbers = values(Correlation(), subject_of(classifier, batch))
    assert numbers["attention_evenness"].item() == pytest.approx(1)
    assert numbers["tau_attention_gradient"].isnan().all()
    assert not numbers["tau_gradient_leave_one_out"].isnan().any()
    assert not any("words" in metric for metric in numbers)  # without a vocabulary


def test_the_size_is_compared_of_the_pairs_with_attention_and_the_ceilings_that_are_declared():
    subject = read(toy_batch([9, 7]))
    probe = Correlation(
        ["random", "attention_gradient"], ceilings=[["attention_gradient", "random"]]
    )
    numbers = values(probe, subject)
    pairs = [
        metric.removeprefix("spearman_") for metric in numbers if metric.startswith("spearman_")
    ]
    assert pairs == [
        "attention_random",
        "attention_attention_gradient",
        "attention_gradient_random",
    ]
    assert {"tau_shuffled_random", "tau_shuffled_attention_gradient"} <= set(numbers)
    assert (subject.scores("attention_gradient")[subject.outputs.content] < 0).any()
    for row in range(2):
        content = subject.outputs.content[row]
        size = subject.scores("attention_gradient")[row][content].abs().numpy()
        expected = stats.kendalltau(subject.readout.attention[row][content].numpy(), size).statistic
        assert float(numbers["tau_attention_attention_gradient"][row]) == pytest.approx(expected)


def test_function_words_and_punctuation_carry_no_content():
    words = ("The", "film", "not", "n't", "--", "42", "<UNK>", "b-movie")
    excluded = np.array(words)[is_function_word(words).numpy()]
    assert excluded.tolist() == ["The", "not", "n't", "--"]
    excluded = np.array(words)[is_function_word(words, ("film",)).numpy()]
    assert excluded.tolist() == ["film", "--"]


def results(count: int = 80, undefined: int = 3) -> pd.DataFrame:
    draws = np.random.default_rng(count)
    metrics = {}
    for names in PUBLISHED:
        pair = "_".join(names)
        tau = draws.uniform(-0.5, 1, count)
        p = draws.beta(0.4, 2, count)
        tau[:undefined] = p[:undefined] = np.nan
        metrics |= {f"tau_{pair}": tau, f"p_{pair}": p}
    for name in ("gradient", "leave_one_out"):
        metrics[f"tau_shuffled_{name}"] = draws.uniform(-0.4, 0.4, count)
    metrics |= {
        "attention_evenness": draws.uniform(0.8, 1, count),
        "predicted_class": np.arange(count) % 2,
    }
    return table("correlation", metrics, data="sst", model="lstm_additive")


def column(run: pd.DataFrame, metric: str) -> np.ndarray:
    return run[run["metric"] == metric].sort_values("example_id")["value"].to_numpy()


def headlines(run: pd.DataFrame) -> pd.DataFrame:
    return compare(run).set_index(["metric", "group"])


def test_the_papers_table_beside_the_published_one():
    run = results()
    table = headlines(run)
    tau = column(run, "tau_attention_leave_one_out")
    p = column(run, "p_attention_leave_one_out")
    second = np.arange(80) % 2 == 1
    significant = p[second][~np.isnan(p[second])] <= 0.05
    expected = {
        ("tau_attention_leave_one_out", "overall"): [np.nanmean(tau), 0.291343],
        ("tau_attention_leave_one_out_std", "class_1"): [np.nanstd(tau[second]), 0.191504],
        ("significant_attention_leave_one_out", "class_1"): [significant.mean(), 0.40],
    }
    for key, numbers in expected.items():
        assert table.loc[key, ["mean", "published"]].tolist() == pytest.approx(numbers)
    assert table.loc[("tau_attention_leave_one_out", "overall"), "n"] == 77
    assert not table.index.duplicated().any()


def test_a_share_has_an_interval_and_a_standard_deviation_has_none():
    table = headlines(results())
    assert np.isnan(table.loc[("tau_attention_leave_one_out_std", "class_1"), "low"])
    share = table.loc[("significant_attention_leave_one_out", "class_1")]
    assert share["low"] < share["mean"] < share["high"]


def test_tau_without_nearly_even_attention_and_the_size_of_a_shuffled_ones():
    run = results()
    table = headlines(run)
    uneven = column(run, "attention_evenness") <= 0.95
    tau = np.nanmean(column(run, "tau_attention_gradient")[uneven])
    assert table.loc[("tau_attention_gradient_uneven", "overall"), "mean"] == pytest.approx(tau)
    floor = np.abs(column(run, "tau_shuffled_gradient")).mean()
    assert table.loc[("tau_shuffled_gradient_absolute", "overall"), "mean"] == pytest.approx(floor)


def test_false_discoveries_are_controlled_over_the_whole_run_before_it_is_split_by_class():
    run = results()
    p = column(run, "p_attention_gradient")
    # Benjamini & Hochberg written out: the largest k with p_(k) ≤ 0.05 k / n
    ordered = np.sort(p[~np.isnan(p)])
    limits = 0.05 * np.arange(1, len(ordered) + 1) / len(ordered)
    bound = ordered[np.flatnonzero(ordered <= limits)[-1]]
    discoveries = discovered(p)
    assert_array_equal(discoveries[3:], p[3:] <= bound)
    assert np.isnan(discoveries[:3]).all()
    assert 0 < np.nansum(discoveries) < (p <= 0.05).sum()
    share = headlines(run).loc[("discovered_attention_gradient", "class_1"), "mean"]
    assert share == pytest.approx(np.nanmean(discoveries[np.arange(80) % 2 == 1]))


def test_nothing_is_discovered_where_nothing_was_tested():
    assert np.isnan(discovered(np.array([np.nan, np.nan]))).all()


@pytest.mark.parametrize("drawing", READING.drawings, ids=lambda drawing: drawing.name)
@pytest.mark.parametrize("count", [80, 4])
def test_figures_show_a_group_per_class_and_what_is_undefined(drawing, count):
    figure = draw(drawing, results(count, undefined=min(count, 3)))
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()][:2] == ["class 0", "class 1"]
    heading = figure.axes[0].get_title("left").replace("\n", " · ")
    assert heading.endswith(f"n = {count - 3} · 3 undefined")
