"""SLURM's side as far as it goes without a cluster: submitit's local executor runs real jobs."""

import sys
from pathlib import Path

import pytest

from attnprobe.core.errors import UserError
from attnprobe.runs.launching import Cluster, Job, RemoteJob, run_jobs
from tests.runs.launching.waiting import wait_for

submitit = pytest.importorskip(
    "submitit", reason="submitit is not installed: pip install 'attnprobe[slurm]'"
)

from attnprobe.runs import launching  # noqa: E402


def job(folder, name, code, **extra):
    return Job(name, (sys.executable, "-c", code), folder / "logs" / f"{name}.log", **extra)


def local(folder, **parameters):
    parameters = {"timeout_min": 60, "slurm_partition": None, **parameters}
    return Cluster(2, "local", parameters, folder / "submitit")


# submitit leaves its processes' ends to the collector
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_jobs_run_with_their_status_their_log_and_their_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    jobs = [
        job(tmp_path, "good", "from pathlib import Path; Path('here').touch(); print('hello')"),
        job(tmp_path, "bad", "raise ValueError('no')"),
    ]
    outcomes = run_jobs(jobs, local(tmp_path))
    assert [outcome.status for outcome in outcomes] == [0, 1]
    assert (tmp_path / "logs" / "good.log").read_text().split("\n")[1:] == ["hello", ""]
    assert outcomes[1].error == "ValueError: no"
    assert (tmp_path / "here").exists()


SQUEUE = """#!/bin/sh
echo "7|RUNNING|None"
echo "8|PENDING|Resources"
echo "9|PENDING|Priority"
"""


class Submitted:
    """A job as submitit would show it; it has left no result."""

    def __init__(self, number, folder):
        self.job_id = number
        self.cancelled = []
        self.paths = submitit.core.utils.JobPaths(folder, job_id=number)

    def cancel(self, check=True):
        self.cancelled.append(check)


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A SLURM whose queue holds three jobs, and has a partition with graphics cards."""
    (tmp_path / "bin").mkdir()
    cards = "#!/bin/sh\necho '(null)'; echo gpu:a100:4"
    for name, text in {"squeue": SQUEUE, "sinfo": cards, "sbatch": "", "srun": ""}.items():
        path = tmp_path / "bin" / name
        path.write_text(text)
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    return lambda **more: Cluster(
        4, "slurm", {"timeout_min": 9, "gpus_per_node": None}, tmp_path / "submitit", **more
    )


def test_the_queue_says_what_waits_and_what_the_cluster_has_ended(slurm, tmp_path, monkeypatch):
    monkeypatch.setattr(launching, "LOST_SECONDS", 0.2)
    cluster = slurm()
    assert cluster.waiting() == "2 queued: Resources, Priority"
    waits = Submitted("8", tmp_path)
    lost = Submitted("10", tmp_path)
    log = tmp_path / "log"
    waiting_job = launching._Submitted(waits, cluster, log)
    lost_job = launching._Submitted(lost, cluster, log)
    wait_for(lambda: lost_job.poll() == 1)
    assert launching.last_error(log, 1).startswith("attnprobe: the cluster ended this job")
    assert waiting_job.poll() is None
    waiting_job.stop()
    waiting_job.stop(kill=True)
    assert waits.cancelled == [False, False]  # without waiting for an answer


@pytest.mark.parametrize(("on_gpu", "cards"), [(True, 1), (False, None)])
def test_a_graphics_card_is_requested_only_where_it_may_be_used(slurm, on_gpu, cards):
    assert slurm(on_gpu=on_gpu).executor.parameters.get("gpus_per_node") == cards


def test_no_graphics_card_is_requested_of_a_cluster_without_any(slurm, tmp_path):
    (tmp_path / "bin" / "sinfo").write_text("#!/bin/sh\necho '(null)'")
    assert "gpus_per_node" not in slurm(on_gpu=True).executor.parameters


def test_a_job_that_the_cluster_does_not_take_is_one_message(slurm, tmp_path):
    (tmp_path / "bin" / "sbatch").write_text("#!/bin/sh\necho 'Invalid partition' >&2; exit 1")
    with pytest.raises(UserError, match=r"job first: .*Invalid partition.*launcher\.parameters"):
        run_jobs([job(tmp_path, "first", "")], slurm())


def test_a_job_whose_time_is_up_goes_into_the_queue_again():
    command = RemoteJob(Job("a", ("true",), Path("log")), "/")
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
def test_settings_that_submitit_does_not_accept_are_one_message(
    tmp_path, monkeypatch, cluster, parameters, message
):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match=message):
        Cluster(1, cluster, parameters, tmp_path)


def test_without_submitit_the_message_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(UserError, match=r"pip install 'attnprobe\[slurm\]'"):
        Cluster(1, "local", {}, tmp_path)
