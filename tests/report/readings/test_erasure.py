import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from attnprobe.report.figures.draw import draw
from attnprobe.report.published import compare
from attnprobe.report.rankings import paired
from attnprobe.report.reading import readings
from attnprobe.results.rows import Rows
from attnprobe.results.statistics import rank_biserial


def table(probe, metrics, *, data="yelp", model="hanconv"):
    rows = Rows()
    for metric, values in metrics.items():
        rows.add(metric, np.arange(len(values)), np.array(values, float))
    identity = {"run_id": model, "experiment": "serrano", "data": data, "model": model, "seed": 0, "split": "test"}
    return rows.table(identity | {"probe": probe}).to_pandas()


def erased(length, **counts):
    """Counts per ranking, NaN for never, of examples of `length` items."""
    metrics = {"content_length": length, "never_flips": np.isnan(counts["optimal"])}
    for name, count in counts.items():
        metrics[f"removed_count_{name}"] = count
        metrics[f"removed_fraction_{name}"] = np.array(count) / np.array(length)
        metrics[f"regret_{name}"] = np.array(count) - np.array(counts["optimal"])
    return metrics


NAN = float("nan")
COUNTS = {
    "attention": [1, 3, NAN, NAN, 2],
    "gradient": [2, 3, 4, NAN, 5],
    "random": [4, NAN, NAN, NAN, 6],
    "optimal": [1, 2, 3, NAN, 2],
}


def test_paired_by_hand():
    pairs = paired(table("erasure", erased([5, 5, 5, 5, 7], **COUNTS))).set_index(["first", "second"])
    assert len(pairs) == 4 * 3
    row = pairs.loc[("attention", "gradient")]
    assert (row["fewer"], row["tie"], row["more"], row["neither"], row["n"]) == (0.4, 0.2, 0.2, 0.2, 5)
    assert row["low"] <= 0.4 <= row["high"]
    # differences 1, 0, 4 − 6, 0, 3: ranks 1, 2 and 3
    assert row["rank_biserial"] == pytest.approx((1 - 2 + 3) / 6)
    assert pairs.loc[("gradient", "attention"), "rank_biserial"] == pytest.approx(-(1 - 2 + 3) / 6)
    assert pairs.loc[("optimal", "random"), "rank_biserial"] == 1
    assert (pairs[["fewer", "tie", "more", "neither"]].sum(axis=1) == 1).all()
    assert np.isnan(rank_biserial(np.zeros(3)))


def test_the_published_share_stands_beside_ours():
    metrics = erased([5] * 5, **COUNTS) | {
        "fewer_gradient_than_attention": [0, 0, 1, 0, 0],
        "status_attention": [2, 2, 1, 0, 2],
    }
    numbers = compare(table("erasure", metrics)).set_index("metric")
    assert numbers.loc["fewer_gradient_than_attention", "mean"] == pytest.approx(0.2)
    assert numbers.loc["fewer_gradient_than_attention", "published"] == pytest.approx(0.4778, abs=1e-4)
    assert numbers.loc["flips_with_bias_attention", "mean"] == pytest.approx(0.8)
    assert numbers.loc["removed_fraction_attention", "n"] == 3


def drawn(probe, results):
    """The words in every figure of a probe."""
    for drawing in readings()[probe].drawings:
        figure = draw(drawing, results, None)
        figure.canvas.draw()
        yield [text.get_text() for text in figure.findobj(mpl.text.Text)]


@pytest.mark.parametrize("count", [1, 3, 200])
def test_figures_are_drawn_from_any_number_of_examples(count):
    draws = np.random.default_rng(count)
    optimal = draws.integers(1, 4, count).astype(float)
    counts = {name: optimal + draws.integers(0, 5, count) for name in ("random", *COUNTS)} | {"optimal": optimal}
    counts["random"][0] = NAN
    metrics = erased(np.full(count, 9), **counts)
    for words in drawn("erasure", pd.concat([table("erasure", metrics), table("erasure", metrics, model="$x$ & [y]")])):
        assert any("yelp · hanconv" in text for text in words)
        assert any("$x$ & [y]" in text for text in words)


def test_nothing_but_undefined_numbers_is_drawn_as_well():
    assert len(list(drawn("erasure", table("erasure", erased([1, 1], **{name: [NAN, NAN] for name in COUNTS}))))) == 3
