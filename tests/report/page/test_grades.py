"""Prose on a page is easy to read: median grade 8 or less, and no sentence above 12."""

import doctest
from statistics import median

import pytest

from attnprobe.evidence.claims import CRITERIA
from attnprobe.evidence.reading import readings
from attnprobe.report.figures import prose
from attnprobe.report.page import build
from attnprobe.report.page.glossary import ANSWERS, MEANS, TERMS
from tests.report.page import grades
from tests.report.page.conftest import EVERYTHING


def test_a_grade_is_that_of_the_formula_and_a_hard_sentence_is_found():
    assert doctest.testmod(grades).failed == 0
    hard = "Notwithstanding considerable methodological heterogeneity, practitioners incorrectly characterise probabilities."
    page = f"<p>It is easy to read this.</p><details><p>{hard}</p></details><code>it is not a sentence at all</code>"
    (value, found, folded), (low, *_) = grades.graded(page)
    assert (found, folded) == (hard, True)
    assert value > 12 > low


@pytest.mark.usefixtures("no_pictures")
def test_a_page_of_every_probe_is_easy_to_read(make_run, tmp_path):
    page = build.write_report([make_run("run", probes=EVERYTHING)], tmp_path / "report.html")
    found = grades.graded(page.read_text(encoding="utf-8"))
    assert len(found) > 100
    assert median(value for value, _, _ in found) <= 8
    assert [(value, text) for value, text, _ in found if value > 12] == []


def test_whatever_a_probe_or_a_definition_says_is_easy_to_read():
    said = [*ANSWERS.values(), *(term.meaning for term in TERMS)]
    said += [
        f"{CRITERIA[one]} Yes means that {met}. It does not mean {not_met}."
        for (one, _), (met, not_met) in MEANS.items()
    ]
    for reading in readings().values():
        captions = [prose(drawing.draw) for drawing in reading.drawings]
        assert all(" " in caption and "partial(" not in caption for caption in captions), reading.probe
        said += [
            reading.about,
            *captions,
            *(one.about for one in reading.maps),
            *(one.statement for one in reading.claims),
        ]
    found = grades.graded("".join(f"<p>{one}.</p>" for one in said))
    assert len(found) > 200
    assert [(value, text) for value, text, _ in found if value > 12] == []
