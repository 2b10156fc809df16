"""What the page shows of each probe: its headline numbers side by side, and the published ones next to ours."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from attnprobe.core.metrics import Scale
from attnprobe.evidence.published import REMARKS
from attnprobe.evidence.reading import Reading
from attnprobe.findings.groups import DOT, Group
from attnprobe.findings.studies.base import StudyReading
from attnprobe.findings.table import card, group_of
from attnprobe.findings.verdicts import row_of
from attnprobe.report.figures import Picture, picture
from attnprobe.report.tables import with_intervals
from attnprobe.results.pivot import class_of
from attnprobe.results.writer import OwnFolder


def sections(
    readings: Sequence[Reading],
    groups: Sequence[Group],
    compared: pd.DataFrame,
    drawn: Mapping[str, Sequence[Picture]],
    table: pd.DataFrame,
) -> list[dict[str, Any]]:
    """The page's sections, one per probe that has something to show.

    Args:
        readings: of the probes.
        groups: the runs; those that have a probe are the columns of its section.
        compared: `attnprobe.evidence.published.compare` of all runs.
        drawn: each probe's figures.
        table: the findings.
    """
    made: list[dict[str, Any]] = []
    said: set[str] = set()
    for reading in readings:
        numbers = compared[compared["probe"] == reading.probe]
        there = set(map(str, numbers["run_id"].unique()))
        columns = [group for group in groups if any(run.run_id in there for run in group.runs)]
        claims = by_claim(table[table["section"] == f"test-{reading.probe}"], [claim.name for claim in reading.claims])
        beside = published_rows(numbers, columns)
        papers = dict.fromkeys(row["source"].split(",")[0] for row in beside)
        # what the manifest of each run says of the probe's table
        tables = [run.manifest.get("tables", {}).get(reading.probe, {}) for group in columns for run in group.runs]
        notes = [one["notes"] for one in tables if one.get("notes")]
        noted = reading.noted(notes) if reading.noted is not None and notes else ""
        section = {
            "probe": reading.probe,
            "title": reading.title or reading.probe.replace("_", " ").capitalize(),
            "about": reading.about,
            "columns": columns,
            "rows": headline_rows(numbers, columns, tables),
            "published": beside,
            "remarks": [f"{paper}: {REMARKS[paper]}" for paper in papers],
            "pictures": [one for one in drawn[reading.probe] if one.source],
            "claims": claims,
            "words": in_words(claims),
            "noted": "" if noted in said else noted,  # several probes use the same numbers
            "cost": cost_of(tables),
        }
        said.add(noted)
        if section["rows"] or section["pictures"] or claims:
            made.append(section)
    return made


Tables = Sequence[Mapping[str, Any]]


def headline_rows(numbers: pd.DataFrame, columns: Sequence[Group], tables: Tables) -> list[dict[str, Any]]:
    """The headline numbers over all classes, a cell per group (None where it has none); numbers that no group has are left
    out. With one run a cell is its value and interval; with several seeds the mean of their values, the smallest and the
    largest. `inner`: the number belongs to the row above."""
    overall = numbers[numbers["group"] == "overall"]
    records: list[Any] = overall.to_dict("records")
    by_key: dict[tuple[str, str], dict[str, Any]] = {(row["metric"], str(row["run_id"])): row for row in records}
    made = []
    for metric, title in dict(zip(overall["metric"], overall["title"], strict=True)).items():
        cells: list[dict[str, Any] | None] = []
        for group in columns:
            rows = [by_key[metric, run.run_id] for run in group.runs if (metric, run.run_id) in by_key]
            values = pd.Series([row["mean"] for row in rows], dtype=float)  # NaN counts for nothing
            low, high = (rows[0]["low"], rows[0]["high"]) if len(rows) == 1 else (values.min(), values.max())
            cell = {"value": values.mean(), "low": low, "high": high, "seeds": len(rows)}
            cells.append(cell if rows else None)
        if any(cells):
            unit = unit_of(metric, tables)
            made.append({"title": title.strip(), "unit": unit, "inner": title.startswith(" "), "cells": cells})
    return made


def unit_of(metric: str, tables: Tables) -> str:
    """Unit, range and direction of a metric as the first run that says something of it declares them; empty where none does.
    A number that is made of a metric under another name has units of its own."""
    said = next((table["metrics"][metric] for table in tables if metric in table.get("metrics", {})), None)
    if said is None:
        return ""
    scale = Scale.of(said)
    arrow = {True: "higher is better", False: "lower is better"}.get(said.get("higher_is_better"), "")
    return "; ".join(part for part in (scale.words, arrow) if part)


def cost_of(tables: Tables) -> str:
    """Wall time of a test and of the importances in it, over all runs; empty where no run says it.

    What an importance took counts once for the whole run, whichever test asked first.
    """
    timed = [table for table in tables if table.get("seconds")]
    if not timed:
        return ""
    by_title: dict[str, float] = {}
    for facts in (facts for table in timed for facts in table.get("importances", {}).values()):
        title = str(facts.get("title", facts.get("name", "")))
        by_title[title] = by_title.get(title, 0.0) + float(facts.get("seconds", 0.0))
    costly = sorted(((seconds, title) for title, seconds in by_title.items() if seconds >= 0.05), reverse=True)
    runs = "" if len(timed) == 1 else f" in {len(timed)} runs"
    test = f"This test took {sum(table['seconds'] for table in timed):,.1f} s{runs}"
    if not costly:
        return f"{test}."
    each = ", ".join(f"{title} {seconds:,.1f} s" for seconds, title in costly)
    return f"{test}. Of the importances, which are computed once for all tests: {each}."


def published_rows(numbers: pd.DataFrame, columns: Sequence[Group]) -> list[dict[str, Any]]:
    """Every number that a paper has too, in the order of the headlines, then of the groups."""
    places = {run.run_id: place for place, run in enumerate(run for group in columns for run in group.runs)}
    groups = {run.run_id: (group, run.manifest.get("classes", [])) for group in columns for run in group.runs}
    order = {metric: place for place, metric in enumerate(dict.fromkeys(numbers["metric"]))}
    rows: list[Any] = numbers[numbers["published"].notna()].to_dict("records")
    rows.sort(
        key=lambda row: (order[row["metric"]], row["group"] != "overall", row["group"], places[str(row["run_id"])])
    )
    made = []
    for row in rows:
        group, classes = groups[str(row["run_id"])]
        by_class = "" if row["group"] == "overall" else f"predicted {class_of(row['group'], classes)}"
        made.append(
            row | {"title": row["title"].strip(), "where": group.title, "value": row["mean"], "group": by_class}
        )
    return made


MINUS = "−"
NO_BREAK = "\N{NO-BREAK SPACE}"


def number(value: float, digits: int = 3) -> str:
    """Three digits after the point.

    >>> number(-0.12345), number(float("nan"))
    ('−0.123', 'undefined')
    """
    return "undefined" if np.isnan(value) else f"{value:.{digits}f}".replace("-", MINUS)


def capital(text: str) -> str:
    """The first letter large, the others as they are; a Greek one is a symbol and stays.

    >>> capital("does Jain's rank agree?"), capital("τ of two measures")
    ("Does Jain's rank agree?", 'τ of two measures')
    """
    return text[:1].upper() + text[1:] if text[:1].isascii() else text


FILTERS: dict[str, Callable[..., str]] = {
    "number": number,
    "capital": capital,
    "signed": lambda value: f"{value:+.3f}".replace("-", MINUS),
    "short": lambda value: f"{value:g}".replace("-", MINUS),  # no more digits than needed
    "count": lambda value: f"{value:,}",
    "p_value": lambda value: "p < 0.001" if value < 0.001 else f"p = {value:.2g}",
    "unbroken": lambda text: text.replace(" %", f"{NO_BREAK}%"),  # a number stays on one line with its percent sign
}
"""Numbers and words as the templates write them."""


def by_claim(rows: pd.DataFrame, order: Sequence[str] = ()) -> list[list[Any]]:
    """The findings on each claim, claims in this order and others as they come."""
    groups = {str(name): [*own.itertuples(index=False)] for name, own in rows.groupby("claim", sort=False)}
    names = [*(name for name in order if name in groups), *(name for name in groups if name not in order)]
    return [groups[name] for name in names]


def in_words(claims: Sequence[Sequence[Any]]) -> str:
    """One sentence on one test's claims: how many say yes, and how many do not. What they mean for the attention is on the
    card, after the questions that come first."""
    if not claims:
        return ""
    rows = [row for own in claims for row in own]
    models = len({row.group for row in rows})
    counts = Counter(row.interval_verdict for row in rows)
    across = f" on {models} models (data set × model), {len(rows)} tests in all" if models > 1 else ""
    put = f"{len(claims)} {'claim was' if len(claims) == 1 else 'claims were'} put to the test{across}"
    return f"{put}: {listed([f'{count} × {verdict}' for verdict, count in counts.items()])}."


def listed(parts: Sequence[str]) -> str:
    """Parts as a list in words.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else "".join(parts)


