"""The numbers of one run that a study goes by: there, one for each text, and within what they can be.

A member of a study may have been written and sealed by anybody: what lacks a number, has it twice, or has one that no test
gives is named here, before anything is computed from it.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from jaxtyping import Int

from attnprobe.results.checksums import damaged
from attnprobe.results.directory import RunDirectory, examples_file, table_file
from attnprobe.results.metrics import ROUNDING, Scale
from attnprobe.results.table import read_results

SPLIT = "test"


def measured(run: Path, probe: str, scales: Mapping[str, Scale]) -> pd.DataFrame:
    """One row per text, by `example_id`, and one column per metric; without a row where the run was not asked.

    Args:
        run: its directory.
        probe: whose table.
        scales: the metrics, and what each can be; a text may have NaN for a number.

    Raises:
        DamagedRun: the table lacks one of the metrics, has two numbers of a text, or one beyond what it can be.
    """
    if probe not in RunDirectory(run).probes():
        return pd.DataFrame(columns=list(scales))
    path, rows = RunDirectory(run) / table_file(probe), read_results(run, probe=probe)
    rows = rows[rows["step"].isna() & (rows["example_id"] >= 0) & rows["metric"].isin(list(scales))]
    rows = rows.assign(metric=rows["metric"].astype(str))
    if rows.duplicated(["metric", "example_id"]).any():
        raise damaged(path, "it has two numbers of one metric for a text")
    wide = rows.pivot(index="example_id", columns="metric", values="value").rename_axis(columns=None)
    for metric, scale in scales.items():
        if metric not in wide:
            raise damaged(path, f"it has no {metric} of any text")
        values = wide[metric].to_numpy()
        within = (values >= scale.low - ROUNDING) & (values <= scale.high + ROUNDING) & np.isfinite(values)
        if not (within | np.isnan(values)).all():
            raise damaged(path, f"it has a {metric} that is not {scale.words}")
    return wide


def whole(run: Path, probe: str, metrics: Sequence[str]) -> "dict[str, pd.Series[float]]":
    """Each metric's finite numbers that are about the whole split, by step (the class, the epoch).

    Raises:
        DamagedRun: the table lacks one of the metrics, has two numbers for a step, or one that is not finite.
    """
    path, rows = RunDirectory(run) / table_file(probe), read_results(run, probe=probe)
    found = {}
    for metric in metrics:
        own = rows[(rows["metric"] == metric) & (rows["example_id"] < 0)]
        if own.empty or own["step"].duplicated().any() or not np.isfinite(own["value"]).all():
            raise damaged(path, f"it does not have one finite {metric} for each class or epoch")
        found[metric] = own.set_index("step")["value"].sort_index()
    return found


def check_texts(runs: Iterable[Path]) -> None:
    """Whether these runs were tested on the same texts, each of them once.

    Raises:
        UserError: one has no test texts.
        DamagedRun: one was not, or has a text twice.
    """
    first: Int[np.ndarray, " texts"] | None = None
    for run in runs:
        column = RunDirectory(run).examples(SPLIT, columns=["example_id"])["example_id"]
        path = RunDirectory(run) / examples_file(SPLIT)
        if not pa.types.is_integer(column.type) or column.null_count:
            raise damaged(path, "its example_id are not all whole numbers")
        ids = np.sort(column.to_numpy())
        if (np.diff(ids) == 0).any():
            raise damaged(path, "it has a text twice")
        if first is not None and not np.array_equal(ids, first):
            raise damaged(path, "its texts are not those of the study's other runs")
        first = ids
