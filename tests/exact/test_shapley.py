import itertools
import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch.nn.functional import pad
from torch.testing import assert_close

from attnprobe import UserError
from attnprobe.exact import attention_shapley
from attnprobe.exact import shapley as solver

REGIMES = [
    "equal",
    "softmax",
    "orders of magnitude",
    "one peak",
    "two scales",
    "all of float64",
    "subnormal",
    "zeros",
]


def weights_of(regime, n, generator):
    """Positive weights over ever more orders of magnitude, up to those of float64."""
    if regime == "equal":
        return np.ones(n)
    if regime == "softmax":
        return np.exp(2 * generator.normal(size=n))
    if regime == "orders of magnitude":
        return np.exp(20 * generator.normal(size=n))
    if regime == "two scales":
        is_odd = np.arange(n) % 2 == 1
        return np.where(is_odd, 1e-100, 1.0)
    return one_peak(regime, n, generator)


def one_peak(regime, n, generator):
    """A first weight of 1 beside next to nothing, or (zeros) beside 0 and 1."""
    weights = np.ones(n)
    if regime == "one peak":
        weights[1:] = 1e-20
        return weights
    uniform = generator.random(n - 1)
    if regime == "all of float64":
        weights[1:] = np.exp(-700 * uniform)
    elif regime == "subnormal":
        weights[1:] = 1e-315 * uniform
    else:
        weights[1:] = uniform.round()
    return weights


def game(regime, n, *, seed=0, classes=2):
    """Weights that sum to 1, and a payoff per position and class that is not centred."""
    generator = np.random.default_rng([seed, n])
    weights = weights_of(regime, n, generator)
    payoffs = 5 + 3 * generator.normal(size=(n, classes))
    return weights / weights.sum(), payoffs


def solved(weights, payoffs):
    """The solution of one text, all of whose positions are content."""
    attention = torch.as_tensor(weights)[None]
    position_logits = torch.as_tensor(payoffs)[None]
    content = torch.ones_like(attention, dtype=torch.bool)
    return attention_shapley(attention, position_logits, content)


def values_of(weights, payoffs):
    """The Shapley values of one text, of every position and class."""
    return solved(weights, payoffs).values[0]


def assert_equal_values(values, expected):
    """The same up to the rounding of payoffs of about 5."""
    assert_allclose(values, expected, atol=1e-13, rtol=0)


def enumerated(weights, payoffs):
    """Shapley values by their definition, from the value of every one of the 2^n sets.

    φ_i is the mean of v(S ∪ {i}) − v(S) over the sets S without i, of which each size 0 to n − 1 is
    equally likely, and so each set of k members has the chance 1 / (n · C(n − 1, k)).
    """
    n = len(weights)
    weights = weights * 2.0**600  # which changes no value, and rounds no product of a tiny weight
    mass_of_set = [0.0]  # bit i of a set's number: position i is in it
    sum_of_set = [0.0]
    for weight, payoff in zip(weights, payoffs, strict=True):
        mass_of_set += [mass + weight for mass in mass_of_set]
        sum_of_set += [total + weight * payoff for total in sum_of_set]
    value_of_set = []
    for total, mass in zip(sum_of_set, mass_of_set, strict=True):
        value = total / mass if mass > 0 else 0.0
        value_of_set.append(value)

    chances = []
    for size in range(n):
        sets = math.comb(n - 1, size)
        chances.append(1 / (n * sets))

    values = []
    for position in range(n):
        member = 1 << position
        expected_gains = []
        for subset in range(2**n):
            if not subset & member:
                gain = value_of_set[subset | member] - value_of_set[subset]
                size = subset.bit_count()
                expected_gains.append(chances[size] * gain)
        values.append(math.fsum(expected_gains))
    return np.array(values)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 12])
@pytest.mark.parametrize("regime", REGIMES)
def test_values_are_those_of_all_subsets(regime, n):
    weights, payoffs = game(regime, n)
    shapley = solved(weights, payoffs)
    for label in range(2):
        exact = enumerated(weights, payoffs[:, label])
        values = shapley.values[0, :, label].numpy()
        difference = np.abs(values - exact)
        error = difference.max()
        proved_error = shapley.error[0, label]
        assert error < 1e-13
        assert error <= proved_error + 1e-14  # which the enumeration may be wrong by


@pytest.mark.parametrize("regime", ["softmax", "all of float64", "zeros"])
def test_values_are_those_of_all_subsets_of_sixteen_positions(regime):
    weights, payoffs = game(regime, 16)
    exact = enumerated(weights, payoffs[:, 1])
    values = values_of(weights, payoffs)
    assert_equal_values(values[:, 1], exact)


