"""On a model whose gradient is constant, against integrated gradients, and against captum's own call."""

import numpy as np
import pytest
import torch
from captum.attr import GradientShap as CaptumGradientShap

from attnprobe.core.errors import UserError
from attnprobe.importance.gradients import GradientShap
from tests.importance.attributions import additive_subject, contextual_subject, words_shares


def test_on_an_additive_model_it_is_what_each_word_adds():
    subject = additive_subject()
    torch.testing.assert_close(subject.scores("gradient_shap"), words_shares(subject), rtol=1e-6, atol=1e-6)


def test_it_nears_integrated_gradients():
    def off(samples):
        subject = contextual_subject(importances={"gradient_shap": GradientShap(samples=samples)})
        return float((subject.scores("gradient_shap") - subject.scores("integrated_gradients")).abs().mean())

    assert off(1600) < off(4) / 4  # a twentieth is expected


def test_it_is_captums_own_on_the_same_draws():
    subject = contextual_subject(importances={"gradient_shap": GradientShap(samples=8, noise=0.1)})
    member, found = subject.importance("gradient_shap"), subject.scores("gradient_shap")
    alone = subject.cached(member.explained).alone(0)
    with member.drawing(subject, int(subject.batch.example_id[0])):
        spread = 0.1 * float(alone.inputs.max() - alone.inputs.min())
        direct = CaptumGradientShap(
            lambda vectors: alone(vectors, torch.zeros(len(vectors), dtype=torch.long))
        ).attribute(alone.inputs.clone().requires_grad_(), alone.baseline, n_samples=8, stdevs=spread)
    expected = direct.sum(-1)[0, alone.batch.content[0]].detach()
    torch.testing.assert_close(found[0, subject.batch.content[0]], expected)


def test_the_generators_are_left_as_they_were():
    before, others = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    contextual_subject().scores("gradient_shap")
    assert torch.equal(torch.random.get_rng_state(), before)
    assert (np.random.get_state()[1] == others).all()  # noqa: NPY002


def test_noise_below_nothing_is_refused():
    with pytest.raises(UserError, match=r"gradient_shap.noise=-0.1: expected .* at least 0"):
        GradientShap(noise=-0.1)
