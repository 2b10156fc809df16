"""A finished run directory on Weights & Biases: numbers, tables, figures and files, read from the run's own files."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import wandb

from attnprobe.errors import UserError
from attnprobe.report.figures.draw import draw_figures
from attnprobe.report.numbers import Numbers, read_numbers
from attnprobe.report.published import compare
from attnprobe.report.tracking import content
from attnprobe.report.tracking.artifacts import model_artifact, results_artifact
from attnprobe.report.tracking.examples import is_heatmap
from attnprobe.report.tracking.session import Mode, forget_unsent, open_run, read_config
from attnprobe.report.wide import RUN
from attnprobe.results.directory import RunDirectory

EXAMPLES = 200
"""Rows of the examples' table, unless said otherwise."""
LOGGED = "logged"
"""In the run's settings: a fingerprint of everything that was logged, so that nothing is logged twice. Every entry of the
summary is a column of everybody's table of runs."""


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
    runs = read_numbers(run_dir).runs
    if not runs:
        raise UserError(f"the tables of {run_dir} hold no numbers: nothing to log. Run it with at least one probe")
    identity = {name: str(runs[0][name]) for name in RUN}
    where: dict[str, Any] = {"project": project, "entity": entity, "mode": mode, "group": group}
    run = open_run(identity, [], read_config(run_dir), run_dir, resumed=True, **where)
    try:
        log_results(run, run_dir, log_text=log_text, log_model=log_model, examples=examples)
    finally:
        # without it the next run of this process would go into this one
        wandb.finish()


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
    define_metrics(run)
    if "train/loss" not in dict(run.summary):
        log_curves(run, results, content.class_names(run_dir, log_text=log_text))
    with tempfile.TemporaryDirectory() as folder:
        # W&B copies an image when it is logged, so the folder must last until then
        figures = draw_figures(run_dir, Path(folder, "figures"), words=log_text)
        logged = content.numbers(results) | content.pictures(figures)
        compared = compare(results)
        left_out: dict[str, int] = {}
        for name, table in content.tables(run_dir, results, compared, log_text=log_text, examples=examples):
            logged[name] = content.as_table(table, [name for name in map(str, table) if is_heatmap(name, results)])
            left_out |= {f"{name}_rows_left_out": count} if (count := table.attrs.get(content.LEFT_OUT)) else {}
        known = dict(dict(run.config).get(LOGGED) or {})
        fresh = {name: make() for name, (print_, make) in logged.items() if known.get(name) != print_}
        if fresh:
            run.log(fresh)
        run.summary.update(content.summary_of(run_dir, compared, log_text=log_text) | left_out)
        # whole: an update of one entry would keep those that are gone
        run.config.update({LOGGED: {name: print_ for name, (print_, _) in logged.items()}}, allow_val_change=True)
        run.notes = content.sentence(run_dir, log_text=log_text)
        if log_model:
            checkpoint = model_artifact(run_dir, log_text=log_text)
            (run.log_artifact if run.offline or run.disabled else run.use_artifact)(checkpoint)
        own = Path(folder, "results")
        own.mkdir()
        run.log_artifact(results_artifact(run_dir, own, log_text=log_text))
    forget_unsent(run, run_dir)


def define_metrics(run: "wandb.Run") -> None:
    """Say what W&B cannot know: curves go by epoch, and a verdict's number has its last value in the summary, whatever is
    logged again."""
    for curves in ("train/*", "validation/*"):
        run.define_metric(curves, step_metric="epoch")
    run.define_metric("verdict/*", summary="last")


def log_curves(run: "wandb.Run", results: Numbers, classes: Sequence[str]) -> None:
    """The training's metrics by epoch, under the names that they have while training."""
    curves = results.rows("training", stepped=("*",))
    for epoch, rows in curves.groupby("step", sort=True):
        values = zip(rows["metric"].astype(str), rows["value"], strict=True)
        named = {content.curve(name.replace("_", "/", 1), classes): float(value) for name, value in values}
        run.log({"epoch": epoch} | named)
