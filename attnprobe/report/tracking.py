"""A finished run directory on Weights & Biases.

Numbers, tables, figures and files are read from the run's own files.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import wandb

from attnprobe.core.errors import UserError
from attnprobe.core.metrics import Scale
from attnprobe.findings.groups import Run, read_run
from attnprobe.findings.headlines import compare, headline
from attnprobe.findings.judgement import Card, table_of
from attnprobe.findings.quality import Quality
from attnprobe.findings.stored import card_of_run
from attnprobe.plots.example_selection import select_examples
from attnprobe.readings.reading import HeatMap
from attnprobe.readings.registry import columns_in, maps_in
from attnprobe.report.figures import png_figures
from attnprobe.report.notebook import Strip, attention_strips, page, strips_html
from attnprobe.report.tables import FINDING_COLUMNS, VERDICT_COLUMNS, word_tables
from attnprobe.results.directory import (
    CONFIG,
    MANIFEST,
    PIPELINE,
    TRACKING,
    TRAINED,
    UNTESTED,
    VOCABULARY,
    WEIGHTS,
    WHOLE_SPLIT,
    RunDirectory,
    examples_file,
    table_file,
)
from attnprobe.results.files import record_of, write_sealed, write_table
from attnprobe.results.numbers import WHOLE_SPLITS
from attnprobe.results.pivot import RUN, class_of, per_example
from attnprobe.results.saved_settings import read_settings
from attnprobe.results.writer import OwnRunDirectory

WORDS = ("text", "tokens", "words", "question", "candidates", "slice")
"""The columns of the examples' table that hold somebody's words."""
WORDS_OF_MANIFEST = ("classes", "counts", "data_section")
"""The manifest's keys that hold somebody's words."""
WORDLESS = (WEIGHTS, CONFIG, TRAINED)
"""Files of the checkpoint without words."""
WITH_WORDS = (VOCABULARY, PIPELINE)
"""Files of the checkpoint with words: the vocabulary, and the names of the classes."""
FACTS_OF_RUN = (
    "run_id",
    "experiment",
    "data",
    "model",
    "seed",
    "chosen_epoch",
    "training_fingerprint",
    "versions",
)
"""The manifest's keys that artifacts have as metadata."""
ROWS = 10_000
"""Rows of a table: W&B shows no more."""
EXAMPLES = 200
UNNAMED = "name not logged"
Mode = Literal["online", "offline", "disabled", "shared"]
PROJECT = "attnprobe"
"""Where neither a setting nor WANDB_PROJECT names one."""


def open_run(
    identity: Mapping[str, Any],
    probes: Sequence[str],
    config: dict[str, Any],
    directory: Path,
    *,
    project: str | None,
    entity: str | None = None,
    mode: Mode | None = None,
    group: str | None = None,
    resumed: bool = False,
) -> "wandb.Run":
    """Start a W&B run, whose id is the run's; the caller ends it with `wandb.finish()`.

    Args:
        identity: `run_id`, `experiment`, `data`, `model`, `seed` of the run.
        probes: names of its probes; those that the directory's manifest lists join them.
        config: the run's settings.
        directory: the run's directory; W&B's own files go into its folder `wandb/`.
        project: on W&B; None takes the environment's WANDB_PROJECT, else `PROJECT`.
        entity: on W&B; None takes WANDB_ENTITY, else the user's own.
        mode: `offline` writes files that `wandb sync` sends later; `disabled` does nothing but
            check; `shared` lets several processes write one run. None takes WANDB_MODE, else
            `online`.
        group: None takes the environment's WANDB_RUN_GROUP, else the experiment's name.
        resumed: the training is finished, and what W&B has of it is added to; otherwise it is
            overwritten.

    Raises:
        UserError: W&B cannot be reached or does not know the user.
    """

    OwnRunDirectory(directory).checked(TRACKING)  # no link, through which W&B would write elsewhere
    environment = {
        name: os.environ.get(f"WANDB_{name}") or None
        for name in ("PROJECT", "ENTITY", "MODE", "RUN_GROUP")
    }
    chosen_mode: Any = mode or environment["MODE"] or "online"  # W&B checks what its variable says
    names = {name: str(value) for name, value in identity.items()}
    measured = (RunDirectory(directory).read_manifest() or {}).get("tables", {})
    probes = [name for name in dict.fromkeys([*measured, *probes]) if name not in WHOLE_SPLITS]
    title = ": ".join(filter(None, [names["run_id"], ", ".join(probes)]))
    tags = [names["data"], names["model"], f"seed-{names['seed']}", *probes]
    try:
        return wandb.init(
            project=project or environment["PROJECT"] or PROJECT,
            entity=entity or environment["ENTITY"],
            mode=chosen_mode,
            dir=directory,
            # of a long one the end, which tells runs apart
            id=re.sub(r"[^A-Za-z0-9_-]+", "-", names["run_id"])[-64:],
            resume="allow" if chosen_mode == "online" and resumed else None,
            name=_limited(title, 128),
            group=_limited(group or environment["RUN_GROUP"] or names["experiment"], 128),
            job_type=_limited(f"{names['data']}-{names['model']}", 64),
            # without doubles, which W&B refuses
            tags=list(dict.fromkeys(_limited(tag, 64) for tag in tags if tag)),
            config=config,
            reinit="finish_previous",
            settings=wandb.Settings(console="off", silent=True),
        )
    except wandb.Error as error:
        raise UserError(
            f"W&B did not take the run ({error}). Log in with `wandb login`, or keep it for later "
            f"with logger.mode=offline and send it with "
            f"`wandb sync {directory}/wandb/offline-run-*`"
        ) from error


