import itertools
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.optimize import brentq
from torch import Tensor
from torch.testing import assert_close

from attnprobe.core.batch import Batch, Outputs
from attnprobe.core.errors import UserError
from attnprobe.models import attention as kinds
from attnprobe.models.classifier import AttentionClassifier
from tests.toys import toy_batch, toy_classifier


def test_additive_attention_by_hand():
    classifier = toy_classifier(attention="additive")
    outputs = classifier(toy_batch([4]))
    w = classifier.attention.states.weight
    b = classifier.attention.states.bias
    (v,) = classifier.attention.score.weight
    words = slice(1, 5)
    scores = []
    for h in outputs.hidden[0, words]:
        scores.append(v @ torch.tanh(w @ h + b))
    expected = torch.stack(scores).softmax(0)
    assert_close(outputs.attention[0, words], expected)


def test_dot_attention_by_hand():
    classifier = toy_classifier(attention="dot")
    outputs = classifier(toy_batch([4]))
    (w,) = classifier.attention.score.weight
    scores = outputs.hidden[0, 1:5] @ w / 12**0.5
    assert_close(outputs.attention[0, 1:5], scores.softmax(0))


def test_dot_attention_refuses_a_question_of_another_size():
    with pytest.raises(ValueError, match="got 7 for 12"):
        kinds.DotAttention(hidden_size=12, query_size=7)


def test_uniform_attention_is_the_same_everywhere_and_learns_nothing():
    batch = toy_batch([5, 2, 1], padding=3)
    classifier = toy_classifier(attention=kinds.UniformAttention)
    attention = classifier(batch).attention
    assert_close(attention, batch.content / batch.content.sum(-1, keepdim=True))
    assert not attention.requires_grad  # nothing upstream can move it


def test_imposed_attention_needs_a_teacher():
    classifier = toy_classifier("average", kinds.ImposedAttention)
    with pytest.raises(UserError, match="teacher=PATH"):
        classifier(toy_batch([5, 2, 1], padding=3))


@dataclass(frozen=True)
class Imposed:
    """A classifier in training under a teacher's attention, and what it makes of the texts."""

    classifier: AttentionClassifier
    batch: Batch
    teacher: Tensor
    outputs: Outputs


@pytest.fixture
def imposed():
    batch = toy_batch([5, 2, 1], padding=3)
    noise = torch.rand(batch.ids.shape, generator=torch.Generator().manual_seed(0))
    weights = noise * batch.content
    teacher = weights / weights.sum(-1, keepdim=True)
    batch.teacher_attention = teacher.clone()
    classifier = toy_classifier("average", kinds.ImposedAttention).train()
    return Imposed(classifier, batch, teacher, classifier(batch))


def test_imposed_attention_is_the_teachers_to_the_last_digit(imposed):
    assert torch.equal(imposed.outputs.attention, imposed.teacher)
    assert not imposed.outputs.attention.requires_grad


def test_under_imposed_attention_the_encoder_learns(imposed):
    imposed.outputs.logits.sum().backward()
    for parameter in imposed.classifier.encoder.parameters():
        assert parameter.grad.any()
    assert torch.equal(imposed.batch.teacher_attention, imposed.teacher)


def test_the_decoder_sees_the_states_under_imposed_attention(imposed):
    """Σ a_t h_t."""
    hidden = imposed.outputs.hidden
    attended = (imposed.teacher.unsqueeze(-1) * hidden).sum(1)
    expected = imposed.classifier.decoder(attended)
    assert_close(imposed.outputs.logits, expected)


def nearest_point(scores):
    """The point of the simplex nearest to the scores: the best of the projections onto every
    face."""
    points = []
    words = range(len(scores))
    for size in range(1, len(scores) + 1):
        for face in map(list, itertools.combinations(words, size)):
            missing = 1 - scores[face].sum()
            point = np.zeros(len(scores))
            point[face] = scores[face] + missing / size
            if (point >= 0).all():
                points.append(point)
    distances = [np.square(point - scores).sum() for point in points]
    return points[np.argmin(distances)]


def entmax_by_root(scores):
    """The 1.5-entmax max(s / 2 − τ, 0)², its threshold τ found as the root of Σ = 1."""
    half = scores / 2

    def weights(threshold):
        return np.maximum(half - threshold, 0) ** 2

    def excess(threshold):
        return weights(threshold).sum() - 1

    root = brentq(excess, half.max() - 1, half.max(), xtol=1e-14)
    return weights(root)


SPARSE = [
    (kinds.SparsemaxAttention, nearest_point),
    (kinds.EntmaxAttention, entmax_by_root),
]


@pytest.mark.parametrize(("kind", "reference"), SPARSE)
@pytest.mark.parametrize("spread", [0.1, 1.0, 30.0])
def test_sparse_weights_are_those_of_the_definition(kind, reference, spread):
    generator = torch.Generator().manual_seed(0)
    scores = spread * torch.randn(20, 6, generator=generator).double()
    padded = torch.nn.functional.pad(scores, (0, 2), value=-torch.inf)

    weights = kind(4).weights(padded, padded.isfinite())

    expected = [reference(row) for row in scores.numpy()]
    assert_allclose(weights[:, :6], expected, atol=1e-7)
    assert (weights[:, 6:] == 0).all()


@pytest.mark.parametrize("kind", [kinds.SparsemaxAttention, kinds.EntmaxAttention])
def test_sparse_weights_have_exact_zeros_and_gradients_without_nan(kind):
    scores = torch.tensor([[3.0, 0.0, 2.9, -torch.inf]], requires_grad=True)
    weights = kind(4).weights(scores, scores.isfinite())
    assert weights[0, 1] == 0
    weights[0, 0].backward()
    assert torch.isfinite(scores.grad).all()
    assert scores.grad[0, 0] > 0 > scores.grad[0, 2]


@pytest.mark.parametrize("kind", [kinds.SparsemaxAttention, kinds.EntmaxAttention])
def test_sparse_attention_is_no_softmax_of_positionwise_scores(kind):
    assert kinds.AdditiveAttention.positionwise
    assert not kind.positionwise
