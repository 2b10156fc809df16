"""Some generated command lines and data files; slow: more, and of everything else; `make fuzz`
makes 10,000 of each."""

import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from tests.fuzz import cases, checkpoints, files, overrides


@pytest.mark.parametrize(("kind", "number"), [(overrides, 60), (files, 100), (checkpoints, 6)])
def test_every_case_is_taken_or_refused_in_one_line(tmp_path, monkeypatch, kind, number):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TQDM_DISABLE", "1")
    monkeypatch.delenv("ATTNPROBE_DATA_DIR", raising=False)
    with overrides.ready():
        assert cases.outcomes(partial(kind.case, folder=tmp_path, seed=1), range(number)) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "cases"), [("overrides", 1000), ("files", 1000), ("checkpoints", 200)]
)
def test_no_generated_case_ends_in_a_traceback(kind, cases):
    command = [sys.executable, "-m", "tests.fuzz", kind, str(cases), "2"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_a_case_that_hangs_is_a_failure_and_the_next_one_runs(monkeypatch):
    def attempt(number):
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

    with monkeypatch.context() as short:
        short.setattr(cases, "CPU_SECONDS", 0.2)
        short.setattr(cases, "SECONDS", 0.5)
        found = cases.outcomes(case, range(2))
    found += cases.outcomes(
        case, range(2, 4)
    )  # not on a short clock: on a busy machine half a second is soon over
    assert [one.split(":")[0] for one in found] == ["case 0", "case 1", "case 3"]
    assert "processor time" in found[0] or "on the clock" in found[0]
    assert "on the clock" in found[1]
