"""What stands beside a probe's numbers: units, directions and times, as the manifests say them."""

import pytest

from attnprobe.report.page.sections import cost_of, unit_of

TVD = {"unit": "TVD", "low": 0, "high": 1, "step": "", "higher_is_better": True}


@pytest.mark.parametrize(
    ("metric", "tables", "expected"),
    [
        ("tvd", [{"metrics": {"tvd": TVD}}], "TVD, 0 to 1; higher is better"),
        ("tvd", [None, {"metrics": {"tvd": TVD | {"higher_is_better": False}}}], "TVD, 0 to 1; lower is better"),
        (
            "n",
            [{"metrics": {"n": {"unit": "items", "low": 1, "high": None, "higher_is_better": None}}}],
            "items, 1 or more",
        ),
        ("tvd_std", [{"metrics": {"tvd": TVD}}], ""),  # made of a metric, with a unit of its own
        ("tvd", [{}, None], ""),
    ],
)
def test_the_unit_of_a_number(metric, tables, expected):
    assert unit_of(metric, [table or {} for table in tables]) == expected


def test_the_time_of_a_test_and_of_its_importances_over_all_runs():
    facts = {"a": {"title": "leave-one-out", "seconds": 1.25}, "b": {"title": "gradient", "seconds": 0.01}}
    one = {"seconds": 2.0, "importances": facts}
    assert cost_of([one]) == (
        "This test took 2.0 s. Of the importances, which are computed once for all tests: leave-one-out 1.2 s."
    )
    assert cost_of([one, {"seconds": 1.5}, {}]).startswith("This test took 3.5 s in 2 runs. Of")
    assert cost_of([{"seconds": 1.5}]) == "This test took 1.5 s."
    assert cost_of([{}, {}]) == ""
