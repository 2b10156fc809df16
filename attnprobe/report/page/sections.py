"""What the page shows: a section per probe, cards, studies, runs."""

import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from attnprobe.core.metrics import Scale
from attnprobe.core.sanitise import quoted
from attnprobe.evidence.published import REMARKS
from attnprobe.evidence.verdicts import Chip
from attnprobe.findings.groups import DOT, Group, Run
from attnprobe.findings.judgement import Card, Findings, Judgement, Summary
from attnprobe.findings.lines import CARD, LEAK, NEEDS_MARKS, WORDS
from attnprobe.findings.mechanisms import model_setting
from attnprobe.findings.sheet import PRETRAINED, is_taken_as_it_is
from attnprobe.findings.studies.base import StudyReading
from attnprobe.findings.table import group_of
from attnprobe.readings.reading import Reading
from attnprobe.report.figures import Picture, picture
from attnprobe.report.studies.drawing import draw_study
from attnprobe.report.tables import with_intervals
from attnprobe.report.terminal import data_notes
from attnprobe.results.directory import SECTION
from attnprobe.results.manifest import CheckFacts
from attnprobe.results.pivot import class_of
from attnprobe.results.writer import OwnFolder

Tables = Sequence[Mapping[str, Any]]
ACCURACY = ("accuracy", "exact_match")
"""The metrics that say how many decisions are right; a run has one of them."""


def sections(
    readings: Sequence[Reading],
    groups: Sequence[Group],
    compared: pd.DataFrame,
    drawn: Mapping[str, Sequence[Picture]],
    findings: Findings,
) -> list[dict[str, Any]]:
    """The page's sections, one per probe that has something to show.

    Args:
        readings: of the probes.
        groups: of runs; those that have a probe's numbers are its columns.
        compared: headline numbers of all runs (`attnprobe.findings.headlines.compare`).
        drawn: each probe's pictures.
        findings: what was decided.
    """
    shown = []
    shown_notes = {""}
    for reading in readings:
        section = _section(reading, groups, compared, drawn[reading.probe], findings)
        note = section["noted"]
        if note in shown_notes:  # several probes use the same numbers
            section["noted"] = ""
        shown_notes.add(note)
        if section["rows"] or section["pictures"] or section["claims"]:
            shown.append(section)
    return shown


def _section(
    reading: Reading,
    groups: Sequence[Group],
    compared: pd.DataFrame,
    pictures: Sequence[Picture],
    findings: Findings,
) -> dict[str, Any]:
    """What the page shows of one probe."""
    numbers = compared[compared["probe"] == reading.probe]
    run_ids = set(map(str, numbers["run_id"].unique()))
    columns = [group for group in groups if any(run.run_id in run_ids for run in group.runs)]
    # what the manifest of each run says of the probe's table
    tables = [
        run.manifest.get("tables", {}).get(reading.probe, {})
        for group in columns
        for run in group.runs
    ]
    notes = [table["notes"] for table in tables if table.get("notes")]
    published = published_rows(numbers, columns)
    papers = dict.fromkeys(row["source"].split(",")[0] for row in published)
    place = f"test-{reading.probe}"
    judgements = [judgement for judgement in findings.judgements if judgement.section == place]
    return {
        "probe": reading.probe,
        "title": reading.title or reading.probe.replace("_", " ").capitalize(),
        "about": reading.about,
        "columns": columns,
        "rows": headline_rows(numbers, columns, tables),
        "published": published,
        "remarks": [f"{paper}: {REMARKS[paper]}" for paper in papers],
        "pictures": pictures,
        "claims": by_claim(judgements, [claim.name for claim in reading.claims]),
        "noted": reading.noted(notes) if reading.noted is not None and notes else "",
        "cost": cost_of(tables),
    }


def published_rows(numbers: pd.DataFrame, columns: Sequence[Group]) -> list[Any]:
    """Every number that a paper has too, in the order of the headlines, then of the groups."""
    runs = {run.run_id: (group, run) for group in columns for run in group.runs}
    places = {run_id: place for place, run_id in enumerate(runs)}
    order = {metric: place for place, metric in enumerate(dict.fromkeys(numbers["metric"]))}
    rows: list[Any] = numbers[numbers["published"].notna()].to_dict("records")
    for row in rows:
        group, run = runs[str(row["run_id"])]
        row["title"] = row["title"].strip()
        row["where"] = group.title
        row["value"] = row["mean"]
        row["about"] = ""
        if row["group"] != "overall":
            name = class_of(row["group"], run.manifest.get("classes", []))
            row["about"] = f"predicted {name}"
    return sorted(
        rows,
        key=lambda row: (
            order[row["metric"]],
            row["about"] != "",
            row["group"],
            places[str(row["run_id"])],
        ),
    )


