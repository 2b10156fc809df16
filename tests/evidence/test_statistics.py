import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import f1_score

from attnprobe.evidence import statistics


def test_the_interval_of_many_normal_values_is_students_and_a_skewed_sample_reaches_farther_towards_its_tail():
    sample = np.random.default_rng(0).normal(1, 2, 3000)
    value, low, high = statistics.interval([*sample, np.nan])
    half = stats.t.ppf(0.975, 2999) * stats.sem(sample)
    assert value == pytest.approx(sample.mean())
    assert (value - low, high - value) == pytest.approx((half, half), rel=0.08)
    value, low, high = statistics.interval(np.random.default_rng(0).lognormal(0, 1, 200))
    assert high - value > 1.2 * (value - low)


def test_one_groups_interval_is_students_and_two_groups_welchs():
    """The mean of two groups is half the difference of one and the other's negative, which scipy
    knows."""
    first = np.array([0.4, 0.5, 0.9, 0.7])
    second = np.array([0.1, 0.15, 0.2])
    assert statistics.student(first)[1:] == pytest.approx(
        stats.ttest_1samp(first, 0).confidence_interval()
    )
    value, low, high = statistics.student(first, second)
    assert value == pytest.approx((0.625 + 0.15) / 2)
    welch = stats.ttest_ind(first, -second, equal_var=False).confidence_interval()
    assert (low, high) == pytest.approx((welch.low / 2, welch.high / 2))
    assert np.isnan(statistics.student(first, second[:1])[1:]).all()
    assert statistics.student(first, np.ones(3))[0] == pytest.approx(0.8125)


@pytest.mark.parametrize("at_once", [1, 700, 1 << 22])
def test_the_draws_do_not_depend_on_how_many_are_held(at_once, monkeypatch):
    sample = np.random.default_rng(1).lognormal(0, 1, 333)
    expected = statistics.interval(sample)
    monkeypatch.setattr(statistics, "AT_ONCE", at_once)
    assert statistics.interval(sample) == pytest.approx(expected, rel=1e-12)
    monkeypatch.setattr(statistics, "KEPT", 0)
    assert statistics.interval(sample) == pytest.approx(expected, rel=1e-12)


def test_equal_values_and_single_ones_have_no_interval():
    for values in ([0.1 + 0.2] * 5 + [0.3] * 5, [1.0]):
        assert np.isnan(statistics.interval(values)[1:]).all()
    assert np.isnan(statistics.interval([])[0])
    with pytest.raises(ValueError, match="1 infinite number"):
        statistics.interval([1.0, np.inf])


def test_the_jackknifes_values_of_a_mean_are_the_values_and_of_f1_those_of_a_loop():
    generator = np.random.default_rng(0)
    values = generator.normal(size=30)
    parts = statistics.parts_of(values)[None]
    np.testing.assert_allclose(
        statistics.pseudovalues(parts, parts.sum(1), statistics.ratio_of)[0], values
    )
    label = generator.random(40) < 0.5
    said = generator.random(40) < 0.5
    parts = np.stack([label & said, ~label & said, label & ~said], -1)[None].astype(float)
    assert statistics.f1_of(parts.sum(1))[0] == pytest.approx(f1_score(label, said))
    kept = [np.arange(40) != text for text in range(40)]
    loop = [40 * f1_score(label, said) - 39 * f1_score(label[one], said[one]) for one in kept]
    np.testing.assert_allclose(
        statistics.pseudovalues(parts, parts.sum(1), statistics.f1_of)[0], loop
    )


def test_a_ratio_of_means_agrees_with_fieller():
    generator = np.random.default_rng(1)
    below = generator.normal(2, 0.5, 800)
    above = 0.5 * below + generator.normal(0, 0.3, 800)
    value, low, high = statistics.resampled_runs(
        np.stack([above, below], -1)[None], statistics.ratio_of
    )
    rest = above - value * below
    half = 1.96 * rest.std() / np.sqrt(800) / below.mean()
    assert value == pytest.approx(above.mean() / below.mean())
    assert (low, high) == pytest.approx((value - half, value + half), abs=0.1 * half)


def test_the_mean_squares_are_those_of_a_table_of_variance():
    """Worked by hand: runs 1 3 / 5 7 differ by 4, texts by 2, and nothing is left."""
    of_texts, of_runs = statistics.components(np.array([[1.0, 3.0], [5.0, 7.0]]))
    assert of_texts == 1  # no residual: the texts keep all of their spread
    assert of_runs == pytest.approx(np.std([2, 6], ddof=1) / np.sqrt(2))


