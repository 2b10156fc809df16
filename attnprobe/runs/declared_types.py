"""What a class's file says of its arguments, for a check that must not import the class.

A part of a configuration (`_target_`) names a class whose module imports torch, which takes
seconds. Most mistakes are in plain values, and the class's annotations stand in its file as text.
"""

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, get_origin

from attnprobe.core.settings import setting_type

PACKAGE = Path(__file__).parent.parent
PLAIN_MODULES = ("attnprobe.core.settings", "annotated_types", "collections.abc", "typing")
"""Modules that annotations may take names from; none of them takes time to import."""


def declared_types(target: str) -> Mapping[str, Any]:
    """Argument → the type that its value is checked against (`setting_type`).

    Args:
        target: the dotted name of a class.

    Returns:
        of the arguments that the class declares itself, those whose annotations need nothing but
        `PLAIN_MODULES`; none for a class of another package, or one that is not there.
    """
    package, *parts = target.split(".")
    if len(parts) < 2 or package != PACKAGE.name or not all(part.isidentifier() for part in parts):
        return {}
    *modules, name = parts
    file = PACKAGE.joinpath(*modules).with_suffix(".py")
    if not file.is_file():
        return {}
    tree = _parsed(file)
    names = _plain_names(tree)
    types = {}
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef) and statement.name == name:
            for argument, annotation in _annotations(statement):
                try:
                    hint = eval(ast.unparse(annotation), dict(names))
                except (NameError, AttributeError):  # of a class that would have to be imported
                    continue
                if get_origin(hint) is not ClassVar:
                    types[argument] = setting_type(hint)
    return types


@cache
def _parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def _plain_names(tree: ast.Module) -> dict[str, Any]:
    """What a file imports from `PLAIN_MODULES`, by the name that it has there."""
    names = {}
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom) and statement.module in PLAIN_MODULES:
            module = import_module(statement.module)
            for alias in statement.names:
                names[alias.asname or alias.name] = getattr(module, alias.name)
    return names


def _annotations(definition: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    """The arguments of a class's constructor, or the public fields of a dataclass."""
    for statement in definition.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
            parameters = [*statement.args.args, *statement.args.kwonlyargs]
            for parameter in parameters:
                if parameter.annotation is not None:
                    yield parameter.arg, parameter.annotation
            return
    for statement in definition.body:
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        if not statement.target.id.startswith("_"):
            yield statement.target.id, statement.annotation
