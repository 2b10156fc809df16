"""Gradient × input of an LSTM as the derivative by a factor, against PyTorch's own backward
pass."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from attnprobe.core.batch import Batch
from attnprobe.models.encoders import LONG_INPUTS, LSTMEncoder
from tests.toys import toy_batch, toy_classifier

LENGTHS = [6, 1, 9, 4]


@dataclass(frozen=True)
class Looked:
    """Texts whose distinct words are looked up once.

    Attributes:
        encoder: what reads them, in float64.
        batch: the texts.
        words: the vectors of the distinct words.
        word_of_token: the row of `words` at each token.
    """

    encoder: LSTMEncoder
    batch: Batch
    words: Tensor
    word_of_token: Tensor

    def states(self, scale=None, *, encoder=None):
        """By the distinct words."""
        encoder = encoder or self.encoder
        states, content, word_attention = encoder.states_of_words(
            self.words, self.word_of_token, self.batch, scale
        )
        assert content is self.batch.content
        assert word_attention is None
        return states

    def states_by_pytorch(self, scale=None):
        """By PyTorch's own pass over the vectors, each multiplied by its factor."""
        vectors = self.words[self.word_of_token]
        if scale is not None:
            vectors = vectors * scale.unsqueeze(-1)
        states, _, _ = self.encoder.states(vectors, self.batch)
        return states

    @property
    def ones(self):
        return torch.ones_like(self.batch.ids, dtype=self.words.dtype)


def assert_same(tensor, expected, rtol=1e-12):
    assert_close(tensor, expected, atol=1e-12, rtol=rtol)


@pytest.fixture
def case():
    batch = toy_batch(LENGTHS)
    classifier = toy_classifier("lstm", "additive", spread=3).double()
    distinct, word_of_token = batch.ids.unique(return_inverse=True)
    words = classifier.embedding.weight.detach()[distinct]
    return Looked(classifier.encoder, batch, words, word_of_token)


def derivative(states_of, factors, weight):
    """Of a weighted sum of the states by the factors."""
    scale = factors.clone().requires_grad_()
    (gradient,) = torch.autograd.grad((states_of(scale) * weight).sum(), scale)
    return gradient


def test_states_and_their_derivative_are_those_of_pytorch(case):
    mask = case.batch.mask
    count = case.batch.ids.numel()
    factors = torch.linspace(0.5, 1.5, count, dtype=torch.float64).view_as(case.batch.ids)
    expected = case.states_by_pytorch(factors)
    weight = torch.randn(expected.shape, dtype=torch.float64)

    gradient = derivative(case.states, factors, weight)

    expected_gradient = derivative(case.states_by_pytorch, factors, weight)
    assert_same(case.states(factors.requires_grad_()), expected)
    assert_same(gradient[mask], expected_gradient[mask], rtol=1e-10)
    assert gradient[mask].abs().min() > 1e-6
    assert (gradient[~mask] == 0).all()


def test_with_factors_of_one_the_states_are_the_encoders(case):
    assert_same(case.states(case.ones), case.states_by_pytorch())


@pytest.mark.parametrize("length", [8, LONG_INPUTS])
def test_without_factors_the_states_are_the_encoders(length):
    """With short vectors PyTorch's own pass is taken, with long ones the products of the words."""
    batch = toy_batch(LENGTHS)
    distinct, word_of_token = batch.ids.unique(return_inverse=True)
    words = torch.randn(len(distinct), length, dtype=torch.float64)
    texts = Looked(LSTMEncoder(length, 6).double(), batch, words, word_of_token)
    with torch.no_grad():
        states = texts.states()
        expected = texts.states_by_pytorch()
    assert_same(states, expected)
    assert states.abs().max() > 0.01


@pytest.mark.parametrize("encoder", ["lstm", "cnn", "average"])
def test_each_distinct_word_looked_up_once_gives_the_same_outputs(encoder):
    batch = toy_batch(LENGTHS)
    classifier = toy_classifier(encoder, "additive", spread=3).double().eval()
    with torch.no_grad():
        outputs = classifier.outputs_of_repeated_words(batch)
        expected = classifier(batch)
    assert_same(outputs.logits, expected.logits)
    assert_same(outputs.attention, expected.attention)


class Halved(LSTMEncoder):
    def forward(self, embeddings, mask, content):
        return super().forward(embeddings, mask, content) / 2


@pytest.mark.parametrize("has_factors", [True, False])
def test_a_subclass_that_reads_in_another_way_is_asked_itself(case, has_factors):
    encoder = case.encoder
    halved = Halved(encoder.forwards.input_size, encoder.size // 2).double()
    halved.load_state_dict(encoder.state_dict())
    scale = case.ones if has_factors else None
    states = case.states(scale, encoder=halved)
    assert_same(states, case.states(scale) / 2)


def test_parameters_are_left_alone(case):
    scale = case.ones.requires_grad_()
    case.states(scale).sum().backward()
    assert scale.grad is not None
    for parameter in case.encoder.parameters():
        assert parameter.grad is None
