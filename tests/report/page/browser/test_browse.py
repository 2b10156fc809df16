import base64
import gzip
import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from attnprobe.core.errors import UserError
from attnprobe.evidence import reading
from attnprobe.findings.groups import grouped, read_runs
from attnprobe.report.page.browser import LEVELS, browse, packed, quantised, spans
from attnprobe.results.table import read_examples, read_results
from tests.report.page.conftest import EVERYTHING
from tests.runs import seal_again

MAPS = (
    ("adversarial", "found_attention"), ("adversarial", "optimum_attention"), ("gradient", "gradient"),
    ("leave_one_out", "leave_one_out"), ("erasure", "smallest_set"),
)  # fmt: skip


def read(block):
    """An independent reader, after the description in `packed`."""
    assert re.fullmatch(r"[A-Za-z0-9+/=]+", block.text)
    content = gzip.decompress(base64.b64decode(block.text))
    kinds = {"Uint8Array": "<u1", "Uint16Array": "<u2", "Uint32Array": "<u4", "Int32Array": "<i4", "Float32Array": "<f4",
             "Float64Array": "<f8"}  # fmt: skip
    return json.loads(content) if block.type == "JSON" else np.frombuffer(content, kinds[block.type])


def read_all(browser, names):
    """Key → name of a block, as key → its content."""
    return {key: read(browser.blocks[name]) for key, name in names.items()}


def restored(numbers):
    """Quantised weights as the page reads them."""
    return np.where(numbers > LEVELS, np.nan, (numbers / LEVELS) ** 2)


def browsed(run, **settings):
    return browse(grouped(read_runs(run)), **settings)


def maps_of(browser, run):
    """Every map's weights of one run, all blocks in a row."""
    return {
        one["key"]: one["unit"] * restored(np.concatenate([read(browser.blocks[name]) for name in one["blocks"]]))
        for one in run["maps"]
    }


@pytest.mark.parametrize(
    "content",
    [
        np.array([1, 2, 255], np.uint8), np.array([1.5, np.nan]), np.zeros(0, np.int32),
        {"words": ["</script>", "\u2028", "a&b", '"', "\ud800", "кино"]},
    ],
)  # fmt: skip
def test_what_is_packed_comes_back_and_gives_the_same_text_twice(content):
    assert packed(content) == packed(content)
    again = read(packed(content))
    np.testing.assert_array_equal(again, content) if isinstance(content, np.ndarray) else None
    assert isinstance(content, np.ndarray) or again == content



def test_weights_come_back_within_the_stated_error():
    values = np.concatenate([np.linspace(0, 1, 1001), np.geomspace(1e-6, 1, 200)])
    error = np.abs(restored(quantised(values)) - values)
    assert (error <= np.sqrt(values) / LEVELS + 1 / LEVELS**2).all()
    assert np.isnan(restored(quantised(np.array([np.nan])))).all()


@pytest.mark.parametrize("times", [1, 4])
def test_weights_are_those_of_the_tables_position_by_position(make_run, times):
    """Also where they are beyond 1, as distances of scores are."""
    directory = make_run(count=23, probes=EVERYTHING)
    path = directory / "tables/leave_one_out.parquet"
    table = pq.read_table(path)
    values = pc.multiply(table["value"], pa.scalar(times, table["value"].type))
    pq.write_table(table.set_column(table.column_names.index("value"), "value", values), path)
    seal_again(directory)
    browser = browsed(directory)
    found = maps_of(browser, browser.index["runs"][0])
    results, examples = read_results(directory), read_examples(directory)
    metrics = {f"{probe}-{metric}": metric for probe, metric in MAPS}
    assert set(found) == {"attention", *metrics}
    place = 0
    for example in examples.itertuples():
        count = len(example.tokens)
        np.testing.assert_allclose(found["attention"][place : place + count], example.attention, atol=2e-5)
        for key, metric in metrics.items():
            rows = results[(results["metric"] == metric) & (results["example_id"] == example.example_id)]
            for row in rows.dropna(subset="step").itertuples():
                assert found[key][place + int(row.step)] == pytest.approx(row.value, abs=2e-5 * times, nan_ok=True)
        place += count
    assert place == len(found["attention"])


