"""Variables that other launchers left behind: the same run as without them, or one line."""

import os

import pytest

from attnprobe.core.errors import UserError
from attnprobe.core.launchers import OTHERS, RANKS, STARTED, is_worker, leave_other_launchers


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    for name in (*RANKS, *OTHERS, STARTED):
        monkeypatch.setenv(name, "")  # so that it is restored afterwards
        monkeypatch.delenv(name)


@pytest.mark.parametrize("name", RANKS)
@pytest.mark.parametrize("value", ["1", "", "0", "x"])
def test_a_rank_of_another_launcher_is_forgotten_and_said(monkeypatch, capsys, name, value):
    monkeypatch.setenv(name, value)
    leave_other_launchers()
    assert name not in os.environ
    assert not is_worker()
    said = capsys.readouterr().err
    assert (f"{name}={value} is of another launcher" in said) == (value not in ("", "0"))


def test_a_process_that_a_run_started_keeps_its_rank(monkeypatch, capsys):
    leave_other_launchers()  # the first process
    monkeypatch.setenv("LOCAL_RANK", "1")  # as Lightning does
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert is_worker()
    leave_other_launchers()
    assert os.environ["LOCAL_RANK"] == "1"
    assert capsys.readouterr().err == ""


def test_several_processes_of_torchrun_are_refused_with_the_variables(monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match=r"WORLD_SIZE=2, TORCHELASTIC_RUN_ID.* trainer\.devices"):
        leave_other_launchers()


def test_one_process_of_torchrun_is_a_run(monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("RANK", "0")
    leave_other_launchers()
    assert not {"TORCHELASTIC_RUN_ID", "WORLD_SIZE", "RANK"} & set(os.environ)
