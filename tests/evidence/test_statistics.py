import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from sklearn.metrics import f1_score

from attnprobe.core.metrics import SHARE, TRUTH, TVD, Scale
from attnprobe.evidence import statistics


def test_the_interval_of_many_normal_values_is_students():
    sample = np.random.default_rng(0).normal(1, 2, 3000)
    with_undefined = np.append(sample, np.nan)

    value, low, high = statistics.interval(with_undefined)

    quantile = stats.t.ppf(0.975, len(sample) - 1)
    half = quantile * stats.sem(sample)
    assert value == pytest.approx(sample.mean())
    assert value - low == pytest.approx(half, rel=0.08)
    assert high - value == pytest.approx(half, rel=0.08)


def test_the_interval_of_a_skewed_sample_reaches_farther_towards_its_tail():
    sample = np.random.default_rng(0).lognormal(0, 1, 200)
    value, low, high = statistics.interval(sample)
    assert high - value > 1.2 * (value - low)


FIRST = np.array([0.4, 0.5, 0.9, 0.7])
SECOND = np.array([0.1, 0.15, 0.2])


def test_one_groups_interval_is_students():
    _, low, high = statistics.student(FIRST)
    students_test = stats.ttest_1samp(FIRST, 0)
    expected = students_test.confidence_interval()
    assert (low, high) == pytest.approx(expected)


def test_two_groups_interval_is_welchs():
    """The mean of two groups is half the difference of the first and the second's negative, which
    scipy knows."""
    value, low, high = statistics.student(FIRST, SECOND)
    welchs_test = stats.ttest_ind(FIRST, -SECOND, equal_var=False)
    welch = welchs_test.confidence_interval()
    assert value == pytest.approx((0.625 + 0.15) / 2)
    assert low == pytest.approx(welch.low / 2)
    assert high == pytest.approx(welch.high / 2)


def test_a_group_of_one_run_tells_no_spread():
    interval = statistics.student(FIRST, SECOND[:1])
    assert np.isnan(interval.low)
    assert np.isnan(interval.high)


def test_a_group_of_equal_runs_has_a_mean():
    interval = statistics.student(FIRST, np.ones(3))
    assert interval.value == pytest.approx((0.625 + 1) / 2)


def truths(hits, texts):
    """1 for as many of the texts, 0 for the others."""
    return (np.arange(texts) < hits).astype(float)


@pytest.mark.parametrize("rate", [0.02, 0.05, 0.1, 0.5, 0.95])
@pytest.mark.parametrize("texts", [30, 100])
def test_the_interval_of_a_share_of_few_texts_misses_it_as_seldom_as_it_says(texts, rate):
    """Every number of hits has its chance, so that nothing is drawn."""
    missed = 0.0
    for hits in range(texts + 1):
        _, low, high = statistics.interval(truths(hits, texts), TRUTH)
        if not low <= rate <= high:
            missed += stats.binom.pmf(hits, texts, rate)
    assert missed <= 0.07


@pytest.mark.parametrize(
    ("hits", "scale"),
    [(0, TRUTH), (5, TRUTH), (30, TRUTH), (1, SHARE), (5, SHARE), (29, SHARE)],
)
def test_the_interval_of_a_share_is_wilsons(hits, scale):
    measured = statistics.interval(np.append(truths(hits, 30), np.nan), scale)
    expected = stats.binomtest(hits, 30).proportion_ci(method="wilson")
    assert measured == pytest.approx((hits / 30, expected.low, expected.high))


def test_a_text_with_a_yes_to_half_of_its_questions_counts_half():
    """Wilson's interval by its formula, of a share that is no whole number of texts."""
    share = 2.5 / 30
    z = stats.norm.ppf(0.975)
    centre = (share + z**2 / 60) / (1 + z**2 / 30)
    half = z * np.sqrt(share * (1 - share) / 30 + z**2 / 3600) / (1 + z**2 / 30)
    measured = statistics.interval([0.5, 1, 1, *[0] * 27], TRUTH)
    assert measured == pytest.approx((share, centre - half, centre + half))


