"""References to other values (`${…}`) in settings that are not resolved yet."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from attnprobe.core.errors import UserError

REFERENCE = re.compile(
    r"""\$\{(
        oc\.select:\s*[\w.]+(,\s*[\w.+-]+)?  # ${oc.select:place,default}
        | oc\.dict\.keys:[\w.]+              # the names at a place
        | name_of_files:[^${}]*               # a name made of a path: ${name_of_files:${data.path}}
        | [\w.]+                              # the place of another setting: ${data.path}
    )\}""",
    re.VERBOSE,
)
"""What may stand for a value."""


def check_references(content: Any) -> None:
    """Refuse a setting that asks for more than the value of another one.

    The environment, the clock and code's results are not looked up: all settings are written into
    the run directory, tables and W&B, where a secret of the environment has no place.

    Raises:
        UserError: a setting asks for one of these.
    """
    for place, text in references(content):
        rest = REFERENCE.sub("", text)
        if "${" in REFERENCE.sub("", rest):  # one reference may stand within another
            raise UserError(
                f"{place}={ascii(text[:200])[1:-1]}: expected a value, or the place of another "
                f"setting such as ${{data.path}}. Settings are written down in every run, so that "
                f"the environment and the clock are not looked up; where the value may be known, "
                f"let your shell fill it in"
            )


def references(content: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Every place in settings whose name or value holds `${`, and that name or value.

    Args:
        content: settings at any depth.
        place: the names around them.
    """
    for key, value in entries(content):
        inner = (*place, str(key))
        for text in (key, value):
            if isinstance(text, str) and "${" in text:
                yield ascii(".".join(inner)[:200])[1:-1], text
        yield from references(value, inner)


def entries(content: Any) -> list[tuple[Any, Any]]:
    """The direct entries of a mapping or a list, each after its key or number; else none."""
    if isinstance(content, Mapping):
        return list(content.items())
    if isinstance(content, (list, tuple)):
        return list(enumerate(content))
    return []
