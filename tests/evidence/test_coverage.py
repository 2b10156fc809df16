"""How often the intervals hold the truth, and how often a verdict is false, in the settings that
broke earlier ones.

`python -m tests.evidence.test_coverage` prints the table of docs/results/measurements.md
(about ten minutes); `pytest -m slow tests/evidence/test_coverage.py` asserts it."""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from attnprobe.evidence.evidence import Evidence, mean_of, share_of, skill_of
from attnprobe.evidence.statistics import (
    f1_of,
    interval,
    is_too_rare,
    over_pairs,
    paired_difference,
    parts_of,
    ratio_of,
    resampled_runs,
    wilson_of_runs,
)
from attnprobe.results.pivot import REPEATS

REPETITIONS = 1000
WHOLE = 0.5
"""Share of the samples that must have an interval, for a setting to count as one where something is
said."""

Ends = tuple[float, float]


class Setting(NamedTuple):
    """A kind of sample whose truth is known.

    Attributes:
        name: for the table.
        truth: the number that the interval should hold.
        ends: `ends(generator=…)` → lower and upper end of one sample's interval, or None where
            nothing is said.
    """

    name: str
    truth: float
    ends: Callable[..., Ends | None]


class Coverage(NamedTuple):
    """What came of the repetitions.

    Attributes:
        spoke: share in which something is said.
        held: share of these whose interval holds the truth.
        above: share of all in which the whole interval is above the truth: a false verdict where
            the truth is the threshold.
        below: share of all in which it is below the truth.
    """

    spoke: float
    held: float
    above: float
    below: float


def sample_generator(number):
    """The random numbers of one repetition."""
    return np.random.default_rng((7, number))


def coverage(ends, truth, repetitions=REPETITIONS):
    """How often the intervals hold the truth."""
    intervals = []
    for number in range(repetitions):
        interval = ends(generator=sample_generator(number))
        if interval is not None and not np.isnan(interval).any():
            intervals.append(interval)
    low, high = np.array(intervals).reshape(-1, 2).T
    above = (low > truth).sum()
    below = (high < truth).sum()
    held = np.nan
    if intervals:
        held = 1 - (above + below) / len(intervals)
    return Coverage(
        spoke=len(intervals) / repetitions,
        held=held,
        above=above / repetitions,
        below=below / repetitions,
    )


def single(draw, n, *, generator):
    """One run's mean."""
    values = draw(generator, n)
    if is_too_rare(values):
        return None
    _, low, high = interval(values)
    return low, high


def ends_of(evidence):
    """Those of its interval, where the sample is not too rare for one."""
    return None if evidence.rare else (evidence.low, evidence.high)


def long_table(times=1, **metrics):
    """The rows of one run's examples, each text `times` times, as a report reads them."""
    run = {
        "run_id": "r",
        "experiment": "e",
        "data": "d",
        "model": "m",
        "seed": 0,
        "split": "test",
        "probe": "p",
        "step": np.nan,
    }
    tables = []
    for name, values in metrics.items():
        repeated = np.repeat(np.asarray(values, float), times)
        columns = {
            "metric": name,
            "example_id": np.arange(len(repeated)),
            "value": repeated,
        }
        tables.append(pd.DataFrame(run | columns))
    rows = pd.concat(tables)
    first_of_each = set(range(0, len(tables[0]), times))
    repeats = set(range(len(tables[0]))) - first_of_each
    rows.attrs[REPEATS] = {"r": list(repeats)}
    return rows


def repeated(draw, n, times, measure, *, generator):
    """A measure of `n` distinct texts, each of which is there `times` times."""
    values = draw(generator, n)
    evidence = measure("a")(long_table(times, a=values))
    return ends_of(evidence)


def gained(gain, n, own, *, generator):
    """Skill where the best attention is ahead by `gain` on average: is anything decided?"""
    best = gain * generator.uniform(0, 2, n)
    own_values = own * best * generator.uniform(0.5, 1.5, n)
    rows = long_table(a_own=own_values, a_null=np.zeros(n), a_best=best)
    skill = skill_of("a")(rows)
    is_decided = skill.exceeds(0, 0.1).is_decided
    return (skill.low, skill.high) if is_decided else None


