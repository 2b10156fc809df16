import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from attnprobe.core.readout import Readout
from attnprobe.measures import jensen_shannon, total_variation
from attnprobe.report.page import build
from attnprobe.results.directory import PLAYGROUND
from attnprobe.results.playground import write_playground
from attnprobe.results.table import read_examples
from attnprobe.runs.collecting import played
from tests.invented_runs import invented_run
from tests.report.page.conftest import until
from tests.small_runs import seal_again

NAMES = ["bad", "so-so", "<b>good</b>"]


def readout_of(row, seed):
    draw = np.random.default_rng(seed)
    attention = np.array(row["attention"])
    attention = torch.from_numpy(attention / attention.sum())[None]
    logits = torch.from_numpy(draw.normal(0, 3, (1, attention.shape[1], len(NAMES))))
    content = torch.ones_like(attention, dtype=torch.bool)
    return Readout(attention, content, torch.tensor([row["example_id"]]), position_logits=logits)


@pytest.fixture(scope="module")
def playground(tmp_path_factory):
    base = tmp_path_factory.mktemp("runs")
    run = invented_run(
        base, "a", classes=3, names=NAMES, count=8, probes=("performance", "permutation")
    )
    examples = read_examples(run)
    longer = examples[examples["tokens"].map(len) > 3].head(4).to_dict("records")
    readouts = {row["example_id"]: readout_of(row, row["example_id"]) for row in longer}
    rows = [row for readout in readouts.values() for row in played(readout, 0.05)]
    write_playground(rows, run / PLAYGROUND)
    seal_again(run)
    return (
        build.write_report(base, base / "report.html"),
        readouts,
        {row["example_id"]: row for row in rows},
    )


def shown(driver):
    return driver.execute_script(
        """const all = (of) => [...document.querySelectorAll(of)];
        const said = document.getElementById('play-said').dataset;
        return [all('#play-words output').map(o => Number(o.dataset.value)),
                all('#play-classes [data-value]').map(c => Number(c.dataset.value)),
                Number(said.tvd), Number(said.jsd),
                all('#play-words button').map(b => b.getAttribute('aria-pressed') === 'true')];"""
    )


def check(driver, readout, attention=None):
    """Compare what is shown with the readout; returns what is struck."""
    weights, probability, tvd, jsd, struck = shown(driver)
    shown_attention = torch.tensor([weights], dtype=torch.float64)
    assert sum(weights) == pytest.approx(1, abs=1e-12)
    if attention is not None:
        assert_allclose(weights, attention, atol=1e-12)
    expected = readout.predict(shown_attention)[0]
    assert_allclose(probability, expected, atol=1e-9)
    assert tvd == pytest.approx(float(total_variation(expected, readout.prediction()[0])), abs=1e-9)
    assert jsd == pytest.approx(float(jensen_shannon(shown_attention, readout.attention)), abs=1e-9)
    return struck


CHOOSE = """const s = document.getElementById('play-text');
  s.value = arguments[0]; s.dispatchEvent(new Event('change'))"""
STRIKE = "document.querySelectorAll('#play-words button')[arguments[0]].click()"


def press(driver, name):
    driver.execute_script(f"document.getElementById('play-{name}').click()")


def test_what_is_shown_is_what_the_readout_says(visit, playground):
    page, readouts, solved = playground
    driver = visit(page)
    assert until(driver, "return !document.getElementById('play').hidden")
    for place, (number, readout) in enumerate(readouts.items()):
        driver.execute_script(CHOOSE, str(place))
        attention = readout.attention[0].numpy()
        row = solved[number]
        assert not any(check(driver, readout, attention))
        press(driver, "even")
        check(driver, readout, np.full(len(attention), 1 / len(attention)))
        press(driver, "farthest")
        check(driver, readout, row["farthest"])
        assert shown(driver)[3] == pytest.approx(row["jsd"], abs=1e-9)
        assert shown(driver)[2] <= 0.05 + 1e-9
        disabled = driver.execute_script("return document.getElementById('play-flip').disabled")
        assert disabled == (row["flips_to"] < 0)
        if not disabled:
            press(driver, "flip")
            remaining = attention * ~np.array(row["flipping"])
            assert check(driver, readout, remaining / remaining.sum()) == row["flipping"]
            assert int(np.argmax(shown(driver)[1])) == row["flips_to"]
        press(driver, "own")
        check(driver, readout, attention)
    assert driver.get_log("browser") == []


