"""What is shown when a study is done: its verdicts and tables on the terminal, and a page."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from attnprobe.errors import answering_disk
from attnprobe.report.page.build import notes_of_data, write_report
from attnprobe.report.page.runs import Run, grouped, read_runs
from attnprobe.report.page.studies import group_of, of_studies
from attnprobe.report.page.verdicts import CANNOT_DECIDE, FAILS, MARKS, MEETS, NOT_TESTED, Line, cards, examine
from attnprobe.report.quality import quality_of
from attnprobe.report.reading import readings
from attnprobe.report.studies import StudyReading, read_study, with_intervals, write_study
from attnprobe.shown import visible

PAGE = "report.html"


@answering_disk()
def publish_study(directory: Path) -> None:
    """Write a finished study's tables, figures and page into its directory, and show what it found on the terminal."""
    reading = read_study(directory)
    write_study(reading)
    page = write_report([*reading.runs, directory], directory / PAGE, title=reading.title)
    console = Console()
    lines = box.SIMPLE_HEAD if console.is_terminal else box.ASCII
    runs = read_runs(reading.runs)
    console.print(verdict_table(verdicts(reading, runs), lines))
    for caption, table in reading.tables.items():
        shown = Table(title=safe(caption), title_justify="left", box=lines)
        compact = with_intervals(table)
        for name in compact.columns:
            shown.add_column(safe(str(name)), justify="right" if table[name].dtype.kind in "if" else "left")
        for row in compact.itertuples(index=False):
            shown.add_row(*(safe(str(cell)) for cell in row))
        console.print(shown)
    for finding in reading.findings:
        console.print(safe(f"{finding.claim.criterion}: {reading.readings[finding.claim.name]}"))
    for run in runs:
        measured = quality_of(run.directory, run.split)
        if measured is not None and measured.warning:
            console.print(safe(f"warning: seed {run.seed}: {measured.warning}", style="bold"))
    for data, notes in notes_of_data(runs):
        console.print(safe(f"{data}: {'; '.join(notes) or 'every row was used whole'}"))
    for note in reading.notes:
        console.print(safe(note))
    # one path per line, unbroken, to be copied
    print(visible(f"report: {page}"), visible(f"study: {directory}"), sep="\n")


def safe(text: str, style: str = "") -> Text:
    """Text in which hidden characters, of a data set's or a class's name, are shown as escapes."""
    return Text(visible(text), style=style)


def verdicts(reading: StudyReading, runs: Sequence[Run]) -> Sequence[Line]:
    """One line per criterion, of the study and of the tests in the tables of its own `runs`."""
    group = group_of(reading, grouped(runs))
    own = [] if group is None else [group]
    outcomes = examine(own, list(readings().values())) + of_studies([reading], own)
    return cards(own, outcomes)[0].lines


def verdict_table(lines: Sequence[Line], frame: box.Box) -> Table:
    """What attention meets, fails, or cannot be decided by these numbers, each with the numbers it goes by."""
    table = Table(title=safe("May this attention be read as an explanation?"), title_justify="left", box=frame)
    for name in ("criterion", "claim that speaks for or against it", ""):
        table.add_column(name, overflow="fold")
    table.add_column("number", no_wrap=True)
    for line in lines:
        verdict = line.verdict if line.verdict == NOT_TESTED else f"{MARKS[line.verdict]} {line.verdict}"
        table.add_section()
        table.add_row(safe(line.criterion, style="bold"), safe(line.question), "", safe(verdict, style="bold"))
        for one in line.outcomes:
            evidence = one.finding.evidence
            span = "" if np.isnan(evidence.low) else f" [{evidence.low:.3f}, {evidence.high:.3f}]"
            mark = {True: MARKS[MEETS], False: MARKS[FAILS], None: MARKS[CANNOT_DECIDE]}[one.met]
            number = f"{mark} {evidence.value:.3f}{span}"
            table.add_row("", safe(one.finding.claim.statement), safe(one.finding.verdict), safe(number))
    return table