def test_a_share_of_no_text_has_an_upper_end_where_a_distance_of_0_has_none():
    none = np.zeros(30)
    assert statistics.interval(none, TRUTH).high == pytest.approx(0.1135, abs=1e-4)
    assert np.isnan(statistics.interval(none, TVD).high)


def test_zeros_and_ones_that_may_be_other_numbers_are_no_share():
    measured = statistics.interval(truths(5, 30), Scale("items", 0, 2))
    expected = stats.binomtest(5, 30).proportion_ci(method="wilson")
    assert measured.low != pytest.approx(expected.low)


@pytest.mark.parametrize("at_once", [1, 700, 1 << 22])
def test_the_draws_do_not_depend_on_how_many_are_held(at_once, monkeypatch):
    sample = np.random.default_rng(1).lognormal(0, 1, 333)
    expected = statistics.interval(sample)
    monkeypatch.setattr(statistics, "AT_ONCE", at_once)
    assert statistics.interval(sample) == pytest.approx(expected, rel=1e-12)
    monkeypatch.setattr(statistics, "KEPT", 0)
    assert statistics.interval(sample) == pytest.approx(expected, rel=1e-12)


EQUAL_UP_TO_ROUNDING = [0.1 + 0.2] * 5 + [0.3] * 5


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(EQUAL_UP_TO_ROUNDING, id="equal values"),
        pytest.param([1.0], id="a single one"),
    ],
)
def test_what_does_not_vary_has_no_interval(values):
    interval = statistics.interval(values)
    assert np.isnan(interval.low)
    assert np.isnan(interval.high)


def test_no_value_has_no_mean():
    assert np.isnan(statistics.interval([]).value)


def test_an_infinite_value_is_refused():
    with pytest.raises(ValueError, match="1 infinite number"):
        statistics.interval([1.0, np.inf])


def test_the_jackknifes_values_of_a_mean_are_the_values():
    values = np.random.default_rng(0).normal(size=30)
    one_run = statistics.parts_of(values)[None]
    totals = one_run.sum(1)
    [pseudovalues] = statistics.pseudovalues(one_run, totals, statistics.ratio_of)
    assert_allclose(pseudovalues, values)


@pytest.fixture
def decisions():
    """Labels and predictions of 40 texts, and what F1 is made of."""
    generator = np.random.default_rng(0)
    generator.normal(size=30)
    label = generator.random(40) < 0.5
    prediction = generator.random(40) < 0.5
    is_true_positive = label & prediction
    is_false_positive = ~label & prediction
    is_false_negative = label & ~prediction
    counts = np.stack([is_true_positive, is_false_positive, is_false_negative], -1)
    one_run = counts[None].astype(float)
    return label, prediction, one_run


@pytest.mark.parametrize("runs", [1, 3])
def test_two_texts_have_no_interval(runs):
    """Each resample of two texts that varies holds both, and so their mean: a width of nothing."""
    values = np.array([[1.0, 2.0], [1.0, 2.5], [0.5, 2.0]])[:runs]
    measured = statistics.interval(values)
    assert measured.value == pytest.approx(values.mean())
    assert np.isnan(measured.low)
    assert np.isnan(measured.high)


def test_what_is_undefined_has_no_interval_rather_than_the_widest():
    runs = np.array([1.0, np.nan])
    pairs = statistics.parts_of(np.full((3, 3, 4), np.nan))
    assert np.isnan(statistics.student(runs, low=0, high=1)).all()
    assert np.isnan(statistics.over_pairs(pairs, low=0, high=1)).all()


def test_f1_is_the_librarys(decisions):
    label, prediction, parts = decisions
    expected = f1_score(label, prediction)
    totals = parts.sum(1)
    [f1] = statistics.f1_of(totals)
    assert f1 == pytest.approx(expected)


