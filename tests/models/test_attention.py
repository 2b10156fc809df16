import itertools

import numpy as np
import pytest
import torch
from scipy.optimize import brentq

from attnprobe.core.errors import UserError
from attnprobe.models import attention as kinds
from tests.toys import toy_batch, toy_classifier


def test_additive_and_dot_attention_by_hand():
    batch = toy_batch([4])
    found = {}
    for kind in ("additive", "dot"):
        classifier = toy_classifier(attention=kind)
        outputs = classifier(batch)
        found[kind] = classifier.attention
        hidden = outputs.hidden[0, 1:5]
        if kind == "additive":
            w = found[kind].states.weight
            b = found[kind].states.bias
            v = found[kind].score.weight[0]
            scores = torch.stack([v @ torch.tanh(w @ h + b) for h in hidden])
        else:
            scores = hidden @ found[kind].score.weight[0] / 12**0.5
        torch.testing.assert_close(outputs.attention[0, 1:5], scores.softmax(0))
    with pytest.raises(ValueError, match="got 7 for 12"):
        kinds.DotAttention(hidden_size=12, query_size=7)


def test_uniform_attention_is_the_same_everywhere_and_learns_nothing():
    batch = toy_batch([5, 2, 1], padding=3)
    classifier = toy_classifier(attention=kinds.UniformAttention)
    attention = classifier(batch).attention
    torch.testing.assert_close(attention, batch.content / batch.content.sum(-1, keepdim=True))
    assert not attention.requires_grad  # nothing upstream can move it


def test_imposed_attention_is_what_was_given_to_the_last_digit_and_needs_a_teacher():
    batch = toy_batch([5, 2, 1], padding=3)
    classifier = toy_classifier("average", kinds.ImposedAttention)
    with pytest.raises(UserError, match="teacher=PATH"):
        classifier(batch)
    weights = (
        torch.rand(batch.ids.shape, generator=torch.Generator().manual_seed(0)) * batch.content
    )
    before = weights / weights.sum(-1, keepdim=True)
    batch.teacher_attention = before.clone()
    outputs = classifier.train()(batch)
    assert torch.equal(outputs.attention, before)
    assert not outputs.attention.requires_grad
    outputs.logits.sum().backward()
    assert all(p.grad.abs().sum() > 0 for p in classifier.encoder.parameters())
    assert torch.equal(batch.teacher_attention, before)
    # the decoder sees Σ a_t h_t of the given attention
    context = torch.einsum("bs,bsh->bh", before, outputs.hidden)
    torch.testing.assert_close(outputs.logits, classifier.decoder(context))


def nearest_point(scores):
    """The point of the simplex nearest to the scores: the best of the projections onto every
    face."""
    best = None
    for size in range(1, len(scores) + 1):
        for face in map(list, itertools.combinations(range(len(scores)), size)):
            point = np.zeros(len(scores))
            point[face] = scores[face] + (1 - scores[face].sum()) / size
            distance = ((point - scores) ** 2).sum()
            if (point >= 0).all() and (best is None or distance < best[0]):
                best = distance, point
    return best[1]


def by_threshold(scores):
    """The 1.5-entmax, its threshold found as a root."""
    half = scores / 2
    root = brentq(
        lambda tau: (np.maximum(half - tau, 0) ** 2).sum() - 1,
        half.max() - 1,
        half.max(),
        xtol=1e-14,
    )
    return np.maximum(half - root, 0) ** 2


@pytest.mark.parametrize(
    ("kind", "reference"),
    [(kinds.SparsemaxAttention, nearest_point), (kinds.EntmaxAttention, by_threshold)],
)
def test_sparse_weights_are_those_of_the_definition_with_exact_zeros_and_gradients_without_nan(
    kind, reference
):
    scores = torch.randn(20, 6, generator=torch.Generator().manual_seed(0)).double()
    content = (torch.arange(8) < 6).expand(20, -1)
    for spread in (0.1, 1.0, 30.0):
        wide = torch.nn.functional.pad(scores * spread, (0, 2), value=-torch.inf)
        found = kind(4).weights(wide, content)
        assert (found[:, 6:] == 0).all()
        np.testing.assert_allclose(
            found[:, :6].numpy(), [reference(row * spread) for row in scores.numpy()], atol=1e-7
        )
    few = torch.tensor([[3.0, 0.0, 2.9, -torch.inf]], requires_grad=True)
    found = kind(4).weights(few, few.isfinite())
    assert found[0, 1] == 0
    found[0, 0].backward()
    assert torch.isfinite(few.grad).all()
    assert few.grad[0, 0] > 0 > few.grad[0, 2]
    assert kinds.AdditiveAttention.positionwise
    assert not kind.positionwise
