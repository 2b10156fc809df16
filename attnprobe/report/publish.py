"""What is shown when a study is done: its verdicts and tables on the terminal, and a page."""

from pathlib import Path

import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from attnprobe.core.errors import answering_disk
from attnprobe.core.sanitise import visible
from attnprobe.evidence.claims import CRITERIA
from attnprobe.evidence.evidence import NOT_TESTED
from attnprobe.findings.groups import read_runs
from attnprobe.findings.quality import quality_of
from attnprobe.findings.studies.base import StudyReading, read_study
from attnprobe.findings.table import findings_of_study
from attnprobe.plots.style import save
from attnprobe.report.page.build import write_report
from attnprobe.report.page.glance import notes_of_data
from attnprobe.report.tables import csv_table, with_intervals
from attnprobe.report.terminal import MARKS
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
    lines = box.SIMPLE_HEAD if console.is_terminal else box.ASCII
    console.print(_safe(own["sentence"].iloc[0], style="bold"))
    console.print(_verdicts(own[own["primary"]], lines))
    for caption, numbers in reading.tables.items():
        shown = Table(title=_safe(caption), title_justify="left", box=lines)
        compact = with_intervals(numbers)
        for name in compact.columns:
            shown.add_column(_safe(str(name)), justify="right" if numbers[name].dtype.kind in "if" else "left")
        for row in compact.itertuples(index=False):
            shown.add_row(*(_safe(str(cell)) for cell in row))
        console.print(shown)
    for finding in reading.findings:
        console.print(_safe(f"{finding.claim.criterion}: {reading.readings[finding.claim.name]}"))
    runs = read_runs(reading.runs)
    for run in runs:
        measured = quality_of(run.directory, run.split)
        if measured is not None and measured.warning:
            console.print(_safe(f"warning: seed {run.seed}: {measured.warning}", style="bold"))
    for data, notes in notes_of_data(runs):
        console.print(_safe(f"{data}: {'; '.join(notes) or 'every row was used whole'}"))
    for note in reading.notes:
        console.print(_safe(note))
    # one path per line, unbroken, to be copied
    print(visible(f"report: {page}"), visible(f"study: {directory}"), sep="\n")


def _safe(text: str, style: str = "") -> Text:
    """Text in which hidden characters, of a data set's or a class's name, are shown as escapes."""
    return Text(visible(text), style=style)


def _verdicts(card: pd.DataFrame, frame: box.Box) -> Table:
    """What attention meets, fails, or cannot be decided by these numbers, each with the number it goes by."""
    table = Table(title=_safe("May this attention be read as an explanation?"), title_justify="left", box=frame)
    for name in ("criterion", "level", "verdict", "by this claim"):
        table.add_column(name, overflow="fold")
    table.add_column("number", no_wrap=True)
    for one in card.to_dict("records"):
        if one["verdict"] == NOT_TESTED:
            words, number = f"{CRITERIA[one['criterion']]} Not tested.", ""
        else:
            words = ". ".join(part for part in (one["statement"], one["reason"], one["track_record"]) if part)
            span = "" if pd.isna(one["low"]) else f" [{one['low']:.3f}, {one['high']:.3f}]"
            number = f"{one['value']:.3f}{span}"
        verdict = _safe(f"{MARKS[one['verdict']]} {one['verdict']}", style="bold")
        table.add_row(_safe(one["criterion"], style="bold"), _safe(one["level"]), verdict, _safe(words), _safe(number))
    return table


def write_study(reading: StudyReading) -> None:
    """Write a study's tables (CSV) and figures (PDF, PNG) into its directory."""
    for number, (_, table) in enumerate(reading.tables.items(), start=1):
        text = csv_table(table)
        write_atomically(
            reading.directory / "tables" / f"table{number}.csv", lambda p, text=text: p.write_text(text, "utf-8")
        )
    for name, _, figure in reading.figures:
        save(figure, reading.directory / "figures", name)
