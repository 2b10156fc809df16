"""What a sweep would take on this machine, before any of its jobs begins."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from omegaconf import DictConfig, OmegaConf, open_dict

from attnprobe.core.clock import CLOCK
from attnprobe.core.sanitise import duration
from attnprobe.results.fingerprint import fingerprint
from attnprobe.runs.forecasts import measured_costs
from attnprobe.runs.launching import Job, say
from attnprobe.runs.settings import Settings


@dataclass(frozen=True)
class JobForecast:
    """What one job would take.

    Attributes:
        name: of the job.
        seconds: with all epochs; early stopping makes it fewer.
        device: where it was timed.
    """

    name: str
    seconds: float
    device: str


def forecast_sweep(
    load: Callable[[Sequence[str]], DictConfig],
    job_overrides: Sequence[Sequence[str]],
    jobs: Sequence[Job],
) -> list[JobForecast]:
    """Time a few batches of every job that is left, and say what all of it takes.

    Jobs that differ in their seed alone are timed once.

    Args:
        load: a job's command line → its configuration.
        job_overrides: each job's command line.
        jobs: the same, planned.

    Returns:
        a forecast for each job that is not done.
    """
    say(f"{len(jobs)} jobs: {sum(job.done for job in jobs)} done")
    forecasts: list[JobForecast] = []
    timed: dict[str, tuple[float, str] | None] = {}
    command_lines = list(zip(jobs, job_overrides, strict=True))
    for job, overrides in CLOCK.track(command_lines, "time the jobs", "jobs"):
        if job.done:
            continue
        config = load(overrides)
        kind = _kind_of(config)
        if kind not in timed:
            timed[kind] = _timed(config)
        forecast = timed[kind]
        if forecast is None:
            say(f"  {job.name}: a study whose trainings nobody has counted")
            continue
        seconds, device = forecast
        say(f"  {job.name}: about {duration(seconds)}")
        forecasts.append(JobForecast(job.name, seconds, device))

    total = sum(forecast.seconds for forecast in forecasts)
    devices = sorted({forecast.device for forecast in forecasts})
    where = f", timed on {' and '.join(devices)}" if devices else ""
    say(f"all that is left, one job after another: about {duration(total)}{where}")
    return forecasts


def _kind_of(config: DictConfig) -> str:
    """Stands for all settings that the time depends on: those but for the seed and Hydra's."""
    settings = OmegaConf.to_container(config)
    assert isinstance(settings, dict)
    return fingerprint(
        {name: value for name, value in settings.items() if name not in ("hydra", "seed")}
    )


def _timed(config: DictConfig) -> tuple[float, str] | None:
    """A job's seconds, and the device that they were timed on; None: see `Study.trainings`."""
    with open_dict(config):
        config.pop("hydra", None)
    study = Settings.of(config).parts.study
    trainings = 1 if study is None else study.trainings(int(config.seed))
    if trainings is None:
        return None
    costs = measured_costs(config)
    return costs.seconds(int(config.training.epochs), trainings), costs.device