def flips(chance_more, chance_less, n, *, generator):
    """A paired difference of two decisions."""
    uniform = generator.random(n)
    more = int((uniform < chance_more).sum())
    less = int((uniform > 1 - chance_less).sum())
    if more + less < 20:
        return None
    _, low, high = paired_difference(more, less, n)
    return low, high


class Distribution(NamedTuple):
    """A kind of number.

    Attributes:
        draw: `draw(generator, n)` → so many numbers.
        mean: what they are on average.
    """

    draw: Callable[[np.random.Generator, int], np.ndarray]
    mean: float


def normal(generator, n):
    return generator.normal(0, 1, n)


def beta(a, b):
    """Its mean is a / (a + b)."""
    return Distribution(lambda generator, n: generator.beta(a, b, n), a / (a + b))


def lognormal(spread):
    """Its mean is exp(σ² / 2)."""

    def draw(generator, n):
        return generator.lognormal(0, spread, n)

    return Distribution(draw, np.exp(spread**2 / 2))


def not_zero(share, distribution):
    """This share of the numbers are of the distribution, the others 0."""

    def draw(generator, n):
        is_not_zero = generator.random(n) < share
        return is_not_zero * distribution.draw(generator, n)

    return Distribution(draw, share * distribution.mean)


def true_or_false(generator, n):
    is_true = generator.random(n) < 0.5
    return is_true.astype(float)


ONE_RUN = {
    "normal": Distribution(normal, 0.0),
    "beta(0.3, 1.2)": beta(0.3, 1.2),
    "lognormal, σ = 1": lognormal(1),
    "lognormal, σ = 2": lognormal(2),
    "30 % not 0, beta(0.5, 2)": not_zero(0.3, beta(0.5, 2)),
    "5 % not 0, lognormal": not_zero(0.05, lognormal(1)),
    "1 % not 0, lognormal": not_zero(0.01, lognormal(1)),
}
FLIPS = {
    "2 % one way": (0.02, 0.0),
    "0.5 % one way": (0.005, 0.0),
    "5 % each way": (0.05, 0.05),
    "20 %, 10 %": (0.2, 0.1),
}
SIZES = (20, 100, 1000)
within_0_to_1 = partial(mean_of, ends=(0, 1))
anywhere = partial(mean_of, ends=(-np.inf, np.inf))
REPEATED = {
    "normal": (Distribution(normal, 0.0), anywhere),
    "beta(0.5, 2)": (beta(0.5, 2), within_0_to_1),
    "half true": (Distribution(true_or_false, 0.5), share_of),
}
NEAR_THE_END = {
    "beta(12, 0.5)": beta(12, 0.5),
    "beta(0.5, 6)": beta(0.5, 6),
}
GAINS = {0.0001: 0.03, 0.01: 0.03, 0.02: 0.03, 0.1: 1.0}
"""What there is to be gained → in how many of the samples, at most, anything is decided."""


def seeds(count, n, seed_spread, text_spread, noise, failing=0.0, *, generator):
    """The mean over seeds of a difference per text.

    A failed training says so (its number is far off) and is no part of the question, which is about
    trainings that succeed.
    """
    text_effect = generator.normal(0, text_spread, n)
    residual = generator.normal(0, noise, (count, n))
    seed_effect = generator.normal(0, seed_spread, (count, 1))
    has_failed = generator.random((count, 1)) < failing
    values = text_effect + residual + seed_effect - 0.3 * has_failed
    _, low, high = resampled_runs(parts_of(values), ratio_of)
    return low, high


def share_of_seeds(count, n, seed_spread, *, generator):
    """A share of texts in several runs: texts are easy or hard in all of them, runs lucky or not.

    On average a half of the texts are hits.
    """
    luck = generator.normal(0, seed_spread, (count, 1))
    hardness = generator.normal(0, 1, n)
    noise = generator.normal(0, 0.5, (count, n))
    is_hit = hardness + luck + noise > 0
    _, low, high = wilson_of_runs(is_hit.astype(float))
    return low, high


