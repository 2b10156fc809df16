"""A run that somebody sealed and no command wrote is named, and is not the end of the others' report."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attnprobe.core.errors import UserError
from attnprobe.findings.groups import read_run, read_sound_runs
from attnprobe.results.files import DamagedRun, write_table
from attnprobe.runs.validation import TRAINER, check_value
from tests.report.conftest import invented_run
from tests.runs import seal_again


def rows(run, change):
    path = run / "tables" / "permutation.parquet"
    table = pq.read_table(path)
    write_table(pa.Table.from_pandas(change(table.to_pandas()), schema=table.schema, preserve_index=False), path)


def examples(run, **columns):
    path = run / "examples" / "test.parquet"
    frame = pq.read_table(path).to_pandas()
    for name, cells in columns.items():
        frame[name] = pd.Series([cells] * len(frame)) if isinstance(cells, list) else cells
    frame.drop(columns=[name for name, cells in columns.items() if cells is None]).to_parquet(path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda run: rows(run, lambda table: table.assign(value=np.inf)), "its column value holds inf"),
        (lambda run: rows(run, lambda table: table.assign(value=-np.inf)), "its column value holds -inf"),
        (lambda run: rows(run, lambda table: table.assign(example_id=-7)), "its column example_id holds -7"),
        (lambda run: examples(run, label=None), "its column label is missing"),
        (lambda run: examples(run, prediction="x"), "its column prediction is of the type"),
        (
            lambda run: examples(run, prediction=2),
            "its column prediction names a class that there is no probability for",
        ),
        (lambda run: examples(run, label=-1), "its column label names a class that there is no probability for"),
        (lambda run: examples(run, probability=[0.5, None]), "its column probability has an empty cell"),
        (lambda run: examples(run, attention=[1.0] * 99), "a text does not have as many weights as words"),
        (lambda run: examples(run, attention=[[1.0]]), "its column attention is of the type"),
        (lambda run: examples(run, tokens=7), "its column tokens is of the type int64"),
        (lambda run: examples(run, tokens=[None]), "its column tokens is of the type"),
    ],
)
def test_a_run_that_no_command_wrote_is_left_out_and_named(tmp_path, change, reason):
    odd = invented_run(tmp_path, "odd", probes=("performance", "permutation"), count=12)
    invented_run(tmp_path, "sound", probes=("performance", "permutation"), seed=1, count=12)
    assert read_run(odd).run_id == "odd"
    change(odd)
    seal_again(odd)
    with pytest.raises(DamagedRun, match=rf"\.parquet is damaged: .*{reason}"):
        read_run(odd)
    runs, skipped = read_sound_runs(tmp_path)
    assert [run.run_id for run in runs] == ["sound"]
    assert reason in str(*skipped)


def test_a_strategy_that_lightning_does_not_know_is_refused_before_any_work():
    check_value("trainer.strategy", "ddp", TRAINER["strategy"])
    with pytest.raises(UserError, match=r"trainer\.strategy=/dev/null: expected auto, ddp"):
        check_value("trainer.strategy", "/dev/null", TRAINER["strategy"])
