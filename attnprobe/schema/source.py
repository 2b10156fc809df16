"""What a class's constructor takes, read from its source: nothing is imported, and so nothing is executed."""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path

DEPTH = 12
"""How many re-exports or base classes are followed before giving up."""


@dataclass(frozen=True)
class Argument:
    """One argument of a constructor: its annotation as written (None: without one), and whether it has no default."""

    annotation: ast.expr | None
    required: bool


@dataclass(frozen=True)
class Found:
    """A class in the source of its module.

    Attributes:
        module: the module's dotted name.
        node: the class statement.
    """

    module: str
    node: ast.ClassDef

    @property
    def name(self) -> str:
        """The dotted name of the class where it is written."""
        return f"{self.module}.{self.node.name}"


@dataclass(frozen=True)
class Constructor:
    """The arguments by name; `open_ended` where it also takes any other (`**kwargs`)."""

    arguments: dict[str, Argument]
    open_ended: bool


@cache
def path_of(module: str) -> Path | None:
    """The source file of a module, found as the import system would find it, or None."""
    folders: list[str] | None = None
    spec = None
    for depth in range(1, module.count(".") + 2):
        spec = PathFinder.find_spec(".".join(module.split(".")[:depth]), folders)
        if spec is None:
            return None
        folders = None if spec.submodule_search_locations is None else list(spec.submodule_search_locations)
    return Path(spec.origin) if spec is not None and spec.origin and spec.origin.endswith(".py") else None


@cache
def tree_of(module: str) -> ast.Module | None:
    """The module's syntax tree; None where there is no readable source."""
    path = path_of(module)
    try:
        return None if path is None else ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, UnicodeDecodeError):
        return None


def exists(module: str) -> bool:
    """Whether there is such a package or module, with or without readable source."""
    top = module.split(".")[0]
    return path_of(module) is not None or top in sys.builtin_module_names or ("." in module and exists(top))


def home_of(target: str) -> tuple[str, str]:
    """A dotted name as (module, name in it): the longest part that is a module.

    >>> home_of("attnprobe.models.encoders.LSTMEncoder")
    ('attnprobe.models.encoders', 'LSTMEncoder')
    """
    module, _, name = target.rpartition(".")
    return module, name


def class_names(module: str) -> list[str]:
    """The public classes that are written in a module."""
    tree = tree_of(module)
    nodes = [] if tree is None else tree.body
    return [node.name for node in nodes if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]


@cache
def find_class(target: str, depth: int = 0) -> Found | None:
    """The class of this dotted name, through re-exports; None where the source does not show one."""
    module, name = home_of(target)
    tree = tree_of(module) if module else None
    if tree is None or depth > DEPTH:
        return None
    for node in statements(tree):
        if isinstance(node, ast.ClassDef) and node.name == name:
            return Found(module, node)
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return find_class(f"{absolute(module, node)}.{alias.name}", depth + 1)
    return None


def statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """The statements of a module, those under `if` and `try` included."""
    waiting = list(tree.body)
    while waiting:
        node = waiting.pop(0)
        yield node
        if isinstance(node, ast.If | ast.Try):
            waiting = [*node.body, *node.orelse, *waiting]


def absolute(module: str, node: ast.ImportFrom) -> str:
    """The module that a `from … import` statement in `module` names."""
    if not node.level:
        return node.module or ""
    path = path_of(module)
    package = module.split(".") if path is not None and path.name == "__init__.py" else module.split(".")[:-1]
    parent = package[: len(package) - (node.level - 1)]
    return ".".join([*parent, *([node.module] if node.module else [])])


def bases(declared: Found, depth: int = 0) -> list[Found] | None:
    """The class and all its ancestors that are classes with source, nearest first; None where one cannot be followed."""
    result = [declared]
    for base in declared.node.bases:
        name = ast.unparse(base).split("[")[0]
        if name in ("ABC", "object", "Generic", "Protocol", "abc.ABC"):
            continue
        if name.split(".")[-1] in (
            "Module",
            "LightningModule",
            "LightningDataModule",
        ):  # a constructor without arguments
            continue
        parent = None if "." in name else find_class(f"{declared.module}.{name}")
        above = None if parent is None or depth > DEPTH else bases(parent, depth + 1)
        if above is None:
            return None
        result += above
    return result


def constructor(target: str) -> Constructor | None:
    """What the class takes, or None where its source does not show it."""
    declared = find_class(target)
    line = None if declared is None else bases(declared)
    if line is None:
        return None
    for one in line:
        for node in one.node.body:
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                plain = of_function(node)
                groups = grouped(one)
                return Constructor(plain.arguments | groups, open_ended=False) if groups else plain
        if is_dataclass(one.node):
            return of_fields(line[line.index(one) :])
    return Constructor({}, open_ended=False)


def of_function(node: ast.FunctionDef) -> Constructor:
    """The arguments of an `__init__` without `self`."""
    arguments = node.args
    plain = [*arguments.posonlyargs, *arguments.args][1:]
    without = len(plain) - len(arguments.defaults)
    listed = {one.arg: Argument(one.annotation, number < without) for number, one in enumerate(plain)}
    for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        listed[one.arg] = Argument(one.annotation, default is None)
    return Constructor(listed, open_ended=arguments.kwarg is not None)


def grouped(declared: Found) -> dict[str, Argument]:
    """The flat settings that a class takes as `**settings` and sorts into groups: the fields of all the data classes that
    are fields of the one that its `flat_settings` names."""
    for node in declared.node.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "flat_settings":
            groups = constructor(f"{declared.module}.{ast.unparse(node.value)}") if node.value else None
            kinds = [] if groups is None else [one.annotation for one in groups.arguments.values()]
            home = find_class(f"{declared.module}.{ast.unparse(node.value)}") if node.value else None
            parts = [constructor(f"{home.module}.{ast.unparse(kind)}") for kind in kinds if home and kind]
            return {name: argument for part in parts if part for name, argument in part.arguments.items()}
    return {}


def is_dataclass(node: ast.ClassDef) -> bool:
    """Whether the class is decorated as one."""
    return any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)


def of_fields(line: list[Found]) -> Constructor:
    """The fields of a data class and of its ancestors, the oldest first."""
    listed: dict[str, Argument] = {}
    for one in reversed(line):
        if not is_dataclass(one.node):
            continue
        for node in one.node.body:
            if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
                continue
            if ast.unparse(node.annotation).split("[")[0] in ("ClassVar", "typing.ClassVar"):
                continue
            if node.value is not None and "init=False" in ast.unparse(node.value):
                continue
            listed[node.target.id] = Argument(node.annotation, node.value is None)
    return Constructor(listed, open_ended=False)


@cache
def names_in(constant: str) -> tuple[str, ...]:
    """The texts of a constant's literal, by its dotted name: the keys of a dict, the items of a tuple.

    >>> names_in("attnprobe.data.files.SPLITS")
    ('train', 'validation', 'test')
    """
    module, name = home_of(constant)
    tree = tree_of(module)
    for node in [] if tree is None else tree.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        if not isinstance(target, ast.Name) or target.id != name:
            continue
        value = node.value
        items = value.keys if isinstance(value, ast.Dict) else value.elts if isinstance(value, ast.Tuple) else []
        return tuple(str(item.value) for item in items if isinstance(item, ast.Constant))
    raise LookupError(f"{constant}: no such constant in the source")
