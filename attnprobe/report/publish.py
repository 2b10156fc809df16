"""What is shown when a study is done: its verdicts and tables on the terminal, and a page."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.text import Text

from attnprobe.core.errors import answering_disk
from attnprobe.core.sanitise import visible
from attnprobe.evidence.claims import CRITERIA
from attnprobe.evidence.evidence import NOT_TESTED
from attnprobe.findings.groups import read_runs
from attnprobe.findings.studies.base import StudyReading, read_study
from attnprobe.findings.table import findings_of_study
from attnprobe.plots.style import save
from attnprobe.report.page.build import write_report
from attnprobe.report.page.sections import notes_of_data
from attnprobe.report.tables import csv_table, with_intervals
from attnprobe.report.terminal import MARKS, safe, terminal_table
from attnprobe.results.files import write_atomically

PAGE = "report.html"


@answering_disk()
def publish_study(directory: Path) -> None:
    """Write a finished study's findings, tables, figures and page into its directory, and show what it found on the
    terminal."""
    reading = read_study(directory)
    write_study(reading)
    own = findings_of_study(reading)
    page = write_report([*reading.runs, directory], directory / PAGE, title=reading.title)
    console = Console()
    lines = console.is_terminal
    console.print(safe(own["sentence"].iloc[0], "bold"))
    fold: dict[str, Any] = {"overflow": "fold"}
    columns = dict.fromkeys(("criterion", "verdict", "number, and the claim that it is of"), fold)
    title = safe("May this attention be read as an explanation?")
    console.print(
        terminal_table(columns, map(_verdict, own[own["primary"]].to_dict("records")), lines=lines, title=title)
    )
    for caption, numbers in reading.tables.items():
        compact = with_intervals(numbers)
        sides = {str(name): {"justify": "right" if numbers[name].dtype.kind in "if" else "left"} for name in compact}
        rows = compact.itertuples(index=False)
        console.print(terminal_table(sides, rows, lines=lines, title=safe(caption)))
    for finding in reading.findings:
        console.print(safe(f"{finding.claim.criterion}: {reading.readings[finding.claim.name]}"))
    runs = read_runs(reading.runs)
    for run in runs:
        if run.warning:
            console.print(safe(f"warning: seed {run.seed}: {run.warning}", "bold"))
    for data, notes in notes_of_data(runs):
        console.print(safe(f"{data}: {'; '.join(notes) or 'every row was used whole'}"))
    for note in reading.notes:
        console.print(safe(note))
    # one path per line, unbroken, to be copied
    print(visible(f"report: {page}"), visible(f"study: {directory}"), sep="\n")


def _verdict(one: Mapping[Any, Any]) -> list[str | Text]:
    """A line of the card: what attention meets, fails, or cannot be decided by these numbers, with the number it goes by."""
    words, number = f"{CRITERIA[one['criterion']]} Not tested.", ""
    if one["verdict"] != NOT_TESTED:
        words = ". ".join(part for part in (one["statement"], one["reason"], one["track_record"]) if part)
        span = "" if pd.isna(one["low"]) else f" [{one['low']:.3f}, {one['high']:.3f}]"
        number = f"{one['value']:.3f}{span}"
    verdict = safe(f"{MARKS[one['verdict']]} {one['verdict']}", "bold")
    criterion = safe(one["criterion"], "bold").append(f" ({one['level']})", "not bold")
    return [criterion, verdict, Text("\n").join([*([safe(number)] if number else []), safe(words)])]


def write_study(reading: StudyReading) -> None:
    """Write a study's tables (CSV) and figures (PDF, PNG) into its directory."""
    for number, (_, table) in enumerate(reading.tables.items(), start=1):
        text = csv_table(table)
        write_atomically(
            reading.directory / "tables" / f"table{number}.csv", lambda p, text=text: p.write_text(text, "utf-8")
        )
    for name, _, figure in reading.figures:
        save(figure, reading.directory / "figures", name)
