"""A finished run directory on Weights & Biases: numbers, tables and figures, read from the run's files."""

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import wandb
from omegaconf import OmegaConf

from attnprobe.errors import UserError
from attnprobe.report.facets import RUN, per_example
from attnprobe.report.figures import draw_figures
from attnprobe.report.published import compare
from attnprobe.report.summary import headline
from attnprobe.results import WHOLE_SPLIT, read_examples, read_manifest, read_results

Mode = Literal["online", "offline", "disabled"]
WORDS = ("text", "tokens")
"""The columns of the examples' table that hold somebody's words."""
LIST_COLUMNS = ("tokens", "attention", "probability", "label")


def log_run(
    run_dir: str | os.PathLike,
    *,
    project: str,
    entity: str | None = None,
    mode: Mode = "online",
    group: str | None = None,
    log_text: bool = True,
) -> None:
    """Send one finished run to W&B; arguments as in `open_run` and `log_results`.

    Raises:
        UserError: no finished run there, or W&B cannot be reached or does not know the user.
    """
    run_dir = Path(run_dir)
    if read_manifest(run_dir) is None:
        raise UserError(f"{run_dir} holds no finished run (no manifest.json): log it once it is done")
    results = read_results(run_dir)
    if results.empty:
        raise UserError(f"the tables of {run_dir} hold no numbers: nothing to log. Run it with at least one probe")
    identity = {name: str(results[name].iloc[0]) for name in RUN}
    probes = sorted(map(str, results["probe"].unique()))
    run = open_run(
        identity, probes, read_config(run_dir), run_dir, project=project, entity=entity, mode=mode, group=group
    )
    try:
        log_results(run, run_dir, log_text=log_text)
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
) -> "wandb.Run":
    """Start a W&B run; the caller ends it with `wandb.finish()`.

    Tags: data, model, seed, probes. Grouping by group and job type puts the seeds of a data set and model together.

    Args:
        identity: `run_id`, `experiment`, `data`, `model`, `seed` of the run.
        probes: names of its probes.
        config: the resolved settings.
        directory: the run's directory; W&B's own files go into its folder `wandb/`.
        project: W&B project.
        entity: W&B user or team; None takes the account's default.
        mode: `offline` writes files that `wandb sync` sends later; `disabled` does nothing but check.
        group: W&B group; None takes the experiment's name. The job type is always `data-model`.

    Raises:
        UserError: W&B cannot be reached or does not know the user.
    """
    named = {name: str(value) for name, value in identity.items()}
    try:
        return wandb.init(
            project=project,
            entity=entity,
            mode=mode,
            dir=directory,
            id=identifier(named["run_id"]),
            resume="allow" if mode == "online" else None,  # logging a run twice updates it
            name=named["run_id"],
            group=limited(group or named["experiment"], 128),
            job_type=limited(f"{named['data']}-{named['model']}", 64),
            tags=tags(named, list(probes)),
            config=config,
            reinit="finish_previous",
            settings=wandb.Settings(console="off", silent=True),
        )
    except wandb.Error as error:
        raise UserError(
            f"W&B did not take the run ({error}). Log in with `wandb login`, or keep it for later with "
            f"logger.mode=offline and send it with `wandb sync {directory}/wandb/offline-run-*`"
        ) from error


def log_results(run: "wandb.Run", run_dir: Path, *, log_text: bool = True) -> None:
    """Log what a finished run found: the headline numbers as scalars and summary (with their interval's ends and the
    published value as `<number>_low`, `_high`, `_published`); a `wandb.Table` per probe with one row per example (W&B
    shows the first 10,000), one of the examples, and the published-versus-measured one; the figures as images.

    Args:
        run: an open W&B run.
        run_dir: the finished run's directory.
        log_text: False leaves out the texts, their tokens and every figure that shows them.
    """
    results = read_results(run_dir)
    with tempfile.TemporaryDirectory() as folder:
        # W&B copies an image when it is logged, so the folder must last until then
        figures = draw_figures(run_dir, folder, words=log_text)
        images = {f"figures/{path.stem}": wandb.Image(str(path)) for path in figures if path.suffix == ".png"}
        run.log({**headline(results), **tables(run_dir, results, log_text=log_text), **images})
    run.summary.update(scalars(results))


