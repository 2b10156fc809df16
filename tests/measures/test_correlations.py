import numpy as np
import pytest
import torch
from scipy import stats
from torch.nn.functional import pad

from attnprobe.measures import kendall_tau, kendall_tau_test, spearman
from tests.measures.examples import DTYPES, ranked

CORRELATIONS = [kendall_tau, spearman]


@pytest.mark.parametrize("dtype", DTYPES)
def test_kendall_and_spearman_equal_scipy_with_ties_constants_and_padding(dtype):
    a, b = ranked(300, 19, seed=1).to(dtype), ranked(300, 19, seed=2).to(dtype)
    a[:20] += torch.rand(20, 19, generator=torch.Generator().manual_seed(3))  # no ties: scipy's exact p-values
    b[:20] += torch.rand(20, 19, generator=torch.Generator().manual_seed(4))
    a[20] = 4.0
    mask = torch.rand(300, 19, generator=torch.Generator().manual_seed(5)) > 0.4
    mask[21], mask[22] = False, torch.arange(19) == 3
    tau, p = kendall_tau_test(a, b, mask)
    rho = spearman(a, b, mask)
    torch.testing.assert_close(tau, kendall_tau(a, b, mask), rtol=0, atol=0, equal_nan=True)
    assert tau.dtype == p.dtype == rho.dtype == dtype
    for row in range(300):
        x, y = a[row, mask[row]].numpy(), b[row, mask[row]].numpy()
        if row in (20, 21, 22):
            assert tau[row].isnan()
            assert p[row].isnan()
            assert rho[row].isnan()
            continue
        expected = stats.kendalltau(x, y)
        np.testing.assert_allclose([tau[row], p[row]], [expected.statistic, expected.pvalue], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(rho[row], stats.spearmanr(x, y).statistic, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("measure", CORRELATIONS)
def test_correlations_at_their_limits(measure):
    row = torch.tensor([0.1, 0.2, 0.3, 0.4])
    mask = torch.tensor([True] * 4 + [False] * 4)
    assert measure(row, row) == 1
    assert measure(row, row.flip(-1)) == -1
    # four zeros turned this −1 into +0.6 in the published code
    assert measure(pad(row, (0, 4)), pad(row.flip(-1), (0, 4)), mask) == -1
    assert measure(pad(row, (0, 4)), pad(row.flip(-1), (0, 4))) > 0
    assert measure(row, torch.tensor([0.1, torch.nan, 0.3, 0.4])).isnan()
    hidden = torch.tensor([0.1, 0.2, 0.3, 0.4, torch.nan])
    assert measure(hidden, hidden, torch.tensor([True] * 4 + [False])) == 1
    infinite = torch.tensor([-torch.inf, 0.0, 1.0, torch.inf])
    assert measure(row, infinite) == 1
    assert measure(row[:0], row[:0]).isnan()


def test_kendall_of_a_long_row():
    a, b = ranked(2, 401, seed=1, values=50), ranked(2, 401, seed=2, values=300)
    expected = [stats.kendalltau(x, y).statistic for x, y in zip(a, b, strict=True)]
    np.testing.assert_allclose(kendall_tau(a, b), expected, atol=1e-12)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("length", [2, 3, 10, 33, 34, 60])
def test_the_p_value_is_that_of_scipy_on_either_side_of_its_exact_lengths(length, tied):
    generator = torch.Generator().manual_seed(length)
    a, noise = torch.rand(2, 24, length, generator=generator, dtype=torch.float64)
    b = torch.linspace(-1, 1, 24, dtype=torch.float64)[:, None] * a + 0.3 * noise
    b[0], b[1] = a[0], -a[1]  # none and all of the pairs disagree
    a[2] = a[2].sort().values
    b[2] = a[2]
    b[2, :2] = b[2, :2].flip(0)  # one pair does
    if tied:
        a, b = (3 * a).round(), (3 * b).round()
    tau, p = kendall_tau_test(a, b)
    for x, y, statistic, value in zip(a, b, tau, p, strict=True):
        expected = stats.kendalltau(x, y)
        np.testing.assert_allclose([statistic, value], [expected.statistic, expected.pvalue], rtol=1e-9)
