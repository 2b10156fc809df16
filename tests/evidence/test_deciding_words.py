from dataclasses import dataclass

import numpy as np
import pytest

from attnprobe.evidence.claims import put_to_test
from attnprobe.evidence.deciding_words import (
    CLAIMS,
    GUARDS,
    LEAST_BOUND,
    LINE,
    PLACEMENT_CLAIM,
    placement_of,
)
from attnprobe.findings.judgement import judgement_on
from attnprobe.findings.rules import judge
from attnprobe.findings.track_record import NONE
from tests.probes.tables import table


@dataclass(frozen=True)
class Columns:
    """The numbers of the texts of one run, around these means."""

    gain: np.ndarray
    scale: np.ndarray
    bound: np.ndarray


def columns(gain, scale, bound, texts=60, spread=0.05):
    draw = np.random.default_rng(0)
    return Columns(
        *(mean + spread * draw.standard_normal((1, texts)) for mean in (gain, scale, bound))
    )


def placed(numbers):
    return placement_of(numbers.gain, numbers.scale, numbers.bound)


@pytest.mark.parametrize(("passes", "cited"), [(400, True), (200, False)])
def test_a_verdict_cites_the_record_of_as_many_passes_and_of_no_others(passes, cited):
    numbers = columns(0.55, 0.6, 0.8)
    metrics = {
        "swap_gain": numbers.gain[0],
        "swap_scale": numbers.scale[0],
        "swap_bound": numbers.bound[0],
        "swap_passes": np.full(60, passes),
    }
    (finding,) = put_to_test((PLACEMENT_CLAIM,), table("swaps", metrics))
    line = judgement_on(PLACEMENT_CLAIM, judge([finding], encoder="lstm"))
    assert line.verdict == "meets"
    assert line.ticked is cited
    assert (line.track_record != NONE) is cited


def test_placement_is_the_ratio_of_sums_over_texts_that_have_something_to_point_at():
    numbers = columns(0.3, 0.6, 0.8)
    numbers.bound[0, :10] = 0.05
    numbers.gain[0, :10] = -1.0  # nothing to point at
    numbers.gain[0, 10] = np.nan
    counts = (numbers.bound > LEAST_BOUND) & ~np.isnan(numbers.gain)
    evidence = placed(numbers)
    gain = numbers.gain[counts] / numbers.bound[counts]
    scale = numbers.scale[counts] / numbers.bound[counts]
    assert evidence.value == pytest.approx(gain.sum() / scale.sum(), abs=1e-12)
    assert evidence.n == counts.sum()
    assert evidence.low < 0.5 < evidence.high


@pytest.mark.parametrize(
    ("means", "reason"),
    [
        ((0.3, 0.6, 0.05), "nothing to point at"),
        ((0.0, 0.01, 0.8), "too even"),
        ((0.5, 0.01, 0.8), "too even"),
    ],
)
def test_placement_is_not_asked_where_nothing_could_be_gained(means, reason):
    assert reason in placed(columns(*means)).unasked


@pytest.mark.parametrize("gain", [0.9, -0.9])
def test_placement_stays_on_its_scale(gain):
    evidence = placed(columns(gain, 0.4, 0.8))
    assert -1 <= evidence.low <= evidence.value <= evidence.high <= 1


def test_a_guard_is_a_claim_on_the_line_that_it_guards():
    assert {guard.claim.place for guard in GUARDS} == {LINE}
    assert {guard.claim for guard in GUARDS} < set(CLAIMS)
