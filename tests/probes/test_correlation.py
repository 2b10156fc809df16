import math

import numpy as np
import pandas as pd
import pytest
import torch
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
    *(w for w in ("the", "film", "not", "--", "good") for _ in range(6)),
]


def read(batch, **facts):
    return subject_of(toy_classifier(spread=3, **facts), batch, WORDS[:VOCABULARY])


@pytest.mark.parametrize("question", [False, True])
def test_every_pair_equals_scipy_on_each_text_alone(question):
    batch = toy_batch([9, 14, 6, 11], question=question, classes=3)
    subject = read(batch, question=question, classes=3)
    found = values(Correlation(), subject)
    scores = {name: subject.scores(name) for name in Correlation.published}
    pairs = [*(("attention", name) for name in Correlation.published[1:]), *CEILINGS]
    for (left, right), row in ((pair, row) for pair in pairs for row in range(4)):
        content = batch.content[row]
        a, b = (scores[name][row][content].numpy() for name in (left, right))
        name = f"{left}_{right}"
        expected = stats.kendalltau(a, b)
        assert float(found[f"tau_{name}"][row]) == pytest.approx(expected.statistic)
        assert float(found[f"p_{name}"][row]) == pytest.approx(expected.pvalue)
        assert float(found[f"spearman_{name}"][row]) == pytest.approx(
            stats.spearmanr(a, b).statistic
        )
        for kind, top in (("top", 5), ("tenth", math.ceil(len(a) / 10))):
            overlap = len(set(np.argsort(-a)[:top]) & set(np.argsort(-b)[:top])) / top
            assert float(found[f"{kind}_overlap_{name}"][row]) == pytest.approx(overlap)
        assert float(found[f"jsd_{name}"][row]) == pytest.approx(jensenshannon(a, b) ** 2)
        kept = [
            i
            for i in content.nonzero().squeeze(-1).tolist()
            if WORDS[batch.ids[row, i]] in ("film", "good")
        ]
        assert float(found["content_words"][row]) == len(kept)
        few = len(kept) < 2
        tau = (
            math.nan
            if few
            else stats.kendalltau(*(scores[n][row][kept].numpy() for n in (left, right))).statistic
        )
        assert float(found[f"tau_words_{name}"][row]) == pytest.approx(tau, nan_ok=True)
    weights = [subject.readout.attention[row][batch.content[row]].numpy() for row in range(4)]
    even = [stats.entropy(w) / math.log(len(w)) for w in weights]
    np.testing.assert_allclose(found["attention_evenness"], even)


def test_the_shuffled_attention_says_nothing():
    batch = toy_batch([12] * 400)
    found = values(Correlation(), read(batch))
    for name in ("gradient", "gradient_through_attention", "leave_one_out"):
        tau = found[f"tau_shuffled_{name}"]
        # standard deviation of τ of 12 exchangeable entries is 0.22, so of this mean 0.011
        assert abs(float(tau.mean())) < 0.05
        assert float(tau.abs().mean()) == pytest.approx(0.17, abs=0.03)


def test_one_word_is_undefined_everywhere_and_two_words_are_not():
    found = values(Correlation(), read(toy_batch([1, 2])))
    for metric, value in found.items():
        undefined = (
            "tau_attention",
            "p_",
            "spearman",
            "top_tau",
            "tau_shuffled",
            "attention_evenness",
        )
        if metric.startswith(undefined) or ("leave_one_out" in metric and "words" not in metric):
            assert value.isnan().tolist() == [True, False], metric


def test_even_attention_has_no_rank_correlation_and_is_called_even():
    batch = toy_batch([6])
    classifier = toy_classifier()
    with torch.no_grad():
        classifier.attention.score.weight.zero_()
    found = values(Correlation(), subject_of(classifier, batch))
    assert found["attention_evenness"].item() == pytest.approx(1)
    assert found["tau_attention_gradient"].isnan().all()
    assert not found["tau_gradient_leave_one_out"].isnan().any()
    assert not any("words" in metric for metric in found)  # without a vocabulary


