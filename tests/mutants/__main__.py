"""Change one operator or number, or leave out one call, at a time and see whether a test notices.

    5 mutants of every file named in SUBJECTS, all of one file, or some of one line of it:
    python -m tests.mutants --sample 5
    python -m tests.mutants attnprobe/exact/flipping.py
    python -m tests.mutants attnprobe/measures.py:60 --sample 20 --seed 1

Each mutant runs in a copy of the tree, against the tests that SUBJECTS names for its file, until
the first failure. Prints one line per mutant: killed, SURVIVED, or "too long" (than SECONDS: an
endless loop, or a wait for ever). A survivor is either equivalent or asks for a test."""

import argparse
import ast
import copy
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
SECONDS = 900
SAME_NAME = (
    "exact/certified",
    "exact/erasure",
    "exact/farthest",
    "exact/flipping",
    "exact/identifiable",
    "exact/nulls",
    "exact/removal_orders",
    "exact/subsets",
    "importance/plausibility",
    "probes/known_answer",
    "results/directory",
    "results/files",
    "results/saved_settings",
    "results/lock",
    "runs/validation",
)
"""Files with a test that is called as they are."""
OTHER_TESTS = {
    "core/processes": "runs/launching/test_signals",
    "evidence/statistics": "evidence/test_statistics",
    "exact/checks": "exact/test_flipping exact/test_erasure exact/test_arguments",
    "exact/farthest": "exact/test_certified",
    "exact/flipping": "exact/test_arguments",
    "exact/regions": "exact/test_certified",
    "measures": "test_measures probes/test_agreement_matrix",
    "importance/gradients": "importance/test_gradient",
    "importance/nulls": "exact/test_nulls probes/test_agreement",
    "results/directory": "results/test_results",
    "results/table": "results/test_rows results/test_results",
    "results/files": "results/test_directory results/test_damage results/test_untrusted",
    "results/saved_settings": "runs/test_allowed",
    "results/writer": "results/test_transaction results/test_directory",
    "runs/launching": (
        "runs/launching/test_pool runs/launching/test_cluster runs/launching/test_planning"
    ),
    "runs/prepare": "runs/test_run",
    "runs/settings": "runs/test_allowed runs/test_run",
    "runs/validation": "runs/test_allowed",
}
"""Tests of files that are called otherwise, and further tests."""
SUBJECTS = {
    f"attnprobe/{name}.py": [f"tests/{test}.py" for test in tests.split()]
    for name, tests in OTHER_TESTS.items()
}
for _name in SAME_NAME:
    _test = "/test_".join(_name.split("/"))
    SUBJECTS.setdefault(f"attnprobe/{_name}.py", []).insert(0, f"tests/{_test}.py")
for _name in ("changed_states", "recombine", "recurrent", "removal"):
    SUBJECTS[f"attnprobe/importance/leave_one_out/{_name}.py"] = ["tests/importance/leave_one_out"]
COMPARE = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
BINARY = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.FloorDiv: ast.Mult,
}
NAMES = {
    "amax": "amin",
    "amin": "amax",
    "argmax": "argmin",
    "any": "all",
    "all": "any",
    "min": "max",
    "max": "min",
    "minimum": "maximum",
    "maximum": "minimum",
    "cumsum": "cumprod",
}


def mutations(node: ast.AST) -> list[tuple[str, ast.AST]]:
    """What may take a node's place, each with the words for it."""
    return [
        (f"{ast.unparse(node)}  →  {ast.unparse(mutation)}", mutation)
        for mutation in replacements(node)
    ]


def replacements(node: ast.AST) -> list[ast.AST]:
    """The nodes that may take a node's place."""
    match node:
        case ast.Expr(value=ast.Call()):
            return [ast.Pass()]
        case ast.Compare(ops=[operator, *rest]) if type(operator) in COMPARE:
            return [changed(node, ops=[COMPARE[type(operator)](), *rest])]
        case ast.BinOp(op=operator) if type(operator) in BINARY:
            return [changed(node, op=BINARY[type(operator)]())]
        case ast.BoolOp(op=operator):
            return [changed(node, op=ast.Or() if isinstance(operator, ast.And) else ast.And())]
        case ast.UnaryOp(operand=ast.Constant()):
            return []  # −1 is nearly always an axis, and 1 the same axis
        case ast.UnaryOp(op=ast.Not() | ast.Invert() | ast.USub(), operand=operand):
            return [operand]
        case ast.Constant(value=bool(value)):
            return [changed(node, value=not value)]
        case ast.Constant(value=int(value)):
            return [changed(node, value=value + 1)]
        case ast.Constant(value=float(value)):
            return [changed(node, value=value * 2 or 1.0)]
        case ast.Attribute(attr=name) if name in NAMES:
            return [changed(node, attr=NAMES[name])]
    return []


