"""A sweep as jobs for a pool: what is done already, what runs where, and what came of it."""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from attnprobe.errors import answering_disk
from attnprobe.launching.cluster import cluster_slots
from attnprobe.launching.pool import Job, Outcome, Pool, Slot
from attnprobe.launching.slots import local_slots, visible_gpus
from attnprobe.report.numbers import read_numbers
from attnprobe.report.terminal import headline
from attnprobe.results.directory import RunDirectory
from attnprobe.results.schema import WHOLE_SPLIT
from attnprobe.shown import visible

SHOWN_PROBES = 4
"""The closing table shows the first headline number of at most this many probes; the report shows all."""


@dataclass(frozen=True)
class Planned:
    """One job of a sweep, before it starts.

    Attributes:
        overrides: its settings as they stand on a command line.
        name: the settings in which the jobs of the sweep differ.
        stem: name of its log file.
        directory: its run directory; None where its settings cannot be read (the job itself will say why).
        done: everything it asks for is there already.
    """

    overrides: tuple[str, ...]
    name: str
    stem: str
    directory: Path | None
    done: bool


def names(jobs: Sequence[Sequence[str]]) -> list[str]:
    """The settings in which the jobs of a sweep differ, as one line per job.

    >>> names([["data=sst", "model=lstm", "seed=1"], ["data=sst", "model=lstm", "seed=2"]])
    ['seed=1', 'seed=2']
    """
    common = set(jobs[0]).intersection(*jobs[1:]) if len(jobs) > 1 else set()
    return [" ".join(part for part in job if part not in common) or "(as configured)" for job in jobs]


def stem(number: int, settings: Mapping[str, Any] | None) -> str:
    """Name of a job's log file, without its ending.

    >>> stem(3, {"data": {"name": "sst"}, "model": {"name": "lstm_dot"}, "seed": 1})
    '3-sst-lstm_dot-seed1'
    """
    if settings is None:
        return str(number)
    name = f"{settings['data']['name']}-{settings['model']['name']}-seed{settings['seed']}"
    return f"{number}-" + re.sub(r"[^\w.+-]+", "_", name)


def command(overrides: Sequence[str], options: Sequence[str] = ()) -> tuple[str, ...]:
    """The command line of one job: a single run of this program, which leaves a finished run as it is."""
    policy = [] if any(part.startswith("on_finished=") for part in overrides) else ["on_finished=skip"]
    return (sys.executable, "-m", "attnprobe", *options, *overrides, *policy)


def slots_of(launcher: Mapping[str, Any], *, on_gpu: bool, jobs: int, logs: Path) -> tuple[list[Slot], str]:
    """Where the jobs run, and how to say so.

    Args:
        launcher: the settings of conf/launcher.
        on_gpu: the jobs may use graphics cards.
        jobs: how many there are; no more slots are made.
        logs: directory of the logs.
    """
    if launcher["name"] == "submitit":
        workers = min(launcher["workers"], max(jobs, 1))
        cluster: str = launcher["cluster"]
        slots: list[Slot] = [*cluster_slots(workers, cluster, launcher["parameters"], logs / "submitit")]
        return slots, f"on {cluster} through submitit, at most {launcher['workers']} at a time"
    gpus = visible_gpus() if on_gpu else []
    workers = launcher["workers"]
    everything = local_slots(workers, gpus)
    kind = f"GPU{'s' if len(gpus) > 1 else ''} {', '.join(gpus)}"
    if gpus and workers is not None:
        where = f"on {counted(workers, 'worker')} on {kind}"
    else:
        where = f"on {kind}" if gpus else f"on {counted(len(everything), 'CPU worker')}"
    # the threads are those of the full number: a sweep's last few jobs compute as its first ones did
    return [*everything[: max(jobs, 1)]], where


