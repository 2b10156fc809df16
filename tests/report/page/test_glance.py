"""The page's first screen: what it says, and that it fits where it is looked at."""

import re
from html import unescape

import pytest

from attnprobe.findings import findings
from attnprobe.findings.groups import read_runs
from attnprobe.findings.quality import quality_of
from attnprobe.report.page.build import write_report
from attnprobe.runs.run import run
from tests.runs import small_run


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A run that has learnt little, and its page."""
    folder = tmp_path_factory.mktemp("glance")
    directory = run(small_run(folder, "model=average", "training.epochs=1"))
    return directory, write_report([directory], folder / "page.html")


def first_screen(page):
    """The section's markup."""
    return re.search(r'<section id="glance".*?</section>', page.read_text(encoding="utf-8"), re.S)[0]


def plain(markup):
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", markup)).split())


def test_the_answer_with_model_data_and_quality(place):
    directory, page = place
    markup = first_screen(page)
    text = plain(markup)
    measured = quality_of(directory)
    assert "Bag of words (no context), with additive attention" in text
    assert "testbed: 190 texts. 2 classes: negative, positive" in text
    assert measured.in_words in text
    found = findings(directory)
    line = plain(re.search(r'<p class="verdict-line">(.*?)</p>', markup)[1])
    assert line == f"{found['chip'].iloc[0]} {found['sentence'].iloc[0]}"
    assert ("Do not read" in line) == (not measured.better_than_guessing)


def test_warnings_of_the_data_are_on_it_and_all_checks_below(place):
    directory, page = place
    checks = read_runs([directory])[0].manifest["data_section"]["checks"]
    warned = [check["sentence"] for check in checks if check["warns"]]
    assert warned
    assert warned[0] in plain(first_screen(page))
    below = plain(re.search(r'<section id="data".*?</section>', page.read_text(encoding="utf-8"), re.S)[0])
    assert all(check["sentence"] in below for check in checks)


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False)])
def test_it_is_seen_without_scrolling_and_nothing_sticks_out(place, visit, width, dark):
    driver = visit(place[1], width, dark=dark)
    bottoms = driver.execute_script(
        "return ['.verdict-line', '.row', '.first'].map(one => document.querySelector(one).getBoundingClientRect().bottom)"
    )
    assert bottoms == sorted(bottoms)
    assert bottoms[1] < 900
    assert driver.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
    assert not [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
