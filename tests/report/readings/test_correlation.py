import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from attnprobe.report.figures.draw import draw
from attnprobe.report.figures.notes import spots
from attnprobe.report.published import compare
from attnprobe.report.readings.correlation import READING, significant
from attnprobe.report.terminal import headline
from attnprobe.results.rows import Rows
from attnprobe.results.statistics import discovered

PAIRS = (
    "attention_gradient",
    "attention_gradient_through_attention",
    "attention_leave_one_out",
    "gradient_leave_one_out",
)


def results(count: int = 80, undefined: int = 3) -> pd.DataFrame:
    draws = np.random.default_rng(count)
    rows, ids = Rows(), np.arange(count)
    for pair in PAIRS:
        tau, p = draws.uniform(-0.5, 1, count), draws.beta(0.4, 2, count)
        tau[:undefined] = p[:undefined] = np.nan
        rows.add(f"tau_{pair}", ids, tau)
        rows.add(f"p_{pair}", ids, p)
    for name in ("gradient", "leave_one_out"):
        rows.add(f"tau_shuffled_{name}", ids, draws.uniform(-0.4, 0.4, count))
    rows.add("attention_evenness", ids, draws.uniform(0.8, 1, count))
    rows.add("predicted_class", ids, (ids % 2).astype(float))
    identity = {"run_id": "r", "experiment": "e", "data": "sst", "model": "lstm_additive", "seed": 0, "split": "test"}
    return rows.table(identity | {"probe": "correlation"}).to_pandas()


def column(table: pd.DataFrame, metric: str) -> np.ndarray:
    return table[table["metric"] == metric].sort_values("example_id")["value"].to_numpy()


def test_the_papers_table_beside_the_published_one():
    table = results()
    found = compare(table).set_index(["metric", "group"])
    tau, p = column(table, "tau_attention_leave_one_out"), column(table, "p_attention_leave_one_out")
    one = np.arange(80) % 2 == 1
    assert found.loc[("tau_attention_leave_one_out", "overall"), "mean"] == pytest.approx(np.nanmean(tau))
    assert found.loc[("tau_attention_leave_one_out", "overall"), "n"] == 77
    assert found.loc[("tau_attention_leave_one_out", "overall"), "published"] == pytest.approx(0.291343)
    std = found.loc[("tau_attention_leave_one_out_std", "class_1")]
    assert std["mean"] == pytest.approx(np.nanstd(tau[one]))
    assert std["published"] == pytest.approx(0.191504)
    assert np.isnan(std["low"])
    share = found.loc[("significant_attention_leave_one_out", "class_1")]
    assert share["mean"] == pytest.approx((p[one][~np.isnan(p[one])] <= 0.05).mean())
    assert share["published"] == pytest.approx(0.40)
    assert share["low"] < share["mean"] < share["high"]
    uneven = column(table, "attention_evenness") <= 0.95
    assert found.loc[("tau_attention_gradient_uneven", "overall"), "mean"] == pytest.approx(
        np.nanmean(column(table, "tau_attention_gradient")[uneven])
    )
    floor = found.loc[("tau_shuffled_gradient_absolute", "overall"), "mean"]
    assert floor == pytest.approx(np.abs(column(table, "tau_shuffled_gradient")).mean())
    assert not found.index.duplicated().any()


def test_a_loggers_numbers_are_those_of_the_table():
    table = results()
    overall = compare(table).query("group == 'overall'").set_index("metric")["mean"]
    numbers = headline(table)
    assert numbers == pytest.approx({f"correlation/{metric}": value for metric, value in overall.items()})


def test_false_discoveries_are_controlled_over_the_whole_run_before_it_is_split_by_class():
    table = results()
    p = column(table, "p_attention_gradient")
    # Benjamini & Hochberg written out: the largest k with p_(k) ≤ 0.05 k / n
    known = np.sort(p[~np.isnan(p)])
    passing = np.flatnonzero(known <= 0.05 * np.arange(1, len(known) + 1) / len(known))
    bound = known[passing[-1]]
    found = discovered(p)
    np.testing.assert_array_equal(found[3:], p[3:] <= bound)
    assert np.isnan(found[:3]).all()
    assert 0 < np.nansum(found) < np.nansum(significant(p))
    one = np.arange(80) % 2 == 1
    row = compare(table).set_index(["metric", "group"]).loc[("discovered_attention_gradient", "class_1")]
    assert row["mean"] == pytest.approx(np.nanmean(found[one]))
    assert np.isnan(discovered(np.array([np.nan, np.nan]))).all()


@pytest.mark.parametrize("drawing", READING.drawings, ids=lambda drawing: drawing.name)
@pytest.mark.parametrize("count", [80, 4])
def test_figures_show_a_group_per_class_and_what_is_undefined(drawing, count):
    figure = draw(drawing, results(count, undefined=min(count, 3)), None)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()][:2] == ["class 0", "class 1"]
    heading = figure.axes[0].get_title("left").replace("\n", " · ")
    assert heading.endswith(f"n = {count - 3} · 3 undefined")


def test_the_bars_of_a_class_add_up_to_one():
    drawing = next(drawing for drawing in READING.drawings if drawing.name == "correlation_gradient")
    table = results()
    axes = draw(drawing, table, None).axes[0]
    heights = [patch.get_data().values for patch in axes.patches]
    assert all(values.sum() == pytest.approx(1) for values in heights)
    tau = column(table, "tau_attention_gradient")[::2]
    np.testing.assert_allclose(heights[0], np.histogram(tau[~np.isnan(tau)], np.linspace(-1, 1, 41))[0] / 38)
    means = [float(line.get_xdata()[0]) for line in axes.lines][:2]
    assert means[0] == pytest.approx(np.nanmean(tau))


def test_the_densities_say_the_shares_of_each_class_that_lie_where_they_are_pointed_at():
    drawing = next(drawing for drawing in READING.drawings if drawing.name == "correlation_densities")
    table = results()
    figure = draw(drawing, table, None)
    FigureCanvasAgg(figure).draw()
    tau, floor = column(table, "tau_attention_gradient"), column(table, "tau_shuffled_gradient")
    known = tau[~np.isnan(tau)], np.arange(80)[~np.isnan(tau)] % 2
    inside = [
        ((values >= 0) & (values < 0.05)).mean() for values in (known[0][known[1] == 0], known[0][known[1] == 1], floor)
    ]
    named = zip(("class 0", "class 1", "shuffled attention"), inside, strict=True)
    words = "0 to 0.05: " + ", ".join(f"{name} {share:.1%}" for name, share in named if share)
    assert words in [spot.words for spot in spots(figure)]


def test_significant_up_to_and_with_one_in_twenty():
    assert significant(np.array([0.05, 0.051])).tolist() == [1, 0]
    assert np.isnan(significant(np.array([np.nan]))).all()
