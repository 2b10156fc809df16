import itertools

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.special import expit
from torch.testing import assert_close

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


def best_on_grid(grid, weights, logits, epsilon, *, exclusive):
    """The largest JSD of those attentions `[samples, seq]` whose prediction stays within ε."""
    if exclusive:
        return best_of(grid, weights, logits, epsilon)
    is_allowed = label_distance(weights, grid, logits) <= epsilon
    divergence = jensen_shannon(grid, weights)
    return torch.where(is_allowed, divergence, 0).amax()


@pytest.mark.whole
@pytest.mark.parametrize(
    "epsilon",
    [
        0.02,
        pytest.param(0.2, marks=pytest.mark.slow),
    ],
)
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
    count = 20 if exclusive else 15
    attention, logits, content = texts(count, seq, classes, seed=seq + classes)
    result = farthest_attention(attention, logits, content, epsilon=epsilon, exclusive=exclusive)
    check_claims(result, attention, logits, content, epsilon, exclusive=exclusive)
    inside = simplex_grid(seq, steps)
    rim = edges(seq, 2000)
    grid = torch.cat([inside, rim])
    best = torch.empty(count, dtype=torch.float64)
    for row, weights in enumerate(attention):
        best[row] = best_on_grid(grid, weights, logits[row], epsilon, exclusive=exclusive)
    assert (best <= result.upper_bound + 1e-12).all()
    missed = (best - result.jsd).clamp(min=0)
    assert missed.mean() < 0.005
    assert result.is_exact.any() or epsilon < 0.1 or not exclusive


def test_no_feasible_vertex_beats_the_upper_bound():
    """Attentions on as many positions as classes that keep the prediction exactly: the hardest
    feasible ones."""
    attention, logits, content = texts(10, 9, 3, seed=5)
    result = farthest_attention(attention, logits, content, epsilon=0.001, effort=4)
    for row, weights in enumerate(attention):
        class_0 = logits[row, :, :1]
        margins = logits[row] - class_0
        prediction = predict(weights, margins)
        for support in itertools.combinations(range(9), 3):
            candidate = same_prediction_on(list(support), weights, margins)
            if (candidate < 0).any():
                continue
            assert_close(predict(candidate, margins), prediction)
            divergence = jensen_shannon(candidate, weights)
            assert divergence <= result.upper_bound[row] + 1e-12
            assert divergence <= result.jsd[row] + 0.05


def same_prediction_on(support, weights, margins):
    """The weights on these positions that give the model's own logits; some may be negative.

    The margin of class 0 is 0 everywhere: its equation is replaced by that of a sum of 1.
    """
    equations = margins[support].T.clone()
    equations[0] = 1
    logits = weights @ margins
    logits[0] = 1
    candidate = torch.zeros_like(weights)
    candidate[support] = torch.linalg.solve(equations, logits)
    return candidate


@pytest.mark.parametrize("epsilon", [0.01, 0.1])
def test_two_classes_give_the_two_class_optimum(epsilon):
    attention, logits, content = texts(25, 12, 2, seed=7, markers=True)
    exact = farthest_attention(attention, logits, content, epsilon=epsilon)
    farthest, upper_bound = certified_interval(attention, logits, content, epsilon, 40)
    divergence = jensen_shannon(attention, farthest)
    assert_close(divergence, exact.jsd, rtol=0, atol=1e-9)
    slack = upper_bound - exact.jsd
    assert (slack >= -1e-9).all()
    assert slack.median() < 1e-3


@pytest.fixture(scope="module")
def intervals_by_effort():
    """The same twelve texts, solved with no effort, with little and with more."""
    arguments = texts(12, 14, 4, seed=3)
    intervals = {}
    for effort in (0, 1, 8, 60):
        intervals[effort] = farthest_attention(*arguments, epsilon=0.02, effort=effort)
    return intervals


def test_effort_closes_the_gap(intervals_by_effort):
    intervals = list(intervals_by_effort.values())
    for less_effort, more_effort in itertools.pairwise(intervals):
        assert (more_effort.upper_bound <= less_effort.upper_bound + 1e-9).all()
        assert more_effort.jsd.mean() >= less_effort.jsd.mean()
    mean_gap = {}
    for effort, interval in intervals_by_effort.items():
        gap = interval.upper_bound - interval.jsd
        mean_gap[effort] = gap.mean().item()
    assert mean_gap[8] < mean_gap[1]
    assert mean_gap[60] < mean_gap[8] / 2
    assert mean_gap[60] < 0.012


def test_no_effort_leaves_the_free_bound(intervals_by_effort):
    attention, _, content = texts(12, 14, 4, seed=3)
    expected = free_bound(attention, content)
    assert_close(intervals_by_effort[0].upper_bound, expected)


def first_text(classes, *, seed, scale):
    """Weights and logits of one text of six positions."""
    [attention], [logits], _ = texts(1, 6, classes, seed=seed, scale=scale)
    return attention, logits


def extra_coordinates(logits, moved):
    """What the polytope of classes adds to the attention, for each move `[samples, classes]`.

    The change of the log normaliser, the probabilities, and by how much each rises and falls.
    """
    log_probability = logits.log_softmax(-1)
    moved_log_probability = (log_probability + moved).log_softmax(-1)
    log_ratio = moved_log_probability - log_probability
    normaliser = (moved - log_ratio)[:, :1]
    probability = moved_log_probability.exp()
    change = probability - log_probability.exp()
    rise = change.clamp(min=0)
    fall = (-change).clamp(min=0)
    return torch.cat([normaliser, probability, rise, fall], -1)


