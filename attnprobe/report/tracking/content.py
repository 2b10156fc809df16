"""What of a finished run goes to W&B: numbers, pictures and tables, each with a fingerprint of its content."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import wandb

from attnprobe.report.claims import findings
from attnprobe.report.numbers import Numbers, StoredNumbers, numbers_of
from attnprobe.report.quality import quality_of
from attnprobe.report.reading import present
from attnprobe.report.terminal import headline
from attnprobe.report.tracking.examples import example_table
from attnprobe.report.verdicts import NOT_TESTED, first_sentence, mechanism_of, verdict_rows, verdicts_of
from attnprobe.report.wide import RUN, class_of, per_example
from attnprobe.report.word_tables import words_of
from attnprobe.results.directory import RunDirectory
from attnprobe.results.metrics import Scale
from attnprobe.results.schema import WHOLE_SPLIT

ROWS = 10_000
"""Rows of a probe's table: W&B shows no more."""
LEFT_OUT = "left_out"
"""Key of a table's `attrs` with the number of its examples that it does not show."""
Logged = dict[str, tuple[str, Callable[[], Any]]]
"""What is to be logged: by name, a fingerprint of its content, and a function that makes it."""


def numbers(results: Numbers) -> Logged:
    """The headline numbers."""
    return {name: (repr(value), partial(float, value)) for name, value in headline(results).items()}


def pictures(figures: Sequence[Path]) -> Logged:
    """The figures, as PNG."""
    return {
        f"figures/{path.stem}": (digest(path.read_bytes()), partial(wandb.Image, str(path)))
        for path in figures
        if path.suffix == ".png"
    }


def as_table(table: pd.DataFrame, heatmaps: Sequence[str]) -> tuple[str, Callable[[], Any]]:
    """A table, its heat maps as HTML."""
    return digest(table.to_csv(index=False).encode("utf-8", "replace")), partial(wandb_table, table, heatmaps)


def wandb_table(table: pd.DataFrame, heatmaps: Sequence[str]) -> wandb.Table:
    """W&B's own table of the same cells; those of some columns are heat maps."""
    if not heatmaps:
        return wandb.Table(dataframe=table)
    columns = [[html(cell) for cell in table[name]] if name in heatmaps else table[name].tolist() for name in table]
    return wandb.Table(columns=[*map(str, table)], data=[list(row) for row in zip(*columns, strict=True)])


def html(cell: str) -> wandb.Html | None:
    """A heat map as W&B shows it; None for an empty cell."""
    # inject would have every cell fetch a stylesheet of W&B's
    return wandb.Html(cell, inject=False, data_is_not_path=True) if cell else None


def digest(content: bytes) -> str:
    """Ten hexadecimal digits that stand for this content."""
    return hashlib.sha256(content).hexdigest()[:10]


def tables(
    run_dir: Path, results: StoredNumbers, compared: pd.DataFrame, *, log_text: bool, examples: int
) -> Iterator[tuple[str, pd.DataFrame]]:
    """The run's tables with their names: one per probe, verdicts and findings, units and ranges, chosen examples, and
    published versus measured."""
    for probe in sorted(results.probes):
        table = probe_table(results, probe)
        if not table.empty:
            yield f"tables/{probe}", table
    yield "tables/verdicts", verdict_table(run_dir, log_text=log_text)
    yield "tables/findings", finding_rows(results)
    yield "tables/metrics", metric_table(RunDirectory(run_dir).manifest()["tables"])
    split = results.split
    if split is not None:
        chosen = example_table(results, RunDirectory(run_dir), split, most=examples, log_text=log_text)
        yield f"tables/examples_{split}", chosen
        global_view = words_of(RunDirectory(run_dir), results, split) if log_text else pd.DataFrame()
        if len(global_view):
            yield "tables/word_table", global_view
    names = class_names(run_dir, log_text=log_text)
    groups = [group if group == "overall" else class_of(group, names) for group in compared["group"]]
    yield "tables/published_versus_measured", compared.drop(columns=list(RUN)).assign(group=groups)


def finding_rows(results: Numbers) -> pd.DataFrame:
    """Every claim of the probes put to the test: its sentence, what is asked for, its number with interval, and whether it
    holds."""
    lines = [
        {"claim": one.claim.name, "criterion": one.claim.criterion, "level": one.claim.level}
        | {"statement": one.claim.statement, "quantity": one.claim.quantity, "source": one.claim.source}
        | {"holds": one.verdict, "value": one.evidence.value, "low": one.evidence.low, "high": one.evidence.high}
        | {"n": one.evidence.n, "asked for": one.claim.threshold + one.claim.smallest}
        for reading in present(results)
        for one in findings(reading.claims, results, reading.probe)
    ]
    return pd.DataFrame(lines)


def sentence(run_dir: Path, *, log_text: bool) -> str:
    """What a reader of the run has to know first."""
    known = mechanism_of(RunDirectory(run_dir).manifest())
    return unnamed(run_dir, first_sentence(verdicts_of(run_dir), mechanism=known), log_text=log_text)


def verdict_table(run_dir: Path, *, log_text: bool) -> pd.DataFrame:
    """The lines of the run's card, with what is asked and why something is not decided."""
    table = verdict_rows(verdicts_of(run_dir))
    return table.assign(reason=[unnamed(run_dir, reason, log_text=log_text) for reason in table["reason"]])


