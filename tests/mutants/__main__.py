"""Change one operator or number, or leave out one call, at a time and see whether a test notices.

    python -m tests.mutants --sample 5                          5 mutants of every file named in
    SUBJECTS python -m tests.mutants attnprobe/exact/flipping.py         all of one file, or of one
    line of it python -m tests.mutants attnprobe/measures.py:60 --sample 20 --seed 1

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
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
SECONDS = 900
ALIKE = (
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
    "runs/lock",
    "runs/validation",
)
"""Files with a test that is called as they are."""
OTHERS = {
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
    "runs/launching": "runs/launching/test_pool runs/launching/test_cluster runs/launching/test_planning",
    "runs/prepare": "runs/test_run",
    "runs/settings": "runs/test_allowed runs/test_run",
    "runs/validation": "runs/test_allowed",
}
"""Tests of files that are called otherwise, and further tests."""
SUBJECTS = {
    f"attnprobe/{name}.py": [f"tests/{test}.py" for test in tests.split()]
    for name, tests in OTHERS.items()
}
for _name in ALIKE:
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
    found: list[tuple[str, ast.AST]] = []

    def offer(**changes: object) -> None:
        other = copy.copy(node)
        for name, value in changes.items():
            setattr(other, name, value)
        found.append((f"{ast.unparse(node)}  →  {ast.unparse(other)}", other))

    if isinstance(node, ast.Expr):
        if isinstance(node.value, ast.Call):
            found.append((f"{ast.unparse(node)}  →  pass", ast.Pass()))
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARE:
        offer(ops=[COMPARE[type(node.ops[0])](), *node.ops[1:]])
    elif isinstance(node, ast.BinOp) and type(node.op) in BINARY:
        offer(op=BINARY[type(node.op)]())
    elif isinstance(node, ast.BoolOp):
        offer(op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant):
        pass  # −1 is nearly always an axis, and 1 the same axis
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.Invert | ast.USub):
        found.append((f"{ast.unparse(node)}  →  {ast.unparse(node.operand)}", node.operand))
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        offer(value=not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        offer(value=node.value + 1 if isinstance(node.value, int) else node.value * 2 or 1.0)
    elif isinstance(node, ast.Attribute) and node.attr in NAMES:
        offer(attr=NAMES[node.attr])
    return found


def mutants(source: str) -> list[tuple[int, str, str]]:
    """(line, what changed, whole mutated source) for every place in the functions and constants of
    a module."""
    tree = ast.parse(source)
    # shapes are checked by another tool, and decorators say how a class is made
    left_out: set[int] = set()
    for node in ast.walk(tree):
        parts = [
            getattr(node, "annotation", None),
            getattr(node, "returns", None),
            *getattr(node, "decorator_list", []),
        ]
        left_out |= {id(one) for part in parts if part is not None for one in ast.walk(part)}
    result = []
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            for index, child in enumerate(value if isinstance(value, list) else [value]):
                if not isinstance(child, ast.expr | ast.Expr) or id(child) in left_out:
                    continue
                for words, other in mutations(child):
                    whole = (
                        [*value[:index], other, *value[index + 1 :]]
                        if isinstance(value, list)
                        else other
                    )
                    setattr(parent, name, whole)
                    result.append(
                        (child.lineno, words, ast.unparse(ast.fix_missing_locations(tree)))
                    )
                    setattr(parent, name, value)
    return sorted(result, key=lambda mutant: mutant[:2])


def verdict(tree: Path, file: str, source: str) -> str:
    """Run the tests against a mutated file, in a process group of their own."""
    original = (tree / file).read_text(encoding="utf-8")
    (tree / file).write_text(source, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        *SUBJECTS[file],
    ]
    with (tree / "output.txt").open("w") as output:
        running = subprocess.Popen(command, cwd=tree, stdout=output, stderr=output, process_group=0)
        try:
            status: int | None = running.wait(SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
            status = None
    (tree / file).write_text(original, encoding="utf-8")
    return "too long" if status is None else "killed" if status else "SURVIVED"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("files", nargs="*", default=list(SUBJECTS), metavar="FILE[:LINE]")
    parser.add_argument(
        "--sample", type=int, help="at most this many mutants of each file, drawn by --seed"
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.environ.update(OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1")
    sys.dont_write_bytecode = True
    counts = {"killed": 0, "SURVIVED": 0, "too long": 0, "without verdict": 0}
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        for name in filter(None, listed.split("\0")):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tree / name)
        os.environ["PYTHONPATH"] = str(tree)
        for file, _, line_asked in (name.partition(":") for name in options.files):
            whole = (ROOT / file).read_text(encoding="utf-8")
            if verdict(tree, file, whole) != "SURVIVED":
                print(
                    f"{file}: its tests fail without any mutant\n{(tree / 'output.txt').read_text()}",
                    flush=True,
                )
                counts["without verdict"] += 1
                continue
            drawn = [mutant for mutant in mutants(whole) if line_asked in ("", str(mutant[0]))]
            if options.sample and options.sample < len(drawn):
                drawn = sorted(random.Random(options.seed).sample(drawn, options.sample))
            for line, words, source in drawn:
                found = verdict(tree, file, source)
                counts[found] += 1
                print(f"{found:9} {file}:{line}  {words}", flush=True)
    print(", ".join(f"{count} {name}" for name, count in counts.items()))
    return int(counts["SURVIVED"] + counts["without verdict"] > 0)


if __name__ == "__main__":
    sys.exit(main())
