from pathlib import Path

import pytest
from omegaconf import OmegaConf

from attnprobe.runs import sweep_forecast
from attnprobe.runs.launching import Job
from attnprobe.runs.sweep_forecast import JobForecast, forecast_sweep


@pytest.fixture
def lines_of(monkeypatch, capsys):
    """The lines of a forecast of jobs, each with its overrides; `study=` has no forecast."""

    def timed(config):
        if "study" in config:
            return None
        return JobForecast(config["minutes"] * 60.0, "cpu")

    monkeypatch.setattr(sweep_forecast, "_timed", timed)

    def printed(jobs, done=()):
        planned = [Job(name, (), Path(name), done=name in done) for name in jobs]
        forecast_sweep(OmegaConf.from_dotlist, list(jobs.values()), planned)
        return capsys.readouterr().out.splitlines()

    return printed


def test_the_total_is_of_what_is_left(lines_of):
    jobs = {"short": ["minutes=4"], "long": ["minutes=30"], "finished": ["minutes=200"]}
    lines = lines_of(jobs, done={"finished"})
    assert lines[0] == "3 jobs: 1 done"
    assert lines[-1] == ("all that is left, one job after another: about 34 minutes, timed on cpu")


def test_a_study_without_a_forecast_is_named_beside_the_total(lines_of):
    lines = lines_of({"run": ["minutes=4"], "first": ["study=a"], "second": ["study=b"]})
    assert "about 4 minutes" in lines[-1]
    assert lines[-1].endswith("; without 2 studies that nobody has counted (first, second)")


def test_of_such_studies_alone_there_is_no_total(lines_of):
    assert lines_of({"first": ["study=a"]})[-1] == (
        "what is left is 1 study that nobody has counted (first): no forecast"
    )
