"""Settings: their types, and the one check of them, in Python and on the command line alike.

A class's arguments are its settings, and their annotations the only place where a limit stands:

    samples: Count = 100
    share: Annotated[Number, Gt(0), Le(1)] = 1.0
    rows: Literal["pooled", "all"] = "pooled"

pydantic checks the arguments of a `Checked` class when an instance is constructed: in Python by a
call of the class, from a configuration by `construct` or `defer`.
"""

import inspect
import json
from abc import ABCMeta
from collections.abc import Callable, Iterable, Mapping
from dataclasses import is_dataclass
from difflib import get_close_matches
from functools import cache, partial
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from annotated_types import Ge, Gt, Le, Lt, MinLen, Predicate
from pydantic import AllowInfNan, ConfigDict, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from attnprobe.core.errors import UserError
from attnprobe.core.sanitise import visible

SHOWN = 80
"""Longer values are cut in a message."""
LISTED = 25
"""At most this many known names are listed."""

SCALARS = (bool, int, float, str, NoneType)
PLAIN = (*SCALARS, list, dict)
"""What a YAML file can hold."""


def _is_name(text: str) -> bool:
    is_plain = not set(text) & set("/\\\0")
    return is_plain and text.strip() not in ("", ".", "..") and len(text) <= 100


def _is_no_plain_value(value: Any) -> bool:
    return not isinstance(value, PLAIN)


def _is_part(value: Any) -> bool:
    if isinstance(value, Mapping):
        return isinstance(value.get("_target_"), str)
    return not isinstance(value, PLAIN)


# A str among the metadata of an Annotated type is what messages call the type.
Number = Annotated[float, AllowInfNan(False)]
Name = Annotated[
    str,
    Predicate(_is_name),
    "a name for folders and tables: up to 100 characters, none of them / or \\",
]
Text = Annotated[str, MinLen(1), "text that is not empty"]
Whole = Annotated[int, Ge(0)]
Count = Annotated[int, Ge(1)]
Size = Annotated[int, Ge(1), Le(1_000_000)]
Seed = Annotated[int, Ge(0), Le(2**32 - 1)]
NotNegative = Annotated[Number, Ge(0)]
Positive = Annotated[Number, Gt(0)]
Share = Annotated[Number, Gt(0), Lt(1)]
"""A proper part: neither nothing nor all."""
Portion = Annotated[Number, Ge(0), Le(1)]
"""From nothing to all."""
Dropout = Annotated[Number, Ge(0), Lt(1)]

Object = Annotated[Any, Predicate(_is_no_plain_value), ""]
"""What no YAML can hold: a tensor, a path."""
Part = Annotated[
    Any, Predicate(_is_part), "a part (a mapping with _target_, the class that is constructed)"
]
"""An object, or the mapping with `_target_` from which one is constructed."""
SectionSettings = Annotated[Any, Predicate(lambda value: not isinstance(value, (*SCALARS, list)))]
"""A `Section`, or the mapping from which one is constructed."""

NOUNS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    NoneType: "null",
    None: "null",
}
PLURALS = {int: "whole numbers", float: "numbers", str: "texts"}
BOUNDS: dict[type, Callable[[Any], str]] = {
    Ge: lambda bound: f"of at least {bound.ge}",
    Gt: lambda bound: f"above {bound.gt}",
    Le: lambda bound: f"of at most {bound.le}",
    Lt: lambda bound: f"below {bound.lt}",
    MinLen: lambda bound: f"with {bound.min_length} or more entries",
}

STRICT = ConfigDict(strict=True, arbitrary_types_allowed=True)
"""pydantic converts nothing: "3" is not a number."""


