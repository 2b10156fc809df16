"""The numbers and verdicts of one finished run or study by name, for conditions and comparisons."""

import os
from pathlib import Path

from attnprobe.report.page.runs import Run, grouped, read_runs
from attnprobe.report.page.verdicts import Outcome, cards, examine
from attnprobe.report.publish import verdicts
from attnprobe.report.reading import present
from attnprobe.report.studies import STUDY, read_study
from attnprobe.report.terminal import headline


def judged(place: str | os.PathLike) -> tuple[dict[str, float], dict[str, str]]:
    """The numbers and the verdicts of a finished run, or of a study's examined run and the study itself.

    Returns:
        numbers: `probe.metric` → headline number, and `criterion.claim` → the number that a claim goes by;
        verdicts: criterion → verdict, of those that were tested.

    Raises:
        UserError: no finished run there.
    """
    path = Path(place)
    if not (path / STUDY).exists():
        return of_run(read_runs([path])[0])
    reading = read_study(path)
    runs = read_runs(reading.runs)
    numbers, _ = of_run(runs[0])
    lines = verdicts(reading, runs)
    return numbers | of_claims([one for line in lines for one in line.outcomes]), {
        line.criterion: line.verdict for line in lines if line.outcomes
    }


def of_run(run: Run) -> tuple[dict[str, float], dict[str, str]]:
    """As `judged`, of one run that is read."""
    groups = grouped([run])
    lines = cards(groups, examine(groups, present(run.numbers)))[0].lines
    numbers = {name.replace("/", "."): value for name, value in headline(run.numbers).items()}
    return numbers | of_claims([one for line in lines for one in line.outcomes]), {
        line.criterion: line.verdict for line in lines if line.outcomes
    }


def of_claims(outcomes: list[Outcome]) -> dict[str, float]:
    """The number of every claim."""
    return {f"{one.finding.claim.criterion}.{one.finding.claim.name}": one.finding.evidence.value for one in outcomes}
