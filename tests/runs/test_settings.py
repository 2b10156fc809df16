"""A setting is checked once, and what it configures is constructed once, from the command line to
the last table."""

from collections import Counter
from functools import wraps

import pytest
from pydantic import TypeAdapter

from attnprobe.data.module import TextDataModule
from attnprobe.data.settings import DataSettings
from attnprobe.models.attention import AdditiveAttention
from attnprobe.models.decoders import LinearDecoder
from attnprobe.models.encoders import LSTMEncoder
from attnprobe.models.recipe import Recipe
from attnprobe.probes.swaps import Swaps
from attnprobe.runs.configuration import Configuration, Task, Trainer, Training
from tests.small_runs import NARROW, SMALL, command_line

SWAPS = [*SMALL, NARROW, "probe=[swaps]", "probe.swaps.passes=100", "probe.swaps.texts=20"]


@pytest.fixture
def checks(monkeypatch):
    """How often pydantic has checked an argument of each name."""
    names = Counter()
    validate = TypeAdapter.validate_python

    def counted(adapter, value, *args, **kwargs):
        if (
            isinstance(value, dict) and "_target_" not in value
        ):  # which is only looked at as a whole
            names.update(value.keys())
        return validate(adapter, value, *args, **kwargs)

    monkeypatch.setattr(TypeAdapter, "validate_python", counted)
    return names


@pytest.mark.parametrize(
    ("setting", "expected", "times"),
    [
        # refused by what the class's file declares, before its arguments are checked
        ("probe.swaps.passes=1", "a whole number of at least 100", 0),
        ("training.epochs=-1", "a whole number of at least 0 and of at most 1000000", 1),
    ],
)
def test_a_wrong_value_is_checked_once_and_answered(setting, expected, times, checks, tmp_path):
    done = command_line(tmp_path, *SWAPS, setting)
    assert done.stderr == f"attnprobe: {setting}: expected {expected}\n"
    assert checks[setting.partition("=")[0].rpartition(".")[2]] == times


CONFIGURED = (
    Configuration,
    TextDataModule,
    DataSettings,
    Training,
    Recipe,
    Trainer,
    Task,
    Swaps,
    LSTMEncoder,
    AdditiveAttention,
    LinearDecoder,
)


def test_a_run_checks_each_setting_and_constructs_each_object_once(checks, monkeypatch, tmp_path):
    constructed = Counter()

    def count(kind):
        construct = kind.__init__

        @wraps(construct)  # the signature, which is looked up once in a process
        def counted(self, *args, **kwargs):
            constructed[kind] += 1
            construct(self, *args, **kwargs)

        monkeypatch.setattr(kind, "__init__", counted)

    for kind in CONFIGURED:
        count(kind)
    done = command_line(tmp_path, *SWAPS)
    assert done.returncode == 0, done.stderr
    assert constructed == dict.fromkeys(CONFIGURED, 1)
    settings = ("passes", "epsilon", "precision", "reduction")
    assert {name: checks[name] for name in settings} == dict.fromkeys(settings, 1)
    # plain values once more, before torch is imported
    assert checks["epochs"] == checks["max_tokens"] == 2