class Checked(ABCMeta):
    """Metaclass of configurable classes: pydantic checks their arguments at construction.

    `settings_place` says where a class's settings stand in a configuration, such as `probe.{name}`.
    """

    settings_place: str = "{name}"

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Construct an instance.

        Raises:
            UserError: an argument is unknown, or of a wrong type, range or choice.
        """
        named = dict(zip(arguments(cls), args, strict=False)) | kwargs
        check_arguments(place_of(cls), named, cls)
        return super().__call__(*args, **kwargs)

    @property
    def __signature__(cls) -> inspect.Signature:
        for base in cls.__mro__:
            if "__signature__" in vars(base):
                return vars(base)["__signature__"]
        constructor: Any = cls.__init__  # type: ignore[misc]
        if constructor is object.__init__:
            return inspect.Signature([])
        _, *parameters = inspect.signature(constructor).parameters.values()
        return inspect.Signature(parameters)


class Section(metaclass=Checked):
    """A group of settings whose class its place decides, and no `_target_`: `training`, `task`."""

    settings_place: ClassVar[str]

    @classmethod
    def kind_of(cls, settings: Mapping[str, Any]) -> type["Section"]:
        """The class that these settings are constructed as: this one, or the choice they name."""
        return cls


class Choice(Section):
    """A section whose `name` chooses one of several classes, the direct subclasses of one base."""

    chosen_by: ClassVar[str]

    @classmethod
    def kind_of(cls, settings: Mapping[str, Any]) -> type[Section]:
        """The class that `name` chooses.

        Raises:
            UserError: there is no choice of this name.
        """
        kinds = {kind.chosen_by: kind for kind in cls.__subclasses__()}
        name = settings.get("name")
        if not isinstance(name, str) or name not in kinds:
            raise UserError(
                f"{cls.settings_place}.name={shown(name)}: expected {listed(kinds)}"
                f"{nearest(str(name), kinds)}"
            )
        return kinds[name]


class Deferred(partial):
    """The class of a part and its arguments, checked; the data or the model add what is missing."""

    place: str

    def __call__(self, *args: Any, **facts: Any) -> Any:
        """Construct the part.

        Args:
            args: what follows from the data or the model, by position.
            facts: the same by name, such as `input_size`; only these are still to be checked.
        """
        kind: Any = self.func
        named = dict(zip(arguments(kind), args, strict=False)) | facts
        check_arguments(self.place, named, kind)
        return type.__call__(kind, *args, **self.keywords, **facts)


def place_of(kind: Checked) -> str:
    """Where the settings of a class stand in a configuration, such as `probe.permutation`."""
    return kind.settings_place.format(name=getattr(kind, "name", kind.__name__))


def construct(kind: type, settings: Mapping[str, Any]) -> Any:
    """An instance from settings that `check_arguments` has checked."""
    if isinstance(kind, Checked):
        return type.__call__(kind, **settings)
    return kind(**settings)


def defer(place: str, kind: type, settings: Mapping[str, Any]) -> partial:
    """A constructor with some settings, which `check_arguments` has checked, for what needs more.

    Args:
        place: where the settings stand in a configuration, for messages.
        kind: the class.
        settings: arguments by name.
    """
    if not isinstance(kind, Checked):
        return partial(kind, **settings)
    deferred = Deferred(kind, **settings)
    deferred.place = place
    return deferred


@cache
def arguments(kind: type) -> Mapping[str, inspect.Parameter]:
    """The arguments of a class by name, their annotations evaluated where that is possible."""
    annotated: Any = kind if is_dataclass(kind) else kind.__init__  # type: ignore[misc]
    try:
        hints = get_type_hints(annotated, include_extras=True)
    except Exception:  # an annotation of another package that cannot be looked up
        hints = {}
    return {
        parameter.name: parameter.replace(
            annotation=hints.get(parameter.name, parameter.annotation)
        )
        for parameter in inspect.signature(kind).parameters.values()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    }


def check_arguments(
    place: str,
    values: Mapping[str, Any],
    kind: type,
    limits: Mapping[str, Any] | None = None,
    *,
    complete: bool = False,
) -> None:
    """Refuse arguments that a class does not take, or whose values it does not take.

    Args:
        place: where they stand in a configuration: `probe.permutation`; empty at the top.
        values: by name.
        kind: the class.
        limits: types in place of annotations that say less, for classes of other packages.
        complete: also refuse a missing argument that has no default.

    Raises:
        UserError: one line with the setting, its value, what was expected, and the nearest known
            name.
    """
    values = {str(name): value for name, value in values.items()}
    limited = tuple((limits or {}).items())
    try:
        _schema(kind, limited).validate_python(_plain(values))
        return
    except ValidationError as raised:
        errors = raised.errors(include_url=False, include_context=False, include_input=False)
    types = _types(kind, limited)
    for error in errors:
        name = str(error["loc"][0])
        setting = f"{place}.{name}" if place else name
        if error["type"] == "missing":
            if complete:
                raise UserError(f"{setting} is missing: expected {words(types[name])}")
        elif error["type"] == "extra_forbidden":
            hint = nearest(name, types) or "."
            raise UserError(
                f"{visible(setting)}={shown(values[name])}: there is no such setting{hint} "
                f"Known here: {listed(types) or 'none'}"
            )
        else:
            raise _refusal(setting, values[name], types[name])


def check_value(setting: str, value: Any, kind: Any) -> None:
    """Refuse a value that is not of this type (as `setting_type` gives it).

    Raises:
        UserError: one line, as `check_arguments` says it.
    """
    try:
        TypeAdapter(kind, config=STRICT).validate_python(_plain(value))
    except ValidationError:
        raise _refusal(setting, value, kind) from None


@cache
def _types(kind: type, limits: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    """Argument → the type that its value is checked against."""
    types = {name: setting_type(argument.annotation) for name, argument in arguments(kind).items()}
    return types | {name: limit for name, limit in limits if name in types}


@cache
def _schema(kind: type, limits: tuple[tuple[str, Any], ...]) -> TypeAdapter[Any]:
    """pydantic's schema of all arguments of a class."""
    fields = {}
    for name, value_type in _types(kind, limits).items():
        is_required = arguments(kind)[name].default is inspect.Parameter.empty
        fields[name] = value_type if is_required else NotRequired[value_type]
    parameters = inspect.signature(kind).parameters.values()
    takes_more = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    schema: Any = TypedDict("schema", fields)  # type: ignore[misc]
    config: ConfigDict = {**STRICT, "extra": "allow" if takes_more else "forbid"}
    return TypeAdapter(with_config(config)(schema))


