import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from attnprobe.launching import Job, Pool, local_slots
from attnprobe.launching.pool import end
from attnprobe.launching.slots import wait_briefly
from tests.launching.waiting import wait_for


def job(folder, name, code, **extra):
    return Job(name, (sys.executable, "-c", textwrap.dedent(code)), folder / f"{name}.log", **extra)


def noting(folder, name, seconds=0.0, *, until=None, **extra):
    """A job that writes down when it began and ended, and does not end before the job `until` has begun."""
    code = f"""
        import time; from pathlib import Path
        folder, began = Path({str(folder)!r}), time.time()
        (folder / "{name}.begun").touch()
        while not (folder / "{until or name}.begun").exists():
            time.sleep(0.02)
        time.sleep({seconds})
        (folder / "{name}").write_text(f"{{began}} {{time.time()}}")
    """
    return job(folder, name, code, **extra)


def times(folder, name):
    began, ended = (folder / name).read_text().split()
    return float(began), float(ended)


def overlap(folder, one, other):
    return max(times(folder, one)[0], times(folder, other)[0]) < min(times(folder, one)[1], times(folder, other)[1])


def test_as_many_jobs_run_at_once_as_there_are_slots(tmp_path):
    names = ["a", "b", "c", "d"]
    # the first waits for the second and the other way round, so that they overlap however slow the machine is
    jobs = [noting(tmp_path, name, 0.1, until=other) for name, other in zip(names, "badc", strict=True)]
    outcomes = Pool(local_slots(2, cores=2)).run(jobs)
    assert [outcome.job.name for outcome in outcomes] == names
    assert all(outcome.succeeded and outcome.seconds > 0.05 and not outcome.error for outcome in outcomes)
    edges = sorted(
        (moment, change) for name in names for moment, change in zip(times(tmp_path, name), (1, -1), strict=True)
    )
    together = [sum(change for _, change in edges[: i + 1]) for i in range(len(edges))]
    assert max(together) == 2


def test_jobs_that_share_a_directory_wait_for_each_other_and_others_overtake(tmp_path):
    jobs = [
        noting(tmp_path, "a", until="c", alone="x"), noting(tmp_path, "b", alone="x"), noting(tmp_path, "c", alone="y"),
    ]  # fmt: skip
    Pool(local_slots(2, cores=2)).run(jobs)
    assert not overlap(tmp_path, "a", "b")
    assert times(tmp_path, "c")[0] < times(tmp_path, "b")[0]


def test_a_job_comes_after_those_it_needs_and_not_at_all_if_they_fail(tmp_path):
    jobs = [
        noting(tmp_path, "teacher", 0.4),
        job(tmp_path, "broken", "raise SystemExit(3)"),
        noting(tmp_path, "student", after=(0,)),
        noting(tmp_path, "orphan", after=(0, 1)),
        noting(tmp_path, "grandchild", after=(3,)),
    ]
    outcomes = Pool(local_slots(4, cores=4)).run(jobs)
    assert [outcome.status for outcome in outcomes] == [0, 3, 0, None, None]
    assert times(tmp_path, "student")[0] >= times(tmp_path, "teacher")[1]
    assert outcomes[3].error == "not run: it needs broken"
    assert outcomes[4].error == "not run: it needs orphan"
    assert not (tmp_path / "orphan").exists()


def test_a_job_after_a_later_one_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"job 0 \(a\) comes after \[1\]: expected numbers of earlier jobs"):
        Pool(local_slots(1)).run([noting(tmp_path, "a", after=(1,)), noting(tmp_path, "b")])
    with pytest.raises(ValueError, match="at least one slot"):
        Pool([])


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("raise ValueError('no such luck')", 1, "ValueError: no such luck"),
        ("import sys; print('attnprobe: seed=x', file=sys.stderr); print('bye'); sys.exit(2)", 2, "attnprobe: seed=x"),
        ("print('half a line'); raise SystemExit(5)", 5, "half a line"),
        ("raise SystemExit(5)", 5, "no word in its log"),
        ("import os; os.kill(os.getpid(), 9)", -9, "killed by SIGKILL (out of memory?)"),
        (r"print('10 %\r20 %\rRuntimeError: torn'); raise SystemExit(1)", 1, "RuntimeError: torn"),
    ],
)
def test_what_failed_says_why(tmp_path, code, status, error):
    ended = []
    Pool(local_slots(1)).run([job(tmp_path, "a", "raise KeyError('an earlier attempt')")])
    (outcome,) = Pool(local_slots(1), on_end=lambda number, outcome: ended.append(number)).run(
        [job(tmp_path, "a", code)]
    )
    assert (outcome.status, ended) == (status, [0])
    assert outcome.error.startswith(error)


