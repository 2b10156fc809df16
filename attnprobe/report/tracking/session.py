"""Starting a W&B run: what it is called, where it belongs, and what of it may go."""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import wandb

from attnprobe.errors import UserError
from attnprobe.results.directory import RunDirectory
from attnprobe.results.saved import read_settings

Mode = Literal["online", "offline", "disabled"]
NO_PROBES = ("training", "performance")
"""Tables that every run has."""


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
    resumed: bool = False,
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
            either. Neither depends on data, model, seed or time, so the jobs of a sweep, of the same sweep
            resumed, and of a later one with more seeds are in one group. The job type, `data-model`, puts the seeds of a
            data set and model together.
        resumed: the training is finished, and what W&B has of it is added to. Otherwise (W&B holds the beginning of a
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
            resume="allow" if mode == "online" and resumed else None,
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


def forget_unsent(run: "wandb.Run", run_dir: Path) -> None:
    """Remove earlier offline records of the same W&B run that were not sent: sent after this one, they would put older
    results over it."""
    for folder in run_dir.glob(f"wandb/offline-run-*-{run.id}"):
        if folder.resolve() != Path(run.dir).parent.resolve() and not any(folder.glob("*.synced")):
            shutil.rmtree(folder)


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
