import math

import numpy as np
import pytest
import torch
from torch.nn.functional import pad

from attnprobe import UserError
from attnprobe.exact import attention_shapley
from attnprobe.exact import shapley as solver

REGIMES = {
    "equal": lambda generator, n: np.ones(n),
    "softmax": lambda generator, n: np.exp(2 * generator.normal(size=n)),
    "orders of magnitude": lambda generator, n: np.exp(20 * generator.normal(size=n)),
    "one peak": lambda generator, n: np.r_[1.0, np.full(n - 1, 1e-20)],
    "two scales": lambda generator, n: np.where(np.arange(n) % 2, 1e-100, 1.0),
    "all of float64": lambda generator, n: np.r_[1.0, np.exp(-700 * generator.random(n - 1))],
    "subnormal": lambda generator, n: np.r_[1.0, 1e-315 * generator.random(n - 1)],
    "zeros": lambda generator, n: np.r_[1.0, generator.random(n - 1).round()],
}


def game(regime, n, *, seed=0, classes=2):
    """Weights that sum to 1, and a payoff per position and class that is not centred."""
    generator = np.random.default_rng([seed, n])
    weights = REGIMES[regime](generator, n)
    payoffs = 5 + 3 * generator.normal(size=(n, classes))
    return weights / weights.sum(), payoffs


def solved(weights, payoffs):
    """The solution of one text, all of whose positions are content."""
    attention = torch.as_tensor(weights)[None]
    position_logits = torch.as_tensor(payoffs)[None]
    content = torch.ones_like(attention, dtype=torch.bool)
    return attention_shapley(attention, position_logits, content)


def enumerated(weights, payoffs):
    """Shapley values by their definition, from the value of every one of the 2^n sets."""
    n = len(weights)
    weights = weights * 2.0**600  # which changes no value, and rounds no product of a tiny weight
    mass_of_set = [0.0]  # bit i of a set's number: position i is in it
    sum_of_set = [0.0]
    for weight, payoff in zip(weights, payoffs, strict=True):
        mass_of_set += [mass + weight for mass in mass_of_set]
        sum_of_set += [total + weight * payoff for total in sum_of_set]
    value_of_set = []
    for total, mass in zip(sum_of_set, mass_of_set, strict=True):
        value_of_set.append(total / mass if mass > 0 else 0.0)

    chance_of_size = [1 / (n * math.comb(n - 1, size)) for size in range(n)]
    values = []
    for position in range(n):
        member = 1 << position
        gains = []
        for subset in range(2**n):
            if not subset & member:
                gain = value_of_set[subset | member] - value_of_set[subset]
                gains.append(chance_of_size[subset.bit_count()] * gain)
        values.append(math.fsum(gains))
    return np.array(values)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 12])
@pytest.mark.parametrize("regime", REGIMES)
def test_values_are_those_of_all_subsets(regime, n):
    weights, payoffs = game(regime, n)
    shapley = solved(weights, payoffs)
    for label in range(2):
        exact = enumerated(weights, payoffs[:, label])
        error = np.abs(shapley.values[0, :, label].numpy() - exact).max()
        assert error < 1e-13
        assert error <= shapley.error[0, label] + 1e-14  # which the enumeration may be wrong by


@pytest.mark.parametrize("regime", ["softmax", "all of float64", "zeros"])
def test_values_are_those_of_all_subsets_of_sixteen_positions(regime):
    weights, payoffs = game(regime, 16)
    exact = enumerated(weights, payoffs[:, 1])
    np.testing.assert_allclose(solved(weights, payoffs).values[0, :, 1], exact, atol=1e-13, rtol=0)


@pytest.mark.parametrize("step", [0.35, 0.5, 0.7, 1.0, 1.5])
@pytest.mark.parametrize("regime", REGIMES)
def test_the_proved_error_holds_with_nodes_that_are_too_few(regime, step, monkeypatch):
    monkeypatch.setattr(solver, "STEP", step)
    weights, payoffs = game(regime, 9)
    coarse = solved(weights, payoffs)
    exact = np.stack([enumerated(weights, payoffs[:, label]) for label in range(2)], -1)
    difference = np.abs(coarse.values[0].numpy() - exact).max(0)
    proved_error = coarse.error[0].numpy()
    assert (difference <= proved_error + 1e-14).all()
    # nor is it far too large, or the test blind: the difference can be seen
    assert (difference > proved_error / 2000).all() or step < 0.5
    assert (coarse.efficiency_gap < 1e-12).all()  # which sees none of it


