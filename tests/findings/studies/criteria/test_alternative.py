from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from attnprobe.findings.studies.base import StudyReading
from attnprobe.findings.studies.criteria.alternative import CLAIM, add_alternative, chosen
from attnprobe.results.pivot import per_example


def table_of(**methods):
    """A long table of comprehensiveness by importance, words deleted and replaced by zeros."""
    rows = [
        {"metric": f"comprehensiveness_{method}_by_{operator}", "example_id": text, "value": value}
        for method, values in methods.items()
        for operator in ("delete", "zeros")
        for text, value in enumerate(values)
    ]
    run = {
        "run_id": "r",
        "experiment": "x",
        "data": "d",
        "model": "m",
        "seed": 0,
        "split": "test",
    }
    return pd.DataFrame(rows).assign(step=np.nan, probe="faithfulness", **run)


def read(results):
    reading = StudyReading("", "", "d", "m", Path(), [])
    add_alternative(reading, results)
    return reading


def drawn(mean, seed, texts=200):
    return np.clip(np.random.default_rng(seed).normal(mean, 0.1, texts), -1, 1)


def test_a_better_method_is_named_with_its_gain_on_the_other_half():
    attention = drawn(0.2, 0)
    better = attention + drawn(0.1, 1)
    reading = read(
        table_of(
            attention=attention,
            random=drawn(0.02, 2),
            gradient_input=better,
            lime=attention - 0.05,
        )
    )
    assert reading.readings[CLAIM.name].startswith("Instead of attention, show gradient input. ")
    (finding,) = reading.findings
    assert (finding.evidence.n, finding.verdict) == (100, "meets")
    assert finding.evidence.value == pytest.approx((better - attention)[1::2].mean())
    assert finding.evidence.low > 0.05


def test_of_twenty_methods_that_are_no_better_none_is_shown():
    attention = drawn(0.2, 0)
    methods = {f"method{number}": drawn(0.2, 10 + number) for number in range(20)}
    results = table_of(attention=attention, random=drawn(0.02, 2), **methods)
    assert read(results).readings[CLAIM.name].startswith("Nothing is shown to be better")
    # the best of twenty does look better on the half that it was chosen on
    texts = per_example(results, "faithfulness", results["metric"].unique().tolist())
    best, _ = chosen(texts, list(methods))
    first_half = texts.iloc[::2]
    gain = (
        first_half[f"comprehensiveness_{best}_by_delete"]
        - first_half["comprehensiveness_attention_by_delete"]
    )
    assert gain.mean() > 0.01


def test_without_random_words_nothing_is_said():
    assert not read(table_of(attention=drawn(0.2, 0), lime=drawn(0.4, 1))).tables


ATTENTION_BY_ZEROS = "comprehensiveness_attention_by_zeros"
LIME_BY_ZEROS = "comprehensiveness_lime_by_zeros"
UNCONFIRMED = "Nothing better than attention is confirmed. Without the top words of lime"


@pytest.fixture
def lime_is_better():
    attention = drawn(0.2, 0)
    return table_of(attention=attention, random=drawn(0.02, 2), lime=attention + drawn(0.1, 1))


def test_a_method_that_is_better_in_every_way_is_shown(lime_is_better):
    words = read(lime_is_better).readings[CLAIM.name]
    assert words.startswith("Instead of attention, show lime. ")
    assert "probe.faithfulness.operators" not in words


def test_a_method_that_another_way_of_taking_words_out_denies_is_not_shown(lime_is_better):
    by_zeros = lime_is_better["metric"] == LIME_BY_ZEROS
    lime_is_better.loc[by_zeros, "value"] = drawn(0.2, 0) - 0.1
    words = read(lime_is_better).readings[CLAIM.name]
    assert words.startswith("Nothing is shown to be better")
    assert "probe.faithfulness.operators" not in words


@pytest.mark.parametrize(
    "lost", [ATTENTION_BY_ZEROS, LIME_BY_ZEROS, "_by_zeros"], ids=["attention", "lime", "all"]
)
def test_without_another_way_of_taking_words_out_nothing_is_confirmed(lime_is_better, lost):
    words = read(lime_is_better[~lime_is_better["metric"].str.endswith(lost)])
    words = words.readings[CLAIM.name]
    assert words.startswith(UNCONFIRMED)
    assert "probe.faithfulness.operators=[delete,zeros]" in words
