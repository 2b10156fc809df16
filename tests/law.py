"""What tests/test_layout.py holds the code to, as functions of a folder: each returns the places
that break one law.

Nothing here imports what it reads.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

MOST_PLACES = 3
COPIED = 6
WIDTH = 100


def sources(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def functions_of(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def crowded_names(package: Path) -> dict[str, list[str]]:
    """Public top-level functions and classes of one name in more than `MOST_PLACES` files.

    A command's `main` is one idea wherever it stands.
    """
    places = defaultdict(set)
    for path in sources(package):
        for node in tree_of(path).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                places[node.name].add(str(path.relative_to(package)))
    crowded = {}
    for name, files in places.items():
        is_public = not name.startswith("_") and name != "main"
        if is_public and len(files) > MOST_PLACES:
            crowded[name] = sorted(files)
    return crowded


class Local(ast.NodeTransformer):
    """Marks the names that a function itself gives to things: they may differ between two
    copies."""

    def __init__(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.names = set()
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self.names.add(node.id)
            elif isinstance(node, ast.arg) and node.arg not in ("self", "cls"):
                self.names.add(node.arg)

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(f"local_{node.id}", node.ctx) if node.id in self.names else node


def logic_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[tuple[int, str]]:
    """The function's statements, one line each, with their line numbers: no docstrings, comments,
    annotations or layout."""
    mark = Local(function)

    def lines(body: Sequence[ast.stmt]) -> Iterator[tuple[int, str]]:
        for statement in body:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                continue
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue  # counted by itself
            # statements, or the handlers and cases that hold them
            kinds = ast.stmt | ast.excepthandler | ast.match_case
            fields = [value for _, value in ast.iter_fields(statement)]
            blocks = [
                value
                for value in fields
                if isinstance(value, list) and value and isinstance(value[0], kinds)
            ]
            head = " ".join(text_of(mark, value) for value in fields if value not in blocks)
            yield statement.lineno, f"{type(statement).__name__} {head}"
            for block in blocks:
                if isinstance(block[0], ast.stmt):
                    yield from lines(block)
                else:
                    for part in block:
                        yield from lines(part.body)

    return list(lines(function.body))


def text_of(mark: Local, value: object) -> str:
    if isinstance(value, list):
        return ", ".join(text_of(mark, item) for item in value)
    if isinstance(value, ast.AST):
        return re.sub(r"\s+", " ", ast.unparse(mark.visit(value)))
    return str(value)


def numbered(lines: Sequence[str]) -> tuple[str, ...]:
    """The same lines with local names by the order in which they come."""
    numbers: dict[str, str] = {}

    def number_of(name: re.Match[str]) -> str:
        return numbers.setdefault(name[0], f"local{len(numbers)}")

    return tuple(re.sub(r"\blocal_\w+", number_of, line) for line in lines)


def runs_of(logic: Sequence[tuple[int, str]]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Every shortest run of statements that fills `COPIED` lines of `WIDTH` characters, by its
    first line's number."""
    for start in range(len(logic)):
        filled = 0
        for end in range(start, len(logic)):
            filled += 1 + len(logic[end][1]) // WIDTH
            if filled >= COPIED:
                yield logic[start][0], numbered([text for _, text in logic[start : end + 1]])
                break


def copied_logic(*folders: Path) -> list[str]:
    """`file:line = file:line` of every run of equal statements in two files that fills `COPIED`
    lines, whatever their local names are."""
    places: dict[tuple[str, ...], list[tuple[Path, int]]] = defaultdict(list)
    for folder in folders:
        for path in sources(folder):
            for function in functions_of(tree_of(path)):
                for line, run in runs_of(logic_of(function)):
                    places[run].append((path, line))
    copied = []
    for copies in places.values():
        for (path, line), (other_path, other_line) in pairwise(copies):
            if path != other_path:
                copied.append(f"{path}:{line} = {other_path}:{other_line}")
    return copied
