import numpy as np
import pytest

from attnprobe.evidence.claims import put_to_test
from attnprobe.evidence.deciding_words import LEAST_BOUND, PLACEMENT_CLAIM, placement_of
from attnprobe.findings.judgement import judgement_on
from attnprobe.findings.rules import judge
from attnprobe.findings.track_record import NONE
from tests.probes.tables import table


def columns(gain, scale, bound, texts=60, spread=0.05):
    draw = np.random.default_rng(0)
    return (np.array([one + spread * draw.standard_normal(texts)]) for one in (gain, scale, bound))


@pytest.mark.parametrize(("passes", "cited"), [(400, True), (200, False)])
def test_a_verdict_cites_the_record_of_as_many_passes_and_of_no_others(passes, cited):
    claim = PLACEMENT_CLAIM
    gain, scale, bound = columns(0.55, 0.6, 0.8)
    numbers = {
        "swap_gain": gain,
        "swap_scale": scale,
        "swap_bound": bound,
        "swap_passes": np.full_like(gain, passes),
    }
    (finding,) = put_to_test(
        (claim,), table("swaps", {metric: column[0] for metric, column in numbers.items()})
    )
    line = judgement_on(claim, judge([finding], encoder="lstm"))
    assert line.verdict == "meets"
    assert line.ticked is cited
    assert (line.track_record != NONE) is cited


def test_placement_is_the_ratio_of_sums_over_texts_that_have_something_to_point_at():
    gain, scale, bound = columns(0.3, 0.6, 0.8)
    bound[0, :10] = 0.05
    gain[0, :10] = -1.0  # nothing to point at
    gain[0, 10] = np.nan
    has = (bound > LEAST_BOUND) & ~np.isnan(gain)
    evidence = placement_of(gain, scale, bound)
    expected = (gain[has] / bound[has]).sum() / (scale[has] / bound[has]).sum()
    assert evidence.value == pytest.approx(expected, abs=1e-12)
    assert evidence.n == has.sum()
    assert evidence.low < 0.5 < evidence.high


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ((0.3, 0.6, 0.05), "nothing to point at"),
        ((0.0, 0.01, 0.8), "too even"),
        ((0.5, 0.01, 0.8), "too even"),
    ],
)
def test_placement_is_not_asked_where_nothing_could_be_gained_and_stays_on_its_scale(parts, said):
    assert said in placement_of(*columns(*parts)).unasked
    for gain in (0.9, -0.9):
        evidence = placement_of(*columns(gain, 0.4, 0.8))
        assert -1 <= evidence.low <= evidence.value <= evidence.high <= 1
