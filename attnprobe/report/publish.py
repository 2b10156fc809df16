"""What is shown when a study is done: its verdicts and tables on the terminal, and a page."""

from pathlib import Path

from rich.console import Console

from attnprobe import __version__
from attnprobe.core.errors import answering_disk
from attnprobe.core.sanitise import visible
from attnprobe.findings.groups import read_runs
from attnprobe.findings.stored import card_of_study
from attnprobe.findings.studies.base import StudyReading, read_study
from attnprobe.plots.style import save
from attnprobe.report.page.build import write_report
from attnprobe.report.page.sections import notes_of_data
from attnprobe.report.studies.drawing import draw_study
from attnprobe.report.tables import csv_table, with_intervals
from attnprobe.report.terminal import answer_lines, notes_of_tests, safe, terminal_table
from attnprobe.results.directory import MANIFEST
from attnprobe.results.files import write_text

PAGE = "report.html"


@answering_disk()
def publish_study(directory: Path, *, verbose: bool = False) -> None:
    """Write a finished study's findings, tables, figures and page into its directory, and show its
    answer on the terminal; with `verbose` its verdicts, tables and readings before that."""
    reading = read_study(directory)
    card = card_of_study(reading)
    runs = read_runs(reading.runs)
    if verbose:
        console = Console()
        for line in card.lines:
            parts = (line.answer, line.statement, line.reason, line.track_record)
            sentences = ". ".join(part for part in parts if part)
            console.print(safe(f"{line.criterion} ({line.level}): {sentences}"))
        for caption, numbers in reading.tables.items():
            compact = with_intervals(numbers)
            sides = {
                str(one): {"justify": "right" if numbers[one].dtype.kind in "iuf" else "left"}
                for one in compact
            }
            rows = compact.itertuples(index=False)
            console.print(
                terminal_table(sides, rows, lines=console.is_terminal, title=safe(caption))
            )
        for finding in reading.findings:
            console.print(
                safe(f"{finding.claim.criterion}: {reading.readings[finding.claim.name]}")
            )
        for run in runs:
            if run.warning:
                console.print(safe(f"warning: seed {run.seed}: {run.warning}", "bold"))
        of_data = (
            f"{data}: {'; '.join(notes) or 'every row was used whole'}"
            for data, notes in notes_of_data(runs)
        )
        for note in (
            *of_data,
            *reading.notes,
            *notes_of_tests([run.manifest.get("tables", {}) for run in runs]),
        ):
            console.print(safe(note))
    said = answer_lines(
        card, runs[0].quality, runs[0].attention_on, "the page says what each of them needs"
    )
    print(*([visible(reading.answer)] if reading.answer else said), sep="\n", flush=True)
    page = directory / PAGE
    made = f'content="attnprobe {__version__}"'
    newest = max((place / MANIFEST).stat().st_mtime for place in reading.runs)
    # the page takes longer than the answer, which is there; it stays where nothing was measured
    # since
    if (
        not page.is_file()
        or page.stat().st_mtime < newest
        or made not in page.read_text("utf-8", "replace")[:2000]
    ):
        write_study(reading)
        write_report([*reading.runs, directory], page, title=reading.title)
    print(
        visible(f"page: {page}"),
        *[] if verbose else ["all numbers: the same command with verbose=true"],
        sep="\n",
    )


def write_study(reading: StudyReading) -> None:
    """Write a study's tables (CSV) and figures (PDF, PNG) into its directory."""
    for number, table in enumerate(reading.tables.values(), start=1):
        write_text(csv_table(table), reading.directory / "tables" / f"table{number}.csv")
    for figure, drawn in draw_study(reading):
        save(drawn, reading.directory / "figures", figure.name)
