"""What is said of how long the probes will take."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from attnprobe.data.batching import TextSplit
from attnprobe.data.ragged import Ragged
from attnprobe.running import expecting
from tests.toys import toy_classifier

LENGTHS = np.random.default_rng(0).permutation(np.arange(1, 91))


@pytest.fixture
def split():
    words = Ragged.of([np.ones(length, np.int64) for length in LENGTHS], np.int64)
    return TextSplit(np.arange(len(LENGTHS)), words, np.array([4, 5]), {"labels": np.zeros(len(LENGTHS), np.int64)})


class Slow:
    """A probe by whose clock every word takes so many seconds, and setting up a minute more."""

    name = "slow"
    resumes = True

    def __init__(self, monkeypatch, per_word):
        self.time, self.left, self.per_word = 0.0, 60.0, per_word
        monkeypatch.setattr(expecting, "now", lambda _: self.time)

    def examine(self, subject, draws):
        self.time += self.left + self.per_word * int(subject.batch.content.sum())
        self.left = 0.0
        return iter(())


def told(split, classifier, probe, capsys):
    expecting.tell_expected(classifier, split, [probe], [], {}, {"accelerator": "cpu"})
    return capsys.readouterr().out


def test_the_time_is_that_of_all_texts_though_few_are_looked_at(split, monkeypatch, capsys):
    classifier = toy_classifier().train()
    before, noise = [p.clone() for p in classifier.parameters()], torch.get_rng_state()
    assert told(split, classifier, Slow(monkeypatch, 0.2), capsys) == (
        "probing with slow will take about 14 minutes on this machine (cpu): 90 texts, 6 of them timed\n"
    )
    assert round(0.2 * LENGTHS.sum() / 60) == 14
    assert classifier.training
    assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(before, classifier.parameters(), strict=True))
    assert torch.equal(noise, torch.get_rng_state())


def test_less_than_a_minute_is_not_worth_a_line(split, monkeypatch, capsys):
    assert told(split, toy_classifier(), Slow(monkeypatch, 0.01), capsys) == ""


def test_it_is_asked_of_what_may_take_long_alone():
    quick, slow = SimpleNamespace(resumes=False), SimpleNamespace(resumes=True)
    model, pretrained = SimpleNamespace(reader=None), SimpleNamespace(reader="pieces")
    assert expecting.may_take_long(model, [quick, slow], 50)
    assert expecting.may_take_long(pretrained, [quick], 50)
    assert not expecting.may_take_long(model, [quick], 10**6)
    assert not expecting.may_take_long(pretrained, [slow], 49)
    assert not expecting.may_take_long(pretrained, [], 10**6)


class Learning(torch.nn.Linear):
    """A model of pieces whose step takes so many seconds per word, and draws random numbers."""

    reader, device = "pieces", torch.device("cpu")

    def __init__(self, monkeypatch, per_word):
        super().__init__(1, 1)
        self.time, self.per_word = 0.0, per_word
        monkeypatch.setattr(expecting, "now", lambda _: self.time)

    def forward(self, batch):
        return super().forward(torch.randn(len(batch), 1))

    def losses(self, outputs, batch):
        self.time += self.per_word * int(batch.content.sum())
        return {"loss": outputs.square()}


def test_the_time_of_a_training_is_said_and_nothing_is_learnt(split, monkeypatch, capsys):
    model = Learning(monkeypatch, 0.1).eval()
    before, noise = [p.clone() for p in model.parameters()], torch.get_rng_state()
    expecting.tell_expected_training(model, split, 2, {"accelerator": "cpu"})
    assert capsys.readouterr().out == (
        "training for 2 epochs will take about 14 minutes on this machine (cpu): 90 texts, 24 of them timed\n"
    )
    assert round(2 * 0.1 * LENGTHS.sum() / 60) == 14
    assert all(torch.equal(a, b) and b.grad is None for a, b in zip(before, model.parameters(), strict=True))
    assert torch.equal(noise, torch.get_rng_state())
    assert not model.training
    expecting.tell_expected_training(Learning(monkeypatch, 0.001), split, 2, {"accelerator": "cpu"})
    assert capsys.readouterr().out == ""
