"""Many jobs at a time, each in a process of its own: the pool of sweeps (-m) and studies.

They run on this machine or on a SLURM cluster. Whatever takes long to import is imported where it
is needed, because every job on a cluster begins by importing this file.
"""

import copy
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from attnprobe.core.clock import CLOCK
from attnprobe.core.errors import UserError, answering_disk
from attnprobe.core.processes import IS_JOB, WATCH, ended_by_signals
from attnprobe.core.sanitise import visible

GRACE_SECONDS = 10.0
"""How long a job may take to end before it is killed."""
LOST_SECONDS = 30.0
"""How long a job without a result may be out of a cluster's queue before it counts as ended."""
QUEUE_SECONDS = 60.0
"""How often a line says what waits in a cluster's queue."""
SHOWN_PROBES = 4
"""The closing table shows the first headline number of at most this many probes; the report shows
all."""


@dataclass(frozen=True)
class Job:
    """One command in a process of its own.

    Attributes:
        name: as messages call it.
        command: the program and its arguments.
        log: a file that its standard output and error are appended to.
        directory: of its run, where that is known. Jobs of one directory never run at the same
            time.
        done: everything it asks for is there already, and it is not started.
    """

    name: str
    command: Sequence[str]
    log: Path
    directory: Path | None = None
    done: bool = False

    @classmethod
    def of(
        cls,
        name: str,
        overrides: Sequence[str],
        options: Sequence[str],
        log: Path,
        *,
        directory: Path | None,
        done: bool,
    ) -> "Job":
        """A single run of this program, which leaves a finished run as it is.

        Args:
            name: see the class.
            overrides: the run's settings, as on a command line.
            options: Hydra's own options (`options_of`).
            log: see the class.
            directory: see the class.
            done: see the class.
        """
        command = [sys.executable, "-P", "-m", "attnprobe", *options, *overrides]
        if not any(override.startswith("on_finished=") for override in overrides):
            command.append("on_finished=skip")
        return cls(name, tuple(command), log, directory=directory, done=done)


@dataclass(frozen=True)
class Outcome:
    """How a job ended.

    Attributes:
        job: that ended.
        status: its exit status; negative: the signal that ended it.
        seconds: that it took.
        error: one line that says what went wrong; empty where nothing did.
    """

    job: Job
    status: int
    seconds: float = 0.0
    error: str = ""

    @property
    def succeeded(self) -> bool:
        """Whether its exit status is 0."""
        return self.status == 0

    @property
    def failure(self) -> str:
        """How a job failed, as in `(status 2) after 3 s: attnprobe: seed=x`."""
        status = "" if self.status < 0 else f"(status {self.status}) "
        return f"{status}after {self.seconds:.0f} s: {self.error}"


@dataclass(frozen=True)
class _Running:
    """A started job: its slot in the pool, its process, and when it began."""

    slot: int
    process: "_Process | _Submitted"
    began: float


def run_jobs(
    jobs: Sequence[Job],
    places: "Machine | Cluster",
    on_end: Callable[[Outcome], None] = lambda _: None,
) -> list[Outcome]:
    """Run jobs in the order given, as far as their directories allow.

    A job that fails stops no other. A signal ends the running jobs first.

    Args:
        jobs: to run; those that are done are not started.
        places: where.
        on_end: is called with every outcome as it comes.

    Returns:
        the outcomes, in the order of the jobs.
    """
    outcomes = {number: Outcome(job, 0) for number, job in enumerate(jobs) if job.done}
    running: dict[int, _Running] = {}
    free_slots = list(range(places.count))
    last_message = time.monotonic()

    with ended_by_signals(("SIGTERM", "SIGHUP")):
        try:
            while len(outcomes) < len(jobs):
                for number, job in enumerate(jobs):
                    is_waiting = number not in outcomes and number not in running
                    busy = {jobs[started].directory for started in running}
                    is_blocked = job.directory is not None and job.directory in busy
                    if free_slots and is_waiting and not is_blocked:
                        slot = free_slots.pop(0)
                        running[number] = _Running(slot, places.start(job, slot), time.monotonic())

                count = len(running)
                for number, attempt in list(running.items()):
                    status = attempt.process.poll()
                    if status is None:
                        continue
                    del running[number]
                    free_slots.append(attempt.slot)
                    outcomes[number] = _outcome_of(jobs[number], attempt, status)
                    on_end(outcomes[number])

                if time.monotonic() - last_message > QUEUE_SECONDS:
                    last_message = time.monotonic()
                    _print_queue(places)
                if running and len(running) == count:
                    time.sleep(places.poll_seconds)
        finally:
            _stop([attempt.process for attempt in running.values()])
    return [outcomes[number] for number in range(len(jobs))]