def test_the_size_is_compared_of_the_pairs_with_attention_and_the_ceilings_that_are_declared():
    subject = read(toy_batch([9, 7]))
    probe = Correlation(
        ["random", "attention_gradient"], ceilings=[["attention_gradient", "random"]]
    )
    found = values(probe, subject)
    pairs = [metric.removeprefix("spearman_") for metric in found if metric.startswith("spearman_")]
    assert pairs == [
        "attention_random",
        "attention_attention_gradient",
        "attention_gradient_random",
    ]
    assert {"tau_shuffled_random", "tau_shuffled_attention_gradient"} <= set(found)
    assert (subject.scores("attention_gradient")[subject.outputs.content] < 0).any()
    for row in range(2):
        content = subject.outputs.content[row]
        size = subject.scores("attention_gradient")[row][content].abs().numpy()
        expected = stats.kendalltau(subject.readout.attention[row][content].numpy(), size).statistic
        assert float(found["tau_attention_attention_gradient"][row]) == pytest.approx(expected)


def test_function_words_and_punctuation_carry_no_content():
    words = ("The", "film", "not", "n't", "--", "42", "<UNK>", "b-movie")
    assert is_function_word(words).tolist() == [True, False, True, True, True, False, False, False]
    assert is_function_word(words, ("film",)).tolist() == [
        False,
        True,
        False,
        False,
        True,
        False,
        False,
        False,
    ]


def results(count: int = 80, undefined: int = 3) -> pd.DataFrame:
    draws = np.random.default_rng(count)
    metrics = {}
    for pair in map("_".join, PUBLISHED):
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


def test_the_papers_table_beside_the_published_one():
    run = results()
    found = compare(run).set_index(["metric", "group"])
    tau = column(run, "tau_attention_leave_one_out")
    p = column(run, "p_attention_leave_one_out")
    one = np.arange(80) % 2 == 1
    for at, mean, published in (
        (("tau_attention_leave_one_out", "overall"), np.nanmean(tau), 0.291343),
        (("tau_attention_leave_one_out_std", "class_1"), np.nanstd(tau[one]), 0.191504),
        (
            ("significant_attention_leave_one_out", "class_1"),
            (p[one][~np.isnan(p[one])] <= 0.05).mean(),
            0.40,
        ),
    ):
        assert found.loc[at, ["mean", "published"]].tolist() == pytest.approx([mean, published])
    assert found.loc[("tau_attention_leave_one_out", "overall"), "n"] == 77
    assert np.isnan(found.loc[("tau_attention_leave_one_out_std", "class_1"), "low"])
    share = found.loc[("significant_attention_leave_one_out", "class_1")]
    assert share["low"] < share["mean"] < share["high"]
    uneven = column(run, "attention_evenness") <= 0.95
    assert found.loc[("tau_attention_gradient_uneven", "overall"), "mean"] == pytest.approx(
        np.nanmean(column(run, "tau_attention_gradient")[uneven])
    )
    floor = found.loc[("tau_shuffled_gradient_absolute", "overall"), "mean"]
    assert floor == pytest.approx(np.abs(column(run, "tau_shuffled_gradient")).mean())
    assert not found.index.duplicated().any()


def test_false_discoveries_are_controlled_over_the_whole_run_before_it_is_split_by_class():
    run = results()
    p = column(run, "p_attention_gradient")
    # Benjamini & Hochberg written out: the largest k with p_(k) ≤ 0.05 k / n
    known = np.sort(p[~np.isnan(p)])
    passing = np.flatnonzero(known <= 0.05 * np.arange(1, len(known) + 1) / len(known))
    bound = known[passing[-1]]
    found = discovered(p)
    np.testing.assert_array_equal(found[3:], p[3:] <= bound)
    assert np.isnan(found[:3]).all()
    assert 0 < np.nansum(found) < (p <= 0.05).sum()
    one = np.arange(80) % 2 == 1
    row = (
        compare(run)
        .set_index(["metric", "group"])
        .loc[("discovered_attention_gradient", "class_1")]
    )
    assert row["mean"] == pytest.approx(np.nanmean(found[one]))
    assert np.isnan(discovered(np.array([np.nan, np.nan]))).all()


@pytest.mark.parametrize("drawing", READING.drawings, ids=lambda drawing: drawing.name)
@pytest.mark.parametrize("count", [80, 4])
def test_figures_show_a_group_per_class_and_what_is_undefined(drawing, count):
    figure = draw(drawing, results(count, undefined=min(count, 3)))
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()][:2] == ["class 0", "class 1"]
    heading = figure.axes[0].get_title("left").replace("\n", " · ")
    assert heading.endswith(f"n = {count - 3} · 3 undefined")