def test_f1_of_several_classes_is_the_librarys_where_a_class_has_neither_texts_nor_predictions():
    label = np.array([0, 0, 1, 1, 1])
    prediction = np.array([0, 1, 1, 1, 3])
    has_class = label[:, None] == np.arange(4)
    is_given = prediction[:, None] == np.arange(4)
    counts = [has_class & is_given, ~has_class & is_given, has_class & ~is_given]
    totals = np.stack(counts, -1).sum(0).reshape(-1).astype(float)
    assert statistics.f1_of(totals) == pytest.approx(f1_score(label, prediction, average="macro"))


def test_the_jackknifes_values_of_f1_are_those_of_a_loop(decisions):
    """Of the 40 texts, θ̃_t = 40 θ − 39 θ without t."""
    label, prediction, parts = decisions
    whole = f1_score(label, prediction)
    expected = []
    for text in range(40):
        rest = np.arange(40) != text
        without_text = f1_score(label[rest], prediction[rest])
        expected.append(40 * whole - 39 * without_text)
    totals = parts.sum(1)
    [pseudovalues] = statistics.pseudovalues(parts, totals, statistics.f1_of)
    assert_allclose(pseudovalues, expected)


def test_a_ratio_of_means_agrees_with_fieller():
    """The ends at which the numerator less the ratio times the denominator is just not 0 any more.

    Fieller 1954; with a denominator this far from 0 the half width is the standard error of the
    residuals over the mean of the denominator.
    """
    generator = np.random.default_rng(1)
    texts = 800
    denominator = generator.normal(2, 0.5, texts)
    numerator = 0.5 * denominator + generator.normal(0, 0.3, texts)

    one_run = np.stack([numerator, denominator], -1)[None]
    value, low, high = statistics.resampled_runs(one_run, statistics.ratio_of)

    ratio_of_means = numerator.mean() / denominator.mean()
    residual = numerator - value * denominator
    error = residual.std() / np.sqrt(texts)
    half = 1.96 * error / denominator.mean()
    tolerance = 0.1 * half
    assert value == pytest.approx(ratio_of_means)
    assert low == pytest.approx(value - half, abs=tolerance)
    assert high == pytest.approx(value + half, abs=tolerance)


def test_the_mean_squares_are_those_of_a_table_of_variance():
    """Worked by hand: runs 1 3 / 5 7 differ by 4, texts by 2, and nothing is left."""
    runs = np.array([[1.0, 3.0], [5.0, 7.0]])
    means_of_runs = [2, 6]
    texts_factor, error_of_runs = statistics.components(runs)
    assert texts_factor == 1  # no residual: the texts keep all of their spread
    assert error_of_runs == pytest.approx(stats.sem(means_of_runs))


TEXTS = np.random.default_rng(0).normal(0.1, 0.2, 500)


def test_equal_runs_leave_no_more_open_than_one():
    parts = statistics.parts_of(TEXTS)
    equal_runs = np.tile(parts, (3, 1, 1))
    interval = statistics.resampled_runs(equal_runs, statistics.ratio_of)
    expected = statistics.interval(TEXTS)
    assert interval == pytest.approx(expected, abs=1e-9)


def test_few_runs_that_differ_leave_much_open():
    shifts = np.array([-0.05, 0.0, 0.05])
    runs = TEXTS + shifts[:, None]
    parts = statistics.parts_of(runs)

    value, low, high = statistics.resampled_runs(parts, statistics.ratio_of)

    quantile = stats.t.ppf(0.975, 2)
    half_of_runs = quantile * stats.sem(shifts)
    half_of_texts = statistics.interval(TEXTS).high - value
    half = np.hypot(half_of_runs, half_of_texts)
    assert high - value == pytest.approx(half, rel=1e-6)
    assert low < value - half_of_runs


@pytest.fixture
def distances():
    """A symmetric distance of four runs, for 200 texts."""
    values = np.random.default_rng(0).normal(0.3, 0.05, (4, 4, 200))
    return (values + values.swapaxes(0, 1)) / 2


