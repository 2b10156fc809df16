"""Hydra's door to attnprobe's pool of jobs. Hydra takes launchers only from this namespace, and imports this file at
every start: what takes time to import is imported when a sweep begins."""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_launcher import BasicLauncher
from hydra.core.utils import JobReturn, JobStatus, setup_globals
from hydra.errors import CompactHydraException, HydraException
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict
from omegaconf.errors import OmegaConfBaseException


class PoolLauncher(Launcher):
    """One process per job of a sweep: see conf/launcher and docs/sweeps.md."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Called by Hydra before the jobs are known."""
        self.context, self.config = hydra_context, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> list[JobReturn]:
        """Run the jobs.

        Raises:
            CompactHydraException: a job asks for what no job of a sweep can have; nothing was started.
        """
        setup_globals()
        from attnprobe.errors import UserError
        from attnprobe.launching.sweep import objective, run_sweep

        try:
            planned, on_gpu = self.plan(job_overrides, initial_job_idx)
            outcomes = run_sweep(
                planned,
                launcher=self.config.launcher,
                on_gpu=on_gpu,
                logs=Path(self.config.hydra.sweep.dir),
                output=Path(self.config.output),
                options=self.options(),
            )
        except UserError as error:
            raise CompactHydraException(f"attnprobe: {error}") from error
        failed = sum(not outcome.succeeded for outcome in outcomes)
        returns = []
        for job, outcome in zip(planned, outcomes, strict=True):
            result = JobReturn(overrides=list(job.overrides), working_dir=str(Path.cwd()))
            if outcome.succeeded:
                result.status = JobStatus.COMPLETED
                result.return_value = None if job.directory is None else objective(job.directory)
            else:
                result.status = JobStatus.FAILED
                result.return_value = CompactHydraException(
                    f"attnprobe: {failed} of {len(outcomes)} jobs failed, first {job.name}: {outcome.error}"
                )
            returns.append(result)
        return returns

    def plan(self, job_overrides: Sequence[Sequence[str]], first: int) -> tuple[list[Any], bool]:
        """The jobs, and whether one of them may use a graphics card.

        Raises:
            UserError: a job has a mistake in its settings.
        """
        from attnprobe.launching.sweep import Planned, names, stem
        from attnprobe.running.prepare import is_finished

        planned, on_gpu = [], False
        for number, (overrides, name) in enumerate(zip(job_overrides, names(job_overrides), strict=True), start=first):
            config, settings = checked(self.context, self.config, list(overrides), name)
            on_gpu = on_gpu or config.trainer.accelerator not in ("cpu", "mps")
            if settings is None:
                planned.append(Planned(tuple(overrides), name, stem(number, None), None, False))
                continue
            done = config.on_finished in (None, "skip") and is_finished(settings)
            planned.append(Planned(tuple(overrides), name, stem(number, settings.config), settings.directory, done))
        return planned, on_gpu

    def options(self) -> list[str]:
        """What else stood on the command line and decides a job's settings."""
        hydra = self.config.hydra
        found = [
            part
            for source in hydra.runtime.config_sources
            if source.provider == "command-line"
            for part in ("--config-dir", source.path)
        ]
        if hydra.job.config_name != "config":
            found += ["--config-name", hydra.job.config_name]
        return found + [one for one in hydra.overrides.hydra if one.lstrip("+~").startswith("hydra.searchpath")]


class InlineLauncher(BasicLauncher):
    """One job after the other in this very process; none before all are found to be without a mistake."""

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run the jobs.

        Raises:
            CompactHydraException: a job has a mistake in its settings; nothing was started.
        """
        setup_globals()
        from attnprobe.errors import UserError
        from attnprobe.launching.sweep import names

        assert self.hydra_context is not None
        assert self.config is not None
        try:
            for overrides, name in zip(job_overrides, names(job_overrides), strict=True):
                checked(self.hydra_context, self.config, list(overrides), name)
        except UserError as error:
            raise CompactHydraException(f"attnprobe: {error}") from error
        return super().launch(job_overrides, initial_job_idx)


def checked(context: HydraContext, base: DictConfig, overrides: list[str], name: str) -> tuple[DictConfig, Any]:
    """A job's configuration, and its settings (None where it has no run directory of its own yet: a study, a
    run whose teacher is not trained).

    Args:
        context, base: what Hydra gives a launcher.
        overrides: the job's settings.
        name: the settings in which the jobs differ.

    Raises:
        UserError: what the job itself would end with, found before any job has begun.
    """
    from attnprobe.errors import UserError
    from attnprobe.running.devices import refuse_several_devices
    from attnprobe.running.settings import constructible
    from attnprobe.schema.answers import answer

    try:
        config = copy.deepcopy(context.config_loader.load_sweep_config(base, overrides))
        with open_dict(config):
            del config["hydra"]
        settings = constructible(config, overrides)
        refuse_several_devices(config.trainer)
    except (UserError, OmegaConfBaseException, HydraException) as raised:
        error = raised if isinstance(raised, UserError) else raised.__cause__
        message = str(error) if isinstance(error, UserError) else answer(raised, overrides)
        raise UserError(f"{message} (in the job {name}; no job was started)") from None
    return config, settings
