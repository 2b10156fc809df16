import re
from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from attnprobe.findings.quality import quality, quality_of
from attnprobe.report.page.build import write_report
from tests.small_runs import seal_again


def test_one_class_for_every_text_is_named():
    one_class = quality([0] * 97 + [1] * 3, [0] * 100, ["no", "yes"])
    assert one_class.accuracy == one_class.majority == 0.97
    assert one_class.only == "no"
    assert one_class.n == 100
    assert one_class.warning.startswith(
        "This classifier predicts one class for every text (no): accuracy 0.970 ["
    )


def test_a_class_without_a_name_is_called_by_its_number():
    assert quality([0, 1], [1, 1]).only == "class 1"
    assert quality([0, 1], [1, 1], ["no"]).only == "class 1"


def test_of_no_text_there_is_no_quality():
    assert quality([], []) is None


def right_on(labels, count):
    """Quality of a classifier of two classes that is right on the first so many texts."""
    is_right = np.arange(len(labels)) < count
    return quality(labels, np.where(is_right, labels, 1 - labels))


@pytest.mark.parametrize(
    ("right", "warns"),
    [
        (52, True),
        (58, True),
        (80, False),
        (20, True),
    ],
)
def test_the_interval_is_wilsons_and_decides(right, warns):
    measured = right_on(np.arange(100) % 2, right)
    low, high = stats.binomtest(right, 100).proportion_ci(method="wilson")
    assert measured.accuracy == pytest.approx(right / 100)
    assert measured.low == pytest.approx(low)
    assert measured.high == pytest.approx(high)
    assert measured.majority == pytest.approx(0.5)
    assert warns == (low <= 0.5)
    assert bool(measured.warning) == warns


@pytest.mark.parametrize("right", [180, 200])
def test_no_classifier_is_better_than_guessing_on_texts_of_one_class(right):
    """Whoever names that class in nine of ten texts, without reading any, is right in as many."""
    measured = right_on(np.zeros(200, int), right)
    assert measured.majority == measured.chance == 1
    assert not measured.better_than_guessing


def test_answers_about_one_text_count_together():
    """A thousand answers that are alike in every text of ten say what a hundred texts say."""
    labels = np.arange(100) % 2
    predictions = np.where(np.arange(100) < 60, labels, 1 - labels)
    texts = quality(labels, predictions)
    labels_of_answers = np.repeat(labels, 10)
    answered = np.repeat(predictions, 10)
    text_of_answer = np.repeat(np.arange(100), 10)
    answers = quality(labels_of_answers, answered, texts=text_of_answer)
    assert answers.low == pytest.approx(texts.low)
    assert answers.high == pytest.approx(texts.high)
    assert answers.balanced_low == pytest.approx(texts.balanced_low)
    assert answers.n == 1000

    independent = quality(labels_of_answers, answered)
    width = answers.high - answers.low
    assert independent.high - independent.low < 0.5 * width


@pytest.mark.parametrize(("right", "better"), [(531, False), (550, False), (600, True)])
def test_a_hair_above_guessing_is_not_better_than_guessing(right, better):
    """0.531 of 1,000 is above a half by its whole interval: one coin in forty is."""
    measured = right_on(np.arange(1000) % 2, right)
    assert measured.balanced_low > 0.499
    assert measured.asked == pytest.approx(0.525)
    assert measured.better_than_guessing == better


def test_few_classifiers_that_flip_a_coin_pass():
    """All that 20 texts of each class can show, weighted by how likely a coin shows it."""
    labels = np.repeat([0, 1], 20)
    above_a_half = 0.0
    passed = 0.0
    coin = stats.binom(20, 0.5)
    for first, second in product(range(21), range(21)):
        is_right = np.concatenate([np.arange(20) < first, np.arange(20) < second])
        measured = quality(labels, np.where(is_right, labels, 1 - labels))
        probability = coin.pmf(first) * coin.pmf(second)
        above_a_half += probability * (measured.balanced_low > 0.5)
        passed += probability * measured.better_than_guessing
    assert above_a_half > 0.02
    assert passed < 0.011


def test_the_page_warns_above_the_verdicts_and_only_where_it_must(make_run, tmp_path, no_pictures):
    good = make_run("good")
    bad = make_run("bad", model="cnn_additive", names=["<b>no</b>", "yes"])
    path = bad / "examples/test.parquet"
    pd.read_parquet(path).assign(prediction=0).to_parquet(path)
    seal_again(bad)
    assert quality_of(good).warning == ""
    text = write_report([good, bad], tmp_path / "report.html").read_text(encoding="utf-8")
    sheet, verdicts = re.findall(r"<(?:dd>This classifier|li><b>)[^\n]*?</(?:dd|li)>", text)
    for warning in (sheet, verdicts):
        assert "predicts one class for every text (&lt;b&gt;no&lt;/b&gt;)" in warning
    assert "cnn_additive" in verdicts
    assert "lstm_additive" not in verdicts
