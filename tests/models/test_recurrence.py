"""Gradient × input of an LSTM as the derivative by a factor, against PyTorch's own backward pass."""

import pytest
import torch

from attnprobe.models.encoders import LSTMEncoder, TextEncoder
from tests.toys import toy_batch, toy_classifier

LENGTHS = [6, 1, 9, 4]


@pytest.fixture
def case():
    batch = toy_batch(LENGTHS)
    classifier = toy_classifier("lstm", "additive", spread=3).double()
    distinct, which = batch.ids.unique(return_inverse=True)
    return classifier.encoder, classifier.embedding.weight.detach()[distinct], which, batch


def by_pytorch(encoder, words, which, scale, batch):
    """Every vector multiplied, and the network's own pass over it."""
    return TextEncoder.scaled_states(encoder, words, which, scale, batch)


def test_states_and_their_derivative_are_those_of_pytorch(case):
    encoder, words, which, batch = case
    wanted = torch.randn(*batch.ids.shape, encoder.size, dtype=words.dtype)
    results = []
    for way in (encoder.scaled_states, lambda *given: by_pytorch(encoder, *given)):
        scale = torch.linspace(0.5, 1.5, batch.ids.numel(), dtype=words.dtype).view_as(batch.ids).requires_grad_()
        states = way(words, which, scale, batch)
        (gradient,) = torch.autograd.grad((states * wanted).sum(), scale)
        assert gradient[batch.mask].abs().min() > 1e-6
        results.append((states.detach(), gradient))
    (states, gradient), (expected, expected_gradient) = results
    torch.testing.assert_close(states, expected, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(gradient[batch.mask], expected_gradient[batch.mask], atol=1e-12, rtol=1e-10)
    assert (gradient[~batch.mask] == 0).all()


def test_of_factors_of_one_the_states_are_the_encoders(case):
    encoder, words, which, batch = case
    found = encoder.scaled_states(words, which, torch.ones_like(batch.ids, dtype=words.dtype), batch)
    torch.testing.assert_close(found, encoder.states(words[which], batch)[0], atol=1e-12, rtol=1e-12)


def test_a_subclass_that_reads_in_another_way_is_asked_itself(case):
    encoder, words, which, batch = case

    class Halved(LSTMEncoder):
        def forward(self, embeddings, mask, content):
            return super().forward(embeddings, mask, content) / 2

    other = Halved(encoder.forwards.input_size, encoder.size // 2).to(words.dtype)
    other.load_state_dict(encoder.state_dict())
    scale = torch.ones_like(batch.ids, dtype=words.dtype)
    found = other.scaled_states(words, which, scale, batch)
    torch.testing.assert_close(found, encoder.scaled_states(words, which, scale, batch) / 2, atol=1e-12, rtol=1e-12)


def test_parameters_are_left_alone(case):
    encoder, words, which, batch = case
    scale = torch.ones_like(batch.ids, dtype=words.dtype).requires_grad_()
    encoder.scaled_states(words, which, scale, batch).sum().backward()
    assert scale.grad is not None
    assert all(parameter.grad is None for parameter in encoder.parameters())
