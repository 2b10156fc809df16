"""Wide tables from long ones, against a pivot of all rows."""

import pandas as pd
import pytest

from attnprobe.results.numbers import read_numbers
from attnprobe.results.pivot import RUN, metrics_there, per_example
from attnprobe.results.table import read_results

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
