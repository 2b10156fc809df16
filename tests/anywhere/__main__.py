"""Run the tests as strangers' machines would: other vector units, no oneDNN, two threads, any order, a busy machine.

    python -m tests.anywhere                     every variant, all tests: some minutes each
    python -m tests.anywhere --numeric           the tests of numbers only
    python -m tests.anywhere --only avx2 busy -- tests/exact -k flipping

What comes after `--` goes to pytest in place of the test paths. Prints each variant's counts as it ends, then a table;
the output of a variant that fails is printed in full. Exit status 1 where one failed.
"""

import argparse
import contextlib
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
NUMERIC = ("tests/exact", "tests/importance", "tests/test_measures.py", "tests/probes", "tests/models")
COUNTS = re.compile(r"(\d+) (passed|failed|errors?|skipped|xfailed|xpassed|deselected)")


VARIANTS = {
    "as it is": {},
    "default": {"ATEN_CPU_CAPABILITY": "default"},
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2"},
    "onednn-off": {"ATTNPROBE_TEST_ONEDNN": "0"},
    "two-threads": {"OMP_NUM_THREADS": "2"},
    "random-order": {},
    "busy": {},
    "stranger": {
        "COLUMNS": "40", "LC_ALL": "C", "TZ": "Asia/Kathmandu", "PYTHONHASHSEED": "1", "TERM": "dumb", "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0", "HF_HUB_OFFLINE": "1",
    },
}  # fmt: skip
"""What differs from `make test` in the environment; the random order and the busy loops are no part of it."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.anywhere", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=list(VARIANTS), metavar="VARIANT")
    parser.add_argument("--numeric", action="store_true", help="only the tests of numbers")
    parser.add_argument("--workers", default="2", help="processes of pytest (default: 2)")
    ours, pytest = sys.argv[1:], []
    if "--" in ours:
        pytest = ours[ours.index("--") + 1 :]
        ours = ours[: ours.index("--")]
    options = parser.parse_args(ours)
    tests = pytest or (NUMERIC if options.numeric else ())
    results = {name: run(name, tests, options.workers) for name in options.only}
    width = max(map(len, results))
    print(f"\n{'variant':{width}}  result")
    for name, (status, summary) in results.items():
        print(f"{name:{width}}  {summary}{'' if status == 0 else f'  (exit status {status})'}")
    return int(any(status for status, _ in results.values()))


def run(name: str, tests: tuple[str, ...] | list[str], workers: str) -> tuple[int, str]:
    """Exit status and pytest's last line of one variant."""
    environment, is_busy = VARIANTS[name], name == "busy"
    arguments = [sys.executable, "-m", "pytest", "-q", "--numprocesses", workers, *tests]
    if name == "random-order":
        seed = f"--random-order-seed={secrets.randbelow(10**6)}"
        arguments += ["--random-order", "--random-order-bucket=module", seed]
    settings = " ".join(f"{key}={value}" for key, value in environment.items())
    print(f"\n{name}: {settings} {' '.join(arguments[2:])}{' beside a busy loop per core' * is_busy}", flush=True)
    with busy_cores() if is_busy else contextlib.nullcontext():
        done = subprocess.run(
            arguments, cwd=ROOT, env={**os.environ, **environment}, text=True, encoding="utf-8",
            errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
    counted = [line for line in done.stdout.splitlines() if COUNTS.search(line) and " in " in line]
    summary = counted[-1].strip("= ") if counted else "no summary"
    print(summary if done.returncode == 0 else done.stdout, flush=True)
    return done.returncode, summary


@contextlib.contextmanager
def busy_cores() -> Iterator[None]:
    """One busy loop on every core, ended afterwards, and also if this process is killed."""
    # a loop looks now and then whether it is still wanted
    code = f"import os\nwhile os.getppid() == {os.getpid()}:\n    sum(range(10**6))"
    loops = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


if __name__ == "__main__":
    sys.exit(main())
