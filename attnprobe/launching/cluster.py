"""Slots on a SLURM cluster, through submitit (`pip install 'attnprobe[slurm]'`)."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from attnprobe.errors import UserError
from attnprobe.launching.logs import heading
from attnprobe.launching.pool import Job, Running, Slot
from attnprobe.launching.slots import WATCH

if TYPE_CHECKING:
    import submitit


@dataclass(frozen=True)
class Command:
    """What is sent to the cluster: one job's command. Called there, it returns the command's exit status."""

    command: tuple[str, ...]
    log: str
    folder: str

    def __call__(self) -> int:
        """Run the command to its end."""
        with open(self.log, "ab") as log:
            log.write(heading(self.command))
            log.flush()
            child = subprocess.Popen(
                self.command,
                cwd=self.folder,
                stdin=subprocess.PIPE,  # closed when this process dies: attnprobe.launching.slots.end_with_pool
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1", WATCH: "1"},
            )
            try:
                return child.wait()
            finally:
                child.kill()  # no effect on one that has ended; else this process was told to end

    def checkpoint(self) -> Any:
        """Asked by submitit before the time is up or a preemption: the same command goes into the queue again; the run
        goes on from what is finished of it."""
        import submitit

        return submitit.helpers.DelayedSubmission(self)


@final
class ClusterJob(Running):
    """A job in the cluster's queue, or running there."""

    def __init__(self, submitted: "submitit.Job[int]") -> None:
        self.submitted = submitted

    def poll(self) -> int | None:
        """Its exit status, None as long as it waits or runs; 1 where the cluster ended it."""
        import submitit

        if not self.submitted.done():
            return None
        try:
            return self.submitted.result()
        except (submitit.core.utils.UncompletedJobError, submitit.core.utils.FailedJobError):
            return 1

    def stop(self) -> None:
        """Take it out of the queue, or end it."""
        self.submitted.cancel(check=False)

    def kill(self) -> None:
        """As `stop`: the cluster does not know a stronger word."""
        self.submitted.cancel(check=False)


@final
@dataclass(frozen=True, eq=False)
class ClusterSlot(Slot):
    """One of the jobs that may be in the cluster's queue at the same time."""

    executor: "submitit.Executor"

    def start(self, job: Job) -> ClusterJob:
        """Put a job into the queue."""
        log = job.log.absolute()
        log.parent.mkdir(parents=True, exist_ok=True)
        self.executor.update_parameters(name=f"attnprobe-{log.stem}")
        return ClusterJob(self.executor.submit(Command(tuple(job.command), str(log), str(Path.cwd()))))


def cluster_slots(workers: int, cluster: str, parameters: Mapping[str, Any], folder: Path) -> list[ClusterSlot]:
    """Slots of a cluster.

    Args:
        workers: how many jobs are in the queue or running at the same time.
        cluster: `slurm`; or `local`, which runs the jobs here, without a queue, to try the settings out.
        parameters: what one job needs, by submitit's names (`timeout_min`, `mem_gb`, `slurm_partition`, …); null: not set.
        folder: where submitit keeps its files.

    Raises:
        UserError: submitit is not installed, there is no such cluster, or it does not know a parameter.
    """
    try:
        import submitit
    except ImportError:
        raise UserError(
            "launcher=submitit needs submitit, which is not installed: pip install 'attnprobe[slurm]'"
        ) from None
    if workers < 1:
        raise UserError(f"launcher.workers={workers}: expected at least 1")
    given = {name: value for name, value in parameters.items() if value is not None}
    try:
        executor = submitit.AutoExecutor(folder, cluster=cluster)
        executor.update_parameters(**given)
    except (RuntimeError, ValueError, NameError, AssertionError, TypeError) as error:
        message = " ".join(str(error).split())
        raise UserError(
            f"submitit does not accept launcher.cluster={cluster} with launcher.parameters={given}: {message}"
        ) from None
    return [ClusterSlot(executor) for _ in range(workers)]
