"""Soft erasure against hard erasure where the scores are 0 and 1, a plain loop elsewhere, and scores that say nothing."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from attnprobe.core.randomness import Draws
from attnprobe.importance.base import Importance
from attnprobe.importance.word_removal import predictions_keeping
from attnprobe.probes.soft_erasure import SoftErasure, share_of_range
from tests.importance.subjects import LENGTHS, subject_of


@dataclass(frozen=True)
class Fixed(Importance):
    """The first word and no other; or every word alike."""

    name: ClassVar[str] = "fixed"
    title: ClassVar[str] = "fixed"
    alike: bool = False

    def scores(self, subject):
        content = subject.batch.content
        first = content & (content.cumsum(-1) == 1)
        return (content if self.alike else first).double()


def measured(subject, **settings):
    probe = SoftErasure(**settings)
    return {one.metric: one.value for one in probe.measure(subject, Draws(0, "soft_erasure")) if hasattr(one, "metric")}


def test_scores_of_nothing_and_all_erase_words_as_zeros_do():
    subject = subject_of(importances={"fixed": Fixed()}, padding=2)
    found = measured(subject, importances=["fixed"], samples=3)
    batch, readout = subject.batch, subject.readout
    whole = readout.prediction()
    decision = whole.argmax(-1, keepdim=True)
    first = batch.content & (batch.content.cumsum(-1) == 1)

    def fall(keep):
        after = predictions_keeping(subject.classifier, batch, readout, keep, "zeros")
        return (whole - after).gather(-1, decision)[:, 0]

    nothing = fall(torch.zeros_like(first))
    torch.testing.assert_close(found["drop_of_nothing"], nothing)
    scale = nothing.where(nothing > 0, torch.nan)
    expected = (fall(batch.content & ~first).clamp(min=0) / scale).clamp(max=1)
    torch.testing.assert_close(found["soft_comprehensiveness_fixed"], expected, equal_nan=True)
    left = (1 - fall(first).clamp(min=0) / scale).clamp(min=0)
    torch.testing.assert_close(found["soft_sufficiency_fixed"], left, equal_nan=True)
    assert (~expected.isnan()).any()


def test_one_draw_by_a_plain_loop():
    subject = subject_of()
    found = measured(subject, importances=["attention"], samples=1)
    model, batch = subject.classifier, subject.batch
    for row, length in enumerate(LENGTHS):
        drawn = torch.rand(
            length, 8, generator=Draws(0, "soft_erasure").generator(int(batch.example_id[row])), dtype=torch.float64
        )
        weights = subject.readout.attention[row, 1 : length + 1]
        share = (weights - weights.min()) / (weights.max() - weights.min())
        inputs = model.inputs(batch).detach().clone()
        inputs[row, 1 : length + 1] *= drawn < (1 - share).unsqueeze(-1)
        number = int(subject.outputs.logits[row].argmax())
        p, after = (
            one[row].softmax(-1)[number].item()
            for one in (subject.outputs.logits, model.outputs_from(batch, inputs).logits)
        )
        scale = float(found["drop_of_nothing"][row])
        if scale > 0:
            assert float(found["soft_comprehensiveness_attention"][row]) == pytest.approx(
                min(1, max(0, p - after) / scale), rel=1e-6
            )


def test_scores_that_are_all_alike_say_nothing():
    """Then each number goes as often as it stays, so that the two metrics add up to 1 on average."""
    subject = subject_of(importances={"fixed": Fixed(alike=True)})
    found = measured(subject, importances=["fixed"], samples=400)
    both = found["soft_comprehensiveness_fixed"] + found["soft_sufficiency_fixed"]
    defined = ~both.isnan()
    assert defined.any()
    torch.testing.assert_close(both[defined], torch.ones_like(both[defined]), atol=0.15, rtol=0)


def test_shares_of_the_range():
    scores, content = (
        torch.tensor([[-1.0, 1.0, 3.0, 9.0], [2.0, 2.0, 5.0, 0.0]]),
        torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]]).bool(),
    )
    assert share_of_range(scores, content).tolist() == [[0, 0.5, 1, 0], [0.5, 0.5, 0, 0]]
