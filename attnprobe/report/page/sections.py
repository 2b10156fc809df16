"""What the page shows of each probe: its headline numbers side by side, and the published ones next to ours."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from attnprobe.report.page.pictures import Picture
from attnprobe.report.page.runs import Group
from attnprobe.report.page.verdicts import JudgedClaim, in_words
from attnprobe.report.published import REMARKS
from attnprobe.report.reading import Reading
from attnprobe.report.wide import class_of
from attnprobe.results.metrics import Scale


@dataclass(frozen=True)
class Cell:
    """A number of one group. With one run: its value and interval, if it has one, over `n` examples; with several seeds:
    the mean of their values, and the smallest and the largest of them."""

    value: float
    low: float
    high: float
    n: int
    seeds: int


@dataclass(frozen=True)
class HeadlineRow:
    """One headline number across all groups; None where a group does not have it. `unit`: unit, range and direction.
    `inner`: it belongs to the row above."""

    title: str
    unit: str
    inner: bool
    cells: tuple[Cell | None, ...]


@dataclass(frozen=True)
class PublishedNumber:
    """A published number next to ours."""

    title: str
    group: str
    where: str
    seed: int
    value: float
    low: float
    high: float
    published: float
    difference: float
    source: str


@dataclass(frozen=True)
class Section:
    """A probe's part of the page. `columns` are the groups that have it."""

    probe: str
    title: str
    about: str
    columns: tuple[Group, ...]
    rows: tuple[HeadlineRow, ...]
    published: tuple[PublishedNumber, ...]
    remarks: tuple[str, ...]
    pictures: tuple[Picture, ...]
    judged_claims: tuple[JudgedClaim, ...]
    words: str
    noted: str
    cost: str

    @property
    def claims(self) -> list[tuple[Any, list[JudgedClaim]]]:
        """Each claim with its findings, in the reading's order."""
        by_name: dict[str, list[JudgedClaim]] = {}
        for judged_claim in self.judged_claims:
            by_name.setdefault(judged_claim.finding.claim.name, []).append(judged_claim)
        return [(judged_claims[0].finding.claim, judged_claims) for judged_claims in by_name.values()]


def heading(reading: Reading) -> str:
    """The title of a probe's part, made of its name where the reading has none.

    >>> heading(Reading("single_weight"))
    'Single weight'
    """
    return reading.title or reading.probe.replace("_", " ").capitalize()


def sections(
    readings: Sequence[Reading],
    groups: Sequence[Group],
    compared: pd.DataFrame,
    drawn: Mapping[str, Sequence[Picture]],
    judged_claims: Sequence[JudgedClaim],
) -> list[Section]:
    """The page's sections, one per probe that has something to show; `drawn`: its figures, by its name."""
    made: list[Section] = []
    said: set[str] = set()
    for reading in readings:
        own = [judged_claim for judged_claim in judged_claims if judged_claim.section == f"test-{reading.probe}"]
        embedded = [one for one in drawn[reading.probe] if one.drawing]
        one = section(reading, groups, compared, embedded, own, in_words(own))
        if one.noted in said:  # several probes use the same numbers
            one = replace(one, noted="")
        said.add(one.noted)
        if one.rows or one.pictures or one.judged_claims:
            made.append(one)
    return made


def section(
    reading: Reading,
    groups: Sequence[Group],
    compared: pd.DataFrame,
    drawn: Sequence[Picture],
    judged_claims: Sequence[JudgedClaim],
    words: str,
) -> Section:
    """A probe's part of the page.

    Args:
        reading: of the probe.
        groups: all of the report.
        compared: `attnprobe.report.published.compare` of all runs.
        drawn: its figures.
        judged_claims: its claims put to the test.
        words: two sentences on these.
    """
    numbers = compared[compared["probe"] == reading.probe]
    there = set(map(str, numbers["run_id"].unique()))
    columns = tuple(group for group in groups if any(run.run_id in there for run in group.runs))
    beside = published_rows(numbers, columns)
    papers = dict.fromkeys(row.source.split(",")[0] for row in beside)
    return Section(
        probe=reading.probe,
        title=heading(reading),
        about=reading.about,
        columns=columns,
        rows=tuple(matrix(reading, numbers, columns)),
        published=tuple(beside),
        remarks=tuple(f"{paper}: {REMARKS[paper]}" for paper in papers),
        pictures=tuple(drawn),
        judged_claims=tuple(judged_claims),
        words=words,
        noted=noted(reading, columns),
        cost=cost_of(reading.probe, columns),
    )


