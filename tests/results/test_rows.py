import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pandas.testing import assert_frame_equal

from attnprobe.results import table as table_module
from attnprobe.results.directory import COLUMNS, SCHEMA
from attnprobe.results.table import Rows, Written, contents_of, frame_of, read_rows

IDENTITY = {
    "run_id": "r",
    "experiment": "e",
    "data": "d",
    "model": "m",
    "seed": 3,
    "split": "test",
    "probe": "permutation",
}


def batches(*, examples=300, longest=40, size=7, seed=0):
    """(metric, ids, values, steps) of invented batches.

    The examples come in random order; one of the two metrics has steps.
    """
    generator = np.random.default_rng(seed)
    length = generator.integers(1, longest, examples)
    order = generator.permutation(examples)
    for start in range(0, examples, size):
        ids = order[start : start + size]
        step = np.tile(np.arange(longest, dtype=float), (len(ids), 1))
        step[step >= length[ids, None]] = np.nan
        value = np.sin(np.add.outer(ids * 100.0, np.arange(longest)))
        has_undefined = ids % 5 == 0
        value[has_undefined, 0] = np.nan
        yield "weights", ids, value, step
        yield "a_number", ids, np.cos(ids * 1.0), None


def filled(**options):
    rows = Rows()
    for metric, ids, value, step in batches(**options):
        rows.add(metric, ids, value, step)
    return rows


def reference(**options):
    """The same table by pandas, in memory."""
    parts = []
    for metric, ids, values, steps in batches(**options):
        # -1 stands for a number without a step; NaN for a row that is not there
        step = np.full((len(ids), 1), -1.0) if steps is None else steps
        frame = pd.DataFrame(
            {
                "metric": metric,
                "example_id": np.repeat(ids, step.shape[1]),
                "step": step.ravel(),
                "value": values.ravel(),
            }
        )
        parts.append(frame.dropna(subset="step"))
    table = pd.concat(parts).sort_values(["metric", "example_id", "step"])
    table = table.assign(**IDENTITY)

    columns = {name: pa.array(table[name], from_pandas=False) for name in COLUMNS}
    has_no_step = table["step"].to_numpy() < 0
    columns["step"] = pa.array(table["step"], mask=has_no_step)
    return pa.table(columns).cast(SCHEMA)


@pytest.fixture(params=[100, 1 << 17])
def row_group(request, monkeypatch):
    monkeypatch.setattr(table_module, "ROW_GROUP", request.param)
    return request.param


def test_a_table_is_sorted_and_written_in_row_groups(tmp_path, row_group):
    expected = reference()
    written = filled().write(tmp_path / "t.parquet", IDENTITY)
    is_undefined = np.isnan(expected["value"].to_numpy())
    assert written.rows == expected.num_rows
    assert written.undefined == is_undefined.sum()

    file = pq.ParquetFile(tmp_path / "t.parquet")
    for number in range(file.num_row_groups - 1):
        size = file.metadata.row_group(number).num_rows
        assert row_group <= size < 2 * row_group
    assert_frame_equal(file.read().to_pandas(), expected.to_pandas())


def test_neither_the_order_nor_the_size_of_the_batches_shows_in_the_file(tmp_path, row_group):
    for size in (1, 7, 300):
        filled(size=size).write(tmp_path / str(size), IDENTITY)
    assert (tmp_path / "1").read_bytes() == (tmp_path / "7").read_bytes()
    assert (tmp_path / "7").read_bytes() == (tmp_path / "300").read_bytes()


def without_steps():
    """Two numbers whose step does not exist."""
    rows = Rows()
    values = np.array([[0.1], [0.2]])
    rows.add("a", np.array([1, 2]), values, np.full_like(values, np.nan))
    return rows


def test_rows_without_a_step_that_exists_are_no_rows(tmp_path, row_group):
    rows = without_steps()
    assert rows.write(tmp_path / "t", IDENTITY) == Written(0, 0, {})
    assert pq.read_table(tmp_path / "t").num_rows == 0


