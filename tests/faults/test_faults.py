"""A part of the campaign; the whole of it is `make faults`."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.campaign import counted, state, unclear, without_times
from tests.faults.operations import Fault
from tests.faults.processes import Ending

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.slow
@pytest.mark.skipif(
    sys.platform != "linux", reason="the campaign forks, and adopts orphans, as Linux does"
)
@pytest.mark.parametrize(
    ("scenario", "kinds"),
    [
        ("run", ("kill", "full", "interrupt_twice")),
        ("remeasure", ("kill",)),
        ("add with figures", ("kill", "terminate", "interrupt", "full")),
    ],
)
def test_no_bad_moment(scenario, kinds):
    """Each fault at one operation: the run, a probe with its figures added, its probes measured
    again."""
    options = ["--points", "1", "--scenario", scenario, "--kind", *kinds]
    command = [sys.executable, "-m", "tests.faults", *options]
    campaign = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert campaign.returncode == 0, campaign.stdout + campaign.stderr
    assert ": 0 wrong, 0 unclear" in campaign.stdout


def test_what_is_prepared_and_not_true_does_not_count(tmp_path):
    for folder in (tmp_path / "run", tmp_path / "run" / ".attnprobe.new"):
        (folder / "tables").mkdir(parents=True)
        (folder / "tables" / "a.parquet").write_text(folder.name)
        (folder / "manifest.json").write_text('{"tables": {"a": {"settings": null}}}')
    assert {name for name, _, _ in counted(tmp_path)} == {"run/tables/a.parquet"}
    before = state(tmp_path)
    # findings are made of the tables by whoever reads them
    (tmp_path / "run" / ".findings.parquet.17.partial").write_text("half")
    assert state(tmp_path) == before
    (tmp_path / "run" / ".config.yaml.17.partial").write_text("half")
    assert state(tmp_path) != before


def test_what_is_compared_leaves_out_times_and_nothing_else(tmp_path):
    (tmp_path / "manifest.json").write_text(
        '{"finished": "now", "tables": {"a": {"seconds": 1, "rows": 2}}}'
    )
    (tmp_path / "table").write_text("1")
    before = state(tmp_path)
    (tmp_path / "manifest.json").write_text(
        '{"finished": "then", "tables": {"a": {"seconds": 9, "rows": 2}}}'
    )
    assert state(tmp_path) == before
    (tmp_path / "manifest.json").write_text(
        '{"finished": "then", "tables": {"a": {"seconds": 9, "rows": 3}}}'
    )
    assert state(tmp_path) != before
    (tmp_path / "manifest.json").unlink()
    assert state(tmp_path) != before
    assert without_times(b"{half") == b"{half"


@pytest.mark.parametrize(
    ("kind", "status", "output", "falls_short"),
    [
        ("terminate", 143, "attnprobe: ended by SIGTERM; …", False),
        ("interrupt", 130, "", True),
        ("terminate", 0, "attnprobe: ended by SIGTERM; …", True),
        ("full", 2, "Traceback\nOSError: attnprobe", True),
        ("full", 2, "attnprobe: cannot write", False),
        ("error", 1, "Traceback", False),
        ("error", 2, "attnprobe: planted", True),
        ("kill", -9, "", False),
    ],
)
def test_last_words_that_fall_short_are_found(kind, status, output, falls_short):
    reasons = list(unclear(Ending(status, output, []), Fault(kind, 0)))
    assert bool(reasons) is falls_short
