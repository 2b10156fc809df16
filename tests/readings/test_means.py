import numpy as np
import pandas as pd
import pytest

from attnprobe.evidence.statistics import interval
from attnprobe.readings.means import facet_table, mean_table, means_by_importance
from attnprobe.results.table import IMPORTANCES, RANGES, ends_of
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
    assert (row["removed, low"], row["removed, high"]) == pytest.approx(expected[1:])


def test_an_interval_ends_where_the_metric_does():
    results = table("erasure", {"removed_fraction": [0.0, 1.0, 1.0]})
    results.attrs[RANGES] = {"erasure": {"removed_fraction": (0.0, 1.0), "open": (0.0, None)}}
    (row,) = mean_table(results, "erasure", [({}, {"removed": "removed_fraction"})]).itertuples(
        index=False
    )
    assert 0 <= row[-2] <= row[-1] <= 1
    assert ends_of(results, "erasure", "removed_fraction") == (0, 1)
    assert ends_of(results, "erasure", "open") == (0, np.inf)
    assert ends_of(results, "erasure", "unknown") == (-np.inf, np.inf)


def test_each_importance_with_numbers_has_a_line_with_its_title():
    results = table("soft", {"drop_lime": [0.5, 0.7], "drop_mine": [0.1, 0.3]})
    results.attrs[IMPORTANCES] = {"soft": {"lime": {"title": "LIME"}}}
    rows = means_by_importance(results, "soft", "drop_", {"drop": "drop of the prediction"})
    assert rows["importance"].tolist() == ["LIME", "mine"]
    assert rows["drop of the prediction"].tolist() == pytest.approx([0.6, 0.2])


def test_data_sets_and_models_have_lines_of_their_own():
    parts = [table("p", {"m": [1.0]}, model=model) for model in ("lstm", "cnn")]
    rows = facet_table(
        pd.concat(parts), "p", ["m"], lambda panel: [{"sum": panel["m"].sum(), "n": len(panel)}]
    )
    assert len(rows) == 2
    assert rows["n"].tolist() == [1, 1]


def test_without_metrics_the_table_is_empty():
    results = table("p", {"m": [1.0]})
    assert facet_table(results, "p", [], lambda panel: [{"n": len(panel)}]).empty
    assert mean_table(results, "p", []).empty
