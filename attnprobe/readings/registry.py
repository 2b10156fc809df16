"""The readings of all probes.

An installed package brings readings of its own probes by entry points of the group
`attnprobe.readings` (docs/extending.md).
"""

import importlib
import pkgutil
from collections.abc import Sequence
from functools import cache
from importlib.metadata import entry_points

from attnprobe.core.errors import UserError
from attnprobe.readings.reading import Column, HeatMap, Reading
from attnprobe.results.numbers import Numbers


@cache
def readings() -> dict[str, Reading]:
    """Every probe's reading, by the probe's name, in the summary's order.

    Raises:
        UserError: an installed package brings a reading of a probe that has one.
    """
    package = importlib.import_module("attnprobe.probes")
    declared: list[Reading] = []
    for info in pkgutil.iter_modules(package.__path__):
        if not info.name.startswith("_"):
            module = importlib.import_module(f"{package.__name__}.{info.name}")
            if hasattr(module, "READING"):
                declared.append(module.READING)
    declared += [entry.load() for entry in entry_points(group="attnprobe.readings")]
    ordered = sorted(declared, key=lambda reading: (reading.order, reading.probe))
    names = [reading.probe for reading in ordered]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise UserError(
            f"{', '.join(repeated)}: two readings of one probe; give your own probe another name"
        )
    return {reading.probe: reading for reading in ordered}


def present(numbers: Numbers) -> list[Reading]:
    """The readings of those probes that there are numbers of."""
    probes = set(numbers.probes)
    return [reading for name, reading in readings().items() if name in probes]


def maps_in(numbers: Numbers, classes: Sequence[str] = ()) -> list[tuple[str, HeatMap]]:
    """The heat maps that there are numbers of, with their probes.

    Args:
        numbers: of a run.
        classes: names of its classes; empty: they are called by their numbers.
    """
    maps = []
    for reading in present(numbers):
        metrics = numbers.metrics(reading.probe)
        for heat_map in reading.maps:
            maps += [(reading.probe, shown) for shown in heat_map.among(metrics, classes)]
    return maps


def columns_in(numbers: Numbers) -> list[tuple[str, Column]]:
    """The columns that there are numbers of, with their probes.

    First come those to sort by, and leading ones before all.
    """
    columns = [
        (reading.probe, column)
        for reading in present(numbers)
        for column in reading.columns
        if column.metric in numbers.metrics(reading.probe)
    ]
    return sorted(columns, key=lambda pair: (not pair[1].sorts, not pair[1].leads))
