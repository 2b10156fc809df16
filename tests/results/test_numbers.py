import numpy as np
import pandas as pd
import pytest

from attnprobe.results.directory import RunDirectory
from attnprobe.results.numbers import Numbers, numbers_of, read_numbers
from attnprobe.results.pivot import RUN, metrics_there, per_example
from attnprobe.results.table import read_results

KEYS = ["run_id", "probe", "metric", "example_id", "step"]


def ordered(table):
    names = ("run_id", "experiment", "data", "model", "split", "probe", "metric", "site")
    return table.astype(dict.fromkeys(names, str)).sort_values(KEYS, ignore_index=True)


@pytest.fixture
def two(make_run, tmp_path):
    make_run("a", count=9)
    make_run("b", count=7, data="imdb", seed=3, probes=("performance", "adversarial", "erasure"))
    return tmp_path


@pytest.mark.parametrize(
    ("metrics", "stepped", "ids", "expected"),
    [
        (("found_jsd",), (), None, {"found_jsd"}),
        (("found_*", "is_exact"), (), None, {"found_jsd", "found_tvd", "is_exact"}),
        ((), ("found_attention",), None, {"found_attention"}),
        (
            ("max_attention",),
            ("*_attention",),
            [2, 5],
            {"max_attention", "found_attention", "optimum_attention"},
        ),
        (("no_such_metric",), (), None, set()),
    ],
)
def test_what_is_read_is_what_the_whole_table_holds(two, metrics, stepped, ids, expected):
    whole = read_results(two)
    stored = read_numbers(two)
    found = stored.rows("adversarial", metrics, stepped=stepped, example_ids=ids)
    assert set(found["metric"].unique()) == expected
    rows = whole[(whole["probe"] == "adversarial") & whole["metric"].isin(expected)]
    plain = rows[rows["step"].isna()]
    with_step = rows[rows["step"].notna()]
    if ids is not None:
        with_step = with_step[with_step["example_id"].isin(ids)]
    parts = ([plain] if metrics else []) + ([with_step] if stepped else [])
    pd.testing.assert_frame_equal(ordered(found), ordered(pd.concat(parts)))
    held = numbers_of(whole).rows("adversarial", metrics, stepped=stepped, example_ids=ids)
    pd.testing.assert_frame_equal(ordered(found), ordered(held))


def test_both_kinds_know_what_there_is(two):
    whole = numbers_of(read_results(two))
    stored = read_numbers(two)
    assert (
        set(stored.probes)
        == set(whole.probes)
        == {"performance", "permutation", "adversarial", "erasure"}
    )
    for probe in stored.probes:
        assert stored.metrics(probe) == whole.metrics(probe)
    assert [(one["run_id"], one["data"], one["seed"]) for one in stored.runs] == [
        ("a", "sst", 0),
        ("b", "imdb", 3),
    ]
    assert {one["run_id"] for one in whole.runs} == {"a", "b"}
    assert stored.split == "test"
    assert stored.rows("gradient").empty
    assert stored.metrics("gradient") == []


def test_several_runs_together_are_those_one_by_one(two):
    runs = [RunDirectory(two / name) for name in ("a", "b")]
    together = Numbers.together([Numbers.of([run]) for run in runs])
    pd.testing.assert_frame_equal(together.rows("erasure"), read_numbers(two).rows("erasure"))
    values = [numbers.rows("adversarial")["value"] for numbers in (together, Numbers.of(runs))]
    np.testing.assert_array_equal(*values)


WIDE = [*RUN, "example_id"]


@pytest.mark.parametrize("part", ["a", ""])
def test_a_wide_table_is_the_pivot_of_all_rows(make_run, tmp_path, part):
    for name, count, data in (("a", 9, "sst"), ("b", 7, "imdb"), ("c", 12, "sst")):
        make_run(name, count=count, data=data, probes=("performance", "erasure"))
    place = tmp_path / part
    results = read_results(place)
    numbers = read_numbers(place)
    metrics = [
        *(name for name in numbers.metrics("erasure") if name.startswith("removed_")),
        "no_such_metric",
    ]
    assert len(metrics) > 4
    rows = results[
        results["metric"].isin(metrics) & results["step"].isna() & (results["example_id"] >= 0)
    ]
    rows = rows.astype({name: str for name in (*RUN, "metric") if name != "seed"})
    wide = rows.pivot(index=WIDE, columns="metric", values="value").reset_index()
    expected = wide.reindex(columns=[*WIDE, *metrics]).sort_values(WIDE, ignore_index=True)
    assert len(expected) == (9 if part else 28)
    for source in (results, numbers.rows("erasure", stepped=("*",))):
        found = per_example(source, "erasure", metrics).astype(
            {name: str for name in RUN if name != "seed"}
        )
        found = found.sort_values(WIDE, ignore_index=True)
        pd.testing.assert_frame_equal(found, expected, check_names=False, check_dtype=False)
        assert metrics_there(source, "erasure") == set(numbers.metrics("erasure"))
