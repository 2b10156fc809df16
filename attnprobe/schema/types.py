"""From an annotation in the source to a type that pydantic checks, and from such a type to words."""

import ast
from functools import reduce
from operator import or_
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import AllowInfNan

Number = Annotated[float, AllowInfNan(False)]
Part = Annotated[dict[str, Any], "part"]
"""A mapping with `_target_`: something that is constructed."""

Name = Annotated[str, "name"]
"""A text that names a folder or a file."""

PLAIN: dict[str, Any] = {"int": int, "float": Number, "bool": bool, "str": str, "None": None}
LISTS = ("Sequence", "list", "List", "tuple", "Tuple", "Iterable", "Collection", "set", "frozenset")
MAPPINGS = ("Mapping", "dict", "Dict", "MutableMapping")
NO_SETTING = ("Tensor", "PathLike", "Path", "Accelerator", "Strategy")
"""Types that no YAML can hold; in a union with others they are left out."""


def type_of(node: ast.expr | None, *, ours: bool) -> Any:
    """The pydantic type of an annotation; `Any` where nothing is known.

    Args:
        node: the annotation's expression.
        ours: it is defined in this package, where a name that is not a plain type is a class of ours, and so a part.
    """
    if node is None:
        return Any
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            return type_of(ast.parse(node.value, mode="eval").body, ours=ours)
        return None if node.value is None else Any
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return union_of(members(node), ours=ours)
    name = ast.unparse(node.value if isinstance(node, ast.Subscript) else node).split(".")[-1]
    inner: list[ast.expr] = []
    if isinstance(node, ast.Subscript):
        inner = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
    if name in PLAIN:
        return PLAIN[name]
    if name == "Optional":
        return union_of([*inner, ast.Constant(None)], ours=ours)
    if name == "Union":
        return union_of(inner, ours=ours)
    if name == "Literal":
        return Literal[tuple(ast.literal_eval(one) for one in inner)]
    if name == "Annotated":
        return type_of(inner[0], ours=ours)
    if name in LISTS:
        uniform = len(inner) == 1 or (len(inner) == 2 and ast.unparse(inner[1]) == "...")
        return list[type_of(inner[0], ours=ours) if uniform else Any]  # type: ignore[misc]
    if name in MAPPINGS:
        return dict[*(type_of(one, ours=ours) for one in inner)] if len(inner) == 2 else dict[Any, Any]  # type: ignore[misc]
    return Part if ours and (name == "Callable" or is_class(name)) else Any


def is_class(name: str) -> bool:
    """Whether a name is written as classes are; `Any` is not a class, and `TypeVar`s of one letter are none."""
    return name not in ("Any", "Float", "Int", "Bool", *NO_SETTING) and len(name) > 1 and name[0].isupper()


def members(node: ast.expr) -> list[ast.expr]:
    """The members of `a | b | c`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return members(node.left) + members(node.right)
    return [node]


def union_of(nodes: list[ast.expr], *, ours: bool) -> Any:
    """One type of several; `Any` where a member is unknown."""
    names = [ast.unparse(node).split("[")[0].split(".")[-1] for node in nodes]
    types = [type_of(node, ours=ours) for node, name in zip(nodes, names, strict=True) if name not in NO_SETTING]
    if Any in types or not types or types == [None]:
        return Any
    return reduce(or_, types)


def words(kind: Any) -> str:
    """What values a type has, in words.

    >>> words(int | None), words(list[int]), words(Annotated[Number, Gt(0), Lt(1)])
    ('a whole number or null', 'a list of whole numbers', 'a number above 0 and below 1')
    """
    origin = get_origin(kind)
    if kind == Part:
        return "a part (a mapping with _target_, the class that is constructed)"
    if origin is Annotated:
        bounds = [text for fact in kind.__metadata__ if (text := bound(fact))]
        return words(get_args(kind)[0]) + (f" {' and '.join(bounds)}" if bounds else "")
    if origin in (Union, UnionType):
        parts: list[str] = []
        for one in get_args(kind):
            parts += map(str, get_args(one)) if get_origin(one) is Literal else [words(one)]
        return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} or {parts[-1]}"
    if origin is Literal:
        parts = [str(one) for one in get_args(kind)]
        return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} or {parts[-1]}"
    if origin is list:
        item = get_args(kind)[0]
        if item is Any:
            return "a list"
        return "a list of any of " + words(item) if get_origin(item) is Literal else "a list of " + plural(item)
    if origin is dict or kind is dict:
        inside = get_args(kind)
        return (
            f"a mapping to {plural(inside[1])}" if inside and inside[1] is not Any else "a mapping such as {key: value}"
        )
    if kind in (None, NoneType):
        return "null"
    return {int: "a whole number", float: "a number", bool: "true or false", str: "text"}.get(kind, "another value")


def plural(kind: Any) -> str:
    """As `words`, of several."""
    if get_origin(kind) is Annotated:
        bounds = [text for fact in kind.__metadata__ if (text := bound(fact))]
        return plural(get_args(kind)[0]) + (f" {' and '.join(bounds)}" if bounds else "")
    return {int: "whole numbers", float: "numbers", str: "texts"}.get(kind) or words(kind)


def bound(fact: Any) -> str:
    """A limit in words; "" for another fact about a type."""
    if isinstance(fact, Ge):
        return f"of at least {fact.ge}"
    if isinstance(fact, Gt):
        return f"above {fact.gt}"
    if isinstance(fact, Le):
        return f"of at most {fact.le}"
    return f"below {fact.lt}" if isinstance(fact, Lt) else ""


def literals(kind: Any) -> list[str]:
    """All choices that a type names, wherever in it."""
    if get_origin(kind) is Literal:
        return [str(one) for one in get_args(kind)]
    return [name for one in get_args(kind) for name in literals(one)]
