import numpy as np
import pytest

from benchmarks import shapley


@pytest.mark.parametrize("method", shapley.samplers())
def test_every_sampler_nears_the_values_of_all_sets(method):
    game = shapley.random_game(12)
    truth = shapley.enumerated(game)
    values = shapley.samplers()[method](game, 3600, 0)
    assert np.abs(values - truth).sum() < 0.15 * np.abs(truth).sum()


def test_points_have_the_errors_that_they_say():
    exact, *sampled = shapley.measured(6, seconds=1e-9, seeds=1)
    assert exact.method == "exact"
    assert exact.error < 1e-13
    assert not exact.proved
    assert [point.method for point in sampled] == list(shapley.samplers())
    assert all(0 < point.error < 2 and point.evaluations == 12 for point in sampled)
    bounded = next(shapley.measured(21, seconds=1e-9, seeds=1))
    assert bounded.proved
    assert 0 < bounded.error < 1e-9
    shapley.drawn([exact, *sampled])
