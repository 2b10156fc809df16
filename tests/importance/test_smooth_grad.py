import pytest
import torch

from attnprobe.core.errors import UserError
from attnprobe.importance.gradients import SmoothGrad
from tests.importance.attributions import additive_subject, contextual_subject, words_shares


def test_without_noise_to_speak_of_it_is_gradient_times_input():
    subject = contextual_subject(importances={"smooth_grad": SmoothGrad(noise=1e-9)})
    expected = subject.scores("gradient_input")
    torch.testing.assert_close(subject.scores("smooth_grad"), expected, rtol=1e-5, atol=1e-6)


def test_noise_averages_out_on_an_additive_model():
    """There the gradient is constant: input plus noise, whose mean falls with the number of copies."""

    def off(samples):
        subject = additive_subject(importances={"smooth_grad": SmoothGrad(samples=samples)})
        return float((subject.scores("smooth_grad") - words_shares(subject)).abs().mean())

    assert off(1600) < off(4) / 4  # a twentieth is expected
    assert off(4) > 0


def test_the_generators_are_left_as_they_were():
    before = torch.random.get_rng_state()
    first = contextual_subject().scores("smooth_grad")
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(contextual_subject().scores("smooth_grad"), first)
    assert not torch.equal(contextual_subject(seed=1).scores("smooth_grad"), first)


def test_no_noise_is_refused():
    with pytest.raises(UserError, match=r"smooth_grad.noise=0.0: expected .* above 0"):
        SmoothGrad(noise=0.0)
