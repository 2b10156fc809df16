"""Importances by name: the built-in ones, each in a file of its name, and those of installed packages."""

import importlib
import inspect
import pkgutil
from functools import cache
from importlib.metadata import entry_points

from attnprobe.errors import UserError
from attnprobe.importance.base import Importance
from attnprobe.schema.importances import GROUP


@cache
def built_in(name: str) -> Importance:
    """The importance of this name with its default settings.

    Raises:
        UserError: there is none of this name.
    """
    for entry in entry_points(group=GROUP):
        if entry.name == name:
            return entry.load()()
    member = class_of(name) if name.isidentifier() else None
    if member is None:
        raise UserError(f"importance {name!r}: there is none of this name; expected one of {', '.join(names())}")
    return member()


def class_of(name: str) -> type[Importance] | None:
    """The built-in class of this name, from the module or the package of this name."""
    for module in (f"attnprobe.importance.{name}", f"attnprobe.importance.{name}.member"):
        try:
            content = vars(importlib.import_module(module)).values()
        except ModuleNotFoundError:
            continue
        for one in content:
            if inspect.isclass(one) and issubclass(one, Importance) and getattr(one, "name", None) == name:
                return one
    return None


def names() -> list[str]:
    """All names, built-in and installed."""
    package = importlib.import_module("attnprobe.importance")
    modules = [one.name for one in pkgutil.iter_modules(package.__path__)]
    return sorted({one for one in modules if class_of(one)} | {one.name for one in entry_points(group=GROUP)})
