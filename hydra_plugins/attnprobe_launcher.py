"""Hydra's way to attnprobe's pool of jobs. Hydra takes launchers only from this namespace, and
imports this file at every start: what takes time to import is imported when a sweep begins."""

from collections.abc import Sequence
from pathlib import Path

from hydra._internal.core_plugins.basic_launcher import BasicLauncher
from hydra.core.utils import JobReturn, JobStatus, setup_globals
from hydra.errors import CompactHydraException


class PoolLauncher(BasicLauncher):
    """One process per job of a sweep (conf/launcher, docs/sweeps.md); with launcher=inline one job
    after the other in this process, as Hydra does. None begins before all are found to be without a
    mistake."""

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Run the jobs.

        Raises:
            CompactHydraException: a job asks for what no job of a sweep can have; nothing was
                started.
        """
        setup_globals()
        from attnprobe.core.errors import UserError
        from attnprobe.runs.launching import conclude, launch, objective, places_of, planned

        assert self.hydra_context is not None
        assert self.config is not None
        base = self.config
        launcher = self.config.launcher
        logs = Path(self.config.hydra.sweep.dir)
        load = self.hydra_context.config_loader.load_sweep_config
        try:
            jobs, on_gpu = planned(lambda given: load(base, given), job_overrides, initial_job_idx)
            if launcher.name == "inline":
                return super().launch(job_overrides, initial_job_idx)
            left = sum(not job.done for job in jobs)
            outcomes = launch(
                jobs, places_of(launcher, on_gpu=on_gpu and left > 0, logs=logs), logs=logs
            )
            conclude(outcomes, Path(self.config.output))
        except UserError as error:
            raise CompactHydraException(f"attnprobe: {error}") from error
        failed = [one for one in outcomes if not one.succeeded]
        returns = []
        for outcome, overrides in zip(outcomes, job_overrides, strict=True):
            result = JobReturn(overrides=list(overrides), working_dir=str(Path.cwd()))
            result.status = JobStatus.COMPLETED if outcome.succeeded else JobStatus.FAILED
            if outcome.succeeded:
                result.return_value = (
                    None if outcome.job.directory is None else objective(outcome.job.directory)
                )
            else:
                result.return_value = CompactHydraException(
                    f"attnprobe: {len(failed)} of {len(outcomes)} jobs failed, first {outcome.job.name}: {outcome.error}"
                )
            returns.append(result)
        return returns