def _refusal(setting: str, value: Any, kind: Any) -> UserError:
    """The answer to a wrong value: what came, what was expected, and the nearest choice."""
    entries = value if isinstance(value, Iterable) and not isinstance(value, str) else [value]
    texts = [entry for entry in entries if isinstance(entry, str)]
    hints = [nearest(text, _choices(kind)) for text in texts]
    hint = next(filter(None, hints), "")
    takes_text = kind is str or str in get_args(kind)
    if takes_text and isinstance(value, bool | int | float):
        hint = f"; as text it is written in two pairs of quotes: '{setting}=\"{shown(value)}\"'"
    return UserError(f"{visible(setting)}={shown(value)}: expected {words(kind)}{hint}")


def _plain(value: Any) -> Any:
    """Lists and dicts in place of all that is read as such; numbers in place of numpy's."""
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    is_list = isinstance(value, list | tuple | set | frozenset | range)
    if is_list or type(value).__name__ == "ListConfig":
        return [_plain(entry) for entry in value]
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
        return value.item()
    return value


@cache
def setting_type(hint: Any) -> Any:
    """The type that a setting is checked against; `Any` where its annotation names no values.

    >>> setting_type(Callable[..., int] | None), setting_type(tuple[int, ...])
    (typing.Any, list[int])
    """
    origin = get_origin(hint)
    members = get_args(hint)
    if hint is float:
        return Number
    if hint is None or hint in SCALARS or origin is Literal:
        return hint
    if origin is Annotated:
        described, *_ = members
        return hint if described is Any else Annotated[setting_type(described), *hint.__metadata__]
    if origin in (Union, UnionType):
        return _union_type(members)
    if section_of(hint) is not None:
        return SectionSettings
    if part_of(hint) is not None:
        return Part
    kind = origin or hint
    if not isinstance(kind, type) or kind is bytes:
        return Any
    if issubclass(kind, Mapping):
        key_and_value = members or (Any, Any)
        return dict[tuple(map(setting_type, key_and_value))]  # type: ignore[misc]
    if issubclass(kind, Iterable) and kind.__module__ in ("builtins", "collections.abc"):
        is_homogeneous = len(members) == 1 or (len(members) == 2 and members[1] is ...)
        return list[setting_type(members[0]) if is_homogeneous else Any]  # type: ignore[misc]
    return Any


def _union_type(members: tuple[Any, ...]) -> Any:
    """The type that a setting is checked against whose annotation is a union of these."""
    types = [Object if _is_object(member) else setting_type(member) for member in members]
    if Any in types or set(types) <= {Object, NoneType}:
        return Any
    return Union[tuple(types)]  # noqa: UP007  of types that are known at run time only


def _is_object(hint: Any) -> bool:
    """Whether an annotation is a class of which no YAML can hold an instance: a tensor, a path."""
    bare = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    kind = get_origin(bare) or bare
    if not isinstance(kind, type) or kind.__module__ in ("builtins", "collections.abc"):
        return False
    return kind is not NoneType and part_of(hint) is None and section_of(hint) is None


