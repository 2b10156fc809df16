"""Many jobs at a time, one process each, on this machine or on a SLURM cluster: the pool of sweeps
(-m) and studies.

What takes long to import is imported where it is needed: on a cluster every job begins by importing
this file."""

import copy
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hydra.errors import HydraException
from omegaconf import DictConfig, open_dict
from omegaconf.errors import OmegaConfBaseException

from attnprobe.core.errors import UserError, answering_disk
from attnprobe.core.processes import IS_JOB, WATCH, ended_by_signals
from attnprobe.core.sanitise import visible

GRACE_SECONDS = 10.0
LOST_SECONDS = 30.0
TOLD_SECONDS = 60.0
"""How long a job that is told to end may take before it is killed; how long a cluster's job without
a result may be out of the queue before it counts as ended by the cluster; how often a line says
what waits in that queue."""
SHOWN_PROBES = 4
"""The closing table shows the first headline number of at most this many probes; the report shows
all."""


@dataclass(frozen=True)
class Job:
    """One command in a process of its own."""

    name: str
    command: Sequence[str]
    log: Path  # its standard output and error are appended to it
    directory: Path | None = (
        None  # of its run, where that is known; jobs of one directory never run at the same time
    )
    done: bool = False  # everything it asks for is there already, and it is not started

    @classmethod
    def of(
        cls, name: str, overrides: Sequence[str], options: Sequence[str], log: Path, **known: Any
    ) -> "Job":
        """A single run of this program with these settings and options of Hydra's; it leaves a
        finished run as it is."""
        policy = (
            []
            if any(part.startswith("on_finished=") for part in overrides)
            else ["on_finished=skip"]
        )
        return cls(
            name,
            (sys.executable, "-P", "-m", "attnprobe", *options, *overrides, *policy),
            log,
            **known,
        )


@dataclass(frozen=True)
class Outcome:
    """How a job ended."""

    job: Job
    status: int  # of exit; negative: the signal that ended it
    seconds: float = 0.0
    error: str = ""  # one line that says what went wrong

    @property
    def succeeded(self) -> bool:
        return self.status == 0

    @property
    def why(self) -> str:
        """`(status 2) after 3 s: attnprobe: seed=x`, of one that failed."""
        status = "" if self.status < 0 else f"(status {self.status}) "
        return f"{status}after {self.seconds:.0f} s: {self.error}"


def run_jobs(
    jobs: Sequence[Job],
    places: "Machine | Cluster",
    on_end: Callable[[Outcome], None] = lambda _: None,
) -> list[Outcome]:
    """Run jobs in the order given, as far as `directory` allows; one that fails stops no other.
    `on_end` is called with every outcome as it comes; returned are all in the order of the jobs. A
    signal ends the running jobs first."""
    outcomes = {number: Outcome(job, 0) for number, job in enumerate(jobs) if job.done}
    running: dict[int, tuple[int, _Process | _Submitted, float]] = {}
    free = list(range(places.count))
    told = time.monotonic()

    with ended_by_signals(("SIGTERM", "SIGHUP")):
        try:
            while len(outcomes) < len(jobs):
                for number, job in enumerate(jobs):
                    busy = {jobs[other].directory for other in running} - {None}
                    if (
                        free
                        and number not in outcomes
                        and number not in running
                        and job.directory not in busy
                    ):
                        place = free.pop(0)
                        running[number] = (place, places.start(job, place), time.monotonic())
                before = len(running)
                for number, (place, started, began) in list(running.items()):
                    if (status := started.poll()) is not None:
                        del running[number]
                        free.append(place)
                        error = "" if status == 0 else last_error(jobs[number].log, status)
                        outcomes[number] = Outcome(
                            jobs[number], status, time.monotonic() - began, error
                        )
                        on_end(outcomes[number])
                if isinstance(places, Cluster) and time.monotonic() - told > TOLD_SECONDS:
                    told = time.monotonic()
                    if queue := places.waiting():
                        say(queue)
                if running and len(running) == before:
                    time.sleep(places.poll_seconds)
        finally:
            left = [started for _, started, _ in running.values()]
            for one in left:
                one.stop()
            last = time.monotonic() + GRACE_SECONDS
            try:
                while any(one.poll() is None for one in left) and time.monotonic() < last:
                    time.sleep(0.05)
            finally:  # a second Ctrl-C ends the waiting
                for one in left:
                    if one.poll() is None:
                        one.stop(kill=True)
    return [outcomes[number] for number in range(len(jobs))]


