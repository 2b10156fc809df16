"""A finished run directory on Weights & Biases: numbers, tables, figures and files, read from the run's own files."""

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import wandb

from attnprobe.errors import UserError
from attnprobe.report.figures.draw import draw_figures
from attnprobe.report.numbers import Numbers, StoredNumbers, numbers_of, read_numbers
from attnprobe.report.published import compare
from attnprobe.report.quality import quality_of
from attnprobe.report.terminal import headline
from attnprobe.report.tracking.artifacts import model_artifact, results_artifact
from attnprobe.report.tracking.examples import example_table, is_heatmap
from attnprobe.report.verdicts import NOT_TESTED, verdicts_of
from attnprobe.report.wide import RUN, class_of, per_example
from attnprobe.results.directory import RunDirectory
from attnprobe.results.metrics import Scale
from attnprobe.results.saved import read_settings
from attnprobe.results.schema import WHOLE_SPLIT

Mode = Literal["online", "offline", "disabled"]
EXAMPLES = 200
"""Rows of the examples' table, unless said otherwise."""
LOGGED = "logged"
"""In the run's summary: a fingerprint of everything that was logged, so that nothing is logged twice."""
NO_PROBES = ("training", "performance")
"""Tables that every run has."""
ROWS = 10_000
"""Rows of a probe's table: W&B shows no more."""
LEFT_OUT = "left_out"
"""Key of a table's `attrs` with the number of its examples that it does not show."""


def log_run(
    run_dir: str | os.PathLike,
    *,
    project: str,
    entity: str | None = None,
    mode: Mode = "online",
    group: str | None = None,
    log_text: bool = True,
    log_model: bool = True,
    examples: int = EXAMPLES,
) -> None:
    """Send one finished run to W&B; arguments as in `open_run` and `log_results`.

    Raises:
        UserError: no finished run there, or W&B cannot be reached or does not know the user.
    """
    run_dir = Path(run_dir)
    RunDirectory(run_dir).manifest()
    found = read_numbers(run_dir).runs
    if not found:
        raise UserError(f"the tables of {run_dir} hold no numbers: nothing to log. Run it with at least one probe")
    identity = {name: str(found[0][name]) for name in RUN}
    where: dict[str, Any] = {"project": project, "entity": entity, "mode": mode, "group": group}
    run = open_run(identity, [], read_config(run_dir), run_dir, taken_up=True, **where)
    try:
        log_results(run, run_dir, log_text=log_text, log_model=log_model, examples=examples)
    finally:
        # without it the next run of this process would go into this one
        wandb.finish()


def open_run(
    identity: Mapping[str, Any],
    probes: Sequence[str],
    config: dict[str, Any],
    directory: Path,
    *,
    project: str,
    entity: str | None = None,
    mode: Mode = "online",
    group: str | None = None,
    taken_up: bool = False,
) -> "wandb.Run":
    """Start a W&B run; the caller ends it with `wandb.finish()`.

    Its id is the run's id, so that the same training is the same W&B run, whenever and from wherever it is logged. Its
    name is the run's id and the probes. Tags: data, model, seed, probes. Group and job type: see `group`.

    Args:
        identity: `run_id`, `experiment`, `data`, `model`, `seed` of the run.
        probes: names of its probes; those that the directory's manifest lists join them.
        config: the resolved settings.
        directory: the run's directory; W&B's own files go into its folder `wandb/`.
        project: W&B project.
        entity: W&B user or team; None takes the account's default.
        mode: `offline` writes files that `wandb sync` sends later; `disabled` does nothing but check.
        group: W&B group; None takes the environment's WANDB_RUN_GROUP, and the experiment's name where that is not set
            either. Neither depends on data, model, seed or time, so the jobs of a sweep, of the same sweep taken up
            again, and of a later one with more seeds are in one group. The job type, `data-model`, puts the seeds of a
            data set and model together.
        taken_up: the training is finished, and what W&B has of it is added to. Otherwise (W&B holds the beginning of a
            training that was killed) it is overwritten.

    Raises:
        UserError: W&B cannot be reached or does not know the user.
    """
    named = {name: str(value) for name, value in identity.items()}
    done = (RunDirectory(directory).read_manifest() or {}).get("tables", {})
    probes = [name for name in dict.fromkeys([*done, *probes]) if name not in NO_PROBES]
    try:
        return wandb.init(
            project=project,
            entity=entity,
            mode=mode,
            dir=directory,
            id=identifier(named["run_id"]),
            resume="allow" if mode == "online" and taken_up else None,
            name=limited(": ".join(filter(None, [named["run_id"], ", ".join(probes)])), 128),
            group=limited(group or os.environ.get("WANDB_RUN_GROUP") or named["experiment"], 128),
            job_type=limited(f"{named['data']}-{named['model']}", 64),
            tags=tags(named, probes),
            config=config,
            reinit="finish_previous",
            settings=wandb.Settings(console="off", silent=True),
        )
    except wandb.Error as error:
        raise UserError(
            f"W&B did not take the run ({error}). Log in with `wandb login`, or keep it for later with "
            f"logger.mode=offline and send it with `wandb sync {directory}/wandb/offline-run-*`"
        ) from error


