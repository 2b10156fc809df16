from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from attnprobe.findings.studies.base import StudyReading
from attnprobe.findings.studies.criteria.alternative import add_alternative, chosen
from attnprobe.results.pivot import per_example


def table_of(**values):
    """A long table of comprehensiveness by importance, words deleted and replaced by zeros."""
    rows = [
        {"metric": f"comprehensiveness_{name}_by_{operator}", "example_id": place, "value": value}
        for name, numbers in values.items()
        for operator in ("delete", "zeros")
        for place, value in enumerate(numbers)
    ]
    run = {"run_id": "r", "experiment": "x", "data": "d", "model": "m", "seed": 0, "split": "test"}
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
    results = table_of(
        attention=attention, random=drawn(0.02, 2), gradient_input=better, lime=attention - 0.05
    )
    reading = read(results)
    words = reading.readings["another_method_is_more_faithful"]
    assert words.startswith("Instead of attention, show gradient input. ")
    gain = reading.findings[0].evidence
    assert (gain.n, reading.findings[0].verdict) == (100, "meets")
    assert gain.value == pytest.approx((better - attention)[1::2].mean())
    assert gain.low > 0.05


def test_of_twenty_methods_that_are_no_better_none_is_shown():
    attention = drawn(0.2, 0)
    others = {f"method{number}": drawn(0.2, 10 + number) for number in range(20)}
    results = table_of(attention=attention, random=drawn(0.02, 2), **others)
    assert (
        read(results)
        .readings["another_method_is_more_faithful"]
        .startswith("Nothing is shown to be better")
    )
    # the best of twenty does look better on the half that it was chosen on
    frame = per_example(results, "faithfulness", results["metric"].unique().tolist())
    best, _ = chosen(frame, list(others))
    first = frame.iloc[::2]
    apart = (
        first[f"comprehensiveness_{best}_by_delete"]
        - first["comprehensiveness_attention_by_delete"]
    )
    assert apart.mean() > 0.01
    assert not read(
        table_of(attention=attention, lime=drawn(0.4, 1))
    ).tables  # nothing is said without the null


@pytest.mark.parametrize(
    "other_way", ["agrees", "denies", "lacks attention", "lacks lime", "lacks all"]
)
def test_another_way_of_taking_words_out_has_to_agree(other_way):
    attention = drawn(0.2, 0)
    results = table_of(attention=attention, random=drawn(0.02, 2), lime=attention + drawn(0.1, 1))
    by_zeros = results["metric"].str.endswith("_by_zeros")
    lime = results["metric"] == "comprehensiveness_lime_by_zeros"
    if other_way == "denies":
        results.loc[lime, "value"] = attention - 0.1
    elif other_way.startswith("lacks"):
        lost = {
            "attention": results["metric"] == "comprehensiveness_attention_by_zeros",
            "lime": lime,
            "all": by_zeros,
        }
        results = results[~lost[other_way.removeprefix("lacks ")]]
    words = read(results).readings["another_method_is_more_faithful"]
    begins = {
        "agrees": "Instead of attention, show lime. ",
        "denies": "Nothing is shown to be better",
    }
    confirmed = "Nothing better than attention is confirmed. Without the top words of lime"
    assert words.startswith(begins.get(other_way, confirmed))
    assert ("probe.faithfulness.operators=[delete,zeros]" in words) == other_way.startswith("lacks")
