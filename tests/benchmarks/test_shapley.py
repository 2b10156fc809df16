import numpy as np
import pytest

from benchmarks import shapley


@pytest.mark.parametrize("method", shapley.samplers())
def test_every_sampler_nears_the_values_of_all_sets(method):
    sampler = shapley.samplers()[method]
    game = shapley.random_game(12)
    truth = shapley.enumerated(game)
    error = np.abs(sampler(game, 3600, 0) - truth)
    assert error.sum() < 0.15 * np.abs(truth).sum()


def test_the_exact_values_have_no_error():
    exact, *_ = shapley.measured(6, seconds=1e-9, seeds=1)
    assert exact.method == "exact"
    assert exact.error < 1e-13
    assert not exact.proved


def test_sampled_points_have_the_errors_that_they_say():
    exact, *sampled = shapley.measured(6, seconds=1e-9, seeds=1)
    assert [point.method for point in sampled] == list(shapley.samplers())
    for point in sampled:
        assert 0 < point.error < 2
        assert point.evaluations == 12
    shapley.drawn([exact, *sampled])


def test_of_many_words_the_error_is_proved():
    bounded = next(shapley.measured(21, seconds=1e-9, seeds=1))
    assert bounded.proved
    assert 0 < bounded.error < 1e-9