def rare_in_seeds(count, n, seed_spread, *, generator):
    """A mean of values of which 0.5 % are 1 on average, in texts that differ by run or do not."""
    log_luck = generator.normal(0, seed_spread, (count, 1))
    luck = np.exp(log_luck - seed_spread**2 / 2)
    rate = 0.0025
    is_hit_in_run = generator.random((count, n)) < rate * luck
    is_hit_in_all = generator.random(n) < rate
    values = (is_hit_in_run | is_hit_in_all).astype(float)
    return ends_of(Evidence.of_runs(values, reach=1.0))


def counts_of_f1(label, predicted):
    """True positives, false positives and false negatives, of each text."""
    is_true_positive = label & predicted
    is_false_positive = ~label & predicted
    is_false_negative = label & ~predicted
    return np.stack([is_true_positive, is_false_positive, is_false_negative], -1)


def f1_difference(count, n, persistent, *, generator):
    """F1 of two architectures that are as good as each other, on one test set.

    `persistent` is the share of texts that all seeds of the first get wrong and all of the second
    get right, and the other way round.
    """
    label = generator.random(n) < 0.5
    place = generator.random(n)
    wrong_in_first = place < persistent
    wrong_in_second = (place >= persistent) & (place < 2 * persistent)
    runs = []
    for _ in range(count):
        slips_in_first = generator.random(n) < 0.12
        slips_in_second = generator.random(n) < 0.12
        first = label ^ (wrong_in_first | slips_in_first)
        second = label ^ (wrong_in_second | slips_in_second)
        counts = [counts_of_f1(label, first), counts_of_f1(label, second)]
        parts = np.concatenate(counts, -1)
        runs.append(parts.astype(float))
    _, low, high = resampled_runs(np.stack(runs), f1_gap)
    return low, high


def f1_gap(sums):
    """F1 of the first three parts minus that of the last three."""
    first = sums[..., :3]
    second = sums[..., 3:]
    return f1_of(first) - f1_of(second)


def pairs(count, n, seed_spread, *, generator):
    """A distance whose size depends on the luck of both runs."""
    luck = generator.normal(0, seed_spread, count)
    mean_luck = np.add.outer(luck, luck) / 2
    noise = generator.normal(0, 0.1, (count, count, n))
    text_effect = generator.normal(0, 0.05, n)
    values = 0.2 + mean_luck[:, :, None] + noise
    symmetric_values = (values + values.swapaxes(0, 1)) / 2
    distances = symmetric_values + text_effect
    _, low, high = over_pairs(parts_of(distances))
    return low, high


def settings_of_one_run():
    for name, distribution in ONE_RUN.items():
        for n in SIZES:
            ends = partial(single, distribution.draw, n)
            yield Setting(f"{name}, n = {n}", distribution.mean, ends)
    for name, (more, less) in FLIPS.items():
        for n in SIZES:
            ends = partial(flips, more, less, n)
            yield Setting(f"flips {name}, n = {n}", more - less, ends)
    for name, (distribution, measure) in REPEATED.items():
        for times in (1, 2, 5):
            ends = partial(repeated, distribution.draw, 60, times, measure)
            setting = f"{name}, 60 distinct texts, each {times} ×"
            yield Setting(setting, distribution.mean, ends)
    for name, distribution in NEAR_THE_END.items():
        for n in (40, 200):
            ends = partial(repeated, distribution.draw, n, 1, within_0_to_1)
            setting = f"{name} within 0 to 1, n = {n}"
            yield Setting(setting, distribution.mean, ends)


