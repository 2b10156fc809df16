import json

import pandas as pd
import pytest
import torch

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
    "error", [RuntimeError(FULL), MemoryError(), torch.OutOfMemoryError("CUDA out of memory.")]
)
def test_what_does_not_fit_is_taken_in_halves_and_said_once(capsys, error):
    halving = Halving()
    parts = halved(halving, 11, 3, error)
    assert [row for part in parts for row in part] == list(range(11))
    assert max(map(len, parts)) <= 3
    assert capsys.readouterr().err.count("\n") == 1
    tried = halving.count
    assert tried > 0
    assert (halved(halving, 11, 3, error), halving.count) == (
        parts,
        tried,
    )  # what did not fit is not tried again


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


def test_few_texts_at_a_time_have_the_numbers_of_whole_batches(tmp_path, monkeypatch, capsys):
    settings = (
        "probe=[permutation,adversarial]",
        "probe.adversarial.restarts=3",
        "probe.adversarial.steps=5",
    )
    found = {"whole": run(small_run(tmp_path / "whole", *settings))}
    held = []
    for probe in (Permutation, Adversarial):

        def noted(self, readout, draws, measure=probe.measure):
            rows, width = readout.attention.shape
            held.append((rows, rows * self.peak_buffers * width))
            return measure(self, readout, draws)

        monkeypatch.setattr(probe, "measure", noted)
    with monkeypatch.context() as changed:  # a probe of many samples
        changed.setattr("attnprobe.probes.base.MOST_NUMBERS", 20_000)
        found["parts"] = run(small_run(tmp_path / "parts", *settings))
    assert all(rows == 1 or numbers <= 20_000 for rows, numbers in held)
    assert len({rows for rows, _ in held}) > 1
    measure = Permutation.measure
    forward = AttentionClassifier.forward  # batches that do not fit

    def small_measure(self, readout, draws):
        yield from measure(self, readout, draws) if len(readout.content) <= 9 else fail()

    def small_forward(self, batch):
        return forward(self, batch) if self.training or len(batch) <= 15 else fail()

    monkeypatch.setattr(Permutation, "measure", small_measure)
    monkeypatch.setattr(AttentionClassifier, "forward", small_forward)
    # validation is part of training, where nothing is halved
    found["halved"] = run(small_run(tmp_path / "halved", *settings, "data.eval_batch_size=15"))
    counts = {
        name: json.loads((one / "manifest.json").read_text())["halved_batches"]
        for name, one in found.items()
    }
    assert counts["whole"] == counts["parts"] == 0 < counts["halved"]
    assert "which changes no number" in capsys.readouterr().err
    tables = {name: read_results(one).drop(columns="run_id") for name, one in found.items()}
    for name in ("parts", "halved"):
        pd.testing.assert_frame_equal(tables["whole"], tables[name], rtol=1e-6)


def test_a_training_that_does_not_fit_names_the_setting_to_change(tmp_path, monkeypatch):
    monkeypatch.setattr(AttentionClassifier, "training_step", fail)
    with pytest.raises(
        UserError, match=r"training does not fit into memory: set a smaller data\.batch_size"
    ):
        run(small_run(tmp_path))