def test_two_positions_by_hand():
    # v(1) = 4, v(2) = -2, v(12) = 0.75 · 4 - 0.25 · 2 = 2.5: (4 + 4.5) / 2 and (-2 - 1.5) / 2
    values = solved([0.75, 0.25], [[0.0, 4.0], [0.0, -2.0]]).values[0]
    torch.testing.assert_close(values[:, 1], values.new_tensor([4.25, -1.75]), atol=1e-13, rtol=0)
    assert (values[:, 0] == 0).all()


@pytest.mark.parametrize("n", [2, 50, 4000])
def test_equal_weights_by_the_closed_form_at_any_length(n):
    """A set is worth its mean payoff: φ_i = m̄ / n + (m_i − m̄) (n H_n − 1) / (n (n − 1)), with
    H_n = 1 + 1/2 + … + 1/n."""
    weights, payoffs = game("equal", n)
    harmonic = math.fsum(1 / k for k in range(1, n + 1))
    mean = payoffs.mean(0)
    factor = (n * harmonic - 1) / (n * (n - 1))
    expected = mean / n + (payoffs - mean) * factor
    values = solved(weights, payoffs).values[0]
    np.testing.assert_allclose(values, expected, atol=1e-13, rtol=0)


def check_efficiency(games):
    """Random games of 1 to 400 positions add up, and a constant payoff is shared out evenly."""
    generator = np.random.default_rng(1)
    regimes = list(REGIMES)
    for number in range(games):
        regime = regimes[number % len(regimes)]
        log_length = generator.uniform(0, math.log(400))
        n = round(math.exp(log_length))
        weights, payoffs = game(regime, n, seed=number, classes=3)
        payoffs[:, 2] = 1
        shapley = solved(weights, payoffs)
        values = shapley.values[0].numpy()

        logits = weights @ payoffs
        gap = np.abs(values.sum(0) - logits)
        has_weight = weights > 0
        equal_share = has_weight / has_weight.sum()
        share_error = np.abs(values[:, 2] - equal_share)
        assert gap.max() < 1e-11, (regime, number)
        assert (shapley.efficiency_gap <= n * shapley.error).all(), (regime, number)
        assert (shapley.error < 1e-9).all(), (regime, number)
        assert share_error.max() < 1e-13, (regime, number)


def test_random_games_add_up_to_the_logit():
    check_efficiency(80)


@pytest.mark.slow
def test_ten_thousand_random_games_add_up_to_the_logit():
    check_efficiency(10_000)


QUICK_REGIMES = ("softmax", "one peak")


SLOW_REGIMES = [regime for regime in REGIMES if regime not in QUICK_REGIMES]


@pytest.mark.parametrize(
    "regime",
    [
        *QUICK_REGIMES,
        *(pytest.param(regime, marks=pytest.mark.slow) for regime in SLOW_REGIMES),
    ],
)
def test_long_texts_add_up_to_the_logit(regime):
    weights, payoffs = game(regime, 4000)
    shapley = solved(weights, payoffs)
    logit = torch.as_tensor(weights @ payoffs)
    gap = (shapley.values[0].sum(0) - logit).abs()
    assert (gap < 1e-9).all()
    assert (shapley.error < 1e-9).all()


def test_positions_that_play_the_same_part_get_the_same():
    weights, payoffs = game("softmax", 30)
    weights[7] = weights[3]
    payoffs[7] = payoffs[3]
    values = solved(weights / weights.sum(), payoffs).values[0]
    torch.testing.assert_close(values[7], values[3], atol=1e-14, rtol=0)