def test_the_number_of_all_pairs_is_their_mean(distances):
    parts = statistics.parts_of(distances)
    value, low, high = statistics.over_pairs(parts)
    is_pair = ~np.eye(4, dtype=bool)
    mean_of_pairs = distances[is_pair].mean()
    assert value == pytest.approx(mean_of_pairs)
    assert low < value < high


def test_the_order_of_the_runs_does_not_matter(distances):
    reversed_runs = distances[::-1, ::-1]
    parts = statistics.parts_of(distances)
    reversed_parts = statistics.parts_of(reversed_runs)
    expected = statistics.over_pairs(parts)
    interval = statistics.over_pairs(reversed_parts)
    assert interval == pytest.approx(expected)


def test_two_runs_say_nothing_of_a_third(distances):
    two_runs = distances[:2, :2]
    interval = statistics.over_pairs(statistics.parts_of(two_runs))
    assert np.isnan(interval.low)


def likeliest_share(more, less, n, difference):
    """The most likely share q of `less` where that of `more` is q + difference, on a grid."""
    lowest_share = max(0, -difference)
    highest_share = min(1, (1 - difference) / 2)
    share = np.linspace(lowest_share, highest_share, 200_001)[1:-1]
    neither = 1 - 2 * share - difference
    concordant = n - more - less
    likelihood = more * np.log(share + difference)
    likelihood += less * np.log(share)
    likelihood += concordant * np.log(neither)
    likeliest = np.nanargmax(likelihood)
    return share[likeliest]


@pytest.mark.parametrize("end", ["low", "high"])
def test_tangos_interval_inverts_the_score_test(end):
    """At an end δ of the interval, the score of the constrained likelihood is at 1.96.

    Tango 1998: with b and c the discordant pairs of n, and q the most likely share of c under
    p_b = q + δ, the score is (b − c − n δ) / √(n (2 q + δ (1 − δ))). Here q is found on a grid.
    """
    more = 9
    less = 3
    n = 80
    interval = statistics.paired_difference(more, less, n)
    difference = getattr(interval, end)

    share = likeliest_share(more, less, n, difference)
    variance_of_pair = 2 * share + difference * (1 - difference)
    beyond = more - less - n * difference
    score = beyond / np.sqrt(n * variance_of_pair)
    assert abs(score) == pytest.approx(1.95996, abs=2e-3)


def test_a_difference_the_other_way_round_has_the_other_sign():
    value, low, high = statistics.paired_difference(9, 3, 80)
    reversed_difference = statistics.paired_difference(3, 9, 80)
    expected = (-value, -high, -low)
    assert reversed_difference == pytest.approx(expected)


def test_a_difference_ends_at_1():
    assert statistics.paired_difference(5, 0, 5).high == 1


def test_no_text_has_no_difference():
    assert np.isnan(statistics.paired_difference(0, 0, 0).value)


SHARES = pytest.mark.parametrize(
    ("share", "method"),
    [
        pytest.param(statistics.wilson, "wilson", id="Wilson"),
        pytest.param(statistics.clopper_pearson, "exact", id="Clopper and Pearson"),
    ],
)


@SHARES
def test_shares_have_the_librarys_intervals(share, method):
    interval = share(3, 40)
    expected = stats.binomtest(3, 40).proportion_ci(method=method)
    assert interval.value == 0.075
    assert interval.low == pytest.approx(expected.low)
    assert interval.high == pytest.approx(expected.high)


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
    """A value of 2.5 standard errors."""
    half = 1.96 * 0.1
    low = 0.25 - half
    high = 0.25 + half
    p = statistics.p_value(0.25, low, high, 0)
    expected = 2 * stats.norm.sf(2.5)
    assert p == pytest.approx(expected, rel=1e-3)


RARE_HITS = np.repeat([1.0, 0.0], [19, 900])


