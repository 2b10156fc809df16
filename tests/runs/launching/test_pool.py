import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from attnprobe.core.processes import wait_briefly
from attnprobe.runs import launching
from attnprobe.runs.launching import Job, Machine, run_jobs
from tests.runs.launching.waiting import wait_for


def job(folder, name, code, **extra):
    return Job(name, (sys.executable, "-c", textwrap.dedent(code)), folder / f"{name}.log", **extra)


def noting(folder, name, *, until=None, **extra):
    """A job that writes down when it began and ended, and does not end before the job `until` has
    begun."""
    code = f"""
        import time; from pathlib import Path
        folder, began = Path({str(folder)!r}), time.time()
        (folder / "{name}.begun").touch()
        while not (folder / "{until or name}.begun").exists():
            time.sleep(0.02)
        time.sleep(0.1)
        (folder / "{name}").write_text(f"{{began}} {{time.time()}}")
    """
    return job(folder, name, code, **extra)


def times(folder, name):
    return tuple(map(float, (folder / name).read_text().split()))


def test_as_many_jobs_run_at_once_as_there_are_slots_and_a_finished_one_is_not_started(tmp_path):
    names = ["a", "b", "c", "d"]
    # the first waits for the second and the other way round, so that they overlap however slow the
    # machine is
    jobs = [noting(tmp_path, name, until=other) for name, other in zip(names, "badc", strict=True)]
    outcomes = run_jobs(
        [*jobs, job(tmp_path, "done", "raise SystemExit(1)", done=True)], Machine(2, cores=2)
    )
    assert [outcome.job.name for outcome in outcomes] == [*names, "done"]
    assert all(outcome.succeeded and not outcome.error for outcome in outcomes)
    assert all(outcome.seconds > 0.05 for outcome in outcomes[:4])
    assert not (tmp_path / "done.log").exists()
    edges = sorted(
        (moment, change)
        for name in names
        for moment, change in zip(times(tmp_path, name), (1, -1), strict=True)
    )
    assert max(sum(change for _, change in edges[: i + 1]) for i in range(len(edges))) == 2


def test_jobs_that_share_a_directory_wait_for_each_other_and_others_overtake(tmp_path):
    jobs = [
        noting(tmp_path, "a", until="c", directory="x"),
        noting(tmp_path, "b", directory="x"),
        noting(tmp_path, "c", directory="y"),
    ]
    run_jobs(jobs, Machine(2, cores=2))
    a, b, c = (times(tmp_path, name) for name in "abc")
    assert a[1] <= b[0] or b[1] <= a[0]
    assert c[0] < b[0]


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("raise ValueError('no such luck')", 1, "ValueError: no such luck"),
        (
            "import sys; print('attnprobe: seed=x', file=sys.stderr); print('bye'); sys.exit(2)",
            2,
            "attnprobe: seed=x",
        ),
        ("print('half a line'); raise SystemExit(5)", 5, "half a line"),
        ("raise SystemExit(5)", 5, "log is empty"),
        ("import os; os.kill(os.getpid(), 9)", -9, "killed by SIGKILL (out of memory?)"),
        (r"print('10 %\r20 %\rRuntimeError: torn'); raise SystemExit(1)", 1, "RuntimeError: torn"),
    ],
)
def test_what_failed_says_why(tmp_path, code, status, error):
    ended = []
    run_jobs([job(tmp_path, "a", "raise KeyError('an earlier attempt')")], Machine(1))
    (outcome,) = run_jobs([job(tmp_path, "a", code)], Machine(1), ended.append)
    assert (outcome.status, ended) == (status, [outcome])
    assert outcome.error.startswith(error)
    assert outcome.job.log.read_text().count("--- ") == 2  # it is continued


def seen(machine, tmp_path):
    code = "import os; print('seen', os.environ.get('CUDA_VISIBLE_DEVICES'), os.environ['OMP_NUM_THREADS'])"
    jobs = [job(tmp_path, str(number), code) for number in range(machine.count)]
    run_jobs(jobs, machine)
    return [one.log.read_text().split("seen ")[1].split() for one in jobs]


