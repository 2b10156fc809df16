from argparse import ArgumentTypeError

import pytest

from attnprobe.command.conditions import FAILED, condition, judge
from attnprobe.errors import UserError

NUMBERS = {
    "performance.accuracy": 0.8,
    "correlation.tau_attention_leave_one_out": 0.15,
    "adversarial.optimum_jsd": 0.6,
    "correlation.undefined": float("nan"),
    "change.accuracy": -0.05,
}
VERDICTS = {"exclusivity": "fails", "agreement": "cannot decide"}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("agreement < 0.2", True),
        ("agreement<0.15", False),
        ("agreement <= 0.15", True),
        ("  accuracy >= .8 ", True),
        ("performance.accuracy > 0.8", False),
        ("optimum_jsd == 6e-1", True),
        ("change.accuracy < -0.02", True),
        ("exclusivity == fails", True),
        ("exclusivity != fails", False),
        ("agreement == cannot decide", True),
    ],
)
def test_a_condition_holds_or_does_not(text, holds):
    one = condition(text)
    assert one.holds(one.found(NUMBERS, VERDICTS)) is holds


@pytest.mark.parametrize(
    "text",
    [
        "", "agreement", "agreement <", "< 0.2", "agreement < 0.2 or 1", "agreement < low", "a=1", "agreement << 1",
        "a..b < 1", "agreement < 0.2; import os", "__import__('os').system('x') < 1", "agreement < 1" + "0" * 300,
        "exclusivity == Fails()",
    ],
)  # fmt: skip
def test_anything_else_is_refused(text):
    with pytest.raises(ArgumentTypeError):
        condition(text)


def test_what_cannot_be_judged_is_a_mistake_and_never_passes():
    for text, message in {
        "agrement < 0.2": "no number called 'agrement'; did you mean agreement",
        "undefined < 0.2": "correlation.undefined is undefined here",
        "necessity == fails": "no verdict on 'necessity'. There is agreement, exclusivity",
    }.items():
        with pytest.raises(UserError, match=message):
            judge([condition(text)], NUMBERS, VERDICTS)


def test_judging_names_what_holds_and_sets_the_status(capsys):
    with pytest.raises(SystemExit) as ended:
        judge(
            [condition("agreement < 0.2"), condition("accuracy < 0.5"), condition("exclusivity == fails")],
            NUMBERS,
            VERDICTS,
        )
    assert ended.value.code == FAILED == 3
    assert capsys.readouterr().out.splitlines() == [
        "failed: agreement < 0.2 (agreement is 0.15)",
        "failed: exclusivity == fails (exclusivity is fails)",
    ]
    judge([condition("accuracy < 0.5")], NUMBERS, VERDICTS)
    assert capsys.readouterr().out == "passed: none of 1 condition holds\n"
    judge([], {}, {})
