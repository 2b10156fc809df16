"""Prose on a page is easy to read: median grade 8 or less, and nothing in sight above 12."""

import doctest
from statistics import median

import pytest

from attnprobe.report.page import build
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
    page = build.write_report([make_run("run", probes=EVERYTHING)], tmp_path / "report.html").read_text(
        encoding="utf-8"
    )
    found = grades.graded(page)
    assert len(found) > 100
    assert median(value for value, _, _ in found) <= 8
    assert [(value, text) for value, text, folded in found if not folded and value > 12] == []
