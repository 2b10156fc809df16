from dataclasses import dataclass

import numpy as np
import pytest
import scipy

from attnprobe.evidence.claims import put_to_test
from attnprobe.evidence.deciding_words import (
    ALL_OUTPUTS_CLAIM,
    CLAIMS,
    FEWEST_TEXTS,
    GUARDS,
    LEAST_SHARE,
    LINE,
    LOWEST_CLASS_CLAIM,
    LOWEST_LABEL_CLAIM,
    LOWEST_OUTPUT_CLAIM,
    SHARE_CLAIM,
    Clusters,
    mean_reliability,
    share_on_deciding_words,
    shares_of_classes,
    shares_of_labels,
)
from attnprobe.evidence.verdicts import Verdict
from attnprobe.findings.judgement import judgement_on
from attnprobe.findings.rules import judge
from attnprobe.findings.track_record import NONE
from attnprobe.probes.swaps import share_by_output
from tests.probes.tables import table


@dataclass(frozen=True)
class Columns:
    """The numbers of the texts of some runs, `[runs, texts]`."""

    excess: np.ndarray
    room: np.ndarray
    strength: np.ndarray

    @property
    def share(self):
        return share_on_deciding_words(self.excess, self.room, self.strength)

    def of_texts(self, chosen):
        return Columns(self.excess[:, chosen], self.room[:, chosen], self.strength[:, chosen])


def columns(share, *, texts=100, runs=1, spread=0.1, strength=0.2, seed=0):
    """Texts whose shares lie around this one, all equally strong."""
    draw = np.random.default_rng(seed)
    of_text = share + spread * draw.standard_normal((1, texts))
    noise = 0.02 * draw.standard_normal((runs, texts))
    room = np.full((runs, texts), 0.9)
    return Columns((of_text + noise) * room, room, np.full((runs, texts), strength))


def test_the_share_is_the_ratio_of_sums_weighted_by_what_the_strongest_word_does():
    """A plain loop beside it."""
    draw = np.random.default_rng(1)
    excess = draw.normal(0.3, 0.2, 60)
    room = draw.uniform(0.7, 1, 60)
    strength = draw.uniform(-0.01, 0.3, 60)
    reference = np.mean(sorted(max(number, 0) for number in strength)[30:])
    above = 0.0
    below = 0.0
    for number in range(60):
        weight = min(max(strength[number] / reference, 0), 1)
        above += weight * excess[number]
        below += weight * room[number]
    share = share_on_deciding_words(excess[None], room[None], strength[None])
    assert share.value == pytest.approx(above / below, abs=1e-12)
    assert share.n == 60


def test_the_interval_over_texts_is_the_jackknifes_by_groups():
    numbers = columns(0.5, spread=0.3)
    share = numbers.share
    group = np.random.default_rng(0).permutation(100) % 20
    values = [numbers.of_texts(group != number).share.value for number in range(20)]
    error = np.sqrt(19 / 20 * np.sum((values - np.mean(values)) ** 2))
    half = scipy.stats.t.ppf(0.975, 19) * error
    assert share.low == pytest.approx(share.value - half, abs=1e-12)
    assert share.high == pytest.approx(share.value + half, abs=1e-12)


def test_texts_that_are_all_alike_still_have_an_interval():
    """As if two more texts were at the worst, or at the best."""
    share = columns(0.9, texts=40, spread=0.0).share
    assert share.low == pytest.approx((0.9 * 0.9 * 40 - 2) / (0.9 * 40 + 2), abs=0.01)
    assert share.high == pytest.approx((0.9 * 0.9 * 40 + 2) / (0.9 * 40 + 2), abs=0.01)


def test_runs_that_differ_widen_the_interval():
    numbers = columns(0.6, runs=3)
    shifted = numbers.excess + np.array([[-0.1], [0.0], [0.1]])
    apart = share_on_deciding_words(shifted, numbers.room, numbers.strength)
    alike = numbers.share
    assert apart.value == pytest.approx(alike.value, abs=1e-9)
    of_runs = scipy.stats.t.ppf(0.975, 2) * (0.1 / 0.9) / np.sqrt(3)
    assert apart.value - apart.low == pytest.approx(
        np.hypot(of_runs, alike.value - alike.low), rel=0.15
    )