def _limited(text: str, most: int) -> str:
    """W&B refuses longer names and groups (128), tags and job types (64)."""
    return text if len(text) <= most else text[: most - 1] + "…"


def log_run(
    run_dir: str | os.PathLike,
    *,
    project: str | None,
    entity: str | None = None,
    mode: Mode | None = None,
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
    where: dict[str, Any] = {"project": project, "entity": entity, "mode": mode, "group": group}
    run = open_run(
        vars(read_run(run_dir)), [], read_settings(run_dir), run_dir, resumed=True, **where
    )
    try:
        log_results(run, run_dir, log_text=log_text, log_model=log_model, examples=examples)
    finally:
        # without it the next run of this process would go into this one
        wandb.finish()


def log_results(
    run: "wandb.Run",
    run_dir: Path,
    *,
    log_text: bool = True,
    log_model: bool = True,
    examples: int = EXAMPLES,
) -> None:
    """Log what a finished run found.

    Headline numbers, the training's curves unless they were logged while training, tables, figures,
    and two artifacts, the checkpoint (type `model`) and the long tables (type `results`).

    Online the checkpoint is an input of this W&B run; W&B declares no inputs offline. An earlier
    offline run of this directory that nobody has sent is removed: this one has it all.

    Args:
        run: on W&B.
        run_dir: the finished run.
        log_text: False leaves out all words of the data: texts, tokens, vocabulary, the names of
            the classes, and every figure that shows texts.
        log_model: False leaves out the checkpoint.
        examples: rows of the examples' table.

    Raises:
        UserError: a number of examples below 0.
    """
    if examples < 0:
        raise UserError(
            f"logger.examples={examples}: expected how many examples to show, 0 or more, "
            f"for example 200"
        )
    finished = read_run(run_dir)
    classes = finished.manifest.get("classes", []) if log_text else []
    compared = compare(finished.numbers)
    card = card_of_run(finished)
    quality = finished.quality
    if not log_text and quality is not None and quality.only is not None:
        card = with_class_unnamed(card, quality.only)
        quality = replace(quality, only=UNNAMED)

    _log_curves(run, finished, classes)
    logged: dict[str, Any] = {
        name: float(value) for name, value in headline(finished.numbers).items()
    }
    summary = summary_of(compared, card, quality, classes)
    every_table = tables(finished, compared, card, classes, log_text=log_text, examples=examples)
    for name, table in every_table:
        logged[f"tables/{name}"] = wandb.Table(dataframe=table.head(ROWS))
        if len(table) > ROWS:
            summary[f"tables/{name}_rows_left_out"] = len(table) - ROWS
    with tempfile.TemporaryDirectory() as folder:
        # W&B copies an image when it is logged, so the folder must last until then
        for path in png_figures(finished.files, Path(folder, "figures"), words=log_text):
            logged[f"figures/{path.stem}"] = wandb.Image(str(path))
        run.log(logged)
        run.summary.update(summary)
        run.notes = card.summary.words
        checkpoint, results = artifacts(finished.files, Path(folder), log_text=log_text)
        if log_model and (run.offline or run.disabled):
            run.log_artifact(checkpoint)
        elif log_model:
            run.use_artifact(checkpoint)
        run.log_artifact(results)
    _remove_unsent(run, run_dir)


def _log_curves(run: "wandb.Run", finished: Run, classes: Sequence[str]) -> None:
    """Log the training's curves, unless they were logged while training."""
    for curves in ("train/*", "validation/*"):
        run.define_metric(curves, step_metric="epoch")
    run.define_metric("verdict/*", summary="last")  # whatever is logged again
    if "train/loss" in dict(run.summary):
        return
    training = finished.numbers.rows("training", stepped=("*",))
    for epoch, rows in training.groupby("step", sort=True):
        point: dict[str, Any] = {"epoch": epoch}
        for metric, value in zip(rows["metric"].astype(str), rows["value"], strict=True):
            point[curve(metric.replace("_", "/", 1), classes)] = float(value)
        run.log(point)


def _remove_unsent(run: "wandb.Run", run_dir: Path) -> None:
    """Remove earlier offline runs of this directory, which nobody has sent.

    Sent after this one, such a run would put older results over it.
    """
    current = Path(run.dir).parent.resolve()
    for earlier in run_dir.glob(f"wandb/offline-run-*-{run.id}"):
        is_sent = any(earlier.glob("*.synced"))
        is_link = earlier.is_symlink() or earlier.parent.is_symlink()
        if earlier.resolve() != current and not is_sent and not is_link:
            shutil.rmtree(earlier)


def with_class_unnamed(card: Card, name: str) -> Card:
    """The card without the name of a class, for runs whose words must not leave the machine."""
    judgements = [
        replace(judgement, reason=judgement.reason.replace(name, UNNAMED))
        for judgement in card.judgements
    ]
    sentence = card.sentence.replace(name, UNNAMED)
    return replace(card, sentence=sentence, judgements=tuple(judgements))


def summary_of(
    compared: pd.DataFrame, card: Card, quality: Quality | None, classes: Sequence[str]
) -> dict[str, Any]:
    """The run's summary.

    Args:
        compared: its headline numbers.
        card: what was decided.
        quality: how good the classifier is.
        classes: names; without them classes go by their numbers (`class_1`).

    Returns:
        Every headline as `<number>`, with `_low`, `_high` and `_published`; how good the classifier
        is; and of the card, as far as it was tested, `verdict/erasure/word` = `meets`, with
        `_value`, `_low` and `_high`.
    """
    summary: dict[str, Any] = {}
    rows: list[Any] = compared.to_dict("records")
    for row in rows:
        name = f"{row['probe']}/{row['metric']}"
        if row["group"] != "overall":
            name += (
                f"/{_section_free(class_of(row['group'], classes)) if classes else row['group']}"
            )
        summary[name] = float(row["mean"])
        for end in ("low", "high", "published"):
            if not pd.isna(row[end]):
                summary[f"{name}_{end}"] = float(row[end])
    if quality is not None:
        summary["performance/majority"] = quality.majority
        summary["performance/warning"] = quality.warning
    for line in card.lines:
        if not line.is_tested:
            continue
        name = f"verdict/{line.criterion}/{line.level}"
        summary[name] = str(line.verdict)
        for end, number in (("value", line.value), ("low", line.low), ("high", line.high)):
            if not np.isnan(number):
                summary[f"{name}_{end}"] = number
    return summary


def _section_free(name: str) -> str:
    """A name without slashes, which W&B takes for sections."""
    return name.replace("/", "-")


def curve(name: str, classes: Sequence[str]) -> str:
    """The name of a training curve; that of a class's F1 has the class's name, where it is known.

    >>> curve("validation/f1_1", ["no", "yes/maybe"])
    'validation/f1_yes-maybe'
    >>> curve("validation/loss", ["no"]), curve("validation/f1_1", [])
    ('validation/loss', 'validation/f1_1')
    """
    start, mark, number = name.rpartition("/f1_")
    if not mark or not number.isdecimal() or int(number) >= len(classes):
        return name
    return start + mark + _section_free(classes[int(number)])


def tables(
    run: Run,
    compared: pd.DataFrame,
    card: Card,
    classes: Sequence[str],
    *,
    log_text: bool,
    examples: int,
) -> Iterator[tuple[str, pd.DataFrame]]:
    """The run's tables with their names.

    Of each probe one with a row per example and a column per metric without steps.
    """
    for probe in sorted(run.numbers.probes):
        rows = run.numbers.rows(probe)
        rows = rows[rows["example_id"] != WHOLE_SPLIT]
        rows.attrs = {}  # repeated texts too
        if not rows.empty:
            metrics = sorted(map(str, rows["metric"].unique()))
            yield probe, per_example(rows, probe, metrics).drop(columns=list(RUN))
    tested = [judgement for judgement in card.judgements if judgement.is_tested]
    yield "verdicts", table_of(card.lines, VERDICT_COLUMNS)
    yield "findings", table_of(tested, FINDING_COLUMNS)
    yield "metrics", _metric_table(run)
    if run.numbers.split is not None:
        yield f"examples_{run.split}", example_table(run, most=examples, log_text=log_text)
        for words in word_tables([run]) if log_text else ():
            yield "word_table", words.rows
    groups = [
        group if group == "overall" else class_of(group, classes) for group in compared["group"]
    ]
    yield "published_versus_measured", compared.drop(columns=list(RUN)).assign(group=groups)


def _metric_table(run: Run) -> pd.DataFrame:
    """Unit, range and direction of every metric of a run."""
    directions = {True: "higher", False: "lower", None: ""}
    metrics = []
    for probe, entry in run.manifest["tables"].items():
        for metric, facts in entry.get("metrics", {}).items():
            metrics.append(
                {
                    "metric": f"{probe}/{metric}",
                    "unit": facts["unit"],
                    "range": Scale.of(facts).range,
                    "step": facts["step"],
                    "better": directions[facts["higher_is_better"]],
                }
            )
    return pd.DataFrame(metrics, columns=["metric", "unit", "range", "step", "better"])


def example_table(run: Run, *, most: int, log_text: bool) -> pd.DataFrame:
    """Some examples, one row each.

    Half of the rows are the `largest` in each predicted class by the first of the readings' leading
    columns that the run has, or by the largest attention weight (a text of one position, whose
    weight is always 1, comes last); the others are spaced evenly (`select_examples`).

    Args:
        run: a finished one.
        most: rows.
        log_text: False shows the positions' numbers in place of words.

    Returns:
        Why each was `chosen`, what was decided, the words, the readings' numbers by their metrics,
        and as HTML the attention and the readings' maps by their titles.
    """
    reasons = _chosen_examples(run, most)
    examples = run.files.examples(run.split, example_ids=list(reasons)).to_pandas()
    examples = examples.set_index("example_id").loc[list(reasons)].reset_index()
    table = examples[["example_id"]].assign(chosen=list(reasons.values()))
    for name in ("label", "prediction", "probability"):
        table[name] = [_cell(value) for value in examples[name]]
    if log_text:
        table["text"] = [" ".join(tokens) for tokens in examples["tokens"]]
    table["max_attention"] = [max(weights, default=np.nan) for weights in examples["attention"]]
    for probe, column in columns_in(run.numbers):
        if column.sorts:
            values = run.numbers.rows(probe, (column.metric,)).set_index("example_id")["value"]
            table[column.metric] = table["example_id"].map(values)

    rows: list[Any] = examples.to_dict("records")
    heatmaps: dict[str, Any] = {
        "attention": [_heatmap(attention_strips(row, shows_words=log_text)) for row in rows]
    }
    for probe, shown in maps_in(run.numbers):
        cells = _map_cells(run, probe, shown, rows, log_text=log_text)
        if any(cell is not None for cell in cells):
            heatmaps[shown.title] = cells
    return table.assign(**heatmaps)


def _chosen_examples(run: Run, most: int) -> dict[int, str]:
    """The examples that are shown, each with why."""
    table = run.files.examples(run.split, ["example_id", "prediction", "attention"])
    example_ids = table["example_id"].to_numpy()
    attention = table["attention"].to_pylist()
    score = np.array([max(row) if len(row) > 1 else 0.0 for row in attention], float)
    for probe, column in columns_in(run.numbers):
        values = run.numbers.rows(probe, (column.metric,)).set_index("example_id")["value"]
        values = values.reindex(example_ids)
        if column.leads and values.notna().any():
            score = values.to_numpy()
            break
    predictions = np.array([str(_cell(value)) for value in table["prediction"].to_pylist()], object)
    return select_examples(example_ids, most, scores={"largest": score}, groups=predictions)


def _map_cells(
    run: Run, probe: str, shown: HeatMap, rows: Sequence[Mapping[str, Any]], *, log_text: bool
) -> list[Any]:
    """A heat map of each example; None where it has no weights."""
    example_ids = [row["example_id"] for row in rows]
    stepped = run.numbers.rows(probe, (), stepped=(shown.metric,), example_ids=example_ids)
    weights = {
        example_id: part.set_index("step")["value"]
        for example_id, part in stepped.groupby("example_id")
    }
    cells: list[Any] = []
    for row in rows:
        cell = None
        if row["example_id"] in weights:
            values = weights[row["example_id"]].reindex(range(len(row["attention"])))
            tokens = row["tokens"] if log_text else None
            cell = _heatmap([Strip(shown.title, values, tokens)])
        cells.append(cell)
    return cells


def _heatmap(strips: list[Strip]) -> wandb.Html:
    """Strips as a cell of a table."""
    # inject would have every cell fetch a stylesheet of W&B's
    content = f'<!doctype html><meta charset="utf-8">{page([strips_html(strips)])}'
    return wandb.Html(content, inject=False, data_is_not_path=True)


def _cell(value: Any) -> Any:
    """A list as text, anything else as it is."""
    if not pd.api.types.is_list_like(value):
        return value
    numbers = ", ".join(f"{item:.3g}" for item in value)
    return f"[{numbers}]"


def artifacts(
    run: RunDirectory, folder: Path, *, log_text: bool
) -> tuple[wandb.Artifact, wandb.Artifact]:
    """The checkpoint, and the long tables, the examples and the manifest.

    The checkpoint has its settings, and if words may be sent all that new text needs
    (`attnprobe.load_run`). In one folder the two are a run directory. Weights are uploaded from
    where they are and must stay there until then.

    Args:
        run: a finished one.
        folder: for files that are sent otherwise than they are in the run.
        log_text: False sends no words, names of classes, counts per class and findings in the data.
    """
    manifest = run.verify()
    facts = {key: value for key, value in manifest.items() if key in FACTS_OF_RUN}
    if WEIGHTS in manifest["files"]:
        facts["checkpoint_sha256"] = manifest["files"][WEIGHTS]["sha256"]
    run_id = re.sub(r"[^A-Za-z0-9_.-]+", "-", manifest["run_id"])[-110:]
    model = wandb.Artifact(f"model-{run_id}", "model", metadata=facts)
    model_files = WORDLESS + (WITH_WORDS if log_text else ())
    for name in model_files:
        if (run / name).exists():
            policy: Any = "immutable" if name == WEIGHTS else "mutable"
            model.add_file(str(run / name), policy=policy, skip_cache=True)

    results = wandb.Artifact(
        f"results-{run_id}", "results", metadata=facts | {"model_artifact": model.name}
    )
    files = {name: record for name, record in manifest["files"].items() if name in model_files}
    for name in map(table_file, manifest["tables"]):
        results.add_file(str(run.file(name)), name, skip_cache=True)
        files[name] = manifest["files"][name]
    for split in run.splits():
        if split not in UNTESTED:
            name = examples_file(split)
            path = run.file(name) if log_text else _wordless_examples(run, split, folder)
            results.add_file(str(path), name, skip_cache=True)
            files[name] = record_of(path)
    sent = {
        key: value for key, value in manifest.items() if log_text or key not in WORDS_OF_MANIFEST
    }
    write_sealed(sent | {"files": files}, folder / MANIFEST)
    results.add_file(str(folder / MANIFEST), skip_cache=True)
    return model, results


def _wordless_examples(run: RunDirectory, split: str, folder: Path) -> Path:
    """Write a split's examples without words; the file."""
    table = run.examples(split)
    table = table.drop_columns([column for column in WORDS if column in table.column_names])
    path = folder / Path(examples_file(split)).name
    # pandas describes the columns that it knew, by name only
    write_table(table.replace_schema_metadata(None), path)
    return path
