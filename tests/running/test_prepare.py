"""What a run directory that is refused says."""

from types import SimpleNamespace

import pytest

from attnprobe.core.errors import UserError
from attnprobe.runs.prepare import differing, prepare


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ("a", "a: 0 there, 1 here"),
        ("abc", "a: 0 there, 1 here; b: 0 there, 1 here; c: 0 there, 1 here"),
        ("abcd", "a: 0 there, 1 here; b: 0 there, 1 here; c: 0 there, 1 here; …"),
    ],
)
def test_the_first_three_settings_that_differ_are_named(changed, said):
    theirs = {"training": dict.fromkeys("abcdef", 0)}
    ours = SimpleNamespace(training=dict.fromkeys("abcdef", 0) | dict.fromkeys(changed, 1))
    assert differing(theirs, ours) == said


def test_a_setting_that_only_one_has_differs():
    ours = SimpleNamespace(training={"group": {"new": 1}})
    assert differing({"training": {}}, ours) == "group.new: None there, 1 here"


def test_another_policy_is_refused_with_those_that_there_are(tmp_path):
    with pytest.raises(UserError, match=r"on_finished=maybe: expected error, skip, remeasure or replace$"):
        prepare(tmp_path / "run", SimpleNamespace(training={}), "maybe")
    assert not (tmp_path / "run").exists()
