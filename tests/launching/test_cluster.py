"""SLURM's side as far as it goes without a cluster: submitit's local executor runs real jobs."""

import sys

import pytest

from attnprobe.errors import UserError
from attnprobe.launching import Job, Pool

submitit = pytest.importorskip("submitit", reason="submitit is not installed: pip install 'attnprobe[slurm]'")

from attnprobe.launching.cluster import ClusterJob, Command, cluster_slots  # noqa: E402


def job(folder, name, code, **extra):
    return Job(name, (sys.executable, "-c", code), folder / "logs" / f"{name}.log", **extra)


def local(folder, **parameters):
    return cluster_slots(2, "local", {"timeout_min": 60, "slurm_partition": None, **parameters}, folder / "submitit")


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # submitit leaves its processes' ends to the collector
def test_jobs_run_with_their_status_their_log_and_their_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    jobs = [
        job(tmp_path, "good", "from pathlib import Path; Path('here').touch(); print('hello')"),
        job(tmp_path, "bad", "raise ValueError('no')"),
        job(tmp_path, "after", "from pathlib import Path; assert Path('here').exists()", after=(0,)),
        job(tmp_path, "never", "print('x')", after=(1,)),
    ]
    outcomes = Pool(local(tmp_path)).run(jobs)
    assert [outcome.status for outcome in outcomes] == [0, 1, 0, None]
    assert (tmp_path / "logs" / "good.log").read_text().split("\n")[1:] == ["hello", ""]
    assert outcomes[1].error == "ValueError: no"
    assert not (tmp_path / "logs" / "never.log").exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_job_that_the_cluster_ends_has_failed(tmp_path):
    (slot, _) = local(tmp_path)
    running = slot.start(job(tmp_path, "long", "import time; print('begun', flush=True); time.sleep(60)"))
    log = tmp_path / "logs" / "long.log"
    while not (log.exists() and "begun" in log.read_text()):
        assert running.poll() is None
    running.stop()
    while (status := running.poll()) is None:
        pass
    assert status == 1


class Submitted:
    """A job that the cluster has ended, as submitit would show it."""

    def __init__(self):
        self.cancelled = []

    def done(self):
        return True

    def result(self):
        raise submitit.core.utils.FailedJobError

    def cancel(self, check=True):
        self.cancelled.append(check)


def test_an_ended_job_has_failed_and_is_taken_out_of_the_queue_without_waiting_for_an_answer():
    submitted = Submitted()
    running = ClusterJob(submitted)
    assert running.poll() == 1
    running.stop()
    running.kill()
    assert submitted.cancelled == [False, False]


def test_a_job_whose_time_is_up_goes_into_the_queue_again():
    command = Command(("true",), "log", "/")
    again = command.checkpoint()
    assert isinstance(again, submitit.helpers.DelayedSubmission)
    assert again.function is command


@pytest.mark.parametrize(
    ("cluster", "parameters", "message"),
    [
        ("slurm", {}, "launcher.cluster=slurm .*Could not detect"),
        ("moon", {}, "launcher.cluster=moon .*doesn't know any executor named moon"),
        ("local", {"memory": 3}, r"launcher\.parameters={'memory': 3}: .*'memory'"),
        ("local", {"timeout_min": "long"}, "timeout_min"),
    ],
)
def test_settings_that_submitit_does_not_accept(tmp_path, cluster, parameters, message, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match=message):
        cluster_slots(1, cluster, parameters, tmp_path)


def test_without_submitit_the_message_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(UserError, match=r"pip install 'attnprobe\[slurm\]'"):
        cluster_slots(1, "local", {}, tmp_path)
