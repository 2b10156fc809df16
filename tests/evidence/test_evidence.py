import numpy as np
import pandas as pd
import pytest
from scipy import stats

from attnprobe.evidence.evidence import (
    Evidence,
    Measure,
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
        rows.add(metric, np.arange(len(values)), np.asarray(values, float))
    return rows.table(IDENTITY | {"run_id": run}).to_pandas()


@pytest.mark.parametrize(
    ("low", "high", "smallest", "verdict"),
    [
        (0.1, 0.2, 0, "meets"),
        (-0.2, -0.1, 0, "fails"),
        (-0.1, 0.1, 0, "cannot decide"),
        (np.nan, np.nan, 0, "cannot decide"),
        (0.0, 0.1, 0, "cannot decide"),
        (0.05, 0.2, 0.1, "cannot decide"),
        (0.11, 0.2, 0.1, "meets"),
        (-0.05, 0.09, 0.1, "no relevant difference"),
        (-0.3, 0.05, 0.1, "fails"),
        (-0.3, 0.11, 0.1, "cannot decide"),
    ],
)
def test_only_a_whole_interval_beyond_the_smallest_difference_decides(low, high, smallest, verdict):
    assert Evidence(0.05, low, high, 9).exceeds(0.0, smallest) == verdict


def test_a_rare_sample_decides_nothing():
    rare = Evidence(1, 0.9, 1.1, 30, rare=True)
    assert rare.exceeds(0) == "too rare to say"
    assert np.isnan(rare.p(0))


def test_a_question_that_cannot_be_asked_decides_nothing():
    assert Evidence(1, 0.9, 1.1, 30, unasked="why").exceeds(0) == "not informative"


@pytest.mark.parametrize(
    "values", [[0.0] * 400, [1.0] * 400, [0.0] * 390 + [1.0] * 10], ids=["0", "1", "nearly all 0"]
)
def test_a_sample_without_variety_is_rare_even_within_a_known_reach(values):
    assert Evidence.of(values, reach=1.0).exceeds(0, 0.05) == "too rare to say"


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
    assert flips.value == Evidence.of(FLIPS).value == 0.2
    assert (flips.low, flips.high) == paired_difference(30, 10, 100)[1:]


def test_flips_of_several_seeds_have_an_interval_over_seeds_too():
    runs = [np.roll(FLIPS, 10 * number) for number in range(3)]  # each run flips other texts
    tables = [table(name, a=flips) for name, flips in zip("rst", runs, strict=True)]
    flips = flips_of("a", value=np.array)(pd.concat(tables))
    assert flips == Evidence.of_runs(np.stack(runs)).within(-1, 1)
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
    others = [Evidence(value=1.0, low=0.0, high=2.0, n=100)] * (classes - 1)
    lowest = lowest_of([*others, low], threshold=0.0)
    assert lowest.value == -1.2
    assert lowest.exceeds(0.0) == verdict


def test_the_smallest_of_numbers_that_are_all_equal_is_rarely_a_no():
    """Ten classes, nothing in any of them: by its own interval the lowest is a no in 22 %."""
    draw = np.random.default_rng(0)
    verdicts, alone = [], []
    for _ in range(300):
        of_classes = [Evidence.of(draw.normal(0, 1, 60)) for _ in range(10)]
        verdicts.append(lowest_of(of_classes, threshold=0.0).exceeds(0.0))
        alone.append(min(of_classes, key=lambda evidence: evidence.value).exceeds(0.0))
    assert alone.count("fails") > 45
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
    assert (at_best.value, at_best.high) == (1, 1)
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
    half = skill((NULL + BEST) / 2 + noise, NULL, BEST)
    expected = ((BEST - NULL) / 2 + noise).mean() / GAIN
    assert half.value == pytest.approx(expected)
    assert half.low < half.value < half.high


def test_skill_needs_all_three_metrics():
    assert skill_of("a")(table(a_null=NULL)) is None


@pytest.mark.parametrize("elsewhere", [0, 1])
def test_texts_that_are_all_at_their_best_are_bounded_by_clopper_and_pearson(elsewhere):
    best = np.random.default_rng(0).uniform(0.4, 0.9, 60)
    own = best.copy()
    own[:elsewhere] = 0.3
    evidence = skill(own, np.zeros(60), best)
    share = stats.beta.ppf(0.975, elsewhere + 1, 60 - elsewhere)
    distance = share / Evidence.of_runs(best[None], reach=2.0).low
    assert evidence.value == pytest.approx(own.mean() / best.mean())
    assert evidence.low == pytest.approx(1 - distance)
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
    evidence = skill(gain * SPREAD, 0 * SPREAD, gain * SPREAD)
    assert evidence.exceeds(0, 0.1) == verdict


def test_where_there_is_plenty_to_gain_half_of_it_is_told_apart_from_all():
    own = np.where(np.arange(200) % 2, 0.1, 0) * SPREAD
    half = skill(own, 0 * SPREAD, 0.1 * SPREAD)
    assert 0.1 < half.low < 0.5 < half.high < 1


def test_no_skill_is_above_that_of_the_best():
    best = np.random.default_rng(2).uniform(0.1, 0.9, 40)
    evidence = skill(np.where(np.arange(40) % 2, best, best - 0.05), np.zeros(40), best)
    assert evidence.low < evidence.value < evidence.high <= 1


def test_a_skill_far_below_the_null_ends_with_its_interval_at_the_scale():
    """Own 0.0, null 0.8, best 0.9: a ratio of −8."""
    draw = np.random.default_rng(0)
    own = 0.02 * draw.random(60)
    evidence = skill_of("a")(table(a_own=own, a_null=0.8 + 0 * own, a_best=0.9 + 0.01 * own))
    assert evidence.value == evidence.low == -1
    assert -1 <= evidence.high <= 1


def test_no_bounded_skill_is_above_that_of_the_best():
    best = np.random.default_rng(2).uniform(0.1, 0.9, 40)
    evidence = skill(np.where(np.arange(40) == 0, 0, best), np.zeros(40), best)
    assert evidence.low < evidence.value < evidence.high == 1


# means, shares, and the least of several


def test_means_pair_within_the_example_and_leave_out_what_is_undefined():
    difference = np.linspace(1, 2, 40)
    a = np.arange(40.0)
    b = a - difference
    a[0] = np.nan
    evidence = mean_of("a", "b", value=np.subtract, ends=OPEN)(table(a=a, b=b))
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
    assert three_seeds.value == pytest.approx(one_seed.value)
    assert three_seeds.n == 60
    assert three_seeds.high - three_seeds.low > 3 * (one_seed.high - one_seed.low)


def test_few_examples_decide_nothing():
    evidence = mean_of("a", ends=OPEN)(table(a=[*np.linspace(1, 2, 19), np.nan]))
    assert evidence.value == pytest.approx(1.5)
    assert evidence.n == 19
    assert evidence.exceeds(0) == "too rare to say"


def test_a_share_has_wilsons_interval():
    share = share_of("a", value=lambda a: a > 0)(table(a=[1.0] * 12 + [-1.0] * 4))
    assert (share.value, share.low, share.high) == wilson(12, 16)


def test_a_share_in_several_runs_is_of_the_same_texts_and_knows_the_spread_between_runs():
    texts = 16
    hits = {"r": 12, "s": 10, "t": 14}
    tables = []
    for run, count in hits.items():
        values = [1.0] * count + [0.0] * (texts - count)
        tables.append(table(run, a=values))

    share = share_of("a")(pd.concat(tables))

    spread_of_runs = np.std(list(hits.values()), ddof=1) / texts
    half_of_runs = stats.t.ppf(0.975, 2) * spread_of_runs / np.sqrt(3)
    half_of_texts = 0.75 - wilson(12, texts).low
    assert share.value == 0.75
    assert share.n == texts
    assert share.low == pytest.approx(0.75 - np.hypot(half_of_texts, half_of_runs))
    assert share.high == 1.0  # where the scale ends


def test_runs_that_are_alike_leave_a_share_the_interval_of_its_texts():
    values = [1.0] * 12 + [0.0] * 4
    share = share_of("a")(pd.concat([table("r", a=values), table("s", a=values)]))
    assert (share.low, share.high) == pytest.approx(wilson(12, 16)[1:])


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
    return Measure((), lambda rows: Evidence((low + high) / 2, low, high, 20))


def least_of(*measures):
    return least(*measures)(pd.DataFrame())


def test_the_least_of_several_has_the_smallest_ends():
    assert least_of(interval_from(1, 2), interval_from(3, 4)) == Evidence(1.5, 1, 2, 20)


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
    assert least_of(interval_from(1, 2), Measure((), lambda rows: None)) is None
