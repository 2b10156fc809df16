"""A finished run directory on Weights & Biases: numbers, tables, figures and files, read from the
run's own files."""

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
from attnprobe.evidence.reading import columns_in, maps_in
from attnprobe.findings.groups import Run, read_run
from attnprobe.findings.headlines import compare, headline
from attnprobe.findings.judgement import Card, table_of
from attnprobe.findings.quality import Quality
from attnprobe.findings.stored import card_of_run
from attnprobe.plots.example_selection import select_examples
from attnprobe.report.figures import draw_figures
from attnprobe.report.notebook import Strip, attention_strips, page, strips_html
from attnprobe.report.tables import FINDING_COLUMNS, VERDICT_COLUMNS, word_tables
from attnprobe.results.directory import (
    CONFIG,
    MANIFEST,
    PIPELINE,
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

WORDS = ("text", "tokens", "words", "question", "candidates")
"""The columns of the examples' table that hold somebody's words."""
WORDS_OF_MANIFEST = ("classes", "counts", "data_section")
WORDLESS = (WEIGHTS, CONFIG, TRAINED)
WITH_WORDS = (VOCABULARY, PIPELINE)
"""Files of the checkpoint; those of the second kind hold words: the vocabulary, and the names of
the classes."""
ROWS = 10_000
"""Rows of a table: W&B shows no more."""
EXAMPLES = 200
UNNAMED = "name not logged"
Mode = Literal["online", "offline", "disabled"]


def open_run(
    identity: Mapping[str, Any],
    probes: Sequence[str],
    config: dict[str, Any],
    directory: Path,
    *,
    project: str | None,
    entity: str | None = None,
    mode: Mode = "online",
    group: str | None = None,
    resumed: bool = False,
) -> "wandb.Run":
    """Start a W&B run, whose id is the run's; the caller ends it with `wandb.finish()`.

    Args:
        identity: `run_id`, `experiment`, `data`, `model`, `seed` of the run.
        probes: names of its probes; those that the directory's manifest lists join them.
        directory: the run's directory; W&B's own files go into its folder `wandb/`.
        mode: `offline` writes files that `wandb sync` sends later; `disabled` does nothing but
            check.
        group: None takes the environment's WANDB_RUN_GROUP, else the experiment's name.
        resumed: the training is finished, and what W&B has of it is added to; otherwise it is
            overwritten.

    Raises:
        UserError: W&B cannot be reached or does not know the user.
    """

    def limited(text: str, most: int) -> str:
        # W&B refuses longer names and groups (128), tags and job types (64)
        return text if len(text) <= most else text[: most - 1] + "…"

    named = {name: str(value) for name, value in identity.items()}
    done = (RunDirectory(directory).read_manifest() or {}).get("tables", {})
    probes = [name for name in dict.fromkeys([*done, *probes]) if name not in WHOLE_SPLITS]
    words = [named["data"], named["model"], f"seed-{named['seed']}", *probes]
    try:
        return wandb.init(
            project=project,
            entity=entity,
            mode=mode,
            dir=directory,
            # of a long one the end, which tells runs apart
            id=re.sub(r"[^A-Za-z0-9_-]+", "-", named["run_id"])[-64:],
            resume="allow" if mode == "online" and resumed else None,
            name=limited(": ".join(filter(None, [named["run_id"], ", ".join(probes)])), 128),
            group=limited(group or os.environ.get("WANDB_RUN_GROUP") or named["experiment"], 128),
            job_type=limited(f"{named['data']}-{named['model']}", 64),
            # without doubles, which W&B refuses
            tags=list(dict.fromkeys(limited(word, 64) for word in words if word)),
            config=config,
            reinit="finish_previous",
            settings=wandb.Settings(console="off", silent=True),
        )
    except wandb.Error as error:
        raise UserError(
            f"W&B did not take the run ({error}). Log in with `wandb login`, or keep it for later with "
            f"logger.mode=offline and send it with `wandb sync {directory}/wandb/offline-run-*`"
        ) from error


def log_run(
    run_dir: str | os.PathLike,
    *,
    project: str | None,
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
    """Log what a finished run found: headline numbers, the training's curves unless they were
    logged while training, tables, figures, and two artifacts, the checkpoint (type `model`) and the
    long tables (type `results`).

    Online the checkpoint is an input of this W&B run; W&B declares no inputs offline. An earlier
    offline run of this directory that nobody has sent is removed: this one has it all.

    Args:
        log_text: False leaves out all words of the data: texts, tokens, vocabulary, the names of
            the classes, and every figure that shows texts.
        log_model: False leaves out the checkpoint.
        examples: rows of the examples' table.

    Raises:
        UserError: a number of examples below 0.
    """
    if examples < 0:
        raise UserError(
            f"logger.examples={examples}: expected how many examples to show, 0 or more, for example 200"
        )
    done = read_run(run_dir)
    results = done.numbers
    classes = [str(name) for name in done.manifest.get("classes", [])] if log_text else []
    compared = compare(results)
    card = card_of_run(done)
    quality = done.quality
    if not log_text and quality is not None and quality.only is not None:
        card = with_class_unnamed(card, quality.only)
        quality = replace(quality, only=UNNAMED)
    for curves in ("train/*", "validation/*"):
        run.define_metric(curves, step_metric="epoch")
    run.define_metric("verdict/*", summary="last")  # whatever is logged again
    if "train/loss" not in dict(run.summary):
        for epoch, rows in results.rows("training", stepped=("*",)).groupby("step", sort=True):
            values = zip(rows["metric"].astype(str), rows["value"], strict=True)
            run.log(
                {"epoch": epoch}
                | {curve(name.replace("_", "/", 1), classes): float(v) for name, v in values}
            )
    logged: dict[str, Any] = {name: float(value) for name, value in headline(results).items()}
    summary = summary_of(compared, card, quality, classes)
    for name, table in tables(done, compared, card, classes, log_text=log_text, examples=examples):
        logged[f"tables/{name}"] = wandb.Table(dataframe=table.head(ROWS))
        if len(table) > ROWS:
            summary[f"tables/{name}_rows_left_out"] = len(table) - ROWS
    with tempfile.TemporaryDirectory() as folder:
        # W&B copies an image when it is logged, so the folder must last until then
        figures = draw_figures(run_dir, Path(folder, "figures"), words=log_text)
        logged |= {
            f"figures/{path.stem}": wandb.Image(str(path))
            for path in figures
            if path.suffix == ".png"
        }
        run.log(logged)
        run.summary.update(summary)
        run.notes = card.summary.words
        checkpoint, tabled = artifacts(done.files, Path(folder), log_text=log_text)
        if log_model:
            (run.log_artifact if run.offline or run.disabled else run.use_artifact)(checkpoint)
        run.log_artifact(tabled)
    for earlier in run_dir.glob(f"wandb/offline-run-*-{run.id}"):
        # sent after this one, it would put older results over it
        if earlier.resolve() != Path(run.dir).parent.resolve() and not any(
            earlier.glob("*.synced")
        ):
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
    """The run's summary: every headline as `<number>`, with `_low`, `_high` and `_published`, a
    predicted class by its name where `classes` has one, else by its number (`class_1`); how good
    the classifier is; and of the run's card, as far as it was tested, `verdict/erasure/word` =
    `meets`, with `_value`, `_low` and `_high`."""
    summary: dict[str, Any] = {}
    rows: list[Any] = compared.to_dict("records")
    for row in rows:
        name = f"{row['probe']}/{row['metric']}"
        if row["group"] != "overall":
            name += "/" + (
                class_of(row["group"], classes).replace("/", "-") if classes else row["group"]
            )
        parts = {
            "": row["mean"],
            "_low": row["low"],
            "_high": row["high"],
            "_published": row["published"],
        }
        summary |= {
            name + end: float(value)
            for end, value in parts.items()
            if end == "" or not pd.isna(value)
        }
    if quality is not None:
        summary |= {
            "performance/majority": quality.majority,
            "performance/warning": quality.warning,
        }
    for line in card.lines:
        if line.is_tested:
            name = f"verdict/{line.criterion}/{line.level}"
            ends = {"value": line.value, "low": line.low, "high": line.high}
            summary[name] = str(line.verdict)
            summary |= {
                f"{name}_{end}": number for end, number in ends.items() if not np.isnan(number)
            }
    return summary


def curve(name: str, classes: Sequence[str]) -> str:
    """The name of a training curve; that of a class's F1 has the class's name, where there are
    names.

    >>> curve("validation/f1_1", ["no", "yes/maybe"]), curve("validation/loss", ["no"]), curve("validation/f1_1", [])
    ('validation/f1_yes-maybe', 'validation/loss', 'validation/f1_1')
    """
    start, mark, number = name.rpartition("/f1_")
    if not mark or not number.isdecimal() or int(number) >= len(classes):
        return name
    return start + mark + classes[int(number)].replace("/", "-")  # W&B takes slashes for sections


def tables(
    run: Run,
    compared: pd.DataFrame,
    card: Card,
    classes: Sequence[str],
    *,
    log_text: bool,
    examples: int,
) -> Iterator[tuple[str, pd.DataFrame]]:
    """The run's tables with their names. Of each probe one with a row per example and a column per
    metric without steps."""
    for probe in sorted(run.numbers.probes):
        rows = run.numbers.rows(probe)
        rows = rows[rows["example_id"] != WHOLE_SPLIT]
        rows.attrs = {}  # repeated texts too
        if not rows.empty:
            yield (
                probe,
                per_example(rows, probe, sorted(map(str, rows["metric"].unique()))).drop(
                    columns=list(RUN)
                ),
            )
    tested = [judgement for judgement in card.judgements if judgement.is_tested]
    yield "verdicts", table_of(card.lines, VERDICT_COLUMNS)
    yield "findings", table_of(tested, FINDING_COLUMNS)
    directions = {True: "higher", False: "lower"}
    metrics = [
        {
            "metric": f"{probe}/{metric}",
            "unit": said["unit"],
            "range": Scale.of(said).range,
            "step": said["step"],
        }
        | {"better": directions.get(said.get("higher_is_better"), "")}
        for probe, entry in run.manifest["tables"].items()
        for metric, said in entry.get("metrics", {}).items()
    ]
    yield "metrics", pd.DataFrame(metrics, columns=["metric", "unit", "range", "step", "better"])
    if run.numbers.split is not None:
        yield f"examples_{run.split}", example_table(run, most=examples, log_text=log_text)
        for words in word_tables([run]) if log_text else ():
            yield "word_table", words.rows
    groups = [
        group if group == "overall" else class_of(group, classes) for group in compared["group"]
    ]
    yield "published_versus_measured", compared.drop(columns=list(RUN)).assign(group=groups)


def example_table(run: Run, *, most: int, log_text: bool) -> pd.DataFrame:
    """At most that many examples, one row each: why it was `chosen`, what was decided, the words,
    the readings' numbers by their metrics, and as HTML the attention and the readings' maps by
    their titles. Without `log_text` these show the positions' numbers.

    Half of the rows are the `largest` in each predicted class by the first of the readings' leading
    columns that the run has, or by the largest attention weight (a text of one position, whose
    weight is always 1, comes last); the others are spaced evenly (`select_examples`)."""

    def cell(value: Any) -> Any:
        return (
            "[" + ", ".join(f"{item:.3g}" for item in value) + "]"
            if pd.api.types.is_list_like(value)
            else value
        )

    def heatmap(strips: list[Strip]) -> wandb.Html:
        # inject would have every cell fetch a stylesheet of W&B's
        content = f'<!doctype html><meta charset="utf-8">{page([strips_html(strips)])}'
        return wandb.Html(content, inject=False, data_is_not_path=True)

    numbers = run.numbers
    every = run.files.examples(run.split, ["example_id", "prediction", "attention"])
    ids = every["example_id"].to_numpy()
    score = np.array(
        [max(weights) if len(weights) > 1 else 0.0 for weights in every["attention"].to_pylist()],
        float,
    )
    for probe, column in columns_in(numbers):
        values = numbers.rows(probe, (column.metric,)).set_index("example_id")["value"].reindex(ids)
        if column.leads and values.notna().any():
            score = values.to_numpy()
            break
    decided = np.array([str(cell(value)) for value in every["prediction"].to_pylist()], object)
    picked = select_examples(ids, most, scores={"largest": score}, groups=decided)
    examples = run.files.examples(run.split, example_ids=list(picked)).to_pandas()
    chosen = (
        examples.set_index("example_id")
        .loc[list(picked)]
        .reset_index()
        .assign(chosen=list(picked.values()))
    )
    table = chosen[["example_id", "chosen"]].copy()
    for name in ("label", "prediction", "probability"):
        table[name] = [cell(value) for value in chosen[name]]
    if log_text:
        table["text"] = [" ".join(tokens) for tokens in chosen["tokens"]]
    table["max_attention"] = [max(weights, default=np.nan) for weights in chosen["attention"]]
    for probe, column in columns_in(numbers):
        if column.sorts:
            values = numbers.rows(probe, (column.metric,)).set_index("example_id")["value"]
            table[column.metric] = table["example_id"].map(values)
    rows: list[Any] = chosen.to_dict("records")
    heatmaps: dict[str, Any] = {
        "attention": [heatmap(attention_strips(row, shows_words=log_text)) for row in rows]
    }
    for probe, shown in maps_in(numbers):
        stepped = numbers.rows(
            probe, (), stepped=(shown.metric,), example_ids=table["example_id"].tolist()
        )
        weights = {
            number: part.set_index("step")["value"]
            for number, part in stepped.groupby("example_id")
        }
        if weights:
            cells: list[Any] = [None] * len(rows)
            heatmaps[shown.title] = cells
            for place, row in enumerate(rows):
                if row["example_id"] in weights:
                    known = weights[row["example_id"]].reindex(range(len(row["attention"])))
                    cells[place] = heatmap(
                        [Strip(shown.title, known, row["tokens"] if log_text else None)]
                    )
    return table.assign(**heatmaps)


def artifacts(
    run: RunDirectory, folder: Path, *, log_text: bool
) -> tuple[wandb.Artifact, wandb.Artifact]:
    """The checkpoint with its settings, and with all that new text needs (`attnprobe.load_run`) if
    words may be sent; and the long tables, the examples and the manifest. In one folder they are a
    run directory.

    Without `log_text` no words, names of classes, counts per class and findings in the data;
    `folder`: for what is sent so. Weights are uploaded from where they are and must stay there
    until then."""
    manifest = run.verify()
    named = (
        "run_id",
        "experiment",
        "data",
        "model",
        "seed",
        "chosen_epoch",
        "training_fingerprint",
        "versions",
    )
    known = {key: manifest[key] for key in named if key in manifest}
    if WEIGHTS in manifest["files"]:
        known["checkpoint_sha256"] = manifest["files"][WEIGHTS]["sha256"]
    run_id = re.sub(r"[^A-Za-z0-9_.-]+", "-", manifest["run_id"])[-110:]
    model = wandb.Artifact(f"model-{run_id}", "model", metadata=known)
    results = wandb.Artifact(
        f"results-{run_id}", "results", metadata=known | {"model_artifact": model.name}
    )
    in_model = WORDLESS + (WITH_WORDS if log_text else ())
    for file in in_model:
        if (run / file).exists():
            policy: Any = "immutable" if file == WEIGHTS else "mutable"
            model.add_file(str(run / file), policy=policy, skip_cache=True)
    files = {name: record for name, record in manifest["files"].items() if name in in_model}
    for one in map(table_file, manifest["tables"]):
        results.add_file(str(run.file(one)), one, skip_cache=True)
        files[one] = manifest["files"][one]
    for split in (split for split in run.splits() if split not in UNTESTED):
        one = examples_file(split)
        path = run.file(one)
        if not log_text:
            table = run.examples(split)
            table = table.drop_columns([column for column in WORDS if column in table.column_names])
            path = folder / path.name
            # pandas describes the columns that it knew, by name only
            write_table(table.replace_schema_metadata(None), path)
        results.add_file(str(path), one, skip_cache=True)
        files[one] = record_of(path)
    sent = (
        manifest
        if log_text
        else {key: manifest[key] for key in manifest if key not in WORDS_OF_MANIFEST}
    )
    write_sealed(sent | {"files": files}, folder / MANIFEST)
    results.add_file(str(folder / MANIFEST), skip_cache=True)
    return model, results
