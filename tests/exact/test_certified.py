import itertools

import numpy as np
import pytest
import torch
from scipy.special import expit

from attnprobe.exact import certified, farthest_attention
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


@pytest.mark.parametrize(
    ("seq", "classes", "steps", "exclusive", "epsilon"),
    [
        (3, 3, 150, True, 0.02),
        (4, 3, 36, True, 0.2),
        (4, 5, 36, True, 0.02),
        (3, 2, 150, False, 0.2),
        (4, 3, 36, False, 0.02),
        (4, 6, 36, False, 0.2),
    ],
)
def test_the_interval_holds_the_best_of_a_grid(seq, classes, steps, exclusive, epsilon):
    attention, logits, content = texts(20 if exclusive else 15, seq, classes, seed=seq + classes)
    result = farthest_attention(attention, logits, content, epsilon=epsilon, exclusive=exclusive)
    check_claims(result, attention, logits, content, epsilon, exclusive=exclusive)
    grid = torch.cat([simplex_grid(seq, steps).double(), edges(seq, 2000)])
    best_by_text = []
    for weights, text_logits in zip(attention, logits, strict=True):
        if exclusive:
            best_by_text.append(best_of(grid, weights, text_logits, epsilon))
        else:
            allowed = label_distance(weights, grid, text_logits) <= epsilon
            divergence = jensen_shannon(grid, weights)
            best_by_text.append(torch.where(allowed, divergence, 0).amax())
    best = torch.tensor(best_by_text, dtype=torch.float64)
    assert (best <= result.upper_bound + 1e-12).all()
    assert (best - result.jsd).clamp(min=0).mean() < 0.005
    assert result.is_exact.any() or epsilon < 0.1 or not exclusive


def test_no_feasible_vertex_beats_the_upper_bound():
    """Attentions on as many positions as classes that keep the prediction exactly: the hardest
    feasible ones."""
    attention, logits, content = texts(10, 9, 3, seed=5)
    result = farthest_attention(attention, logits, content, epsilon=0.001, effort=4)
    for row, weights in enumerate(attention):
        margins = logits[row] - logits[row, :, :1]
        for support in itertools.combinations(range(9), 3):
            candidate = same_prediction_on(list(support), weights, margins)
            if (candidate >= 0).all():
                torch.testing.assert_close(predict(candidate, margins), predict(weights, margins))
                divergence = jensen_shannon(candidate, weights)
                assert divergence <= result.upper_bound[row] + 1e-12
                assert divergence <= result.jsd[row] + 0.05


def same_prediction_on(support, weights, margins):
    """The weights on these positions that give the model's own logits; some may be negative."""
    unit_sum = torch.ones(1, dtype=torch.float64)
    equations = torch.cat([margins[support, 1:].T, unit_sum.expand(1, len(support))])
    solution = torch.linalg.solve(equations, torch.cat([(weights @ margins)[1:], unit_sum]))
    return torch.zeros_like(weights).index_copy(0, torch.tensor(support), solution)


@pytest.mark.parametrize("epsilon", [0.01, 0.1])
def test_two_classes_give_the_two_class_optimum(epsilon):
    attention, logits, content = texts(25, 12, 2, seed=7, markers=True)
    exact = farthest_attention(attention, logits, content, epsilon=epsilon)
    farthest, upper_bound = certified_interval(attention, logits, content, epsilon, 40)
    torch.testing.assert_close(jensen_shannon(attention, farthest), exact.jsd, rtol=0, atol=1e-9)
    assert (upper_bound >= exact.jsd - 1e-9).all()
    assert (upper_bound - exact.jsd).median() < 1e-3


def test_effort_closes_the_gap_and_none_leaves_the_free_bound():
    attention, logits, content = texts(12, 14, 4, seed=3)
    results = [
        farthest_attention(attention, logits, content, epsilon=0.02, effort=effort)
        for effort in (0, 1, 8, 60)
    ]
    for less, more in itertools.pairwise(results):
        assert (more.upper_bound <= less.upper_bound + 1e-9).all()
        assert more.jsd.mean() >= less.jsd.mean()
    gaps = [(result.upper_bound - result.jsd).mean().item() for result in results]
    assert gaps[3] < gaps[2] / 2 < gaps[1] / 2
    assert gaps[3] < 0.012
    torch.testing.assert_close(results[0].upper_bound, free_bound(attention, content))