def _outcome_of(job: Job, attempt: _Running, status: int) -> Outcome:
    error = "" if status == 0 else last_error(job.log, status)
    return Outcome(job, status, time.monotonic() - attempt.began, error)


def _print_queue(places: "Machine | Cluster") -> None:
    """Say what waits in a cluster's queue."""
    queue = places.waiting() if isinstance(places, Cluster) else ""
    if queue:
        say(queue)


def _stop(processes: "Sequence[_Process | _Submitted]") -> None:
    """End jobs, and kill those that do not end in `GRACE_SECONDS`."""
    for process in processes:
        process.stop()
    deadline = time.monotonic() + GRACE_SECONDS
    try:
        while any(process.poll() is None for process in processes):
            if time.monotonic() >= deadline:
                break
            time.sleep(0.05)
    finally:  # a second Ctrl-C ends the waiting
        for process in processes:
            if process.poll() is None:
                process.stop(kill=True)


def safe_path() -> dict[str, str]:
    """Environment in which a job imports no module of its working directory by mistake.

    There such a module would take the place of a library's.
    """
    root = str(Path(__file__).resolve().parents[2])
    # an empty part would be the working directory
    parts = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    importable = sys.path if sys.flags.safe_path else sys.path[1:]
    if root not in parts and root not in importable:  # a checkout that is not installed
        parts.append(root)
    return {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(parts)}


