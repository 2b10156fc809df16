"""What stands beside a probe's numbers: units, directions and times, as the manifests say them."""

from types import SimpleNamespace

import pandas as pd
import pytest

from attnprobe.findings.groups import Group
from attnprobe.report.page.sections import cost_of, headline_rows

TVD = {"unit": "TVD", "low": 0, "high": 1, "step": "", "higher_is_better": True}
ITEMS = {"unit": "items", "low": 1, "high": None, "higher_is_better": None}


@pytest.mark.parametrize(
    ("metric", "tables", "expected"),
    [
        ("tvd", [{}, {"metrics": {"tvd": TVD}}], "TVD, 0 to 1; higher is better"),
        ("tvd", [{"metrics": {"tvd": TVD | {"higher_is_better": False}}}], "TVD, 0 to 1; lower is better"),
        ("n", [{"metrics": {"n": ITEMS}}], "items, 1 or more"),
        ("tvd_std", [{"metrics": {"tvd": TVD}}], ""),  # made of a metric, with a unit of its own
    ],
)
def test_the_unit_of_a_number(metric, tables, expected):
    row = {"run_id": "a", "metric": metric, "group": "overall", "title": " x", "mean": 0.5, "low": 0.4, "high": 0.6}
    (found,) = headline_rows(pd.DataFrame([row]), [Group("d", "m", "", (SimpleNamespace(run_id="a"),))], tables)
    assert (found["unit"], found["title"], found["inner"], found["cells"][0]["low"]) == (expected, "x", True, 0.4)


def test_the_time_of_a_test_and_of_its_importances_over_all_runs():
    facts = {"a": {"title": "leave-one-out", "seconds": 1.25}, "b": {"title": "gradient", "seconds": 0.01}}
    one = {"seconds": 2.0, "importances": facts}
    of_importances = "Of the importances, which are computed once for all tests: leave-one-out 1.2 s."
    assert cost_of([one]) == f"This test took 2.0 s. {of_importances}"
    assert cost_of([one, {"seconds": 1.5}, {}]).startswith("This test took 3.5 s in 2 runs. Of")
    assert cost_of([{"seconds": 1.5}]) == "This test took 1.5 s."
    assert cost_of([{}, {}]) == ""
