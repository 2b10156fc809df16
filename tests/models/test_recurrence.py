"""Gradient × input of an LSTM as the derivative by a factor, against PyTorch's own backward
pass."""

import pytest
import torch
from torch.testing import assert_close

from attnprobe.models.encoders import LONG_INPUTS, LSTMEncoder, TextEncoder
from tests.toys import toy_batch, toy_classifier

LENGTHS = [6, 1, 9, 4]


@pytest.fixture
def case():
    batch = toy_batch(LENGTHS)
    classifier = toy_classifier("lstm", "additive", spread=3).double()
    distinct, word_of_token = batch.ids.unique(return_inverse=True)
    return classifier.encoder, classifier.embedding.weight.detach()[distinct], word_of_token, batch


def test_states_and_their_derivative_are_those_of_pytorch(case):
    encoder, words, word_of_token, batch = case
    weight = torch.randn(*batch.ids.shape, encoder.size, dtype=words.dtype)
    factors = torch.linspace(0.5, 1.5, batch.ids.numel(), dtype=words.dtype).view_as(batch.ids)

    scale = factors.clone().requires_grad_()
    states, content, word_attention = encoder.states_of_words(words, word_of_token, batch, scale)
    (gradient,) = torch.autograd.grad((states * weight).sum(), scale)

    # every vector multiplied, and the network's own pass over it
    expected_scale = factors.clone().requires_grad_()
    expected = TextEncoder.states_of_words(encoder, words, word_of_token, batch, expected_scale)[0]
    (expected_gradient,) = torch.autograd.grad((expected * weight).sum(), expected_scale)

    assert_close(states, expected, atol=1e-12, rtol=1e-12)
    assert_close(gradient[batch.mask], expected_gradient[batch.mask], atol=1e-12, rtol=1e-10)
    assert gradient[batch.mask].abs().min() > 1e-6
    assert (gradient[~batch.mask] == 0).all()
    assert content is batch.content
    assert word_attention is None


def test_with_factors_of_one_the_states_are_the_encoders(case):
    encoder, words, word_of_token, batch = case
    ones = torch.ones_like(batch.ids, dtype=words.dtype)
    states = encoder.states_of_words(words, word_of_token, batch, ones)[0]
    expected = encoder.states(words[word_of_token], batch)[0]
    assert_close(states, expected, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("length", [8, LONG_INPUTS])
def test_without_factors_the_states_are_the_encoders(length):
    """With short vectors PyTorch's own pass is taken, with long ones the products of the words."""
    batch = toy_batch(LENGTHS)
    distinct, word_of_token = batch.ids.unique(return_inverse=True)
    words = torch.randn(len(distinct), length, dtype=torch.float64)
    encoder = LSTMEncoder(length, 6).double()
    with torch.no_grad():
        states, content, word_attention = encoder.states_of_words(words, word_of_token, batch)
        expected = encoder.states(words[word_of_token], batch)[0]
    assert_close(states, expected, atol=1e-12, rtol=1e-12)
    assert states.abs().max() > 0.01
    assert content is batch.content
    assert word_attention is None


@pytest.mark.parametrize("encoder", ["lstm", "cnn", "average"])
def test_each_distinct_word_looked_up_once_gives_the_same_outputs(encoder):
    batch = toy_batch(LENGTHS)
    classifier = toy_classifier(encoder, "additive", spread=3).double().eval()
    with torch.no_grad():
        outputs = classifier.outputs_of_repeated_words(batch)
        expected = classifier(batch)
    assert_close(outputs.logits, expected.logits, atol=1e-12, rtol=1e-12)
    assert_close(outputs.attention, expected.attention, atol=1e-12, rtol=1e-12)


def test_a_subclass_that_reads_in_another_way_is_asked_itself(case):
    encoder, words, word_of_token, batch = case

    class Halved(LSTMEncoder):
        def forward(self, embeddings, mask, content):
            return super().forward(embeddings, mask, content) / 2

    halved = Halved(encoder.forwards.input_size, encoder.size // 2).to(words.dtype)
    halved.load_state_dict(encoder.state_dict())
    ones = torch.ones_like(batch.ids, dtype=words.dtype)
    states = halved.states_of_words(words, word_of_token, batch, ones)[0]
    expected = encoder.states_of_words(words, word_of_token, batch, ones)[0] / 2
    assert_close(states, expected, atol=1e-12, rtol=1e-12)
    states = halved.states_of_words(words, word_of_token, batch)[0]
    assert_close(states, expected, atol=1e-12, rtol=1e-12)


def test_parameters_are_left_alone(case):
    encoder, words, word_of_token, batch = case
    scale = torch.ones_like(batch.ids, dtype=words.dtype).requires_grad_()
    encoder.states_of_words(words, word_of_token, batch, scale)[0].sum().backward()
    assert scale.grad is not None
    assert all(parameter.grad is None for parameter in encoder.parameters())
