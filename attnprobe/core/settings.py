"""Settings: their types, and the one check that a wrong one is answered with, in Python and on the
command line alike.

A class's arguments are its settings, and their annotations the only place where a limit stands:

    samples: Count = 100
    share: Annotated[Number, Gt(0), Le(1)] = 1.0
    rows: Literal["pooled", "all"] = "pooled"

`Checked` classes check themselves where they are constructed; `attnprobe.runs.validation` checks
the same arguments where they stand in a configuration."""

import inspect
import json
from abc import ABCMeta
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import is_dataclass
from difflib import get_close_matches
from functools import cache, partial
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Le, Lt, MinLen, Predicate
from pydantic import AllowInfNan, ConfigDict, TypeAdapter, ValidationError

from attnprobe.core.errors import UserError
from attnprobe.core.sanitise import visible

SHOWN = 80
"""Longer values are cut in a message."""
LISTED = 25
"""At most this many known names are listed."""


# A text among the facts of an Annotated type is what the type is called in messages.
Number = Annotated[float, AllowInfNan(False)]
Name = Annotated[
    str,
    Predicate(
        lambda text: (
            text.strip() not in ("", ".", "..")
            and not set(text) & set("/\\\0")
            and len(text) <= 100
        )
    ),
    "a name for folders and tables: up to 100 characters, none of them / or \\",
]
Text = Annotated[str, MinLen(1), "text that is not empty"]
Object = Annotated[
    Any, Predicate(lambda value: not isinstance(value, str | int | float | list | dict | None)), ""
]
"""What no YAML can hold."""
Part = Annotated[
    Any,
    Predicate(
        lambda value: (
            isinstance(value.get("_target_"), str)
            if isinstance(value, Mapping)
            else not isinstance(value, str | int | float | list | None)
        )
    ),
    "a part (a mapping with _target_, the class that is constructed)",
]
"""What is constructed from a mapping with `_target_`."""
Whole = Annotated[int, Ge(0)]
Count = Annotated[int, Ge(1)]
Size = Annotated[int, Ge(1), Le(1_000_000)]
Seed = Annotated[int, Ge(0), Le(2**32 - 1)]
NotNegative = Annotated[Number, Ge(0)]
Positive = Annotated[Number, Gt(0)]
Share = Annotated[Number, Gt(0), Lt(1)]
"""Some, and not all."""
Portion = Annotated[Number, Ge(0), Le(1)]
"""From nothing to all."""
Dropout = Annotated[Number, Ge(0), Lt(1)]
NOUNS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    NoneType: "null",
    None: "null",
}
PLURALS = {int: "whole numbers", float: "numbers", str: "texts"}
# pydantic's check of a type, which converts nothing: "3" is not a number
_adapter = cache(
    partial(TypeAdapter[Any], config=ConfigDict(strict=True, arbitrary_types_allowed=True))
)
BOUNDS = {
    Ge: "of at least {0.ge}",
    Gt: "above {0.gt}",
    Le: "of at most {0.le}",
    Lt: "below {0.lt}",
    MinLen: "with {0.min_length} or more entries",
}


