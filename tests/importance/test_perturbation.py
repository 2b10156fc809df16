import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from sklearn.linear_model import Ridge
from torch.testing import assert_close

from attnprobe.exact.subsets import shapley_values
from attnprobe.importance.attribution import Explained
from attnprobe.importance.perturbation import (
    KernelShap,
    Lime,
    Occlusion,
    ShapleySampling,
    SufficientSubset,
)
from tests.importance.attributions import additive_subject, contextual_subject, words_shares


@pytest.mark.parametrize("window", [1, 3])
def test_occlusion_a_loop_over_the_windows(window):
    """A word's score is the mean, over the windows that hold it, of what zeroing one takes away."""
    subject = contextual_subject(importances={"occlusion": Occlusion(window=window)})
    explained = subject.importance("occlusion").explained(subject)
    scores = subject.scores("occlusion")
    for row, content in enumerate(subject.batch.content):
        text = torch.tensor([row])
        inputs = explained.inputs[[row]]
        whole = explained(inputs, text).item()
        places = content.nonzero()[:, 0]
        words = len(places)
        width = min(window, words)
        drop_sum = torch.zeros(words, dtype=torch.float64)
        windows = torch.zeros(words)
        for start in range(words - width + 1):
            covered = slice(start, start + width)
            occluded = inputs.clone()
            occluded[0, places[covered]] = 0
            drop_sum[covered] += whole - explained(occluded, text).item()
            windows[covered] += 1
        expected = drop_sum / windows
        assert_close(scores[row, content], expected, rtol=1e-5, atol=1e-6)


def test_lime_the_weighted_ridge_regression_on_its_own_draws(monkeypatch):
    importance = Lime(samples=60)
    draws = []
    keeping = Explained.keeping

    def watched(self, keep):
        draws.append(keep.clone())
        return keeping(self, keep)

    monkeypatch.setattr(Explained, "keeping", watched)
    subject = contextual_subject(lengths=[9], importances={"lime": importance})
    scores = subject.scores("lime")
    (words,) = [part for part in draws if len(part) == 60]
    words = words.numpy()
    assert 0.4 < words.mean() < 0.6

    # the cosine of the words kept to all nine
    kept = words.sum(1)
    cosine = kept / np.maximum(np.sqrt(9 * kept), 1e-8)
    distance = 1 - cosine
    weight = np.exp(-(distance**2) / (2 * 0.25**2))
    text = importance.explained(subject).alone(0)
    target = keeping(text, torch.tensor(words)).numpy()
    regression = Ridge(alpha=1.0).fit(words, target, weight)
    coefficients = scores[subject.batch.content]
    assert_allclose(coefficients, regression.coef_, rtol=1e-4, atol=1e-6)


def test_sufficient_subset_a_greedy_loop():
    subject = contextual_subject()
    importance = SufficientSubset()
    explained = importance.explained(subject)
    text = torch.tensor([1])
    places = subject.batch.content[1].nonzero()[:, 0].tolist()
    remaining = list(places)
    expected = {}
    while remaining:
        values = {}
        for place in remaining:
            removed = [*expected, place]
            inputs = explained.inputs[[1]]
            inputs[0, removed] = 0
            values[place] = explained(inputs, text).item()
        least_needed = max(values, key=values.get)
        remaining.remove(least_needed)
        expected[least_needed] = (len(expected) + 1) / len(places)
    scores = subject.scores("sufficient_subset")[1]
    for place in places:
        assert scores[place].item() == expected[place]


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("occlusion", 1e-5),
        ("lime", 1e-5),
        ("kernel_shap", 1e-4),
        ("shapley_sampling", 1e-5),
    ],
)
def test_on_an_additive_model_it_is_what_each_word_adds(name, near):
    subject = additive_subject(importances={"lime": Lime(alpha=1e-9)})
    expected = words_shares(subject)
    assert_close(subject.scores(name), expected, rtol=near, atol=near)


@pytest.mark.whole
@pytest.mark.parametrize(
    ("importance", "near"),
    [
        (KernelShap(samples=1000), 0.1),
        (ShapleySampling(samples=100), 0.2),
        pytest.param(KernelShap(samples=4000), 0.05, marks=pytest.mark.slow),
        pytest.param(ShapleySampling(samples=400), 0.1, marks=pytest.mark.slow),
    ],
)
def test_it_nears_the_shapley_values(importance, near):
    subject = contextual_subject(importances={importance.name: importance})
    explained = importance.explained(subject)
    first_text = torch.tensor([0])
    places = subject.batch.content[0].nonzero()[:, 0]
    values = []
    for mask in range(2 ** len(places)):  # every set of words, by bit mask
        inputs = explained.inputs[:1].clone()
        for number, place in enumerate(places):
            if not mask >> number & 1:
                inputs[0, place] = 0
        values.append(explained(inputs, first_text).item())
    exact = shapley_values(torch.tensor([values], dtype=torch.float64))[0]
    scores = subject.scores(importance.name)[0, places]
    largest_error = (scores - exact).abs().max()
    assert largest_error < near * exact.abs().max()


@pytest.mark.parametrize(
    ("importance", "near"),
    [
        (KernelShap(), 1e-3),
        (ShapleySampling(samples=2), 1e-5),
    ],
)
def test_the_scores_add_up(importance, near):
    subject = contextual_subject(importances={importance.name: importance})
    score_sum = subject.scores(importance.name).sum(-1)
    total = importance.total(subject)
    assert_close(score_sum, total, rtol=near, atol=near)
