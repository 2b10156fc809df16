"""Through how many files of the package does something pass? `python -m tests.walk` counts.

It follows a setting, a text and a verdict. Each is carried by a chain of types, which
docs/design.md explains; a file is on the way if its source defines or imports one of them. That is
what is counted, and no more: a file that only reads an attribute of such an object, a YAML file and
a template are not. Nothing here imports what it reads.
"""

import ast
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "attnprobe"


@dataclass(frozen=True)
class Walk:
    """What is followed, and the classes that carry it, in the order in which they do."""

    subject: str
    carriers: tuple[str, ...]


WALKS = (
    Walk(
        "the setting probe.swaps.passes",
        (
            "attnprobe.runs.settings.Settings",
            "attnprobe.runs.configuration.Configuration",
            "attnprobe.probes.swaps.Swaps",
        ),
    ),
    Walk(
        "a text",
        (
            "attnprobe.data.prepare.Prepared",
            "attnprobe.core.batch.Batch",
            "attnprobe.core.batch.Outputs",
            "attnprobe.core.readout.Readout",
            "attnprobe.importance.base.Subject",
            "attnprobe.probes.base.Measurement",
            "attnprobe.results.table.Rows",
            "attnprobe.results.numbers.Numbers",
        ),
    ),
    Walk(
        "a verdict on the words that decide",
        (
            "attnprobe.evidence.evidence.Evidence",
            "attnprobe.evidence.claims.Finding",
            "attnprobe.findings.judgement.Judgement",
            "attnprobe.findings.judgement.Card",
            "attnprobe.findings.judgement.Summary",
        ),
    ),
)


def module_of(path: Path, root: Path) -> str:
    """`a/b.py` → `a.b`; a package's `__init__.py` → the package."""
    parts = path.relative_to(root).with_suffix("").parts
    if parts[-1] == "__init__":
        parts = parts[:-1]
    return ".".join(parts)


def mentioned(path: Path, root: Path) -> set[str]:
    """Dotted names of what a file defines at its top level, imports, or takes from an import.

    Args:
        path: a Python file.
        root: the folder from which its imports start.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    module = module_of(path, root)
    names = {f"{module}.{node.name}" for node in tree.body if isinstance(node, ast.ClassDef)}

    imports = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                imports[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                names.add(alias.name)
                if alias.asname:
                    imports[alias.asname] = alias.name
    names.update(imports.values())

    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            head, *rest = ast.unparse(node).split(".")
            names.add(".".join([imports.get(head, head), *rest]))
    return names


def files_on(walk: Walk, package: Path = PACKAGE) -> dict[str, list[Path]]:
    """Each carrier of a walk → the files of the package that define or import it, sorted."""
    files: dict[str, list[Path]] = {carrier: [] for carrier in walk.carriers}
    for path in sorted(package.rglob("*.py")):
        names = mentioned(path, package.parent)
        for carrier in walk.carriers:
            if carrier in names:
                files[carrier].append(path.relative_to(package))
    return files


def main() -> None:
    """Print the files on every walk, and how many they are."""
    for walk in WALKS:
        files = files_on(walk)
        passed = {path for paths in files.values() for path in paths}
        print(f"{walk.subject}: {len(walk.carriers)} types, named in {len(passed)} files")
        for carrier, paths in files.items():
            print(f"  {carrier}: {len(paths)}")
            for path in paths:
                print(f"    {path}")


if __name__ == "__main__":
    main()