def test_negative_ids_come_first_and_an_example_may_fill_several_row_groups(row_group):
    rows = without_steps()
    steps = np.arange(10)
    for batch in ([5, -1], [2, 0]):
        ids = np.array(batch)
        rows.add("a", ids, np.outer(ids, steps).astype(float), steps)
    table = rows.table(IDENTITY)
    sorted_ids = np.array([-1, 0, 2, 5])
    expected = np.outer(sorted_ids, steps)
    assert table["example_id"].to_pylist() == np.repeat(sorted_ids, 10).tolist()
    assert table["value"].to_pylist() == expected.ravel().tolist()


def values_of(column):
    """A column as a list, None for what is missing."""
    return column.astype(object).where(column.notna(), None).tolist()


@pytest.mark.parametrize(
    ("options", "query"),
    [
        pytest.param(
            {},
            "metric == metric",
            id="everything",
        ),
        pytest.param(
            {"metrics": ["a_number"], "stepped": ()},
            "metric == 'a_number'",
            id="one metric",
        ),
        pytest.param(
            {"metrics": ["nothing"], "stepped": ["a_number"]},
            "metric != metric",
            id="nothing",
        ),
        pytest.param(
            {"metrics": ()},
            "step.notna()",
            id="what has steps",
        ),
        pytest.param(
            {"stepped": ()},
            "step.isna()",
            id="what has none",
        ),
        pytest.param(
            {"metrics": (), "example_ids": [3, 17]},
            "metric == 'weights' and example_id in (3, 17)",
            id="two examples",
        ),
    ],
)
def test_what_is_read_is_what_is_asked_for(tmp_path, row_group, options, query):
    filled().write(tmp_path / "t", IDENTITY)
    expected = pq.read_table(tmp_path / "t").to_pandas().query(query)
    rows = frame_of(read_rows([tmp_path / "t"], **options))
    assert len(rows) == len(expected)
    for name in COLUMNS:
        assert values_of(rows[name]) == values_of(expected[name]), name


def test_a_file_knows_its_metrics(tmp_path, row_group):
    filled().write(tmp_path / "t", IDENTITY)
    metrics = set(pq.read_table(tmp_path / "t")["metric"].to_pylist())
    assert contents_of(tmp_path / "t").metrics == sorted(metrics)


def test_a_frame_has_the_names_that_occur_sorted(tmp_path):
    paths = [tmp_path / "b", tmp_path / "a"]
    for path in paths:
        filled().write(path, IDENTITY | {"run_id": path.name})
    two_runs = frame_of(read_rows(paths))
    assert list(two_runs["run_id"].cat.categories) == ["a", "b"]
    assert list(two_runs["site"].cat.categories) == [""]
    weights = frame_of(read_rows([tmp_path / "a"], stepped=["weights"], metrics=()))
    assert list(weights["metric"].cat.categories) == ["weights"]


@pytest.mark.parametrize("table", [read_rows([]), SCHEMA.empty_table()], ids=["files", "rows"])
def test_a_frame_of_none_has_the_columns_and_their_types(table):
    empty = frame_of(table)
    assert list(empty.columns) == [*COLUMNS, "site"]
    assert empty.empty
    assert empty["value"].dtype == np.float64


def test_several_sites_get_a_column_and_one_does_not(tmp_path):
    ids = np.arange(3)
    siteless = Rows()
    siteless.add("b", ids, ids * 1.0)
    siteless.write(tmp_path / "one.parquet", IDENTITY)
    assert pq.read_schema(tmp_path / "one.parquet").names == list(COLUMNS)

    several = Rows()
    for site in ("layer 1", "layer 0", ""):
        several.add("b", ids, ids + 10.0 * len(site), site=site)
        several.add("b_c", ids, ids * 1.0, site=site)
    several.write(tmp_path / "several.parquet", IDENTITY)
    table = pd.read_parquet(tmp_path / "several.parquet")
    sites = np.repeat(["", "layer 0", "layer 1"], 3).tolist()
    assert list(table.columns) == [*COLUMNS, "site"]
    assert table["metric"].tolist() == ["b"] * 9 + ["b_c"] * 9
    assert table["site"].tolist() == sites + sites
    assert table["value"].tolist()[:4] == [0, 1, 2, 70]

    paths = [tmp_path / "one.parquet", tmp_path / "several.parquet"]
    frame = frame_of(read_rows(paths, metrics=["b_c"]))
    assert frame["site"].astype(str).tolist() == sites
