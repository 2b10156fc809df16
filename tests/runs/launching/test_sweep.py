"""Sweeps through the command line: small models, real processes, real signals."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest
from pandas.testing import assert_series_equal

from attnprobe.results.directory import MARKER, find_runs
from attnprobe.results.table import read_examples, read_results
from attnprobe.results.writer import LOCK
from tests.runs.launching.waiting import wait_for
from tests.small_runs import SMALL, command_line

MODULE = ("-m", "attnprobe")
CONSOLE = ("-c", "from attnprobe.cli.main import main; main()", "run")
"""What the script `attnprobe` does that pip installs: no module has been started."""


def start(folder, *arguments, program=MODULE, **variables):
    with (folder / "output.txt").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, *program, *arguments],
            cwd=folder,
            env={**os.environ, **variables},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=interruptible,
        )


def interruptible():
    """A background shell ignores SIGINT, and so would what it starts."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def finish(folder, *arguments, **options):
    """Exit status and output of a command."""
    before = (folder / "output.txt").stat().st_size if (folder / "output.txt").exists() else 0
    status = start(folder, *arguments, **options).wait()
    return status, (folder / "output.txt").read_bytes()[before:].decode()


def content(folder):
    """Every table, every example and all weights below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for directory in find_runs(folder)
        for pattern in ("tables/*", "examples/*", "model.safetensors")
        for path in directory.glob(pattern)
    }


def killed(folder, *arguments):
    """Start a sweep, and kill its process group with SIGKILL in the middle of a run.

    Returns how many runs are finished.
    """

    def count(name):
        return len(list(folder.glob(f"runs/*/*/{name}")))

    process = start(folder, *arguments)
    wait_for(lambda: count(MARKER) > count("manifest.json") or process.poll() is not None)
    assert process.poll() is None, (folder / "output.txt").read_text()
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return count("manifest.json")


@pytest.mark.slow
def test_a_killed_sweep_goes_on_and_a_failing_job_does_not_stop_it(tmp_path):
    # where no text is long enough a job fails
    sweep = [
        "-m",
        *SMALL,
        "probe=[permutation]",
        "model=average",
        "data.min_length=0,1000",
        "launcher.workers=2",
    ]
    done = killed(tmp_path, *sweep)
    status, output = finish(tmp_path, *sweep)  # at once: no time for orphans to end
    assert status == 1
    assert f"2 jobs: {done} done, {2 - done} to run on {2 - done} CPU worker" in output
    assert "FAILED data.min_length=1000 (status 2) after" in output
    assert "s: attnprobe: no row of the " in output
    assert "log: runs/logs/1-testbed-average_additive-seed0.log\n" in output
    assert "attnprobe: 1 of 2 jobs failed, first data.min_length=1000: attnprobe: " in output
    assert "report: attnprobe report runs\n" in output
    assert "Traceback" not in output
    # by jobs as well, as a single process may differ in the last digits: it has other threads
    (tmp_path / "undisturbed").mkdir()
    sound = ["data.min_length=0" if part.startswith("data.min_length") else part for part in sweep]
    assert finish(tmp_path / "undisturbed", *sound)[0] == 0
    assert len(content(tmp_path / "runs")) > 3
    assert content(tmp_path / "runs") == content(tmp_path / "undisturbed" / "runs")
    # a run that was killed once it was finished keeps the file of its lock, which nothing holds
    assert not [path for path in (tmp_path / "runs").rglob(".*") if path.name not in (MARKER, LOCK)]


@pytest.mark.slow  # every job begins with the imports
def test_the_members_of_a_study_are_jobs_where_a_launcher_is_named(tmp_path):
    tiny = [
        *SMALL,
        "model=average",
        "study.tests=[uniform]",
        "study.seeds=[]",
        "probe.adversarial.restarts=0",
    ]
    study = ["+experiment=wiegreffe", *tiny, "probe.adversarial.curve=[]"]
    done = command_line(tmp_path, *study, "launcher.workers=2")
    assert done.returncode == 0, done.stderr
    output = done.stdout + done.stderr
    assert (
        "wiegreffe, stage 1: 1 job: 0 done, 1 to run on 2 CPU workers; logs in runs/logs/wiegreffe-"
        in output
    )
    assert "wiegreffe, stage 2: 1 job: 0 done, 1 to run on 2 CPU workers" in output
    assert re.search(r"uniform, seed 0 +\d+ s +0\.\d{3}", output)
    filed = [
        set(read_results(directory)["experiment"]) for directory in find_runs(tmp_path / "runs")
    ]
    assert set().union(*filed) == {"wiegreffe_base", "wiegreffe_uniform"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "status", "word"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "ended by SIGTERM")],
)
def test_a_signal_ends_the_jobs_and_says_how_to_go_on(tmp_path, number, status, word):
    process = start(tmp_path, "-m", *SMALL, "seed=0,1,2", "launcher.workers=2")
    try:
        wait_for(lambda: list(tmp_path.glob("runs/*/*/.attnprobe")) or process.poll() is not None)
        process.send_signal(number)
        assert process.wait() == status
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert (
        f"attnprobe: {word}; the same command again keeps what is finished"
        in (tmp_path / "output.txt").read_text()
    )
    before = sorted(tmp_path.rglob("*"))
    time.sleep(3)
    assert sorted(tmp_path.rglob("*")) == before


def performance_of(results):
    rows = results.loc[results["probe"] == "performance", ["metric", "value"]]
    return rows.astype({"metric": str}).set_index("metric")["value"]


@pytest.mark.slow
@pytest.mark.parametrize("program", [MODULE, CONSOLE], ids=["module", "console"])
def test_two_devices_train_together_and_one_examines(tmp_path, program):
    settings = ["trainer.devices=2", "probe=[permutation]", "data.eval_batch_size=7"]
    status, output = finish(tmp_path, *SMALL, *settings, program=program)
    assert status == 0, output
    assert "sync_dist" not in output
    (directory,) = find_runs(tmp_path / "runs")
    results = read_results(directory)
    examined = results[results["metric"] == "median_tvd"]["example_id"]
    assert sorted(examined) == sorted(read_examples(directory)["example_id"]) == list(range(30))
    # the same weights examined again on one device
    arguments = [
        f"run={directory.relative_to(tmp_path)}",
        "on_finished=skip",
        "probe=[single_weight]",
        "figures=false",
    ]
    status, output = finish(tmp_path, *arguments)
    assert status == 0, output
    before = performance_of(results)
    assert_series_equal(before, performance_of(read_results(directory)))
    examples = read_examples(directory)
    assert before["accuracy"] == pytest.approx((examples["label"] == examples["prediction"]).mean())


@pytest.mark.slow
def test_what_a_training_is_given_reaches_processes_that_are_spawned(tmp_path):
    # which pickles data, model and callbacks
    devices = ["trainer.devices=2", "trainer.strategy=ddp_spawn"]
    status, output = finish(tmp_path, *SMALL, *devices, "probe=[permutation]")
    assert status == 0, output
    (directory,) = find_runs(tmp_path / "runs")
    assert sorted(read_examples(directory)["example_id"]) == list(range(30))


LEFT_OVER = {
    # Lightning-AI/pytorch-lightning#2278, #2317, #6797: nothing was written on "other" ranks
    "torchrun's rank": {"RANK": "1"},
    "a local rank": {"LOCAL_RANK": "1"},
    "an empty local rank": {"LOCAL_RANK": ""},
    "srun --pty": {"SLURM_PROCID": "1"},
    # siblings: all that sbatch and Kubeflow leave
    "sbatch": {
        "SLURM_JOB_ID": "77",
        "SLURM_JOB_NAME": "train",
        "SLURM_NTASKS": "4",
        "SLURM_PROCID": "3",
        "SLURM_LOCALID": "3",
        "SLURM_NODEID": "1",
        "SLURM_NNODES": "2",
    },
    "Kubeflow": {
        "KUBERNETES_PORT": "tcp://10.0.0.1:443",
        "MASTER_ADDR": "nowhere.invalid",
        "MASTER_PORT": "23456",
        "WORLD_SIZE": "4",
        "RANK": "2",
        "NODE_RANK": "2",
    },
}


@pytest.fixture(scope="module", params=[1, 2], ids=["one device", "two devices"])
def left_alone(request, tmp_path_factory):
    """The command of a small run, and what it makes without any such variable."""
    folder = tmp_path_factory.mktemp("left_alone")
    devices = f"trainer.devices={request.param}"
    command = [*SMALL, "training.epochs=1", "probe=[permutation]", devices]
    status, output = finish(folder, *command)
    assert status == 0, output
    return command, content(folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", LEFT_OVER)
def test_variables_of_another_launcher_change_no_number(tmp_path, left_alone, name):
    command, expected = left_alone
    status, output = finish(tmp_path, *command, **LEFT_OVER[name])
    assert status == 0, output
    assert content(tmp_path) == expected
