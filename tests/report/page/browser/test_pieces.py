"""The pieces of words in the page."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attnprobe.report.page.build import write_report
from tests.report.page.browser.test_browse import browsed, columns_of, read
from tests.report.page.conftest import until
from tests.runs import seal_again


def with_pieces(directory):
    """The run with pieces among its examples, and what they are: words of more than three letters in two, between a start
    and an end; the weights of a text sum to 1."""
    path, rows = directory / "examples/test.parquet", []
    table = pq.read_table(path)
    for tokens in table["tokens"].to_pylist():
        parts = [[token[:3], f"##{token[3:]}"] if len(token) > 3 else [token] for token in tokens]
        pieces = ["[CLS]", *(piece for own in parts for piece in own), "[SEP]"]
        word = [-1, *(place for place, own in enumerate(parts) for _ in own), -1]
        weight = np.arange(1, len(pieces) + 1, dtype=np.float32)
        rows.append({"pieces": pieces, "piece_word": word, "piece_attention": (weight / weight.sum()).tolist()})
    for name in rows[0]:
        table = table.append_column(name, pa.array([row[name] for row in rows]))
    pq.write_table(table, path)
    seal_again(directory)
    return rows


@pytest.mark.parametrize("megabytes", [60, 0.03])
def test_every_kept_text_has_its_pieces_words_and_weights(make_run, megabytes):
    directory = make_run(count=300, probes=("performance", "permutation"))
    assert browsed(directory).index["runs"][0]["pieces"] is None
    rows = with_pieces(directory)
    silent = browsed(directory, words=False)
    assert silent.index["runs"][0]["pieces"] is None
    assert not any("pieces" in name for name in silent.blocks)
    browser = browsed(directory, megabytes=megabytes)
    run = browser.index["runs"][0]
    kept = columns_of(browser, run)["kept"]
    assert (len(kept) == 300) == (megabytes == 60)
    packed = [one for name in run["pieces"] for one in read(browser.blocks[name])]
    for row, found in zip(kept, packed, strict=True):
        weights = rows[row]["piece_attention"]
        assert found == rows[row] | {"piece_attention": pytest.approx(weights, abs=4e-3)}


def test_a_ticked_box_shows_the_pieces_of_each_word(make_run, visit, tmp_path, no_pictures):
    directory = make_run(count=30, words=("plain", "un", "<b>bold</b>"))
    rows = with_pieces(directory)
    driver = visit(write_report([directory], tmp_path / "page.html"))
    assert not driver.execute_script("return document.querySelector('.pieces')")
    driver.execute_script("document.getElementById('browser-pieces').click()")
    shown = until(driver, "return [...document.querySelectorAll('.pieces .token')].map((one) => one.textContent)")
    number = int(driver.execute_script("return document.getElementById('browser-detail-title').textContent")[8:])
    assert shown == rows[number]["pieces"]
    counted = "return [...document.querySelectorAll('.piece-word')].map((one) => one.children.length)"
    words = [word for word in rows[number]["piece_word"] if word >= 0]
    assert driver.execute_script(counted) == [1, *np.unique(words, return_counts=True)[1].tolist(), 1]
    driver.execute_script("document.querySelectorAll('.pieces .token')[1].focus()")
    tip = driver.execute_script("return document.querySelector('.tip').innerText")
    both = zip(rows[number]["piece_attention"], rows[number]["piece_word"], strict=True)
    own = [weight for weight, word in both if word == 0]
    assert f"{round(100 * own[0] / sum(own))} %" in tip
    assert not driver.get_log("browser")
