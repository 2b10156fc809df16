from itertools import combinations, product

import pytest
import torch
from scipy import stats

from attnprobe.measures import tenth, top_overlap, top_tau

ALL = torch.ones(6).bool()


def inversions(first, second):
    """K^(1/2) of two lists by Fagin, Kumar & Sivakumar's four cases, written out."""
    total = 0.0
    for i, j in combinations(sorted(set(first) | set(second)), 2):
        in_first, in_second = [x in first for x in (i, j)], [x in second for x in (i, j)]
        if all(in_first) and all(in_second):
            total += (first.index(i) < first.index(j)) != (second.index(i) < second.index(j))
        elif all(in_first) and any(in_second):
            ahead = i if in_second[0] else j
            total += first.index(ahead) > first.index(j if ahead == i else i)
        elif all(in_second) and any(in_first):
            ahead = i if in_first[0] else j
            total += second.index(ahead) > second.index(j if ahead == i else i)
        elif all(in_first) or all(in_second):
            total += 0.5
        else:
            total += 1
    return total


def best(values, k):
    return sorted(range(len(values)), key=lambda i: -values[i])[:k]


@pytest.mark.parametrize(("k", "n"), [(3, 8), (3, 5), (3, 4), (2, 2), (5, 3), (4, 4)])
def test_top_tau_equals_the_four_cases_written_out(k, n):
    generator = torch.Generator().manual_seed(n)
    a, b = (torch.rand(40, n, generator=generator, dtype=torch.float64) for _ in range(2))
    mask = torch.ones(40, n).bool()
    found = top_tau(a, b, k, mask)
    size = min(k, n)
    shared = max(0, 2 * size - n)
    # the farthest two lists: what they must share stands last, in opposite orders
    first = list(range(size))
    second = [*range(size, n)][: size - shared] + first[size - shared :][::-1]
    most = inversions(first, second)
    for row in range(40):
        expected = 1 - 2 * inversions(best(a[row].tolist(), k), best(b[row].tolist(), k)) / most
        assert float(found[row]) == pytest.approx(expected)
    assert found.min() >= -1
    torch.testing.assert_close(top_tau(a, a, k, mask), torch.ones(40).double())
    wide = [torch.nn.functional.pad(x, (0, 3), value=9.0) for x in (a, b)]
    padded = top_tau(*wide, k, torch.nn.functional.pad(mask, (0, 3)))
    torch.testing.assert_close(padded, found)


def test_top_tau_is_the_ordinary_tau_where_the_lists_hold_everything():
    a, b = (torch.rand(6, generator=torch.Generator().manual_seed(s), dtype=torch.float64) for s in (1, 2))
    assert float(top_tau(a, b, 6, ALL)) == pytest.approx(stats.kendalltau(a, b).statistic)
    assert float(top_tau(a, -a, 9, ALL)) == -1


def test_no_two_lists_are_farther_apart_than_the_bound():
    values = torch.tensor(list(product(range(4), repeat=4)), dtype=torch.float64)
    distinct = values[[len(set(row)) == 4 for row in values.tolist()]]
    tau = top_tau(distinct.unsqueeze(1), distinct, 2, torch.ones(len(distinct), len(distinct), 4).bool())
    assert tau.min() == -1
    assert tau.max() == 1


def test_overlap_by_hand_with_a_size_of_its_own_per_row():
    a = torch.tensor([[0.9, 0.5, 0.1, 0.7], [0.9, 0.5, 0.1, 0.7], [0.2, 0.3, 5.0, 5.0], [1.0, 1.0, 1.0, 0.0]])
    b = torch.tensor([[0.1, 0.2, 0.8, 0.9], [0.1, 0.2, 0.8, 0.9], [0.3, 0.2, 5.0, 5.0], [1.0, 1.0, 1.0, 0.0]])
    mask = torch.tensor([[True] * 4, [True] * 4, [True, True, False, False], [True] * 4])
    found = top_overlap(a, b, torch.tensor([1, 2, 9, 2]), mask)
    assert found.tolist() == [0, 0.5, 1, 1]  # too few entries: all they have; ties: the earlier ones


def test_nothing_is_said_about_rows_with_nan_or_too_few_entries():
    a = torch.tensor([[float("nan"), 1.0, 2.0], [1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [1.0, 2.0, float("nan")]])
    mask = torch.tensor([[True, True, True], [False, True, False], [False, False, False], [True, True, False]])
    assert top_tau(a, a, 2, mask).isnan().tolist() == [True, True, True, False]
    assert top_overlap(a, a, torch.full((4,), 2), mask).isnan().tolist() == [True, False, True, False]


def test_a_tenth_is_rounded_up():
    counts = [1, 10, 11, 20, 21]
    content = torch.arange(25) < torch.tensor(counts).unsqueeze(1)
    assert tenth(content).tolist() == [1, 1, 2, 2, 3]
