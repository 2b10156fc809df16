"""What a run directory that is refused says."""

from types import SimpleNamespace

import pytest

from attnprobe.runs.prepare import differing


@pytest.mark.parametrize(
    ("ours", "said"),
    [
        ({"a": 1, "b": 1, "c": 1, "d": 0}, "a: 0 there, 1 here; b: 0 there, 1 here; c: 0 there, 1 here"),
        (dict.fromkeys("abcd", 1), "a: 0 there, 1 here; b: 0 there, 1 here; c: 0 there, 1 here; …"),
        (dict.fromkeys("abcd", 0) | {"group": {"new": 1}}, "group.new: None there, 1 here"),
    ],
)
def test_the_first_three_settings_that_differ_are_named(ours, said):
    assert differing({"training": dict.fromkeys("abcd", 0)}, SimpleNamespace(training=ours)) == said
