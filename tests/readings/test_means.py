import numpy as np
import pandas as pd
import pytest

from attnprobe.core.metrics import ANY_NUMBER, Scale
from attnprobe.evidence.statistics import interval
from attnprobe.readings.means import (
    facet_table,
    mean_in_columns,
    mean_table,
    means_by_importance,
    texts_with,
)
from attnprobe.results.pivot import ASKED
from attnprobe.results.table import IMPORTANCES, SCALES, scale_of
from tests.probes.tables import table

NAN = float("nan")


def test_a_line_has_the_mean_its_interval_and_the_texts_that_it_is_of():
    values = np.array([0.2, 0.4, NAN, 0.9])
    results = table("erasure", {"removed_fraction": values})
    line = {"order": "attention"}
    rows = mean_table(results, "erasure", [(line, {"removed": "removed_fraction"})])
    assert rows.columns.tolist() == [
        "data and model",
        "order",
        "n",
        "removed",
        "removed, low",
        "removed, high",
    ]
    row = rows.iloc[0]
    assert row["order"] == "attention"
    assert row["n"] == 3
    assert row["removed"] == pytest.approx(np.nanmean(values))
    expected = interval(values)
    assert row["removed, low"] == pytest.approx(expected.low)
    assert row["removed, high"] == pytest.approx(expected.high)


def test_an_interval_ends_where_the_metric_does():
    results = table("erasure", {"removed_fraction": [0.0, 1.0, 1.0]})
    facts = {
        "removed_fraction": {"unit": "share", "low": 0.0, "high": 1.0},
        "open": {"unit": "items", "low": 0.0, "high": None},
    }
    results.attrs[SCALES] = {"erasure": facts}
    rows = mean_table(results, "erasure", [({}, {"removed": "removed_fraction"})])
    [row] = rows.to_dict("records")
    assert 0 <= row["removed, low"] <= row["removed, high"] <= 1
    assert scale_of(results, "erasure", "removed_fraction") == Scale("share", 0, 1)
    assert scale_of(results, "erasure", "open") == Scale("items", 0, np.inf)
    assert scale_of(results, "erasure", "unknown") == ANY_NUMBER


def test_each_importance_with_numbers_has_a_line_with_its_title():
    results = table("soft", {"drop_lime": [0.5, 0.7], "drop_mine": [0.1, 0.3]})
    results.attrs[IMPORTANCES] = {"soft": {"lime": {"title": "LIME"}}}
    rows = means_by_importance(results, "soft", "drop_", {"drop": "drop of the prediction"})
    assert rows["importance"].tolist() == ["LIME", "mine"]
    assert rows["drop of the prediction"].tolist() == pytest.approx([0.6, 0.2])


def test_data_sets_and_models_have_lines_of_their_own():
    lstm = table("p", {"m": [1.0]}, model="lstm")
    cnn = table("p", {"m": [1.0]}, model="cnn")
    results = pd.concat([lstm, cnn])
    rows = facet_table(results, "p", ["m"], lambda panel: [{"n": len(panel)}])
    assert len(rows) == 2
    assert rows["n"].tolist() == [1, 1]


def test_without_metrics_the_table_is_empty():
    results = table("p", {"m": [1.0]})
    assert facet_table(results, "p", [], lambda panel: [{"n": len(panel)}]).empty
    assert mean_table(results, "p", []).empty


def panel(values, index=None):
    """The wide rows of runs of the same texts.

    Args:
        values: `[runs, texts]`, a number of each.
        index: of the rows; None: 0, 1, …
    """
    runs, texts = values.shape
    rows = pd.DataFrame(
        {
            "run_id": np.repeat([f"run {number}" for number in range(runs)], texts),
            "experiment": "e",
            "data": "d",
            "model": "m",
            "seed": np.repeat(np.arange(runs), texts),
            "split": "test",
            "example_id": np.tile(np.arange(texts), runs),
            "number": values.ravel(),
        }
    )
    return rows if index is None else rows.set_axis(index)


def ends(rows, scale=ANY_NUMBER):
    """The interval of the mean of a panel."""
    cells = mean_in_columns("mean", rows, rows["number"], scale)
    return cells["mean, low"], cells["mean, high"]


def test_the_same_texts_in_three_equal_runs_say_no_more_than_in_one():
    values = np.random.default_rng(0).normal(size=(1, 60))
    single = panel(values)
    three = panel(np.repeat(values, 3, axis=0))
    _, *expected = interval(values[0])
    assert ends(three) == pytest.approx(ends(single))
    assert ends(three) == pytest.approx(expected)
    assert texts_with(three, three["number"]) == 60


def test_runs_that_differ_widen_the_interval_by_students_quantile():
    """Three runs in which every text has the same value: 0.1, 0.2, 0.3."""
    value_of_run = np.array([0.1, 0.2, 0.3])
    rows = panel(np.repeat(value_of_run[:, None], 60, axis=1))
    half = 4.302653 * 0.1 / np.sqrt(3)

    low, high = ends(rows)

    assert low == pytest.approx(0.2 - half, abs=1e-6)
    assert high == pytest.approx(0.2 + half, abs=1e-6)
    # and within the scale
    assert ends(rows, Scale("share", 0, 0.25)) == (0, 0.25)


def test_part_of_a_panel_keeps_its_runs_apart_whatever_the_index():
    values = np.random.default_rng(1).normal(size=(2, 40))
    rows = panel(values, index=np.arange(80)[::-1])
    part = rows[rows["example_id"] < 30]
    panel_of_part = panel(values[:, :30])
    assert ends(part) == pytest.approx(ends(panel_of_part))
    assert texts_with(part, part["number"]) == 30


def test_a_text_that_one_run_lacks_counts_by_the_others():
    values = np.random.default_rng(2).normal(size=(2, 40))
    values[0, :5] = NAN
    values[:, 7] = NAN
    rows = panel(values)
    cells = mean_in_columns("mean", rows, rows["number"])
    means_of_runs = np.nanmean(values, axis=1)
    assert cells["mean"] == pytest.approx(means_of_runs.mean())
    assert texts_with(rows, rows["number"]) == 39


def test_questions_about_one_text_are_no_further_texts():
    once = np.random.default_rng(3).normal(size=(1, 40))
    rows = panel(np.repeat(once, 5, axis=1))
    first_question = {}
    for first in range(0, 200, 5):
        for further in range(first + 1, first + 5):
            first_question[str(further)] = first
    rows.attrs[ASKED] = {"run 0": first_question}
    without_further_questions = panel(once)
    assert ends(rows) == pytest.approx(ends(without_further_questions))


@pytest.mark.whole
@pytest.mark.parametrize("runs", [2, 3, 5])
@pytest.mark.parametrize("between_runs", [0.0, 0.3])
def test_the_interval_over_seeds_holds_the_truth(runs, between_runs):
    """Rows as so many texts, as they were counted before, hold it in less than 85 %."""
    samples = 300
    held = held_by_rows = 0
    for number in range(samples):
        draw = np.random.default_rng((47, number))
        text_effect = draw.normal(size=60)
        residual = draw.normal(size=(runs, 60), scale=0.3)
        run_effect = draw.normal(size=(runs, 1), scale=between_runs)
        values = text_effect + residual + run_effect
        low, high = ends(panel(values))
        held += low < 0 < high
        by_rows = interval(values.ravel())
        held_by_rows += by_rows.low < 0 < by_rows.high
    standard_error = np.sqrt(0.93 * 0.07 / samples)
    most_by_rows = 0.90 if runs == 2 else 0.85
    assert held / samples >= 0.93 - 2 * standard_error
    assert held_by_rows / samples < most_by_rows
