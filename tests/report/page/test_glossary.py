"""The page's words explained, as the documentation does, in prose that is easy to read: median
Flesch–Kincaid grade (Kincaid et al. 1975) 8 or less, and no sentence above 12."""

import re
from html import unescape
from pathlib import Path
from statistics import median

import pytest
from markupsafe import Markup

from attnprobe.evidence.claims import CRITERIA
from attnprobe.evidence.verdicts import Answer
from attnprobe.findings.lines import LINES
from attnprobe.readings.registry import readings
from attnprobe.report.figures import prose
from attnprobe.report.page import build
from attnprobe.report.page.build import with_hidden_shown
from attnprobe.report.page.glossary import BY_FORM, MEANS, TERMS, explained
from tests.report.page.conftest import EVERYTHING


def test_the_first_use_of_a_word_says_its_meaning_and_leads_to_it():
    markup = explained("TVD & JSD; the TVD of a predictive <state>, jsd, a TVD-like thing")
    assert isinstance(markup, Markup)
    assert re.findall(
        r'<a class="term" href="#term-(\w+)" title="[^"<>]+">([^<]+)</a>', markup
    ) == [
        ("tvd", "TVD"),
        ("jsd", "JSD"),
        ("state", "state"),
    ]
    text = re.sub(r"<a [^>]*>|</a>", "", markup)
    assert text == "TVD &amp; JSD; the TVD of a predictive &lt;state&gt;, jsd, a TVD-like thing"
    assert "\x1b" not in explained("a\x1b[31m TVD", with_hidden_shown)


def test_every_term_and_criterion_has_a_meaning_and_an_untested_one_names_the_probe_that_decides():
    keys = {term.key for term in TERMS}
    meanings = {term.meaning for term in TERMS}
    assert len(keys) == len(meanings) == len(TERMS)
    assert len(BY_FORM) == sum(len(term.forms) for term in TERMS)
    assert set(MEANS) == set(LINES)

    deciding = {}
    for probe, reading in readings().items():
        for claim in reading.claims:
            if claim.primary:
                deciding[claim.criterion, claim.level] = f"probe=[{probe}]"
    for place, line in LINES.items():
        if line.tested_by.startswith("probe="):
            assert line.tested_by == deciding.get(place), place


def test_the_documentation_says_the_same_of_every_criterion():
    page = Path(__file__).parents[3].joinpath("docs", "tests.md").read_text(encoding="utf-8")
    for (criterion, level), (met, not_met) in MEANS.items():
        statement = CRITERIA[criterion]
        assert f"| {criterion} ({level}) | {statement} | {met} | {not_met} |" in page


NO_PROSE = r"<(script|style|code|table|select|button|math|svg|cite)\b.*?</\1>"
BADGE = r"<span class=.badge[^>]*>(?:<span[^>]*>[^<]*</span>)?[^<]*</span>"
BLOCKS = r"</?(?:p|li|dd|dt|summary|figcaption|h[1-4]|div|ul|details|section|option|label)\b[^>]*>"


def grade(words):
    """0.39 words + 11.8 syllables per word − 15.59; syllables are groups of vowels, without a
    silent e."""
    syllables = 0
    for word in words:
        vowels = re.findall("[aeiouy]+", word.lower())
        has_silent_e = word.endswith(("e", "E")) and not re.search(r"[^aeiouy]le$", word)
        syllables += max(1, len(vowels) - has_silent_e)
    syllables_per_word = syllables / len(words)
    return 0.39 * len(words) + 11.8 * syllables_per_word - 15.59


def graded(page):
    """Grade and sentence (of four words or more), the hardest first."""
    prose_of_page = re.sub(f"{NO_PROSE}|{BADGE}", "", page, flags=re.S)
    sentences = set()
    for block in re.split(BLOCKS, prose_of_page):
        text = unescape(re.sub("<[^>]*>", "", block))
        one_line = " ".join(text.split())
        sentences.update(re.split(r"(?<=[.!?])\s+(?=[A-Z0-9])", one_line))
    grades = []
    for sentence in sentences:
        words = re.findall(r"[A-Za-z][A-Za-z'’-]*", sentence)
        if len(words) >= 4:
            grades.append((grade(words), sentence))
    return sorted(grades, reverse=True)


def test_a_grade_is_that_of_the_formula_and_a_hard_sentence_is_found():
    assert grade(["The", "cat", "sat", "on", "the", "mat"]) == pytest.approx(-1.45)
    hard = (
        "Notwithstanding considerable methodological heterogeneity, practitioners incorrectly "
        "characterise probabilities."
    )
    code = "<code>it is not a sentence at all</code>"
    page = f"<p>It is easy to read this.</p><details><p>{hard}</p></details>{code}"
    (value, sentence), (low, _) = graded(page)
    assert (sentence, value > 12 > low) == (hard, True)


@pytest.mark.usefixtures("no_pictures")
def test_a_page_of_every_probe_is_easy_to_read(make_run, tmp_path):
    page = build.write_report([make_run("run", probes=EVERYTHING)], tmp_path / "report.html")
    sentences = graded(page.read_text(encoding="utf-8"))
    assert len(sentences) > 100
    assert median(value for value, _ in sentences) <= 8
    assert [(value, text) for value, text in sentences if value > 12] == []


def test_whatever_a_probe_or_a_definition_says_is_easy_to_read():
    texts = [answer.meaning for answer in Answer]
    texts += [term.meaning for term in TERMS]
    for (criterion, _), (met, not_met) in MEANS.items():
        texts.append(f"{CRITERIA[criterion]} Yes means that {met}. It does not mean {not_met}.")
    for reading in readings().values():
        captions = [prose(drawing.draw) for drawing in reading.drawings]
        assert all(" " in caption and "partial(" not in caption for caption in captions), (
            reading.probe
        )
        texts += [reading.about, *captions]
        texts += [heat_map.about for heat_map in reading.maps]
        texts += [criterion.statement for criterion in reading.claims]
    sentences = graded("".join(f"<p>{text}.</p>" for text in texts))
    assert len(sentences) > 200
    assert [(value, text) for value, text in sentences if value > 12] == []
