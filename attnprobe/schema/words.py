"""How a mistake is told: values shown safely on one line, and the nearest known name."""

import json
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from attnprobe.shown import visible

SHOWN = 80
"""Longer values are cut in a message."""
LISTED = 25
"""At most this many known names are listed."""


def shown(value: Any) -> str:
    """A value as it stands on a command line, on one line and not too long."""
    if isinstance(value, str):
        text = value
    else:
        try:
            text = json.dumps(value, ensure_ascii=False)
        except (TypeError, ValueError, RecursionError):
            text = str(value)
    text = visible(text)
    return text if len(text) <= SHOWN else text[:SHOWN] + "…"


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean NAME?` where one is near, else nothing.

    >>> nearest("permuation", ["adversarial", "permutation"])
    '; did you mean permutation?'
    """
    names = list(dict.fromkeys(known))
    lower = {one.lower(): one for one in names}
    matches = get_close_matches(name.lower(), list(lower), n=1, cutoff=0.6)
    return f"; did you mean {lower[matches[0]]}?" if matches and lower[matches[0]] != name else ""


def listed(names: Iterable[str]) -> str:
    """Known names on one line."""
    every = list(names)
    return ", ".join(every[:LISTED]) + (" …" if len(every) > LISTED else "")
