"""Wide tables from long ones, against a pivot of all rows."""

import numpy as np
import pandas as pd
import pytest

from attnprobe.results.numbers import read_numbers
from attnprobe.results.pivot import RUN, metrics_there, per_example
from attnprobe.results.table import Rows, read_results

IDENTITY = {"experiment": "e", "data": "d", "model": "m", "seed": 0, "split": "test", "probe": "erasure"}
KEYS = [*RUN, "example_id"]


@pytest.fixture
def three(make_run, tmp_path):
    """Runs of different examples."""
    for name, count, data in (("a", 9, "sst"), ("b", 7, "imdb"), ("c", 12, "sst")):
        make_run(name, count=count, data=data, probes=("performance", "erasure"))
    return tmp_path


def pivoted(results, metrics):
    """The same by pandas: all rows at once."""
    rows = results[results["metric"].isin(metrics) & results["step"].isna() & (results["example_id"] >= 0)]
    rows = rows.astype({name: str for name in (*RUN, "metric") if name != "seed"})
    wide = rows.pivot(index=KEYS, columns="metric", values="value").reset_index()
    return wide.reindex(columns=[*KEYS, *metrics]).sort_values(KEYS, ignore_index=True)


def plain(wide):
    return wide.astype({name: str for name in RUN if name != "seed"}).sort_values(KEYS, ignore_index=True)


@pytest.mark.parametrize("one_run", [True, False])
def test_a_wide_table_is_the_pivot_of_all_rows(three, one_run):
    place = three / "a" if one_run else three
    results, numbers = read_results(place), read_numbers(place)
    metrics = [*(name for name in numbers.metrics("erasure") if name.startswith("removed_")), "no_such_metric"]
    assert len(metrics) > 4
    expected = pivoted(results, metrics)
    assert len(expected) == (9 if one_run else 28)
    for source in (results, numbers.rows("erasure", stepped=("*",))):
        found = plain(per_example(source, "erasure", metrics))
        pd.testing.assert_frame_equal(found, expected, check_names=False, check_dtype=False)
        assert metrics_there(source, "erasure") == set(numbers.metrics("erasure"))


def test_examples_that_only_some_metrics_have_in_any_order():
    rows = Rows()
    rows.add("first", np.array([5, 1, 3]), np.array([0.5, 0.1, 0.3]))
    rows.add("second", np.array([2, 3]), np.array([20.0, 30.0]))
    rows.add("first", np.array([-1]), np.array([9.0]))  # of the whole split
    table = rows.table(IDENTITY | {"run_id": "run"}).to_pandas()
    wide = per_example(table, "erasure", ["second", "first"])
    assert wide["example_id"].tolist() == [1, 2, 3, 5]
    np.testing.assert_array_equal(wide["first"], [0.1, np.nan, 0.3, 0.5])
    np.testing.assert_array_equal(wide["second"], [np.nan, 20, 30, np.nan])
    empty = per_example(Rows().table(IDENTITY | {"run_id": "run"}).to_pandas(), "erasure", ["first"])
    assert (list(empty.columns), len(empty)) == ([*KEYS, "first"], 0)
