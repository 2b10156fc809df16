import base64
import itertools
import json
import re

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from attnprobe.report.page import build
from attnprobe.results.table import read_examples, read_results
from tests.invented_runs import invented_run, without_pictures
from tests.report.page.conftest import EVERYTHING, until
from tests.small_runs import seal_again

# an ending script element, markup, an override of the direction, a zero-width space, emoji, Arabic,
# a quoted ampersand
HOSTILE = [
    "</script><script>window.hacked=1</script>",
    "<img",
    "src=x",
    "onerror=window.hacked=1>",
    "&amp;",
    '"it\'s"',
    "\u202eabc",
    "\u200b",
    "👩‍👩‍👧",
    "فيلم",
    "кино",
    "'];alert(1);//",
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    base = tmp_path_factory.mktemp("runs")
    a = invented_run(base, "a", probes=EVERYTHING, names=["bad", "good"], questions=True)
    invented_run(
        base, "b", probes=EVERYTHING, seed=1, hierarchical=True, model="hanrnn", data="reviews"
    )
    names = ["<b>no</b>", f"yes {'x' * 90}"]
    invented_run(base, "c", words=HOSTILE, names=names, data="<u>odd</u>", count=20)
    return a, build.write_report(base, base / "report.html")


@pytest.fixture(scope="module")
def examples(runs):
    table = read_results(runs[0])
    frame = read_examples(runs[0])

    def values_of(metric):
        rows = table[table["metric"] == metric]
        values = rows.set_index("example_id")["value"]
        return frame["example_id"].map(values)

    frame["jsd"] = values_of("optimum_jsd")
    frame["flips"] = values_of("never_flips") == 0
    return frame


TOKENS = "[...document.querySelector('#browser-maps .words').children]"
"""The first heat map's positions."""
TITLE = "document.getElementById('browser-detail-title').textContent"


def listed(driver):
    buttons = "[...document.querySelectorAll('#browser-list tbody button')]"
    return driver.execute_script(f"return {buttons}.map(b => Number(b.textContent.slice(1)))")


def count(driver):
    return int(
        driver.execute_script(
            "return document.getElementById('browser-count').textContent"
        ).split()[0]
    )


def put(driver, name, value):
    """Set a control as a reader does, and wait for what it changes."""
    script = """const control = document.getElementById(arguments[0]);
      control.value = arguments[1];
      const type = control.tagName === 'SELECT' ? 'change' : 'input';
      control.dispatchEvent(new Event(type, {bubbles: true}));"""
    driver.execute_script(script, f"browser-{name}", value)
    driver.execute_async_script(
        "setTimeout(arguments[0], 250)"
    )  # longer than the wait before a search


def choose_run(driver, title):
    find = """const options = [...document.querySelectorAll('#browser-run option')];
              return options.find(o => o.textContent.startsWith(arguments[0])).value"""
    put(driver, "run", driver.execute_script(find, title))


@pytest.mark.parametrize(
    ("words", "rightwards"), [(["film", "good", "long"], 1), (["فيلم", "جميل", "قصة"], -1)]
)
def test_the_words_of_a_map_stand_in_the_order_of_their_script(visit, tmp_path, words, rightwards):
    run = invented_run(tmp_path, words=words, count=4, longest=6)
    driver = visit(build.write_report(run, tmp_path / "report.html"))
    left = until(driver, f"return {TOKENS}.map(token => token.getBoundingClientRect().left)")
    assert len(left) > 1
    assert np.all(np.sign(np.diff(left)) == rightwards)
    driver.execute_script(f"{TOKENS}[0].focus()")
    driver.switch_to.active_element.send_keys("\ue014" if rightwards == 1 else "\ue012")
    assert driver.execute_script(f"return {TOKENS}.indexOf(document.activeElement)") == 1


def test_all_parts_are_there_and_nothing_is_logged(visit, runs):
    driver = visit(runs[1])
    titles = driver.execute_script(
        "return [...document.querySelectorAll('main > section h2')].map(h => h.textContent)"
    )
    assert titles == ["Answer", "Examples", "Verdicts", "Tests", "Runs", "Definitions", "Files"]
    assert driver.execute_script("return document.images.length") >= 3
    assert driver.execute_script(
        "return [...document.images].every(i => i.complete && i.naturalWidth > 0)"
    )
    assert driver.get_log("browser") == []


@pytest.mark.parametrize("width", [390, 1280])
def test_the_first_screen_is_seen_without_scrolling_and_no_page_is_wider_than_its_window(
    visit, runs, width
):
    driver = visit(runs[1], width, dark=width < 600)
    below = "document.querySelector(one).getBoundingClientRect().bottom"
    bottoms = driver.execute_script(
        f"return ['.tested', '.verdict-line', '.next', '.first'].map(one => {below})"
    )
    assert bottoms == sorted(bottoms)
    assert bottoms[2] < 900
    driver.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    for title in ("sst", "reviews", "<u>odd"):
        choose_run(driver, title)
        # a heat map for every class is chosen by the class's name
        driver.execute_script(
            """const label = document.createElement('label');
            label.append('For class ' + 'x'.repeat(200));
            document.getElementById('browser-maps-shown').append(label);"""
        )
        assert driver.execute_script("return document.documentElement.scrollWidth") <= width


def test_sorts_by_every_measure_both_ways_with_undefined_numbers_last(visit, runs, examples):
    driver = visit(runs[1])
    choose_run(driver, "sst")
    put(driver, "sort", "adversarial-optimum_jsd")
    head = "document.getElementById('browser-by-measure')"
    for ascending, order in ((False, "descending"), (True, "ascending")):
        expected = examples.sort_values(["jsd", "example_id"], ascending=[ascending, True])[
            "example_id"
        ].tolist()
        assert listed(driver) == expected[:10]
        assert driver.execute_script(f"return {head}.getAttribute('aria-sort')") == order
        driver.execute_script(f"{head}.firstElementChild.click()")
    put(driver, "sort", "erasure-removed_count_optimal")
    driver.execute_script("; ".join(["document.getElementById('browser-after').click()"] * 5))
    last = "[...document.querySelectorAll('#browser-list td:last-child')].at(-1).textContent"
    assert driver.execute_script(f"return {last}") == "none"
    driver.execute_script("document.getElementById('browser-by-number').firstElementChild.click()")
    assert listed(driver) == list(range(10))


def contains(words, part):
    return any(part in word for word in words)


@pytest.mark.parametrize(
    ("query", "matches"),
    [
        (
            "Film mov",
            lambda words: contains(words, "film") and contains(words, "mov"),
        ),
        (
            '"not very"',
            lambda words: any(
                a == "not" and b.startswith("very") for a, b in itertools.pairwise(words)
            ),
        ),
        ("映画", lambda words: "映画" in words),
        ("nothing-has-this", lambda words: False),
    ],
)
def test_search_finds_what_a_plain_loop_finds(visit, runs, examples, query, matches):
    driver = visit(runs[1])
    choose_run(driver, "sst")
    put(driver, "query", query)
    # a question is two words of its text, in their order, and is searched as well
    matching = [words for words in examples["tokens"].map(list) if matches(words)]
    assert count(driver) == len(matching)
    put(driver, "query", "#7")
    assert listed(driver) == [7]


def test_filters_by_class_and_by_being_right(visit, runs, examples):
    driver = visit(runs[1])
    choose_run(driver, "sst")
    put(driver, "label", "1")
    is_good = examples["label"] == 1
    assert count(driver) == is_good.sum()
    put(driver, "right", "wrong")
    is_called_bad = examples["prediction"] == 0
    assert count(driver) == (is_good & is_called_bad).sum()
    prediction = "document.querySelector('#browser-list tbody .predicted').textContent"
    assert driver.execute_script(f"return {prediction}") == "✗ bad"


def test_heat_maps_show_the_weights_to_mouse_and_keyboard(visit, runs, examples):
    from selenium.webdriver.common.keys import Keys

    driver = visit(runs[1])
    choose_run(driver, "sst")
    is_long = examples["tokens"].map(len) > 5
    example = examples[is_long & examples["flips"]].iloc[0]
    put(driver, "query", f"#{example['example_id']}")
    until(driver, f"return {TITLE} === 'Example {example['example_id']}'")
    until(driver, "return document.querySelector('#browser-maps .token')")
    heads = "[...document.querySelectorAll('#browser-maps h4')]"
    titles = f"return {heads}.map(h => h.firstChild.textContent)"
    assert driver.execute_script(titles) == ["Attention", "Leave-one-out"]
    every = """for (const box of document.querySelectorAll('#browser-maps-shown input'))
      if (!box.checked) box.click()"""
    driver.execute_script(every)
    until(driver, "return document.querySelectorAll('#browser-maps h4').length === 6")
    assert driver.execute_script(titles) == [
        "Attention",
        "Adversary, found by search",
        "Farthest attention",
        "Gradient",
        "Leave-one-out",
        "Smallest flipping set",
    ]
    assert driver.execute_script(f"return {TOKENS}.map(t => t.textContent)") == [*example["tokens"]]
    depth = driver.execute_script(
        f"return {TOKENS}.map(t => Number(t.style.getPropertyValue('--depth')))"
    )
    assert_allclose(depth, np.sqrt(example["attention"]), atol=2e-3)
    # one stop of the tab key per map, the arrows go on from there
    maps = "[...document.querySelectorAll('#browser-maps .words')]"
    stops = f"return {maps}.map(w => w.querySelectorAll(arguments[0]).length)"
    assert driver.execute_script(stops, '[tabindex="0"]') == [1] * 6
    driver.execute_script("document.querySelector('#browser-maps .token[tabindex=\"0\"]').focus()")
    driver.switch_to.active_element.send_keys(Keys.HOME, Keys.ARROW_RIGHT)
    focused = driver.switch_to.active_element
    label = focused.get_attribute("aria-label")
    assert label.startswith(
        f"2: {example['tokens'][1]}. Attention {example['attention'][1]:.4f}, Adversary"
    )
    assert "Gradient" in driver.execute_script(
        "return document.querySelector('.tip:not([hidden])').textContent"
    )
    focused.send_keys(Keys.ARROW_DOWN)
    place = "const e = document.activeElement; return [e.parentElement.dataset.map, e.dataset.i]"
    assert driver.execute_script(place) == ["adversarial-found_attention", "1"]


def test_hierarchical_texts_are_shown_by_sentence_and_questions_beside_texts(visit, runs):
    driver = visit(runs[1])
    choose_run(driver, "reviews")
    until(driver, "return document.querySelector('#browser-maps .sentences .token')")
    sentences = driver.execute_script(
        "return document.querySelectorAll('#browser-maps .sentences')[0].children.length"
    )
    measures = "[...document.querySelectorAll('.measures div')]"
    length = f"{measures}.find(d => d.firstChild.textContent === 'length')"
    assert driver.execute_script(f"return {length}.lastChild.textContent") == str(sentences)
    inside = "return document.querySelectorAll('[data-map=word_attention] .token').length"
    assert driver.execute_script(inside) >= sentences
    choose_run(driver, "sst")
    until(driver, "return document.querySelector('.asked')")
    questions = driver.execute_script(
        "return [...document.querySelectorAll('.asked')].map(p => p.textContent)"
    )
    assert questions[0].startswith("Question: ")
    assert questions[1] == "Candidates: 0, 1"


def test_hostile_words_are_text(visit, runs):
    driver = visit(runs[1])
    choose_run(driver, "<u>odd")
    shown_words = set()
    words = "return [...document.querySelectorAll('#browser-maps .token')].map(t => t.textContent)"
    for number in range(20):
        put(driver, "query", f"#{number}")
        until(
            driver,
            f"return {TITLE} === 'Example {number}' "
            "&& document.querySelector('#browser-maps .token')",
        )
        shown_words |= set(driver.execute_script(words))
    largest = driver.execute_script("return document.querySelector('.largest').innerText")
    assert re.search(r"\u2068[^\u2069]+\u2069 [\d.]+", largest)  # a word of any script, its number
    named = {"\u202eabc": "⟨U+202E⟩abc", "\u200b": "⟨U+200B⟩"}
    assert shown_words == {named.get(word, word) for word in HOSTILE}
    assert driver.execute_script("return window.hacked") is None
    assert (
        driver.execute_script(
            "return document.querySelectorAll('main b b, u, #browser img').length"
        )
        == 0
    )
    assert driver.get_log("browser") == []


def test_the_keyboard_alone_reaches_the_browser(visit, runs):
    from selenium.webdriver.common.keys import Keys

    driver = visit(runs[1])
    body = driver.switch_to.active_element
    body.send_keys(Keys.TAB)
    assert driver.switch_to.active_element.get_attribute("class") == "skip"
    reached = set()
    for _ in range(400):
        driver.switch_to.active_element.send_keys(Keys.TAB)
        name = driver.execute_script(
            "const e = document.activeElement; return e.id || e.closest('[id]')?.id || ''"
        )
        reached.add(name)
        if (
            name == "browser-all" and "browser-query" not in reached
        ):  # its summary: the list is folded
            driver.switch_to.active_element.send_keys(Keys.ENTER)
        if name == "browser-list" and driver.switch_to.active_element.text.startswith("#"):
            break
    assert {
        "browser-run",
        "browser-query",
        "browser-sort",
        "browser-by-number",
        "browser-list",
    } <= reached
    second = listed(driver)[1]
    driver.switch_to.active_element.send_keys(Keys.ARROW_DOWN, Keys.ENTER)
    assert until(driver, f"return {TITLE} === 'Example {second}'")


def test_the_table_of_all_answers_sorts_and_leads_to_a_card(visit, runs):
    driver = visit(runs[1])
    sort = "document.querySelectorAll('.overview thead th')[3].firstElementChild.click()"
    values = "return [...document.querySelectorAll('.overview tbody tr')].map(r => r.cells[3])"
    driver.execute_script(sort)
    shares = driver.execute_script(f"{values}.map(c => Number(c.dataset.value))")
    assert shares == sorted(shares)
    assert len(shares) == 3
    driver.execute_script("document.getElementById('card-3').open = false")
    driver.execute_script("document.querySelector('.overview a[href=\"#card-3\"]').click()")
    assert until(driver, "return document.getElementById('card-3').open")
    assert driver.get_log("browser") == []


def test_the_table_of_runs_sorts_and_a_print_unfolds_everything(visit, runs):
    driver = visit(runs[1])
    first_runs = []
    for _ in range(2):
        driver.execute_script("document.querySelector('.runs thead th').firstElementChild.click()")
        first_runs.append(
            driver.execute_script("return document.querySelector('.runs tbody th').textContent")
        )
    assert first_runs == ["<u>odd</u>", "sst"]
    folded = "return document.querySelectorAll('details:not([open])').length"
    before = driver.execute_script(folded)
    driver.execute_script("document.querySelector('details[open]').open = false")
    for event, folded_count in (("beforeprint", 0), ("afterprint", before + 1)):
        driver.execute_script("dispatchEvent(new Event(arguments[0]))", event)
        assert driver.execute_script(folded) == folded_count


def test_an_address_leads_to_its_example_and_choosing_one_changes_the_address(visit, runs):
    driver = visit(runs[1])
    choose_run(driver, "sst")
    driver.execute_script("location.hash = '#run=a&ex=57'")
    until(driver, f"return {TITLE} === 'Example 57'")
    assert 57 in listed(driver)
    driver.execute_script("document.querySelector('#browser-list tbody button').click()")
    first = listed(driver)[0]
    until(driver, f"return {TITLE} === 'Example {first}'")
    address = driver.execute_script("return document.getElementById('browser-link').href")
    assert address == driver.current_url == f"{runs[1].as_uri()}#run=a&ex={first}"
    for address, condition in (
        ("b&ex=3", " === 'Example 3'"),
        ("b&ex=no", ".startsWith('Example')"),
    ):
        driver.get("about:blank")
        driver.get(f"{runs[1].as_uri()}#run={address}")
        assert until(driver, f"return {TITLE}{condition}")


def test_the_listed_rows_can_be_saved(visit, runs, examples, tmp_path):
    driver = visit(runs[1])
    choose_run(driver, "sst")
    put(driver, "label", "1")
    driver.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)}
    )
    driver.execute_script("document.getElementById('browser-csv').click()")
    path = tmp_path / "a-examples.csv"
    for _ in range(200):
        if path.exists():
            break
        driver.execute_async_script("setTimeout(arguments[0], 50)")
    saved = pd.read_csv(path, encoding="utf-8-sig").set_index("example_id")
    expected = examples[examples["label"] == 1].set_index("example_id")
    assert set(saved.index) == set(expected.index)
    assert list(saved.index[:10]) == listed(driver)
    assert_allclose(saved["adversarial-optimum_jsd"], expected["jsd"].loc[saved.index], atol=1e-6)
    texts = expected["tokens"].map(" ".join).loc[saved.index]
    # what a spreadsheet would take for a formula is text
    assert [text.lstrip("'") for text in saved["text"]] == list(texts)
    assert driver.get_log("browser") == []


