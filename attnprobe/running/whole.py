"""What is known of a whole split, as rows of tables: the curve of the training, and the test metrics."""

from collections.abc import Mapping

import numpy as np
from torch import Tensor

from attnprobe.results.rows import Rows
from attnprobe.results.schema import WHOLE_SPLIT


def training_rows(curve: list[dict[str, float]]) -> Rows:
    """Every epoch's metrics as rows about the whole split; the step is the epoch, from 0."""
    rows = Rows()
    whole = np.array([WHOLE_SPLIT])
    for metric in sorted({name for epoch in curve for name in epoch}):
        values = np.array([epoch.get(metric, np.nan) for epoch in curve])
        rows.add(metric.replace("/", "_"), whole, values[None], np.arange(len(curve)))
    return rows


def performance_rows(performance: Mapping[str, Tensor], count: int) -> Rows:
    """The test metrics as rows about the whole split of `count` texts; F1 has one row per class (step)."""
    rows = Rows()
    whole = np.array([WHOLE_SPLIT])
    for metric, value in performance.items():
        numbers = value.double().cpu().numpy()
        if numbers.ndim:
            rows.add(metric, whole, numbers[None], np.arange(len(numbers)))
        else:
            rows.add(metric, whole, numbers[None])
    rows.add("examples", whole, np.array([count]))
    return rows