class _Process:
    """A job in a child process.

    It has a process group of its own, so that its own children are ended with it.
    """

    def __init__(self, job: Job, environment: dict[str, str]) -> None:
        from attnprobe.results.files import open_log

        heading = f"--- {time.strftime('%Y-%m-%d %H:%M:%S')}  {' '.join(job.command)}\n"
        common = {
            # so that the last line of a log is the last that its job has printed
            "PYTHONUNBUFFERED": "1",
            WATCH: "1",
            IS_JOB: "1",
        }
        with open_log(job.log) as log:
            log.write(heading.encode())
            log.flush()
            self.process = subprocess.Popen(
                list(job.command),
                # closed when this process dies: attnprobe.core.processes.end_with_pool
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | safe_path() | common | environment,
                process_group=0,
            )

    def poll(self) -> int | None:
        """The exit status; None while the job runs."""
        status = self.process.poll()
        if status is not None and self.process.stdin is not None:
            self.process.stdin.close()
        return status

    def stop(self, *, kill: bool = False) -> None:
        """Ask the job to end, or kill it."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL if kill else signal.SIGTERM)
        if kill:
            self.process.wait()
            self.poll()


class Machine:
    """This machine as a place of jobs.

    Attributes:
        count: how many jobs run at a time.
        gpus: graphics cards, as `CUDA_VISIBLE_DEVICES` names them; a job sees one of them.
        threads: environment of every job by which the jobs share the cores.
        words: the place, as messages call it.
        poll_seconds: between two looks at the running jobs.
    """

    poll_seconds = 0.1

    def __init__(
        self, workers: int | None = None, gpus: Sequence[str] = (), cores: int | None = None
    ) -> None:
        """Divide the machine.

        Args:
            workers: jobs at a time; None: one per graphics card, and without any one for every two
                cores.
            gpus: see the class.
            cores: to be shared; None: all that this process may use.
        """
        if cores is None:
            cores = _usable_cores()
        self.gpus = list(gpus)
        if workers is None:
            self.count = len(gpus) or max(1, cores // 2)
        else:
            self.count = workers
        self.threads: dict[str, str] = {}
        if "OMP_NUM_THREADS" not in os.environ:
            self.threads["OMP_NUM_THREADS"] = str(max(1, cores // self.count))
        self.words = self._describe(has_own_count=workers is not None)

    def _describe(self, *, has_own_count: bool) -> str:
        """`GPUs 0, 1`, `6 workers on GPUs 0, 1`, `1 CPU worker`."""
        plural = "" if self.count == 1 else "s"
        if not self.gpus:
            return f"{self.count} CPU worker{plural}"
        cards = f"GPU{'s' if len(self.gpus) > 1 else ''} {', '.join(self.gpus)}"
        return f"{self.count} worker{plural} on {cards}" if has_own_count else cards

    def start(self, job: Job, slot: int) -> _Process:
        """Start a job.

        Args:
            job: to start.
            slot: number in the pool, which decides its graphics card.
        """
        environment = dict(self.threads)
        if self.gpus:
            environment["CUDA_VISIBLE_DEVICES"] = self.gpus[slot % len(self.gpus)]
        return _Process(job, environment)


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # macOS does not say which cores a process may use
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True)
class RemoteJob:
    """What is sent to a cluster and called there.

    Attributes:
        job: to run.
        folder: to run it in.
    """

    job: Job
    folder: str

    def __call__(self) -> int:
        """Run the job to its end, and return its exit status."""
        os.chdir(self.folder)
        environment = {}
        cores = os.environ.get("SLURM_CPUS_PER_TASK")  # not every cluster binds a job to them
        if cores and "OMP_NUM_THREADS" not in os.environ:
            environment["OMP_NUM_THREADS"] = cores
        running = _Process(self.job, environment)
        try:
            return running.process.wait()
        finally:
            # without effect on a job that has ended; otherwise a signal ends this process
            running.stop(kill=True)

    def checkpoint(self) -> Any:
        """Put the same command into the queue again.

        submitit calls it before the time is up, or before a preemption.
        """
        import submitit

        return submitit.helpers.DelayedSubmission(self)


@dataclass
class _Submitted:
    """A job in a cluster's queue, or running there.

    SLURM's queue says what became of it, as `sacct` needs accounting.

    Attributes:
        submitted: submitit's job.
        cluster: where.
        log: of the job.
        last_seen: when it was last in the queue.
    """

    submitted: Any
    cluster: "Cluster"
    log: Path
    last_seen: float = field(default_factory=time.monotonic)

    def poll(self) -> int | None:
        """The exit status; None while the job waits or runs."""
        import submitit

        if self.cluster.on_slurm:
            if not self.submitted.paths.result_pickle.exists():
                return self._poll_queue()
        elif not self.submitted.done():
            return None
        try:
            return int(self.submitted.result())
        except (submitit.core.utils.UncompletedJobError, submitit.core.utils.FailedJobError):
            return 1

    def _poll_queue(self) -> int | None:
        """Status 1 for a job that left neither a result nor a trace in the queue."""
        from attnprobe.results.files import open_log

        queue = self.cluster.queue()
        if queue is None or self.submitted.job_id in queue:
            self.last_seen = time.monotonic()
        if time.monotonic() - self.last_seen < LOST_SECONDS:
            return None
        message = "attnprobe: the cluster ended this job (scancel, its time or its memory?)\n"
        with open_log(self.log) as log:
            log.write(message.encode())
        return 1

    def stop(self, *, kill: bool = False) -> None:
        """Cancel the job; SLURM itself kills a job that does not end."""
        self.submitted.cancel(check=False)


class Cluster:
    """A SLURM cluster, through submitit.

    Attributes:
        count: how many jobs are in the queue or running at a time.
        on_slurm: there is a queue; otherwise the jobs run on this machine.
        words: the place, as messages call it.
        poll_seconds: between two looks at the jobs.
        executor: submitit's.
    """

    def __init__(
        self,
        workers: int,
        cluster: str,
        parameters: Mapping[str, Any],
        folder: Path,
        *,
        on_gpu: bool = False,
    ) -> None:
        """Prepare submitit.

        Args:
            workers: jobs in the queue or running at a time, at most.
            cluster: `slurm`, or `local` for jobs on this machine, without a queue.
            parameters: what one job needs, by submitit's names; null: not set, except
                `gpus_per_node`, which is then one where `on_gpu` and the cluster has any.
            folder: where submitit keeps its files.
            on_gpu: jobs may use graphics cards.

        Raises:
            UserError: if submitit is missing or does not accept the parameters.
        """
        try:
            import submitit
        except ImportError:
            raise UserError(
                "launcher=submitit needs submitit, which is not installed: "
                "pip install 'attnprobe[slurm]'"
            ) from None
        self.count = workers
        self.on_slurm = cluster == "slurm"
        self.poll_seconds = 5.0 if self.on_slurm else 0.1
        self.words = f"{cluster} through submitit, at most {workers} at a time"
        self._last_query = -self.poll_seconds
        self._queue: dict[str, tuple[str, str]] | None = None

        needs = self._needs(parameters, on_gpu=on_gpu)
        path = " ".join(f"{name}={shlex.quote(value)}" for name, value in safe_path().items())
        python = f"env {path} {shlex.quote(sys.executable)}"
        try:
            self.executor = submitit.AutoExecutor(
                folder, cluster=cluster, **{f"{cluster}_python": python}
            )
            self.executor.update_parameters(**needs)
        except (RuntimeError, ValueError, NameError, AssertionError, TypeError) as error:
            message = " ".join(str(error).split())
            raise UserError(
                f"submitit does not accept launcher.cluster={cluster} with "
                f"launcher.parameters={needs}: {message}"
            ) from None

    def _needs(self, parameters: Mapping[str, Any], *, on_gpu: bool) -> dict[str, Any]:
        """The parameters that are set, `gpus_per_node` by what the cluster has."""
        needs = dict(parameters)
        if needs.get("gpus_per_node") is None and self.on_slurm:
            command = ["sinfo", "--noheader", "--format=%G"]
            partition = needs.get("slurm_partition")
            if partition:
                command.append(f"--partition={partition}")
            has_gpu = "gpu" in (self._output_of(*command) or "")
            needs["gpus_per_node"] = 1 if on_gpu and has_gpu else None
        if needs.get("gpus_per_node") == 0:
            del needs["gpus_per_node"]
        return {name: value for name, value in needs.items() if value is not None}

    def start(self, job: Job, slot: int) -> _Submitted:
        """Submit a job.

        Args:
            job: to submit.
            slot: ignored, as the cluster chooses the machine.

        Raises:
            UserError: if the cluster refuses it.
        """
        import submitit

        job = replace(job, log=job.log.absolute())
        job.log.parent.mkdir(parents=True, exist_ok=True)
        self.executor.update_parameters(name=f"attnprobe-{job.log.stem}")
        refusals = (submitit.core.utils.FailedJobError, subprocess.CalledProcessError, OSError)
        try:
            submitted = self.executor.submit(RemoteJob(job, str(Path.cwd())))
        except refusals as error:
            message = " ".join(str(error).split())
            raise UserError(
                f"the cluster did not take the job {job.name}: {message}. "
                f"launcher.parameters.NAME=… says what a job needs; "
                f"NAME=null leaves it to the cluster"
            ) from None
        return _Submitted(submitted, self, job.log)

    def _output_of(self, *command: str) -> str | None:
        """What one of SLURM's commands prints; None where it fails."""
        try:
            return subprocess.run(
                command, capture_output=True, text=True, check=True, timeout=60
            ).stdout
        except (OSError, subprocess.SubprocessError):
            return None

    def queue(self) -> Mapping[str, tuple[str, str]] | None:
        """State and reason of this user's jobs, by id; queried at most once in `poll_seconds`.

        None before the queue has answered.
        """
        if time.monotonic() - self._last_query >= self.poll_seconds:
            output = self._output_of(
                "squeue", "--noheader", f"--user={os.getuid()}", "--format=%i|%T|%r"
            )
            if output is not None:  # a queue that does not answer says nothing about its jobs
                rows = [line.strip().split("|") for line in output.splitlines()]
                self._queue = {row[0]: (row[1], row[2]) for row in rows if len(row) == 3}
            self._last_query = time.monotonic()
        return self._queue

    def waiting(self) -> str:
        """What waits in the queue, as in `3 queued: Resources, Priority`; empty: nothing."""
        queue = self.queue() if self.on_slurm else None
        if queue is None:
            return ""
        reasons = [reason for state, reason in queue.values() if state == "PENDING"]
        if not reasons:
            return ""
        return f"{len(reasons)} queued: {', '.join(dict.fromkeys(reasons))}"


