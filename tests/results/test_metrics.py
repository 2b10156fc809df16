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
    declaration = declared(name, METRICS)
    if expected is None:
        assert declaration is None
    else:
        assert declaration.name == expected


BOUNDED = [Metric("tvd", TVD), Metric("jsd", JSD)]


def extremes_of(tmp_path, *values):
    """The least and the greatest of these values of tvd, as its table's file records them."""
    rows = Rows()
    for number, value in enumerate(values):
        rows.add("tvd", np.array([number]), np.array([value]))
    rows.add("jsd", np.array([0]), np.array([np.nan]))
    return rows.write(tmp_path / "mine.parquet", IDENTITY).extremes


def test_a_tables_extremes_pass_over_nan(tmp_path):
    extremes = extremes_of(tmp_path, 0.5, np.nan, 0.25, 0.75, 0.5, 0.1)
    assert extremes == {"tvd": (0.1, 0.75), "jsd": None}


def test_numbers_in_their_range_are_silent(tmp_path):
    warn_of_undeclared("mine", extremes_of(tmp_path, 0.0, 1.0 + 1e-12, np.nan), BOUNDED)


def test_a_probe_that_declares_nothing_is_not_checked(tmp_path):
    warn_of_undeclared("mine", extremes_of(tmp_path, 7.0), [])


@pytest.mark.parametrize("value", [-0.25, 1.25, math.inf])
def test_a_number_outside_its_range_is_named(tmp_path, value):
    message = r"mine yields tvd from .* and declares TVD, 0 to 1"
    with pytest.warns(UndeclaredNumber, match=message):
        warn_of_undeclared("mine", extremes_of(tmp_path, 0.5, value), BOUNDED)


def test_an_undeclared_metric_is_named(tmp_path):
    message = "mine yields jsd, which its `metrics` do not declare"
    with pytest.warns(UndeclaredNumber, match=message):
        warn_of_undeclared("mine", extremes_of(tmp_path, 0.5), BOUNDED[:1])
