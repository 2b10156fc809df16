"""The page's words explained: each once, where it is used, and as the documentation does."""

import re
from pathlib import Path

import pytest
from markupsafe import Markup

from attnprobe.evidence.claims import CRITERIA
from attnprobe.evidence.reading import readings
from attnprobe.findings.verdicts import ANSWERS as WORDS
from attnprobe.findings.verdicts import LINES, TESTED_BY
from attnprobe.report.page import build
from attnprobe.report.page.build import with_hidden_shown
from attnprobe.report.page.glossary import ANSWERS, BY_FORM, MEANS, TERMS, explained
from attnprobe.report.terminal import MARKS
from tests.report.page.conftest import EVERYTHING


def test_the_first_use_of_a_word_says_its_meaning_and_leads_to_it():
    found = explained("TVD & JSD; the TVD of a predictive <state>, jsd, a TVD-like thing")
    assert isinstance(found, Markup)
    assert re.findall(r'<a class="term" href="#term-(\w+)" title="[^"<>]+">([^<]+)</a>', found) == [
        ("tvd", "TVD"), ("jsd", "JSD"), ("state", "state"),
    ]  # fmt: skip
    text = re.sub(r"<a [^>]*>|</a>", "", found)
    assert text == "TVD &amp; JSD; the TVD of a predictive &lt;state&gt;, jsd, a TVD-like thing"
    assert "\x1b" not in explained("a\x1b[31m TVD", with_hidden_shown)


def test_every_term_criterion_and_verdict_has_a_meaning_and_what_is_not_tested_names_the_probe_that_decides_it():
    assert len({term.key for term in TERMS}) == len({term.meaning for term in TERMS}) == len(TERMS)
    assert len(BY_FORM) == sum(len(term.forms) for term in TERMS)
    assert set(MEANS) == set(TESTED_BY) == set(LINES)
    assert tuple(ANSWERS) == WORDS == tuple(MARKS)
    claims = [(probe, claim) for probe, reading in readings().items() for claim in reading.claims if claim.primary]
    deciding = {(claim.criterion, claim.level): f"probe=[{probe}]" for probe, claim in claims}
    single = {line: command for line, command in TESTED_BY.items() if command.startswith("probe=")}
    assert {line: deciding.get(line) for line in single} == single


def test_the_documentation_says_the_same_of_every_criterion():
    page = Path(__file__).parents[3].joinpath("docs", "tests.md").read_text(encoding="utf-8")
    for (criterion, level), (met, not_met) in MEANS.items():
        assert f"| {criterion} ({level}) | {CRITERIA[criterion]} | {met} | {not_met} |" in page


@pytest.mark.usefixtures("no_pictures")
def test_words_of_a_page_lead_to_their_definitions(make_run, tmp_path):
    run = make_run("run", probes=EVERYTHING)
    text = build.write_report([run], tmp_path / "report.html").read_text(encoding="utf-8")
    linked = set(re.findall(r'href="#(term-\w+)"', text))
    assert linked <= set(re.findall(r'<dt id="(term-\w+)">', text))
    assert {"term-tvd", "term-jsd", "term-tau", "term-importance", "term-f1"} <= linked
    assert "It does not mean that the weights are on words that decide." in text