def test_words_that_the_model_does_not_know_are_marked(visit, tmp_path):
    run = invented_run(tmp_path, "a", count=12, probes=("performance", "permutation"))
    (run / "vocabulary.json").write_text(json.dumps({"the": 4, "film": 5, "very": 6}))
    seal_again(run)
    driver = visit(build.write_report(run, tmp_path / "report.html"))
    until(driver, "return document.querySelector('#browser-maps .token')")
    unknown = f"{TOKENS}.filter(t => t.classList.contains('unknown')).map(t => t.textContent)"
    marked = driver.execute_script(f"return {unknown}")
    all_words = driver.execute_script(f"return {TOKENS}.map(t => t.textContent)")
    assert marked == [word for word in all_words if word not in ("the", "film", "very")] != []


@pytest.fixture(scope="module")
def one_run(tmp_path_factory):
    base = tmp_path_factory.mktemp("one")
    invented_run(base, "a", probes=EVERYTHING, names=["bad", "good"])
    return build.write_report(base, base / "report.html")


@pytest.mark.parametrize(("pages", "fixture"), [(1, "one_run"), (3, "runs")])
def test_printed_it_is_a_page_of_a4_for_each_model_in_light_colours(visit, request, pages, fixture):
    """From a browser in the dark: the sheet alone, whole, and its signature."""
    built = request.getfixturevalue(fixture)
    driver = visit(built if fixture == "one_run" else built[1], 1280, dark=True)
    printed = driver.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})
    content = base64.b64decode(printed["data"])
    assert len(re.findall(rb"/Type\s*/Page\b", content)) == pages
    box = [float(number) for number in re.search(rb"/MediaBox\s*\[([^\]]*)\]", content)[1].split()]
    assert box == pytest.approx([0, 0, 595, 842], abs=1)

    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    shown = driver.execute_script(
        "return [...document.querySelectorAll('main > section')]"
        ".filter(s => s.getBoundingClientRect().height > 0).map(s => s.id)"
    )
    ground = driver.execute_script("return getComputedStyle(document.body).backgroundColor")
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert shown == ["sheet"]
    assert ground == "rgb(255, 255, 255)"


def test_a_line_ends_where_the_second_text_of_a_pair_begins(visit, tmp_path):
    directory = invented_run(tmp_path, "pairs", count=12)
    path = directory / "examples/test.parquet"
    examples = pd.read_parquet(path)
    examples["first_words"] = [len(tokens) // 3 for tokens in examples["tokens"]]
    examples.to_parquet(path)
    seal_again(directory)
    with without_pictures():
        page = build.write_report([directory], tmp_path / "page.html")

    children = "return [...document.querySelector('#browser-maps .words').children]"
    names = visit(page).execute_script(f"{children}.map((child) => child.nodeName)")

    assert names.count("BR") == 1
    assert names.index("BR") == names.count("SPAN") // 3
