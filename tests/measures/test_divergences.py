import math

import pytest
import torch
from scipy import stats
from scipy.spatial import distance
from torch.nn.functional import pad

from attnprobe.measures import entropy, jensen_shannon, kullback_leibler, normalised, total_variation
from tests.measures.examples import DTYPES, distributions

DIVERGENCES = [jensen_shannon, total_variation]


def gradients(measure, p, q, *mask):
    p, q = p.clone().requires_grad_(), q.clone().requires_grad_()
    return torch.autograd.grad(measure(p, q, *mask).sum(), (p, q))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("measure", "largest"), [(jensen_shannon, math.log(2)), (total_variation, 1.0)])
def test_divergences_are_symmetric_bounded_and_zero_between_equals(measure, largest, dtype):
    p, q = distributions(200, 7, seed=1, dtype=dtype), distributions(200, 7, seed=2, dtype=dtype)
    value = measure(p, q)
    assert value.dtype == dtype
    torch.testing.assert_close(value, measure(q, p), rtol=0, atol=0)
    assert (measure(p, p) == 0).all()
    assert (value > 0).all()
    assert (value <= largest + 1e-8).all()
    apart = measure(torch.eye(3, dtype=dtype)[0], torch.eye(3, dtype=dtype)[1])
    torch.testing.assert_close(apart, torch.tensor(largest, dtype=dtype))


def test_jensen_shannon_equals_scipy():
    p, q = distributions(200, 9, seed=1), distributions(200, 9, seed=2)
    expected = torch.tensor([distance.jensenshannon(a, b) ** 2 for a, b in zip(p, q, strict=True)])
    torch.testing.assert_close(jensen_shannon(p, q), expected)


def test_total_variation_is_the_largest_difference_over_all_events():
    p, q = distributions(20, 5, seed=1), distributions(20, 5, seed=2)
    events = torch.tensor([[bool(n >> i & 1) for i in range(5)] for n in range(32)]).double()
    torch.testing.assert_close(total_variation(p, q), ((p - q) @ events.T).amax(-1))


@pytest.mark.parametrize("dtype", DTYPES)
def test_tiny_jensen_shannon_keeps_its_digits(dtype):
    """The second-order expansion, Σ (p−q)²/8p, where the textbook's form has lost everything in float32."""
    p = distributions(50, 6, dtype=torch.float64, zeros=0)
    step = 1e-6 * torch.sin(torch.arange(300.0).double()).view(50, 6) * p
    p, q = p.to(dtype), (p + step).to(dtype)
    expected = ((p.double() - q.double()) ** 2 / (4 * (p.double() + q.double()))).sum(-1)
    assert (expected > 0).all()
    torch.testing.assert_close(jensen_shannon(p, q).double(), expected, rtol=1e-4, atol=0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("measure", DIVERGENCES)
def test_padding_changes_neither_value_nor_gradient(measure, dtype):
    p, q = distributions(40, 6, seed=1, dtype=dtype), distributions(40, 6, seed=2, dtype=dtype)
    mask = pad(torch.ones(40, 6, dtype=torch.bool), (0, 4))
    for wide in (lambda x: pad(x, (0, 4)), lambda x: pad(x, (0, 4), value=math.nan)):
        arguments = (wide(p), wide(q), mask)
        torch.testing.assert_close(measure(*arguments), measure(p, q))
        for padded, plain in zip(gradients(measure, *arguments), gradients(measure, p, q), strict=True):
            torch.testing.assert_close(padded, pad(plain, (0, 4)))
    # zeros without a mask: trap of torchmetrics' divergence, whose gradient is NaN there
    padded = gradients(measure, pad(p, (0, 4)), pad(q, (0, 4)))
    assert all(torch.isfinite(gradient).all() for gradient in padded)
    assert (torch.stack(padded)[..., 6:] == 0).all()


@pytest.mark.parametrize("measure", DIVERGENCES)
def test_divergence_gradients_equal_finite_differences(measure):
    p, q = distributions(5, 4, seed=1, zeros=0).requires_grad_(), distributions(5, 4, seed=2, zeros=0).requires_grad_()
    assert torch.autograd.gradcheck(measure, (p, q))
    assert torch.autograd.gradgradcheck(measure, (p, q))


def test_an_adversary_can_climb_jensen_shannon_from_one_hot_rows():
    scores = torch.tensor([[0.0, -200.0, 3.0]], dtype=torch.float64, requires_grad=True)
    jensen_shannon(scores.softmax(-1), torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64)).sum().backward()
    assert scores.grad.isfinite().all()
    assert scores.grad[0, 0] < 0


def test_kullback_leibler_equals_scipy_with_and_without_padding():
    p, q = distributions(200, 9, seed=1), distributions(200, 9, seed=2, zeros=0)
    expected = torch.tensor(stats.entropy(p.numpy(), q.numpy(), axis=-1))
    torch.testing.assert_close(kullback_leibler(p, q), expected)
    mask = pad(torch.ones(200, 9, dtype=torch.bool), (0, 3))
    wide = kullback_leibler(pad(p, (0, 3), value=math.nan), pad(q, (0, 3), value=math.nan), mask)
    torch.testing.assert_close(wide, expected)


@pytest.mark.parametrize(("dtype", "floor"), [(torch.float32, 2.0**-126), (torch.float64, 2.0**-1022)])
def test_kullback_leibler_of_a_weight_that_underflowed_is_large_and_finite(dtype, floor):
    """Below the smallest normal number a weight counts as that number: 87.3 nats per unit of p in float32."""
    p = torch.tensor([0.5, 0.5], dtype=dtype)
    expected = 0.5 * math.log(0.5) + 0.5 * (math.log(0.5) - math.log(floor))
    for rest in (0.0, floor / 8):
        q = torch.tensor([1.0, rest], dtype=dtype)
        assert kullback_leibler(p, q).item() == pytest.approx(expected, rel=1e-6)
    assert kullback_leibler(p, p).item() == pytest.approx(0, abs=1e-12)
    assert kullback_leibler(torch.tensor([1.0, 0.0], dtype=dtype), p).item() == pytest.approx(math.log(2), rel=1e-6)


def test_entropy_equals_scipy_and_ignores_what_is_masked():
    p = distributions(50, 6)
    torch.testing.assert_close(entropy(p), torch.tensor(stats.entropy(p.numpy(), axis=-1)))
    wide = pad(p, (0, 3), value=math.nan).requires_grad_()
    value = entropy(wide, pad(torch.ones(50, 6, dtype=torch.bool), (0, 3)))
    torch.testing.assert_close(value, entropy(p))
    value.sum().backward()
    assert wide.grad.isfinite().all()
    torch.testing.assert_close(entropy(torch.full((4,), 0.25)), torch.tensor(math.log(4)))


def test_normalised_rows_sum_to_one_over_the_mask():
    scores = torch.tensor([[1.0, 3.0, 9.0], [0.0, 0.0, 5.0]])
    mask = torch.tensor([True, True, False]).expand(2, 3)
    expected = torch.tensor([[0.25, 0.75, 0.0], [torch.nan, torch.nan, 0.0]])
    torch.testing.assert_close(normalised(scores, mask), expected, equal_nan=True)
    torch.testing.assert_close(normalised(scores[0]), scores[0] / 13)