def tables(run_dir: Path, results: pd.DataFrame, *, log_text: bool) -> dict[str, wandb.Table]:
    """The run's tables by name: one per probe, the examples, and published versus measured."""
    logged = {}
    for probe in sorted(map(str, results["probe"].unique())):
        table = probe_table(results, probe)
        if not table.empty:
            logged[f"tables/{probe}"] = wandb.Table(dataframe=table)
    for split in sorted(map(str, results.loc[results["example_id"] != WHOLE_SPLIT, "split"].unique())):
        examples = example_table(read_examples(run_dir, split=split), log_text=log_text)
        logged[f"tables/examples_{split}"] = wandb.Table(dataframe=examples)
    logged["tables/published_versus_measured"] = wandb.Table(dataframe=compare(results).drop(columns=list(RUN)))
    return logged


def scalars(results: pd.DataFrame) -> dict[str, float]:
    """The summary's numbers: every headline, with its interval and the published value where there are such."""
    numbers: dict[str, float] = {}
    rows: list[Any] = compare(results).to_dict("records")
    for row in rows:
        name = f"{row['probe']}/{row['metric']}" + ("" if row["group"] == "overall" else f"/{row['group']}")
        parts = {"": row["mean"], "_low": row["low"], "_high": row["high"], "_published": row["published"]}
        numbers |= {name + end: float(value) for end, value in parts.items() if end == "" or not pd.isna(value)}
    return numbers


def probe_table(results: pd.DataFrame, probe: str) -> pd.DataFrame:
    """One row per example and a column per metric of one probe; numbers with a step (a weight per position) are left
    to the run directory. Whole-split metrics are headlines, not rows."""
    rows = results[(results["probe"] == probe) & results["step"].isna() & (results["example_id"] != WHOLE_SPLIT)]
    metrics = sorted(map(str, rows["metric"].unique()))
    return per_example(results, probe, metrics).drop(columns=list(RUN))


def example_table(examples: pd.DataFrame, *, log_text: bool) -> pd.DataFrame:
    """The examples with lists as text, `[0.12, 0.88]`: W&B shows those in a cell."""
    table = examples if log_text else examples.drop(columns=[name for name in WORDS if name in examples])
    for name in LIST_COLUMNS:
        if name in table and table[name].map(is_list).any():
            table = table.assign(**{name: table[name].map(cell)})
    return table


def is_list(value: object) -> bool:
    """Whether a cell holds several values."""
    return not isinstance(value, str) and pd.api.types.is_list_like(value)


def cell(values: Any) -> str:
    """A list as the text of one cell; numbers with three digits, tokens with spaces between them."""
    items = list(values) if is_list(values) else [values]
    if all(isinstance(item, str) for item in items):
        return " ".join(items)
    return "[" + ", ".join(f"{item:.3g}" for item in items) + "]"


def tags(identity: dict[str, str], probes: list[str]) -> list[str]:
    """Data, model, seed and probes, without doubles (W&B refuses those)."""
    words = [identity["data"], identity["model"], f"seed-{identity['seed']}", *probes]
    return list(dict.fromkeys(limited(word, 64) for word in words if word))


def limited(text: str, most: int) -> str:
    """W&B refuses longer groups (128), tags and job types (64)."""
    return text if len(text) <= most else text[: most - 1] + "…"


def identifier(run_id: str) -> str:
    """The run's id in the characters that W&B allows.

    >>> identifier("sst/lstm additive#1")
    'sst-lstm-additive-1'
    """
    return re.sub(r"[^A-Za-z0-9_-]+", "-", run_id)[:64]


def read_config(run_dir: Path) -> dict[str, Any]:
    """The run's resolved config; empty where the directory has none."""
    path = run_dir / "config.yaml"
    if not path.exists():
        return {}
    config = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    return {str(key): value for key, value in config.items()} if isinstance(config, dict) else {}
