import json

import pytest

from benchmarks import growth


@pytest.mark.parametrize(("axis", "size"), [("length", 5), ("texts", 70), ("classes", 3)])
def test_every_probe_is_timed_at_every_axis(axis, size, capsys):
    growth.child(axis, size, 1)
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {"permutation", "exact or bounded adversary", "gradients"} <= set(report["seconds"])
    assert all(seconds > 0 for seconds in report["seconds"].values())
    assert report["peak"] > 50


@pytest.mark.parametrize("power", [0, 1, 2.5])
def test_the_exponent_of_a_known_power(power):
    sizes = [10, 100, 300]
    assert growth.exponent(sizes, [7 * size**power for size in sizes]) == pytest.approx(power)
