import numpy as np
import pandas as pd
import pytest
from scipy import stats

from attnprobe.evidence.evidence import (
    Evidence,
    Measure,
    beyond_chance,
    flips_of,
    least,
    lowest_of,
    mean_of,
    share_of,
    skill_of,
)
from attnprobe.evidence.statistics import paired_difference, wilson
from attnprobe.results.table import Rows

OPEN = (-np.inf, np.inf)
IDENTITY = {
    "run_id": "r",
    "experiment": "e",
    "data": "d",
    "model": "m",
    "seed": 0,
    "split": "test",
    "probe": "p",
}


def table(run="r", **metrics):
    """The long table of one run: metric → the number of each example."""
    rows = Rows()
    for metric, values in metrics.items():
        examples = np.arange(len(values))
        rows.add(metric, examples, np.asarray(values, float))
    identity = IDENTITY | {"run_id": run}
    return rows.table(identity).to_pandas()


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        pytest.param(0.1, 0.2, "meets", id="above"),
        pytest.param(-0.2, -0.1, "fails", id="below"),
        pytest.param(-0.1, 0.1, "cannot decide", id="across"),
        pytest.param(0.0, 0.1, "cannot decide", id="from the threshold on"),
        pytest.param(np.nan, np.nan, "cannot decide", id="no interval"),
    ],
)
def test_only_a_whole_interval_beyond_the_threshold_decides(low, high, verdict):
    evidence = Evidence(0.05, low, high, 9)
    assert evidence.exceeds(0.0) == verdict


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        pytest.param(0.05, 0.2, "cannot decide", id="above, perhaps by too little"),
        pytest.param(0.11, 0.2, "meets", id="above by enough"),
        pytest.param(-0.05, 0.09, "no relevant difference", id="nowhere far enough"),
        pytest.param(-0.3, 0.05, "fails", id="not above by enough"),
        pytest.param(-0.3, 0.11, "cannot decide", id="perhaps above by enough"),
    ],
)
def test_an_interval_decides_by_the_smallest_relevant_difference(low, high, verdict):
    evidence = Evidence(0.05, low, high, 9)
    assert evidence.exceeds(0.0, 0.1) == verdict


def test_a_rare_sample_decides_nothing():
    rare = Evidence(1, 0.9, 1.1, 30, rare=True)
    assert rare.exceeds(0) == "too rare to say"
    assert np.isnan(rare.p(0))


def test_a_question_that_cannot_be_asked_decides_nothing():
    unasked = Evidence(1, 0.9, 1.1, 30, unasked="why")
    assert unasked.exceeds(0) == "not informative"


@pytest.mark.parametrize("hits", [0, 10, 400])
def test_a_sample_without_variety_is_rare_even_within_a_known_reach(hits):
    values = np.arange(400) < hits
    evidence = Evidence.of(values.astype(float), reach=1.0)
    assert evidence.exceeds(0, 0.05) == "too rare to say"


@pytest.mark.parametrize(
    "evidence",
    [
        Evidence(0.3, 0.1, 0.5, 9),
        Evidence(0.0, -0.05, 0.1, 9),  # the nearer end of the two
        Evidence(-0.3, -0.5, 0.1, 9),
    ],
)
def test_the_p_value_is_of_what_is_only_just_decided(evidence):
    assert evidence.p(0, 0.1) == pytest.approx(0.05)


@pytest.fixture
def skewed():
    """A thousand numbers, of which 3 % are not nearly 0."""
    generator = np.random.default_rng(0)
    is_large = generator.random(1000) < 0.03
    large = generator.random(1000) * 0.05
    return np.where(is_large, large, 1e-6 * generator.random(1000))


def test_skewed_values_within_a_known_reach_decide_by_an_interval_that_holds_for_any(skewed):
    evidence = Evidence.of(skewed, reach=1.0)
    assert evidence.exceeds(0, 0.05) == "no relevant difference"
    assert evidence.high > 0.009  # a value of 1 in a few of a thousand texts is not excluded


def test_skewed_values_without_a_known_reach_decide_nothing(skewed):
    assert Evidence.of(skewed).exceeds(0, 0.05) == "too rare to say"


FLIPS = np.repeat([1.0, -1.0, 0.0], [30, 10, 60])


def test_flips_have_a_score_interval():
    flips = flips_of("a", value=np.array)(table(a=FLIPS))
    expected = paired_difference(30, 10, 100)
    assert flips.value == 0.2
    assert flips.low == expected.low
    assert flips.high == expected.high


