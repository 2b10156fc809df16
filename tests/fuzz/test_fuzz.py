"""Some generated command lines, data files and checkpoints.

The slow tests make more of them, and `make fuzz` makes 10,000 of each.
"""

import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from tests.fuzz import cases, checkpoints, files, overrides


@pytest.mark.parametrize(("kind", "number"), [(overrides, 60), (files, 100), (checkpoints, 6)])
def test_every_case_is_accepted_or_refused_in_one_line(tmp_path, monkeypatch, kind, number):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ATTNPROBE_DATA_DIR", raising=False)
    with overrides.ready():
        assert cases.outcomes(partial(kind.case, folder=tmp_path, seed=1), range(number)) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "cases"), [("overrides", 1000), ("files", 1000), ("checkpoints", 200)]
)
def test_no_generated_case_ends_in_a_traceback(kind, cases):
    command = [sys.executable, "-m", "tests.fuzz", kind, str(cases), "2"]
    process = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert process.returncode == 0, process.stdout


def attempt(number):
    """0 never ends, 1 waits, 2 is well, and 3 fails."""
    try:
        while number == 0:
            pass
        if number == 1:
            time.sleep(100)
    except Exception:
        return "swallowed"
    return None if number == 2 else "well answered"


def case(number):
    return str(number), partial(attempt, number)


def test_a_case_that_hangs_is_a_failure_and_the_next_case_runs(monkeypatch):
    monkeypatch.setattr(cases, "CPU_SECONDS", 0.2)
    monkeypatch.setattr(cases, "SECONDS", 0.5)
    endless, waiting = cases.outcomes(case, range(2))
    assert endless.startswith("case 0:")
    assert waiting.startswith("case 1:")
    assert "processor time" in endless or "on the clock" in endless
    assert "on the clock" in waiting


def test_only_a_case_that_fails_is_named():
    (failure,) = cases.outcomes(case, range(2, 4))
    assert failure.startswith("case 3:")
