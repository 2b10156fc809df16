import numpy as np
import pandas as pd
import pytest

from attnprobe.report.readings.single_weight import flip_table
from tests.report.readings.test_erasure import NAN, drawn, table

METRICS = ("drawn_delta_js_attention", "drawn_delta_attention_attention", "flip_top_attention", "flip_random_attention")


def test_flip_tables_by_hand():
    results = table(
        "single_weight", {"flip_top_attention": [1, 0, 0, NAN], "flip_random_attention": [0.5, 0.25, 0, NAN]}
    )
    (row,) = flip_table(results).to_dict("records")
    assert row["panel"] == "yelp · hanconv"
    assert [row[name] for name in ("both", "top_only", "random_only", "neither")] == pytest.approx(
        [0.5 / 3, 0.5 / 3, 0.25 / 3, 1.75 / 3]
    )
    assert row["n"] == 3


@pytest.mark.parametrize("count", [1, 3, 200])
def test_figures_are_drawn_from_any_number_of_examples(count):
    draws = np.random.default_rng(count)
    js, weight, share = draws.normal(0.1, 0.1, count), draws.random(count), draws.random(count)
    metrics = dict(zip(METRICS, (js, weight, draws.integers(0, 2, count), share), strict=True))
    results = pd.concat([table("single_weight", metrics), table("single_weight", metrics, model="$x$ & [y]")])
    scatter, flips = drawn("single_weight", results)
    for words in (scatter, flips):
        assert any("yelp · hanconv" in text for text in words)
        assert any("$x$ & [y]" in text for text in words)
    assert sum(int(text.split()[2].replace(",", "")) for text in scatter if text.startswith("n = ")) == 2 * count


def test_nothing_but_undefined_numbers_is_drawn_as_well():
    assert len(list(drawn("single_weight", table("single_weight", {name: [NAN, NAN] for name in METRICS})))) == 2