def safe_path() -> dict[str, str]:
    """The part of a job's environment by which no module in its working directory is imported in
    place of a library's."""
    root = str(Path(__file__).resolve().parents[2])
    given = [
        part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part
    ]  # an empty one is `.`
    found = sys.path if sys.flags.safe_path else sys.path[1:]
    added = [] if root in (*given, *found) else [root]  # a checkout that is not installed
    return {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join([*given, *added])}


class _Process:
    """A job in a child process, in a process group of its own, so that its own children are ended
    with it."""

    def __init__(self, job: Job, environment: dict[str, str]) -> None:
        job.log.parent.mkdir(parents=True, exist_ok=True)
        with job.log.open("ab") as log:
            log.write(
                f"--- {time.strftime('%Y-%m-%d %H:%M:%S')}  {' '.join(job.command)}\n".encode()
            )
            log.flush()
            self.process = subprocess.Popen(
                list(job.command),
                stdin=subprocess.PIPE,  # closed when this process dies: attnprobe.core.processes.end_with_pool
                stdout=log,
                stderr=subprocess.STDOUT,
                # unbuffered, so that the last line of a log is the last word of its job
                env=os.environ
                | safe_path()
                | {"PYTHONUNBUFFERED": "1", WATCH: "1", IS_JOB: "1"}
                | environment,
                process_group=0,
            )

    def poll(self) -> int | None:
        status = self.process.poll()
        if status is not None and self.process.stdin is not None:
            self.process.stdin.close()
        return status

    def stop(self, *, kill: bool = False) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL if kill else signal.SIGTERM)
        if kill:
            self.process.wait()
            self.poll()


