"""The importances that `importances=[…]` names: those with settings in conf/importance, and those of installed packages."""

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from attnprobe.errors import UserError
from attnprobe.schema.words import listed, nearest
from attnprobe.shown import visible

GROUP = "attnprobe.importances"
"""Entry points by which an installed package brings importances: `name = package.module:Class`."""


def installed() -> dict[str, str]:
    """The importances that installed packages bring: name → dotted name of the class. Nothing is imported."""
    return {entry.name: entry.value.replace(":", ".") for entry in entry_points(group=GROUP)}


def with_installed(content: Mapping[str, Any]) -> dict[str, Any]:
    """The same settings, with those of installed packages' importances that are asked for.

    Raises:
        UserError: an importance is asked for that is in neither place.
    """
    given = content.get("importance")
    asked = [("importances", content.get("importances"))]
    probes = content.get("probe")
    for probe, part in probes.items() if isinstance(probes, Mapping) else []:
        asked.append((f"probe.{probe}.importances", part.get("importances") if isinstance(part, Mapping) else None))
    if not isinstance(given, Mapping):  # the schema says what is wrong with it
        return dict(content)
    parts, there = dict(given), installed()
    for setting, names in asked:
        for name in names if isinstance(names, list) else []:
            if name in parts or not isinstance(name, str):
                continue
            if name not in there:
                known = [*parts, *there]
                raise UserError(
                    f"{setting}: {visible(name)}: there is no such importance{nearest(name, known) or '.'} Known here: "
                    f"{listed(known)}; one of your own is conf/importance/{visible(name)}.yaml in the folder of --config-dir"
                )
            parts[name] = {"_target_": there[name]}
    return dict(content) | {"importance": parts}