def log_results(
    run: "wandb.Run", run_dir: Path, *, log_text: bool = True, log_model: bool = True, examples: int = EXAMPLES
) -> None:
    """Log what a finished run found.

    - headline numbers as scalars and summary (with their interval's ends and the published value as `<number>_low`,
      `_high`, `_published`); the training's curves, unless they were logged while training
    - a `wandb.Table` per probe with one row per example (the first 10,000; `<table>_rows_left_out` of the summary says how
      many more there are), one of every metric's unit, range and direction, one of chosen examples with heat maps, and
      published versus measured; the figures as images
    - two artifacts: the checkpoint (type `model`) and the long tables (type `results`). Online the checkpoint is an
      input of this W&B run and the results its output, so that the lineage leads from one to the other. W&B declares no
      inputs offline; there both are outputs, and the results' metadata name the checkpoint and its SHA-256, as always.

    What was logged before and has not changed is not logged again. What an earlier offline run of this directory holds
    and nobody has sent is in this one too, so that one is removed.

    Args:
        run: an open W&B run.
        run_dir: the finished run's directory.
        log_text: False leaves out all words of the data: texts, tokens, vocabulary, the names of the classes, and every
            figure that shows texts.
        log_model: False leaves out the checkpoint.
        examples: rows of the examples' table (`attnprobe.report.tracking.examples.choose` says which).

    Raises:
        UserError: a number of examples below 0.
    """
    if examples < 0:
        raise UserError(f"logger.examples={examples}: expected how many examples to show, 0 or more, for example 200")
    results = read_numbers(run_dir)
    if "train/loss" not in dict(run.summary):
        log_curves(run, results)
    with tempfile.TemporaryDirectory() as folder:
        # W&B copies an image when it is logged, so the folder must last until then
        figures = draw_figures(run_dir, Path(folder, "figures"), words=log_text)
        found = numbers(results) | pictures(figures)
        compared = compare(results)
        left_out: dict[str, int] = {}
        for name, table in tables(run_dir, results, compared, log_text=log_text, examples=examples):
            found[name] = as_table(table, [name for name in map(str, table) if is_heatmap(name, results)])
            left_out |= {f"{name}_rows_left_out": count} if (count := table.attrs.get(LEFT_OUT)) else {}
        known = dict(run.summary.get(LOGGED) or {})
        fresh = {name: make() for name, (print_, make) in found.items() if known.get(name) != print_}
        if fresh:
            run.log(fresh)
        learnt = learnt_of(run_dir, log_text=log_text)
        classes = class_names(run_dir, log_text=log_text)
        logged = {name: print_ for name, (print_, _) in found.items()}
        run.summary.update(
            scalars(compared, classes) | learnt | verdicts_by_name(run_dir) | left_out | {LOGGED: logged}
        )
        if log_model:
            checkpoint = model_artifact(run_dir, log_text=log_text)
            (run.log_artifact if run.offline or run.disabled else run.use_artifact)(checkpoint)
        own = Path(folder, "results")
        own.mkdir()
        run.log_artifact(results_artifact(run_dir, own, log_text=log_text))
    forget_unsent(run, run_dir)