def test_numbers_are_those_of_the_tables_and_undefined_ones_stay_so(make_run):
    directory = make_run(count=23, probes=EVERYTHING)
    browser = browsed(directory)
    run = browser.index["runs"][0]
    columns = read_all(browser, run["numbers"])
    results = read_results(directory)

    def table(metric):
        return (
            results[results["metric"] == metric].drop_duplicates("example_id").set_index("example_id")["value"].loc[:22]
        )

    for key, metric in {"adversarial-optimum_jsd": "optimum_jsd", "erasure-removed_count_optimal": "removed_count_optimal",
                        "erasure-never_flips": "never_flips", "permutation-median_tvd": "median_tvd",
                        "max_attention": "max_attention"}.items():  # fmt: skip
        np.testing.assert_allclose(columns[key], table(metric), atol=1e-6)
    tau = table("tau_attention_gradient")
    np.testing.assert_allclose(columns["correlation-tau_attention_gradient"], 1 - tau, atol=1e-6)
    assert np.isnan(columns["erasure-removed_count_optimal"]).any()
    examples = read_examples(directory)
    sure = np.sort(np.stack(examples["probability"]), axis=1)
    np.testing.assert_allclose(columns["margin"], sure[:, -1] - sure[:, -2], atol=1e-6)
    np.testing.assert_array_equal(columns["label"], examples["label"])


def test_runs_that_read_the_same_texts_share_them(make_run, tmp_path):
    for model in ("lstm_additive", "cnn_additive"):
        make_run(model, model=model, count=9)
    make_run("other", data="imdb", count=8)
    browser = browsed(tmp_path)
    assert [texts["words"] for texts in browser.index["texts"]] == ["texts-0-words", "texts-1-words"]
    used = {run["title"]: run["texts"] for run in browser.index["runs"]}
    assert (
        used["sst · lstm_additive · seed 0"]
        == used["sst · cnn_additive · seed 0"]
        != used["imdb · lstm_additive · seed 0"]
    )


@pytest.mark.parametrize("hierarchical", [False, True])
def test_texts_come_back_word_by_word(make_run, hierarchical):
    directory = make_run(count=12, hierarchical=hierarchical, questions=True)
    browser = browsed(directory)
    arrays = read_all(browser, browser.index["texts"][0])
    words = [arrays["vocabulary"][number] for number in arrays["words"]]
    examples = read_examples(directory)
    rows = examples["words" if hierarchical else "tokens"]
    if hierarchical:
        assert words == [word for row in rows for sentence in row for word in sentence]
        assert arrays["sentence"].tolist() == [len(sentence) for row in rows for sentence in row]
    else:
        assert words == [word for row in rows for word in row]
    assert arrays["items"].tolist() == [len(row) for row in rows]
    asked = [arrays["vocabulary"][number] for number in arrays["question"]]
    assert asked == [word for row in examples["question"] for word in row]
    found = maps_of(browser, browser.index["runs"][0])
    assert ("word_attention" in found) == hierarchical
    if hierarchical:
        expected = np.concatenate([np.concatenate(list(row)) for row in examples["word_attention"]])
        np.testing.assert_allclose(found["word_attention"], expected, atol=2e-5)


def test_without_words_positions_remain(make_run):
    secret = "sesame"
    browser = browsed(make_run(words=[secret], questions=True), words=False)
    assert not any(secret in str(read(block)) for block in browser.blocks.values())
    assert set(browser.index["texts"][0]) == {"items"}
    assert read(browser.blocks["texts-0-items"]).sum() > 0


