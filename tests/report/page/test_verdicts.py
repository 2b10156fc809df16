"""Cards and sections out of the table of findings."""

import pandas as pd

from attnprobe.evidence.claims import Claim, Finding
from attnprobe.evidence.evidence import MEETS, NOT_TESTED, Evidence
from attnprobe.findings.groups import Group
from attnprobe.findings.verdicts import ANSWERS as WORDS
from attnprobe.findings.verdicts import LINES, answer_of, judge
from attnprobe.report.page.glossary import ANSWERS
from attnprobe.report.page.sections import cards
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
    said = [dict(zip(("chip", "sentence"), answer_of(part), strict=True)) for part in parts]
    return pd.concat([part.assign(**one) for part, one in zip(parts, said, strict=True)], ignore_index=True)


def test_every_answer_has_a_sign_and_a_meaning():
    assert set(MARKS) == set(ANSWERS) == set(WORDS)


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
    assert first["answer"].words != second["answer"].words