def test_the_probabilities_of_long_names_are_seen_without_scrolling(visit, tmp_path):
    run = invented_run(tmp_path, "a", names=["no", f"yes {'x' * 90}"], count=8)
    row = read_examples(run).iloc[0].to_dict()
    attention = torch.tensor(row["attention"] / row["attention"].sum())[None]
    content = torch.ones_like(attention, dtype=torch.bool)
    logits = torch.zeros(*attention.shape, 2, dtype=torch.float64)
    example_id = torch.tensor([row["example_id"]])
    readout = Readout(attention, content, example_id, position_logits=logits)
    write_playground(played(readout, 0.05), run / PLAYGROUND)
    seal_again(run)
    driver = visit(build.write_report(run, tmp_path / "report.html"))
    is_inside = """const box = document.querySelector('.play-classes').getBoundingClientRect();
        const cells = [...document.querySelectorAll('#play-classes td')];
        return cells.map(cell => cell.getBoundingClientRect().right <= box.right + 1);"""
    inside = driver.execute_script(is_inside)
    assert inside
    assert all(inside)


def test_dragging_and_striking_renormalise_the_others(visit, playground):
    from selenium.webdriver.common.keys import Keys

    page, readouts, _ = playground
    driver = visit(page, 390, dark=True)
    until(driver, "return !document.getElementById('play').hidden")
    assert driver.execute_script("return document.documentElement.scrollWidth") <= 390
    readout = next(iter(readouts.values()))
    attention = readout.attention[0].numpy()
    drag = """const s = document.querySelectorAll('#play-words input')[arguments[0]];
              s.value = arguments[1]; s.dispatchEvent(new Event('input'))"""
    driver.execute_script(drag, 1, "0.25")
    one_hot = np.arange(len(attention)) == 1
    other_weights = np.where(one_hot, 0, attention)
    without_word = other_weights / other_weights.sum()
    dragged = 0.75 * without_word + 0.25 * one_hot
    check(driver, readout, dragged)
    # all of the attention on one word, and back: the others come back as the model has them
    driver.execute_script(drag, 1, "1")
    check(driver, readout, one_hot)
    driver.execute_script(drag, 1, "0.25")
    check(driver, readout, dragged)
    # by keyboard alone: strike the word, and change the next one's weight
    driver.execute_script("document.querySelectorAll('#play-words button')[1].focus()")
    driver.switch_to.active_element.send_keys(Keys.ENTER)
    assert check(driver, readout, without_word)[1]
    driver.switch_to.active_element.send_keys(Keys.TAB, Keys.TAB, Keys.TAB)
    before = shown(driver)[0][2]
    driver.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    assert check(driver, readout)[1]
    assert shown(driver)[0][2] > before
    driver.execute_script(STRIKE, 1)
    assert not any(check(driver, readout))
    # the last word keeps what there is
    for place in range(len(attention)):
        driver.execute_script(STRIKE, place)
    struck = check(driver, readout)
    assert struck.count(False) == 1
    driver.execute_script(STRIKE, struck.index(False))
    assert check(driver, readout) == struck
    assert driver.execute_script(
        "return document.getElementById('play-note').textContent"
    ).startswith("One word has")


def test_a_text_that_nothing_flips_says_so_and_words_may_be_left_out(visit, tmp_path):
    run = invented_run(tmp_path, "b", count=4, probes=("performance", "permutation"))
    row = read_examples(run).to_dict("records")[0]
    attention = torch.tensor(np.array([row["attention"]]))
    logits = torch.stack([torch.zeros_like(attention), torch.ones_like(attention)], -1)
    agreed = Readout(
        attention, attention >= 0, torch.tensor([row["example_id"]]), position_logits=logits
    )
    write_playground(played(agreed, 0.01), run / PLAYGROUND)
    seal_again(run)
    driver = visit(build.write_report(run, tmp_path / "report.html", words=False))
    until(driver, "return !document.getElementById('play').hidden")
    button = driver.execute_script(
        "const b = document.getElementById('play-flip'); return [b.disabled, b.textContent]"
    )
    assert button == [True, "No erasure flips it"]
    words = driver.execute_script(
        "return [...document.querySelectorAll('#play-words button')].map(b => b.textContent)"
    )
    assert words == [f"position {place + 1}" for place in range(len(row["tokens"]))]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    seen = "return getComputedStyle(document.querySelector(arguments[0])).display"
    assert driver.execute_script(seen, "#play-words input") == "none"
    assert driver.execute_script(seen, "#play-words output") != "none"
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    # a model without a linear decoder has no playground
    assert not [
        *played(Readout(attention, attention > 0, torch.tensor([0]), decode=lambda a: a), 0.01)
    ]
