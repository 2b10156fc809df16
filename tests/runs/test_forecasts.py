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
    """A probe with a clock of its own: a minute to set up, then the same time for every word."""

    name = "slow"

    def __init__(self, monkeypatch, seconds_per_word, *, slow=True):
        self.time = 0.0
        self.setup_seconds = 60.0
        self.seconds_per_word = seconds_per_word
        self.slow = slow
        monkeypatch.setattr(forecasts, "now", lambda _: self.time)

    def measure(self, subject, draws):
        words = int(subject.batch.content.sum())
        self.time += self.setup_seconds + self.seconds_per_word * words
        self.setup_seconds = 0.0
        return iter(())


def forecast_of(capsys, probe, model=None, lengths=LENGTHS):
    """What is said before a model is probed."""
    forecast = Forecast(split_of(lengths), runner=ProbeRunner([probe], 0))
    forecast.on_test_start(TRAINER, model or toy_classifier())
    return " ".join(capsys.readouterr().out.split())


def copies(model):
    return [parameter.clone() for parameter in model.parameters()]


def test_a_few_texts_tell_the_time_of_all(monkeypatch, capsys):
    model = toy_classifier().eval()
    before = copies(model)
    random_state = torch.get_rng_state()
    assert forecast_of(capsys, Slow(monkeypatch, 0.2), model) == (
        "probing with slow will take about 14 minutes on this machine (cpu): "
        "90 texts, 6 of them timed"
    )
    assert round(0.2 * LENGTHS.sum() / 60) == 14
    assert not model.training
    for weights, after in zip(before, model.parameters(), strict=True):
        assert torch.equal(weights, after)
        assert weights.dtype == after.dtype
    assert torch.equal(random_state, torch.get_rng_state())


def test_less_than_a_minute_is_not_mentioned(monkeypatch, capsys):
    assert forecast_of(capsys, Slow(monkeypatch, 0.01)) == ""


def test_few_texts_have_no_forecast(monkeypatch, capsys):
    assert forecast_of(capsys, Slow(monkeypatch, 9.0), lengths=LENGTHS[:49]) == ""


def test_quick_probes_have_a_forecast_only_for_pretrained_models(monkeypatch, capsys):
    quick = Slow(monkeypatch, 9.0, slow=False)
    assert forecast_of(capsys, quick) == ""
    assert quick.time == 0
    pretrained = toy_classifier()
    pretrained.reader = "pieces"
    pretrained.encoder.inputs = lambda batch: pretrained.embedding(batch.ids)
    assert forecast_of(capsys, quick, pretrained) != ""


class Learning(torch.nn.Module):
    """A model of pieces: one matrix, and a sigmoid that keeps its result for the backward pass.

    A step takes the same time for every word, and draws random numbers.
    """

    reader = "pieces"
    device = torch.device("cpu")
    time = 0.0

    def __init__(self, seconds_per_word=0.0):
        super().__init__()
        self.matrix = torch.nn.Linear(8, 64)
        self.seconds_per_word = seconds_per_word

    def forward(self, batch):
        return self.matrix(torch.randn(len(batch), 8)).sigmoid()

    def losses(self, outputs, batch):
        self.time += self.seconds_per_word * int(batch.content.sum())
        return {"loss": outputs}


@pytest.fixture
def training_forecast(monkeypatch, capsys):
    """What is said before a training on texts of these lengths."""
    monkeypatch.setattr(forecasts, "TrainedModel", Learning)
    monkeypatch.setattr(forecasts, "now", lambda model: model.time)

    def printed(model, lengths, batch_size=4):
        Forecast(split_of(lengths), batch_size=batch_size).on_fit_start(TRAINER, model)
        return " ".join(capsys.readouterr().out.split())

    return printed


def test_the_time_of_a_training_is_said_and_nothing_is_learnt(training_forecast):
    model = Learning(0.1).eval()
    before = copies(model)
    random_state = torch.get_rng_state()
    assert training_forecast(model, LENGTHS) == (
        "training for 2 epochs will take about 14 minutes on this machine (cpu): "
        "90 texts, 24 of them timed"
    )
    assert round(2 * 0.1 * LENGTHS.sum() / 60) == 14
    for weights, after in zip(before, model.parameters(), strict=True):
        assert torch.equal(weights, after)
        assert after.grad is None
    assert torch.equal(random_state, torch.get_rng_state())
    assert not model.training
    assert training_forecast(Learning(0.001), LENGTHS) == ""


def test_the_longest_texts_tell_what_a_full_batch_takes(training_forecast, monkeypatch):
    model = Learning()
    lengths = [3, 9, 4, 8, 5]
    # the matrix's input and the sigmoid's result, four bytes a number; the weights do not count
    assert saved_bytes(model, split_of(lengths)[[0, 1]]) == 2 * 4 * (8 + 64)
    assert training_forecast(model, lengths) == ""  # a few kilobytes

    measured_lengths = []

    def ten_gigabytes(_, batch):
        measured_lengths.append(batch.content.sum(1).tolist())
        return 10e9

    monkeypatch.setattr(forecasts, "saved_bytes", ten_gigabytes)
    assert training_forecast(model, lengths) == (
        "training takes at least 20 GB of memory for a step with 4 of the longest texts; "
        "data.batch_size=1 would take 5"
    )
    assert measured_lengths == [[8, 9]]
    all_texts = training_forecast(model, lengths, batch_size=32)
    assert "25 GB of memory for a step with 5 of the longest" in all_texts
    model.reader = None
    assert training_forecast(model, lengths) == ""
