"""What the page shows: its first screen, each probe's headline numbers beside the published ones,
cards, studies, runs."""

import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from attnprobe.core.metrics import Scale
from attnprobe.core.sanitise import percent, quoted
from attnprobe.evidence.published import REMARKS
from attnprobe.evidence.reading import Reading
from attnprobe.findings.groups import DOT, Group, Run
from attnprobe.findings.judgement import Card, Findings, Judgement, Summary
from attnprobe.findings.lines import LEAK, NEEDS_MARKS
from attnprobe.findings.mechanisms import model_setting
from attnprobe.findings.studies.base import StudyReading
from attnprobe.findings.table import group_of
from attnprobe.report.figures import Picture, picture
from attnprobe.report.studies.drawing import draw_study
from attnprobe.report.tables import with_intervals
from attnprobe.report.terminal import data_notes
from attnprobe.results.directory import SECTION
from attnprobe.results.pivot import class_of
from attnprobe.results.writer import OwnFolder


def sections(
    readings: Sequence[Reading],
    groups: Sequence[Group],
    compared: pd.DataFrame,
    drawn: Mapping[str, Sequence[Picture]],
    found: Findings,
) -> list[dict[str, Any]]:
    """The page's sections, one per probe that has something to show; the groups that have it are
    its columns. `compared`: `attnprobe.evidence.published.compare` of all runs; `found`: the
    findings."""
    made: list[dict[str, Any]] = []
    said = {""}
    for reading in readings:
        numbers = compared[compared["probe"] == reading.probe]
        there = set(map(str, numbers["run_id"].unique()))
        columns = [group for group in groups if any(run.run_id in there for run in group.runs)]
        of_runs = {run.run_id: (group, run) for group in columns for run in group.runs}
        # every number that a paper has too, in the order of the headlines, then of the groups
        order = list(dict.fromkeys(numbers["metric"]))
        places = list(of_runs)
        beside: list[Any] = numbers[numbers["published"].notna()].to_dict("records")
        for row in beside:
            group, run = of_runs[str(row["run_id"])]
            row |= {
                "title": row["title"].strip(),
                "where": group.title,
                "value": row["mean"],
                "about": "",
            }
            if row["group"] != "overall":
                row["about"] = (
                    f"predicted {class_of(row['group'], run.manifest.get('classes', []))}"
                )
        beside.sort(key=lambda row: places.index(str(row["run_id"])))
        beside.sort(key=lambda row: (order.index(row["metric"]), row["about"] != "", row["group"]))
        # what the manifest of each run says of the probe's table
        tables = [
            run.manifest.get("tables", {}).get(reading.probe, {}) for _, run in of_runs.values()
        ]
        notes = [one["notes"] for one in tables if one.get("notes")]
        noted = reading.noted(notes) if reading.noted is not None and notes else ""
        papers = dict.fromkeys(row["source"].split(",")[0] for row in beside)
        section = {
            "probe": reading.probe,
            "title": reading.title or reading.probe.replace("_", " ").capitalize(),
            "about": reading.about,
            "columns": columns,
            "rows": headline_rows(numbers, columns, tables),
            "published": beside,
            "remarks": [f"{paper}: {REMARKS[paper]}" for paper in papers],
            "pictures": [one for one in drawn[reading.probe] if one.source],
            "claims": by_claim(
                [one for one in found.judgements if one.section == f"test-{reading.probe}"],
                [one.name for one in reading.claims],
            ),
            "noted": "" if noted in said else noted,  # several probes use the same numbers
            "cost": cost_of(tables),
        }
        said.add(noted)
        if section["rows"] or section["pictures"] or section["claims"]:
            made.append(section)
    return made


Tables = Sequence[Mapping[str, Any]]


def headline_rows(
    numbers: pd.DataFrame, columns: Sequence[Group], tables: Tables
) -> list[dict[str, Any]]:
    """The headline numbers over all classes, a cell per group (None where it has none): with one
    run its value and interval, with several seeds their mean, the smallest and the largest.
    `inner`: the number belongs to the row above."""
    made = []
    for metric, own in numbers[numbers["group"] == "overall"].groupby(
        "metric", sort=False, observed=True
    ):
        cells: list[dict[str, Any] | None] = []
        for group in columns:
            rows = own[own["run_id"].astype(str).isin([run.run_id for run in group.runs])]
            values = rows["mean"].astype(float)  # NaN counts for nothing
            low, high = (
                rows[["low", "high"]].iloc[0] if len(rows) == 1 else (values.min(), values.max())
            )
            cell = {"value": values.mean(), "low": low, "high": high, "seeds": len(rows)}
            cells.append(cell if len(rows) else None)
        if any(cells):
            said = next(
                (
                    table["metrics"][metric]
                    for table in tables
                    if metric in table.get("metrics", {})
                ),
                None,
            )
            unit = ""
            title = str(own["title"].iloc[0])
            if said is not None:
                arrow = {True: "higher is better", False: "lower is better"}.get(
                    said.get("higher_is_better")
                )
                unit = "; ".join(filter(None, [Scale.of(said).words, arrow]))
            made.append(
                {
                    "title": title.strip(),
                    "unit": unit,
                    "inner": title.startswith(" "),
                    "cells": cells,
                }
            )
    return made