@pytest.mark.parametrize("share", [1.4, -1.4])
def test_no_interval_leaves_its_scale(share):
    evidence = columns(share).share
    assert -1 <= evidence.low <= evidence.value <= evidence.high <= 1


@pytest.mark.parametrize("number_of_texts", [0, 1, 2])
def test_few_texts_are_no_error(number_of_texts):
    assert columns(0.5, texts=number_of_texts).share.unasked


def test_texts_that_were_not_examined_do_not_count():
    numbers = columns(0.5)
    with_others = Columns(
        *(
            np.append(column, [[np.nan, np.nan]], axis=1)
            for column in (numbers.excess, numbers.room, numbers.strength)
        )
    )
    assert with_others.share == numbers.share


def test_without_a_word_that_does_anything_it_is_not_asked():
    assert "no word moves the prediction" in columns(0.9, strength=0.004).share.unasked


def test_with_few_texts_that_words_decide_it_is_not_asked():
    numbers = columns(0.9)
    numbers.strength[:, 9:] = 0.0
    numbers.strength[:, :9] = 5.0
    reason = numbers.share.unasked
    assert "nothing to point at" in reason
    assert f"expected {FEWEST_TEXTS:g}" in reason


# Classes


def two_classes(first, second, texts=100):
    """Half of the texts are of class 0 with the first share, half of class 1 with the second."""
    predicted = np.arange(texts)[None] % 2
    numbers = columns(0.0)
    share = np.where(predicted == 1, second, first)
    return Columns(numbers.excess + share * numbers.room, numbers.room, numbers.strength), predicted


def test_each_class_has_its_share():
    numbers, predicted = two_classes(0.9, 0.2)
    parts = shares_of_classes(numbers.excess, numbers.room, numbers.strength, predicted)
    assert [part.predicted_class for part in parts] == [0, 1]
    assert [part.share.value for part in parts] == pytest.approx([0.9, 0.2], abs=0.05)
    assert [part.answer for part in parts] == ["yes", "no"]
    assert [part.texts for part in parts] == [50, 50]


def test_a_class_without_words_of_its_own_says_so():
    numbers, predicted = two_classes(0.9, 0.0)
    numbers.strength[predicted == 1] = 0.002
    parts = shares_of_classes(numbers.excess, numbers.room, numbers.strength, predicted)
    assert [part.answer for part in parts] == ["yes", "decided by no word of its own"]


def test_a_small_class_is_not_asked():
    numbers, predicted = two_classes(0.9, 0.0, texts=100)
    predicted = np.where(np.arange(100) < 8, 1, 0)[None]
    parts = shares_of_classes(numbers.excess, numbers.room, numbers.strength, predicted)
    assert parts[1].answer == "too few texts"


def test_intervals_that_hold_together_are_students_at_the_corrected_level():
    numbers = columns(0.6, texts=400, spread=0.3)
    part = np.arange(400)[None] % 4
    arguments = (numbers.excess, numbers.room, numbers.strength, part)
    alone = shares_of_classes(*arguments)
    together = shares_of_classes(*arguments, together=True)
    wider = scipy.stats.t.ppf(1 - 0.025 / 4, 19) / scipy.stats.t.ppf(0.975, 19)
    for one, other in zip(alone, together, strict=True):
        assert other.share.value == one.share.value
        half = one.share.value - one.share.low
        assert other.share.value - other.share.low == pytest.approx(wider * half, rel=1e-9)


def test_of_eight_parts_at_the_threshold_hardly_ever_one_is_said_to_be_above_it():
    """In 5 % of samples at most; parts of 60 texts, 300 samples."""
    part = np.arange(480)[None] % 8
    wrong = 0
    for sample in range(300):
        numbers = columns(LEAST_SHARE, texts=480, spread=0.6, seed=sample)
        parts = shares_of_classes(
            numbers.excess, numbers.room, numbers.strength, part, together=True
        )
        wrong += any(found.answer == "yes" for found in parts)
    assert wrong <= scipy.stats.binom.ppf(0.999, 300, 0.05)


def judged(numbers, **metrics):
    """The judgement on the line of the card, and those on its details."""
    texts = numbers.excess.shape[1]
    stored = {
        "swap_excess": numbers.excess[0],
        "swap_room": numbers.room[0],
        "swap_strength": numbers.strength[0],
        "swap_reliability": np.full(texts, 0.97),
        "swap_passes": np.full(texts, 400),
        "predicted_class": np.arange(texts) % 2,
    }
    findings = put_to_test((SHARE_CLAIM, LOWEST_CLASS_CLAIM), table("swaps", stored | metrics))
    return judge(findings, encoder="lstm")