def counted(number: int, thing: str) -> str:
    """`1 worker`, `2 workers`."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


@answering_disk()
def run_sweep(
    planned: Sequence[Planned],
    *,
    launcher: Mapping[str, Any],
    on_gpu: bool,
    logs: Path,
    output: Path,
    options: Sequence[str] = (),
) -> list[Outcome]:
    """Run what is not done, and say on standard output what happens.

    Args:
        planned: all jobs of the sweep.
        launcher: the settings of conf/launcher.
        on_gpu: the jobs may use graphics cards.
        logs: directory of the logs.
        output: the directory that holds the runs; for the closing words.
        options: options of the command line (not settings) that every job needs as well.

    Returns:
        one outcome per job; a job that was done before has status 0 and took no time.
    """
    waiting = [number for number, job in enumerate(planned) if not job.done]
    slots, where = slots_of(launcher, on_gpu=on_gpu, jobs=len(waiting), logs=logs)
    jobs = [
        Job(
            name=planned[number].name,
            command=command(planned[number].overrides, options),
            log=logs / f"{planned[number].stem}.log",
            # two jobs that differ in their probes alone share a training
            alone=None if planned[number].directory is None else str(planned[number].directory),
        )
        for number in waiting
    ]
    done = len(planned) - len(waiting)
    run = f"{len(waiting)} to run {where}; logs in {logs}" if waiting else "nothing to run"
    say(f"{counted(len(planned), 'job')}: {done} done, {run}")

    ended = 0

    def on_end(number: int, outcome: Outcome) -> None:
        nonlocal ended
        ended += 1
        state = f"done in {outcome.seconds:.0f} s" if outcome.succeeded else f"FAILED {how(outcome)}"
        say(f"[{ended}/{len(jobs)}] {outcome.job.name}: {state}")

    poll = 5.0 if launcher["name"] == "submitit" and launcher["cluster"] == "slurm" else 0.1
    ran = dict(zip(waiting, Pool(slots, on_end=on_end, poll_seconds=poll).run(jobs), strict=True))
    outcomes = [
        ran.get(number) or Outcome(Job(job.name, command(job.overrides, options), logs / f"{job.stem}.log"), 0)
        for number, job in enumerate(planned)
    ]
    conclude(planned, outcomes, output)
    return outcomes


def say(line: str, *, plain: bool = True) -> None:
    """Print a line at once.

    Args:
        line: what to print.
        plain: hidden characters are shown as escapes; a table with colours is made of such.
    """
    encoding = sys.stdout.encoding or "utf-8"
    line = visible(line) if plain else line
    print(line.encode(encoding, errors="replace").decode(encoding), flush=True)


def how(outcome: Outcome) -> str:
    """How a job failed, in brackets and words."""
    if outcome.status is None:
        return outcome.error
    status = "" if outcome.status < 0 else f"(status {outcome.status}) "
    return f"{status}after {outcome.seconds:.0f} s: {outcome.error}"


def conclude(planned: Sequence[Planned], outcomes: Sequence[Outcome], output: Path) -> None:
    """The closing words of a sweep: every job's headline numbers, then what failed and where to read on."""
    rows: list[dict[str, float]] = []
    for job, outcome in zip(planned, outcomes, strict=True):
        # a table that cannot be read is no reason to lose the others
        numbers: dict[str, float] = {}
        if outcome.succeeded and job.directory is not None:
            with suppress(OSError, ValueError, KeyError):
                numbers = headline_numbers(job.directory)
        rows.append(numbers)
    show(summary(planned, outcomes, rows))
    failed = [outcome for outcome in outcomes if not outcome.succeeded]
    for outcome in failed:
        say(f"FAILED {outcome.job.name} {how(outcome)}")
        if outcome.status is not None:
            say(f"       log: {outcome.job.log}")
    if failed:
        say("the same command again runs what is missing")
    if len(failed) < len(outcomes):
        say(f"report: python -m attnprobe.report {output}")


def headline_numbers(directory: Path) -> dict[str, float]:
    """The accuracy and the first headline number of every probe of a finished run, by name."""
    first: dict[str, float] = {}
    for name, value in headline(read_numbers(directory)).items():
        probe = name.split("/")[0]
        if not any(known.startswith(f"{probe}/") for known in first):
            first[name] = value
    return first


def summary(planned: Sequence[Planned], outcomes: Sequence[Outcome], rows: Sequence[Mapping[str, float]]) -> Table:
    """One line per job: its name, how it ended, its headline numbers."""
    columns = list(dict.fromkeys(name for row in rows for name in row))[: SHOWN_PROBES + 1]
    table = Table(box=box.SIMPLE_HEAD if sys.stdout.isatty() else box.ASCII)
    table.add_column("job", overflow="fold")
    table.add_column("state", no_wrap=True)
    for name in columns:
        table.add_column(Text(visible(name).replace("/", "\n")), justify="right", no_wrap=True)
    for job, outcome, row in zip(planned, outcomes, rows, strict=True):
        state = "done before" if job.done else f"{outcome.seconds:.0f} s" if outcome.succeeded else "FAILED"
        numbers = [f"{row[name]:.3f}" if name in row else "" for name in columns]
        table.add_row(*(Text(visible(cell)) for cell in (job.name, state, *numbers)))
    return table


def show(table: Table) -> None:
    """Print a table; without colours and in plain lines where nobody looks at a screen."""
    with open(os.devnull, "w") as nowhere:
        console = Console(file=nowhere, record=True, width=None if sys.stdout.isatty() else 140)
        console.print(table)
    say(console.export_text(styles=sys.stdout.isatty()).rstrip("\n"), plain=False)


def objective(directory: Path) -> float | None:
    """What a search for settings optimises: the chosen epoch's validation metric by which that epoch was chosen
    (`training.recipe.selection_metric`; higher is better, but for `loss`).

    Returns:
        the metric; None where nothing was trained (training=none), so that no epoch was chosen.

    Raises:
        UserError: no finished run there, or a damaged one.
    """
    run = RunDirectory(directory)
    manifest = run.manifest()
    if manifest["chosen_epoch"] is None:
        return None
    metric = f"validation_{manifest['training']['training']['recipe']['selection_metric']}"
    chosen = (
        (pc.field("metric") == metric)
        & (pc.field("step") == float(manifest["chosen_epoch"]))
        & (pc.field("example_id") == WHOLE_SPLIT)
    )
    return float(run.table("training", where=chosen)["value"][0].as_py())
