import numpy as np
import pytest

from attnprobe.exact.candidates import pairs
from attnprobe.exact.classes import ClassRegion


def region(seq, classes, epsilon, seed, mass=1.0):
    """A random text as `certified_interval` hands it on."""
    generator = np.random.default_rng(seed)
    alpha = generator.dirichlet(np.ones(seq)) * mass
    logits = generator.normal(size=(seq, classes)) * 3
    shift = logits - alpha @ logits / mass
    own = alpha @ logits
    return ClassRegion(alpha, shift, mass, epsilon, own - np.log(np.exp(own).sum()))


def test_rounding_grows_with_the_largest_logit_and_not_with_the_smallest():
    own = np.log(np.array([0.5, 0.5]))
    example = ClassRegion(np.array([0.25, 0.25]), np.array([[0.0, 1e4], [0.0, -1e4]]), 0.5, 0.1, own)
    assert example.rounding == pytest.approx(1e-12 * 5001)


@pytest.mark.parametrize("mass", [1.0, 0.6])
@pytest.mark.parametrize("epsilon", [0.01, 0.2, 0.6])
def test_pairs_are_attentions_on_two_positions_within_epsilon(epsilon, mass):
    """Where ε is large some classes may vanish, and their odds bound a pair on one side only."""
    found = 0
    for seed in range(40):
        example = region(6, 3, epsilon, seed, mass)
        candidates = pairs(example, 0.0)
        found += len(candidates)
        assert (candidates >= 0).all()
        assert ((candidates > 0).sum(-1) <= 2).all()
        np.testing.assert_allclose(candidates.sum(-1), mass, rtol=1e-12)
        assert (example.distance(candidates @ example.shift) <= epsilon + 1e-12).all()
    assert found > 40