def test_a_yes_takes_every_class_with_words():
    numbers, _ = two_classes(1.0, 0.2)
    judgements = judged(numbers)
    line = judgement_on(SHARE_CLAIM, judgements)
    lowest = judgement_on(LOWEST_CLASS_CLAIM, judgements)
    assert line.low > LEAST_SHARE
    assert line.verdict is Verdict.CANNOT_DECIDE
    assert line.reason == f"in class_1 the share is {lowest.value:.2f}"
    assert lowest.part == "class_1"
    assert lowest.verdict is Verdict.FAILS


@pytest.mark.parametrize(
    ("share", "reliability", "verdict"),
    [
        (0.2, 0.97, Verdict.NO_DIFFERENCE),
        (0.2, 0.8, Verdict.CANNOT_DECIDE),
        (0.8, 0.8, Verdict.MEETS),
    ],
)
def test_effects_that_are_not_reliable_give_no_no(share, reliability, verdict):
    """Noise makes the share smaller, so that a yes stays one."""
    judgements = judged(columns(share), swap_reliability=np.full(100, reliability))
    assert judgement_on(SHARE_CLAIM, judgements).verdict is verdict


def test_reliability_is_that_of_the_texts_that_count():
    strength = np.array([[0.2, 0.2, 0.0, 0.0]])
    reliability = np.array([[0.9, 1.0, -1.0, -1.0]])
    assert mean_reliability(reliability, strength) == pytest.approx(0.95)


@pytest.mark.parametrize("passes", [100, 200, 401])
def test_other_numbers_of_passes_cite_no_record(passes):
    line = judgement_on(SHARE_CLAIM, judged(columns(0.8), swap_passes=np.full(100, passes)))
    assert line.verdict is Verdict.MEETS
    assert not line.ticked
    assert line.track_record == NONE


def test_a_guard_is_a_claim_on_the_line_that_it_guards():
    assert {guard.claim.place for guard in GUARDS} == {LINE}
    assert {guard.claim for guard in GUARDS} < set(CLAIMS)


# Does the interval hold the truth?


@pytest.mark.parametrize(
    ("share", "spread", "texts", "runs"),
    [(0.5, 0.3, 100, 1), (0.5, 0.3, 30, 1), (0.9, 0.05, 50, 1), (0.5, 0.3, 60, 3), (0, 0.5, 60, 1)],
)
def test_the_interval_holds_the_truth(share, spread, texts, runs):
    """Of 300 samples, 93 % or more but for three standard errors."""
    held = 0
    for seed in range(300):
        evidence = columns(share, spread=spread, texts=texts, runs=runs, seed=seed).share
        held += evidence.low <= share <= evidence.high
    assert held / 300 > 0.93 - 3 * np.sqrt(0.05 * 0.95 / 300)


def test_a_share_at_the_threshold_is_rarely_a_yes():
    """The null: of texts with the least share 2.5 % may be a yes, but for three standard errors."""
    yes = sum(columns(LEAST_SHARE, seed=seed).share.low > LEAST_SHARE for seed in range(400))
    assert yes / 400 < 0.025 + 3 * np.sqrt(0.025 * 0.975 / 400)


def asked(shares, *, texts=40, noise=0.01, seed=0):
    """Texts that are each asked for one label per share, and what they have in common."""
    draw = np.random.default_rng(seed)
    text = np.repeat(np.arange(texts), len(shares))
    label = np.tile(np.arange(len(shares)), texts)
    of_row = np.asarray(shares)[label] + noise * draw.standard_normal(len(label))
    room = np.full((1, len(label)), 0.9)
    numbers = Columns(of_row[None] * room, room, np.full_like(room, 0.2))
    names = [f"label{number}" for number in range(len(shares))]
    return numbers, Clusters(text, label, names)


def share_of(numbers, clusters=None):
    return share_on_deciding_words(
        numbers.excess, numbers.room, numbers.strength, clusters=clusters
    )