def settings_of_seeds():
    for count, spread in product((3, 9), (0.0, 0.02, 0.1)):
        ends = partial(seeds, count, 400, spread, 0.3, 0.3)
        name = f"{count} seeds, spread {spread}, n = 400"
        yield Setting(name, 0.0, ends)
    for count, spread in product((2, 3, 9), (0.0, 0.1, 0.5)):
        ends = partial(share_of_seeds, count, 200, spread)
        name = f"share, {count} seeds, spread {spread}, n = 200"
        yield Setting(name, 0.5, ends)
    for count, spread in product((2, 3, 9), (0.0, 0.5)):
        ends = partial(rare_in_seeds, count, 1000, spread)
        name = f"rare, {count} seeds, spread {spread}, n = 1000"
        yield Setting(name, 0.005, ends)
    for count in (3, 5, 9):
        ends = partial(seeds, count, 400, 0.01, 0.3, 0.3, 0.1)
        name = f"{count} seeds, one in ten fails, n = 400"
        yield Setting(name, 0.0, ends)
    for count, n, share in product((3, 9), (400, 1725), (0.0, 0.05)):
        ends = partial(f1_difference, count, n, share)
        name = f"F1, {count} seeds, n = {n}, {share:.0%} of the texts divide"
        yield Setting(name, 0.0, ends)
    for count, spread in product((3, 9), (0.01, 0.05)):
        ends = partial(pairs, count, 400, spread)
        name = f"{count} seeds, every one a base, spread {spread}"
        yield Setting(name, 0.2, ends)


SETTINGS = [*settings_of_one_run(), *settings_of_seeds()]
BY_NAME = {setting.name: setting for setting in SETTINGS}


@pytest.mark.slow
@pytest.mark.parametrize("gain", GAINS)
@pytest.mark.parametrize("n", [60, 200])
def test_skill_decides_nothing_where_there_is_nothing_to_gain(gain, n):
    measured = coverage(partial(gained, gain, n, 0.6), 0.6)
    assert measured.spoke <= GAINS[gain] + 0.011
    assert gain < 0.1 or measured.spoke > 0.99


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("name", [name for name in BY_NAME if "distinct" in name])
def test_repeats_add_nothing(name, number):
    texts, _, _ = name.rpartition(" each ")
    once = BY_NAME[f"{texts} each 1 ×"]
    expected = once.ends(generator=sample_generator(number))
    ends = BY_NAME[name].ends(generator=sample_generator(number))
    assert ends == expected


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("name", [name for name in BY_NAME if "within" in name])
def test_intervals_stay_on_their_scale(name, number):
    ends = BY_NAME[name].ends(generator=sample_generator(number))
    if ends is not None:
        low, high = ends
        assert 0 <= low < high <= 1


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_intervals_hold_or_nothing_is_said(setting):
    """Two standard errors of 1,000 repetitions are 0.016 at 0.93 and 0.011 at 0.03."""
    measured = coverage(setting.ends, setting.truth)
    assert measured.above <= 0.03 + 0.011
    assert measured.below <= 0.03 + 0.011
    if measured.spoke >= WHOLE:
        assert measured.held >= 0.93 - 0.016


RARE = ONE_RUN["1 % not 0, lognormal"]


def students_interval_of_rare_values(generator):
    values = RARE.draw(generator, 100)
    mean = values.mean()
    half = 1.98 * values.std(ddof=1) / 10
    return mean - half, mean + half


def test_the_simulation_finds_that_students_interval_of_rare_values_does_not_hold():
    measured = coverage(students_interval_of_rare_values, RARE.mean, 100)
    assert measured.held < 0.8
    assert measured.below > 0.2


def interval_of_repeated_texts(generator):
    return interval(np.repeat(generator.normal(0, 1, 60), 5))[1:]


def test_the_simulation_finds_that_an_interval_of_repeated_texts_does_not_hold():
    assert coverage(interval_of_repeated_texts, 0.0, 100).held < 0.8


HEAD = (
    "| setting | something is said | holds the truth | false “above” | false “below” |\n"
    "|---|---|---|---|---|"
)


def main(words: Sequence[str] = ()) -> None:
    """Print the rows, or those whose names hold one of the words."""
    print(HEAD)
    for setting in SETTINGS:
        if words and not any(word in setting.name for word in words):
            continue
        measured = coverage(setting.ends, setting.truth)
        held = "–" if measured.spoke < WHOLE else f"{measured.held:.3f}"
        print(
            f"| {setting.name} | {measured.spoke:.2f} | {held} | {measured.above:.3f} "
            f"| {measured.below:.3f} |",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
