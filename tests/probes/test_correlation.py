import math

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.spatial.distance import jensenshannon

from attnprobe.errors import UserError
from attnprobe.importance.leave_one_out.member import LeaveOneOut
from attnprobe.importance.words import is_function_word
from attnprobe.probes.base import Measurement, Subject
from attnprobe.probes.correlation import Correlation
from attnprobe.randomness import Draws
from tests.toys import VOCABULARY, rows_of, toy_batch, toy_classifier, toy_readout

WORDS = ["<PAD>", "<UNK>", "<SOS>", "<EOS>", *(w for w in ("the", "film", "not", "--", "good") for _ in range(6))]


def subject_of(batch, importances=None, **facts):
    classifier = toy_classifier(spread=3, **facts)
    return Subject(classifier, batch, *toy_readout(classifier, batch), WORDS[:VOCABULARY], importances or {})


def measured(subject, **settings):
    return {
        m.metric: m.value
        for m in Correlation(**settings).measure(subject, Draws(0, "correlation"))
        if isinstance(m, Measurement)
    }


@pytest.mark.parametrize("question", [False, True])
def test_every_pair_equals_scipy_on_each_text_alone(question):
    batch = toy_batch([9, 14, 6, 11], question=question, classes=3)
    subject = subject_of(batch, question=question, classes=3)
    found = measured(subject)
    scores = Correlation().strengths(subject)
    for (left, right), row in ((pair, row) for pair in Correlation().pairs(list(scores)) for row in range(4)):
        content = batch.content[row]
        a, b = (scores[name][row][content].numpy() for name in (left, right))
        name = f"{left}_{right}"
        expected = stats.kendalltau(a, b)
        assert float(found[f"tau_{name}"][row]) == pytest.approx(expected.statistic)
        assert float(found[f"p_{name}"][row]) == pytest.approx(expected.pvalue)
        assert float(found[f"spearman_{name}"][row]) == pytest.approx(stats.spearmanr(a, b).statistic)
        overlap = len(set(np.argsort(-a)[:5]) & set(np.argsort(-b)[:5])) / 5
        assert float(found[f"top_overlap_{name}"][row]) == pytest.approx(overlap)
        tenth = math.ceil(len(a) / 10)
        overlap = len(set(np.argsort(-a)[:tenth]) & set(np.argsort(-b)[:tenth])) / tenth
        assert float(found[f"tenth_overlap_{name}"][row]) == pytest.approx(overlap)
        assert float(found[f"jsd_{name}"][row]) == pytest.approx(jensenshannon(a, b) ** 2)
        kept = [i for i in content.nonzero().squeeze(-1).tolist() if WORDS[batch.ids[row, i]] in ("film", "good")]
        assert float(found["content_words"][row]) == len(kept)
        few = len(kept) < 2
        tau = math.nan if few else stats.kendalltau(*(scores[n][row][kept].numpy() for n in (left, right))).statistic
        assert float(found[f"tau_words_{name}"][row]) == pytest.approx(tau, nan_ok=True)
    weights = [subject.readout.attention[row][batch.content[row]].numpy() for row in range(4)]
    even = [stats.entropy(w) / math.log(len(w)) for w in weights]
    np.testing.assert_allclose(found["attention_evenness"], even)


def test_the_shuffled_attention_says_nothing():
    batch = toy_batch([12] * 400)
    found = measured(subject_of(batch))
    for name in ("gradient", "gradient_through_attention", "leave_one_out"):
        tau = found[f"tau_shuffled_{name}"]
        # standard deviation of τ of 12 exchangeable entries is 0.22, so of this mean 0.011
        assert abs(float(tau.mean())) < 0.05
        assert float(tau.abs().mean()) == pytest.approx(0.17, abs=0.03)


def test_one_word_is_undefined_everywhere_and_two_words_are_not():
    found = measured(subject_of(toy_batch([1, 2])))
    for metric, value in found.items():
        if metric.startswith(("tau_attention", "p_", "spearman", "top_tau", "tau_shuffled", "attention_evenness")):
            assert value.isnan().tolist() == [True, False], metric
        if "leave_one_out" in metric and "words" not in metric:
            assert value.isnan().tolist() == [True, False], metric
    assert found["content_length"].tolist() == [1, 2]