@pytest.mark.parametrize("epsilon", [0.05, 0.3])
@pytest.mark.parametrize(
    ("seed", "classes"),
    [
        pytest.param(0, 3, id="3 classes"),
        pytest.param(1, 4, id="4 classes"),
        pytest.param(2, 6, id="6 classes"),
    ],
)
def test_every_attention_within_epsilon_is_inside_the_polytope_of_classes(seed, classes, epsilon):
    attention, position_logits = first_text(classes, seed=seed, scale=1.5)
    logits = attention @ position_logits
    candidates = attentions_around(attention)
    candidate_logits = candidates @ position_logits
    prediction = logits.softmax(-1)
    change = candidate_logits.softmax(-1) - prediction
    total_variation = change.abs().sum(-1) / 2
    is_within = total_variation <= epsilon
    extra = extra_coordinates(logits, candidate_logits - logits)

    shift = (position_logits - logits).numpy()
    log_probability = logits.log_softmax(-1).numpy()
    region = Region(attention.numpy(), shift, 1.0, epsilon, log_probability, exclusive=True)
    check_inside(Polytope(region), candidates[is_within], extra[is_within])


@pytest.mark.parametrize("epsilon", [0.03, 0.25])
@pytest.mark.parametrize(
    ("seed", "labels"),
    [
        pytest.param(0, 2, id="2 labels"),
        pytest.param(1, 3, id="3 labels"),
        pytest.param(2, 6, id="6 labels"),
    ],
)
def test_every_attention_within_epsilon_is_inside_the_polytope_of_labels(seed, labels, epsilon):
    """The polytope's further coordinates: by how much each logit rises and falls."""
    attention, position_logits = first_text(labels, seed=seed, scale=2.5)
    logits = attention @ position_logits

    candidates = attentions_around(attention)
    is_within = label_distance(attention, candidates, position_logits) <= epsilon
    moved = candidates @ position_logits - logits
    rise = moved.clamp(min=0)
    fall = (-moved).clamp(min=0)
    extra = torch.cat([rise, fall], -1)

    shift = (position_logits - logits).numpy()
    region = Region(attention.numpy(), shift, 1.0, epsilon, logits.numpy(), exclusive=False)
    check_inside(Polytope(region), candidates[is_within], extra[is_within])


def attentions_around(attention):
    """4,000 random attentions, most of them near this one."""
    generator = torch.Generator().manual_seed(0)
    shape = (4000, len(attention))
    noise = torch.randn(shape, generator=generator, dtype=torch.float64)
    far_attention = (noise * 2).softmax(-1)
    uniform = torch.rand(4000, 1, generator=generator)
    distance = uniform**2
    return attention + distance * (far_attention - attention)


def check_inside(polytope, candidates, extra):
    """The relaxation must not cut off anything: its rows hold for all of these attentions.

    The last row is the equation that the weights sum to the mass.
    """
    points = torch.cat([candidates, extra], -1).numpy()
    assert len(points) > 200
    sides = points @ polytope.rows.T
    *limits, mass = polytope.limits
    assert (sides[:, :-1] <= limits).all()
    assert_allclose(sides[:, -1], mass)
    highest = polytope.highest()
    assert (candidates.numpy() <= highest + 1e-12).all()
    low, high = polytope.extra.T
    assert (extra.numpy() >= low).all()
    assert (extra.numpy() <= high).all()


@pytest.mark.parametrize("ends", ["infeasible", "stalled"])
def test_a_solver_that_fails_costs_tightness_and_never_truth(monkeypatch, ends):
    attention, logits, content = texts(5, 8, 3, seed=2)
    good = farthest_attention(attention, logits, content, epsilon=0.02)

    def fails(programme, cost):
        if ends == "infeasible":
            return None
        return programme.without_optimum(cost, np.zeros(0))

    monkeypatch.setattr(certified.Programme, "minimise", fails)
    result = farthest_attention(attention, logits, content, epsilon=0.02)
    check_claims(result, attention, logits, content, 0.02)
    assert (result.upper_bound >= good.jsd).all()


def label_distance(attention, candidates, logits):
    """The mean over the labels of by how much each probability changes, by hand."""
    before = (attention @ logits).sigmoid()
    after = (candidates @ logits).sigmoid()
    return (after - before).abs().mean(-1)


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.4])
def test_one_label_beside_one_that_never_moves_is_two_exclusive_classes(epsilon):
    """A single logit s as [0, s]: the mean over two labels of which one is constant is half of its
    total variation."""
    attention, logits, content = texts(8, 9, 2, seed=1)
    classes = logits.clone()
    classes[..., 0] = 0
    labels = logits.clone()
    labels[..., 0] = 0.3
    exact = farthest_attention(attention, classes, content, epsilon=epsilon)
    result = farthest_attention(attention, labels, content, epsilon=epsilon / 2, exclusive=False)
    missed = exact.jsd - result.jsd
    assert (missed >= -1e-9).all()
    assert (missed < 1e-4).all()
    slack = result.upper_bound - exact.jsd
    assert (slack >= -1e-9).all()
    assert (slack < 1e-4).all()


@pytest.mark.parametrize("end", [-7.0, -2.0, -0.1, 0.1, 2.0, 7.0])
@pytest.mark.parametrize("logit", [-6.0, -1.0, 0.0, 0.7, 5.0])
def test_no_secant_is_flatter_than_the_flatter_end(logit, end):
    """What the polytope rests on, by brute force."""
    logits = np.array([logit, logit])
    ends = np.array([0.0, end])
    flatter_slope = secant_slope(logits, ends).min()
    steps = np.linspace(0, end, 500)[1:]
    rises = expit(logit + steps) - expit(logit)
    slopes = rises / steps
    assert flatter_slope <= slopes.min() + 1e-12
