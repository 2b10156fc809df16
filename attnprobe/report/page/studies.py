"""Studies in the page: their findings, tables and figures, made ready to be shown."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from attnprobe.report.claims import Claim, Finding
from attnprobe.report.page.formats import cell
from attnprobe.report.page.pictures import Picture, picture
from attnprobe.report.page.runs import DOT, Group
from attnprobe.report.page.verdicts import JudgedClaim
from attnprobe.report.studies import StudyReading, with_intervals


@dataclass(frozen=True)
class ShownTable:
    """A study's table, its cells as text, each with whether it is a number."""

    caption: str
    columns: list[str]
    rows: list[list[tuple[str, bool]]]


@dataclass(frozen=True)
class ShownStudy:
    """A study's part of the page."""

    title: str
    where: str
    about: str
    sentences: list[str]
    pictures: list[Picture]
    claims: list[tuple[Claim, list[tuple[str, Finding]]]]
    tables: list[ShownTable]
    notes: list[str]


def by_claim(findings: Sequence[tuple[str, Finding]]) -> list[tuple[Claim, list[tuple[str, Finding]]]]:
    """Findings by their claim, in the order in which they came."""
    by_name: dict[str, list[tuple[str, Finding]]] = {}
    for where, finding in findings:
        by_name.setdefault(finding.claim.name, []).append((where, finding))
    return [(rows[0][1].claim, rows) for rows in by_name.values()]


def of_studies(studies: Sequence[StudyReading], groups: Sequence[Group]) -> list[JudgedClaim]:
    """The studies' findings, each with the group that holds the study's own runs.

    Names would not do: two studies of one data set and model may differ in their settings. A study whose runs are not in
    the report has no card here.
    """
    judged_claims = []
    for place, study in enumerate(studies, start=1):
        group = group_of(study, groups)
        if group is not None:
            judged_claims += [JudgedClaim(finding, group, f"study-{place}") for finding in study.findings]
    return judged_claims


def group_of(study: StudyReading, groups: Sequence[Group]) -> Group | None:
    """The group with the first of a study's own runs, which the others refer to; None where it is not there."""
    bases = {Path(run).resolve() for run in study.runs[:1]}
    return next((group for group in groups if any(run.directory.resolve() in bases for run in group.runs)), None)


def show_study(study: StudyReading, place: int, folder: Path, groups: Sequence[Group]) -> ShownStudy:
    """A study's part of the page; its figures are written as PDF too. `place` counts the studies from 1."""
    group = group_of(study, groups)
    where = group.title if group is not None else f"{study.data}{DOT}{study.model}"
    return ShownStudy(
        title=study.title,
        where=where,
        about=study.about,
        sentences=[study.readings[f.claim.name] for f in study.findings if f.claim.name in study.readings],
        pictures=[picture(figure, f"study{place}-{name}", caption, folder) for name, caption, figure in study.figures],
        claims=by_claim([(where, finding) for finding in study.findings]),
        tables=[show_table(caption, table) for caption, table in study.tables.items()],
        notes=list(study.notes),
    )


def show_table(caption: str, table: pd.DataFrame) -> ShownTable:
    """A DataFrame's cells as text."""
    compact = with_intervals(table)
    columns = [
        [
            cell(value) if f"{name} low" not in table else (said, True)
            for value, said in zip(table[name], compact[name], strict=True)
        ]
        for name in compact
    ]
    return ShownTable(caption, [str(name) for name in compact], [list(row) for row in zip(*columns, strict=True)])