def places_of(launcher: Mapping[str, Any], *, on_gpu: bool, logs: Path) -> Machine | Cluster:
    """Where jobs run.

    Args:
        launcher: the settings of conf/launcher.
        on_gpu: the jobs may use graphics cards.
        logs: the folder of the jobs' logs.

    Raises:
        UserError: if submitit is missing or does not accept its parameters.
    """
    if launcher["name"] == "submitit":
        return Cluster(
            launcher["workers"],
            launcher["cluster"],
            launcher["parameters"],
            logs / "submitit",
            on_gpu=on_gpu,
        )
    return Machine(launcher["workers"], _visible_gpus() if on_gpu else [])


def _visible_gpus() -> list[str]:
    """This machine's graphics cards, as `CUDA_VISIBLE_DEVICES` names them."""
    import torch  # takes seconds, which a sweep on a cluster need not wait for

    count = torch.cuda.device_count()
    parts = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    names = [part.strip() for part in parts if part.strip()]
    return names[:count] if names else [str(number) for number in range(count)]


def last_error(log: Path, status: int) -> str:
    """One line that says why a job failed.

    Args:
        log: of the job.
        status: its exit status.

    Returns:
        the last error message of its last attempt, or else its last line; for a signal its name.
    """
    if status < 0:
        is_known = -status in set(signal.Signals)
        name = signal.Signals(-status).name if is_known else f"signal {-status}"
        return f"killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
    try:
        text = log.read_text("utf-8", errors="replace")
    except OSError as error:
        return f"no log: {error.strerror}"

    last_attempt = re.split(r"(?m)^--- \d{4}-\d\d-\d\d .*$", text)[-1]
    # a progress bar draws itself again after a carriage return
    lines = [line.strip() for line in re.split(r"[\r\n]+", last_attempt)]
    lines = [line for line in lines if line and "HYDRA_FULL_ERROR=1" not in line]
    message = re.compile(r"(attnprobe: |[\w.]*(Error|Exception|Interrupt|Exit)\b)")
    messages = [line for line in lines if message.match(line)]
    return (messages or lines or ["log is empty"])[-1]