def cost_of(tables: Tables) -> str:
    """Wall time of a test and of the importances in it, over all runs; empty where no run says
    it."""
    timed = [table for table in tables if table.get("seconds")]
    if not timed:
        return ""
    taken: Counter[str] = Counter()
    for facts in (facts for table in timed for facts in table.get("importances", {}).values()):
        taken[str(facts.get("title", facts.get("name", "")))] += facts.get("seconds", 0.0)
    each = ", ".join(
        f"{title} {seconds:,.1f} s" for title, seconds in taken.most_common() if seconds >= 0.05
    )
    runs = "" if len(timed) == 1 else f" in {len(timed)} runs"
    test = f"This test took {sum(table['seconds'] for table in timed):,.1f} s{runs}."
    return (
        f"{test} Of the importances, which are computed once for all tests: {each}."
        if each
        else test
    )


MINUS = "−"
PRETRAINED = ".PretrainedClassifier"


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
    """What a question that was not tested lacks in this run, and the command or setting that adds
    it."""
    if line.reason.startswith("probe="):
        directory = shlex.quote(f"run={quoted(str(run.directory))}")
        return "This run lacks the probe. Add it:", f"attnprobe run {directory} '{line.reason}'"
    if line.reason == NEEDS_MARKS:
        return (
            "These texts have no words that people marked. Name their column, in a new run:",
            line.reason,
        )
    if line.criterion == LEAK.criterion and model_setting(run.manifest, "_target_").endswith(
        PRETRAINED
    ):
        return (
            "It trains other kinds of model, and cannot be asked of a pretrained transformer.",
            "",
        )
    if run.manifest.get("training", {}).get("training", {}).get("epochs") == 0:
        return (
            "A checkpoint as it is has no second training. Fine-tune it:",
            f"training=finetune {line.reason}",
        )
    return "It needs more trainings than these. Give the same command with:", line.reason


def show_study(
    study: StudyReading, place: int, folder: OwnFolder, groups: Sequence[Group], found: Findings
) -> dict[str, Any]:
    """A study's part of the page; its figures are written as PDF too. `place` counts the studies
    from 1."""
    group = group_of(study, groups)
    where = group.title if group is not None else f"{study.data}{DOT}{study.model}"
    judgements = [one for one in found.judgements if one.section == f"study-{place}"]
    if group is None:  # its runs are not in the report, and its findings on no card
        judgements = [
            replace(Judgement.of(finding), section=f"study-{place}", group=where)
            for finding in study.findings
        ]
    tables = []
    for caption, one in study.tables.items():
        compact = with_intervals(one)
        right = [one[name].dtype.kind in "iuf" for name in compact]
        rows = [[*zip(row, right, strict=True)] for row in compact.itertuples(index=False)]
        tables.append(
            {"caption": caption, "columns": [str(name) for name in compact], "rows": rows}
        )
    return {
        "title": study.title,
        "where": where,
        "about": study.about,
        "sentences": [
            study.readings[f.claim.name] for f in study.findings if f.claim.name in study.readings
        ],
        "pictures": [
            picture(drawn, f"study{place}-{figure.name}", figure.caption, folder)
            for figure, drawn in draw_study(study)
        ],
        "claims": by_claim(judgements, [one.claim.name for one in study.findings]),
        "tables": tables,
        "notes": study.notes,
    }


ENCODERS = {
    "LSTMEncoder": "LSTM, a recurrent model",
    "CNNEncoder": "CNN, a convolutional model",
    "AverageEncoder": "Bag of words (no context)",
    "TransformerEncoder": "Transformer, trained from scratch",
    "GRUEncoder": "GRU, a recurrent model",
    "NoEncoder": "Bag of words (no context)",
    "HierarchicalEncoder": "Hierarchical model (words within sentences)",
}
"""A class's name → what its models are called; other models go by their own name."""
MOST_CLASSES = 8
NO_TESTS = {"performance", "training", "teacher"}


