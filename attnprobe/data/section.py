"""What is said of a data set before anything is trained on it, from the section that the manifest keeps."""

from collections.abc import Mapping
from typing import Any

from attnprobe.shown import visible

ALWAYS = ("rows", "classes", "length")
"""Checks that are shown where nothing is wrong, too."""

_told: set[str] = set()


def section_lines(name: str, section: Mapping[str, Any]) -> list[str]:
    """One line for each guess, each fact and each warning.

    Args:
        name: of the data set.
        section: as in the manifest; an empty one, of an older run, gives no line.

    >>> check = {"name": "test rows", "value": 12, "threshold": 100, "warns": True, "sentence": "12 test rows: few"}
    >>> section_lines("hotels", {"notes": ["hotels.csv: read as cp1252"], "checks": [check]})
    ['data hotels: hotels.csv: read as cp1252', 'warning: data hotels: 12 test rows: few']
    """
    lines = [f"data {name}: {note}" for note in section.get("notes", [])]
    checks = section.get("checks", [])
    lines += [f"data {name}: {one['sentence']}" for one in checks if one["name"] in ALWAYS and not one["warns"]]
    lines += [f"warning: data {name}: {one['sentence']}" for one in checks if one["warns"]]
    return [visible(line) for line in lines]


def tell_section(name: str, section: Mapping[str, Any]) -> None:
    """Print the section, each line once in a process: the runs of a study mostly share their data."""
    for line in section_lines(name, section):
        if line not in _told:
            _told.add(line)
            print(line, flush=True)