def options_of(hydra: Any) -> list[str]:
    """Hydra's own options on this process's command line, which decide a job's settings as well.

    Args:
        hydra: Hydra's part of the configuration.
    """
    options = []
    for source in hydra.runtime.config_sources:
        if source.provider == "command-line":
            options += ["--config-dir", source.path]
    if hydra.job.config_name != "config":
        options += ["--config-name", hydra.job.config_name]
    for override in hydra.overrides.hydra:
        if override.lstrip("+~").startswith("hydra.searchpath"):
            options.append(override)
    return options


def planned(
    load: Callable[[list[str]], DictConfig], job_overrides: Sequence[Sequence[str]], first: int
) -> tuple[list[Job], bool]:
    """The jobs of a sweep.

    Args:
        load: gives a job's configuration, Hydra's part included.
        job_overrides: each job's command line.
        first: the first job's number.

    Returns:
        the jobs, and whether one of them may use a graphics card.

    Raises:
        UserError: if a job has a mistake in its settings, which would end it; it is found before
            any job has begun.
    """
    from attnprobe.core.references import check_references
    from attnprobe.runs.plain_settings import check_plain_settings, refuse_page_of_several

    common: set[str] = set()
    if len(job_overrides) > 1:
        common = set(job_overrides[0]).intersection(*job_overrides[1:])
    names = []
    configs = []
    for overrides in job_overrides:
        differences = [override for override in overrides if override not in common]
        name = " ".join(differences) or "(as configured)"
        with _answering_job(name, overrides):
            config = load(list(overrides))
            settings = _without_hydra(config)
            check_references(OmegaConf.to_container(settings))
            # of every job, before the first that imports what takes seconds
            if config.run is None:  # else most settings are that run's
                check_plain_settings(settings)
            refuse_page_of_several(settings)
        names.append(name)
        configs.append(config)

    jobs = []
    trainings: dict[Path, str] = {}
    on_gpu = False
    for place, (name, overrides) in enumerate(zip(names, job_overrides, strict=True)):
        config = configs[place]
        with _answering_job(name, overrides):
            jobs.append(_planned_job(config, overrides, first + place, name, trainings))
        on_gpu = on_gpu or config.trainer.accelerator not in ("cpu", "mps")
    return jobs, on_gpu