def test_a_position_without_weight_changes_nothing():
    weights, payoffs = game("softmax", 30)
    values = solved(weights, payoffs).values[0]
    longer_weights = np.r_[0.0, weights, 0.0]
    longer_payoffs = np.r_[[[1e3, -1e3]], payoffs, [[7, 7]]]
    longer = solved(longer_weights, longer_payoffs).values[0]
    assert (longer[[0, -1]] == 0).all()
    torch.testing.assert_close(longer[1:-1], values, atol=1e-13, rtol=0)


def test_values_are_linear_in_the_payoffs():
    """The game of 2 (payoff − the first one) + 3, in which 3 is shared by 30 players."""
    weights, payoffs = game("softmax", 30)
    rescaled = (payoffs - payoffs[:, :1]) * 2 + 3

    values = solved(weights, payoffs).values[0]
    rescaled_values = solved(weights, rescaled).values[0]

    margin = values[:, 1] - values[:, 0]
    expected = 2 * margin + 3 / 30
    torch.testing.assert_close(rescaled_values[:, 1], expected, atol=1e-13, rtol=0)


def sampled(weights, payoffs, batches, batch_size):
    """Mean gain of each position over random orders, and its standard error."""
    n = len(weights)
    generator = np.random.default_rng(2)
    gain_sum = np.zeros(n)
    square_sum = np.zeros(n)
    for _ in range(batches):
        order = generator.permuted(np.tile(np.arange(n), (batch_size, 1)), axis=1)
        running_mass = weights[order].cumsum(1)
        running_logit = (weights * payoffs)[order].cumsum(1) / running_mass
        gains = np.empty((batch_size, n))
        np.put_along_axis(gains, order, np.diff(running_logit, prepend=0, axis=1), 1)
        gain_sum += gains.sum(0)
        square_sum += (gains**2).sum(0)
    orders = batches * batch_size
    mean = gain_sum / orders
    variance = square_sum / orders - mean**2
    return mean, np.sqrt(variance / orders)


def test_the_order_of_the_positions_does_not_matter():
    weights, payoffs = game("softmax", 30)
    values = solved(weights, payoffs).values[0]
    order = np.random.default_rng(0).permutation(30)
    shuffled_values = solved(weights[order], payoffs[order]).values[0]
    torch.testing.assert_close(shuffled_values, values[order], atol=1e-13, rtol=0)


@pytest.fixture
def batch():
    """A game of twelve positions in every regime: weights `[texts, 12]` and payoffs."""
    games = [game(regime, 12) for regime in REGIMES]
    weights = [weights for weights, _ in games]
    payoffs = [payoffs for _, payoffs in games]
    return torch.tensor(np.stack(weights)), torch.tensor(np.stack(payoffs))


def test_neither_the_batch_nor_its_padding_changes_a_text(batch):
    weights, payoffs = batch
    is_text = torch.arange(15) < 12
    padded = attention_shapley(
        pad(weights, (0, 3)),
        pad(payoffs, (0, 0, 0, 3), value=torch.nan),
        is_text.expand(len(weights), -1),
    )
    assert (padded.values[:, 12:] == 0).all()
    for row, values in enumerate(padded.values):
        single = solved(weights[row], payoffs[row])
        torch.testing.assert_close(values[:12], single.values[0], atol=1e-13, rtol=0)


def test_sampled_orders_of_400_positions_agree_within_their_standard_error():
    weights, payoffs = game("softmax", 400)
    values = solved(weights, payoffs).values[0, :, 0].numpy()
    mean, standard_error = sampled(weights, payoffs[:, 0], batches=80, batch_size=500)

    z = (mean - values) / standard_error
    assert np.abs(z).max() < 5
    assert 0.8 < (z**2).mean() < 1.25
    # the test has power: values that are 5 % too large are found out
    z_of_larger_values = (mean - 1.05 * values) / standard_error
    assert np.abs(z_of_larger_values).max() > 5


def test_weight_outside_content_is_refused():
    attention = torch.tensor([[0.5, 0.25, 0.25]])
    content = torch.tensor([[True, True, False]])
    with pytest.raises(
        UserError, match=r"attention\[0, 2\] is 0.25 outside content: .*make content True"
    ):
        attention_shapley(attention, torch.zeros(1, 3, 2), content)
