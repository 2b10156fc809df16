import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from pandas.testing import assert_frame_equal

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
    from_files = stored.rows("adversarial", metrics, stepped=stepped, example_ids=ids)
    assert set(from_files["metric"].unique()) == expected

    from_memory = numbers_of(whole).rows("adversarial", metrics, stepped=stepped, example_ids=ids)
    assert_frame_equal(ordered(from_files), ordered(from_memory))

    rows = whole[(whole["probe"] == "adversarial") & whole["metric"].isin(expected)]
    parts = []
    if metrics:
        parts.append(rows[rows["step"].isna()])
    if stepped:
        with_step = rows[rows["step"].notna()]
        if ids is not None:
            with_step = with_step[with_step["example_id"].isin(ids)]
        parts.append(with_step)
    assert_frame_equal(ordered(from_files), ordered(pd.concat(parts)))


def test_both_kinds_know_what_there_is(two):
    whole = numbers_of(read_results(two))
    stored = read_numbers(two)
    probes = {"performance", "permutation", "adversarial", "erasure"}
    assert set(stored.probes) == probes
    assert set(whole.probes) == probes
    for probe in stored.probes:
        assert stored.metrics(probe) == whole.metrics(probe)
    first, second = stored.runs
    assert first.items() >= {"run_id": "a", "data": "sst", "seed": 0}.items()
    assert second.items() >= {"run_id": "b", "data": "imdb", "seed": 3}.items()
    assert {run["run_id"] for run in whole.runs} == {"a", "b"}
    assert stored.split == "test"
    assert stored.rows("gradient").empty
    assert stored.metrics("gradient") == []


def test_several_runs_together_are_those_one_by_one(two):
    runs = [RunDirectory(two / name) for name in ("a", "b")]
    single = [Numbers.of([run]) for run in runs]
    merged = Numbers.together(single)
    at_once = Numbers.of(runs)
    assert_frame_equal(merged.rows("erasure"), read_numbers(two).rows("erasure"))
    assert_array_equal(
        merged.rows("adversarial")["value"],
        at_once.rows("adversarial")["value"],
    )


WIDE = [*RUN, "example_id"]
TEXTS = {name: str for name in RUN if name != "seed"}


@pytest.mark.parametrize("source", ["whole table", "rows of the probe"])
@pytest.mark.parametrize(("part", "examples"), [("a", 9), ("", 28)])
def test_a_wide_table_is_the_pivot_of_all_rows(make_run, tmp_path, part, examples, source):
    probes = ("performance", "erasure")
    make_run("a", count=9, data="sst", probes=probes)
    make_run("b", count=7, data="imdb", probes=probes)
    make_run("c", count=12, data="sst", probes=probes)
    results = read_results(tmp_path / part)
    numbers = read_numbers(tmp_path / part)
    removed = [name for name in numbers.metrics("erasure") if name.startswith("removed_")]
    metrics = [*removed, "no_such_metric"]
    assert len(metrics) > 4

    table = results if source == "whole table" else numbers.rows("erasure", stepped=("*",))
    wide = per_example(table, "erasure", metrics).astype(TEXTS)

    is_asked_for = results["metric"].isin(metrics)
    is_example = results["step"].isna() & (results["example_id"] >= 0)
    rows = results[is_asked_for & is_example].astype(TEXTS | {"metric": str})
    pivot = rows.pivot(index=WIDE, columns="metric", values="value").reset_index()
    expected = pivot.reindex(columns=[*WIDE, *metrics])
    expected = expected.sort_values(WIDE, ignore_index=True)
    assert len(expected) == examples
    wide = wide.sort_values(WIDE, ignore_index=True)
    assert_frame_equal(wide, expected, check_names=False, check_dtype=False)
    assert metrics_there(table, "erasure") == set(numbers.metrics("erasure"))
