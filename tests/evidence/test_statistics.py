import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import f1_score

from attnprobe.evidence import statistics


def test_the_interval_of_many_normal_values_is_students():
    sample = np.random.default_rng(0).normal(1, 2, 3000)

    value, low, high = statistics.interval([*sample, np.nan])

    half = stats.t.ppf(0.975, len(sample) - 1) * stats.sem(sample)
    assert value == pytest.approx(sample.mean())
    assert value - low == pytest.approx(half, rel=0.08)
    assert high - value == pytest.approx(half, rel=0.08)


def test_the_interval_of_a_skewed_sample_reaches_farther_towards_its_tail():
    value, low, high = statistics.interval(np.random.default_rng(0).lognormal(0, 1, 200))
    assert high - value > 1.2 * (value - low)


FIRST = np.array([0.4, 0.5, 0.9, 0.7])
SECOND = np.array([0.1, 0.15, 0.2])


def test_one_groups_interval_is_students():
    expected = stats.ttest_1samp(FIRST, 0).confidence_interval()
    assert statistics.student(FIRST)[1:] == pytest.approx(expected)


def test_two_groups_interval_is_welchs():
    """The mean of two groups is half the difference of the first and the second's negative, which
    scipy knows."""
    value, low, high = statistics.student(FIRST, SECOND)
    assert value == pytest.approx((0.625 + 0.15) / 2)
    welch = stats.ttest_ind(FIRST, -SECOND, equal_var=False).confidence_interval()
    assert (low, high) == pytest.approx((welch.low / 2, welch.high / 2))


def test_a_group_of_one_run_tells_no_spread():
    assert np.isnan(statistics.student(FIRST, SECOND[:1])[1:]).all()


def test_a_group_of_equal_runs_has_a_mean():
    assert statistics.student(FIRST, np.ones(3)).value == pytest.approx(0.8125)


@pytest.mark.parametrize("at_once", [1, 700, 1 << 22])
def test_the_draws_do_not_depend_on_how_many_are_held(at_once, monkeypatch):
    sample = np.random.default_rng(1).lognormal(0, 1, 333)
    expected = statistics.interval(sample)
    monkeypatch.setattr(statistics, "AT_ONCE", at_once)
    assert statistics.interval(sample) == pytest.approx(expected, rel=1e-12)
    monkeypatch.setattr(statistics, "KEPT", 0)
    assert statistics.interval(sample) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    "values", [[0.1 + 0.2] * 5 + [0.3] * 5, [1.0]], ids=["equal values", "a single one"]
)
def test_what_does_not_vary_has_no_interval(values):
    assert np.isnan(statistics.interval(values)[1:]).all()


def test_no_value_has_no_mean():
    assert np.isnan(statistics.interval([]).value)


def test_an_infinite_value_is_refused():
    with pytest.raises(ValueError, match="1 infinite number"):
        statistics.interval([1.0, np.inf])


def test_the_jackknifes_values_of_a_mean_are_the_values():
    values = np.random.default_rng(0).normal(size=30)
    parts = statistics.parts_of(values)[None]
    pseudovalues = statistics.pseudovalues(parts, parts.sum(1), statistics.ratio_of)
    np.testing.assert_allclose(pseudovalues[0], values)


@pytest.fixture
def decisions():
    """Labels and predictions of 40 texts, and what F1 is made of."""
    generator = np.random.default_rng(0)
    generator.normal(size=30)
    label = generator.random(40) < 0.5
    prediction = generator.random(40) < 0.5
    counts = [label & prediction, ~label & prediction, label & ~prediction]
    return label, prediction, np.stack(counts, -1)[None].astype(float)


def test_f1_is_the_librarys(decisions):
    label, prediction, parts = decisions
    assert statistics.f1_of(parts.sum(1))[0] == pytest.approx(f1_score(label, prediction))


def test_the_jackknifes_values_of_f1_are_those_of_a_loop(decisions):
    label, prediction, parts = decisions
    expected = []
    for text in range(40):
        rest = np.arange(40) != text
        without = f1_score(label[rest], prediction[rest])
        expected.append(40 * f1_score(label, prediction) - 39 * without)
    pseudovalues = statistics.pseudovalues(parts, parts.sum(1), statistics.f1_of)
    np.testing.assert_allclose(pseudovalues[0], expected)


def test_a_ratio_of_means_agrees_with_fieller():
    generator = np.random.default_rng(1)
    denominator = generator.normal(2, 0.5, 800)
    numerator = 0.5 * denominator + generator.normal(0, 0.3, 800)
    parts = np.stack([numerator, denominator], -1)[None]
    value, low, high = statistics.resampled_runs(parts, statistics.ratio_of)
    residual = numerator - value * denominator
    half = 1.96 * residual.std() / np.sqrt(800) / denominator.mean()
    assert value == pytest.approx(numerator.mean() / denominator.mean())
    assert (low, high) == pytest.approx((value - half, value + half), abs=0.1 * half)


