"""Classes whose instances are Lightning's own: a probe is a callback, a data set a data module.

Importing Lightning takes seconds, and neither a report nor the answer to a mistake in the settings
should wait for it. So such a class names the class of its hooks, and its instances get them when
they are needed: at once where Python constructs one, and when a run begins where settings do.
"""

from functools import cache
from importlib import import_module
from typing import Any

from attnprobe.core.settings import Checked


class Hooked(Checked):
    """Metaclass of classes whose instances get Lightning's hooks.

    Attributes:
        hooks: the class that has them, as `module.Class`; it derives from one of Lightning's.
    """

    hooks: str

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Construct an instance that has the hooks; see `Checked`."""
        return with_hooks(super().__call__(*args, **kwargs))


def with_hooks(instance: Any) -> Any:
    """Give an instance of a `Hooked` class its hooks, in place, unless it has them."""
    kind: Any = type(instance)
    assert isinstance(kind, Hooked)
    hooked = hooked_class(kind)
    if kind is not hooked:
        instance.__class__ = hooked
        _hooks_of(kind).__init__(instance)
    return instance


@cache
def hooked_class(kind: Hooked) -> Any:
    """The subclass of a class that has its hooks, under the same name."""
    hooks = _hooks_of(kind)
    if issubclass(kind, hooks):
        return kind
    names = ("__module__", "__qualname__", "__doc__")
    content: dict[str, Any] = {name: getattr(kind, name) for name in names}
    # pickle looks a class up by its name, where it finds the one without hooks
    content["__reduce__"] = lambda self: (_unpickled, (kind,), vars(self))
    return type(kind)(kind.__name__, (kind, hooks), content)


def _unpickled(kind: Hooked) -> Any:
    return object.__new__(hooked_class(kind))


def _hooks_of(kind: Hooked) -> Any:
    module, _, name = kind.hooks.rpartition(".")
    return getattr(import_module(module), name)
