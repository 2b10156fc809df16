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
        seconds: with all epochs; early stopping makes it fewer.
        device: where it was timed.
    """

    seconds: float
    device: str


def forecast_sweep(
    load: Callable[[Sequence[str]], DictConfig],
    job_overrides: Sequence[Sequence[str]],
    jobs: Sequence[Job],
) -> None:
    """Time a few batches of every job that is left, and say what all of it takes.

    Jobs that differ in their seed alone are timed once. The total counts what could be timed; the
    studies that it leaves out are named in the same line.

    Args:
        load: a job's command line → its configuration.
        job_overrides: each job's command line.
        jobs: the same, planned.
    """
    say(f"{len(jobs)} jobs: {sum(job.done for job in jobs)} done")
    forecasts: list[JobForecast] = []
    uncounted: list[str] = []
    timed: dict[str, JobForecast | None] = {}
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
            uncounted.append(job.name)
            continue
        say(f"  {job.name}: about {duration(forecast.seconds)}")
        forecasts.append(forecast)
    say(_total(forecasts, uncounted))


def _total(forecasts: Sequence[JobForecast], uncounted: Sequence[str]) -> str:
    """The last line: what all jobs take, and which of them are not in it."""
    studies = "1 study" if len(uncounted) == 1 else f"{len(uncounted)} studies"
    missing = f"{studies} that nobody has counted ({', '.join(uncounted)})"
    if uncounted and not forecasts:
        return f"what is left is {missing}: no forecast"
    seconds = sum(forecast.seconds for forecast in forecasts)
    devices = sorted({forecast.device for forecast in forecasts})
    where = f", timed on {' and '.join(devices)}" if devices else ""
    total = f"all that is left, one job after another: about {duration(seconds)}{where}"
    return f"{total}; without {missing}" if uncounted else total


def _kind_of(config: DictConfig) -> str:
    """Stands for all settings that the time depends on: those but for the seed and Hydra's."""
    settings = OmegaConf.to_container(config)
    assert isinstance(settings, dict)
    return fingerprint(
        {name: value for name, value in settings.items() if name not in ("hydra", "seed")}
    )


def _timed(config: DictConfig) -> JobForecast | None:
    """What a job takes by a few of its batches; None: see `Study.trainings`."""
    with open_dict(config):
        config.pop("hydra", None)
    study = Settings.of(config).parts.study
    trainings = 1 if study is None else study.trainings(int(config.seed))
    if trainings is None:
        return None
    costs = measured_costs(config)
    return JobForecast(costs.seconds(int(config.training.epochs), trainings), costs.device)