def cards(groups: Sequence[Group], table: pd.DataFrame) -> list[dict[str, Any]]:
    """Each group's card: its first sentence, and its lines, each with its name and the findings that are its details."""
    made = []
    for group in groups:
        own = table[table["group"] == group.title]
        details = [*own[~own["primary"] & (own["speaks"] == "for")].itertuples(index=False)]
        lines = card(own)
        shown = [
            (name, line, [one for one in details if (one.criterion, one.level) == (line.criterion, line.level)])
            for name, line in zip(lines.index, lines.itertuples(index=False), strict=True)
        ]
        made.append({"group": group, "sentence": own["sentence"].iloc[0], "lines": shown})
    return made


def show_study(
    study: StudyReading, place: int, folder: OwnFolder, groups: Sequence[Group], table: pd.DataFrame
) -> dict[str, Any]:
    """A study's part of the page; its figures are written as PDF too. `place` counts the studies from 1."""
    group = group_of(study, groups)
    where = group.title if group is not None else f"{study.data}{DOT}{study.model}"
    if group is None:  # its runs are not in the report, and its findings on no card
        table = pd.DataFrame([row_of(f"study-{place}", finding) for finding in study.findings]).assign(group=where)
    return {
        "title": study.title,
        "where": where,
        "about": study.about,
        "sentences": [study.readings[f.claim.name] for f in study.findings if f.claim.name in study.readings],
        "pictures": [picture(figure, f"study{place}-{name}", said, folder) for name, said, figure in study.figures],
        "claims": by_claim(table[table["section"] == f"study-{place}"], [one.claim.name for one in study.findings]),
        "tables": [show_table(caption, one) for caption, one in study.tables.items()],
        "notes": study.notes,
    }


def show_table(caption: str, table: pd.DataFrame) -> dict[str, Any]:
    """A DataFrame's cells as text, each with whether it is a number."""

    def shown(value: Any) -> tuple[str, bool]:
        if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
            return str(value), False
        if np.isnan(float(value)):
            return "", True
        return (f"{value:,}" if isinstance(value, (int, np.integer)) else number(float(value))), True

    compact = with_intervals(table)
    columns = [
        [(said, True) for said in compact[name]] if f"{name} low" in table else [shown(value) for value in table[name]]
        for name in compact
    ]
    rows = [list(row) for row in zip(*columns, strict=True)]
    return {"caption": caption, "columns": [str(name) for name in compact], "rows": rows}