ENOUGH_HITS = np.repeat([1.0, 0.0], [40, 900])


VERY_SKEWED = np.random.default_rng(0).lognormal(0, 2, 100)


NORMAL = np.random.default_rng(0).normal(size=100)


HALF_UNDEFINED = np.pad(np.linspace(1, 2, 30), (0, 30), constant_values=np.nan)


TWENTY_SKEWED = stats.expon.ppf(np.linspace(0.05, 0.8, 20))
"""A skewness of 0.61 and a standard error of 0.51: 20 values know too little of how skewed they
are."""


@pytest.mark.parametrize(
    ("values", "rare"),
    [
        pytest.param(np.ones(50), True, id="constant"),
        pytest.param(RARE_HITS, True, id="19 hits"),
        pytest.param(ENOUGH_HITS, False, id="40 hits"),
        pytest.param(VERY_SKEWED, True, id="very skewed"),
        pytest.param(NORMAL, False, id="normal"),
        pytest.param(HALF_UNDEFINED, False, id="half undefined"),
        pytest.param(TWENTY_SKEWED, True, id="twenty skewed values"),
    ],
)
def test_rare_skewed_and_constant_samples_decide_nothing(values, rare):
    assert statistics.is_too_rare(values) is rare


@pytest.mark.parametrize("hits", [1, 7, 20, 39])
def test_the_half_width_of_independent_rows_has_wilsons_interval(hits):
    share = hits / 40
    standard_error = np.sqrt(share * (1 - share) / 40)
    half_width = stats.norm.ppf(0.975) * standard_error
    interval = statistics.wilson_of_half_width(share, half_width)
    expected = statistics.wilson(hits, 40)
    assert interval == pytest.approx(expected, abs=1e-12)


def test_a_half_width_at_the_end_of_the_scale_is_cut_there():
    assert statistics.wilson_of_half_width(0, 0.25) == (0, 0, 0.25)
    assert statistics.wilson_of_half_width(1, 0.25) == (1, 0.75, 1)


@pytest.mark.parametrize("distance", [1e-9, 1e-4, 1e-3, 0.01])
def test_noise_beside_an_end_of_the_scale_does_not_open_the_whole_scale(distance):
    """A share that is hardly above 0 is known as well as one of 0 itself."""
    _, low, high = statistics.wilson_of_half_width(distance, 0.05)
    assert low == 0
    assert high == pytest.approx(distance + 0.05)
    _, low, high = statistics.wilson_of_half_width(1 - distance, 0.05)
    assert low == pytest.approx(1 - distance - 0.05)
    assert high == 1


def test_the_ends_for_a_half_width_move_with_the_share():
    half_width = 0.05
    shares = np.linspace(0, 1, 20_001)
    intervals = [statistics.wilson_of_half_width(share, half_width) for share in shares]
    steps = np.diff(intervals, axis=0)
    largest_step = np.abs(steps).max()
    assert largest_step < half_width / 10


@pytest.mark.parametrize("hits", [0, 1, 7, 20, 39, 40])
def test_a_share_of_rows_that_are_clusters_of_their_own_is_wilsons(hits):
    row = np.arange(40)
    share = statistics.wilson_of_clusters(row < hits, row)
    expected = statistics.wilson(hits, 40)
    assert share == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("hits", [0, 1, 7, 20, 40])
def test_a_row_that_is_repeated_within_its_cluster_says_nothing_new(hits):
    cluster = np.repeat(np.arange(40), 5)
    share = statistics.wilson_of_clusters(cluster < hits, cluster)
    expected = statistics.wilson(hits, 40)
    assert share == pytest.approx(expected, abs=1e-12)


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


