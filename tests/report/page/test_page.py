"""The page in a real browser."""

import itertools

import numpy as np
import pytest

from attnprobe.report.page import build
from attnprobe.results.table import read_examples, read_results
from tests.report.conftest import invented_run
from tests.report.page.conftest import EVERYTHING, until

# an ending script element, markup, an override of the direction, a zero-width space, emoji, Arabic, a quoted ampersand
HOSTILE = ["</script><script>window.hacked=1</script>", "<img", "src=x", "onerror=window.hacked=1>", "&amp;", "\"it's\"",
           "\u202eabc", "\u200b", "👩‍👩‍👧", "فيلم", "кино", "'];alert(1);//"]  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    base = tmp_path_factory.mktemp("runs")
    a = invented_run(base, "a", probes=EVERYTHING, names=["bad", "good"], questions=True)
    invented_run(base, "b", probes=EVERYTHING, seed=1, hierarchical=True, model="hanrnn", data="reviews")
    invented_run(base, "c", words=HOSTILE, names=["<b>no</b>", "yes"], data="<u>odd</u>", count=20)
    return a, build.write_report(base, base / "report.html")


@pytest.fixture(scope="module")
def examples(runs):
    """The first run's examples with their exact JSD, and whether their decision can flip."""
    table = read_results(runs[0])
    jsd, never = (table[table["metric"] == m].set_index("example_id")["value"] for m in ("optimum_jsd", "never_flips"))
    frame = read_examples(runs[0])
    return frame.assign(jsd=frame["example_id"].map(jsd), flips=frame["example_id"].map(never) == 0)


TOKENS = "[...document.querySelector('#browser-maps .words').children]"
"""The first heat map's positions."""


def listed(driver):
    return driver.execute_script(
        "return [...document.querySelectorAll('#browser-list tbody button')].map(b => Number(b.textContent.slice(1)))"
    )


def count(driver):
    return int(driver.execute_script("return document.getElementById('browser-count').textContent").split()[0])


def put(driver, name, value):
    """Set a control as a reader does, and wait for what it changes."""
    script = """
      const control = document.getElementById(arguments[0]);
      control.value = arguments[1];
      control.dispatchEvent(new Event(control.tagName === 'SELECT' ? 'change' : 'input', {bubbles: true}));
    """
    driver.execute_script(script, f"browser-{name}", value)
    # longer than the wait before a search
    driver.execute_async_script("setTimeout(arguments[0], 250)")


def choose_run(driver, title):
    number = driver.execute_script(
        "const options = [...document.querySelectorAll('#browser-run option')];"
        "return options.find(o => o.textContent.startsWith(arguments[0])).value",
        title,
    )
    put(driver, "run", number)


def test_all_parts_are_there_and_nothing_is_logged(visit, runs):
    driver = visit(runs[1])
    titles = driver.execute_script("return [...document.querySelectorAll('main > section h2')].map(h => h.textContent)")
    assert titles == ["Answer", "Examples", "Verdicts", "Tests", "Runs", "Definitions", "Files"]
    assert driver.execute_script("return document.images.length") >= 3
    assert driver.execute_script("return [...document.images].every(i => i.complete && i.naturalWidth > 0)")
    assert driver.get_log("browser") == []


@pytest.mark.parametrize("width", [390, 1280, 1400])
def test_no_page_is_wider_than_its_window(visit, runs, width):
    driver = visit(runs[1], width, dark=width < 600)
    driver.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    for title in ("reviews", "<u>odd"):
        choose_run(driver, title)
        assert driver.execute_script("return document.documentElement.scrollWidth") <= width