def headline_rows(
    numbers: pd.DataFrame, columns: Sequence[Group], tables: Tables
) -> list[dict[str, Any]]:
    """The headline numbers over all classes, a row per metric.

    Args:
        numbers: headline numbers of one probe.
        columns: groups of runs, each of which has a cell, None where it has no number.
        tables: what the runs' manifests say of the probe's table.

    Returns:
        Rows whose `inner` says that the number belongs to the row above.
    """
    headlines = []
    overall = numbers[numbers["group"] == "overall"]
    for metric, rows in overall.groupby("metric", sort=False, observed=True):
        cells = [_cell_of(rows, group) for group in columns]
        if any(cells):
            title = str(rows["title"].iloc[0])
            headlines.append(
                {
                    "title": title.strip(),
                    "unit": _unit_of(str(metric), tables),
                    "inner": title.startswith(" "),
                    "cells": cells,
                }
            )
    return headlines


def _cell_of(rows: pd.DataFrame, group: Group) -> dict[str, Any] | None:
    """A group's number; None where it has none.

    With one run its value and interval, with several seeds their mean, the smallest and the
    largest.
    """
    run_ids = [run.run_id for run in group.runs]
    group_rows = rows[rows["run_id"].astype(str).isin(run_ids)]
    if group_rows.empty:
        return None
    values = group_rows["mean"].astype(float)  # NaN counts for nothing
    if len(group_rows) == 1:
        low, high = group_rows[["low", "high"]].iloc[0]
    else:
        low = values.min()
        high = values.max()
    return {
        "value": values.mean(),
        "low": low,
        "high": high,
        "seeds": len(group_rows),
        "n": int(group_rows["n"].max()),
    }


def _unit_of(metric: str, tables: Tables) -> str:
    """Unit, range and direction of a metric, by the first manifest that says them."""
    for table in tables:
        facts = table.get("metrics", {}).get(metric)
        if facts is not None:
            directions = {True: "higher is better", False: "lower is better"}
            direction = directions.get(facts.get("higher_is_better"))
            return "; ".join(filter(None, [Scale.of(facts).words, direction]))
    return ""


def cost_of(tables: Tables) -> str:
    """Wall time of a test and of its importances, over all runs; empty where no run says it."""
    timed = [table for table in tables if table.get("seconds")]
    if not timed:
        return ""
    seconds: Counter[str] = Counter()
    for table in timed:
        for facts in table.get("importances", {}).values():
            seconds[str(facts.get("title", facts.get("name", "")))] += facts.get("seconds", 0.0)
    runs = "" if len(timed) == 1 else f" in {len(timed)} runs"
    test = f"This test took {sum(table['seconds'] for table in timed):,.1f} s{runs}."
    notable = [f"{title} {time:,.1f} s" for title, time in seconds.most_common() if time >= 0.05]
    if not notable:
        return test
    listed = ", ".join(notable)
    return f"{test} Of the importances, which are computed once for all tests: {listed}."


MINUS = "−"


def number(value: float, digits: int = 3) -> str:
    """With a true minus sign, or `undefined`."""
    return "undefined" if np.isnan(value) else f"{value:.{digits}f}".replace("-", MINUS)


def capital(text: str) -> str:
    """The first letter large, the others as they are; a Greek one is a symbol and stays."""
    return text[:1].upper() + text[1:] if text[:1].isascii() else text


FILTERS: dict[str, Callable[..., str]] = {
    "plain": lambda value: f"{value:,.0f}" if value == round(value) else number(value, 2),
    "number": number,
    "capital": capital,
    "signed": lambda value: f"{value:+.3f}".replace("-", MINUS),
    "short": lambda value: f"{value:g}".replace("-", MINUS),  # no more digits than needed
    "count": lambda value: f"{value:,}",
    "p_value": lambda value: "p < 0.001" if value < 0.001 else f"p = {value:.2g}",
    # a number stays on one line with its percent sign
    "unbroken": lambda text: text.replace(" %", "\N{NO-BREAK SPACE}%"),
}