def changed(node: ast.AST, **fields: object) -> ast.AST:
    """A copy of a node with other fields."""
    copied = copy.copy(node)
    for name, value in fields.items():
        setattr(copied, name, value)
    return copied


@dataclass(frozen=True, order=True)
class Mutant:
    """A module with one change.

    Attributes:
        line: of the change.
        words: what changed.
        source: of the whole mutated module.
    """

    line: int
    words: str
    source: str = field(compare=False)


def mutants(source: str) -> list[Mutant]:
    """A mutant for every place in the functions and constants of a module."""
    tree = ast.parse(source)
    spared = annotations_and_decorators(tree)
    result = []
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            children = value if isinstance(value, list) else [value]
            for place, child in enumerate(children):
                if not isinstance(child, ast.expr | ast.Expr) or id(child) in spared:
                    continue
                for words, mutation in mutations(child):
                    mutated: object = mutation
                    if isinstance(value, list):
                        mutated = [*value[:place], mutation, *value[place + 1 :]]
                    setattr(parent, name, mutated)
                    text = ast.unparse(ast.fix_missing_locations(tree))
                    result.append(Mutant(child.lineno, words, text))
                    setattr(parent, name, value)
    return sorted(result)


def annotations_and_decorators(tree: ast.AST) -> set[int]:
    """The ids of their nodes: shapes are checked by another tool, and decorators say how a class is
    made."""
    roots: list[ast.AST | None] = []
    for node in ast.walk(tree):
        roots += [getattr(node, "annotation", None), getattr(node, "returns", None)]
        roots += getattr(node, "decorator_list", [])
    return {id(node) for root in roots if root is not None for node in ast.walk(root)}


def verdict(tree: Path, file: str, source: str) -> str:
    """Run the tests against a mutated file, in a process group of their own."""
    original = (tree / file).read_text(encoding="utf-8")
    (tree / file).write_text(source, encoding="utf-8")
    options = ["-q", "-x", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, *SUBJECTS[file]]
    with (tree / "output.txt").open("w") as output:
        running = subprocess.Popen(command, cwd=tree, stdout=output, stderr=output, process_group=0)
        try:
            status: int | None = running.wait(SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
            status = None
    (tree / file).write_text(original, encoding="utf-8")
    if status is None:
        return "too long"
    return "killed" if status else "SURVIVED"


def copied_tree(folder: Path) -> Path:
    """A copy of all files that git knows, in a folder."""
    tree = folder / "tree"
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(None, listing.stdout.split("\0")):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tree / name)
    return tree


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    made.add_argument("files", nargs="*", default=list(SUBJECTS), metavar="FILE[:LINE]")
    made.add_argument(
        "--sample", type=int, help="at most this many mutants of each file, drawn by --seed"
    )
    made.add_argument("--seed", type=int, default=0)
    return made


def verdicts_on_file(tree: Path, place: str, sample: int | None, seed: int) -> Iterator[str]:
    """Print and yield the verdict on each mutant of `FILE[:LINE]`."""
    file, _, line = place.partition(":")
    source = (ROOT / file).read_text(encoding="utf-8")
    if verdict(tree, file, source) != "SURVIVED":
        output = (tree / "output.txt").read_text()
        print(f"{file}: its tests fail without any mutant\n{output}", flush=True)
        yield "without verdict"
        return
    drawn = [mutant for mutant in mutants(source) if line in ("", str(mutant.line))]
    if sample and sample < len(drawn):
        drawn = sorted(random.Random(seed).sample(drawn, sample))
    for mutant in drawn:
        word = verdict(tree, file, mutant.source)
        print(f"{word:9} {file}:{mutant.line}  {mutant.words}", flush=True)
        yield word


def main() -> int:
    options = parser().parse_args()
    os.environ.update(OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1")
    sys.dont_write_bytecode = True
    counts = {"killed": 0, "SURVIVED": 0, "too long": 0, "without verdict": 0}
    with tempfile.TemporaryDirectory() as folder:
        tree = copied_tree(Path(folder))
        os.environ["PYTHONPATH"] = str(tree)
        for place in options.files:
            for word in verdicts_on_file(tree, place, options.sample, options.seed):
                counts[word] += 1
    print(", ".join(f"{count} {word}" for word, count in counts.items()))
    return int(counts["SURVIVED"] + counts["without verdict"] > 0)


if __name__ == "__main__":
    sys.exit(main())