class Checked(ABCMeta):
    """Classes whose arguments are checked where they are constructed.

    `settings_place` says where a class's settings stand in a configuration, such as `probe.{name}`.
    """

    settings_place: str = "{name}"

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Construct an instance; raises `UserError` for an argument that is unknown, or of a wrong
        type, range or choice."""
        place = cls.settings_place.format(name=getattr(cls, "name", cls.__name__))
        check_arguments(place, dict(zip(arguments(cls), args, strict=False)) | kwargs, cls)
        return super().__call__(*args, **kwargs)

    @property
    def __signature__(cls) -> inspect.Signature:
        for one in cls.__mro__:
            if "__signature__" in vars(one):
                return vars(one)["__signature__"]
        made: Any = cls.__init__  # type: ignore[misc]
        given = (
            [] if made is object.__init__ else list(inspect.signature(made).parameters.values())[1:]
        )
        return inspect.Signature(given)


@cache
def arguments(kind: type) -> Mapping[str, inspect.Parameter]:
    """The arguments of a class by name, their annotations evaluated where that is possible."""
    try:
        hints = get_type_hints(kind if is_dataclass(kind) else kind.__init__, include_extras=True)  # type: ignore[misc]
    except Exception:  # an annotation of another package that cannot be looked up
        hints = {}
    given = inspect.signature(kind).parameters.values()
    return {
        one.name: one.replace(annotation=hints.get(one.name, one.annotation))
        for one in given
        if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    }


def check_arguments(
    place: str, given: Mapping[str, Any], kind: type, limits: Mapping[str, Any] | None = None
) -> None:
    """Refuse arguments that a class does not take, or whose values it does not: raises `UserError`,
    one line with the setting, its value, what was expected, and the nearest known name.

    Args:
        place: where they stand in a configuration, `probe.permutation`.
        limits: types in place of annotations that say less, for classes of other packages.
    """
    known = arguments(kind)
    types = {name: setting_type(one.annotation) for name, one in known.items()} | dict(limits or {})
    open_ended = any(
        one.kind is one.VAR_KEYWORD for one in inspect.signature(kind).parameters.values()
    )
    check_settings(place, given, types, others=open_ended)


def check_settings(
    place: str, given: Mapping[str, Any], known: Mapping[str, Any], *, others: bool = False
) -> None:
    """Refuse names that are not known, unless `others`, and values of another type than is known of
    their names, as `check_arguments` does."""
    for name, value in given.items():
        setting = f"{place}.{name}" if place else str(name)
        if name in known:
            check_value(setting, value, known[name])
        elif not others:
            raise UserError(
                f"{visible(setting)}={shown(value)}: there is no such setting{nearest(str(name), known) or '.'} "
                f"Known here: {listed(known) or 'none'}"
            )


def check_value(setting: str, value: Any, kind: Any) -> None:
    """Refuse a value that is not of this type (as `setting_type` gives it), as `check_arguments`
    does."""
    value = _plain(value)
    with suppress(ValidationError, RecursionError):
        _adapter(kind).validate_python(value)
        return
    texts = [
        one
        for one in (value if isinstance(value, list | dict) else [value])
        if isinstance(one, str)
    ]
    hint = next(filter(None, (nearest(one, _choices(kind)) for one in texts)), "")
    if isinstance(value, bool | int | float) and str in (kind, *get_args(kind)):
        hint = f"; as text it is written in two pairs of quotes: '{setting}=\"{shown(value)}\"'"
    raise UserError(f"{visible(setting)}={shown(value)}: expected {words(kind)}{hint}")


def _plain(value: Any) -> Any:
    """Lists and dicts in place of all that is read as such; numbers in place of numpy's."""
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if (
        isinstance(value, list | tuple | set | frozenset | range)
        or type(value).__name__ == "ListConfig"
    ):
        return [_plain(one) for one in value]
    return (
        value.item()
        if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ()
        else value
    )