class Machine:
    """This machine: `workers` jobs at a time; None: one per graphics card (`gpus`, as
    `CUDA_VISIBLE_DEVICES` names them; a job sees its own one only), and where there is none one for
    every two `cores`, which the jobs share by OMP_NUM_THREADS."""

    poll_seconds = 0.1

    def __init__(
        self, workers: int | None = None, gpus: Sequence[str] = (), cores: int | None = None
    ) -> None:
        if cores is None:  # macOS does not say which
            cores = (
                len(os.sched_getaffinity(0))
                if hasattr(os, "sched_getaffinity")
                else os.cpu_count() or 1
            )
        self.count = (len(gpus) or max(1, cores // 2)) if workers is None else workers
        self.threads = (
            {}
            if "OMP_NUM_THREADS" in os.environ
            else {"OMP_NUM_THREADS": str(max(1, cores // self.count))}
        )
        self.gpus = list(gpus)
        cards = f"GPU{'s' if len(gpus) > 1 else ''} {', '.join(gpus)}"
        own = f"{self.count} {'worker' if gpus else 'CPU worker'}{'s' * (self.count != 1)}"
        self.words = own if not gpus else cards if workers is None else f"{own} on {cards}"

    def start(self, job: Job, place: int) -> _Process:
        card = {"CUDA_VISIBLE_DEVICES": self.gpus[place % len(self.gpus)]} if self.gpus else {}
        return _Process(job, self.threads | card)


@dataclass(frozen=True)
class RemoteJob:
    """What is sent to a cluster. Called there, it runs the job to its end and returns the exit
    status."""

    job: Job
    folder: str

    def __call__(self) -> int:
        os.chdir(self.folder)
        cores = os.environ.get("SLURM_CPUS_PER_TASK")  # not every cluster binds a job to them
        own = {"OMP_NUM_THREADS": cores} if cores and "OMP_NUM_THREADS" not in os.environ else {}
        running = _Process(self.job, own)
        try:
            return running.process.wait()
        finally:
            running.stop(
                kill=True
            )  # no effect on one that has ended; else this process was told to end

    def checkpoint(self) -> Any:
        """Asked by submitit before the time is up or a preemption: the same command goes into the
        queue again."""
        import submitit

        return submitit.helpers.DelayedSubmission(self)


@dataclass
class _Submitted:
    """A job in a cluster's queue, or running there. SLURM's queue says what became of it (`sacct`
    needs accounting)."""

    submitted: Any
    cluster: "Cluster"
    log: Path
    seen: float = field(default_factory=time.monotonic)

    def poll(self) -> int | None:
        import submitit

        if not self.cluster.on_slurm and not self.submitted.done():
            return None
        if self.cluster.on_slurm and not self.submitted.paths.result_pickle.exists():
            queue = self.cluster.queue()
            if queue is None or self.submitted.job_id in queue:
                self.seen = time.monotonic()
            if time.monotonic() - self.seen < LOST_SECONDS:
                return None
            with self.log.open("ab") as log:
                log.write(
                    b"attnprobe: the cluster ended this job (scancel, its time or its memory?)\n"
                )
            return 1
        try:
            return int(self.submitted.result())
        except (submitit.core.utils.UncompletedJobError, submitit.core.utils.FailedJobError):
            return 1

    def stop(self, *, kill: bool = False) -> None:
        self.submitted.cancel(check=False)  # SLURM kills by itself what does not end


class Cluster:
    """A SLURM cluster, through submitit, which keeps its files in `folder`; `local` runs the jobs
    here, without a queue.

    `parameters`: what one job needs, by submitit's names; null: not set, but for `gpus_per_node`:
    one where `on_gpu` and the cluster has any. At most `workers` jobs are in the queue or running
    at the same time."""

    def __init__(
        self,
        workers: int,
        cluster: str,
        parameters: Mapping[str, Any],
        folder: Path,
        *,
        on_gpu: bool = False,
    ) -> None:
        try:
            import submitit
        except ImportError:
            raise UserError(
                "launcher=submitit needs submitit, which is not installed: pip install 'attnprobe[slurm]'"
            ) from None
        self.count = workers
        self.on_slurm = cluster == "slurm"
        self.poll_seconds = 5.0 if self.on_slurm else 0.1
        self.words = f"{cluster} through submitit, at most {workers} at a time"
        self._asked = -self.poll_seconds
        self._queue: dict[str, tuple[str, str]] | None = None
        given = dict(parameters)
        if given.get("gpus_per_node") is None and self.on_slurm:
            partition = given.get("slurm_partition")
            here = [f"--partition={partition}"] if partition else []
            found = self.answer_of("sinfo", "--noheader", "--format=%G", *here) or ""
            given["gpus_per_node"] = 1 if on_gpu and "gpu" in found else None
        given = {
            name: one
            for name, one in given.items()
            if one is not None and (name, one) != ("gpus_per_node", 0)
        }
        path = " ".join(f"{name}={shlex.quote(value)}" for name, value in safe_path().items())
        try:
            self.executor = submitit.AutoExecutor(
                folder,
                cluster=cluster,
                **{f"{cluster}_python": f"env {path} {shlex.quote(sys.executable)}"},
            )
            self.executor.update_parameters(**given)
        except (RuntimeError, ValueError, NameError, AssertionError, TypeError) as error:
            message = " ".join(str(error).split())
            raise UserError(
                f"submitit does not accept launcher.cluster={cluster} with launcher.parameters={given}: {message}"
            ) from None

    def start(self, job: Job, place: int) -> _Submitted:
        import submitit

        job = replace(job, log=job.log.absolute())
        job.log.parent.mkdir(parents=True, exist_ok=True)
        self.executor.update_parameters(name=f"attnprobe-{job.log.stem}")
        try:
            return _Submitted(self.executor.submit(RemoteJob(job, str(Path.cwd()))), self, job.log)
        except (
            submitit.core.utils.FailedJobError,
            subprocess.CalledProcessError,
            OSError,
        ) as error:
            raise UserError(
                f"the cluster did not take the job {job.name}: {' '.join(str(error).split())}. launcher.parameters.NAME=… "
                f"says what a job needs; NAME=null leaves it to the cluster"
            ) from None

    def answer_of(self, *command: str) -> str | None:
        """What one of SLURM's commands prints; None where it fails."""
        try:
            return subprocess.run(
                command, capture_output=True, text=True, check=True, timeout=60
            ).stdout
        except (OSError, subprocess.SubprocessError):
            return None

    def queue(self) -> Mapping[str, tuple[str, str]] | None:
        """Job id → state and reason of this user's jobs; asked at most once in `poll_seconds`."""
        if time.monotonic() - self._asked >= self.poll_seconds:
            asked = self.answer_of(
                "squeue", "--noheader", f"--user={os.getuid()}", "--format=%i|%T|%r"
            )
            if asked is not None:  # a queue that does not answer says nothing of its jobs
                rows = [line.strip().split("|") for line in asked.splitlines()]
                self._queue = {row[0]: (row[1], row[2]) for row in rows if len(row) == 3}
            self._asked = time.monotonic()
        return self._queue

    def waiting(self) -> str:
        """`3 queued: Resources, Priority`."""
        queue = self.queue() if self.on_slurm else None
        reasons = [reason for state, reason in (queue or {}).values() if state == "PENDING"]
        return f"{len(reasons)} queued: {', '.join(dict.fromkeys(reasons))}" if reasons else ""


def places_of(launcher: Mapping[str, Any], *, on_gpu: bool, logs: Path) -> Machine | Cluster:
    """Where jobs run by the settings of conf/launcher; `on_gpu`: they may use graphics cards."""
    if launcher["name"] == "submitit":
        folder = logs / "submitit"
        return Cluster(
            launcher["workers"], launcher["cluster"], launcher["parameters"], folder, on_gpu=on_gpu
        )
    gpus: list[str] = []
    if on_gpu:
        import torch  # takes seconds, which a sweep on a cluster need not wait for

        count = torch.cuda.device_count()
        listed = [
            name.strip()
            for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
            if name.strip()
        ]
        gpus = listed[:count] if listed else [str(number) for number in range(count)]
    return Machine(launcher["workers"], gpus)


def last_error(log: Path, status: int) -> str:
    """One line that says why a job with this exit status failed: the last error message of its last
    attempt, else its last line; for a signal its name."""
    if status < 0:
        name = (
            signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
        )
        return f"killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
    try:
        text = re.split(r"(?m)^--- \d{4}-\d\d-\d\d .*$", log.read_text("utf-8", errors="replace"))[
            -1
        ]
    except OSError as error:
        return f"no log: {error.strerror}"
    # a progress bar draws itself again after a carriage return
    lines = [
        line
        for line in map(str.strip, re.split(r"[\r\n]+", text))
        if line and "HYDRA_FULL_ERROR=1" not in line
    ]
    messages = [
        line
        for line in lines
        if re.match(r"(attnprobe: |[\w.]*(Error|Exception|Interrupt|Exit)\b)", line)
    ]
    return (messages or lines or ["no word in its log"])[-1]


def options_of(hydra: Any) -> list[str]:
    """What else stands on this process's command line and decides a job's settings: Hydra's own
    options."""
    found = []
    for source in hydra.runtime.config_sources:
        found += ["--config-dir", source.path] if source.provider == "command-line" else []
    if hydra.job.config_name != "config":
        found += ["--config-name", hydra.job.config_name]
    return found + [
        one for one in hydra.overrides.hydra if one.lstrip("+~").startswith("hydra.searchpath")
    ]


def planned(
    load: Callable[[list[str]], DictConfig], job_overrides: Sequence[Sequence[str]], first: int
) -> tuple[list[Job], bool]:
    """The jobs of a sweep from their command lines, numbered from `first`, and whether one of them
    may use a graphics card. `load` gives a job's configuration, Hydra's part included.

    Raises:
        UserError: a job has a mistake in its settings: what it would end with itself, found before
            any job has begun.
    """
    from attnprobe.runs.answers import answer
    from attnprobe.runs.prepare import is_finished
    from attnprobe.runs.settings import constructible, refuse_several_devices

    common = (
        set(job_overrides[0]).intersection(*job_overrides[1:]) if len(job_overrides) > 1 else set()
    )
    jobs = []
    on_gpu = False
    for number, given in enumerate(job_overrides, start=first):
        name = " ".join(part for part in given if part not in common) or "(as configured)"
        try:
            config = copy.deepcopy(load(list(given)))
            logs = Path(config.hydra.sweep.dir)
            options = options_of(config.hydra)
            with open_dict(config):
                del config["hydra"]
            settings = constructible(config, list(given))
            refuse_several_devices(config.trainer)
            # a study has no directory of a run, nor has a run whose teacher is not trained yet
            is_run = config.study is None and not settings.awaits_teacher
            done = is_run and config.on_finished in (None, "skip") and is_finished(settings)
        except (UserError, OmegaConfBaseException, HydraException) as raised:
            raise UserError(
                f"{answer(raised, list(given))} (in the job {name}; no job was started)"
            ) from None
        on_gpu = on_gpu or config.trainer.accelerator not in ("cpu", "mps")
        stem = str(number)
        directory = None
        if is_run:
            part = settings.config
            directory = settings.directory
            stem += f"-{part['data']['name']}-{part['model']['name']}-seed{part['seed']}"
        log = logs / (re.sub(r"[^\w.+-]+", "_", stem) + ".log")
        jobs.append(Job.of(name, given, options, log, directory=directory, done=done))
    return jobs, on_gpu


@answering_disk()
def launch(
    jobs: Sequence[Job], places: Machine | Cluster, *, logs: Path, title: str = ""
) -> list[Outcome]:
    """As `run_jobs`, and say on standard output what happens; the first line begins with
    `title`."""
    left = sum(not job.done for job in jobs)
    rest = f"{left} to run on {places.words}; logs in {logs}" if left else "nothing to run"
    say(f"{title}{len(jobs)} job{'s' * (len(jobs) != 1)}: {len(jobs) - left} done, {rest}")
    ended = 0

    def on_end(outcome: Outcome) -> None:
        nonlocal ended
        ended += 1
        state = f"done in {outcome.seconds:.0f} s" if outcome.succeeded else f"FAILED {outcome.why}"
        say(f"[{ended}/{left}] {outcome.job.name}: {state}")

    return run_jobs(jobs, places, on_end)


def say(line: str) -> None:
    """Print a line at once, its hidden characters as escapes."""
    encoding = sys.stdout.encoding or "utf-8"
    print(visible(line).encode(encoding, errors="replace").decode(encoding), flush=True)


def conclude(outcomes: Sequence[Outcome], output: Path) -> None:
    """The closing words: a table of every job's headline numbers, then what failed, and where to
    read on."""
    import pandas as pd

    from attnprobe.findings.headlines import headline
    from attnprobe.results.numbers import read_numbers

    rows = []
    failed = [outcome for outcome in outcomes if not outcome.succeeded]
    for outcome in outcomes:
        done = "done before" if outcome.job.done else f"{outcome.seconds:.0f} s"
        row: dict[str, Any] = {
            "job": visible(outcome.job.name),
            "state": done if outcome.succeeded else "FAILED",
        }
        if outcome.succeeded and outcome.job.directory is not None:
            with suppress(OSError, ValueError, KeyError):  # no reason to lose the others
                for name, value in headline(read_numbers(outcome.job.directory)).items():
                    if not any(
                        known.startswith(f"{name.split('/')[0]}/") for known in row
                    ):  # a probe's first one
                        row[name] = value
        rows.append(row)
    table = pd.DataFrame(rows).iloc[:, : SHOWN_PROBES + 3]
    with pd.option_context("display.max_colwidth", None, "display.width", None):
        lines = table.to_string(index=False, na_rep="", float_format="{:.3f}".format).splitlines()
    for outcome in failed:
        lines += [f"FAILED {outcome.job.name} {outcome.why}", f"       log: {outcome.job.log}"]
    if failed:
        lines.append("the same command again runs what is missing")
    if len(failed) < len(outcomes):
        lines.append(f"report: attnprobe report {output}")
    for line in lines:
        say(line)


def objective(directory: Path) -> float | None:
    """What a search for settings optimises: the chosen epoch's validation metric by which that
    epoch was chosen (`training.recipe.selection_metric`; higher is better, but for `loss`); None
    where nothing was trained."""
    from attnprobe.results.directory import RunDirectory
    from attnprobe.results.table import read_results

    manifest = RunDirectory(directory).manifest()
    if manifest["chosen_epoch"] is None:
        return None
    metric = f"validation_{manifest['training']['training']['recipe']['selection_metric']}"
    curve = read_results(directory, probe="training")
    return float(
        curve["value"][
            (curve["metric"] == metric) & (curve["step"] == manifest["chosen_epoch"])
        ].iloc[0]
    )
