import json

import pytest

from benchmarks import growth


@pytest.mark.parametrize(
    ("axis", "size"),
    [
        ("length", 5),
        ("texts", 70),
        ("classes", 3),
    ],
)
def test_every_probe_is_timed_at_every_axis(axis, size, capsys):
    growth.child(axis, size, 1)
    *_, last_line = capsys.readouterr().out.splitlines()
    report = json.loads(last_line)
    seconds = report["seconds"]
    assert {"permutation", "exact or bounded adversary", "gradients"} <= set(seconds)
    assert min(seconds.values()) > 0
    assert report["peak"] > 50


@pytest.mark.parametrize("power", [0, 1, 2.5])
def test_the_exponent_of_a_known_power(power):
    sizes = [10, 100, 300]
    seconds = [7 * size**power for size in sizes]
    assert growth.exponent(sizes, seconds) == pytest.approx(power)
