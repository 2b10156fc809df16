import numpy as np
import pytest

from attnprobe.report.claims import Claim, Evidence, Finding
from attnprobe.report.page.runs import Group
from attnprobe.report.page.verdicts import (
    CANNOT_DECIDE,
    FAILS,
    MEETS,
    MIXED,
    NOT_TESTED,
    Outcome,
    cards,
    in_words,
    verdict_of,
)

GROUP = Group("sst", "lstm", "", ())
ABOVE, BELOW, ACROSS = (0.2, 0.1, 0.3), (-0.2, -0.3, -0.1), (0.0, -0.1, 0.1)


def outcome(numbers, speaks="for", criterion="erasure", group=GROUP, name="c"):
    claim = Claim(name, criterion, "A claim", "A paper", lambda _: None, "share, 0 to 1", speaks=speaks)
    return Outcome(Finding(claim, Evidence(*numbers, n=10), group.data, group.model), group, "test-x")


@pytest.mark.parametrize(
    ("given", "verdict"),
    [
        ([], NOT_TESTED),
        ([(ABOVE, "neither")], NOT_TESTED),
        ([(ACROSS, "for")], CANNOT_DECIDE),
        ([((0.5, np.nan, np.nan), "for")], CANNOT_DECIDE),
        ([(ABOVE, "for")], MEETS),
        ([(BELOW, "against")], MEETS),
        ([(BELOW, "for")], FAILS),
        ([(ABOVE, "against"), (ACROSS, "for")], FAILS),
        ([(ABOVE, "for"), (ABOVE, "against")], MIXED),
        ([(ABOVE, "for"), (ACROSS, "for"), (ABOVE, "neither")], MEETS),
    ],
)
def test_claims_of_one_criterion_are_never_averaged(given, verdict):
    assert verdict_of([outcome(*one) for one in given]) == verdict


def test_a_card_has_a_line_for_every_criterion_and_its_own_group_only():
    other = Group("sst", "cnn", "", ())
    made = cards([GROUP, other], [outcome(ABOVE), outcome(BELOW, group=other), outcome(ABOVE, "neither")])
    lines = {line.criterion: line for line in made[0].lines}
    assert lines["erasure"].verdict == MEETS
    assert len(lines["erasure"].outcomes) == 1
    assert {line.verdict for name, line in lines.items() if name != "erasure"} == {NOT_TESTED}
    assert {line.criterion: line.verdict for line in made[1].lines}["erasure"] == FAILS


def test_two_sentences_say_what_is_decided_and_no_more():
    assert in_words([]) == ""
    assert in_words([outcome(ABOVE), outcome(ACROSS, name="d")]) == (
        "2 claims were put to the test: 1 holds and 1 cannot be decided by its interval. By what is decided, this "
        "attention meets “erasure”, as far as this test goes."
    )
    assert in_words([outcome(ACROSS)]).endswith("On “erasure” nothing is decided for this attention.")
    assert "about the test itself" in in_words([outcome(ABOVE, "neither")])
    several = [outcome(ABOVE), outcome(BELOW, group=Group("sst", "cnn", "", ()))]
    assert in_words(several) == (
        "1 claim was put to the test on 2 models (data set × model), 2 tests in all: 1 holds and 1 does not. By what is "
        "decided, “erasure” is met by 1 of 2 models and failed by 1; this goes as far as this test does."
    )