def noted(reading: Reading, columns: Sequence[Group]) -> str:
    """What the probe noted of its own working in these runs, in words; empty where there is nothing."""
    tables = [run.manifest.get("tables", {}).get(reading.probe, {}) for group in columns for run in group.runs]
    notes = [table["notes"] for table in tables if table.get("notes")]
    return reading.noted(notes) if reading.noted is not None and notes else ""


def matrix(reading: Reading, numbers: pd.DataFrame, columns: Sequence[Group]) -> list[HeadlineRow]:
    """The headline numbers over all classes, a column per group; numbers that no group has are left out."""
    overall = numbers[numbers["group"] == "overall"]
    records: list[Any] = overall.to_dict("records")
    by_key: dict[tuple[str, str], dict[str, Any]] = {(row["metric"], str(row["run_id"])): row for row in records}
    rows = []
    titles = dict(zip(overall["metric"], overall["title"], strict=True))
    for key in titles:
        cells = tuple(cell(by_key, key, group) for group in columns)
        if any(one is not None for one in cells):
            unit = unit_of(reading.probe, key, columns)
            rows.append(HeadlineRow(titles[key].strip(), unit, titles[key].startswith(" "), cells))
    return rows


def unit_of(probe: str, metric: str, columns: Sequence[Group]) -> str:
    """Unit, range and direction of a metric as the first run that says something of it declares them; empty where none does.
    A number that is made of a metric under another name has units of its own."""
    tables = [run.manifest.get("tables", {}).get(probe, {}) for group in columns for run in group.runs]
    said = next((table["metrics"][metric] for table in tables if metric in table.get("metrics", {})), None)
    if said is None:
        return ""
    scale = Scale.of(said)
    arrow = {True: "higher is better", False: "lower is better"}.get(said.get("higher_is_better"), "")
    return "; ".join(part for part in (scale.words, arrow) if part)


def cost_of(probe: str, columns: Sequence[Group]) -> str:
    """Wall time of a test and of the importances in it, over all runs; empty where no run says it.

    What an importance took counts once for the whole run, whichever test asked first.
    """
    tables = [run.manifest.get("tables", {}).get(probe, {}) for group in columns for run in group.runs]
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


def cell(by_key: Mapping[tuple[str, str], Mapping[str, Any]], metric: str, group: Group) -> Cell | None:
    """One group's number."""
    rows = [by_key[metric, run.run_id] for run in group.runs if (metric, run.run_id) in by_key]
    if not rows:
        return None
    if len(rows) == 1:
        row = rows[0]
        return Cell(row["mean"], row["low"], row["high"], int(row["n"]), 1)
    values = np.array([row["mean"] for row in rows], float)
    if np.isnan(values).all():
        return Cell(np.nan, np.nan, np.nan, 0, len(rows))
    return Cell(
        float(np.nanmean(values)),
        float(np.nanmin(values)),
        float(np.nanmax(values)),
        sum(int(row["n"]) for row in rows),
        len(rows),
    )


def published_rows(numbers: pd.DataFrame, columns: Sequence[Group]) -> list[PublishedNumber]:
    """Every number that a paper has too, in the order of the headlines, then of the groups."""
    titles = {run.run_id: group.title for group in columns for run in group.runs}
    classes = {run.run_id: run.manifest.get("classes", []) for group in columns for run in group.runs}
    rows: list[Any] = numbers[numbers["published"].notna()].to_dict("records")
    order = {metric: place for place, metric in enumerate(dict.fromkeys(numbers["metric"]))}
    places = {run.run_id: place for place, run in enumerate(run for group in columns for run in group.runs)}
    rows.sort(
        key=lambda row: (order[row["metric"]], row["group"] != "overall", row["group"], places[str(row["run_id"])])
    )
    return [
        PublishedNumber(
            title=row["title"].strip(),
            group=""
            if row["group"] == "overall"
            else f"predicted {class_of(row['group'], classes[str(row['run_id'])])}",
            where=titles[str(row["run_id"])],
            seed=int(row["seed"]),
            value=row["mean"],
            low=row["low"],
            high=row["high"],
            published=row["published"],
            difference=row["difference"],
            source=row["source"],
        )
        for row in rows
    ]