@pytest.mark.parametrize("probability", [0.02, 0.9, 0.95, 0.98])
@pytest.mark.parametrize("clusters", [10, 30, 100])
def test_the_interval_of_clusters_holds_where_few_of_their_rows_are_misses(clusters, probability):
    """Texts of 3 to 17 answers that are alike by half: of two answers of one text the correlation
    is 1 / (1 + a + b), for a beta distribution of a and b."""
    draw = np.random.default_rng(2)
    cluster = np.repeat(np.arange(clusters), 3 + np.arange(clusters) % 15)
    holds = []
    for _ in range(600):
        of_text = draw.beta(probability, 1 - probability, size=clusters)
        is_hit = draw.random(len(cluster)) < of_text[cluster]
        share = statistics.wilson_of_clusters(is_hit, cluster)
        holds.append(share.low <= probability <= share.high)
    assert np.mean(holds) >= 0.93


@pytest.mark.parametrize("hits", [0, 1, 7, 20, 39, 40])
@pytest.mark.parametrize("rows", [1, 5])
def test_a_share_of_clusters_of_equally_many_rows_is_wilsons(hits, rows):
    sizes = np.full(40, rows)
    share = statistics.wilson_of_whole_clusters(hits / 40, sizes)
    expected = statistics.wilson(hits, 40)
    assert share == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("alike", [0.0, 0.5, 1.0])
def test_an_interval_of_whole_clusters_holds_however_alike_their_rows_are(alike):
    """80 texts of 1 to 11 answers, right with 70 %; a share of them answers as its text does."""
    draw = np.random.default_rng(1)
    sizes = np.arange(80) % 11 + 1
    cluster = np.repeat(np.arange(80), sizes)
    rows = len(cluster)
    holds = []
    for _ in range(600):
        text_is_hit = draw.random(80) < 0.7
        row_is_hit = draw.random(rows) < 0.7
        answers_as_text = draw.random(rows) < alike
        is_hit = np.where(answers_as_text, text_is_hit[cluster], row_is_hit)
        share = statistics.wilson_of_whole_clusters(is_hit.mean(), sizes)
        holds.append(share.low <= 0.7 <= share.high)
    assert np.mean(holds) >= 0.93


def test_twenty_answers_about_one_text_are_worth_one():
    """Wilson's interval of one row at a share of a half, by its formula: half of it is
    z √(p (1 − p) / n + z² / (4 n²)) / (1 + z² / n), with n = 1 and p = 1/2."""
    is_hit = np.arange(20) < 10
    same_text = np.zeros(20, int)
    share = statistics.wilson_of_clusters(is_hit, same_text)
    z = stats.norm.ppf(0.975)
    root = np.sqrt(0.25 + z**2 / 4)
    half = z * root / (1 + z**2)
    expected = (0.5, 0.5 - half, 0.5 + half)
    assert share == pytest.approx(expected, abs=1e-12)


def test_a_share_of_no_rows_is_unknown():
    is_hit = np.zeros(0, bool)
    cluster = np.zeros(0, int)
    share = statistics.wilson_of_clusters(is_hit, cluster)
    assert np.isnan(share).all()


@pytest.fixture
def two_runs():
    """Whether each of 200 texts is a hit, in a run with 75 % of them and another."""
    first = [1.0, 1.0, 0.0, 1.0] * 50
    second = [1.0, 0.0, 1.0, 1.0] * 50
    return np.array([first, second])


def with_undefined_run(values):
    undefined = np.full_like(values[:1], np.nan)
    return np.concatenate([values, undefined])


def test_a_run_without_a_number_changes_no_share(two_runs):
    expected = statistics.wilson_of_runs(two_runs)
    share = statistics.wilson_of_runs(with_undefined_run(two_runs))
    assert 0 < expected.low < expected.high < 1
    assert share == pytest.approx(expected)


def test_a_run_beside_one_without_a_number_has_wilsons_interval(two_runs):
    run = two_runs[:1]
    expected = statistics.wilson_of_runs(run)
    share = statistics.wilson_of_runs(with_undefined_run(run))
    assert 0 < expected.low < expected.high < 1
    assert share.low == pytest.approx(expected.low, abs=0.01)
    assert share.high == pytest.approx(expected.high, abs=0.01)