def test_sorts_by_every_measure_both_ways_with_undefined_numbers_last(visit, runs, examples):
    driver = visit(runs[1])
    choose_run(driver, "sst")
    put(driver, "sort", "adversarial-optimum_jsd")
    expected = examples.sort_values(["jsd", "example_id"], ascending=[False, True])["example_id"].tolist()
    assert listed(driver) == expected[:10]
    head = "document.getElementById('browser-by-measure')"
    assert driver.execute_script(f"return {head}.getAttribute('aria-sort')") == "descending"
    driver.execute_script(f"{head}.firstElementChild.click()")
    assert driver.execute_script(f"return {head}.getAttribute('aria-sort')") == "ascending"
    expected = examples.sort_values(["jsd", "example_id"])["example_id"].tolist()
    assert listed(driver) == expected[:10]
    put(driver, "sort", "erasure-removed_count_optimal")
    last = "document.getElementById('browser-after').click()"
    driver.execute_script("; ".join([last] * 5))
    shown = driver.execute_script(
        "return [...document.querySelectorAll('#browser-list td:last-child')].map(c => c.textContent)"
    )
    assert shown[-1] == "none"
    driver.execute_script("document.getElementById('browser-by-number').firstElementChild.click()")
    assert listed(driver) == list(range(10))


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("film", lambda words: any("film" in word for word in words)),
        ("Film mov", lambda words: any("film" in w for w in words) and any("mov" in w for w in words)),
        ('"not very"', lambda words: any(a == "not" and b.startswith("very") for a, b in itertools.pairwise(words))),
        ("映画", lambda words: "映画" in words),
        ("nothing-has-this", lambda words: False),
    ],
)
def test_search_finds_what_a_plain_loop_finds(visit, runs, examples, query, found):
    driver = visit(runs[1])
    choose_run(driver, "sst")
    put(driver, "query", query)
    # a question is two words of its text, in their order, and is searched as well
    assert count(driver) == sum(found([*row.tokens]) for row in examples.itertuples())
    put(driver, "query", "#7")
    assert listed(driver) == [7]


def test_filters_by_class_and_by_being_right(visit, runs, examples):
    driver = visit(runs[1])
    choose_run(driver, "sst")
    put(driver, "label", "1")
    assert count(driver) == (examples["label"] == 1).sum()
    put(driver, "right", "wrong")
    assert count(driver) == ((examples["label"] == 1) & (examples["prediction"] == 0)).sum()
    assert (
        driver.execute_script("return document.querySelector('#browser-list tbody .predicted').textContent") == "✗ bad"
    )


def test_heat_maps_show_the_weights_to_mouse_and_keyboard(visit, runs, examples):
    driver = visit(runs[1])
    choose_run(driver, "sst")
    example = examples[(examples["tokens"].map(len) > 5) & examples["flips"]].iloc[0]
    put(driver, "query", f"#{example['example_id']}")
    until(
        driver,
        f"return document.getElementById('browser-detail-title').textContent === 'Example {example['example_id']}'",
    )
    until(driver, "return document.querySelector('#browser-maps .token')")
    shown = "return [...document.querySelectorAll('#browser-maps h4')].map(h => h.firstChild.textContent)"
    assert driver.execute_script(shown) == ["Attention", "Leave-one-out"]
    driver.execute_script(
        "for (const box of document.querySelectorAll('#browser-maps-shown input')) if (!box.checked) box.click()"
    )
    until(driver, "return document.querySelectorAll('#browser-maps h4').length === 6")
    maps = driver.execute_script(shown)
    assert maps == ["Attention", "Adversary, found by search", "Farthest attention", "Gradient", "Leave-one-out",
                    "Smallest flipping set"]  # fmt: skip
    words = driver.execute_script(f"return {TOKENS}.map(t => t.textContent)")
    assert words == [*example["tokens"]]
    depth = driver.execute_script(f"return {TOKENS}.map(t => Number(t.style.getPropertyValue('--depth')))")
    np.testing.assert_allclose(depth, np.sqrt(example["attention"]), atol=2e-3)
    # one stop of the tab key per map, the arrows go on from there
    boxes = "[...document.querySelectorAll('#browser-maps .words')]"
    stops = f"return {boxes}.map(w => w.querySelectorAll('[tabindex=\"0\"]').length)"
    assert driver.execute_script(stops) == [1] * 6
    from selenium.webdriver.common.keys import Keys

    driver.execute_script("document.querySelector('#browser-maps .token[tabindex=\"0\"]').focus()")
    driver.switch_to.active_element.send_keys(Keys.HOME, Keys.ARROW_RIGHT)
    focused = driver.switch_to.active_element
    told = focused.get_attribute("aria-label")
    assert told.startswith(f"2: {example['tokens'][1]}. Attention {example['attention'][1]:.4f}, Adversary")
    assert driver.execute_script(
        "return !document.querySelector('.tip').hidden && document.querySelector('.tip').textContent.includes('Gradient')"
    )
    focused.send_keys(Keys.ARROW_DOWN)
    assert (
        driver.execute_script("return document.activeElement.parentElement.dataset.map")
        == "adversarial-found_attention"
    )
    assert driver.execute_script("return document.activeElement.dataset.i") == "1"


