import json

import pytest
import torch
from pandas.testing import assert_frame_equal

from attnprobe.core.errors import UserError
from attnprobe.core.oom_retry import Halving, is_out_of_memory
from attnprobe.models.classifier import AttentionClassifier
from attnprobe.probes.adversarial import Adversarial
from attnprobe.probes.permutation import Permutation
from attnprobe.results.table import read_results
from attnprobe.runs.run import run
from tests.small_runs import small_run

FULL = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."


class Texts(list):
    """As much of a batch as is looked at: its length and the width of its ids."""

    ids = torch.zeros(1, 10)


def halved(halving, count, most, error):
    """What is made of so many texts by work that fails on more than `most` rows."""

    def work(rows):
        if rows.stop - rows.start > most:
            raise error
        return list(range(rows.start, rows.stop))

    return halving("probe x", Texts(range(count)), work)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(FULL),
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory."),
    ],
)
def test_what_does_not_fit_is_taken_in_halves_and_said_once(capsys, error):
    halving = Halving()
    parts = halved(halving, 11, 3, error)
    assert [row for part in parts for row in part] == list(range(11))
    assert max(map(len, parts)) <= 3
    assert capsys.readouterr().err.count("\n") == 1
    failures = halving.count
    assert failures > 0
    # what did not fit is not tried again
    assert halved(halving, 11, 3, error) == parts
    assert halving.count == failures


def test_a_single_text_that_does_not_fit_is_answered_and_other_errors_pass():
    with pytest.raises(
        UserError, match=r"probe x: a text of 10 tokens does not fit into memory.*data\.max_tokens"
    ):
        halved(Halving(), 4, 0, MemoryError())
    with pytest.raises(RuntimeError, match="shapes"):
        halved(Halving(), 4, 0, RuntimeError("shapes differ"))
    assert not is_out_of_memory(ValueError("can't allocate memory"))


def fail(*_):
    raise RuntimeError(FULL)


SETTINGS = (
    "probe=[permutation,adversarial]",
    "probe.adversarial.restarts=3",
    "probe.adversarial.steps=5",
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that measures whole batches."""
    return run(small_run(tmp_path_factory.mktemp("whole"), *SETTINGS))


def check_same_numbers(directory, whole):
    expected = read_results(whole).drop(columns="run_id")
    results = read_results(directory).drop(columns="run_id")
    assert_frame_equal(expected, results, rtol=1e-6)


def halved_batches(directory):
    return json.loads((directory / "manifest.json").read_text("utf-8"))["halved_batches"]


def test_a_probe_of_many_samples_takes_few_texts_at_a_time_with_the_same_numbers(
    whole, tmp_path, monkeypatch
):
    sizes = []  # number of texts, and of numbers held at once
    for probe in (Permutation, Adversarial):

        def recorded(self, readout, draws, measure=probe.measure):
            rows, width = readout.attention.shape
            sizes.append((rows, rows * self.peak_buffers * width))
            return measure(self, readout, draws)

        monkeypatch.setattr(probe, "measure", recorded)
    monkeypatch.setattr("attnprobe.probes.base.MOST_NUMBERS", 20_000)
    parts = run(small_run(tmp_path, *SETTINGS))
    assert all(rows == 1 or numbers <= 20_000 for rows, numbers in sizes)
    assert len({rows for rows, _ in sizes}) > 1
    assert halved_batches(whole) == halved_batches(parts) == 0
    check_same_numbers(parts, whole)


def test_batches_that_do_not_fit_are_halved_with_the_same_numbers(
    whole, tmp_path, monkeypatch, capsys
):
    measure = Permutation.measure
    forward = AttentionClassifier.forward

    def small_measure(self, readout, draws):
        yield from measure(self, readout, draws) if len(readout.content) <= 9 else fail()

    def small_forward(self, batch):
        return forward(self, batch) if self.training or len(batch) <= 15 else fail()

    monkeypatch.setattr(Permutation, "measure", small_measure)
    monkeypatch.setattr(AttentionClassifier, "forward", small_forward)
    # validation is part of training, where nothing is halved
    directory = run(small_run(tmp_path, *SETTINGS, "data.eval_batch_size=15"))
    assert halved_batches(directory) > 0
    assert "which changes no number" in capsys.readouterr().err
    check_same_numbers(directory, whole)


def test_a_training_that_does_not_fit_names_the_setting_to_change(tmp_path, monkeypatch):
    monkeypatch.setattr(AttentionClassifier, "training_step", fail)
    with pytest.raises(
        UserError, match=r"training does not fit into memory: set a smaller data\.batch_size"
    ):
        run(small_run(tmp_path))
