"""Hydra's way to attnprobe's pool of jobs.

Hydra takes launchers only from this namespace, and imports this file at every start: what takes
time to import is imported when a sweep begins.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hydra._internal.core_plugins.basic_launcher import BasicLauncher
from hydra.core.utils import JobReturn, JobStatus, setup_globals
from hydra.errors import CompactHydraException

if TYPE_CHECKING:
    from attnprobe.runs.launching import Outcome


class PoolLauncher(BasicLauncher):
    """One process per job of a sweep (conf/launcher, docs/sweeps.md).

    With launcher=inline the jobs run one after the other in this process, as Hydra does it. None
    begins before all are found to be without a mistake.
    """

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Run the jobs.

        Args:
            job_overrides: each job's command line.
            initial_job_idx: the first job's number.

        Raises:
            CompactHydraException: a job asks for what no job of a sweep can have; nothing was
                started.
        """
        setup_globals()
        from attnprobe.core.errors import UserError
        from attnprobe.runs.launching import conclude, launch, places_of, planned

        assert self.hydra_context is not None
        assert self.config is not None
        base = self.config
        launcher = base.launcher
        logs = Path(base.hydra.sweep.dir)
        load = self.hydra_context.config_loader.load_sweep_config
        try:
            jobs, on_gpu = planned(
                lambda overrides: load(base, overrides), job_overrides, initial_job_idx
            )
            if launcher.name == "inline":
                return super().launch(job_overrides, initial_job_idx)
            if launcher.name == "forecast":
                from attnprobe.runs.sweep_forecast import forecast_sweep

                forecast_sweep(lambda overrides: load(base, list(overrides)), job_overrides, jobs)
                return []
            waiting = sum(not job.done for job in jobs)
            places = places_of(launcher, on_gpu=on_gpu and waiting > 0, logs=logs)
            outcomes = launch(jobs, places, logs=logs)
            conclude(outcomes, Path(base.output))
        except UserError as error:
            raise CompactHydraException(f"attnprobe: {error}") from error
        failed = [outcome for outcome in outcomes if not outcome.succeeded]
        summary = f"{len(failed)} of {len(outcomes)} jobs failed"
        if failed:
            summary += f", first {failed[0].job.name}: {failed[0].error}"
        return [
            _job_return(outcome, overrides, summary)
            for outcome, overrides in zip(outcomes, job_overrides, strict=True)
        ]


def _job_return(outcome: "Outcome", overrides: Sequence[str], summary: str) -> JobReturn:
    """What Hydra is told of a job; the return value of one that failed is `summary`."""
    from attnprobe.runs.launching import objective

    result = JobReturn(overrides=list(overrides), working_dir=str(Path.cwd()))
    if outcome.succeeded:
        result.status = JobStatus.COMPLETED
        directory = outcome.job.directory
        result.return_value = None if directory is None else objective(directory)
    else:
        result.status = JobStatus.FAILED
        result.return_value = CompactHydraException(f"attnprobe: {summary}")
    return result