def test_every_slot_has_a_card_of_its_own_and_its_share_of_the_cores(tmp_path, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert seen(Machine(None, gpus=["0", "GPU-7f"], cores=8), tmp_path) == [
        ["0", "4"],
        ["GPU-7f", "4"],
    ]
    three = seen(Machine(3, gpus=["2", "5"], cores=2), tmp_path / "three")
    assert three == [["2", "1"], ["5", "1"], ["2", "1"]]


def test_without_a_card_there_is_a_slot_for_every_two_cores_and_threads_can_be_chosen(
    tmp_path, monkeypatch
):
    assert [Machine(cores=cores).count for cores in (1, 2, 5, 8)] == [1, 1, 2, 4]
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    assert seen(Machine(1, cores=8), tmp_path) == [["7", "3"]]


POOL = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell ignores it, and so would this process
from pathlib import Path
from attnprobe.runs.launching import Job, Machine, run_jobs

code = '''
import subprocess, sys, time
from attnprobe.core.processes import end_with_pool
end_with_pool()
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
print("pids", __import__("os").getpid(), child.pid, "told", flush=True)
time.sleep(3600)
'''
run_jobs([Job(str(n), (sys.executable, "-c", code), Path(f"{n}.log")) for n in range(2)], Machine(2))
"""


def is_alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0]
    except OSError:
        return False
    return state != "Z"  # nobody waits for an orphan in a container


@pytest.mark.skipif(
    not os.path.exists("/proc/self/stat"), reason="reads the states of processes in /proc"
)
@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, {1, -signal.SIGINT}), (signal.SIGTERM, {143}), (signal.SIGKILL, {-9})],
)
def test_no_job_and_no_child_of_a_job_survives_its_pool(tmp_path, number, status):
    with subprocess.Popen(
        [sys.executable, "-c", POOL], cwd=tmp_path, stderr=subprocess.DEVNULL
    ) as pool:
        try:
            logs = [tmp_path / "0.log", tmp_path / "1.log"]
            wait_for(
                lambda: (
                    all(log.exists() and log.read_text().endswith("told\n") for log in logs)
                    or pool.poll()
                )
            )
            pids = [
                int(pid) for log in logs for pid in log.read_text().split("pids ")[1].split()[:2]
            ]
            assert len(pids) == 4
            assert all(map(is_alive, pids))
            pool.send_signal(number)
            assert pool.wait() in status
            wait_for(lambda: not any(map(is_alive, pids)))
        finally:
            pool.kill()


def test_a_job_that_does_not_end_when_told_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(launching, "GRACE_SECONDS", 0.2)
    deaf = """
        import os, signal, time
        from pathlib import Path
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        Path("pid").write_text(str(os.getpid()))
        time.sleep(3600)
    """
    heard = """
        import time
        from pathlib import Path
        while not (Path("pid").exists() and Path("pid").read_text()):
            time.sleep(0.02)
    """

    def interrupted(outcome):
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run_jobs(
            [job(tmp_path, "deaf", deaf), job(tmp_path, "heard", heard)], Machine(2), interrupted
        )
    assert not is_alive(int(Path("pid").read_text()))


def test_threads_wait_briefly_unless_the_user_says_how(monkeypatch):
    for said, spins in (
        ({}, "300"),
        ({"GOMP_SPINCOUNT": "7"}, "7"),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, None),
    ):
        monkeypatch.setattr(os, "environ", said)
        wait_briefly()
        assert os.environ.get("GOMP_SPINCOUNT") == spins


@pytest.mark.parametrize("given", [None, "", ":", "elsewhere:"])
def test_a_module_in_the_working_directory_is_not_imported(tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False) if given is None else monkeypatch.setenv(
        "PYTHONPATH", given
    )
    Path("uuid.py").write_text("open('executed', 'w')")
    code = "import uuid, subprocess, sys; subprocess.run([sys.executable, '-c', 'import uuid']); import attnprobe"
    (outcome,) = run_jobs([job(tmp_path, "a", code)], Machine(1))
    assert (outcome.status, Path("executed").exists()) == (0, False), outcome.error
