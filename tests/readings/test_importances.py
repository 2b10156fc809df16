import pytest

from attnprobe.readings.importances import (
    COLOURS,
    Facts,
    facts_of,
    importances_and_operators,
    importances_in,
)
from attnprobe.results.table import IMPORTANCES
from tests.probes.tables import table


@pytest.fixture
def results():
    """Numbers of three importances; the run says something of two, and of one without numbers."""
    names = ("tau_b_mine", "tau_b_lime", "tau_b_gradient", "other")
    rows = table("correlation", {name: [0.5] for name in names})
    rows.attrs[IMPORTANCES] = {
        "correlation": {
            "gradient": {"title": "∇ × x", "colour": "#123456", "signed": True},
            "attention": {"title": "attention"},
            "lime": {"title": "LIME", "colour": "url(evil)"},
        }
    }
    return rows


def test_declared_ones_come_in_the_probes_order_and_the_others_after_them(results):
    assert list(importances_in(results, "correlation", "tau_b_")) == ["gradient", "lime", "mine"]


def test_the_facts_are_those_of_the_run(results):
    facts = facts_of("gradient", results, "correlation")
    assert facts == Facts("∇ × x", "#123456", signed=True)
    assert facts.ascii_title == "? x x"
    assert not facts_of("gradient", results, "erasure").signed


def test_what_a_file_calls_a_colour_and_is_none_is_not_drawn_with(results):
    assert facts_of("lime", results, "correlation").colour in COLOURS


def test_operators_are_told_from_names_that_have_an_underscore():
    metrics = {
        name: [0.5] for name in ("drop_leave_one_out_by_mask", "drop_mine_by_zero", "drop_x")
    }
    pairs = importances_and_operators(table("erasure", metrics), "erasure", "drop_")
    assert sorted(pairs) == [("leave_one_out", "mask"), ("mine", "zero")]
