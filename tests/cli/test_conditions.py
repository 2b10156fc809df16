import re
from argparse import ArgumentTypeError

import pytest

from attnprobe.cli.conditions import FAILED, condition, judge, refuse_mistyped
from attnprobe.core.errors import UserError
from attnprobe.findings.lines import CARD, LINES
from attnprobe.readings.registry import readings

NUMBERS = {
    "performance.accuracy": 0.8,
    "correlation.tau_attention_leave_one_out": 0.4,
    "adversarial.optimum_jsd": 0.6,
    "correlation.undefined": float("nan"),
    "agreement.random": 0.1,
    "single_weight.random": 0.3,
    "first.performance.accuracy": 0.9,
    "change.performance.accuracy": -0.05,
    "agreement": 0.15,
    "first.agreement": 0.25,
    "erasure.state": 0.5,
    "erasure.word": 0.1,
    "erasure.weights_follow_words": 0.1,
}
VERDICTS = {
    "exclusivity": "fails",
    "agreement": "cannot decide",
    "erasure.word": "fails",
    "erasure.state": "meets",
    "erasure.weights_follow_words": "fails",
    "first.agreement": "meets",
}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("agreement < 0.2", True),  # the verdict's number, not a probe's
        ("agreement<0.15", False),
        ("agreement <= 0.15", True),
        ("correlation.tau_attention_leave_one_out < 0.2", False),
        ("  accuracy >= .8 ", True),
        ("performance.accuracy > 0.8", False),
        ("optimum_jsd == 6e-1", True),
        ("change.accuracy < -0.02", True),
        ("first.accuracy > 0.8", True),
        ("first.agreement > 0.2", True),
        ("first.agreement == meets", True),
        ("exclusivity == fails", True),
        ("exclusivity != fails", False),
        ("agreement == cannot decide", True),
        ("erasure.word < 0.2", True),
        ("erasure.state != meets", False),
        ("weights_follow_words == fails", True),
    ],
)
def test_a_condition_holds_or_does_not(text, holds):
    assert condition(text).holds(NUMBERS, VERDICTS)[0] is holds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "agreement",
        "agreement <",
        "< 0.2",
        "agreement < 0.2 or 1",
        "agreement < low",
        "a=1",
        "agreement << 1",
        "a..b < 1",
        "agreement < 0.2; import os",
        "__import__('os').system('x') < 1",
        "agreement < 1" + "0" * 300,
        "exclusivity == Fails()",
    ],
)
def test_anything_else_is_refused(text):
    with pytest.raises(ArgumentTypeError):
        condition(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("agrement < 0.2", "no number called 'agrement'; did you mean agreement"),
        ("undefined < 0.2", "correlation.undefined is undefined here"),
        (
            "necessity == fails",
            r"'necessity' was not tested here \(\+experiment=audit tests it\)"
            r".*There is agreement, ",
        ),
        (
            "plausibility < 0.1",
            r"'plausibility' was not tested here \(probe=\[plausibility\] tests it",
        ),
        ("erasure < 0.1", "'erasure' may be erasure.state or erasure.word: name one"),
        ("erasure == fails", "'erasure' may be "),
        ("random < 0.1", "'random' may be agreement.random or single_weight.random: name one"),
        ("beauty == fails", "no verdict on 'beauty'"),
        ("farthest < 0.5", "no number called 'farthest'"),
        ("change.agreement < 0", "was not tested here"),
    ],
)
def test_what_cannot_be_judged_is_one_line_and_never_passes(text, message):
    with pytest.raises(UserError, match=message) as raised:
        judge([condition(text)], NUMBERS, VERDICTS)
    assert "\n" not in str(raised.value)


def test_no_verdicts_or_claims_name_is_a_probes_number():
    metrics = set()
    claims = set()
    for probe, reading in readings().items():
        metrics |= {f"{probe}.{headline.key}" for headline in reading.headlines}
        claims |= {f"{claim.criterion}.{claim.name}" for claim in reading.claims}
    lines = set()
    for criterion, level in LINES:
        lines |= {criterion, f"{criterion}.{level}"}
    assert not metrics & (claims | lines)
    assert not claims & lines


def test_judging_names_what_holds_and_sets_the_status(capsys):
    texts = ["agreement < 0.2", "accuracy < 0.5", "exclusivity == fails"]
    with pytest.raises(SystemExit) as ended:
        judge([condition(text) for text in texts], NUMBERS, VERDICTS)
    assert ended.value.code == FAILED == 3
    assert capsys.readouterr().out.splitlines() == [
        "failed: agreement < 0.2 (agreement is 0.15)",
        "failed: exclusivity == fails (exclusivity is fails)",
    ]


def test_judging_says_that_no_condition_holds(capsys):
    judge([condition("accuracy < 0.5")], NUMBERS, VERDICTS)
    assert capsys.readouterr().out == "passed: none of 1 condition holds\n"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("agrement < 0.2", "did you mean agreement?"),
        ("erasure.wrd != yes", "did you mean erasure.word?"),
        ("stabilty.model == no", "did you mean stability.model?"),
    ],
)
def test_a_misspelt_verdict_is_refused_before_the_work(text, answer):
    with pytest.raises(UserError, match=re.escape(answer)):
        refuse_mistyped([condition(text)])


def test_no_name_of_a_claim_or_a_number_is_taken_for_a_misspelt_one():
    names = {f"{line.criterion}.{line.level}" for line in CARD}
    for reading in readings().values():
        names |= {f"{claim.criterion}.{claim.name}" for claim in reading.claims}
        for number in reading.headlines:
            names |= {f"{reading.probe}.{number.key}", number.key}
    refuse_mistyped([condition(f"{name} < 1") for name in sorted(names) if name.islower()])


def test_without_conditions_nothing_is_judged():
    judge([], {}, {})