def test_the_mean_squares_are_those_of_a_table_of_variance():
    """Worked by hand: runs 1 3 / 5 7 differ by 4, texts by 2, and nothing is left."""
    texts_factor, error_of_runs = statistics.components(np.array([[1.0, 3.0], [5.0, 7.0]]))
    assert texts_factor == 1  # no residual: the texts keep all of their spread
    assert error_of_runs == pytest.approx(np.std([2, 6], ddof=1) / np.sqrt(2))


TEXTS = np.random.default_rng(0).normal(0.1, 0.2, 500)


def test_equal_runs_leave_no_more_open_than_one():
    alike = np.tile(statistics.parts_of(TEXTS), (3, 1, 1))
    interval = statistics.resampled_runs(alike, statistics.ratio_of)
    assert interval == pytest.approx(statistics.interval(TEXTS), abs=1e-9)


def test_few_runs_that_differ_leave_much_open():
    shifts = (-0.05, 0.0, 0.05)
    runs = np.stack([statistics.parts_of(TEXTS + shift) for shift in shifts])

    value, low, high = statistics.resampled_runs(runs, statistics.ratio_of)

    half_of_runs = stats.t.ppf(0.975, 2) * np.std(shifts, ddof=1) / np.sqrt(3)
    half_of_texts = statistics.interval(TEXTS).high - value
    assert high - value == pytest.approx(np.hypot(half_of_runs, half_of_texts), rel=1e-6)
    assert low < value - half_of_runs


@pytest.fixture
def distances():
    """A symmetric distance of four runs, for 200 texts."""
    values = np.random.default_rng(0).normal(0.3, 0.05, (4, 4, 200))
    return (values + values.swapaxes(0, 1)) / 2


def test_the_number_of_all_pairs_is_their_mean(distances):
    value, low, high = statistics.over_pairs(statistics.parts_of(distances))
    assert value == pytest.approx(distances[~np.eye(4, dtype=bool)].mean())
    assert low < value < high


def test_the_order_of_the_runs_does_not_matter(distances):
    expected = statistics.over_pairs(statistics.parts_of(distances))
    reversed_runs = statistics.over_pairs(statistics.parts_of(distances[::-1, ::-1]))
    assert reversed_runs == pytest.approx(expected)


def test_two_runs_say_nothing_of_a_third(distances):
    assert np.isnan(statistics.over_pairs(statistics.parts_of(distances[:2, :2])).low)


@pytest.mark.parametrize("end", [1, 2], ids=["low", "high"])
def test_tangos_interval_inverts_the_score_test(end):
    """At an end, the score of the constrained likelihood is at 1.96."""
    more = 9
    less = 3
    n = 80
    difference = statistics.paired_difference(more, less, n)[end]
    grid = np.linspace(max(0, -difference), min(1, (1 - difference) / 2), 200_001)[1:-1]
    likelihood = (
        more * np.log(grid + difference)
        + less * np.log(grid)
        + (n - more - less) * np.log(1 - 2 * grid - difference)
    )
    best = grid[np.nanargmax(likelihood)]
    variance = n * (2 * best + difference * (1 - difference))
    assert abs((more - less - n * difference) / np.sqrt(variance)) == pytest.approx(
        1.95996, abs=2e-3
    )


def test_a_difference_the_other_way_round_has_the_other_sign():
    value, low, high = statistics.paired_difference(9, 3, 80)
    assert statistics.paired_difference(3, 9, 80) == pytest.approx((-value, -high, -low))


def test_a_difference_ends_at_1():
    assert statistics.paired_difference(5, 0, 5).high == 1


def test_no_text_has_no_difference():
    assert np.isnan(statistics.paired_difference(0, 0, 0).value)


SHARES = pytest.mark.parametrize(
    ("share", "method"), [(statistics.wilson, "wilson"), (statistics.clopper_pearson, "exact")]
)


@SHARES
def test_shares_have_the_librarys_intervals(share, method):
    expected = stats.binomtest(3, 40).proportion_ci(method=method)
    assert share(3, 40) == pytest.approx((0.075, expected.low, expected.high))


@SHARES
def test_no_text_has_no_share(share, method):
    assert np.isnan(share(0, 0).value)


@pytest.mark.parametrize("end", [0.1, 0.6])
def test_the_p_value_at_an_end_of_the_interval_is_that_of_the_interval(end):
    assert statistics.p_value(0.3, 0.1, 0.6, end) == pytest.approx(0.05)


def test_p_values_and_intervals_decide_alike():
    outside = statistics.p_value(0.3, 0.1, 0.6, 0.0)
    inside = statistics.p_value(0.3, 0.1, 0.6, 0.2)
    assert outside < 0.05 < inside


