from pathlib import Path

import pandas as pd
import pytest

import attnprobe.probes
from attnprobe.core.errors import UserError
from attnprobe.readings import registry
from attnprobe.readings.reading import Column, HeatMap, Reading
from attnprobe.readings.registry import columns_in, maps_in, present, readings
from attnprobe.results.numbers import numbers_of


def numbers(*metrics):
    """One number of each (probe, metric)."""
    rows = pd.DataFrame(metrics, columns=["probe", "metric"])
    return numbers_of(
        rows.assign(run_id="r", experiment="e", data="d", model="m", seed=0, split="test")
    )


def test_readings_are_found_by_being_there():
    folder = Path(attnprobe.probes.__file__).parent
    stems = set()
    for path in folder.glob("[!_]*.py"):
        if "\nREADING = " in path.read_text(encoding="utf-8"):
            stems.add(path.stem)
    assert set(readings()) == stems


def test_those_of_probes_with_numbers_come_in_the_summarys_order():
    table = numbers(("adversarial", "a"), ("unheard_of", "a"), ("performance", "a"))
    assert [reading.probe for reading in present(table)] == ["performance", "adversarial"]


class Outside:
    """An entry point of an installed package."""

    @staticmethod
    def load():
        return Reading("permutation")


def test_a_second_reading_of_a_probe_is_refused(monkeypatch):
    monkeypatch.setattr(registry, "entry_points", lambda group: [Outside])
    readings.cache_clear()
    try:
        with pytest.raises(UserError, match="permutation: two readings of one probe"):
            readings()
    finally:
        readings.cache_clear()


def test_maps_and_columns_are_those_with_numbers_the_leading_ones_first(monkeypatch):
    silent = Column("a", "not sorted by", sorts=False)
    plain = Column("b", "plain")
    leading = Column("c", "leading", leads=True)
    missing = Column("d", "without numbers")
    heat_map = HeatMap("b", "Map", "a map")
    reading = Reading("mine", maps=(heat_map,), columns=(silent, plain, leading, missing))
    monkeypatch.setattr(registry, "readings", lambda: {"mine": reading})
    table = numbers(("mine", "a"), ("mine", "b"), ("mine", "c"))
    assert columns_in(table) == [("mine", leading), ("mine", plain), ("mine", silent)]
    assert maps_in(table) == [("mine", heat_map)]
    assert maps_in(numbers(("mine", "a"))) == []
