"""One page out of finished runs: everything is read, drawn and put to the test here, and shown by the templates."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from attnprobe.errors import answering_disk
from attnprobe.report.claims import Finding
from attnprobe.report.comparisons import compare_models
from attnprobe.report.figures.style import paper_style
from attnprobe.report.numbers import Numbers
from attnprobe.report.page.about import data_checks, lead, notes_of_data, run_row, versions, warnings_of
from attnprobe.report.page.browser.browse import MEGABYTES, browse
from attnprobe.report.page.glance import glances
from attnprobe.report.page.pictures import Picture, pictures
from attnprobe.report.page.playground import playgrounds
from attnprobe.report.page.render import rendered
from attnprobe.report.page.runs import DOT, Group, Run, grouped, read_sound_runs, together
from attnprobe.report.page.sections import sections
from attnprobe.report.page.studies import by_claim, of_studies, show_study
from attnprobe.report.page.verdicts import Card, JudgedClaim, cards, put_claims_to_test, verdict_table
from attnprobe.report.paper import Paper
from attnprobe.report.published import compare
from attnprobe.report.reading import Reading, present
from attnprobe.report.studies import StudyReading, find_studies
from attnprobe.report.tables import Table, all_tables
from attnprobe.report.word_tables import word_tables
from attnprobe.results.directory import RunDirectory
from attnprobe.results.files import write_atomically

TITLE = "May this attention be read as an explanation?"


@answering_disk()
def write_report(
    places: Any,
    output: Path,
    *,
    title: str = TITLE,
    words: bool = True,
    megabytes: float = MEGABYTES,
    tell: Callable[[str], None] = lambda _: None,
) -> Path:
    """Write the page, and beside it a folder with the figures and the tables.

    Args:
        places: run directories, directories above runs, or glob patterns.
        output: the page's file; the folder is called `<its stem>_files`.
        title: heads the page.
        words: False leaves the texts out, and the figures that show them. Names of classes stay.
        megabytes: about what the page may weigh; see `attnprobe.report.page.browser.choosing.browse`.
        tell: is told what is being done.

    Returns:
        The page's path.

    Raises:
        UserError: no finished run there, or one run twice.
    """
    tell("reading runs")
    runs, skipped = read_sound_runs(places)
    with paper_style():
        studies, unread = find_studies(places)
    folder = output.with_name(f"{output.stem}_files")
    folder.mkdir(parents=True, exist_ok=True)
    tell("numbers and their intervals")
    said = computed(runs, studies, tell)
    drawn = figures_of(said, folder, words=words, tell=tell)
    shown = [show_study(study, place, folder, said.groups) for place, study in enumerate(studies, start=1)]
    figures = [one.file for some in [*drawn.values(), *(study.pictures for study in shown)] for one in some]
    tell("tables")
    shown_cards = cards(said.tested, said.judged_claims)
    written = [*tables_of(said, words=words), *verdict_table(shown_cards)]
    tables = [path.name for one in written for path in one.write(folder)]
    tables += [path.name for path in Paper(said.compared).write(folder)]
    browser = browse(said.groups, words=words, megabytes=megabytes, tell=tell)
    browser.index["playgrounds"] = playgrounds(said.tested or said.groups, browser.blocks, words=words)
    tell("page")
    page = rendered(
        title=title,
        sections=sections(said.readings, said.groups, said.compared, drawn, said.judged_claims),
        comparisons=by_claim(said.across),
        studies=shown,
        cards=shown_cards,
        **first_screen(studies, shown_cards or cards(said.groups, []), words=words),
        **about_runs(runs, said),
        skipped=[str(error) for error in (*skipped, *unread)],
        browser=browser,
        folder=folder.name,
        written=[(kind, names) for kind, names in (("Figures", figures), ("Tables", tables)) if names],
    )
    # the examples are most of it, and stay on the disk until they are written
    write_atomically(output, lambda path: page.dump(str(path), encoding="utf-8", errors="replace"))
    return output


@dataclass(frozen=True)
class Computed:
    """What the runs and studies say, before anything is drawn.

    Attributes:
        groups: the runs that differ in their seed alone.
        numbers: of all runs.
        compared: headline numbers next to the published ones.
        readings: of the probes that the runs have.
        judged_claims: what every claim comes to, for one group each.
        across: findings about several models, each with the words for what it is about.
    """

    groups: list[Group]
    numbers: Numbers
    compared: pd.DataFrame
    readings: list[Reading]
    judged_claims: list[JudgedClaim]
    across: list[tuple[str, Finding]]

    @property
    def tested(self) -> list[Group]:
        """The groups that something was found about."""
        return [group for group in self.groups if any(one.group is group for one in self.judged_claims)]

    @property
    def findings(self) -> list[tuple[str, Finding]]:
        """All findings, each with the words for what it is about."""
        return [(judged_claim.group.title, judged_claim.finding) for judged_claim in self.judged_claims] + self.across


def computed(runs: list[Run], studies: Sequence[StudyReading], tell: Callable[[str], None]) -> Computed:
    """All that the page says in numbers."""
    groups, numbers = grouped(runs), together(runs)
    readings = present(numbers)
    return Computed(
        groups=groups,
        numbers=numbers,
        compared=compare(numbers),
        readings=readings,
        judged_claims=put_claims_to_test(groups, readings, tell=tell) + of_studies(studies, groups),
        across=[(f"{finding.data}{DOT}{finding.model}", finding) for finding in comparisons(groups)],
    )


def first_screen(studies: Sequence[StudyReading], shown: Sequence[Card], *, words: bool) -> dict[str, Any]:
    """What studies answer that are not about one model, and the models."""
    return {
        "answers": [study.answer for study in studies if study.answer],
        "glances": glances(shown, words=words),
    }


def tables_of(said: Computed, *, words: bool) -> Iterator[Table]:
    """Every table of the runs, the words of the corpus among them where texts may be shown."""
    yield from all_tables(said.numbers, said.compared, said.findings)
    if words:
        probed = [run for group in said.groups for run in group.runs]
        yield from word_tables([(RunDirectory(run.directory), run.numbers, run.split) for run in probed])


def figures_of(said: Computed, folder: Path, *, words: bool, tell: Callable[[str], None]) -> dict[str, list[Picture]]:
    """The figures of every probe, by its name; their files are written into the folder."""
    drawn = {}
    for reading in said.readings:
        tell(f"figures of {reading.probe}")
        drawn[reading.probe] = pictures(reading, said.groups, folder, words=words)
    return drawn


def about_runs(runs: list[Run], said: Computed) -> dict[str, Any]:
    """What the page says of the runs themselves, and of their data."""
    return {
        "lead": lead(said.tested or said.groups),
        "untested": [group.title for group in said.groups if not any(one is group for one in said.tested)],
        "warnings": [(group.title, warning) for group in said.groups for warning in warnings_of(group)],
        "data_checks": data_checks(runs),
        "runs": [run_row(group, said.compared) for group in said.groups],
        "run_count": len(runs),
        "run_ids": [run.run_id for run in runs],
        "versions": versions(runs),
        "data_notes": notes_of_data(runs),
    }


def comparisons(groups: Sequence[Group]) -> list[Finding]:
    """Models against each other on one data set, among the runs of the same settings."""
    differences = []
    for note in dict.fromkeys(group.note for group in groups):
        alike = together([run for group in groups if group.note == note for run in group.runs])
        differences += [
            replace(finding, model=DOT.join([finding.model, note]) if note else finding.model)
            for finding in compare_models(alike)
        ]
    return differences