@contextmanager
def _answering_job(name: str, overrides: Sequence[str]) -> Iterator[None]:
    """A mistake in a job's settings is one line that names the job."""
    from attnprobe.runs.answers import answer

    try:
        yield
    except (UserError, OmegaConfBaseException, HydraException) as raised:
        message = answer(raised, list(overrides))
        raise UserError(f"{message} (in the job {name}; no job was started)") from None


def _without_hydra(config: DictConfig) -> DictConfig:
    """A copy of a job's configuration without Hydra's part."""
    settings = copy.deepcopy(config)
    with open_dict(settings):
        del settings["hydra"]
    return settings


def _planned_job(
    config: DictConfig,
    overrides: Sequence[str],
    number: int,
    name: str,
    trainings: dict[Path, str],
) -> Job:
    """One job of a sweep.

    Args:
        config: its configuration, Hydra's part included.
        overrides: its command line.
        number: in the sweep.
        name: see `Job`.
        trainings: run directory → id of the run that an earlier job has there; is added to.

    Raises:
        UserError: if there is a mistake in its settings, or an earlier job with other settings has
            the same directory.
    """
    from attnprobe.runs.prepare import is_finished
    from attnprobe.runs.settings import constructible, refuse_several_devices

    logs = Path(config.hydra.sweep.dir)
    options = options_of(config.hydra)
    settings = constructible(_without_hydra(config), list(overrides))
    refuse_several_devices(config.trainer)

    stem = str(number)
    directory = None
    done = False
    # a study has no run directory, nor has a run whose teacher is not trained yet
    if config.study is None and not settings.awaits_teacher:
        directory = settings.directory
        if trainings.setdefault(directory, settings.run_id) != settings.run_id:
            raise UserError(
                f"run_dir={config.run_dir}: an earlier job of this sweep has other settings and "
                f"the same run directory: leave run_dir out, and every job gets its own in "
                f"output={config.output}"
            )
        data = settings.config["data"]["name"]
        model = settings.config["model"]["name"]
        stem += f"-{data}-{model}-seed{settings.config['seed']}"
        done = config.on_finished in (None, "skip") and is_finished(settings)
    log = logs / (re.sub(r"[^\w.+-]+", "_", stem) + ".log")
    return Job.of(name, overrides, options, log, directory=directory, done=done)