@pytest.mark.parametrize("step", [0.35, 0.5, 0.7, 1.0, 1.5])
@pytest.mark.parametrize("regime", REGIMES)
def test_the_proved_error_holds_with_nodes_that_are_too_few(regime, step, monkeypatch):
    monkeypatch.setattr(solver, "STEP", step)
    weights, payoffs = game(regime, 9)
    coarse = solved(weights, payoffs)
    exact = np.empty((9, 2))
    for label in range(2):
        exact[:, label] = enumerated(weights, payoffs[:, label])
    values = coarse.values[0].numpy()
    difference = np.abs(values - exact)
    error = difference.max(0)
    proved_error = coarse.error[0].numpy()
    assert (error <= proved_error + 1e-14).all()
    # nor is it far too large, or the test blind: the difference can be seen
    assert (error > proved_error / 2000).all() or step < 0.5
    assert (coarse.efficiency_gap < 1e-12).all()  # which sees none of it


def test_two_positions_by_hand():
    """Of class 1, v(1) = 4, v(2) = −2 and v(12) = 0.75 · 4 − 0.25 · 2 = 2.5: the first position
    gains 4 alone and 4.5 after the second, which gains −2 alone and −1.5 after the first."""
    weights = [0.75, 0.25]
    payoffs = [[0.0, 4.0], [0.0, -2.0]]
    values = values_of(weights, payoffs)
    assert_equal_values(values[:, 1], [4.25, -1.75])
    assert (values[:, 0] == 0).all()


@pytest.mark.parametrize("n", [2, 50, 4000])
def test_equal_weights_by_the_closed_form_at_any_length(n):
    """A set is worth its mean payoff: φ_i = m̄ / n + (m_i − m̄) (n H_n − 1) / (n (n − 1)), with
    H_n = 1 + 1/2 + … + 1/n."""
    weights, payoffs = game("equal", n)
    numbers = np.arange(1, n + 1)
    harmonic = math.fsum(1 / numbers)
    factor = (n * harmonic - 1) / (n * (n - 1))
    mean = payoffs.mean(0)
    deviation = payoffs - mean
    expected = mean / n + deviation * factor
    values = values_of(weights, payoffs)
    assert_equal_values(values, expected)


def check_efficiency(games):
    """Random games of 1 to 400 positions add up, and a constant payoff is shared out evenly."""
    generator = np.random.default_rng(1)
    turns = itertools.cycle(REGIMES)
    largest_log = math.log(400)
    for number in range(games):
        regime = next(turns)
        log_n = generator.uniform(0, largest_log)
        n = round(math.exp(log_n))
        weights, payoffs = game(regime, n, seed=number, classes=3)
        payoffs[:, 2] = 1
        shapley = solved(weights, payoffs)
        values = shapley.values[0].numpy()

        gap = np.abs(values.sum(0) - weights @ payoffs)
        has_weight = weights > 0
        equal_share = has_weight / has_weight.sum()
        share_error = np.abs(values[:, 2] - equal_share)
        name = f"game {number}: {regime}"
        assert gap.max() < 1e-11, name
        assert (shapley.efficiency_gap <= n * shapley.error).all(), name
        assert (shapley.error < 1e-9).all(), name
        assert share_error.max() < 1e-13, name


def test_random_games_add_up_to_the_logit():
    check_efficiency(80)


@pytest.mark.slow
def test_ten_thousand_random_games_add_up_to_the_logit():
    check_efficiency(10_000)


def check_long_text(regime):
    """The values of 4,000 positions add up to the logit."""
    weights, payoffs = game(regime, 4000)
    shapley = solved(weights, payoffs)
    values = shapley.values[0].numpy()
    logit = weights @ payoffs
    gap = np.abs(values.sum(0) - logit)
    assert (gap < 1e-9).all()
    assert (shapley.error < 1e-9).all()


QUICK_REGIMES = ["one peak", "softmax"]
SLOW_REGIMES = [regime for regime in REGIMES if regime not in QUICK_REGIMES]


@pytest.mark.parametrize("regime", QUICK_REGIMES)
def test_long_texts_add_up_to_the_logit(regime):
    check_long_text(regime)


@pytest.mark.slow
@pytest.mark.parametrize("regime", SLOW_REGIMES)
def test_long_texts_of_any_weights_add_up_to_the_logit(regime):
    check_long_text(regime)


def test_positions_that_play_the_same_part_get_the_same():
    weights, payoffs = game("softmax", 30)
    weights[7] = weights[3]
    payoffs[7] = payoffs[3]
    weights /= weights.sum()
    values = values_of(weights, payoffs)
    assert_close(values[7], values[3], atol=1e-14, rtol=0)