def test_a_log_is_continued(tmp_path):
    one = job(tmp_path, "a", "import sys; print('out'); print('err', file=sys.stderr)")
    for _ in range(2):
        Pool(local_slots(1)).run([one])
    log = one.log.read_text()
    assert log.count("out\nerr\n") == log.count("--- ") == 2


def seen(slots, tmp_path):
    code = "import os; print('seen', os.environ.get('CUDA_VISIBLE_DEVICES'), os.environ['OMP_NUM_THREADS'])"
    jobs = [job(tmp_path, str(number), code + "; import time; time.sleep(0.3)") for number in range(len(slots))]
    Pool(slots).run(jobs)
    return [one.log.read_text().split("seen ")[1].split() for one in jobs]


def test_every_slot_has_a_card_of_its_own_and_its_share_of_the_cores(tmp_path, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert seen(local_slots(None, gpus=["0", "GPU-7f"], cores=8), tmp_path) == [["0", "4"], ["GPU-7f", "4"]]
    three = seen(local_slots(3, gpus=["2", "5"], cores=2), tmp_path / "three")
    assert three == [["2", "1"], ["5", "1"], ["2", "1"]]


def test_without_a_card_there_is_a_slot_for_every_two_cores_and_threads_can_be_chosen(tmp_path, monkeypatch):
    assert [len(local_slots(cores=cores)) for cores in (1, 2, 5, 8)] == [1, 1, 2, 4]
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    assert seen(local_slots(1, cores=8), tmp_path) == [["7", "3"]]
    with pytest.raises(ValueError, match=r"launcher\.workers=0"):
        local_slots(0)


POOL = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell ignores it, and so would this process
from pathlib import Path
from attnprobe.launching import Job, Pool, local_slots

code = '''
import subprocess, sys, time
from attnprobe.launching.slots import end_with_pool
end_with_pool()
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
print("pids", __import__("os").getpid(), child.pid, "told", flush=True)
time.sleep(3600)
'''
Pool(local_slots(2)).run([Job(str(n), (sys.executable, "-c", code), Path(f"{n}.log")) for n in range(2)])
"""


def is_alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0]
    except OSError:
        return False
    return state != "Z"  # nobody waits for an orphan in a container


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="reads the states of processes in /proc")
@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, {1, -signal.SIGINT}), (signal.SIGTERM, {143}), (signal.SIGKILL, {-9})],
)
def test_no_job_and_no_child_of_a_job_survives_its_pool(tmp_path, number, status):
    with subprocess.Popen([sys.executable, "-c", POOL], cwd=tmp_path, stderr=subprocess.DEVNULL) as pool:
        try:
            logs = [tmp_path / "0.log", tmp_path / "1.log"]
            wait_for(lambda: all(log.exists() and log.read_text().endswith("told\n") for log in logs) or pool.poll())
            pids = [int(pid) for log in logs for pid in log.read_text().split("pids ")[1].split()[:2]]
            assert len(pids) == 4
            assert all(map(is_alive, pids))
            pool.send_signal(number)
            assert pool.wait() in status
            wait_for(lambda: not any(map(is_alive, pids)))
        finally:
            pool.kill()


def test_a_job_that_does_not_end_when_told_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr("attnprobe.launching.pool.GRACE_SECONDS", 0.2)
    code = """
        import signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("deaf", flush=True)
        time.sleep(3600)
    """
    deaf = job(tmp_path, "deaf", code)
    running = local_slots(1)[0].start(deaf)
    try:
        wait_for(lambda: deaf.log.read_text().endswith("deaf\n") or running.poll() is not None)
        end([running])
        assert running.poll() == -signal.SIGKILL
    finally:
        running.kill()


@pytest.mark.parametrize(
    ("said", "spins"),
    [({}, "300"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "ACTIVE"}, None)],
)
def test_threads_wait_briefly_unless_the_user_says_how(monkeypatch, said, spins):
    monkeypatch.setattr(os, "environ", said)
    wait_briefly()
    assert os.environ.get("GOMP_SPINCOUNT") == spins