def test_flips_of_several_seeds_have_an_interval_over_seeds_too():
    # each run flips other texts
    runs = {
        "r": FLIPS,
        "s": np.roll(FLIPS, 10),
        "t": np.roll(FLIPS, 20),
    }
    tables = [table(run, a=flips) for run, flips in runs.items()]
    flips = flips_of("a", value=np.array)(pd.concat(tables))
    evidence = Evidence.of_runs(np.stack([*runs.values()]))
    assert flips == evidence.within(-1, 1)
    assert flips.n == 100


def test_fractions_of_flips_have_the_bootstraps_interval():
    halves = flips_of("a", value=np.array)(table(a=FLIPS / 2))
    assert halves == Evidence.of(FLIPS / 2)


@pytest.mark.parametrize(
    ("classes", "verdict"),
    [
        (1, "fails"),
        (2, "fails"),
        (9, "cannot decide"),
    ],
)
def test_the_smallest_of_many_numbers_is_a_no_only_as_one_among_so_many(classes, verdict):
    low = Evidence(value=-1.2, low=-2.2, high=-0.2, n=100)  # p = .019: two of it are below .05
    high = Evidence(value=1.0, low=0.0, high=2.0, n=100)
    others = [high] * (classes - 1)
    lowest = lowest_of([*others, low], threshold=0.0)
    assert lowest.value == -1.2
    assert lowest.exceeds(0.0) == verdict


@pytest.mark.whole
def test_the_smallest_of_numbers_that_are_all_equal_is_rarely_a_no():
    """Ten classes, nothing in any of them: by its own interval the lowest is a no in 22 %."""
    draw = np.random.default_rng(0)
    verdicts = []
    verdicts_alone = []
    for _ in range(300):
        classes = [Evidence.of(sample) for sample in draw.normal(0, 1, (10, 60))]
        lowest = lowest_of(classes, threshold=0.0)
        alone = min(classes, key=lambda evidence: evidence.value)
        verdicts.append(lowest.exceeds(0.0))
        verdicts_alone.append(alone.exceeds(0.0))
    assert verdicts_alone.count("fails") > 45
    assert verdicts.count("fails") < 20


# skill


NULL, RANDOM = np.random.default_rng(0).random((2, 100)) / 4
BEST = RANDOM + 0.5
GAIN = (BEST - NULL).mean()
BOUND = 0.0362 / GAIN
"""Beside 100 texts alike, 0.036 of all texts may differ, by as much as the whole reach of 1."""


def skill(own, null, best, reach=1.0):
    """Skill of one run's texts."""
    rows = table(a_own=own, a_null=null, a_best=best)
    return skill_of("a", reach=reach)(rows)


def test_skill_at_the_best_is_1():
    at_best = skill(BEST, NULL, BEST)
    assert at_best.value == at_best.high == 1
    assert at_best.low == pytest.approx(1 - BOUND, abs=5e-3)
    assert at_best.exceeds(0, 0.1) == "meets"


def test_skill_without_meaning_is_0():
    at_null = skill(NULL, NULL, BEST)
    assert at_null.value == 0
    assert at_null.low == pytest.approx(-BOUND, abs=5e-3)
    assert at_null.high == -at_null.low
    assert at_null.exceeds(0, 0.1) == "no relevant difference"


def test_skill_between_null_and_best_is_a_ratio_of_means():
    noise = 0.1 * (NULL - RANDOM)
    own = (NULL + BEST) / 2 + noise
    half = skill(own, NULL, BEST)
    gained = (own - NULL).mean()
    assert half.value == pytest.approx(gained / GAIN)
    assert half.low < half.value < half.high


def test_skill_needs_all_three_metrics():
    assert skill_of("a")(table(a_null=NULL)) is None


@pytest.mark.parametrize("elsewhere", [0, 1])
def test_texts_that_are_all_at_their_best_are_bounded_by_clopper_and_pearson(elsewhere):
    best = np.random.default_rng(0).uniform(0.4, 0.9, 60)
    own = best.copy()
    own[:elsewhere] = 0.3
    evidence = skill(own, np.zeros(60), best)
    largest_share = stats.beta.ppf(0.975, elsewhere + 1, 60 - elsewhere)
    least_best = Evidence.of_runs(best[None], reach=2.0).low
    ratio_of_means = own.mean() / best.mean()
    assert evidence.value == pytest.approx(ratio_of_means)
    assert evidence.low == pytest.approx(1 - largest_share / least_best)
    assert evidence.high == pytest.approx(1)
    assert not evidence.rare


