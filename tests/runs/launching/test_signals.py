"""Signals, sent to real processes and raised in the middle of a training.

A background shell ignores SIGINT, and nohup SIGHUP. So would a process that the tests start: each
sets them back first.
"""

import signal
import subprocess
import sys
from contextlib import suppress

import pytest

from attnprobe.core.processes import answering_signals, ended_by_signals
from attnprobe.results.directory import find_runs
from attnprobe.runs.run import run
from attnprobe.runs.training import TrainingCurve
from tests.small_runs import small_run

WAITS = """
import signal, sys, time
handler = signal.SIG_IGN if "ignored" in sys.argv else signal.default_int_handler
signal.signal(signal.SIGINT, handler)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from attnprobe.core.processes import answering_signals

with answering_signals():
    try:
        print("ready", flush=True)
        for line in sys.stdin:
            pass
    finally:
        if "breaks" in sys.argv:
            raise OSError("the end broke something")
"""


def ended(number, *arguments):
    """Exit status and standard error of a process that gets this signal."""
    with subprocess.Popen(
        [sys.executable, "-c", WAITS, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            process.send_signal(number)
            if "ignored" in arguments:
                process.stdin.close()
            return process.wait(), process.stderr.read()
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("number", "status", "word", "end"),
    [
        (signal.SIGINT, 130, "interrupted", "quiet"),
        (signal.SIGTERM, 143, "ended by SIGTERM", "breaks"),
        (signal.SIGHUP, 129, "ended by SIGHUP", "quiet"),
    ],
)
def test_a_signal_is_an_exit_status_and_one_line(number, status, word, end):
    code, line = ended(number, end)
    assert code == status
    assert line.startswith(f"attnprobe: {word}; the same command again keeps what is finished")
    assert line.count("\n") == 1


def test_what_is_ignored_stays_ignored():
    assert ended(signal.SIGINT, "ignored") == (0, "")


def test_somebody_elses_handler_stays(monkeypatch):
    came = []
    before = signal.signal(signal.SIGTERM, lambda *_: came.append("mine"))
    try:
        with ended_by_signals():
            signal.raise_signal(signal.SIGTERM)
        assert came == ["mine"]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_signal_that_python_lost_is_told_at_the_end(capsys):
    """Python loses an exception raised while an object is deleted; Lightning then ends with 0."""

    def lose_a_signal():
        with suppress(SystemExit):
            signal.raise_signal(signal.SIGTERM)
        raise SystemExit

    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with pytest.raises(SystemExit) as leaving, answering_signals():
            lose_a_signal()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert leaving.value.code == 143
    assert capsys.readouterr().err.startswith("attnprobe: ended by SIGTERM;")


@pytest.mark.parametrize(
    ("number", "status", "hook"),
    [(signal.SIGINT, 130, "on_train_epoch_start"), (signal.SIGTERM, 143, "on_train_end")],
)
def test_a_signal_in_training_leaves_nothing_that_counts(
    number, status, hook, tmp_path, monkeypatch, capsys
):
    inner = getattr(TrainingCurve, hook)

    def signalled(self, *arguments):
        inner(self, *arguments)
        signal.raise_signal(number)

    monkeypatch.setattr(TrainingCurve, hook, signalled)
    default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    before = signal.signal(number, default)
    try:
        with pytest.raises(SystemExit) as leaving, answering_signals():
            run(small_run(tmp_path, "model=average"))
        assert signal.getsignal(number) is default
    finally:
        signal.signal(number, before)
    assert leaving.value.code == status
    assert "the same command again" in capsys.readouterr().err
    with pytest.raises(ValueError, match="no finished run"):
        find_runs(tmp_path)