def test_hierarchical_texts_are_shown_by_sentence_and_questions_beside_texts(visit, runs):
    driver = visit(runs[1])
    choose_run(driver, "reviews")
    until(driver, "return document.querySelector('#browser-maps .sentences .token')")
    sentences = driver.execute_script("return document.querySelectorAll('#browser-maps .sentences')[0].children.length")
    facts = "[...document.querySelectorAll('.measures div')]"
    positions = driver.execute_script(
        f"return {facts}.find(d => d.firstChild.textContent === 'length').lastChild.textContent"
    )
    assert str(sentences) == positions
    assert (
        driver.execute_script("return document.querySelectorAll('[data-map=word_attention] .token').length")
        >= sentences
    )
    choose_run(driver, "sst")
    until(driver, "return document.querySelector('.asked')")
    asked = driver.execute_script("return [...document.querySelectorAll('.asked')].map(p => p.textContent)")
    assert asked[0].startswith("Question: ")
    assert asked[1] == "Candidates: 0, 1"


def test_hostile_words_are_text(visit, runs):
    driver = visit(runs[1])
    choose_run(driver, "<u>odd")
    shown = set()
    for number in range(20):
        put(driver, "query", f"#{number}")
        until(driver, f"return document.getElementById('browser-detail-title').textContent === 'Example {number}'")
        until(driver, "return document.querySelector('#browser-maps .token')")
        shown |= set(
            driver.execute_script(
                "return [...document.querySelectorAll('#browser-maps .token')].map(t => t.textContent)"
            )
        )
    named = {"\u202eabc": "⟨U+202E⟩abc", "\u200b": "⟨U+200B⟩"}
    assert shown == {named.get(word, word) for word in HOSTILE}
    assert driver.execute_script("return window.hacked") is None
    assert driver.execute_script("return document.querySelectorAll('main b b, u, #browser img').length") == 0
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
        name = driver.execute_script("const e = document.activeElement; return e.id || e.closest('[id]')?.id || ''")
        reached.add(name)
        if name == "browser-all" and "browser-query" not in reached:  # its summary: the list is folded
            driver.switch_to.active_element.send_keys(Keys.ENTER)
        if name == "browser-list" and driver.switch_to.active_element.text.startswith("#"):
            break
    assert {"browser-run", "browser-query", "browser-sort", "browser-by-number", "browser-list"} <= reached
    second = listed(driver)[1]
    driver.switch_to.active_element.send_keys(Keys.ARROW_DOWN, Keys.ENTER)
    assert until(driver, f"return document.getElementById('browser-detail-title').textContent === 'Example {second}'")


def test_the_table_of_runs_sorts_and_a_print_unfolds_everything(visit, runs):
    driver = visit(runs[1])
    head = "document.querySelector('.runs thead th')"
    first = "return document.querySelector('.runs tbody th').textContent"
    shown = []
    for _ in range(2):
        driver.execute_script(f"{head}.firstElementChild.click()")
        shown.append(driver.execute_script(first))
    assert shown == ["<u>odd</u>", "sst"]
    folded = "return document.querySelectorAll('details:not([open])').length"
    before = driver.execute_script(folded)
    driver.execute_script(
        "document.querySelector('details[open]').open = false; dispatchEvent(new Event('beforeprint'))"
    )
    assert driver.execute_script(folded) == 0
    driver.execute_script("dispatchEvent(new Event('afterprint'))")
    assert driver.execute_script(folded) == before + 1
