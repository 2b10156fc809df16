import math
from functools import cache

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
from tests.probes.texts import Text, numbers_of, overlap_of_top
from tests.toys import VOCABULARY, toy_batch, toy_classifier

WORDS = [
    "<PAD>",
    "<UNK>",
    "<SOS>",
    "<EOS>",
    *np.repeat(["the", "film", "not", "--", "good"], 6).tolist(),
]


def read(batch, **facts):
    classifier = toy_classifier(spread=3, **facts)
    vocabulary = WORDS[:VOCABULARY]
    return subject_of(classifier, batch, vocabulary)


PAIRS = [("attention", name) for name in Correlation.published[1:]]
PAIRS += CEILINGS


@cache
def examined(question):
    """Four texts, with a question each or without, and what is measured."""
    batch = toy_batch([9, 14, 6, 11], question=question, classes=3)
    subject = read(batch, question=question, classes=3)
    return subject, values(Correlation(), subject)


@pytest.mark.parametrize("question", [False, True])
@pytest.mark.parametrize(("first", "second"), PAIRS)
@pytest.mark.parametrize("row", range(4))
def test_every_pair_equals_scipy_on_each_text_by_itself(question, first, second, row):
    subject, numbers = examined(question)
    text = Text(subject, row)
    a = text.scores(first)
    b = text.scores(second)
    tau = stats.kendalltau(a, b)
    tenth = math.ceil(len(a) / 10)
    expected = {
        "tau": tau.statistic,
        "p": tau.pvalue,
        "spearman": stats.spearmanr(a, b).statistic,
        "jsd": jensenshannon(a, b) ** 2,
        "top_overlap": overlap_of_top(a, b, 5),
        "tenth_overlap": overlap_of_top(a, b, tenth),
    }
    result = numbers_of(numbers, row)
    for metric, number in expected.items():
        name = f"{metric}_{first}_{second}"
        assert result[name] == pytest.approx(number), name


@pytest.mark.parametrize("question", [False, True])
@pytest.mark.parametrize(("first", "second"), PAIRS)
@pytest.mark.parametrize("row", range(4))
def test_tau_over_content_words_leaves_out_function_words(question, first, second, row):
    subject, numbers = examined(question)
    text = Text(subject, row)
    ids = text.at_words(subject.batch.ids)
    words = np.array(WORDS)[ids]
    carries_content = np.isin(words, ["film", "good"])
    a = text.scores(first)[carries_content]
    b = text.scores(second)[carries_content]
    tau = math.nan
    if len(a) >= 2:
        tau = stats.kendalltau(a, b).statistic
    result = numbers_of(numbers, row)
    tau_over_words = result[f"tau_words_{first}_{second}"]
    assert result["content_words"] == len(a)
    assert tau_over_words == pytest.approx(tau, nan_ok=True)


@pytest.mark.parametrize("question", [False, True])
@pytest.mark.parametrize("row", range(4))
def test_evenness_is_the_entropy_as_a_share_of_its_largest_value(question, row):
    subject, numbers = examined(question)
    weights = Text(subject, row).weights
    largest_entropy = math.log(len(weights))
    expected = stats.entropy(weights) / largest_entropy
    assert_allclose(numbers["attention_evenness"][row], expected)


@cache
def many_texts():
    batch = toy_batch([12] * 400)
    return values(Correlation(), read(batch))


@pytest.mark.parametrize("name", ["gradient", "gradient_through_attention", "leave_one_out"])
def test_the_shuffled_attention_says_nothing(name):
    tau = many_texts()[f"tau_shuffled_{name}"]
    # standard deviation of τ of 12 exchangeable entries is 0.22, so of this mean 0.011
    assert tau.mean().abs() < 0.05
    mean_size = tau.abs().mean().item()
    assert mean_size == pytest.approx(0.17, abs=0.03)


RANKED = ("tau_attention", "p_", "spearman", "top_tau", "tau_shuffled", "attention_evenness")
"""What is undefined for a single word begins like this, or is about leave-one-out."""


def needs_two_words(metric):
    removes_words = "leave_one_out" in metric and "words" not in metric
    return metric.startswith(RANKED) or removes_words


def test_one_word_is_undefined_everywhere_and_two_words_are_not():
    subject = read(toy_batch([1, 2]))
    numbers = values(Correlation(), subject)
    for metric in filter(needs_two_words, numbers):
        is_undefined = numbers[metric].isnan()
        assert is_undefined.tolist() == [True, False], metric


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


@pytest.fixture(scope="module")
def signed_scores():
    """Two texts, and their numbers by scores that may be below 0."""
    subject = read(toy_batch([9, 7]))
    probe = Correlation(
        ["random", "attention_gradient"],
        ceilings=[["attention_gradient", "random"]],
    )
    return subject, values(probe, subject)


def test_the_pairs_with_attention_and_the_ceilings_that_are_declared_are_compared(signed_scores):
    _, numbers = signed_scores
    compared = {metric for metric in numbers if metric.startswith("spearman_")}
    assert compared == {
        "spearman_attention_random",
        "spearman_attention_attention_gradient",
        "spearman_attention_gradient_random",
    }
    assert {"tau_shuffled_random", "tau_shuffled_attention_gradient"} <= set(numbers)


@pytest.mark.parametrize("row", range(2))
def test_scores_with_a_sign_are_compared_by_their_size(signed_scores, row):
    subject, numbers = signed_scores
    text = Text(subject, row)
    scores = text.scores("attention_gradient")
    sizes = np.abs(scores)
    expected = stats.kendalltau(text.weights, sizes).statistic
    result = numbers_of(numbers, row)
    assert (scores < 0).any()
    assert result["tau_attention_attention_gradient"] == pytest.approx(expected)