def by_claim(judgements: Sequence[Judgement], order: Sequence[str] = ()) -> list[list[Judgement]]:
    """The judgements on each claim, claims in this order and others as they come."""
    claims: dict[str, list[Judgement]] = {}
    for judgement in judgements:
        claims.setdefault(judgement.claim, []).append(judgement)
    places = {name: place for place, name in enumerate(order)}
    return [claims[name] for name in sorted(claims, key=lambda name: places.get(name, len(places)))]


@dataclass(frozen=True)
class ShownLine:
    """A line of a card, as the page shows it.

    Attributes:
        judgement: what was decided.
        details: other judgements on the same question that speak for the attention.
        advice: what an untested question lacks, and the command or setting that adds it.
    """

    judgement: Judgement
    details: Sequence[Judgement]
    advice: tuple[str, str]


@dataclass(frozen=True)
class ShownCard:
    """The card of a group of runs, as the page shows it."""

    group: Group
    answer: Summary
    lines: Sequence[ShownLine]


@dataclass(frozen=True)
class Question:
    """A column of the overview.

    Attributes:
        yes: what a yes says, in a few words.
        has_interval: whether its numbers are shown with their intervals.
    """

    yes: str
    has_interval: bool


@dataclass(frozen=True)
class OverviewRow:
    """A model in the overview.

    Attributes:
        group: the model's runs.
        accuracy: as `headline_rows` gives a cell.
        chip: may its attention be read?
        lines: its answers, in the order of the questions.
    """

    group: Group
    accuracy: dict[str, Any] | None
    chip: Chip
    lines: Sequence[Judgement]

    @property
    def chip_place(self) -> int:
        """Where the chip stands among all chips, from the best to the worst."""
        return list(Chip).index(self.chip)


@dataclass(frozen=True)
class Overview:
    """The answers of all models side by side.

    Attributes:
        questions: what was tested on at least one model; about the words that decide first.
        untested: what a yes to the other questions would say.
        rows: one per card, in their order.
    """

    questions: Sequence[Question]
    untested: Sequence[str]
    rows: Sequence[OverviewRow]


def overview_of(cards: Sequence[ShownCard], compared: pd.DataFrame) -> Overview:
    """The answers of some cards side by side.

    Args:
        cards: of all models.
        compared: headline numbers of all runs (`attnprobe.findings.headlines.compare`).
    """
    words_first = sorted(CARD, key=lambda line: line != WORDS)
    tested_places = set()
    for card in cards:
        tested_places |= {line.judgement.place for line in card.lines if line.judgement.is_tested}
    asked = [line for line in words_first if line.place in tested_places]
    untested = [line.yes for line in words_first if line.place not in tested_places]

    rows = []
    for card in cards:
        accuracy = accuracy_of(card.group, compared)
        judgement_at = {line.judgement.place: line.judgement for line in card.lines}
        judgements = [judgement_at[line.place] for line in asked]
        rows.append(OverviewRow(card.group, accuracy, card.answer.chip, judgements))
    questions = [Question(line.yes, has_interval=line == WORDS) for line in asked]
    return Overview(questions, untested, rows)


def accuracy_of(group: Group, compared: pd.DataFrame) -> dict[str, Any] | None:
    """The share of a group's decisions that are right, as `headline_rows` gives a cell."""
    is_accuracy = compared["metric"].isin(ACCURACY) & (compared["group"] == "overall")
    return _cell_of(compared[is_accuracy], group)


def shown_card(group: Group, card: Card) -> ShownCard:
    """A group's card: its answer, and its lines, each with its details and `advice`."""
    lines = []
    for line in card.lines:
        details = [
            judgement
            for judgement in card.judgements
            if not judgement.primary and judgement.speaks == "for" and judgement.place == line.place
        ]
        lines.append(ShownLine(line, details, advice(line, group.runs[0])))
    return ShownCard(group, card.summary, lines)


def advice(line: Judgement, run: Run) -> tuple[str, str]:
    """What an untested question lacks in this run, and the command or setting that adds it."""
    if line.reason.startswith("probe="):
        directory = shlex.quote(f"run={quoted(str(run.directory))}")
        return "This run lacks the probe. Add it:", f"attnprobe run {directory} '{line.reason}'"
    if line.reason == NEEDS_MARKS:
        lack = "These texts have no words that people marked. Name their column, in a new run:"
        return lack, line.reason
    is_pretrained = model_setting(run.manifest, "_target_").endswith(PRETRAINED)
    if line.criterion == LEAK.criterion and is_pretrained:
        lack = "It trains other kinds of model, and cannot be asked of a pretrained transformer."
        return lack, ""
    if is_taken_as_it_is(run):
        lack = "A checkpoint as it is has no second training. Fine-tune it:"
        return lack, f"training=finetune {line.reason}"
    return "It needs more trainings than these. Give the same command with:", line.reason