def test_a_number_without_an_interval_has_no_p_value():
    assert np.isnan(statistics.p_value(0.3, np.nan, np.nan, 0))


def test_the_p_value_is_that_of_the_normal_distribution():
    half = 1.96 * 0.1
    p = statistics.p_value(0.25, 0.25 - half, 0.25 + half, 0)
    assert p == pytest.approx(2 * stats.norm.sf(2.5), rel=1e-3)


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


@pytest.mark.parametrize("hits", [0, 1, 7, 20, 39, 40])
def test_a_share_of_rows_that_are_clusters_of_their_own_is_wilsons(hits):
    share = statistics.wilson_of_clusters(np.arange(40) < hits, np.arange(40))
    assert share == pytest.approx(statistics.wilson(hits, 40), abs=1e-12)


@pytest.mark.parametrize("hits", [0, 1, 7, 20, 40])
def test_a_row_that_is_repeated_within_its_cluster_says_nothing_new(hits):
    is_hit = np.repeat(np.arange(40) < hits, 5)
    share = statistics.wilson_of_clusters(is_hit, np.repeat(np.arange(40), 5))
    assert share == pytest.approx(statistics.wilson(hits, 40), abs=1e-12)


def test_the_interval_of_clusters_holds_and_that_of_rows_does_not():
    """80 texts of 6 answers each, right with a probability of the text's own."""
    draw = np.random.default_rng(0)
    cluster = np.repeat(np.arange(80), 6)
    holds = []
    holds_of_rows = []
    for _ in range(600):
        probability = draw.beta(3.5, 1.5, size=80)
        is_hit = draw.random(480) < probability[cluster]
        share = statistics.wilson_of_clusters(is_hit, cluster)
        share_of_rows = statistics.wilson(is_hit.sum(), 480)
        holds.append(share.low <= 0.7 <= share.high)
        holds_of_rows.append(share_of_rows.low <= 0.7 <= share_of_rows.high)
    assert np.mean(holds) >= 0.93
    assert np.mean(holds_of_rows) < 0.9


@pytest.mark.parametrize("hits", [0, 1, 7, 20, 39, 40])
def test_a_share_of_clusters_of_one_row_is_wilsons(hits):
    share = statistics.wilson_of_whole_clusters(hits / 40, np.ones(40, int))
    assert share == pytest.approx(statistics.wilson(hits, 40), abs=1e-12)
    of_five = statistics.wilson_of_whole_clusters(hits / 40, np.full(40, 5))
    assert of_five == pytest.approx(share, abs=1e-12)


@pytest.mark.parametrize("alike", [0.0, 0.5, 1.0])
def test_an_interval_of_whole_clusters_holds_however_alike_their_rows_are(alike):
    """80 texts of 1 to 11 answers, right with 70 %; a share of them answers as its text does."""
    draw = np.random.default_rng(1)
    sizes = np.arange(80) % 11 + 1
    cluster = np.repeat(np.arange(80), sizes)
    holds = []
    for _ in range(600):
        of_text = draw.random(80) < 0.7
        of_row = draw.random(len(cluster)) < 0.7
        is_hit = np.where(draw.random(len(cluster)) < alike, of_text[cluster], of_row)
        share = statistics.wilson_of_whole_clusters(is_hit.mean(), sizes)
        holds.append(share.low <= 0.7 <= share.high)
    assert np.mean(holds) >= 0.93


def test_twenty_answers_about_one_text_are_worth_one():
    """Wilson's interval of one row at a share of a half, by its formula."""
    share = statistics.wilson_of_clusters(np.arange(20) < 10, np.zeros(20, int))
    z = stats.norm.ppf(0.975)
    margin = z * np.sqrt(0.25 + z**2 / 4) / (1 + z**2)
    assert share == pytest.approx((0.5, 0.5 - margin, 0.5 + margin), abs=1e-12)


def test_a_share_of_no_rows_is_unknown():
    share = statistics.wilson_of_clusters(np.zeros(0, bool), np.zeros(0, int))
    assert np.isnan(share).all()


def test_a_run_without_a_number_changes_no_share():
    values = np.tile([[1.0, 1.0, 0.0, 1.0] * 5, [1.0, 0.0, 1.0, 1.0] * 5], 10)
    nothing = np.full((1, values.shape[1]), np.nan)

    share = statistics.wilson_of_runs(values)

    assert 0 < share.low < share.high < 1
    assert statistics.wilson_of_runs(np.concatenate([values, nothing])) == pytest.approx(share)
    # beside a single run: Wilson's interval, as without it
    single = statistics.wilson_of_runs(values[:1])
    beside_nothing = statistics.wilson_of_runs(np.concatenate([values[:1], nothing]))
    assert 0 < single.low < single.high < 1
    assert beside_nothing.low == pytest.approx(single.low, abs=0.01)
    assert beside_nothing.high == pytest.approx(single.high, abs=0.01)
