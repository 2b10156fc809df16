"""Addresses of examples, the listed rows as a file, and unknown words, in a real browser."""

import json

import numpy as np
import pandas as pd
import pytest

from attnprobe.report.page import build
from attnprobe.results.table import read_examples, read_results
from tests.report.conftest import invented_run
from tests.report.page.conftest import until
from tests.report.page.test_page import TOKENS, listed
from tests.runs import seal_again


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A page of two runs."""
    base = tmp_path_factory.mktemp("runs")
    for name, seed in (("a", 0), ("b", 1)):
        invented_run(base, name, seed=seed, names=["bad", "good"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "pictures", lambda *given, **named: [])
        return build.write_report(base, base / "report.html")


def test_an_address_leads_to_its_example_and_choosing_one_changes_the_address(visit, made):
    driver = visit(made)
    title = "return document.getElementById('browser-detail-title').textContent"
    driver.execute_script("location.hash = '#run=a&ex=57'")
    until(driver, f"{title} === 'Example 57'")
    assert 57 in listed(driver)
    driver.execute_script("document.querySelector('#browser-list tbody button').click()")
    first = listed(driver)[0]
    until(driver, f"{title} === 'Example {first}'")
    address = driver.execute_script("return document.getElementById('browser-link').href")
    assert address == driver.current_url == f"{made.as_uri()}#run=a&ex={first}"
    for address, shown in (("b&ex=3", " === 'Example 3'"), ("b&ex=no", ".startsWith('Example')")):
        driver.get("about:blank")
        driver.get(f"{made.as_uri()}#run={address}")
        assert until(driver, f"{title}{shown}")


def test_the_listed_rows_can_be_saved(visit, made, tmp_path):
    driver = visit(made)
    label = "const s = document.getElementById('browser-label'); s.value = '1'; s.dispatchEvent(new Event('change'))"
    driver.execute_script(label)
    driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    driver.execute_script("document.getElementById('browser-csv').click()")
    path = tmp_path / "a-examples.csv"
    for _ in range(200):
        if path.exists():
            break
        driver.execute_async_script("setTimeout(arguments[0], 50)")
    saved = pd.read_csv(path, encoding="utf-8-sig").set_index("example_id")
    examples, table = read_examples(made.parent / "a"), read_results(made.parent / "a", probe="adversarial")
    jsd = table[table["metric"] == "optimum_jsd"].set_index("example_id")["value"]
    expected = examples[examples["label"] == 1].set_index("example_id")
    assert set(saved.index) == set(expected.index)
    assert list(saved.index[:10]) == listed(driver)
    np.testing.assert_allclose(saved["adversarial-optimum_jsd"], jsd.loc[saved.index], atol=1e-6)
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