def unnamed(run_dir: Path, text: str, *, log_text: bool) -> str:
    """A sentence on the classifier; without words, one that says the same class of every text is not quoted with its name."""
    measured = None if log_text else quality_of(run_dir)
    return text if measured is None or measured.only is None else text.replace(measured.only, "name not logged")


def metric_table(tables: Mapping[str, Any]) -> pd.DataFrame:
    """Unit, range, step and direction of every metric, by the manifest's `tables`."""
    lines = [
        {"metric": f"{probe}/{metric}", "unit": said["unit"], "range": Scale.of(said).range, "step": said["step"]}
        | {"better": {True: "higher", False: "lower"}.get(said.get("higher_is_better"), "")}
        for probe, entry in tables.items()
        for metric, said in entry.get("metrics", {}).items()
    ]
    return pd.DataFrame(lines, columns=["metric", "unit", "range", "step", "better"])


def curve(name: str, classes: Sequence[str]) -> str:
    """The name of a training curve; that of a class's F1 has the class's name, where there are names.

    >>> curve("validation/f1_1", ["no", "yes/maybe"]), curve("validation/loss", ["no"]), curve("validation/f1_1", [])
    ('validation/f1_yes-maybe', 'validation/loss', 'validation/f1_1')
    """
    start, mark, number = name.rpartition("/f1_")
    if not mark or not number.isdecimal() or int(number) >= len(classes):
        return name
    return start + mark + section_free(classes[int(number)])


def section_free(name: str) -> str:
    """A name without slashes, which W&B takes for sections."""
    return name.replace("/", "-")


def class_names(run_dir: Path, *, log_text: bool) -> list[str]:
    """The names of the run's classes; none where they must not leave the machine."""
    return [str(name) for name in RunDirectory(run_dir).manifest().get("classes", [])] if log_text else []


def summary_of(run_dir: Path, compared: pd.DataFrame, *, log_text: bool) -> dict[str, Any]:
    """The run's summary: headline numbers, what the classifier has learnt, and verdicts."""
    numbers = scalars(compared, class_names(run_dir, log_text=log_text))
    return numbers | learnt_of(run_dir, log_text=log_text) | verdicts_by_name(run_dir)


def scalars(compared: pd.DataFrame, classes: Sequence[str] = ()) -> dict[str, float]:
    """The summary's numbers: every headline, with its interval and the published value where there are such.

    A predicted class is called by its name in `classes`, a slash in it (which W&B takes for a section) made a dash; by its
    number (`class_1`) where there are no names.
    """
    numbers: dict[str, float] = {}
    rows: list[Any] = compared.to_dict("records")
    for row in rows:
        name = f"{row['probe']}/{row['metric']}"
        if row["group"] != "overall":
            name += "/" + (section_free(class_of(row["group"], classes)) if classes else row["group"])
        parts = {"": row["mean"], "_low": row["low"], "_high": row["high"], "_published": row["published"]}
        numbers |= {name + end: float(value) for end, value in parts.items() if end == "" or not pd.isna(value)}
    return numbers


def learnt_of(run_dir: Path, *, log_text: bool) -> dict[str, float | str]:
    """The share of the largest class, with which accuracy is to be compared, and a warning where it is no better. Without
    words the warning does not name the class."""
    measured = quality_of(run_dir)
    if measured is None:
        return {}
    shown = measured if log_text or measured.only is None else replace(measured, only="name not logged")
    return {"performance/majority": measured.majority, "performance/warning": shown.warning}


def verdicts_by_name(run_dir: Path) -> dict[str, str | float]:
    """Every line of the run's card that was tested: `verdict/erasure/word` = `meets`, and its number with the interval's ends
    as `…_value`, `…_low`, `…_high`."""
    verdicts: dict[str, str | float] = {}
    for line in verdicts_of(run_dir):
        if line.state == NOT_TESTED:
            continue
        name = f"verdict/{line.criterion}/{line.level}"
        verdicts[name] = line.state
        ends = {"value": line.value, "low": line.low, "high": line.high}
        verdicts |= {f"{name}_{end}": number for end, number in ends.items() if not pd.isna(number)}
    return verdicts


def probe_table(results: pd.DataFrame | Numbers, probe: str, most: int = ROWS) -> pd.DataFrame:
    """One row per example of a run, the first ones by id, and a column per metric of one probe; numbers with a step (a
    weight per position) are left to the run directory. Whole-split metrics are headlines, not rows.

    Returns:
        The table; its `attrs` say under `LEFT_OUT` how many examples are not in it.
    """
    numbers, columns, every = numbers_of(results), {}, np.zeros(0, np.int64)
    for metric in numbers.metrics(probe):  # one by one: of a large split they do not fit into memory together
        rows = numbers.rows(probe, (metric,))
        rows = rows[rows["example_id"] != WHOLE_SPLIT]
        ids = np.unique(rows["example_id"].to_numpy())
        every = ids if np.array_equal(every, ids) else np.union1d(every, ids)
        if len(ids):
            some = rows[rows["example_id"] <= ids[:most][-1]]
            columns[metric] = per_example(some, probe, (metric,)).set_index("example_id")[metric]
    table = pd.DataFrame(columns).sort_index().head(most).reset_index(names="example_id")
    table.attrs[LEFT_OUT] = max(0, len(every) - most)
    return table