def test_texts_that_are_all_at_the_null_may_be_on_either_side_of_it():
    texts = 60
    null = np.zeros(texts)
    best = np.random.default_rng(1).uniform(0.4, 0.9, texts)

    evidence = skill(null, null, best, reach=0.5)

    largest_share = stats.beta.ppf(0.975, 1, texts)
    least_best = Evidence.of_runs(best[None], reach=2.0).low
    distance = 0.5 * largest_share / least_best
    assert evidence.value == pytest.approx(0)
    assert evidence.low == pytest.approx(-distance)
    assert evidence.high == pytest.approx(distance)


SPREAD = np.random.default_rng(0).uniform(0, 2, 200)


@pytest.mark.parametrize(
    ("gain", "verdict"),
    [
        (0.0001, "not informative"),
        (0.019, "cannot decide"),
        (0.1, "meets"),
    ],
    ids=["almost nothing", "about the gate", "plenty"],
)
def test_attention_that_gains_all_there_is_is_judged_by_how_much_that_is(gain, verdict):
    best = gain * SPREAD
    evidence = skill(best, np.zeros(200), best)
    assert evidence.exceeds(0, 0.1) == verdict


def test_where_there_is_plenty_to_gain_half_of_it_is_told_apart_from_all():
    best = 0.1 * SPREAD
    own = best.copy()
    own[::2] = 0
    half = skill(own, np.zeros(200), best)
    assert 0.1 < half.low < 0.5 < half.high < 1


def test_no_skill_is_above_that_of_the_best():
    best = np.random.default_rng(2).uniform(0.1, 0.9, 40)
    own = best.copy()
    own[::2] -= 0.05
    evidence = skill(own, np.zeros(40), best)
    assert evidence.low < evidence.value < evidence.high <= 1


def test_a_skill_far_below_the_null_ends_with_its_interval_at_the_scale():
    """Own 0.0, null 0.8, best 0.9: a ratio of −8."""
    draw = np.random.default_rng(0)
    own = 0.02 * draw.random(60)
    null = np.full(60, 0.8)
    best = 0.9 + 0.01 * own
    evidence = skill_of("a")(table(a_own=own, a_null=null, a_best=best))
    assert evidence.value == evidence.low == -1
    assert -1 <= evidence.high <= 1


def test_no_bounded_skill_is_above_that_of_the_best():
    best = np.random.default_rng(2).uniform(0.1, 0.9, 40)
    own = best.copy()
    own[0] = 0
    evidence = skill(own, np.zeros(40), best)
    assert evidence.low < evidence.value < evidence.high == 1


# means, shares, and the least of several


def test_means_pair_within_the_example_and_leave_out_what_is_undefined():
    difference = np.linspace(1, 2, 40)
    a = np.arange(40.0)
    b = a - difference
    a[0] = np.nan
    mean_difference = mean_of("a", "b", value=np.subtract, ends=OPEN)
    evidence = mean_difference(table(a=a, b=b))
    assert evidence.value == pytest.approx(difference[1:].mean())
    assert evidence.n == 39
    # the spread of a alone would be far wider
    assert 1 < evidence.low < evidence.value < evidence.high < 2


def test_several_seeds_are_within_the_interval_and_no_further_examples():
    values = np.random.default_rng(0).normal(0.5, 0.2, 60)
    one_seed = mean_of("a", ends=OPEN)(table(a=values))
    shifts = {"r": -0.1, "s": 0.0, "t": 0.1}
    tables = [table(run, a=values + shift) for run, shift in shifts.items()]
    three_seeds = mean_of("a", ends=OPEN)(pd.concat(tables))
    one_width = one_seed.high - one_seed.low
    three_width = three_seeds.high - three_seeds.low
    assert three_seeds.value == pytest.approx(one_seed.value)
    assert three_seeds.n == 60
    assert three_width > 3 * one_width


def test_few_examples_decide_nothing():
    values = [*np.linspace(1, 2, 19), np.nan]
    evidence = mean_of("a", ends=OPEN)(table(a=values))
    assert evidence.value == pytest.approx(1.5)
    assert evidence.n == 19
    assert evidence.exceeds(0) == "too rare to say"


def test_a_share_has_wilsons_interval():
    values = [1.0] * 12 + [-1.0] * 4
    share_above_0 = share_of("a", value=lambda a: a > 0)
    share = share_above_0(table(a=values))
    assert (share.value, share.low, share.high) == wilson(12, 16)


