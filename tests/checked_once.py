"""Checks of shape annotations without their repeated work.

Whether arguments and a result are what their annotations say depends on their types, shapes and
words alone, and a check takes longer than many a function. So what passed once is not checked
again."""

import functools
import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from types import CodeType
from typing import Any

import jaxtyping
import numpy as np
from jaxtyping import _decorator

LONGEST = 16
"""Items up to which lists are told apart."""
check_always = _decorator.jaxtyped


class CannotTellError(Exception):
    """Of values that a check might tell apart, and we do not."""


def described(value: Any) -> Hashable:
    """All that an annotation can say of a value.

    Raises:
        CannotTellError: it may say more.
    """
    return describer(type(value))(value)


@functools.cache
def describer(kind: type) -> Callable[[Any], Hashable]:
    """What describes values of this type."""
    if issubclass(kind, np.ndarray) or hasattr(kind, "__torch_function__"):
        return lambda array: (kind, array.shape, array.dtype)
    if issubclass(kind, str | bytes | type):
        return lambda word: (kind, word)
    if kind in (tuple, list):
        return described_items
    if issubclass(kind, Mapping | Set | Sequence):
        return refuse
    return lambda value: kind


def described_items(items: Sequence[Any]) -> Hashable:
    if len(items) > LONGEST:
        raise CannotTellError
    return (type(items), *map(described, items))


def refuse(value: Any) -> Hashable:
    raise CannotTellError


class Calls:
    """What a function was given and returned.

    Attributes:
        code: of the function; kept, so that no other code has its id.
        results: descriptions of its arguments, and of the results that passed with them.
    """

    def __init__(self, code: CodeType) -> None:
        self.code = code
        self.results: dict[Hashable, set[Hashable]] = {}


CALLS: dict[int, Calls] = {}
"""By the id of the function's code, which a function within a function has each time."""


class CheckedFunction:
    """Makes the checks of a function where they are needed, which takes milliseconds."""

    def __init__(self, function: Callable[..., Any], typechecker: Any) -> None:
        self.function = function
        self.typechecker = typechecker
        code = function.__code__
        self.results = CALLS.setdefault(id(code), Calls(code)).results
        self.known_result: Any = None

    @functools.cached_property
    def checked(self) -> Callable[..., Any]:
        return check_always(self.function, typechecker=self.typechecker)

    @functools.cached_property
    def checked_result(self) -> Callable[..., Any]:
        """The checks alone, around a result that is known."""

        @functools.wraps(self.function)
        def result(*args: Any, **named: Any) -> Any:
            return self.known_result

        return check_always(result, typechecker=self.typechecker)

    def call(self, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        __tracebackhide__ = True
        try:
            arguments = (
                *map(described, args),
                *named,
                *map(described, named.values()),
            )
        except CannotTellError:
            return self.checked(*args, **named)
        passed = self.results.get(arguments)
        if passed is None:
            result = self.checked(*args, **named)
            self.results[arguments] = set()
        else:
            result = self.function(*args, **named)
        try:
            description = described(result)
        except CannotTellError:
            description = None
        if passed is not None and (description is None or description not in passed):
            self.known_result = result
            self.checked_result(*args, **named)
            self.known_result = None
        if description is not None:
            self.results[arguments].add(description)
        return result


def checked_once(function: Any = None, *, typechecker: Any = None) -> Any:
    """In the place of `jaxtyping.jaxtyped`, whose arguments it has."""
    if function is None:
        return functools.partial(checked_once, typechecker=typechecker)
    if not inspect.isfunction(function):
        return check_always(function, typechecker=typechecker)
    if hasattr(function, "is_checked_once"):
        return function
    checked_function = CheckedFunction(function, typechecker)

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        __tracebackhide__ = True
        return checked_function.call(args, named)

    call.is_checked_once = True
    return call


def install() -> None:
    """Have all that is imported from now on checked so."""
    jaxtyping.jaxtyped = checked_once
    _decorator.jaxtyped = checked_once
