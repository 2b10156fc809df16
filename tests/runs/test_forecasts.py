from types import SimpleNamespace

import numpy as np
import pytest
import torch

from attnprobe.data.batching import TextSplit
from attnprobe.data.examples import Ragged
from attnprobe.probes.base import Probe, ProbeRunner
from attnprobe.runs import forecasts
from attnprobe.runs.forecasts import Forecast, saved_bytes
from tests.toys import toy_classifier

LENGTHS = np.random.default_rng(0).permutation(np.arange(1, 91))
TRAINER = SimpleNamespace(is_global_zero=True, max_epochs=2)


def split_of(lengths):
    words = Ragged.of([np.ones(length, np.int64) for length in lengths], np.int64)
    return TextSplit(
        np.arange(len(lengths)),
        words,
        np.array([4, 5]),
        {"labels": np.zeros(len(lengths), np.int64)},
    )


class Slow(Probe):
    """A probe by whose clock every word takes so many seconds, and setting up a minute more."""

    name = "slow"

    def __init__(self, monkeypatch, per_word, *, slow=True):
        self.time = 0.0
        self.left = 60.0
        self.per_word = per_word
        self.slow = slow
        monkeypatch.setattr(forecasts, "now", lambda _: self.time)

    def measure(self, subject, draws):
        self.time += self.left + self.per_word * int(subject.batch.content.sum())
        self.left = 0.0
        return iter(())


def told(capsys, probe, model=None, lengths=LENGTHS):
    Forecast(split_of(lengths), runner=ProbeRunner([probe], 0, [])).on_test_start(
        TRAINER, model or toy_classifier()
    )
    return capsys.readouterr().out


def test_the_time_is_that_of_all_texts_though_few_are_looked_at(monkeypatch, capsys):
    model = toy_classifier().eval()
    before = [p.clone() for p in model.parameters()]
    noise = torch.get_rng_state()
    said = told(capsys, Slow(monkeypatch, 0.2), model)
    assert (
        said
        == "probing with slow will take about 14 minutes on this machine (cpu): 90 texts, 6 of them timed\n"
    )
    assert round(0.2 * LENGTHS.sum() / 60) == 14
    assert not model.training
    assert all(
        torch.equal(a, b) and a.dtype == b.dtype
        for a, b in zip(before, model.parameters(), strict=True)
    )
    assert torch.equal(noise, torch.get_rng_state())


def test_nothing_is_said_of_less_than_a_minute_few_texts_or_quick_probes(monkeypatch, capsys):
    assert told(capsys, Slow(monkeypatch, 0.01)) == ""
    assert told(capsys, Slow(monkeypatch, 9.0), lengths=LENGTHS[:49]) == ""
    quick = Slow(monkeypatch, 9.0, slow=False)
    assert (told(capsys, quick), quick.time) == ("", 0)
    pretrained = toy_classifier()
    monkeypatch.setattr(type(pretrained), "reader", "pieces")
    assert told(capsys, quick, pretrained) != ""


class Learning(torch.nn.Module):
    """A model of pieces: one matrix, and a sigmoid that keeps its result for the way back. A step
    takes so many seconds per word, and draws random numbers."""

    reader = "pieces"
    device = torch.device("cpu")
    time = 0.0

    def __init__(self, per_word=0.0):
        super().__init__()
        self.matrix = torch.nn.Linear(8, 64)
        self.per_word = per_word

    def forward(self, batch):
        return self.matrix(torch.randn(len(batch), 8)).sigmoid()

    def losses(self, outputs, batch):
        self.time += self.per_word * int(batch.content.sum())
        return {"loss": outputs}


@pytest.fixture
def said(monkeypatch, capsys):
    """What is said of a training of these texts."""
    monkeypatch.setattr(forecasts, "TrainedModel", Learning)
    monkeypatch.setattr(forecasts, "now", lambda model: model.time)

    def of(model, lengths, size=4):
        Forecast(split_of(lengths), batch_size=size).on_fit_start(TRAINER, model)
        return capsys.readouterr().out

    return of


def test_the_time_of_a_training_is_said_and_nothing_is_learnt(said):
    model = Learning(0.1).eval()
    before = [p.clone() for p in model.parameters()]
    noise = torch.get_rng_state()
    assert said(model, LENGTHS) == (
        "training for 2 epochs will take about 14 minutes on this machine (cpu): 90 texts, 24 of them timed\n"
    )
    assert round(2 * 0.1 * LENGTHS.sum() / 60) == 14
    assert all(
        torch.equal(a, b) and b.grad is None
        for a, b in zip(before, model.parameters(), strict=True)
    )
    assert torch.equal(noise, torch.get_rng_state())
    assert not model.training
    assert said(Learning(0.001), LENGTHS) == ""


def test_the_longest_texts_tell_what_a_full_batch_takes(said, monkeypatch):
    model = Learning()
    lengths = [3, 9, 4, 8, 5]
    seen = []
    # the matrix's input and the sigmoid's result, four bytes a number; the weights are none of it
    assert saved_bytes(model, split_of(lengths)[[0, 1]]) == 2 * 4 * (8 + 64)
    assert said(model, lengths) == ""  # a few kilobytes
    monkeypatch.setattr(
        forecasts,
        "saved_bytes",
        lambda _, batch: seen.append(batch.content.sum(1).tolist()) or 10e9,
    )
    assert said(model, lengths) == (
        "training takes at least 20 GB of memory for a step with 4 of the longest texts; data.batch_size=1 would take 5\n"
    )
    assert seen == [[8, 9]]
    assert "25 GB of memory for a step with 5 of the longest" in said(model, lengths, 32)
    model.reader = None
    assert said(model, lengths) == ""