def test_a_share_in_several_runs_is_of_the_same_texts_and_knows_the_spread_between_runs():
    texts = 16
    hits = {"r": 12, "s": 10, "t": 14}
    tables = []
    for run, count in hits.items():
        is_hit = np.arange(texts) < count
        tables.append(table(run, a=is_hit))

    share = share_of("a")(pd.concat(tables))

    shares = np.array([12, 10, 14]) / texts
    half_of_runs = stats.t.ppf(0.975, 2) * stats.sem(shares)
    half_of_texts = 0.75 - wilson(12, texts).low
    half = np.hypot(half_of_texts, half_of_runs)
    assert share.value == 0.75
    assert share.n == texts
    assert share.low == pytest.approx(0.75 - half)
    assert share.high == 1.0  # where the scale ends


def test_runs_that_are_alike_leave_a_share_the_interval_of_its_texts():
    values = [1.0] * 12 + [0.0] * 4
    tables = [table("r", a=values), table("s", a=values)]
    share = share_of("a")(pd.concat(tables))
    expected = wilson(12, 16)
    assert share.low == pytest.approx(expected.low)
    assert share.high == pytest.approx(expected.high)


@pytest.mark.parametrize(
    ("metric", "rows"),
    [
        ("a", table(a=[np.nan] * 12)),
        ("b", table(a=[1.0] * 12)),
        ("a", table(a=[1.0] * 12).iloc[:0]),
    ],
    ids=["undefined everywhere", "another metric", "no row"],
)
def test_what_is_not_there_has_no_number(metric, rows):
    assert mean_of(metric, ends=OPEN)(rows) is None


def interval_from(low, high):
    """A measure that always gives this interval."""
    evidence = Evidence((low + high) / 2, low, high, 20)
    return Measure((), lambda rows: evidence)


def least_of(*measures):
    return least(*measures)(pd.DataFrame())


def test_the_least_of_several_has_the_smallest_ends():
    evidence = least_of(interval_from(1, 2), interval_from(3, 4))
    assert evidence == Evidence(1.5, 1, 2, 20)


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        ((1, 2), (-3, 9), "cannot decide"),
        ((-3, 9), (-2, -1), "fails"),
        ((1, 2), (np.nan, np.nan), "cannot decide"),
    ],
)
def test_the_least_of_several_holds_only_where_all_do(first, second, verdict):
    evidence = least_of(interval_from(*first), interval_from(*second))
    assert evidence.exceeds(0) == verdict


def test_the_least_of_several_needs_all_of_them():
    without_number = Measure((), lambda rows: None)
    assert least_of(interval_from(1, 2), without_number) is None


CHANCE = np.linspace(0.05, 0.15, 100)
"""Share of each text that chance would hit; 0.1 on average."""


def beyond_chance_of(own):
    return beyond_chance("own", "chance")(table(own=own, chance=CHANCE))


def test_what_is_right_in_every_text_is_beyond_chance():
    """Of 100 texts none is a miss: exactly, at most 3.6 % are, and a miss is at chance at worst."""
    evidence = beyond_chance_of(np.ones(100))
    misses = stats.binomtest(0, 100).proportion_ci(method="exact").high
    assert evidence.value == 1
    assert evidence.high == 1
    assert evidence.low == pytest.approx(1 - misses / 0.9, abs=0.01)
    assert evidence.exceeds(0, 0.1) == "meets"


def test_what_is_nearly_right_in_every_text_is_beyond_chance():
    """Weights of a construction: 0.95 in all texts but for two, which a bootstrap knows nothing of
    where none is drawn."""
    own = np.full(100, 0.95)
    own[:2] = 0.6
    evidence = beyond_chance_of(own)
    assert evidence.low < evidence.value == pytest.approx((own.mean() - 0.1) / 0.9)
    assert evidence.exceeds(0, 0.1) == "meets"


@pytest.mark.parametrize("own", [CHANCE, np.zeros(100)], ids=["at chance", "never"])
def test_what_is_no_better_than_chance_in_any_text_is_not_beyond_it(own):
    assert beyond_chance_of(own).exceeds(0, 0.1) != "meets"


@pytest.mark.parametrize("rate", [0.03, 0.97])
def test_the_interval_beyond_chance_holds_where_few_texts_differ(rate):
    """Hits of this rate; on the scale beyond chance it is (rate − 0.1) / 0.9."""
    draw = np.random.default_rng(0)
    truth = (rate - 0.1) / 0.9
    holds = []
    for _ in range(200):
        evidence = beyond_chance_of((draw.random(100) < rate).astype(float))
        if not (evidence.rare or np.isnan(evidence.low)):
            holds.append(evidence.low <= truth <= evidence.high)
    assert len(holds) > 100
    assert np.mean(holds) >= 0.93