def glance(card: ShownCard) -> dict[str, Any]:
    """The first screen of one group, by its first run with probes: its card (`cards`); model, data
    and quality in words."""
    runs = card.group.runs
    run = next((run for run in runs if set(run.numbers.probes) - NO_TESTS), runs[0])
    training = run.manifest.get("training", {})
    checks = run.manifest.get(SECTION, {}).get("checks", ())
    model = training.get("model", {})
    kind = model_setting(run.manifest, "encoder", "_target_").rpartition(".")[2]
    said = (
        f"{ENCODERS[kind]}, with {model.get('attention_name', '')} attention"
        if kind in ENCODERS
        else run.model
    )
    if model_setting(run.manifest, "_target_").endswith(PRETRAINED):
        layer = model.get("layer", -1)
        heads = model.get("heads")
        where = "the last layer" if layer == -1 else f"layer {layer}"
        which = "mean of all heads" if heads is None else f"heads {', '.join(map(str, heads))}"
        said = f"{run.model}, a pretrained transformer; attention of {where}, {which}"
    data = []
    path = training.get("data", {}).get("path")
    rows = sum(
        int(count.get("kept", 0))
        for name, count in run.manifest.get("counts", {}).items()
        if name != "vectors"
    )
    if rows:
        data.append(f"{rows:,} texts")
    if path is not None:
        name = Path(
            str(path.get("train", path.get("test", "")) if isinstance(path, Mapping) else path)
        ).name
        data.append(
            f"From {name}, column {training['data'].get('text')}, labels in {training['data'].get('label')}"
        )
    if names := [str(name) for name in run.manifest.get("classes", ())]:
        more = f" and {len(names) - MOST_CLASSES:,} more" if len(names) > MOST_CLASSES else ""
        data.append(f"{len(names)} classes: {', '.join(names[:MOST_CLASSES])}{more}")
    return {
        "group": card.group,
        "answer": card.answer,
        "model": said,
        "data": f"{run.data}: {'. '.join(data)}" if data else run.data,
        "good": "" if run.quality is None else f": right on {percent(run.quality.accuracy)}",
        "quality": "" if run.quality is None else run.quality.in_words,
        "warnings": [
            *filter(None, [run.warning, run.attention_on]),
            *(str(check["sentence"]) for check in checks if check["warns"]),
        ],
    }


def about_runs(
    groups: Sequence[Group], runs: Sequence[Run], compared: pd.DataFrame
) -> dict[str, Any]:
    """Parts of the page: a line of the table of `runs` per group, whose `span` is accuracy's
    interval, or its range over the seeds; `versions` of libraries; `data_checks` of each data set,
    by the first run that says so; `notes_of_data`."""
    lines = []
    accuracy = compared["metric"].isin(["accuracy", "exact_match"]) & (
        compared["group"] == "overall"
    )
    for group in groups:
        own = compared[compared["run_id"].isin([run.run_id for run in group.runs]) & accuracy]
        values = own["mean"].to_numpy(float)
        span = f"({number(values.min())} to {number(values.max())})" if len(own) > 1 else ""
        if len(own) == 1 and not np.isnan(own["low"].iloc[0]):
            span = f"[{number(own['low'].iloc[0])}, {number(own['high'].iloc[0])}]"
        probes = dict.fromkeys(probe for run in group.runs for probe in run.numbers.probes)
        lines.append(
            {
                "data": group.data,
                "model": group.model,
                "note": group.note,
                "seeds": ", ".join(map(str, group.seeds)),
                "examples": int(own["n"].max()) if len(own) else 0,
                "accuracy": float(values.mean()) if len(values) else np.nan,
                "span": span,
                "probes": [probe for probe in probes if probe not in ("performance", "training")],
                "finished": max(str(run.manifest.get("finished", ""))[:10] for run in group.runs),
            }
        )
    used = pd.DataFrame([run.manifest.get("versions", {}) for run in runs])
    checks: dict[str, tuple[str, list[str], list[dict[str, Any]]]] = {}
    for run in runs:
        section = run.manifest.get(SECTION, {})
        if section.get("checks"):
            checks.setdefault(
                run.data, (run.data, list(section.get("notes", [])), list(section["checks"]))
            )
    return {
        "runs": lines,
        "versions": [
            f"{name} {' or '.join(used[name].dropna().astype(str).unique())}" for name in used
        ],
        "data_checks": list(checks.values()),
        "data_notes": notes_of_data(runs),
    }


def notes_of_data(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """For each data set what was left out of it or cut; the runs of one data set that differ are
    told apart."""
    by_data: dict[str, dict[tuple[str, ...], list[str]]] = {}
    for run in runs:
        notes = tuple(data_notes(run.manifest.get("counts", {})))
        by_data.setdefault(run.data, {}).setdefault(notes, []).append(run.model)
    return [
        (data if len(kinds) == 1 else f"{data} ({', '.join(dict.fromkeys(models))})", list(notes))
        for data, kinds in by_data.items()
        for notes, models in kinds.items()
    ]