@answering_disk()
def launch(
    jobs: Sequence[Job], places: Machine | Cluster, *, logs: Path, title: str = ""
) -> list[Outcome]:
    """Run jobs as `run_jobs` does, and say on standard output what happens.

    Args:
        jobs: to run.
        places: where.
        logs: the folder of their logs.
        title: the beginning of the first line.
    """
    waiting = sum(not job.done for job in jobs)
    rest = f"{waiting} to run on {places.words}; logs in {logs}" if waiting else "nothing to run"
    plural = "" if len(jobs) == 1 else "s"
    say(f"{title}{len(jobs)} job{plural}: {len(jobs) - waiting} done, {rest}")
    with CLOCK.step("", waiting, "jobs") as step:

        def on_end(outcome: Outcome) -> None:
            step.done += 1
            if outcome.succeeded:
                state = f"done in {outcome.seconds:.0f} s"
            else:
                state = f"FAILED {outcome.failure}"
            say(f"[{step.done:.0f}/{waiting}] {outcome.job.name}: {state}")

        return run_jobs(jobs, places, on_end)


def say(line: str) -> None:
    """Print a line at once, its hidden characters as escapes."""
    encoding = sys.stdout.encoding or "utf-8"
    print(visible(line).encode(encoding, errors="replace").decode(encoding), flush=True)


def conclude(outcomes: Sequence[Outcome], output: Path) -> None:
    """Print a table of every job's headline numbers, then what failed, and where to read on.

    Args:
        outcomes: of all jobs.
        output: the folder that a report can be made of.
    """
    import pandas as pd

    rows = [_closing_row(outcome) for outcome in outcomes]
    table = pd.DataFrame(rows).iloc[:, : SHOWN_PROBES + 3]
    with pd.option_context("display.max_colwidth", None, "display.width", None):
        lines = table.to_string(index=False, na_rep="", float_format="{:.3f}".format).splitlines()

    failed = [outcome for outcome in outcomes if not outcome.succeeded]
    for outcome in failed:
        lines.append(f"FAILED {outcome.job.name} {outcome.failure}")
        lines.append(f"       log: {outcome.job.log}")
    if failed:
        lines.append("the same command again runs what is missing")
    if len(failed) < len(outcomes):
        lines.append(f"report: attnprobe report {output}")
    for line in lines:
        say(line)


def _closing_row(outcome: Outcome) -> dict[str, Any]:
    """A job's row of the closing table, with the first headline number of every probe."""
    from attnprobe.findings.headlines import headline
    from attnprobe.results.numbers import read_numbers

    row: dict[str, Any] = {"job": visible(outcome.job.name)}
    if not outcome.succeeded:
        return row | {"state": "FAILED"}
    row["state"] = "done before" if outcome.job.done else f"{outcome.seconds:.0f} s"
    if outcome.job.directory is None:
        return row
    with suppress(OSError, ValueError, KeyError):  # no reason to lose the other jobs' rows
        probes: set[str] = set()
        for name, value in headline(read_numbers(outcome.job.directory)).items():
            probe = name.split("/")[0]
            if probe not in probes:
                row[name] = value
            probes.add(probe)
    return row


def objective(directory: Path) -> float | None:
    """What a search for settings optimises: the validation metric that chose the epoch.

    Args:
        directory: of a finished run.

    Returns:
        the chosen epoch's value of `training.recipe.selection_metric` (higher is better, except
        for `loss`); None where nothing was trained.

    Raises:
        UserError: if no finished run is there.
    """
    from attnprobe.results.directory import RunDirectory
    from attnprobe.results.table import read_results

    manifest = RunDirectory(directory).manifest()
    epoch = manifest["chosen_epoch"]
    if epoch is None:
        return None
    metric = f"validation_{manifest['training']['training']['recipe']['selection_metric']}"
    curve = read_results(directory, probe="training")
    is_chosen = (curve["metric"] == metric) & (curve["step"] == epoch)
    return float(curve["value"][is_chosen].iloc[0])
