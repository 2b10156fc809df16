"""The labels of a text as a list: what a click shows, and the order by label."""

from dataclasses import replace

import pytest

from attnprobe.findings.groups import grouped, read_run
from attnprobe.findings.sheet import accuracy_in_words, data_in_words
from attnprobe.findings.slices import slices_of
from attnprobe.report.page import build
from attnprobe.report.page.build import write_report
from attnprobe.results.pivot import ASKED_LABELS
from attnprobe.results.table import read_examples
from attnprobe.runs.run import run
from tests.invented_runs import without_pictures
from tests.report.page.conftest import until
from tests.small_runs import SMALL, composed


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """A run of planted codes with every number that the page shows of a label."""
    folder = tmp_path_factory.mktemp("labels")
    return run(
        composed(
            "task=labels",
            *SMALL,
            "data.source.codes=3",
            "data.source.length=12",
            "probe=[erasure,labels,swaps]",
            "probe.swaps.passes=100",
            "probe.swaps.most_passes=100",
            "probe.swaps.texts=30",
            f"output={folder}",
        )
    )


@pytest.fixture(scope="module")
def page(directory, tmp_path_factory):
    """The page about the run, without its figures."""
    with without_pictures():
        return write_report([directory], tmp_path_factory.mktemp("page") / "labels.html")


def buttons(driver):
    """Name → whether it is the one that is shown, of the labels of the text."""
    return driver.execute_script(
        """return [...document.querySelectorAll(".labels button")].map((button) =>
        [button.querySelector("b").textContent, button.getAttribute("aria-pressed") === "true"]);"""
    )


def test_a_click_shows_another_label_of_the_same_text(visit, page, directory):
    driver = visit(page)
    before = buttons(driver)
    assert [name for name, _ in before] == ["code0", "code1", "code2"]
    assert [shown for _, shown in before].count(True) == 1
    words = "return document.querySelector('.words').textContent"
    title = "return document.getElementById('browser-detail-title').textContent"
    text = driver.execute_script(words)
    wanted = next(place for place, (_, shown) in enumerate(before) if not shown)
    button = f"document.querySelectorAll('.labels button')[{wanted}]"
    driver.execute_script(f"{button}.click()")
    until(driver, f"return {button}.ariaPressed === 'true'")
    assert driver.execute_script(words) == text
    example = int(driver.execute_script(title).removeprefix("Example "))
    own = read_examples(directory).set_index("example_id").loc[example]
    shown = driver.execute_script(
        """return [...document.querySelectorAll("[data-map=attention] .token")]
        .map((token) => Number(token.style.getPropertyValue("--depth")))"""
    )
    expected = [round(float(weight) ** 0.5, 3) for weight in own["attention"]]
    assert shown == pytest.approx(expected, abs=2e-3)
    maps = driver.execute_script(
        "return [...document.querySelectorAll('[data-map]')].map((box) => box.dataset.map)"
    )
    assert {"attention", "erasure-smallest_set", "labels-label_value"} <= set(maps)


def test_the_outcome_names_the_label_and_a_set_says_how_many_words_it_has(visit, page, directory):
    driver = visit(page)
    name = next(name for name, shown in buttons(driver) if shown)
    outcome = driver.execute_script("return document.querySelector('.outcome').textContent")
    assert outcome.startswith(f"{name}: ")
    box = "document.querySelector('[data-map=erasure-smallest_set]')"
    words = driver.execute_script(
        f"""return [...{box}.querySelectorAll('.token')]
        .filter((token) => Number(token.style.getPropertyValue('--depth')) > 0)
        .map((token) => token.textContent)"""
    )
    count = driver.execute_script(f"return {box}.querySelectorAll('.token').length")
    summary = driver.execute_script(f"return {box}.parentElement.lastChild.textContent")
    assert words
    isolated = [f"\u2068{word}\u2069" for word in words]  # from the direction of other scripts
    named = [*isolated[:8], "…"] if len(words) > 8 else isolated
    assert summary == f"{len(words)} of {count}: {' · '.join(named)}"


