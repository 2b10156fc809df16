"""Slots of this machine: one per graphics card, or a share of the processor's cores."""

import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import final

from attnprobe.errors import UserError
from attnprobe.launching.logs import heading
from attnprobe.launching.pool import Job, Running, Slot

WATCH = "ATTNPROBE_ENDS_WITH_STDIN"
"""Set in a job's environment: its standard input is a pipe from the pool, and closed when the pool dies."""


@final
class Process(Running):
    """A child process in a process group of its own, so that its own children are ended with it."""

    def __init__(self, job: Job, environment: Mapping[str, str]) -> None:
        job.log.parent.mkdir(parents=True, exist_ok=True)
        with job.log.open("ab") as log:
            log.write(heading(job.command))
            log.flush()
            self.process = subprocess.Popen(
                list(job.command),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment, WATCH: "1"},
                process_group=0,
            )

    def poll(self) -> int | None:
        """Its exit status, None as long as it runs."""
        status = self.process.poll()
        if status is not None and self.process.stdin is not None:
            self.process.stdin.close()
        return status

    def stop(self) -> None:
        """Tell its group to end."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End its group."""
        self._send(signal.SIGKILL)
        self.process.wait()
        self.poll()

    def _send(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


@final
@dataclass(frozen=True, eq=False)
class LocalSlot(Slot):
    """Runs a job in a child process with these environment variables."""

    environment: Mapping[str, str]

    def start(self, job: Job) -> Process:
        """Start a job; returns at once."""
        return Process(job, self.environment)


def local_slots(workers: int | None = None, gpus: Sequence[str] = (), cores: int | None = None) -> list[LocalSlot]:
    """The slots of this machine.

    Args:
        workers: that many; they share the graphics cards evenly. None: one per graphics card, and where there is none
            one for every two cores.
        gpus: the graphics cards as `CUDA_VISIBLE_DEVICES` names them (`visible_gpus`); a job sees its own one only.
        cores: cores of the processor to be shared; None: all that this process may use. OMP_NUM_THREADS, where it is
            not set, becomes the share of one slot.
    """
    cores = usable_cores() if cores is None else cores
    if workers is None:
        workers = len(gpus) or max(1, cores // 2)
    if workers < 1:
        raise UserError(f"launcher.workers={workers}: expected at least 1, or null for as many as the machine has room")
    fixed = {"PYTHONUNBUFFERED": "1"}  # so that the last line of a log is the last word of its job
    if "OMP_NUM_THREADS" not in os.environ:
        fixed["OMP_NUM_THREADS"] = str(max(1, cores // workers))
    return [
        LocalSlot(fixed | ({"CUDA_VISIBLE_DEVICES": gpus[number % len(gpus)]} if gpus else {}))
        for number in range(workers)
    ]


def wait_briefly() -> None:
    """Let threads that wait for each other give up their core soon, unless the user has said how they wait.

    Call it before torch is imported. As it comes, a thread of libgomp spins for milliseconds: where another program had
    one of two cores, a run of 24 s took several minutes. So it took 40 s, and on the idle machine 25 s.
    """
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & set(os.environ):
        os.environ["GOMP_SPINCOUNT"] = "300"


def usable_cores() -> int:
    """Cores that this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        return os.cpu_count() or 1


def visible_gpus() -> list[str]:
    """The graphics cards that this process may use, as `CUDA_VISIBLE_DEVICES` names them (numbers or UUIDs)."""
    import torch  # takes seconds, which a sweep on a cluster need not wait for

    count = torch.cuda.device_count()
    listed = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return listed[:count] if listed else [str(number) for number in range(count)]


def end_with_pool() -> None:
    """Called first by a job: when the pool that started it dies, even by SIGKILL, this process ends as well.

    A pool that is ended by a signal it can handle ends its jobs itself; this is for the others, so that no job
    goes on unseen and writes where a restarted sweep writes.
    """
    if os.environ.pop(WATCH, None) is None:  # removed, so that a process started by this job is not taken for the job
        return

    def watch() -> None:
        while os.read(0, 1024):
            pass
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="end-with-pool", daemon=True).start()
