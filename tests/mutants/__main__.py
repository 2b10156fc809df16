"""Change one operator or number, or leave out one call, at a time and see whether a test notices.

    python -m tests.mutants --sample 5                          5 mutants of every file named in SUBJECTS
    python -m tests.mutants attnprobe/exact/flipping.py         all of one file, or of one line of it
    python -m tests.mutants attnprobe/measures.py:60 --sample 20 --seed 1

Each mutant runs in a copy of the tree, against the tests that SUBJECTS names for its file, until the first failure. Prints
one line per mutant: killed, SURVIVED, or "too long" (than SECONDS: an endless loop, or a wait for ever). A survivor is
either equivalent or asks for a test.
"""

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
OTHERS = {
    "core/processes": ["launching/test_signals.py"],
    "evidence/statistics": ["results/statistics/test_statistics.py"],
    "exact/checks": [f"exact/test_{name}.py" for name in ("flipping", "erasure", "arguments")],
    "exact/farthest": ["exact/test_farthest.py", "exact/test_certified.py"],
    "exact/flipping": ["exact/test_flipping.py", "exact/test_arguments.py"],
    "exact/regions": ["exact/test_certified.py"],
    "importance/gradients": ["importance/test_gradient.py"],
    "importance/leave_one_out/changed_states": ["importance/leave_one_out"],
    "importance/leave_one_out/recombine": ["importance/leave_one_out"],
    "importance/leave_one_out/recurrent": ["importance/leave_one_out"],
    "importance/leave_one_out/removal": ["importance/leave_one_out"],
    "importance/nulls": ["exact/test_nulls.py", "probes/test_agreement.py"],
    "measures": ["test_measures.py"],
    "results/directory": ["results/test_directory.py", "results/test_results.py"],
    "results/files": [f"results/test_{name}.py" for name in ("directory", "damage", "files", "untrusted")],
    "results/saved_settings": ["results/test_saved_settings.py", "running/test_allowed.py"],
    "results/table": ["results/test_rows.py", "results/test_results.py"],
    "results/writer": ["results/test_transaction.py", "results/test_directory.py"],
    "runs/launching": [f"launching/test_{name}.py" for name in ("pool", "cluster", "planning")],
    "runs/lock": ["running/test_lock.py"],
    "runs/prepare": ["running/test_run.py"],
    "runs/settings": ["running/test_allowed.py", "running/test_run.py"],
    "runs/validation": ["running/test_allowed.py", "running/test_validation.py"],
}
ALIKE = ("exact/certified", "exact/erasure", "exact/identifiable", "exact/nulls", "exact/removal_orders", "exact/subsets",
         "importance/plausibility", "probes/known_answer")  # fmt: skip
"""Files whose test is called as they are."""
SUBJECTS = {
    f"attnprobe/{name}.py": [f"tests/{test}" for test in tests]
    for name, tests in (OTHERS | {one: ["/test_".join(one.rsplit("/", 1)) + ".py"] for one in ALIKE}).items()
}
COMPARE = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
BINARY = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.BitAnd: ast.BitOr,
          ast.BitOr: ast.BitAnd, ast.FloorDiv: ast.Mult}  # fmt: skip
NAMES = {"amax": "amin", "amin": "amax", "argmax": "argmin", "any": "all", "all": "any", "min": "max", "max": "min",
         "minimum": "maximum", "maximum": "minimum", "cumsum": "cumprod"}  # fmt: skip


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
    """(line, what changed, whole mutated source) for every place in the functions and constants of a module."""
    tree = ast.parse(source)
    notes = {id(sub) for node in ast.walk(tree) for part in _annotations(node) for sub in ast.walk(part)}
    result = []
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            for index, child in enumerate(value if isinstance(value, list) else [value]):
                if not isinstance(child, ast.expr | ast.Expr) or id(child) in notes:
                    continue
                for words, other in mutations(child):
                    whole = [*value[:index], other, *value[index + 1 :]] if isinstance(value, list) else other
                    setattr(parent, name, whole)
                    result.append((child.lineno, words, ast.unparse(ast.fix_missing_locations(tree))))
                    setattr(parent, name, value)
    return sorted(result, key=lambda mutant: mutant[:2])


def _annotations(node: ast.AST) -> list[ast.AST]:
    """Shapes are checked by another tool, and decorators say how a class is made."""
    parts = [getattr(node, name, None) for name in ("annotation", "returns")] + getattr(node, "decorator_list", [])
    return [part for part in parts if part is not None]


def verdict(tree: Path, file: str, source: str, tests: list[str]) -> str:
    """Run the tests against a mutated file, in a process group of their own."""
    original = (tree / file).read_text(encoding="utf-8")
    (tree / file).write_text(source, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
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
    parser.add_argument("--sample", type=int, help="at most this many mutants of each file, drawn by --seed")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.environ.update(OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1")
    sys.dont_write_bytecode = True
    counts = {"killed": 0, "SURVIVED": 0, "too long": 0}
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in filter(None, listed.split("\0")):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tree / name)
        os.environ["PYTHONPATH"] = str(tree)
        for file, _, line_asked in (name.partition(":") for name in options.files):
            if verdict(tree, file, (ROOT / file).read_text(encoding="utf-8"), SUBJECTS[file]) != "SURVIVED":
                print(f"{file}: its tests fail without any mutant\n{(tree / 'output.txt').read_text()}", flush=True)
                continue
            drawn = mutants((ROOT / file).read_text(encoding="utf-8"))
            drawn = [mutant for mutant in drawn if line_asked in ("", str(mutant[0]))]
            if options.sample and options.sample < len(drawn):
                drawn = sorted(random.Random(options.seed).sample(drawn, options.sample))
            for line, words, source in drawn:
                found = verdict(tree, file, source, SUBJECTS[file])
                counts[found] += 1
                print(f"{found:9} {file}:{line}  {words}", flush=True)
    print(", ".join(f"{count} {name}" for name, count in counts.items()))
    return int(counts["SURVIVED"] > 0)


if __name__ == "__main__":
    sys.exit(main())
