"""The numbers and verdicts of one finished run or study by name, for conditions and comparisons."""

import os
from collections.abc import Sequence
from pathlib import Path

from attnprobe.report.page.runs import Run, read_runs
from attnprobe.report.page.verdicts import JudgedClaim, Line
from attnprobe.report.publish import verdicts
from attnprobe.report.states import lines_of, states
from attnprobe.report.studies import STUDY, read_study
from attnprobe.report.terminal import headline


def judged(place: str | os.PathLike) -> tuple[dict[str, float], dict[str, str]]:
    """The numbers and the verdicts of a finished run, or of a study's examined run and the study itself.

    Returns:
        numbers: `probe.metric` → headline number, and `criterion.claim` → the number that a claim goes by;
        verdicts: criterion → verdict, of those that were tested; `erasure.state` and `erasure.word`, which has two levels.

    Raises:
        UserError: no finished run there.
    """
    path = Path(place)
    if not (path / STUDY).exists():
        return of_run(read_runs([path])[0])
    reading = read_study(path)
    runs = read_runs(reading.runs)
    lines = verdicts(reading, runs).lines
    return of_run(runs[0])[0] | of_claims(claims_of(lines)), by_criterion(lines)


def of_run(run: Run) -> tuple[dict[str, float], dict[str, str]]:
    """As `judged`, of one run that is read."""
    lines = lines_of(run)
    numbers = {name.replace("/", "."): value for name, value in headline(run.numbers).items()}
    return numbers | of_claims(claims_of(lines)), by_criterion(lines)


def claims_of(lines: Sequence[Line]) -> list[JudgedClaim]:
    """Every claim that was put to the test."""
    return [one for line in lines for one in line.judged_claims]


def by_criterion(lines: Sequence[Line]) -> dict[str, str]:
    """Criterion → verdict, of those that were tested."""
    return {one.criterion: one.state for one in states(lines) if one.tested}


def of_claims(judged_claims: Sequence[JudgedClaim]) -> dict[str, float]:
    """The number of every claim."""
    return {
        f"{one.finding.claim.criterion}.{one.finding.claim.name}": one.finding.evidence.value for one in judged_claims
    }