def test_rows_of_one_text_are_left_out_together():
    """The jackknife over texts beside one over all rows, each row with its text's own share."""
    draw = np.random.default_rng(2)
    text = np.repeat(np.arange(15), 8)
    room = np.full((1, 120), 0.9)
    excess = (0.5 + 0.2 * draw.standard_normal(15))[text][None] * room
    numbers = Columns(excess, room, np.full_like(room, 0.2))
    together = share_of(numbers, Clusters(text))
    shares = [excess[:, text != left].sum() / room[:, text != left].sum() for left in range(15)]
    error = np.sqrt(14 / 15 * np.sum((shares - np.mean(shares)) ** 2))
    half = scipy.stats.t.ppf(0.975, 14) * error
    assert together.value - together.low == pytest.approx(half, abs=1e-12)
    assert together.n == 15
    apart = share_of(numbers)
    assert apart.value == together.value
    assert apart.high - apart.low < (together.high - together.low) / 2


def test_labels_that_differ_widen_the_interval_as_so_many_clusters():
    numbers, clusters = asked([0.1, 0.3, 0.5, 0.7, 0.9])
    wide = share_of(numbers, clusters)
    over_texts = share_of(numbers, Clusters(clusters.text))
    without = []
    for label in range(5):
        kept = clusters.label != label
        without.append(numbers.excess[:, kept].sum() / numbers.room[:, kept].sum())
    error = np.sqrt(4 / 5 * np.sum((without - np.mean(without)) ** 2))
    half = np.hypot(scipy.stats.t.ppf(0.975, 4) * error, over_texts.value - over_texts.low)
    assert wide.value - wide.low == pytest.approx(half, rel=0.05)
    alike, clusters = asked([0.5] * 5)
    narrow = share_of(alike, clusters)
    assert narrow.high - narrow.low < (wide.high - wide.low) / 4


def test_the_share_of_a_label_is_that_of_its_rows_alone():
    numbers, clusters = asked([0.1, 0.8, 0.5], texts=60)
    labels = shares_of_labels(numbers.excess, numbers.room, numbers.strength, clusters=clusters)
    assert [label.label for label in labels] == ["label0", "label1", "label2"]
    for number, label in enumerate(labels):
        own = numbers.of_texts(clusters.label == number).share
        assert label.part.share.value == pytest.approx(own.value, abs=1e-12)
        assert label.part.texts == 60
    assert [label.part.answer for label in labels] == ["no", "yes", "yes"]


def test_a_table_whose_rows_ask_for_labels_is_judged_by_texts_and_labels():
    numbers, clusters = asked([0.1, 0.9], texts=60)
    metrics = {
        "swap_excess": numbers.excess[0],
        "swap_room": numbers.room[0],
        "swap_strength": numbers.strength[0],
    }
    results = table("swaps", metrics)
    run = str(results["run_id"].iloc[0])
    first = {row: row - row % 2 for row in range(1, 120, 2)}
    results.attrs["asked"] = {run: first}
    names = {row: f"label{row % 2}" for row in range(120)}
    results.attrs["asked_labels"] = {run: names}
    evidence = SHARE_CLAIM.measure(results)
    expected = share_of(numbers, clusters)
    assert evidence.n == 60
    assert evidence.value == pytest.approx(expected.value, abs=1e-12)
    assert evidence.low == pytest.approx(expected.low, abs=1e-12)
    lowest = LOWEST_LABEL_CLAIM.measure(results)
    assert lowest.part == "label label0"
    assert lowest.value == pytest.approx(0.1, abs=0.01)
    del results.attrs["asked_labels"]
    assert LOWEST_LABEL_CLAIM.measure(results) is None


def test_of_every_class_predicted_or_not_a_text_counts_once():
    parts = [
        columns(share, strength=strength, seed=3)
        for share, strength in ((0.9, 0.2), (0.2, 0.1), (0.6, 0.2))
    ]
    metrics = {}
    for number, part in enumerate(parts):
        metrics[f"output_excess_class_{number}"] = part.excess[0]
        metrics[f"output_room_class_{number}"] = part.room[0]
        metrics[f"output_strength_class_{number}"] = part.strength[0]
    results = table("swaps", metrics)
    evidence = ALL_OUTPUTS_CLAIM.measure(results)
    joined = (
        np.concatenate([getattr(part, name)[0] for part in parts])[None]
        for name in ("excess", "room", "strength")
    )
    clusters = Clusters(np.tile(np.arange(100), 3))
    expected = share_on_deciding_words(*joined, clusters=clusters)
    assert (evidence.n, evidence.value) == (100, pytest.approx(expected.value, abs=1e-12))
    assert evidence.low == pytest.approx(expected.low, abs=0.02)
    lowest = LOWEST_OUTPUT_CLAIM.measure(results)
    assert lowest.part == "class_1"
    assert lowest.value == pytest.approx(parts[1].share.value, abs=1e-12)
    results.attrs["classes"] = ["bad", "so-so", "good"]
    shares = share_by_output(results).set_index("class")
    assert shares["answer"].to_dict() == {"bad": "yes", "so-so": "no", "good": "yes"}


