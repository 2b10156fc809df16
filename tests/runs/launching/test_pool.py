import os
import signal
import subprocess
import sys
import textwrap
from itertools import accumulate
from pathlib import Path

import pytest

from attnprobe.core.processes import wait_briefly
from attnprobe.runs import launching
from attnprobe.runs.launching import Job, Machine, run_jobs
from tests.runs.launching.waiting import wait_for


def job(folder, name, code, **extra):
    return Job(name, (sys.executable, "-c", textwrap.dedent(code)), folder / f"{name}.log", **extra)


def noting(folder, name, *, until=None, **extra):
    """A job that writes down when it began and ended.

    It does not end before the job `until` has begun.
    """
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
    # two jobs each wait for the other to begin, so that they overlap however slow the machine is
    partners = {"a": "b", "b": "a", "c": "d", "d": "c"}
    jobs = [noting(tmp_path, name, until=partners[name]) for name in names]
    done = job(tmp_path, "done", "raise SystemExit(1)", done=True)
    outcomes = run_jobs([*jobs, done], Machine(2, cores=2))
    assert [outcome.job.name for outcome in outcomes] == [*names, "done"]
    assert all(outcome.succeeded and not outcome.error for outcome in outcomes)
    assert all(outcome.seconds > 0.05 for outcome in outcomes[:4])
    assert not (tmp_path / "done.log").exists()
    changes = []
    for name in names:
        began, ended = times(tmp_path, name)
        changes += [(began, 1), (ended, -1)]
    running = accumulate(change for _, change in sorted(changes))
    assert max(running) == 2


def test_jobs_that_share_a_directory_wait_for_each_other_and_others_overtake(tmp_path):
    jobs = [
        noting(tmp_path, "a", until="c", directory="x"),
        noting(tmp_path, "b", directory="x"),
        noting(tmp_path, "c", directory="y"),
    ]
    run_jobs(jobs, Machine(2, cores=2))
    a_began, a_ended = times(tmp_path, "a")
    b_began, b_ended = times(tmp_path, "b")
    c_began, _ = times(tmp_path, "c")
    assert a_ended <= b_began or b_ended <= a_began
    assert c_began < b_began


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
    """The graphics card and the threads of one job in every slot."""
    code = """
        import os
        print('seen', os.environ.get('CUDA_VISIBLE_DEVICES'), os.environ['OMP_NUM_THREADS'])
    """
    jobs = [job(tmp_path, str(number), code) for number in range(machine.count)]
    outcomes = run_jobs(jobs, machine)
    logs = [outcome.job.log.read_text() for outcome in outcomes]
    return [log.rpartition("seen ")[2].split() for log in logs]


def test_every_slot_has_a_card_of_its_own_and_its_share_of_the_cores(tmp_path, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert seen(Machine(None, gpus=["0", "GPU-7f"], cores=8), tmp_path) == [
        ["0", "4"],
        ["GPU-7f", "4"],
    ]
    three = seen(Machine(3, gpus=["2", "5"], cores=2), tmp_path / "three")
    assert three == [["2", "1"], ["5", "1"], ["2", "1"]]


@pytest.mark.parametrize(("cores", "slots"), [(1, 1), (2, 1), (5, 2), (8, 4)])
def test_without_a_card_there_is_a_slot_for_every_two_cores(cores, slots):
    assert Machine(cores=cores).count == slots


def test_the_user_may_choose_threads_and_cards(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    assert seen(Machine(1, cores=8), tmp_path) == [["7", "3"]]


POOL = """
import signal, sys
# a background shell ignores it, and so would this process
signal.signal(signal.SIGINT, signal.default_int_handler)
from pathlib import Path
from attnprobe.runs.launching import Job, Machine, run_jobs

code = '''
import subprocess, sys, time
from attnprobe.core.processes import end_with_pool
end_with_pool()
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
print("pids", __import__("os").getpid(), child.pid, "ready", flush=True)
time.sleep(3600)
'''
jobs = [Job(str(n), (sys.executable, "-c", code), Path(f"{n}.log")) for n in range(2)]
run_jobs(jobs, Machine(2))
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
    logs = [tmp_path / "0.log", tmp_path / "1.log"]

    def all_ready():
        return all(log.exists() and log.read_text().endswith("ready\n") for log in logs)

    command = [sys.executable, "-c", POOL]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL) as pool:
        try:
            wait_for(lambda: all_ready() or pool.poll())
            pids = []
            for log in logs:
                job_pid, child_pid, _ = log.read_text().split("pids ")[1].split()
                pids += [int(job_pid), int(child_pid)]
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
    brief = """
        import time
        from pathlib import Path
        while not (Path("pid").exists() and Path("pid").read_text()):
            time.sleep(0.02)
    """

    def interrupted(outcome):
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    jobs = [job(tmp_path, "deaf", deaf), job(tmp_path, "brief", brief)]
    with pytest.raises(KeyboardInterrupt):
        run_jobs(jobs, Machine(2), interrupted)
    assert not is_alive(int(Path("pid").read_text()))


@pytest.mark.parametrize(
    ("environment", "spins"),
    [({}, "300"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "ACTIVE"}, None)],
)
def test_threads_wait_briefly_unless_the_user_says_how(monkeypatch, environment, spins):
    monkeypatch.setattr(os, "environ", dict(environment))
    wait_briefly()
    assert os.environ.get("GOMP_SPINCOUNT") == spins


@pytest.mark.parametrize("path", [None, "", ":", "elsewhere:"])
def test_a_module_in_the_working_directory_is_not_imported(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if path is not None:
        monkeypatch.setenv("PYTHONPATH", path)
    Path("uuid.py").write_text("open('executed', 'w')")
    code = """
        import uuid, subprocess, sys
        subprocess.run([sys.executable, '-c', 'import uuid'])
        import attnprobe
    """
    (outcome,) = run_jobs([job(tmp_path, "a", code)], Machine(1))
    assert outcome.status == 0, outcome.error
    assert not Path("executed").exists()
