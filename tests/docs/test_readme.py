"""What README shows of `make run` is what the code says today."""

import re
import shlex
from pathlib import Path

import pytest

from attnprobe.core.printing import WIDTH
from attnprobe.evidence.verdicts import Chip, Verdict
from attnprobe.findings.groups import grouped, read_run
from attnprobe.findings.sheet import sheet_of
from attnprobe.findings.track_record import errors_of
from attnprobe.report.terminal import answer_lines
from tests.findings.cards import ABOVE, card, finding, guards
from tests.findings.counts import counts
from tests.invented_runs import invented_run
from tests.small_runs import command_line

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SAMPLE = re.search(r"What `make run` ends with:\n\n```\n(.*?)^```", README, re.M | re.S)[1]


def entries_of(lines):
    """Heading → text of printed lines; the two lines of the scale are left out."""
    entries = {}
    heading = ""
    for line in lines:
        if not line.startswith("  ") or "|" in line or line.endswith("needed):"):
            continue
        heading = line[2:12].strip() or heading
        entries[heading] = f"{entries.get(heading, '')} {line[12:].strip()}".strip()
    return entries


@pytest.fixture
def sheet(tmp_path, monkeypatch):
    """Of a single run with a yes, and nothing against it but that no other training was checked."""
    record = counts((40, 38), (60, 0))
    monkeypatch.setattr("attnprobe.findings.track_record.calibration", lambda: record)
    (group,) = grouped([read_run(invented_run(tmp_path))])
    return sheet_of(group, card([finding(ABOVE), *guards()], encoder="lstm"))


def test_its_sentences_are_those_of_the_sheet(sheet):
    shown = entries_of(SAMPLE.splitlines())
    expected = entries_of(answer_lines(sheet))
    for heading in ("question", "means", "to do", "limits"):
        assert shown[heading] == expected[heading], heading
    order = [heading for heading in expected if heading in shown]
    assert [heading for heading in shown if heading in order] == order
    assert {"model", "data", "accuracy", "answer", "yes", "untested"} <= set(shown)
    assert max(map(len, SAMPLE.splitlines())) <= WIDTH


def test_its_rate_of_errors_is_that_of_the_shipped_record():
    shown = entries_of(SAMPLE.splitlines())
    assert shown["errors"] == errors_of(Chip.CARE, Verdict.MEETS, "lstm", is_audit=False)


@pytest.mark.slow
def test_make_run_prints_these_lines(tmp_path):
    """All but digits, which differ between machines."""
    target = re.search(
        r"^run: .*\n\t\$\(BIN\)/python -m attnprobe (.*)$", (ROOT / "Makefile").read_text(), re.M
    )
    done = command_line(tmp_path, *shlex.split(target[1]))
    assert done.returncode == 0, done.stderr

    def words(text):
        return re.sub(r"sha256 [0-9a-f]+|[\d,.\[\]%|#=-]+", "", text).split()

    assert " ".join(words(SAMPLE)) in " ".join(words(done.stdout))
