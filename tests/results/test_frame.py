import tracemalloc

import numpy as np
import pandas as pd
import pyarrow as pa

from attnprobe.results.frame import frame_of
from attnprobe.results.rows import Rows
from attnprobe.results.schema import COLUMNS, SCHEMA

IDENTITY = {"experiment": "e", "data": "d", "model": "m", "seed": 3, "split": "test"}


def tables():
    """Two probes' tables of two runs, cut into small row groups, with NaN values and with steps."""
    for run_id in ("b", "a"):
        for probe, metrics in (("z_probe", ("one", "two")), ("a_probe", ("three",))):
            rows = Rows(row_group=3)
            for metric in metrics:
                rows.add(metric, np.arange(4), np.array([1.0, np.nan, 3.0, 4.0]))
                rows.add(
                    f"{metric}_at", np.arange(2), np.array([[5.0, 6.0], [7.0, 8.0]]), np.array([[0, 1], [0, np.nan]])
                )
            yield from rows.groups({"run_id": run_id, "probe": probe, **IDENTITY})


def test_a_frame_is_what_arrow_makes_of_the_same_pieces():
    pieces = list(tables())
    found = frame_of(iter(pieces))
    expected = pa.concat_tables(pieces).unify_dictionaries().to_pandas()
    assert list(found.columns) == [*COLUMNS, "site"]
    for name in COLUMNS:
        if not isinstance(found[name].dtype, pd.CategoricalDtype):
            pd.testing.assert_series_equal(found[name], expected[name])
            continue
        assert list(found[name]) == list(expected[name])
        assert list(found[name].cat.categories) == sorted(set(expected[name]))
        assert found[name].cat.codes.dtype == np.int8


def test_a_frame_knows_the_names_that_occur_and_no_others():
    pieces = [piece.filter(pa.compute.equal(piece["metric"].cast(pa.string()), "two")) for piece in tables()]
    found = frame_of(pieces)
    assert list(found["metric"].cat.categories) == ["two"]
    assert list(found["run_id"].cat.categories) == ["a", "b"]


def test_no_piece_is_an_empty_frame_with_the_columns():
    for found in (frame_of([]), frame_of([SCHEMA.empty_table()])):
        assert list(found.columns) == [*COLUMNS, "site"]
        assert len(found) == 0
        assert isinstance(found["metric"].dtype, pd.CategoricalDtype)
        assert found["value"].dtype == np.float64


def test_many_names_take_two_bytes():
    rows = Rows()
    for number in range(300):
        rows.add(f"metric{number:03}", np.arange(1), np.array([float(number)]))
    found = frame_of(rows.groups({"run_id": "r", "probe": "p", **IDENTITY}))
    assert found["metric"].cat.codes.dtype == np.int16
    assert list(found["metric"]) == [f"metric{int(value):03}" for value in found["value"]]


def test_a_row_takes_its_numbers_and_a_byte_and_is_never_held_twice():
    def pieces(rows):
        for start in range(0, rows, 5000):
            part = Rows()
            part.add("one", np.arange(start, start + 5000), np.random.default_rng(start).random(5000))
            yield from part.groups({"run_id": "r", "probe": "p", **IDENTITY})

    def most(rows):
        tracemalloc.start()
        frame_of(pieces(rows))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return peak

    # an id and a value, 8 bytes each; twice, it would be 32 and more
    assert most(400_000) - most(100_000) < 24 * 300_000


def test_a_column_of_one_value_takes_no_room_and_is_read_as_any_other():
    rows = Rows(row_group=3)
    for metric in ("one", "two"):
        rows.add(metric, np.arange(5), np.arange(5.0))
    pieces = list(rows.groups({"run_id": "r", "probe": "p", **IDENTITY}))
    found = frame_of(pieces)
    assert {name for name in ("seed", "step") if found[name].to_numpy().strides == (0,)} == {"seed", "step"}
    part = found[found["metric"] == "two"].sort_values("value", ascending=False)
    assert part["seed"].tolist() == [3] * 5
    assert part["value"].tolist() == [4.0, 3.0, 2.0, 1.0, 0.0]
    assert found.groupby("seed")["value"].sum().tolist() == [20.0]
    assert found["step"].isna().all()