def test_a_class_that_no_word_moves_is_not_the_one_where_it_holds_least():
    metrics = {}
    for number, (share, strength) in enumerate(((0.9, 0.2), (0.8, 0.2), (-0.5, 0.001))):
        part = columns(share, strength=strength)
        metrics[f"output_excess_class_{number}"] = part.excess[0]
        metrics[f"output_room_class_{number}"] = part.room[0]
        metrics[f"output_strength_class_{number}"] = part.strength[0]
    assert LOWEST_OUTPUT_CLAIM.measure(table("swaps", metrics)).part == "class_1"


def outputs_of(shares, *, texts=40, spread=0.1, seed=0):
    """A table in which each class, predicted or not, has its share."""
    metrics = {}
    for number, share in enumerate(shares):
        part = columns(share, texts=texts, spread=spread, seed=(seed, number))
        metrics[f"output_excess_class_{number}"] = part.excess[0]
        metrics[f"output_room_class_{number}"] = part.room[0]
        metrics[f"output_strength_class_{number}"] = part.strength[0]
    return table("swaps", metrics)


@pytest.mark.parametrize("samples", [25, pytest.param(300, marks=pytest.mark.slow)])
def test_of_eight_classes_at_the_threshold_hardly_ever_one_is_said_to_have_less(samples):
    """In 5 % of samples at most; asked alone, one of them has less in more than 10 %."""
    said_less = said_more = one_alone_has_less = 0
    for sample in range(samples):
        lowest = LOWEST_OUTPUT_CLAIM.measure(outputs_of([LEAST_SHARE] * 8, spread=0.6, seed=sample))
        said_less += lowest.exceeds(LEAST_SHARE) is Verdict.FAILS
        said_more += lowest.exceeds(LEAST_SHARE) is Verdict.MEETS
        alone = [columns(LEAST_SHARE, texts=40, spread=0.6, seed=(sample, n)) for n in range(8)]
        one_alone_has_less += any(part.share.high < LEAST_SHARE for part in alone)
    assert said_less <= scipy.stats.binom.ppf(0.999, samples, 0.05)
    assert said_more == 0
    assert one_alone_has_less > 0.1 * samples


@pytest.mark.parametrize(
    ("shares", "verdict"),
    [
        ([0.9, 0.1, 0.9, 0.9], Verdict.FAILS),
        ([0.9, 0.7, 0.8, 0.9], Verdict.MEETS),
        ([0.9, 0.4, 0.9, 0.9], Verdict.CANNOT_DECIDE),
    ],
)
def test_one_class_with_less_is_still_found(shares, verdict):
    lowest = LOWEST_OUTPUT_CLAIM.measure(outputs_of(shares))
    assert lowest.part == "class_1"
    assert lowest.exceeds(LEAST_SHARE) is verdict


def test_in_every_class_is_no_yes_where_another_class_than_the_lowest_is_open():
    numbers, predicted = two_classes(0.6, 0.65, texts=100)
    draw = np.random.default_rng(0)
    noise = draw.standard_normal(100) * (predicted[0] == 1)
    noise -= noise.sum() / (predicted == 1).sum() * (predicted[0] == 1)
    wide = Columns(numbers.excess + 2 * noise * numbers.room, numbers.room, numbers.strength)
    lowest = judgement_on(LOWEST_CLASS_CLAIM, judged(wide))
    assert lowest.part == "class_0"
    assert lowest.value > LEAST_SHARE
    assert lowest.verdict is Verdict.CANNOT_DECIDE
    parts = shares_of_classes(wide.excess, wide.room, wide.strength, predicted)
    assert [part.answer for part in parts] == ["yes", "open"]
