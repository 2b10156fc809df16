import math

import numpy as np
import pytest

from attnprobe.core.metrics import (
    JSD,
    TAU,
    TVD,
    Metric,
    Scale,
    UndeclaredNumber,
    declared,
    warn_of_undeclared,
)
from attnprobe.results.table import Rows

IDENTITY = {
    "run_id": "a",
    "experiment": "b",
    "data": "c",
    "model": "d",
    "seed": 0,
    "split": "test",
    "probe": "mine",
}
METRICS = (
    Metric("tau_{pair}", TAU, higher_is_better=True),
    Metric("tau_words_{pair}", TAU),
    Metric("tau_ceiling", Scale("τ-b", 0, 1)),
    Metric("jsd", JSD, step="position"),
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tau_a_b", "tau_{pair}"),
        ("tau_words_a_b", "tau_words_{pair}"),
        ("tau_ceiling", "tau_ceiling"),
        ("tau_", None),
        ("a_tau_b", None),
        ("jsd2", None),
    ],
)
def test_the_most_literal_declaration_that_fits_is_meant(name, expected):
    found = declared(name, METRICS)
    assert (found and found.name) == expected


def written(tmp_path, *values):
    rows = Rows()
    for number, value in enumerate(values):
        rows.add("tvd", np.array([number]), np.array([value]))
    rows.add("jsd", np.array([0]), np.array([np.nan]))
    return rows.write(tmp_path / "mine.parquet", IDENTITY).extremes


def test_numbers_in_their_range_are_silent_and_others_named(tmp_path):
    both = [Metric("tvd", TVD), Metric("jsd", JSD)]
    assert written(tmp_path, 0.5, np.nan, 0.25, 0.75, 0.5, 0.1) == {"tvd": (0.1, 0.75), "jsd": None}
    warn_of_undeclared("mine", written(tmp_path, 0.0, 1.0 + 1e-12, np.nan), both)
    warn_of_undeclared(
        "mine", written(tmp_path, 7.0), []
    )  # a probe that declares nothing is not checked
    for value in (-0.25, 1.25, math.inf):
        with pytest.warns(
            UndeclaredNumber, match=r"mine yields tvd from .* and declares TVD, 0 to 1"
        ):
            warn_of_undeclared("mine", written(tmp_path, 0.5, value), both)
    with pytest.warns(
        UndeclaredNumber, match="mine yields jsd, which its `metrics` do not declare"
    ):
        warn_of_undeclared("mine", written(tmp_path, 0.5), both[:1])