def test_function_words_and_punctuation_carry_no_content():
    words = np.array(["The", "film", "not", "n't", "--", "42", "<UNK>", "b-movie"])
    is_excluded = is_function_word(tuple(words))
    assert words[is_excluded].tolist() == ["The", "not", "n't", "--"]
    is_excluded = is_function_word(tuple(words), ("film",))
    assert words[is_excluded].tolist() == ["film", "--"]


def results(count: int = 80, undefined: int = 3) -> pd.DataFrame:
    """The table of a run on as many texts, the first few of which have no correlation."""
    draws = np.random.default_rng(count)
    metrics = {
        "attention_evenness": draws.uniform(0.8, 1, count),
        "predicted_class": np.arange(count) % 2,
    }
    for first, second in PUBLISHED:
        tau = draws.uniform(-0.5, 1, count)
        p = draws.beta(0.4, 2, count)
        tau[:undefined] = np.nan
        p[:undefined] = np.nan
        metrics[f"tau_{first}_{second}"] = tau
        metrics[f"p_{first}_{second}"] = p
    for name in ("gradient", "leave_one_out"):
        metrics[f"tau_shuffled_{name}"] = draws.uniform(-0.4, 0.4, count)
    return table("correlation", metrics, data="sst", model="lstm_additive")


def column(run: pd.DataFrame, metric: str) -> np.ndarray:
    rows = run[run["metric"] == metric]
    return rows.sort_values("example_id")["value"].to_numpy()


def headlines(run: pd.DataFrame) -> pd.DataFrame:
    return compare(run).set_index(["metric", "group"])


IS_CLASS_1 = np.arange(80) % 2 == 1


@pytest.fixture(scope="module")
def published():
    """A run and its table beside the published one."""
    run = results()
    return run, headlines(run)


def test_the_papers_table_beside_the_published_one(published):
    run, table = published
    tau = column(run, "tau_attention_leave_one_out")
    mean = table.loc[("tau_attention_leave_one_out", "overall")]
    deviation = table.loc[("tau_attention_leave_one_out_std", "class_1")]
    assert mean["mean"] == pytest.approx(np.nanmean(tau))
    assert mean["published"] == 0.291343
    assert mean["n"] == 77
    tau_of_class_1 = tau[IS_CLASS_1]
    assert deviation["mean"] == pytest.approx(np.nanstd(tau_of_class_1))
    assert deviation["published"] == 0.191504
    assert np.isnan(deviation["low"])
    assert not table.index.duplicated().any()


def test_the_share_of_significant_texts_has_an_interval(published):
    run, table = published
    p = column(run, "p_attention_leave_one_out")[IS_CLASS_1]
    is_significant = p[~np.isnan(p)] <= 0.05
    share = table.loc[("significant_attention_leave_one_out", "class_1")]
    assert share["mean"] == pytest.approx(is_significant.mean())
    assert share["published"] == 0.40
    assert share["low"] < share["mean"] < share["high"]


def test_tau_without_nearly_even_attention(published):
    run, table = published
    is_uneven = column(run, "attention_evenness") <= 0.95
    tau = column(run, "tau_attention_gradient")[is_uneven]
    mean = table.loc[("tau_attention_gradient_uneven", "overall"), "mean"]
    assert mean == pytest.approx(np.nanmean(tau))


def test_the_size_of_a_shuffled_attentions_tau(published):
    run, table = published
    tau = column(run, "tau_shuffled_gradient")
    mean = table.loc[("tau_shuffled_gradient_absolute", "overall"), "mean"]
    assert mean == pytest.approx(np.abs(tau).mean())


def largest_discovery(p):
    """Benjamini & Hochberg written out: the largest p_(k) of n that is at most 0.05 k / n."""
    rank = np.arange(1, len(p) + 1)
    limit = 0.05 * rank / len(p)
    ascending = np.sort(p)
    return ascending[ascending <= limit].max()


def test_false_discoveries_are_controlled_over_the_whole_run_before_it_is_split_by_class(published):
    run, table = published
    p = column(run, "p_attention_gradient")
    bound = largest_discovery(p[3:])

    discoveries = discovered(p)

    assert np.isnan(discoveries[:3]).all()
    assert_array_equal(discoveries[3:], p[3:] <= bound)
    uncorrected = p <= 0.05
    assert 0 < np.nansum(discoveries) < uncorrected.sum()

    discoveries_of_class_1 = discoveries[IS_CLASS_1]
    share = table.loc[("discovered_attention_gradient", "class_1"), "mean"]
    assert share == pytest.approx(np.nanmean(discoveries_of_class_1))


def test_nothing_is_discovered_where_nothing_was_tested():
    untested = np.array([np.nan, np.nan])
    assert np.isnan(discovered(untested)).all()


@pytest.mark.parametrize("drawing", READING.drawings, ids=lambda drawing: drawing.name)
@pytest.mark.parametrize("count", [80, 4])
def test_figures_show_a_group_per_class_and_what_is_undefined(drawing, count):
    figure = draw(drawing, results(count, undefined=min(count, 3)))
    (legend,) = figure.legends
    entries = [text.get_text() for text in legend.get_texts()]
    assert entries[:2] == ["class 0", "class 1"]
    heading = figure.axes[0].get_title("left").replace("\n", " · ")
    assert heading.endswith(f"n = {count - 3} · 3 undefined")
