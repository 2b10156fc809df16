"""How much memory a training step takes, said beforehand."""

import numpy as np
import torch

from attnprobe.data.batching import TextSplit
from attnprobe.data.ragged import Ragged
from attnprobe.running import memory

LENGTHS = np.array([3, 9, 4, 8, 5])


class Small(torch.nn.Module):
    """A model of pieces: one matrix, and a sigmoid that keeps its result for the way back."""

    reader, device = "pieces", torch.device("cpu")

    def __init__(self):
        super().__init__()
        self.matrix = torch.nn.Linear(8, 64)
        self.seen = []

    def forward(self, batch):
        self.seen.append(batch.content.sum(1).tolist())
        return self.matrix(torch.randn(len(batch), 8)).sigmoid()

    def losses(self, outputs, batch):
        return {"loss": outputs}


def texts():
    words = Ragged.of([np.ones(length, np.int64) for length in LENGTHS], np.int64)
    return TextSplit(np.arange(len(LENGTHS)), words, np.array([4, 5]), {"labels": np.zeros(len(LENGTHS), np.int64)})


def test_what_a_pass_keeps_is_what_its_gradients_need():
    """The matrix's input and the sigmoid's result, four bytes a number; the weights are none of it."""
    assert memory.saved_bytes(Small(), texts()[[0, 1]]) == 2 * 4 * (8 + 64)


def test_the_longest_texts_tell_what_a_full_batch_takes(monkeypatch, capsys):
    model, noise = Small().eval(), torch.get_rng_state()
    memory.tell_expected_memory(model, texts(), 4)
    assert capsys.readouterr().out == ""  # a few kilobytes
    assert model.seen == [[8, 9]]
    monkeypatch.setattr(memory, "saved_bytes", lambda classifier, batch: 10e9)
    memory.tell_expected_memory(model, texts(), 4)
    assert capsys.readouterr().out == (
        "training takes at least 20 GB of memory for a step with 4 of the longest texts; data.batch_size=1 would take 5\n"
    )
    memory.tell_expected_memory(model, texts(), 32)
    assert "25 GB of memory for a step with 5 of the longest" in capsys.readouterr().out
    assert torch.equal(noise, torch.get_rng_state())
    assert not model.training
    model.reader = None
    memory.tell_expected_memory(model, texts(), 4)
    assert capsys.readouterr().out == ""