@pytest.mark.parametrize("epsilon", [0.05, 0.3])
@pytest.mark.parametrize(("seed", "classes"), [(0, 3), (1, 4), (2, 6)])
def test_every_attention_within_epsilon_is_inside_the_polytope_of_classes(seed, classes, epsilon):
    attention, logits, _ = (column[0] for column in texts(1, 6, classes, seed=seed, scale=1.5))
    log_probability = (attention @ logits).log_softmax(-1)
    candidates = attentions_around(attention)

    moved = candidates @ logits - attention @ logits
    log_ratio = (log_probability + moved).log_softmax(-1) - log_probability
    probability = (log_probability + log_ratio).exp()
    change = probability - log_probability.exp()
    inside = change.abs().sum(-1) / 2 <= epsilon
    extra = [(moved - log_ratio)[:, :1], probability, change.clamp(min=0), (-change).clamp(min=0)]

    shift = logits - attention @ logits
    region = Region(
        attention.numpy(), shift.numpy(), 1.0, epsilon, log_probability.numpy(), exclusive=True
    )
    check_inside(Polytope(region), candidates[inside], torch.cat(extra, -1)[inside])


@pytest.mark.parametrize("epsilon", [0.03, 0.25])
@pytest.mark.parametrize(("seed", "labels"), [(0, 2), (1, 3), (2, 6)])
def test_every_attention_within_epsilon_is_inside_the_polytope_of_labels(seed, labels, epsilon):
    attention, logits, _ = (column[0] for column in texts(1, 6, labels, seed=seed, scale=2.5))
    candidates = attentions_around(attention)

    moved = candidates @ logits - attention @ logits
    inside = label_distance(attention, candidates, logits) <= epsilon
    extra = torch.cat([moved.clamp(min=0), (-moved).clamp(min=0)], -1)

    shift = logits - attention @ logits
    scores = attention @ logits
    region = Region(attention.numpy(), shift.numpy(), 1.0, epsilon, scores.numpy(), exclusive=False)
    check_inside(Polytope(region), candidates[inside], extra[inside])


def attentions_around(attention):
    """4,000 random attentions, most of them near this one."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(4000, len(attention), generator=generator, dtype=torch.float64)
    distance = torch.rand(4000, 1, generator=generator) ** 2
    return attention + distance * ((noise * 2).softmax(-1) - attention)


def check_inside(polytope, candidates, extra):
    """The relaxation must not cut off anything: its rows hold for all of these attentions."""
    point = torch.cat([candidates, extra], -1).numpy()
    assert ((point @ polytope.rows.T)[:, :-1] <= polytope.limits[:-1]).all()
    np.testing.assert_allclose(point @ polytope.rows[-1], polytope.limits[-1])
    assert (candidates.numpy() <= polytope.highest() + 1e-12).all()
    low, high = polytope.extra.T
    assert ((extra.numpy() >= low) & (extra.numpy() <= high)).all()
    assert len(point) > 200


@pytest.mark.parametrize("ends", ["infeasible", "stalled"])
def test_a_solver_that_fails_costs_tightness_and_never_truth(monkeypatch, ends):
    attention, logits, content = texts(5, 8, 3, seed=2)
    good = farthest_attention(attention, logits, content, epsilon=0.02)

    def fails(programme, cost):
        return programme.without_optimum(cost, np.zeros(0)) if ends == "stalled" else None

    monkeypatch.setattr(certified.Programme, "minimise", fails)
    result = farthest_attention(attention, logits, content, epsilon=0.02)
    check_claims(result, attention, logits, content, 0.02)
    assert (result.upper_bound >= good.jsd).all()


def label_distance(attention, candidates, logits):
    """The mean over the labels of by how much each probability changes, by hand."""
    return ((candidates @ logits).sigmoid() - (attention @ logits).sigmoid()).abs().mean(-1)


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.4])
def test_one_label_beside_one_that_never_moves_is_two_exclusive_classes(epsilon):
    """A single logit s as [0, s]: the mean over two labels of which one is constant is half of its
    total variation."""
    attention, logits, content = texts(8, 9, 2, seed=1)
    margin = logits[..., 1:]
    classes = torch.cat([torch.zeros_like(margin), margin], -1)
    two_classes = farthest_attention(attention, classes, content, epsilon=epsilon)
    labels = torch.cat([torch.full_like(margin, 0.3), margin], -1)
    result = farthest_attention(attention, labels, content, epsilon=epsilon / 2, exclusive=False)
    assert (result.jsd <= two_classes.jsd + 1e-9).all()
    assert (result.upper_bound >= two_classes.jsd - 1e-9).all()
    assert (two_classes.jsd - result.jsd).max() < 1e-4
    assert (result.upper_bound - two_classes.jsd).max() < 1e-4


@pytest.mark.parametrize("end", [-7.0, -2.0, -0.1, 0.1, 2.0, 7.0])
@pytest.mark.parametrize("logit", [-6.0, -1.0, 0.0, 0.7, 5.0])
def test_no_secant_is_flatter_than_the_flatter_end(logit, end):
    """What the polytope rests on, by brute force."""
    [slope_at_zero] = secant_slope(np.array([logit]), np.array([0.0]))
    [slope_at_end] = secant_slope(np.array([logit]), np.array([end]))
    steps = np.linspace(0, end, 500)[1:]
    slopes = (expit(logit + steps) - expit(logit)) / steps
    assert min(slope_at_zero, slope_at_end) <= slopes.min() + 1e-12
