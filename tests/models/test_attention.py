import itertools

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.optimize import brentq
from torch.testing import assert_close

from attnprobe.core.errors import UserError
from attnprobe.models import attention as kinds
from tests.toys import toy_batch, toy_classifier


def test_additive_attention_by_hand():
    classifier = toy_classifier(attention="additive")
    outputs = classifier(toy_batch([4]))
    w = classifier.attention.states.weight
    b = classifier.attention.states.bias
    v = classifier.attention.score.weight[0]
    states = outputs.hidden[0, 1:5]
    scores = torch.stack([v @ torch.tanh(w @ h + b) for h in states])
    assert_close(outputs.attention[0, 1:5], scores.softmax(0))


def test_dot_attention_by_hand():
    classifier = toy_classifier(attention="dot")
    outputs = classifier(toy_batch([4]))
    w = classifier.attention.score.weight[0]
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


def test_imposed_attention_is_the_teachers_to_the_last_digit():
    batch = toy_batch([5, 2, 1], padding=3)
    classifier = toy_classifier("average", kinds.ImposedAttention)
    generator = torch.Generator().manual_seed(0)
    weights = torch.rand(batch.ids.shape, generator=generator) * batch.content
    teacher = weights / weights.sum(-1, keepdim=True)
    batch.teacher_attention = teacher.clone()

    outputs = classifier.train()(batch)
    assert torch.equal(outputs.attention, teacher)
    assert not outputs.attention.requires_grad
    outputs.logits.sum().backward()
    assert all(p.grad.abs().sum() > 0 for p in classifier.encoder.parameters())
    assert torch.equal(batch.teacher_attention, teacher)

    # the decoder sees Σ a_t h_t of this attention
    context = torch.einsum("bs,bsh->bh", teacher, outputs.hidden)
    assert_close(outputs.logits, classifier.decoder(context))


def nearest_point(scores):
    """The point of the simplex nearest to the scores: the best of the projections onto every
    face."""
    points = []
    for size in range(1, len(scores) + 1):
        for face in map(list, itertools.combinations(range(len(scores)), size)):
            rest = 1 - scores[face].sum()
            point = np.zeros(len(scores))
            point[face] = scores[face] + rest / size
            if (point >= 0).all():
                points.append(point)
    return min(points, key=lambda point: ((point - scores) ** 2).sum())


def entmax_by_root(scores):
    """The 1.5-entmax, its threshold found as a root."""
    half = scores / 2

    def excess(tau):
        return (np.maximum(half - tau, 0) ** 2).sum() - 1

    root = brentq(excess, half.max() - 1, half.max(), xtol=1e-14)
    return np.maximum(half - root, 0) ** 2


SPARSE = [(kinds.SparsemaxAttention, nearest_point), (kinds.EntmaxAttention, entmax_by_root)]


@pytest.mark.parametrize(("kind", "reference"), SPARSE)
@pytest.mark.parametrize("spread", [0.1, 1.0, 30.0])
def test_sparse_weights_are_those_of_the_definition(kind, reference, spread):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(20, 6, generator=generator).double() * spread
    content = (torch.arange(8) < 6).expand(20, -1)
    padded = torch.nn.functional.pad(scores, (0, 2), value=-torch.inf)
    weights = kind(4).weights(padded, content)
    assert (weights[:, 6:] == 0).all()
    expected = [reference(row) for row in scores.numpy()]
    assert_allclose(weights[:, :6].numpy(), expected, atol=1e-7)


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
