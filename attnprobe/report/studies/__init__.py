"""Finished studies read back: statements with intervals, tables and figures drawn from their members' tables.

`attnprobe/report/studies/<study>.py` has `read(directory, content)` → `StudyReading`; it is found by being there.
An installed package names such a function, for a study of its own, in the entry points' group `attnprobe.studies`.
"""

import importlib
import os
import pkgutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from attnprobe.errors import UserError
from attnprobe.report.claims import Finding
from attnprobe.report.figures.style import paper_style, save
from attnprobe.report.tables import csv_table
from attnprobe.results.checksums import damaged
from attnprobe.results.directory import RunDirectory
from attnprobe.results.files import write_atomically
from attnprobe.results.finding import directories_with, named_places
from attnprobe.results.saved import read_members

STUDY = "study.json"
"""Written last and atomically: without it a study is not finished."""


@dataclass(frozen=True)
class StudyReading:
    """What a finished study says.

    Attributes:
        title: of its part of the report.
        about: a few sentences on what was done.
        data: the data set.
        model: the base's model.
        directory: where it was read from.
        findings: its statements, each with a number, an interval and a verdict.
        runs: directories of the runs whose own tests belong beside it, on a page about this study alone.
        readings: two sentences in words for each finding, by the claim's name.
        tables: caption → table, ready to be shown; numbers as numbers.
        figures: (name, caption, figure).
        notes: what else a reader has to know.
        answer: one sentence, where the study is not about the attention of one model: its page begins with it.
    """

    title: str
    about: str
    data: str
    model: str
    directory: Path
    findings: list[Finding]
    runs: list[Path] = field(default_factory=list)
    readings: dict[str, str] = field(default_factory=dict)
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    figures: list[tuple[str, str, Figure]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    answer: str = ""


def find_studies(
    places: str | os.PathLike | Iterable[str | os.PathLike],
) -> tuple[list[StudyReading], list[UserError]]:
    """Every sound finished study at or below these directories or glob patterns, and what is wrong with the others; none is
    no error."""
    studies, skipped = [], []
    for directory in directories_with(STUDY, named_places(places)):
        try:
            studies.append(read_study(directory))
        except UserError as error:
            skipped.append(error)
    return studies, skipped


def read_study(directory: str | os.PathLike) -> StudyReading:
    """One finished study.

    Raises:
        UserError: it is not finished, or nothing here knows how to read it.
        DamagedRun: its study.json or one of its runs is not as it was written.
    """
    directory = Path(directory)
    path = directory / STUDY
    if not path.exists():
        raise UserError(f"{directory} holds no finished study (no {STUDY}): start it again, it goes on where it was")
    content = read_members(path)
    for member in content["members"]:
        run = RunDirectory(directory / member["directory"])
        if run.manifest().get("run_id") != member["run_id"]:
            raise damaged(run.path, f"{path} expects the run {member['run_id']} there")
        run.verify(run.shown_files())
    known = [module.name for module in pkgutil.iter_modules(__path__)]
    installed = {entry.name: entry for entry in entry_points(group="attnprobe.studies")}
    if content["study"] in known:
        read = importlib.import_module(f"{__name__}.{content['study']}").read
    elif content["study"] in installed:
        read = installed[content["study"]].load()
    else:
        names = ", ".join([*known, *installed])
        raise UserError(f"{path} is of the study {content['study']!r}: expected one of {names}")
    with paper_style():  # the figures are made here
        reading: StudyReading = read(directory, content)
    return reading


def write_study(reading: StudyReading) -> None:
    """Write a study's tables (CSV) and figures (PDF, PNG) into its directory."""
    for number, (_, table) in enumerate(reading.tables.items(), start=1):
        text = csv_table(table)
        write_atomically(
            reading.directory / "tables" / f"table{number}.csv", lambda p, text=text: p.write_text(text, "utf-8")
        )
    for name, _, figure in reading.figures:
        save(figure, reading.directory / "figures", name)


def with_intervals(table: pd.DataFrame) -> pd.DataFrame:
    """The table with its cells as text, and each number's ends, in columns called `<name> low` and `<name> high`, put into
    the number's own column.

    >>> with_intervals(pd.DataFrame({"F1": [0.5], "F1 low": [0.4], "F1 high": [0.6], "n": [3]})).to_dict("list")
    {'F1': ['0.500 [0.400, 0.600]'], 'n': ['3']}
    """
    ends = {f"{name} {end}" for name in table.columns for end in ("low", "high")}
    shown = {}
    for name in [name for name in table.columns if name not in ends]:
        cells = [cell(value) for value in table[name]]
        if f"{name} low" in table:
            lows, highs = ([cell(value) for value in table[f"{name} {end}"]] for end in ("low", "high"))
            spans = zip(cells, lows, highs, strict=True)
            cells = [f"{middle} [{low}, {high}]" if low else middle for middle, low, high in spans]
        shown[name] = cells
    return pd.DataFrame(shown)


def cell(value: object) -> str:
    """A table's value in text; numbers with three digits, NaN as nothing.

    >>> cell(0.12345), cell(float("nan")), cell("sst"), cell(3)
    ('0.123', '', 'sst', '3')
    """
    if isinstance(value, float):
        return "" if value != value else f"{value:.3f}" if abs(value) >= 0.001 or value == 0 else f"{value:.1e}"
    return str(value)