@cache
def setting_type(hint: Any) -> Any:
    """From an annotation to the type that a setting is checked against; `Any` where it says nothing
    about values.

    >>> setting_type(Callable[..., int] | None), setting_type(tuple[int, ...])
    (typing.Any, list[int])
    """
    origin = get_origin(hint)
    inner = get_args(hint)
    if hint is float:
        return Number
    if hint in (int, bool, str, None, NoneType) or origin is Literal:
        return hint
    if origin is Annotated:
        return hint if Any in inner else Annotated[setting_type(inner[0]), *hint.__metadata__]
    if part_of(hint) is not None and origin not in (Union, UnionType):
        return Part
    if origin in (Union, UnionType):
        kinds = []
        for one in inner:
            bare = get_args(one)[0] if get_origin(one) is Annotated else one
            kind = get_origin(bare) or bare
            plain = kind is NoneType or getattr(kind, "__module__", "") in (
                "builtins",
                "collections.abc",
            )
            of_objects = (
                isinstance(kind, type) and not plain and part_of(one) is None
            )  # a tensor, a path
            kinds.append(Object if of_objects else setting_type(one))
        return Any if Any in kinds or set(kinds) <= {Object, NoneType} else Union[tuple(kinds)]  # noqa: UP007
    kind = origin or hint
    if not isinstance(kind, type) or kind in (str, bytes):
        return Any
    if issubclass(kind, Mapping):
        return dict[tuple(map(setting_type, inner))] if inner else dict[Any, Any]  # type: ignore[misc]
    if issubclass(kind, Iterable) and kind.__module__ in ("builtins", "collections.abc"):
        one_type = len(inner) == 1 or (len(inner) == 2 and inner[1] is ...)
        return list[setting_type(inner[0]) if one_type else Any]  # type: ignore[misc]
    return Any


@cache
def part_of(hint: Any) -> tuple[type, bool] | None:
    """The base of the part that an argument takes, and whether it takes something that constructs
    one (`_partial_`).

    >>> part_of(int | None)
    >>> part_of(Callable[..., Number])
    """
    if get_origin(hint) in (Union, UnionType):
        kinds = [one for one in map(part_of, get_args(hint)) if one is not None]
        return kinds[0] if len(kinds) == 1 else None
    if get_origin(hint) is Callable:
        inner = part_of(get_args(hint)[-1])
        return None if inner is None else (inner[0], True)
    is_part = isinstance(hint, Checked) or (
        isinstance(hint, type) and hint.__module__.startswith("torch.optim")
    )
    return (hint, False) if is_part else None


def words(kind: Any, *, plural: bool = False) -> str:
    """What values a type has, in words.

    >>> words(int | None), words(list[int]), words(Share)
    ('a whole number or null', 'a list of whole numbers', 'a number above 0 and below 1')
    """
    origin = get_origin(kind)
    inner = get_args(kind)
    if origin is Annotated:
        named = [one for one in kind.__metadata__ if isinstance(one, str)]
        facts = [BOUNDS[type(one)].format(one) for one in kind.__metadata__ if type(one) in BOUNDS]
        bounds = f" {' and '.join(facts)}" if facts else ""
        return named[0] if named else words(inner[0], plural=plural) + bounds
    if origin in (Union, UnionType, Literal):
        kinds = [kind] if origin is Literal else [one for one in inner if one != Object]
        parts = [
            part
            for one in kinds
            for part in (_choices(one) if get_origin(one) is Literal else [words(one)])
        ]
        return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} or {parts[-1]}"
    if origin is list:
        any_of = "any of " if get_origin(inner[0]) is Literal else ""
        return "a list" if inner[0] is Any else f"a list of {any_of}{words(inner[0], plural=True)}"
    if origin is dict:
        values = words(inner[1], plural=True)
        if get_origin(inner[0]) is not Literal:
            return "a mapping such as {key: value}" if inner[1] is Any else f"a mapping to {values}"
        example = f", such as {{{get_args(inner[0])[0]}: 100}}" if "number" in values else ""
        return f"a mapping from any of {words(inner[0])} to {values}{example},"
    return (PLURALS.get(kind) if plural else None) or NOUNS.get(kind, "another value")


def _choices(kind: Any) -> list[str]:
    """All choices that a type names, wherever in it."""
    if get_origin(kind) is Literal:
        return [str(one) for one in get_args(kind)]
    return [name for one in get_args(kind) for name in _choices(one)]


def shown(value: Any) -> str:
    """A value as it stands on a command line, on one line and not too long."""
    try:
        text = visible(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    except (TypeError, ValueError, RecursionError):
        text = visible(str(value))
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