def test_a_page_that_would_be_too_large_keeps_weights_of_some_examples_and_all_numbers(make_run):
    directory = make_run(count=200)
    whole = browsed(directory)
    assert whole.remark == ""
    texts = sum(len(block.text) for name, block in whole.blocks.items() if name.startswith("texts")) / 1e6
    fewer = browsed(directory, megabytes=texts + 0.004)
    run = fewer.index["runs"][0]
    columns = read_all(fewer, run["numbers"])
    kept = columns["kept"].astype(bool)
    assert 0 < kept.sum() < 200
    assert sum(block["count"] for block in run["blocks"]) == kept.sum()
    assert f"{kept.sum() / 200:.0%}"[:1] == fewer.remark.split("kept for ")[1][:1]
    items = read(fewer.blocks["texts-0-items"])
    weights, every = maps_of(fewer, run)["attention"], maps_of(whole, whole.index["runs"][0])["attention"]
    np.testing.assert_allclose(weights, every[np.repeat(kept, items)], atol=0.005)
    # the extremes of what the list can be sorted by are there
    assert kept[np.nanargmax(columns["adversarial-optimum_jsd"])]
    assert kept[np.nanargmin(columns["adversarial-optimum_jsd"])]
    assert len(columns["adversarial-optimum_jsd"]) == 200


def test_blocks_cover_all_examples_in_order():
    lengths = np.array([5, 0, 7, 30, 1, 1, 0, 9])
    found = spans(lengths, 10)
    assert [row for first, stop in found for row in range(first, stop)] == list(range(8))
    assert max(lengths[first:stop].sum() for first, stop in found) <= 10 + 30
    assert spans(np.zeros(0, int), 10) == []


def test_several_labels_at_once_are_lists_and_have_no_margin(make_run):
    directory = make_run(count=4)
    path = directory / "examples/test.parquet"
    table = pq.read_table(path)
    for side, rows in {
        "label": [[0, 1], [1, 1], [0, 0], [1, 0]],
        "prediction": [[0, 1], [1, 0], [0, 0], [0, 1]],
    }.items():
        table = table.set_column(table.column_names.index(side), side, pa.array(rows))
    pq.write_table(table, path)
    seal_again(directory)
    browser = browsed(directory)
    columns = read_all(browser, browser.index["runs"][0]["numbers"])
    assert (columns["label"], columns["prediction"]) == ([[1], [0, 1], [], [0]], [[1], [0], [], [1]])
    assert "margin" not in columns
    assert "margin" not in {measure["key"] for measure in browser.index["runs"][0]["measures"]}


def test_a_run_without_its_examples_is_named(make_run):
    directory = make_run()
    (directory / "examples/test.parquet").unlink()
    with pytest.raises(UserError, match=r"examples/test\.parquet is damaged: it is missing"):
        browsed(directory)


def test_a_readings_maps_and_columns_are_all_that_it_takes(make_run, monkeypatch):
    """As a probe of an installed package brings them."""
    mine = reading.Reading(
        "gradient",
        maps=(reading.HeatMap("gradient", "Theirs", "a number of theirs", relative=True),),
        columns=(reading.Column("max_gradient", "theirs", one_minus=True, leads=True),),
    )
    monkeypatch.setattr(reading, "readings", lambda: {mine.probe: mine})
    directory = make_run(count=9, probes=EVERYTHING)
    browser = browsed(directory)
    run = browser.index["runs"][0]
    assert [(one["key"], one["title"], one["relative"]) for one in run["maps"]] == [
        ("attention", "Attention", False),
        ("gradient-gradient", "Theirs", True),
    ]
    assert run["measures"][0]["key"] == "gradient-max_gradient"
    table = read_results(directory)
    rows = table[table["metric"] == "gradient"].sort_values(["example_id", "step"])
    np.testing.assert_allclose(maps_of(browser, run)["gradient-gradient"], rows["value"], atol=2e-5)
    columns = read_all(browser, run["numbers"])
    largest = table[table["metric"] == "max_gradient"].sort_values("example_id")["value"]
    np.testing.assert_allclose(columns["gradient-max_gradient"], 1 - largest, atol=1e-6)
