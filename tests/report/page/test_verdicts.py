from attnprobe.report.claims import Claim, Finding
from attnprobe.report.evidence import Evidence
from attnprobe.report.page.runs import Group
from attnprobe.report.page.verdicts import KINDS, MARKS, JudgedClaim, cards, in_words
from attnprobe.report.verdicts import LINES, MEETS, NOT_TESTED, STATES

GROUP = Group("sst", "lstm", "", ())
ABOVE, BELOW, ACROSS = (0.2, 0.1, 0.3), (-0.2, -0.3, -0.1), (0.0, -0.1, 0.1)


def judged_claim(numbers, speaks="for", criterion="erasure", group=GROUP, name="c", primary=False):
    claim = Claim(
        name, criterion, "A claim", "A paper", lambda _: None, "share, 0 to 1", speaks=speaks, level="word",
        primary=primary,
    )  # fmt: skip
    return JudgedClaim(Finding(claim, Evidence(*numbers, n=10), group.data, group.model), group, "test-x")


def test_every_state_has_a_sign_and_a_colour():
    assert set(MARKS) == set(KINDS) == set(STATES)


def test_a_card_has_a_line_for_every_criterion_and_level_and_its_own_group_only():
    other = Group("sst", "cnn", "", ())
    given = [
        judged_claim(ABOVE, primary=True), judged_claim(BELOW, name="d"), judged_claim(ABOVE, "neither", name="e"),
        judged_claim(BELOW, group=other, primary=True),
    ]  # fmt: skip
    first, second = cards([GROUP, other], given)
    lines = {(line.verdict.criterion, line.verdict.level): line for line in first.lines}
    assert set(lines) == set(LINES)
    word = lines["erasure", "word"]
    assert (word.verdict.state, word.primary, word.details) == (MEETS, given[0], (given[1],))
    assert lines["agreement", "word"].verdict.state == NOT_TESTED
    assert second.lines[5].verdict.met is False
    assert first.sentence != second.sentence


def test_a_sentence_says_what_is_decided_and_no_more():
    assert in_words([]) == ""
    assert in_words([judged_claim(ABOVE), judged_claim(ACROSS, name="d")]) == (
        "2 claims were put to the test: 1 × yes and 1 × undecided."
    )
    several = [judged_claim(ABOVE), judged_claim(BELOW, group=Group("sst", "cnn", "", ()))]
    assert in_words(several) == (
        "1 claim was put to the test on 2 models (data set × model), 2 tests in all: 1 × yes and 1 × no."
    )
