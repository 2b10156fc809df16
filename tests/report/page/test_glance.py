"""The page's first screen: what it says, and that it fits where it is looked at."""

import re
from html import unescape

import pytest

from attnprobe.evidence.claims import CRITERIA
from attnprobe.findings import findings
from attnprobe.findings.groups import read_runs
from attnprobe.findings.quality import quality_of
from attnprobe.report.page.build import write_report
from attnprobe.report.page.sections import DEEP, STEPS, sample_text
from attnprobe.results.table import read_examples
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


def test_model_data_quality_verdicts_sentence_and_text(place):
    directory, page = place
    markup = first_screen(page)
    text = plain(markup)
    measured = quality_of(directory)
    assert "bag of words (no context), additive attention" in text
    assert "testbed: 190 texts; 2 classes: negative, positive" in text
    assert f"accuracy {measured.accuracy:.3f} [" in text
    assert f"always guessing the largest class gives {measured.majority:.3f}" in text
    assert all(name.capitalize() in text for name in CRITERIA)
    assert ("not shown to be better than guessing" in text) == (not measured.better_than_guessing)
    assert plain(re.search(r'<p class="verdict-line">(.*?)</p>', markup)[1]) == findings(directory)["sentence"].iloc[0]
    shown = re.search(r'<p class="words">(.*?)</p>', markup)[1]
    tokens = plain(shown).split()
    assert tokens in [list(one) for one in read_examples(directory)["tokens"]]
    assert len(re.findall(r'class="token d\d+', shown)) == len(tokens)


def test_warnings_of_the_data_are_on_it_and_all_checks_below(place):
    directory, page = place
    checks = read_runs([directory])[0].manifest["data_section"]["checks"]
    warned = [check["sentence"] for check in checks if check["warns"]]
    assert warned
    assert warned[0] in plain(first_screen(page))
    below = plain(re.search(r'<section id="data".*?</section>', page.read_text(encoding="utf-8"), re.S)[0])
    assert all(check["sentence"] in below for check in checks)


def test_without_texts_none_is_shown(place):
    directory, page = place
    bare = write_report([directory], page.with_name("bare.html"), words=False)
    assert 'class="words"' not in first_screen(bare)


def test_shades_are_the_roots_of_the_weights(place):
    shown = sample_text(read_runs([place[0]])[0])["words"]
    weights = [word["weight"] for word in shown]
    assert [word["shade"] for word in shown] == [round(STEPS * weight**0.5) for weight in weights]
    assert [word["deep"] for word in shown] == [weight**0.5 > DEEP for weight in weights]
    assert [word["top"] for word in shown] == [weight == max(weights) for weight in weights]


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False)])
def test_it_is_seen_without_scrolling_and_nothing_sticks_out(place, visit, width, dark):
    driver = visit(place[1], width, dark=dark)
    bottoms = driver.execute_script(
        "return ['.verdict-line', '.what', '.row'].map(one => document.querySelector(one).getBoundingClientRect().bottom)"
    )
    assert bottoms == sorted(bottoms)
    assert bottoms[1] < 900
    assert width < 600 or bottoms[2] < 900
    assert driver.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
    depth = "return getComputedStyle(document.querySelector('.one-text .top')).getPropertyValue('--depth')"
    assert float(driver.execute_script(depth)) > 0
    assert not [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
