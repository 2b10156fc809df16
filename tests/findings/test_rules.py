from dataclasses import replace

import numpy as np
import pytest

from attnprobe.evidence.verdicts import Verdict
from attnprobe.findings.lines import LINES, NECESSITY, NEEDS_MARKS, PLAUSIBILITY, WORDS
from attnprobe.findings.rules import judge
from tests.findings.cards import ABOVE, ACROSS, BELOW, WITHIN, finding

AGREEMENT = ("agreement", "word")
NO_INTERVAL = (0.5, np.nan, np.nan)


def lines_of(findings, **settings):
    """Criterion and level → line of the card."""
    judgements = judge(findings, **settings)
    return {judgement.place: judgement for judgement in judgements if judgement.primary}


@pytest.mark.parametrize(
    ("primary", "verdict"),
    [
        pytest.param(finding(ABOVE), Verdict.MEETS, id="above"),
        pytest.param(finding(BELOW), Verdict.FAILS, id="below"),
        pytest.param(finding(ACROSS), Verdict.CANNOT_DECIDE, id="across"),
        pytest.param(finding(WITHIN), Verdict.NO_DIFFERENCE, id="within"),
        pytest.param(finding(NO_INTERVAL), Verdict.CANNOT_DECIDE, id="no interval"),
        pytest.param(finding(ABOVE, rare=True), Verdict.TOO_RARE, id="rare"),
        pytest.param(finding(ABOVE, unasked="why"), Verdict.NOT_INFORMATIVE, id="not asked"),
        pytest.param(finding(ABOVE, primary=False), Verdict.NOT_TESTED, id="a detail"),
    ],
)
def test_a_line_goes_by_its_primary_claim(primary, verdict):
    lines = lines_of([primary, finding(BELOW, primary=False, name="d")])
    assert lines.pop(WORDS.place).verdict == verdict
    assert {WORDS.place, *lines} == set(LINES)
    assert {line.verdict for line in lines.values()} == {Verdict.NOT_TESTED}


BARELY = (0.3, 0.105, 0.495)
"""p = 0.044 against the smallest difference, 0.1."""


def test_one_claim_alone_is_not_corrected():
    lines = lines_of([finding(BARELY)])
    assert lines[WORDS.place].verdict == Verdict.MEETS


def test_a_card_is_corrected_for_the_number_of_its_claims():
    lines = lines_of([finding(BARELY), finding(BARELY, *AGREEMENT)])
    words = lines[WORDS.place]
    agreement = lines[AGREEMENT]
    assert words.verdict == Verdict.CANNOT_DECIDE
    assert agreement.verdict == Verdict.CANNOT_DECIDE
    assert "among all the claims" in words.reason
    assert words.p == pytest.approx(2 * 0.044, abs=2e-3)


def test_a_claim_that_is_clear_does_not_cost_the_others_their_verdict():
    lines = lines_of([finding(ABOVE), finding(BARELY, *AGREEMENT)])
    assert lines[WORDS.place].verdict == Verdict.MEETS
    assert lines[AGREEMENT].verdict == Verdict.MEETS


def test_a_model_that_guesses_has_no_verdict_at_all():
    findings = [finding(ABOVE), finding(BELOW, *NECESSITY.place)]
    lines = lines_of(findings, guessing="accuracy 0.500").values()
    assert {line.verdict for line in lines} == {Verdict.NOT_MEANINGFUL, Verdict.NOT_TESTED}
    assert {line.answer for line in lines} == {"open", "untested"}


@pytest.mark.parametrize(
    ("needed", "verdict"),
    [
        (WITHIN, Verdict.NOT_INFORMATIVE),
        (BELOW, Verdict.NOT_INFORMATIVE),
        (ACROSS, Verdict.MEETS),
    ],
)
def test_where_attention_is_shown_not_to_be_needed_no_other_line_is_informative(needed, verdict):
    lines = lines_of([finding(ABOVE), finding(needed, *NECESSITY.place)])
    assert lines[WORDS.place].verdict == verdict
    assert lines[NECESSITY.place].verdict != Verdict.NOT_INFORMATIVE


def test_two_primary_claims_of_one_line_are_a_mistake():
    with pytest.raises(ValueError, match="d and c: two primary claims"):
        judge([finding(ABOVE), finding(ABOVE, name="d")])


def test_an_untested_line_names_the_setting_that_tests_it():
    untested = lines_of([])
    assert untested.keys() == LINES.keys()
    for place, line in LINES.items():
        assert untested[place].reason == line.tested_by


def test_plausibility_without_marked_words_needs_a_column_of_them():
    lines = lines_of([], marked=False)
    assert lines[PLAUSIBILITY.place].reason == NEEDS_MARKS


def test_a_claim_at_a_level_of_its_own_adds_a_line():
    lines = lines_of([finding(ABOVE, "agreement", "state")])
    assert list(lines) == [*LINES, ("agreement", "state")]
    assert lines["agreement", "state"].verdict == Verdict.MEETS


def test_the_judgements_are_the_card_and_then_the_details():
    about_the_test = finding(ABOVE, primary=False, speaks="neither", name="e")
    detail = finding(BELOW, primary=False, name="d")
    judgements = judge([detail, finding(ABOVE), about_the_test])
    card = judgements[: len(LINES)]
    details = judgements[len(LINES) :]
    assert all(line.primary for line in card)
    assert [line.claim for line in card[5:]] == ["c", "", ""]
    assert [judgement.claim for judgement in details] == ["d", "e"]
    assert not any(judgement.primary for judgement in details)


def test_a_line_says_what_its_claim_and_its_number_say():
    word = lines_of([finding(ABOVE)])[WORDS.place]
    assert (word.criterion, word.level) == ("erasure", "word")
    assert word.verdict == Verdict.MEETS
    assert (word.value, word.low, word.high) == ABOVE
    assert word.smallest == 0.1
    assert word.section == "test-x"


def test_a_detail_is_not_corrected():
    detail = judge([finding(BELOW, primary=False, name="d")])[-1]
    assert detail.verdict == detail.interval_verdict == Verdict.FAILS


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        (ABOVE, "why not"),
        (ACROSS, ""),
        (BELOW, ""),
    ],
)
def test_a_detail_says_what_keeps_it_from_a_yes_where_its_number_would_be_one(numbers, reason):
    tested = finding(numbers, primary=False, name="d")
    tested = replace(tested, evidence=replace(tested.evidence, no_yes="why not"))
    detail = judge([tested])[-1]
    assert detail.reason == reason
    assert detail.verdict is not Verdict.MEETS


def test_what_the_number_says_by_itself_is_kept():
    word = lines_of([finding(ABOVE)], guessing="by a coin")[WORDS.place]
    assert word.verdict == Verdict.NOT_MEANINGFUL
    assert word.interval_verdict == Verdict.MEETS


def test_a_yes_about_trained_models_needs_no_record():
    about_the_model = lines_of([finding(ABOVE, *NECESSITY.place)])
    about_training = lines_of([finding(ABOVE, "leak", "model")])
    assert about_the_model[NECESSITY.place].ticked
    assert not about_training["leak", "model"].ticked
