import itertools

import numpy as np
import pytest

from attnprobe.erasure import WinningSet, smallest_winning_set


def by_brute_force(margins):
    count = margins.shape[1]
    for size in range(count):
        for erased in itertools.combinations(range(count), size):
            if (np.delete(margins, erased, axis=1).sum(1) > 0).all():
                return size
    return -1


@pytest.mark.parametrize(("rivals", "count"), [(1, 6), (2, 7), (3, 8), (4, 9), (9, 8)])
@pytest.mark.parametrize("whole", [False, True])
def test_equals_brute_force_over_all_sets(rivals, count, whole):
    draw = np.random.default_rng([rivals, count, whole])
    sizes = []
    for _ in range(60):
        weight = draw.dirichlet(np.full(count, 0.5))
        margins = draw.normal(0.2, 1, (rivals, count)) * weight
        if whole:  # ties and zeros, exact in binary
            margins = draw.integers(-3, 5, (rivals, count)).astype(float)
        found = smallest_winning_set(margins)
        truth = by_brute_force(margins)
        # sums of exactly 0 satisfy the solver and not us: there the bounds may stay apart
        assert found.exact or whole
        assert found.size == truth or (not found.exact and found.size == -1)
        assert found.bound <= truth or truth == -1
        sizes.append(found.size)
    assert len(set(sizes)) > 2


def test_without_a_search_the_bounds_hold():
    draw = np.random.default_rng(0)
    exact = []
    for _ in range(100):
        margins = draw.normal(-0.2, 1, (4, 9))
        truth, found = by_brute_force(margins), smallest_winning_set(margins, nodes=0)
        assert found.bound <= truth or truth == -1
        assert found.size == -1 or truth <= found.size
        assert not found.exact or found.size == truth
        exact.append(found.exact)
    assert any(exact)
    assert not all(exact)


def test_the_smallest_winning_sets_of_small_problems_are_those_found_by_hand():
    # alone, either rival is beaten by erasing one position; both together only by erasing two
    margins = np.array([[-3.0, 1.0, 1.0], [1.0, -3.0, 1.0]])
    assert smallest_winning_set(margins) == WinningSet(2, 2)
    assert smallest_winning_set(np.ones((2, 3))) == WinningSet(0, 0)
    # sums that have to be above a bound of their own: 3 is not above 3
    assert smallest_winning_set(np.ones((2, 3)), least=np.array([0.0, 3.0])) == WinningSet(-1, -1)
    # 0.1 + 0.2 − 0.3 is 5.6e-17 in float64: a tie, which erasing the last position breaks
    tie = np.array([[0.1, 0.2, -0.3]])
    assert smallest_winning_set(tie, least=1e-12) == WinningSet(1, 1)
    assert smallest_winning_set(tie) == WinningSet(0, 0)
    # each rival can be beaten, but never by the same position
    assert smallest_winning_set(np.array([[1.0, -2.0], [-2.0, 1.0]])) == WinningSet(-1, -1)
    assert smallest_winning_set(np.array([[1.0, 1.0], [-1.0, -1.0]])) == WinningSet(-1, -1)