def test_even_attention_has_no_rank_correlation_and_is_called_even():
    batch = toy_batch([6])
    classifier = toy_classifier()
    with torch.no_grad():
        classifier.attention.score.weight.zero_()
    found = measured(Subject(classifier, batch, *toy_readout(classifier, batch), None))
    assert found["attention_evenness"].item() == pytest.approx(1)
    assert found["tau_attention_gradient"].isnan().all()
    assert not found["tau_gradient_leave_one_out"].isnan().any()
    assert not any("words" in metric for metric in found)  # without a vocabulary


def test_batch_and_padding_change_no_number():
    lengths = [7, 12, 3]
    batch, padded = toy_batch(lengths), toy_batch(lengths, padding=4)
    # in float64 throughout, so that the comparison can be sharp
    exact = {"leave_one_out": LeaveOneOut(tolerance=1e-7)}
    expected, wide = (measured(subject_of(texts, exact)) for texts in (batch, padded))
    alone = [measured(subject_of(rows_of(batch, [row]), exact)) for row in range(3)]
    for metric, value in expected.items():
        torch.testing.assert_close(wide[metric], value, atol=1e-10, rtol=0, equal_nan=True)
        single = torch.cat([one[metric] for one in alone])
        torch.testing.assert_close(single, value, atol=1e-10, rtol=0, equal_nan=True)


def test_function_words_and_punctuation_carry_no_content():
    words = ["The", "film", "not", "n't", "--", "42", "<UNK>", "b-movie"]
    assert is_function_word(words).tolist() == [True, False, True, True, True, False, False, False]
    assert is_function_word(words, ["film"]).tolist() == [False, True, False, False, True, False, False, False]


def test_attention_is_compared_with_each_and_ceilings_are_declared():
    names = ["gradient", "value_norm", "leave_one_out", "random"]
    subject = subject_of(toy_batch([9, 7]))
    found = measured(subject, importances=names)
    pairs = {metric.removeprefix("spearman_") for metric in found if metric.startswith("spearman_")}
    assert pairs == {*(f"attention_{name}" for name in names), "gradient_leave_one_out"}
    assert {f"tau_shuffled_{name}" for name in names} <= set(found)
    content, norm = subject.outputs.content, subject.scores("value_norm")
    for row in range(2):
        a, b = (values[row][content[row]].numpy() for values in (subject.readout.attention, norm))
        assert float(found["tau_attention_value_norm"][row]) == pytest.approx(stats.kendalltau(a, b).statistic)


def test_of_a_signed_importance_the_size_is_compared():
    subject = subject_of(toy_batch([9, 7]))
    tau = measured(subject, importances=["attention_gradient"])["tau_attention_attention_gradient"]
    assert (subject.scores("attention_gradient")[subject.outputs.content] < 0).any()
    for row in range(2):
        content = subject.outputs.content[row]
        size = subject.scores("attention_gradient")[row][content].abs().numpy()
        expected = stats.kendalltau(subject.readout.attention[row][content].numpy(), size).statistic
        assert float(tau[row]) == pytest.approx(expected)


def test_attention_alone_is_compared_with_nothing():
    with pytest.raises(UserError, match=r"probe\.correlation\.importances=\['attention'\]: expected one or more"):
        Correlation(importances=["attention"])


def test_a_list_of_one_has_no_order():
    with pytest.raises(UserError, match=r"probe\.correlation\.top=1: expected .* 2 or more"):
        Correlation(top=1)


def test_the_ceilings_are_those_that_are_declared():
    probe = Correlation(importances=["attention", "random", "gradient"], ceilings=[["gradient", "random"]])
    assert probe.pairs(list(probe.uses)) == [("attention", "random"), ("attention", "gradient"), ("gradient", "random")]
    with pytest.raises(UserError, match=r"ceilings: \['attention', 'gradient'\]: expected two importances, neither"):
        Correlation(ceilings=[["attention", "gradient"]])
