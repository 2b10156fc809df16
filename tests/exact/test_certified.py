import itertools

import numpy as np
import pytest
import torch
from scipy.special import expit

from attnprobe.exact import certified as bound
from attnprobe.exact import farthest_attention
from attnprobe.exact.certified import Polytope, certified_interval
from attnprobe.exact.regions import Region, secant_slope
from attnprobe.measures import jensen_shannon
from tests.exact.test_farthest import (
    best_of,
    check_claims,
    edges,
    free_bound,
    predict,
    simplex_grid,
    texts,
)


@pytest.mark.parametrize("epsilon", [0.02, 0.2])
@pytest.mark.parametrize(
    ("seq", "classes", "steps", "exclusive"),
    [
        (3, 3, 150, True),
        (4, 3, 36, True),
        (4, 5, 36, True),
        (3, 2, 150, False),
        (4, 3, 36, False),
        (4, 6, 36, False),
    ],
)
def test_the_interval_holds_the_best_of_a_grid(seq, classes, steps, exclusive, epsilon):
    attention, logits, content = texts(20 if exclusive else 15, seq, classes, seed=seq + classes)
    result = farthest_attention(attention, logits, content, epsilon=epsilon, exclusive=exclusive)
    check_claims(result, attention, logits, content, epsilon, exclusive=exclusive)
    grid = torch.cat([simplex_grid(seq, steps).double(), edges(seq, 2000)])
    best = []
    for own, z in zip(attention, logits, strict=True):
        of_labels = torch.where(
            label_distance(own, grid, z) <= epsilon, jensen_shannon(grid, own), 0
        )
        best.append(best_of(grid, own, z, epsilon) if exclusive else of_labels.amax())
    best = torch.tensor(best, dtype=torch.float64)
    assert (best <= result.upper_bound + 1e-12).all()
    assert (best - result.jsd).clamp(min=0).mean() < 0.005
    assert result.is_exact.any() or epsilon < 0.1 or not exclusive


def test_no_feasible_vertex_beats_the_upper_bound():
    """Attentions on as many positions as classes that keep the prediction exactly: the hardest
    feasible ones."""
    attention, logits, content = texts(10, 9, 3, seed=5)
    result = farthest_attention(attention, logits, content, epsilon=0.001, effort=4)
    for row in range(len(attention)):
        own = attention[row]
        z = logits[row] - logits[row, :, :1]
        for support in itertools.combinations(range(9), 3):
            # the weights on these three that give the model's own logits
            equations = torch.cat([z[list(support), 1:].T, torch.ones(1, 3).double()])
            weights = torch.linalg.solve(
                equations, torch.cat([(own @ z)[1:], torch.ones(1).double()])
            )
            if (weights >= 0).all():
                candidate = torch.zeros(9).double().index_copy(0, torch.tensor(support), weights)
                torch.testing.assert_close(predict(candidate, z), predict(own, z))
                assert jensen_shannon(candidate, own) <= result.upper_bound[row] + 1e-12
                assert jensen_shannon(candidate, own) <= result.jsd[row] + 0.05


@pytest.mark.parametrize("epsilon", [0.01, 0.1])
def test_two_classes_give_the_two_class_optimum(epsilon):
    attention, logits, content = texts(25, 12, 2, seed=7, markers=True)
    exact = farthest_attention(attention, logits, content, epsilon=epsilon)
    found, bound = certified_interval(attention, logits, content, epsilon, 40)
    torch.testing.assert_close(jensen_shannon(attention, found), exact.jsd, rtol=0, atol=1e-9)
    assert (bound >= exact.jsd - 1e-9).all()
    assert (bound - exact.jsd).median() < 1e-3


def test_effort_closes_the_gap_and_none_leaves_the_free_bound():
    attention, logits, content = texts(12, 14, 4, seed=3)
    results = [
        farthest_attention(attention, logits, content, epsilon=0.02, effort=n)
        for n in (0, 1, 8, 60)
    ]
    for less, more in itertools.pairwise(results):
        assert (more.upper_bound <= less.upper_bound + 1e-9).all()
        assert more.jsd.mean() >= less.jsd.mean()
    gaps = [(r.upper_bound - r.jsd).mean().item() for r in results]
    assert gaps[3] < gaps[2] / 2 < gaps[1] / 2
    assert gaps[3] < 0.012
    torch.testing.assert_close(results[0].upper_bound, free_bound(attention, content))


