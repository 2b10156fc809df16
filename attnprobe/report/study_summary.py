"""What is shown when a study is done: its verdicts and tables on the terminal, and a page."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from attnprobe.errors import answering_disk
from attnprobe.report.page.build import write_report
from attnprobe.report.page.runs import grouped, read_runs
from attnprobe.report.page.studies import of_studies
from attnprobe.report.page.verdicts import CANNOT_DECIDE, FAILS, MARKS, MEETS, NOT_TESTED, Line, cards, examine
from attnprobe.report.reading import readings
from attnprobe.report.studies import StudyReading, read_study, with_intervals, write_study

PAGE = "report.html"


@answering_disk()
def publish_study(directory: Path) -> None:
    """Write a finished study's tables, figures and page into its directory, and show what it found on the terminal."""
    reading = read_study(directory)
    write_study(reading)
    page = write_report([*reading.runs, directory], directory / PAGE, title=reading.title)
    console = Console()
    lines = box.SIMPLE_HEAD if console.is_terminal else box.ASCII
    console.print(verdict_table(verdicts(reading), lines))
    for caption, table in reading.tables.items():
        shown = Table(title=Text(caption), title_justify="left", box=lines)
        compact = with_intervals(table)
        for name in compact.columns:
            shown.add_column(Text(str(name)), justify="right" if table[name].dtype.kind in "if" else "left")
        for row in compact.itertuples(index=False):
            shown.add_row(*map(Text, row))
        console.print(shown)
    for finding in reading.findings:
        console.print(Text(f"{finding.claim.criterion}: {reading.readings[finding.claim.name]}"))
    for note in reading.notes:
        console.print(Text(note))
    # one path per line, unbroken, to be copied
    print(f"report: {page}\nstudy: {directory}")


def verdicts(reading: StudyReading) -> Sequence[Line]:
    """One line per criterion, of the study and of the tests in its base's tables."""
    groups = [group for group in grouped(read_runs(reading.runs)) if group.model == reading.model]
    outcomes = examine(groups, list(readings().values())) + of_studies([reading], groups)
    return cards(groups[:1], outcomes)[0].lines


def verdict_table(lines: Sequence[Line], frame: box.Box) -> Table:
    """What attention meets, fails, or cannot be decided by these numbers, each with the numbers it goes by."""
    table = Table(title=Text("May this attention be read as an explanation?"), title_justify="left", box=frame)
    for name in ("criterion", "claim that speaks for or against it", ""):
        table.add_column(name, overflow="fold")
    table.add_column("number", no_wrap=True)
    for line in lines:
        verdict = line.verdict if line.verdict == NOT_TESTED else f"{MARKS[line.verdict]} {line.verdict}"
        table.add_section()
        table.add_row(Text(line.criterion, style="bold"), Text(line.question), "", Text(verdict, style="bold"))
        for one in line.outcomes:
            evidence = one.finding.evidence
            span = "" if np.isnan(evidence.low) else f" [{evidence.low:.3f}, {evidence.high:.3f}]"
            mark = {True: MARKS[MEETS], False: MARKS[FAILS], None: MARKS[CANNOT_DECIDE]}[one.met]
            number = f"{mark} {evidence.value:.3f}{span}"
            table.add_row("", Text(one.finding.claim.statement), Text(one.finding.verdict), Text(number))
    return table
