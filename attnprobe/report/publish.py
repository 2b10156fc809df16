"""What is shown when a study is done: its verdicts and tables on the terminal, and a page."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from attnprobe.errors import answering_disk
from attnprobe.report.page.about import notes_of_data
from attnprobe.report.page.build import write_report
from attnprobe.report.page.runs import Run, grouped, read_runs
from attnprobe.report.page.studies import group_of, of_studies
from attnprobe.report.page.verdicts import MARKS, Card, card, put_claims_to_test
from attnprobe.report.quality import quality_of
from attnprobe.report.reading import readings
from attnprobe.report.studies import StudyReading, read_study, with_intervals, write_study
from attnprobe.report.verdicts import NOT_TESTED
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
    judged = verdicts(reading, runs)
    console.print(safe(judged.sentence, style="bold"))
    console.print(verdict_table(judged, lines))
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


def verdicts(reading: StudyReading, runs: Sequence[Run]) -> Card:
    """The card of the study's own model, by the study and by the tests in the tables of its own `runs`."""
    group = group_of(reading, grouped(runs))
    assert group is not None  # it is made of these runs
    judged_claims = put_claims_to_test([group], list(readings().values())) + of_studies([reading], [group])
    return card(group, judged_claims)


def verdict_table(shown: Card, frame: box.Box) -> Table:
    """What attention meets, fails, or cannot be decided by these numbers, each with the number it goes by."""
    table = Table(title=safe("May this attention be read as an explanation?"), title_justify="left", box=frame)
    for name in ("criterion", "level", "verdict", "by this claim"):
        table.add_column(name, overflow="fold")
    table.add_column("number", no_wrap=True)
    for line in shown.lines:
        one = line.verdict
        if one.state == NOT_TESTED:
            words, number = f"{one.question} Not tested.", ""
        else:
            words = ". ".join(part for part in (one.statement, one.reason, one.track_record) if part)
            span = "" if np.isnan(one.low) else f" [{one.low:.3f}, {one.high:.3f}]"
            number = f"{one.value:.3f}{span}"
        state = safe(f"{MARKS[one.state]} {one.state}", style="bold")
        table.add_row(safe(one.criterion, style="bold"), safe(one.level), state, safe(words), safe(number))
    return table
