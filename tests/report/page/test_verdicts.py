"""Cards and sections out of the table of findings."""

import pandas as pd

from attnprobe.evidence.claims import Claim, Finding
from attnprobe.evidence.evidence import MEETS, NOT_TESTED, VERDICTS, Evidence
from attnprobe.findings.groups import Group
from attnprobe.findings.verdicts import LINES, first_sentence, judge
from attnprobe.report.page.glossary import KINDS
from attnprobe.report.page.sections import by_claim, cards, in_words
from attnprobe.report.terminal import MARKS

GROUP, OTHER = (Group("sst", model, "", ()) for model in ("lstm", "cnn"))
ABOVE, BELOW, ACROSS = (0.2, 0.1, 0.3), (-0.2, -0.3, -0.1), (0.0, -0.1, 0.1)


def finding(numbers, speaks="for", name="c", primary=False):
    claim = Claim(
        name,
        "erasure",
        "A claim",
        "A paper",
        lambda _: None,
        "share, 0 to 1",
        speaks=speaks,
        level="word",
        primary=primary,
    )
    return "test-x", Finding(claim, Evidence(*numbers, n=10), "sst", "m")


def table(**findings):
    """Rows of groups by their titles' ends."""
    parts = [judge(own).assign(group=f"sst · {model}") for model, own in findings.items()]
    return pd.concat([part.assign(sentence=first_sentence(part)) for part in parts], ignore_index=True)


def test_every_verdict_has_a_sign_and_a_colour():
    assert set(MARKS) == set(KINDS) == set(VERDICTS)


def test_a_card_has_a_line_for_every_criterion_and_level_and_its_own_group_only():
    given = [finding(ABOVE, primary=True), finding(BELOW, name="d"), finding(ABOVE, "neither", name="e")]
    rows = table(lstm=given, cnn=[finding(BELOW, primary=True)])
    first, second = cards([GROUP, OTHER], rows)
    lines = {(line.criterion, line.level): (name, line, details) for name, line, details in first["lines"]}
    assert set(lines) == set(LINES)
    name, word, details = lines["erasure", "word"]
    assert (name, word.verdict, word.claim, [one.claim for one in details]) == ("erasure.word", MEETS, "c", ["d"])
    name, agreement, _ = lines["agreement", "word"]
    assert (name, agreement.verdict) == ("agreement", NOT_TESTED)
    assert second["lines"][5][1].verdict == "fails"
    assert first["sentence"] != second["sentence"]


def test_a_sentence_says_what_is_decided_and_no_more():
    def said(**findings):
        rows = table(**findings)
        return in_words(by_claim(rows[rows["section"] == "test-x"], ["d", "c"]))

    assert in_words([]) == ""
    assert said(lstm=[finding(ABOVE), finding(ACROSS, name="d")]) == (
        "2 claims were put to the test: 1 × cannot decide and 1 × meets."
    )
    assert said(lstm=[finding(ABOVE)], cnn=[finding(BELOW)]) == (
        "1 claim was put to the test on 2 models (data set × model), 2 tests in all: 1 × meets and 1 × fails."
    )
