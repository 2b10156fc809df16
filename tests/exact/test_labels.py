"""The farthest attention of texts that may have several labels, against grids, scipy and the definition."""

import math

import numpy as np
import pytest
import torch
from scipy.special import expit

from attnprobe.exact import farthest_attention
from attnprobe.exact.bound import Polytope
from attnprobe.exact.labels import LabelRegion
from attnprobe.measures import jensen_shannon
from tests.exact.test_farthest import edges, simplex_grid, texts


def distance(attention, others, logits):
    """The mean over the labels of by how much each probability changes, by hand."""
    return ((others @ logits).sigmoid() - (attention @ logits).sigmoid()).abs().mean(-1)


def check(result, attention, logits, content, epsilon):
    torch.testing.assert_close(result.attention.sum(-1), torch.ones(len(attention)).double(), rtol=0, atol=1e-12)
    assert (result.attention >= 0).all()
    torch.testing.assert_close(result.attention[~content], attention[~content], rtol=0, atol=1e-12)
    apart = torch.stack([distance(a, b, z) for a, b, z in zip(attention, result.attention, logits, strict=True)])
    torch.testing.assert_close(result.tvd, apart, rtol=0, atol=1e-12)
    assert (apart <= epsilon).all()
    torch.testing.assert_close(result.jsd, jensen_shannon(attention, result.attention), rtol=0, atol=1e-9)
    assert (result.upper_bound >= result.jsd).all()
    assert (result.upper_bound <= math.log(2)).all()


@pytest.mark.parametrize("epsilon", [0.02, 0.2])
@pytest.mark.parametrize(("seq", "labels", "steps"), [(3, 2, 150), (4, 3, 36), (4, 6, 36)])
def test_the_interval_holds_the_best_of_a_grid(seq, labels, steps, epsilon):
    attention, logits, content = texts(15, seq, labels, seed=seq + labels)
    result = farthest_attention(attention, logits, content, epsilon=epsilon, exclusive=False)
    check(result, attention, logits, content, epsilon)
    grid = torch.cat([simplex_grid(seq, steps).double(), edges(seq, 2000)])
    short = []
    for row, (own, z) in enumerate(zip(attention, logits, strict=True)):
        best = torch.where(distance(own, grid, z) <= epsilon, jensen_shannon(grid, own), 0).amax()
        assert best <= result.upper_bound[row] + 1e-12
        short.append(max(0.0, float(best - result.jsd[row])))
    assert sum(short) / len(short) < 0.005


def test_the_bound_is_near_the_attention_found():
    attention, logits, content = texts(10, 12, 4, seed=3, markers=True)
    result = farthest_attention(attention, logits, content, epsilon=0.02, exclusive=False)
    check(result, attention, logits, content, 0.02)
    trivial = farthest_attention(attention, logits, content, epsilon=0.02, effort=0, exclusive=False).upper_bound
    assert (result.upper_bound <= trivial).all()
    assert (result.upper_bound - result.jsd).mean() < 0.5 * (trivial - result.jsd).mean()


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.4])
def test_one_label_beside_one_that_never_moves_is_two_exclusive_classes(epsilon):
    """A single logit s as [0, s]: the mean over two labels of which one is constant is half of its total variation."""
    attention, logits, content = texts(8, 9, 2, seed=1)
    margin = logits[..., 1:]
    known = farthest_attention(attention, torch.cat([torch.zeros_like(margin), margin], -1), content, epsilon=epsilon)
    constant = torch.full_like(margin, 0.3)
    result = farthest_attention(
        attention, torch.cat([constant, margin], -1), content, epsilon=epsilon / 2, exclusive=False
    )
    assert (result.jsd <= known.jsd + 1e-9).all()
    assert (result.upper_bound >= known.jsd - 1e-9).all()
    assert (known.jsd - result.jsd).max() < 1e-4
    assert (result.upper_bound - known.jsd).max() < 1e-4


def test_everything_is_allowed_from_one_on():
    attention, logits, content = texts(5, 6, 3, seed=4)
    result = farthest_attention(attention, logits, content, epsilon=1.0, exclusive=False)
    assert result.is_exact.all()
    assert (result.attention.amax(-1) > 1 - 1e-12).all()
    assert (result.attention.argmax(-1) == attention.argmin(-1)).all()


def test_every_true_attention_is_inside_the_outer_polytope():
    generator = torch.Generator().manual_seed(0)
    checked = 0
    for seed, labels in enumerate((2, 3, 6)):
        attention, logits, _ = (x[0] for x in texts(1, 6, labels, seed=seed, scale=2.5))
        own = attention @ logits
        for epsilon in (0.03, 0.25):
            example = LabelRegion(attention.numpy(), (logits - own).numpy(), 1.0, epsilon, own.numpy())
            polytope = Polytope(example)
            others = (torch.randn(4000, 6, generator=generator, dtype=torch.float64) * 2).softmax(-1)
            others = attention + torch.rand(4000, 1, generator=generator) ** 2 * (others - attention)
            others = others[distance(attention, others, logits) <= epsilon]
            moved = others @ logits - own
            point = torch.cat([others, moved.clamp(min=0), (-moved).clamp(min=0)], -1).numpy()
            assert ((point @ polytope.rows.T)[:, :-1] <= polytope.limits[:-1]).all()
            assert (others.numpy() <= polytope.highest() + 1e-12).all()
            assert (point[:, 6:] <= polytope.extra[:, 1]).all()
            checked += len(point)
    assert checked > 1000


@pytest.mark.parametrize("own", [-6.0, -1.0, 0.0, 0.7, 5.0])
def test_no_secant_is_flatter_than_the_flatter_end(own):
    """What the polytope rests on, by brute force."""
    example = LabelRegion(np.array([1.0]), np.array([[1.0]]), 1.0, 0.1, np.array([own]))
    for end in (-7.0, -2.0, -0.1, 0.1, 2.0, 7.0):
        claimed = min(example._slope(np.array([0.0]))[0], example._slope(np.array([end]))[0])
        x = np.linspace(0, end, 500)[1:]
        assert claimed <= ((expit(own + x) - expit(own)) / x).min() + 1e-12