def test_few_runs_that_differ_leave_much_open_and_equal_runs_no_more_than_one():
    texts = np.random.default_rng(0).normal(0.1, 0.2, 500)
    alike = np.tile(statistics.parts_of(texts), (3, 1, 1))
    assert statistics.resampled_runs(alike, statistics.ratio_of) == pytest.approx(
        statistics.interval(texts), abs=1e-9
    )
    apart = np.stack([statistics.parts_of(texts + shift) for shift in (-0.05, 0.0, 0.05)])
    value, low, high = statistics.resampled_runs(apart, statistics.ratio_of)
    half = stats.t.ppf(0.975, 2) * 0.05 / np.sqrt(3)
    assert high - value == pytest.approx(
        np.hypot(half, statistics.interval(texts)[2] - value), rel=1e-6
    )
    assert low < value - half


def test_pairs_are_symmetric_and_two_runs_say_nothing_of_a_third():
    generator = np.random.default_rng(0)
    values = generator.normal(0.3, 0.05, (4, 4, 200))
    values = (values + values.swapaxes(0, 1)) / 2
    value, low, high = statistics.over_pairs(statistics.parts_of(values))
    different = ~np.eye(4, dtype=bool)
    assert value == pytest.approx(values[different].mean())
    assert low < value < high
    turned = statistics.over_pairs(statistics.parts_of(values[::-1, ::-1]))
    assert turned == pytest.approx((value, low, high))
    assert np.isnan(statistics.over_pairs(statistics.parts_of(values[:2, :2]))[1])


def test_tangos_interval_inverts_the_score_test():
    more = 9
    less = 3
    n = 80
    value, low, high = statistics.paired_difference(more, less, n)
    for end in (low, high):  # at an end, the constrained likelihood's score is at 1.96
        grid = np.linspace(max(0, -end), min(1, (1 - end) / 2), 200_001)[1:-1]
        likelihood = (
            more * np.log(grid + end)
            + less * np.log(grid)
            + (n - more - less) * np.log(1 - 2 * grid - end)
        )
        other = grid[np.nanargmax(likelihood)]
        score = (more - less - n * end) / np.sqrt(n * (2 * other + end * (1 - end)))
        assert abs(score) == pytest.approx(1.95996, abs=2e-3)
    assert statistics.paired_difference(3, 9, 80) == pytest.approx((-value, -high, -low))
    assert statistics.paired_difference(5, 0, 5)[2] == 1
    assert np.isnan(statistics.paired_difference(0, 0, 0)[0])


def test_shares_have_the_libraries_intervals():
    for own, method in ((statistics.wilson, "wilson"), (statistics.clopper_pearson, "exact")):
        found = stats.binomtest(3, 40).proportion_ci(method=method)
        assert own(3, 40) == pytest.approx((0.075, found.low, found.high))
        assert np.isnan(own(0, 0)[0])


def test_p_values_and_intervals_decide_alike():
    assert statistics.p_value(0.3, 0.1, 0.6, 0.1) == pytest.approx(0.05)
    assert statistics.p_value(0.3, 0.1, 0.6, 0.6) == pytest.approx(0.05)
    assert statistics.p_value(0.3, 0.1, 0.6, 0.0) < 0.05 < statistics.p_value(0.3, 0.1, 0.6, 0.2)
    assert np.isnan(statistics.p_value(0.3, np.nan, np.nan, 0))
    half = 1.96 * 0.1
    assert statistics.p_value(0.25, 0.25 - half, 0.25 + half, 0) == pytest.approx(
        2 * stats.norm.sf(2.5), rel=1e-3
    )


@pytest.mark.parametrize(
    ("values", "rare"),
    [
        (np.ones(50), True),
        (np.r_[np.ones(19), np.zeros(900)], True),
        (np.r_[np.ones(40), np.zeros(900)], False),
        (np.random.default_rng(0).lognormal(0, 2, 100), True),
        (np.random.default_rng(0).normal(size=100), False),
        (np.r_[np.linspace(1, 2, 30), np.full(30, np.nan)], False),
        # a skewness of 0.61 and a standard error of 0.51: 20 values know too little of how skewed
        # they are
        (stats.expon.ppf(np.linspace(0.05, 0.8, 20)), True),
    ],
)
def test_rare_skewed_and_constant_samples_decide_nothing(values, rare):
    assert statistics.is_too_rare(values) is rare