def show_study(
    study: StudyReading, place: int, folder: OwnFolder, groups: Sequence[Group], findings: Findings
) -> dict[str, Any]:
    """A study's part of the page; its figures are written as PDF too.

    Args:
        study: what it found.
        place: its number among the studies, from 1.
        folder: of the page's files.
        groups: of the report's runs.
        findings: what was decided on these.
    """
    section = f"study-{place}"
    group = group_of(study, groups)
    where = group.title if group is not None else f"{study.data}{DOT}{study.model}"
    judgements = [judgement for judgement in findings.judgements if judgement.section == section]
    if group is None:  # its runs are not in the report, and its findings on no card
        judgements = [
            replace(Judgement.of(finding), section=section, group=where)
            for finding in study.findings
        ]
    names = [finding.claim.name for finding in study.findings]
    return {
        "title": study.title,
        "where": where,
        "about": study.about,
        "sentences": [study.readings[name] for name in names if name in study.readings],
        "pictures": [
            picture(drawn, f"study{place}-{figure.name}", figure.caption, folder)
            for figure, drawn in draw_study(study)
        ],
        "claims": by_claim(judgements, names),
        "tables": [_study_table(caption, table) for caption, table in study.tables.items()],
        "notes": study.notes,
    }


def _study_table(caption: str, table: pd.DataFrame) -> dict[str, Any]:
    """A table of a study: each cell's text, and whether it is a number, which stands right."""
    compact = with_intervals(table)
    is_number = [table[name].dtype.kind in "iuf" for name in compact]
    rows = [list(zip(row, is_number, strict=True)) for row in compact.itertuples(index=False)]
    return {"caption": caption, "columns": [str(name) for name in compact], "rows": rows}


def about_runs(
    groups: Sequence[Group], runs: Sequence[Run], compared: pd.DataFrame
) -> dict[str, Any]:
    """Parts of the page that say where its numbers come from.

    Returns:
        `runs`: a line per group; `versions` of libraries; `data_checks` of each data set, by the
        first run that says so; `data_notes`.
    """
    versions = pd.DataFrame([run.manifest.get("versions", {}) for run in runs])
    checks: dict[str, tuple[str, list[str], list[CheckFacts]]] = {}
    for run in runs:
        section = run.manifest.get(SECTION, {})
        if section.get("checks"):
            notes = list(section.get("notes", []))
            checks.setdefault(run.data, (run.data, notes, list(section["checks"])))
    return {
        "runs": [_run_line(group, compared) for group in groups],
        "versions": [
            f"{library} {' or '.join(versions[library].dropna().astype(str).unique())}"
            for library in versions
        ],
        "data_checks": list(checks.values()),
        "data_notes": notes_of_data(runs),
    }


def _run_line(group: Group, compared: pd.DataFrame) -> dict[str, Any]:
    """A line of the table of runs."""
    accuracy = accuracy_of(group, compared)
    probes = dict.fromkeys(probe for run in group.runs for probe in run.numbers.probes)
    return {
        "data": group.data,
        "model": group.model,
        "note": group.note,
        "seeds": ", ".join(map(str, group.seeds)),
        "examples": 0 if accuracy is None else accuracy["n"],
        "accuracy": accuracy,
        "probes": [probe for probe in probes if probe not in ("performance", "training")],
        "finished": max(str(run.manifest.get("finished", ""))[:10] for run in group.runs),
    }


def notes_of_data(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """For each data set what was left out of it or cut.

    Runs of one data set that differ in this are told apart.
    """
    models: dict[str, dict[tuple[str, ...], list[str]]] = {}
    for run in runs:
        notes = tuple(data_notes(run.manifest.get("counts", {})))
        models.setdefault(run.data, {}).setdefault(notes, []).append(run.model)
    named_notes = []
    for data, models_by_notes in models.items():
        for notes, names in models_by_notes.items():
            title = data
            if len(models_by_notes) > 1:
                title = f"{data} ({', '.join(dict.fromkeys(names))})"
            named_notes.append((title, list(notes)))
    return named_notes