def test_words_against_a_label_have_a_colour_of_their_own(visit, page):
    driver = visit(page)
    colours = driver.execute_script(
        """const colour = (token) => getComputedStyle(token).backgroundColor.match(/[0-9]+/g);
        const at = (chosen) =>
          [...document.querySelectorAll(`[data-map="labels-label_value"] ${chosen}`)]
          .map((token) => colour(token).slice(0, 3).join());
        return [at(".token.against"), at(".token:not(.against)")];"""
    )
    against, supporting = (set(found) - {"0,0,0"} for found in colours)
    assert against
    assert not against & supporting


def test_the_list_can_be_sorted_by_the_label(visit, page):
    driver = visit(page)
    driver.execute_script(
        """const sort = document.getElementById("browser-sort");
        sort.value = "label"; sort.dispatchEvent(new Event("change"));"""
    )
    names = """return [...document.querySelectorAll("#browser-list tbody tr")]
        .map((row) => row.querySelector("td b").textContent)"""
    assert set(driver.execute_script(names)) == {"code0: "}
    driver.execute_script("document.querySelector('#browser-by-measure button').click()")
    assert set(driver.execute_script(names)) == {"code2: "}


def test_the_sheet_counts_texts_and_what_they_are_asked_apart(directory):
    finished = read_run(directory)
    texts = len(read_examples(directory)) // 3
    asked = finished.numbers.attrs[ASKED_LABELS]
    assert "A row is a text and one of 3 labels, answered no or yes." in data_in_words(finished)
    one_label = {run_id: dict.fromkeys(labels, "code1") for run_id, labels in asked.items()}
    alone = replace(finished.numbers, attrs=finished.numbers.attrs | {ASKED_LABELS: one_label})
    assert "A row is a text and the label code1, answered no or yes." in data_in_words(
        replace(finished, numbers=alone)
    )
    assert f"right on {3 * texts} answers about labels of {texts} test texts" in accuracy_in_words(
        finished
    )


def test_parts_are_counted_in_answers_and_not_in_texts(directory):
    finished = read_run(directory)
    (group,) = grouped([finished])
    (by_answer,) = slices_of(group)
    assert by_answer.counted == "answers about labels"
    shown = sum(row.texts for row in by_answer.rows)
    assert shown > len(read_examples(directory)) // 3


@pytest.mark.parametrize("rows", [0, 1])
def test_a_division_into_small_parts_is_a_sentence_and_no_table(
    directory, tmp_path, monkeypatch, rows
):
    (group,) = grouped([read_run(directory)])
    (by_answer,) = slices_of(group)
    by_region = replace(by_answer, by="region", rows=by_answer.rows[:rows], notes=["all are small"])
    monkeypatch.setattr(build.Material, "parts", lambda material: [("a model", [by_region])])
    with without_pictures():
        path = write_report([directory], tmp_path / "page.html")
    page = path.read_text(encoding="utf-8")
    assert page.count("<caption>By region</caption>") == rows
    assert page.count("<b>By region</b>") == 1 - rows
    assert '<p class="note">all are small.</p>' in page


def test_a_label_has_the_probability_of_its_answer_and_the_playground_names_the_label(
    visit, page, directory
):
    driver = visit(page)
    texts = driver.execute_script(
        "return [...document.querySelectorAll('.labels button')].map((one) => one.textContent)"
    )
    title = driver.execute_script(
        "return document.getElementById('browser-detail-title').textContent"
    )
    examples = read_examples(directory).set_index("example_id")
    first = int(title.removeprefix("Example ")) // 3 * 3  # the rows of a text follow each other
    assert len(texts) == 3
    for place, text in enumerate(texts):
        row = examples.loc[first + place]
        name = ("no", "yes")[row["prediction"]]
        likely = max(row["probability"])
        assert text.startswith(f"code{place} {name} {likely:.2f} ")
    options = driver.execute_script(
        "return [...document.querySelectorAll('#play-text option')].map((one) => one.textContent)"
    )
    assert options
    for option in options:
        number, name = option.removeprefix("#").partition(":")[0].split()
        assert examples.loc[int(number), "question"][0] == name