@pytest.mark.parametrize(
    ("exclusive", "scale", "epsilons"), [(True, 1.5, (0.05, 0.3)), (False, 2.5, (0.03, 0.25))]
)
def test_every_true_attention_is_inside_the_outer_polytope(exclusive, scale, epsilons):
    """The relaxation must not cut off anything: its rows hold for random attentions within ε."""
    generator = torch.Generator().manual_seed(0)
    checked = 0
    for seed, classes in enumerate((3, 4, 6) if exclusive else (2, 3, 6)):
        attention, logits, _ = (x[0] for x in texts(1, 6, classes, seed=seed, scale=scale))
        own = (attention @ logits).log_softmax(-1) if exclusive else attention @ logits
        for epsilon in epsilons:
            shift = (logits - attention @ logits).numpy()
            polytope = Polytope(
                Region(attention.numpy(), shift, 1.0, epsilon, own.numpy(), exclusive)
            )
            others = (torch.randn(4000, 6, generator=generator, dtype=torch.float64) * 2).softmax(
                -1
            )
            others = attention + torch.rand(4000, 1, generator=generator) ** 2 * (
                others - attention
            )
            moved = others @ logits - attention @ logits
            if exclusive:
                ratio = (own + moved).log_softmax(-1) - own
                change = (own + ratio).exp() - own.exp()
                inside = change.abs().sum(-1) / 2 <= epsilon
                extra = [
                    (moved - ratio)[:, :1],
                    (own + ratio).exp(),
                    change.clamp(min=0),
                    (-change).clamp(min=0),
                ]
            else:
                inside = label_distance(attention, others, logits) <= epsilon
                extra = [moved.clamp(min=0), (-moved).clamp(min=0)]
            point = torch.cat([others, *extra], -1)[inside].numpy()
            assert ((point @ polytope.rows.T)[:, :-1] <= polytope.limits[:-1]).all()
            np.testing.assert_allclose(point @ polytope.rows[-1], polytope.limits[-1])
            assert (others[inside].numpy() <= polytope.highest() + 1e-12).all()
            assert (
                (point[:, 6:] >= polytope.extra[:, 0]) & (point[:, 6:] <= polytope.extra[:, 1])
            ).all()
            checked += len(point)
    assert checked > 1000


@pytest.mark.parametrize("ends", ["infeasible", "stalled"])
def test_a_solver_that_fails_costs_tightness_and_never_truth(monkeypatch, ends):
    attention, logits, content = texts(5, 8, 3, seed=2)
    good = farthest_attention(attention, logits, content, epsilon=0.02)

    def fails(programme, cost):
        return programme.without_optimum(cost, np.zeros(0)) if ends == "stalled" else None

    monkeypatch.setattr(bound.Programme, "minimise", fails)
    result = farthest_attention(attention, logits, content, epsilon=0.02)
    check_claims(result, attention, logits, content, 0.02)
    assert (result.upper_bound >= good.jsd).all()


def label_distance(attention, others, logits):
    """The mean over the labels of by how much each probability changes, by hand."""
    return ((others @ logits).sigmoid() - (attention @ logits).sigmoid()).abs().mean(-1)


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.4])
def test_one_label_beside_one_that_never_moves_is_two_exclusive_classes(epsilon):
    """A single logit s as [0, s]: the mean over two labels of which one is constant is half of its
    total variation."""
    attention, logits, content = texts(8, 9, 2, seed=1)
    margin = logits[..., 1:]
    known = farthest_attention(
        attention, torch.cat([torch.zeros_like(margin), margin], -1), content, epsilon=epsilon
    )
    constant = torch.full_like(margin, 0.3)
    both = torch.cat([constant, margin], -1)
    result = farthest_attention(attention, both, content, epsilon=epsilon / 2, exclusive=False)
    assert (result.jsd <= known.jsd + 1e-9).all()
    assert (result.upper_bound >= known.jsd - 1e-9).all()
    assert (known.jsd - result.jsd).max() < 1e-4
    assert (result.upper_bound - known.jsd).max() < 1e-4


@pytest.mark.parametrize("own", [-6.0, -1.0, 0.0, 0.7, 5.0])
def test_no_secant_is_flatter_than_the_flatter_end(own):
    """What the polytope rests on, by brute force."""
    for end in (-7.0, -2.0, -0.1, 0.1, 2.0, 7.0):
        claimed = min(secant_slope(np.array([own]), np.array([at]))[0] for at in (0.0, end))
        x = np.linspace(0, end, 500)[1:]
        assert claimed <= ((expit(own + x) - expit(own)) / x).min() + 1e-12
