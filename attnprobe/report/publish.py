"""What is shown when a study is done: its verdicts and tables on the terminal, and a page."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from attnprobe import __version__
from attnprobe.core.errors import answering_disk
from attnprobe.core.printing import tell
from attnprobe.core.sanitise import visible
from attnprobe.findings.groups import Run, grouped, read_runs
from attnprobe.findings.judgement import Card
from attnprobe.findings.sheet import sheet_of
from attnprobe.findings.stored import card_of_study
from attnprobe.findings.studies.base import StudyReading, read_study
from attnprobe.findings.table import group_of
from attnprobe.plots.style import save
from attnprobe.report.page.build import write_report
from attnprobe.report.page.sections import notes_of_data
from attnprobe.report.studies.drawing import draw_study
from attnprobe.report.tables import csv_table, with_intervals
from attnprobe.report.terminal import answer_lines, notes_of_tests, safe, terminal_table
from attnprobe.results.directory import MANIFEST
from attnprobe.results.files import write_text
from attnprobe.results.writer import OwnFolder

PAGE = "report.html"


@answering_disk()
def publish_study(directory: Path, *, verbose: bool = False) -> None:
    """Write a finished study's tables, figures and page into its directory, and show its answer.

    Args:
        directory: of the study.
        verbose: show its verdicts, tables and readings before that.
    """
    reading = read_study(directory)
    card = card_of_study(reading)
    runs = read_runs(reading.runs)
    if verbose:
        _print_all(reading, card, runs)
    if reading.answer:
        tell(visible(reading.answer))
    else:
        group = group_of(reading, grouped(runs))
        assert group is not None  # the study is made of these runs
        print(*answer_lines(sheet_of(group, card)), sep="\n", flush=True)

    page = directory / PAGE
    # the page takes longer than the answer, which is there
    if not _is_current(page, reading.runs):
        write_study(reading)
        write_report(
            [*reading.runs, directory], page, title=reading.title if reading.answer else ""
        )
    print(visible(f"page: {page}"))
    if not verbose:
        print("For all numbers, repeat the command with verbose=true")


def _is_current(page: Path, runs: Sequence[Path]) -> bool:
    """Whether this version wrote the page, and nothing was measured since."""
    if not page.is_file():
        return False
    newest = max((run / MANIFEST).stat().st_mtime for run in runs)
    mark = f'content="attnprobe {__version__}"'
    return page.stat().st_mtime >= newest and mark in page.read_text("utf-8", "replace")[:2000]


def _print_all(reading: StudyReading, card: Card, runs: Sequence[Run]) -> None:
    """Show verdicts, tables and readings of a study, and what is to be said of its runs."""
    console = Console()
    for line in card.lines:
        parts = (line.answer, line.statement, line.reason, line.track_record)
        sentences = ". ".join(part for part in parts if part)
        console.print(safe(f"{line.criterion} ({line.level}): {sentences}"))
    for caption, numbers in reading.tables.items():
        compact = with_intervals(numbers)
        columns = {
            str(name): {"justify": "right" if numbers[name].dtype.kind in "iuf" else "left"}
            for name in compact
        }
        rows = compact.itertuples(index=False)
        console.print(terminal_table(columns, rows, lines=console.is_terminal, title=safe(caption)))
    for finding in reading.findings:
        console.print(safe(f"{finding.claim.criterion}: {reading.readings[finding.claim.name]}"))
    for run in runs:
        if run.warning:
            console.print(safe(f"warning: seed {run.seed}: {run.warning}", "bold"))
    for data, notes in notes_of_data(runs):
        console.print(safe(f"{data}: {'; '.join(notes) or 'every row was used whole'}"))
    tables = [run.manifest.get("tables", {}) for run in runs]
    for note in (*reading.notes, *notes_of_tests(tables)):
        console.print(safe(note))


def write_study(reading: StudyReading) -> None:
    """Write a study's tables (CSV) and figures (PDF, PNG) into its directory.

    Raises:
        UserError: one that was written before was changed since, or is not this program's.
    """
    tables = OwnFolder(reading.directory / "tables")
    for number, table in enumerate(reading.tables.values(), start=1):
        write_text(csv_table(table), tables / f"table{number}.csv")
    tables.close()
    figures = OwnFolder(reading.directory / "figures")
    for figure, drawn in draw_study(reading):
        save(drawn, figures, figure.name)
    figures.close()
