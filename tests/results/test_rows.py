import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

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
    """(metric, ids, values, steps) of invented batches, the examples in random order, one metric
    with steps."""
    generator = np.random.default_rng(seed)
    length = generator.integers(1, longest, examples)
    for ids in np.array_split(generator.permutation(examples), -(-examples // size)):
        step = np.arange(longest) + np.zeros((len(ids), 1))
        step[step >= length[ids, None]] = np.nan
        value = np.sin(ids[:, None] * 100.0 + np.arange(longest))
        value[ids % 5 == 0, 0] = np.nan
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
    for metric, ids, value, step in batches(**options):
        step = np.full((len(ids), 1), -1.0) if step is None else step
        value = value.reshape(len(ids), -1)
        frame = pd.DataFrame(
            {
                "example_id": np.repeat(ids, step.shape[1]),
                "step": step.ravel(),
                "value": value.ravel(),
            }
        )
        parts.append(frame.dropna(subset="step").assign(metric=metric))
    table = pd.concat(parts).sort_values(["metric", "example_id", "step"]).assign(**IDENTITY)
    step = pa.array([None if number < 0 else number for number in table["step"]], pa.float64())
    arrays = [
        step if name == "step" else pa.array(table[name], from_pandas=False) for name in COLUMNS
    ]
    return pa.Table.from_arrays(arrays, names=list(COLUMNS)).cast(SCHEMA)


@pytest.fixture(params=[100, 1 << 17])
def row_group(request, monkeypatch):
    monkeypatch.setattr(table_module, "ROW_GROUP", request.param)
    return request.param


def test_a_table_is_sorted_and_written_in_row_groups(tmp_path, row_group):
    expected = reference()
    written = filled().write(tmp_path / "t.parquet", IDENTITY)
    assert written[:2] == (expected.num_rows, int(np.isnan(expected["value"].to_numpy()).sum()))
    file = pq.ParquetFile(tmp_path / "t.parquet")
    sizes = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
    assert all(row_group <= size < 2 * row_group for size in sizes[:-1])
    for name in COLUMNS:
        own, other = (table[name].to_pandas().to_numpy() for table in (file.read(), expected))
        np.testing.assert_array_equal(own, other, err_msg=name)


def test_neither_the_order_nor_the_size_of_the_batches_shows_in_the_file(tmp_path, row_group):
    for size in (1, 7, 300):
        filled(size=size).write(tmp_path / str(size), IDENTITY)
    assert (
        (tmp_path / "1").read_bytes()
        == (tmp_path / "7").read_bytes()
        == (tmp_path / "300").read_bytes()
    )


def test_no_rows_negative_ids_and_an_example_of_more_rows_than_a_row_group(tmp_path, row_group):
    rows = Rows()
    rows.add("a", np.array([1, 2]), np.array([[0.1], [0.2]]), np.array([[np.nan], [np.nan]]))
    assert rows.write(tmp_path / "t", IDENTITY) == Written(0, 0, {})
    assert pq.read_table(tmp_path / "t").num_rows == 0
    for ids in ([5, -1], [2, 0]):
        rows.add("a", np.array(ids), np.outer(ids, np.arange(10.0)), np.arange(10))
    table = rows.table(IDENTITY)
    assert table["example_id"].to_pylist() == [
        number for number in (-1, 0, 2, 5) for _ in range(10)
    ]
    assert table["value"].to_pylist() == [n * k for n in (-1.0, 0.0, 2.0, 5.0) for k in range(10)]


def test_what_is_read_is_what_is_asked_for(tmp_path, row_group):
    filled().write(tmp_path / "t", IDENTITY)
    whole = pq.read_table(tmp_path / "t").to_pandas()
    assert contents_of(tmp_path / "t").metrics == sorted(set(whole["metric"]))
    for options, expected in (
        ({}, whole),
        ({"metrics": ["a_number"], "stepped": ()}, whole.query("metric == 'a_number'")),
        ({"metrics": ["nothing"], "stepped": ["a_number"]}, whole[:0]),
        ({"metrics": ()}, whole.dropna(subset="step")),
        ({"stepped": ()}, whole[whole["step"].isna()]),
        (
            {"metrics": (), "example_ids": [3, 17]},
            whole.query("metric == 'weights' and example_id in (3, 17)"),
        ),
    ):
        own = frame_of(read_rows([tmp_path / "t"], **options))
        assert len(own) == len(expected)
        for name in COLUMNS:
            assert own[name].astype(object).where(own[name].notna(), None).tolist() == (
                expected[name].astype(object).where(expected[name].notna(), None).tolist()
            ), (options, name)


def test_a_frame_has_the_names_that_occur_sorted(tmp_path):
    filled().write(tmp_path / "t", IDENTITY)
    found = frame_of(read_rows([tmp_path / "t"], stepped=["weights"], metrics=()))
    assert list(found["metric"].cat.categories) == ["weights"]
    for name in "ba":
        filled().write(tmp_path / name, IDENTITY | {"run_id": name})
    two = frame_of(read_rows([tmp_path / name for name in "ba"]))
    assert list(two["run_id"].cat.categories) == ["a", "b"]
    assert list(two["site"].cat.categories) == [""]
    for empty in (frame_of(read_rows([])), frame_of(SCHEMA.empty_table())):
        assert list(empty.columns) == [*COLUMNS, "site"]
        assert empty.empty
        assert empty["value"].dtype == np.float64


def test_several_sites_get_a_column_and_one_does_not(tmp_path):
    ids = np.arange(3)
    one = Rows()
    several = Rows()
    one.add("b", ids, ids * 1.0)
    for site in ("layer 1", "layer 0", ""):
        several.add("b", ids, ids + 10.0 * len(site), site=site)
        several.add("b_c", ids, ids * 1.0, site=site)
    one.write(tmp_path / "one.parquet", IDENTITY)
    several.write(tmp_path / "several.parquet", IDENTITY)
    assert pq.read_schema(tmp_path / "one.parquet").names == list(COLUMNS)
    table = pd.read_parquet(tmp_path / "several.parquet")
    assert list(table.columns) == [*COLUMNS, "site"]
    assert table["metric"].tolist() == ["b"] * 9 + ["b_c"] * 9
    assert table["site"].tolist() == 2 * ([""] * 3 + ["layer 0"] * 3 + ["layer 1"] * 3)
    assert table["value"].tolist()[:4] == [0, 1, 2, 70]
    frame = frame_of(
        read_rows([tmp_path / "one.parquet", tmp_path / "several.parquet"], metrics=["b_c"])
    )
    assert frame["site"].astype(str).tolist() == table["site"][9:].tolist()