def log_curves(run: "wandb.Run", results: Numbers) -> None:
    """The training's metrics by epoch, under the names that they have while training."""
    curves = results.rows("training", stepped=("*",))
    run.define_metric("train/*", step_metric="epoch")
    run.define_metric("validation/*", step_metric="epoch")
    for epoch, rows in curves.groupby("step", sort=True):
        values = zip(rows["metric"].astype(str), rows["value"], strict=True)
        run.log({"epoch": epoch} | {name.replace("_", "/", 1): float(value) for name, value in values})


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
    """The run's tables with their names: one per probe, units and ranges, chosen examples, and published versus measured."""
    for probe in sorted(results.probes):
        table = probe_table(results, probe)
        if not table.empty:
            yield f"tables/{probe}", table
    yield "tables/metrics", metric_table(RunDirectory(run_dir).manifest()["tables"])
    split = results.split
    if split is not None:
        chosen = example_table(results, RunDirectory(run_dir), split, most=examples, log_text=log_text)
        yield f"tables/examples_{split}", chosen
    names = class_names(run_dir, log_text=log_text)
    groups = [group if group == "overall" else class_of(group, names) for group in compared["group"]]
    yield "tables/published_versus_measured", compared.drop(columns=list(RUN)).assign(group=groups)


def metric_table(tables: Mapping[str, Any]) -> pd.DataFrame:
    """Unit, range, step and direction of every metric, by the manifest's `tables`."""
    lines = [
        {"metric": f"{probe}/{metric}", "unit": said["unit"], "range": Scale.of(said).range, "step": said["step"]}
        | {"better": {True: "higher", False: "lower"}.get(said.get("higher_is_better"), "")}
        for probe, entry in tables.items()
        for metric, said in entry.get("metrics", {}).items()
    ]
    return pd.DataFrame(lines, columns=["metric", "unit", "range", "step", "better"])


def class_names(run_dir: Path, *, log_text: bool) -> list[str]:
    """The names of the run's classes; none where they must not leave the machine."""
    return [str(name) for name in RunDirectory(run_dir).manifest().get("classes", [])] if log_text else []


def forget_unsent(run: "wandb.Run", run_dir: Path) -> None:
    """Remove earlier offline records of the same W&B run that were not sent: sent after this one, they would put older
    results over it."""
    for folder in run_dir.glob(f"wandb/offline-run-*-{run.id}"):
        if folder.resolve() != Path(run.dir).parent.resolve() and not any(folder.glob("*.synced")):
            shutil.rmtree(folder)


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
            name += "/" + (class_of(row["group"], classes).replace("/", "-") if classes else row["group"])
        parts = {"": row["mean"], "_low": row["low"], "_high": row["high"], "_published": row["published"]}
        numbers |= {name + end: float(value) for end, value in parts.items() if end == "" or not pd.isna(value)}
    return numbers


def learnt_of(run_dir: Path, *, log_text: bool) -> dict[str, float | str]:
    """The share of the largest class, beside which accuracy is read, and a warning where it is no better. Without words the
    warning does not name the class."""
    measured = quality_of(run_dir)
    if measured is None:
        return {}
    shown = measured if log_text or measured.only is None else replace(measured, only="name not logged")
    return {"performance/majority": measured.majority, "performance/warning": shown.warning}


def verdicts_by_name(run_dir: Path) -> dict[str, str | float]:
    """Every line of the run's card that was tested: `verdict/erasure/word` = `meets`, and its number with the interval's ends
    as `…_value`, `…_low`, `…_high`."""
    found: dict[str, str | float] = {}
    for line in verdicts_of(run_dir):
        if line.state == NOT_TESTED:
            continue
        name = f"verdict/{line.criterion}/{line.level}"
        found[name] = line.state
        ends = {"value": line.value, "low": line.low, "high": line.high}
        found |= {f"{name}_{end}": number for end, number in ends.items() if not pd.isna(number)}
    return found


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


def tags(identity: dict[str, str], probes: list[str]) -> list[str]:
    """Data, model, seed and probes, without doubles (W&B refuses those)."""
    words = [identity["data"], identity["model"], f"seed-{identity['seed']}", *probes]
    return list(dict.fromkeys(limited(word, 64) for word in words if word))


def limited(text: str, most: int) -> str:
    """W&B refuses longer groups (128), tags and job types (64)."""
    return text if len(text) <= most else text[: most - 1] + "…"


def identifier(run_id: str) -> str:
    """The run's id in the characters that W&B allows; a long one loses its beginning, for its end tells runs apart.

    >>> identifier("sst/lstm additive#1")
    'sst-lstm-additive-1'
    """
    return re.sub(r"[^A-Za-z0-9_-]+", "-", run_id)[-64:]


def read_config(run_dir: Path) -> dict[str, Any]:
    """The run's settings as plain data; empty where the directory has none.

    Raises:
        UserError: the file is damaged, or holds a reference such as to a variable of the environment.
    """
    try:
        return read_settings(run_dir)
    except (FileNotFoundError, NotADirectoryError):
        return {}