@cache
def part_of(hint: Any) -> tuple[type, bool] | None:
    """The base of the part that an argument takes, and whether the part is constructed later.

    Later (`_partial_`) is what takes something that constructs the part, a `Callable`.

    >>> part_of(int | None)
    >>> part_of(Callable[..., Number])
    """
    if get_origin(hint) in (Union, UnionType):
        parts = [part for part in map(part_of, get_args(hint)) if part is not None]
        return parts[0] if len(parts) == 1 else None
    if get_origin(hint) is Callable:
        part = part_of(get_args(hint)[-1])
        return None if part is None else (part[0], True)
    if not isinstance(hint, type) or section_of(hint) is not None:
        return None
    is_part = isinstance(hint, Checked) or hint.__module__.startswith("torch.optim")
    return (hint, False) if is_part else None


def section_of(hint: Any) -> type[Section] | None:
    """The `Section` that an argument takes; None for any other."""
    return hint if isinstance(hint, type) and issubclass(hint, Section) else None


def words(kind: Any, *, plural: bool = False) -> str:
    """The values of a type, in words.

    >>> words(int | None), words(list[int]), words(Share)
    ('a whole number or null', 'a list of whole numbers', 'a number above 0 and below 1')
    """
    origin = get_origin(kind)
    members = get_args(kind)
    if kind == SectionSettings:
        return "a mapping such as {key: value}"
    if origin is Annotated:
        names = [fact for fact in kind.__metadata__ if isinstance(fact, str)]
        if names:
            return names[0]
        facts = [BOUNDS[type(fact)](fact) for fact in kind.__metadata__ if type(fact) in BOUNDS]
        bounds = f" {' and '.join(facts)}" if facts else ""
        return words(members[0], plural=plural) + bounds
    if origin in (Union, UnionType, Literal):
        return _alternatives(kind)
    if origin is list:
        if members[0] is Any:
            return "a list"
        any_of = "any of " if get_origin(members[0]) is Literal else ""
        return f"a list of {any_of}{words(members[0], plural=True)}"
    if origin is dict:
        return _mapping_words(*members)
    if plural and kind in PLURALS:
        return PLURALS[kind]
    return NOUNS.get(kind, "another value")


def _alternatives(kind: Any) -> str:
    """`a, b or c`: the choices of a Literal, or the members of a union."""
    members = [kind] if get_origin(kind) is Literal else get_args(kind)
    alternatives: list[str] = []
    for member in members:
        if get_origin(member) is Literal:
            alternatives += _choices(member)
        elif member != Object:
            alternatives.append(words(member))
    *first, last = alternatives
    return f"{', '.join(first)} or {last}" if first else last


def _mapping_words(key: Any, value: Any) -> str:
    """A mapping in words, with its keys where they can be listed."""
    values = words(value, plural=True)
    if get_origin(key) is Literal:
        example = f", such as {{{get_args(key)[0]}: 100}}" if "number" in values else ""
        return f"a mapping from any of {words(key)} to {values}{example},"
    return "a mapping such as {key: value}" if value is Any else f"a mapping to {values}"


def _choices(kind: Any) -> list[str]:
    """All choices that a type names, wherever in it."""
    if get_origin(kind) is Literal:
        return [str(choice) for choice in get_args(kind)]
    return [choice for member in get_args(kind) for choice in _choices(member)]


def shown(value: Any) -> str:
    """A value as it stands on a command line, on one line and not too long."""
    try:
        text = visible(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    except (TypeError, ValueError, RecursionError):
        text = visible(str(value))
    return text if len(text) <= SHOWN else text[:SHOWN] + "…"


def nearest(name: str, names: Iterable[str]) -> str:
    """`; did you mean NAME?` where one is near, else nothing.

    >>> nearest("permuation", ["adversarial", "permutation"])
    '; did you mean permutation?'
    """
    lower = {candidate.lower(): candidate for candidate in dict.fromkeys(names)}
    matches = get_close_matches(name.lower(), list(lower), n=1, cutoff=0.6)
    if not matches or lower[matches[0]] == name:
        return ""
    return f"; did you mean {lower[matches[0]]}?"


def listed(names: Iterable[str]) -> str:
    """Known names on one line."""
    names = list(names)
    return ", ".join(names[:LISTED]) + (" …" if len(names) > LISTED else "")