def test_a_position_without_weight_changes_nothing():
    weights, payoffs = game("softmax", 30)
    values = values_of(weights, payoffs)

    longer_weights = np.zeros(32)
    longer_weights[1:-1] = weights
    longer_payoffs = np.full((32, 2), 1e3)
    longer_payoffs[1:-1] = payoffs
    longer = values_of(longer_weights, longer_payoffs)

    assert_equal_values(longer[1:-1], values)
    assert (longer[0] == 0).all()
    assert (longer[-1] == 0).all()


def test_values_are_linear_in_the_payoffs():
    """The game of 2 (payoff − the first one) + 3, in which 3 is shared by 30 players."""
    weights, payoffs = game("softmax", 30)
    first_payoff = payoffs[:, :1]
    rescaled = 2 * (payoffs - first_payoff) + 3

    values = values_of(weights, payoffs)
    rescaled_values = values_of(weights, rescaled)

    margin = values[:, 1] - values[:, 0]
    expected = 2 * margin + 3 / 30
    assert_equal_values(rescaled_values[:, 1], expected)


def sampled(weights, payoffs, batches, batch_size):
    """Mean gain of each position over random orders, and its standard error."""
    n = len(weights)
    generator = np.random.default_rng(2)
    gain_sum = np.zeros(n)
    square_sum = np.zeros(n)
    for _ in range(batches):
        positions = np.tile(np.arange(n), (batch_size, 1))
        order = generator.permuted(positions, axis=1)
        running_mass = weights[order].cumsum(1)
        running_sum = (weights * payoffs)[order].cumsum(1)
        running_logit = running_sum / running_mass
        gains_in_order = np.diff(running_logit, prepend=0, axis=1)
        gains = np.empty((batch_size, n))
        np.put_along_axis(gains, order, gains_in_order, 1)
        gain_sum += gains.sum(0)
        square_sum += (gains**2).sum(0)
    orders = batches * batch_size
    mean = gain_sum / orders
    variance = square_sum / orders - mean**2
    return mean, np.sqrt(variance / orders)


def test_the_order_of_the_positions_does_not_matter():
    weights, payoffs = game("softmax", 30)
    values = values_of(weights, payoffs)
    generator = np.random.default_rng(0)
    order = generator.permutation(30)
    shuffled_values = values_of(weights[order], payoffs[order])
    assert_equal_values(shuffled_values, values[order])


@pytest.fixture
def batch():
    """A game of twelve positions in every regime: weights `[texts, 12]` and payoffs."""
    weights = torch.empty(len(REGIMES), 12, dtype=torch.float64)
    payoffs = torch.empty(len(REGIMES), 12, 2, dtype=torch.float64)
    for row, regime in enumerate(REGIMES):
        text_weights, text_payoffs = game(regime, 12)
        weights[row] = torch.from_numpy(text_weights)
        payoffs[row] = torch.from_numpy(text_payoffs)
    return weights, payoffs


def test_neither_the_batch_nor_its_padding_changes_a_text(batch):
    weights, payoffs = batch
    wide_weights = pad(weights, (0, 3))
    wide_payoffs = pad(payoffs, (0, 0, 0, 3), value=torch.nan)
    is_text = torch.arange(15) < 12
    content = is_text.expand(len(weights), -1)
    padded = attention_shapley(wide_weights, wide_payoffs, content)
    assert (padded.values[:, 12:] == 0).all()
    for row, values in enumerate(padded.values):
        expected = values_of(weights[row], payoffs[row])
        assert_equal_values(values[:12], expected)


def test_sampled_orders_of_400_positions_agree_within_their_standard_error():
    weights, payoffs = game("softmax", 400)
    values = values_of(weights, payoffs)[:, 0].numpy()
    mean, standard_error = sampled(weights, payoffs[:, 0], batches=80, batch_size=500)

    z = (mean - values) / standard_error
    variance = (z**2).mean()
    assert np.abs(z).max() < 5
    assert 0.8 < variance < 1.25
    # the test has power: values that are 5 % too large are found out
    z_of_larger_values = (mean - 1.05 * values) / standard_error
    assert np.abs(z_of_larger_values).max() > 5


def test_weight_outside_content_is_refused():
    attention = torch.tensor([[0.5, 0.25, 0.25]])
    logits = torch.zeros(1, 3, 2)
    content = torch.tensor([[True, True, False]])
    message = r"attention\[0, 2\] is 0.25 outside content: .*make content True"
    with pytest.raises(UserError, match=message):
        attention_shapley(attention, logits, content)
