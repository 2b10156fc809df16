import base64
import gzip
import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from attnprobe.findings.groups import grouped, read_runs
from attnprobe.readings import registry
from attnprobe.readings.reading import Column, HeatMap, Reading
from attnprobe.report.page.browser import BLOCK_SIZE, browse, in_whole_numbers, packed, rounded
from attnprobe.report.page.build import write_report
from attnprobe.results.table import read_examples, read_results
from tests.report.page.conftest import EVERYTHING, until
from tests.small_runs import seal_again

MAPS = (
    ("adversarial", "found_attention"),
    ("adversarial", "optimum_attention"),
    ("gradient", "gradient"),
    ("leave_one_out", "leave_one_out"),
    ("erasure", "smallest_set"),
)


def read(block):
    """An independent reader, after the description in `packed`."""
    assert re.fullmatch(r"[A-Za-z0-9+/=]+", block)
    return json.loads(gzip.decompress(base64.b64decode(block)))


def first_run(browser):
    return browser.index["runs"][0]


def columns_of(browser, run):
    """The numbers of a run's examples, by the measure's key, and all other columns as stored."""
    columns = read(browser.blocks[run["numbers"]])
    for measure in run["measures"]:
        stored = columns[measure["column"]]
        columns[measure["key"]] = np.array(stored, float)
    return columns


def browsed(run, **settings):
    return browse(grouped(read_runs(run)), **settings)


def maps_of(browser, run):
    """Every map's weights of one run, a list for each example whose weights are in the page."""
    maps = {}
    for heat_map in run["maps"]:
        weights = []
        for name in heat_map["blocks"]:
            rows = read(browser.blocks[name])
            weights += [weights_of(*row) for row in rows]
        maps[heat_map["key"]] = weights
    return maps


def weights_of(decimals=0, *numbers):
    """An independent reader of a text's weights, after the description in `in_whole_numbers`."""
    weights = np.array(numbers, float)  # None is NaN
    return (weights / 10**decimals).tolist()


def test_what_is_packed_comes_back_and_gives_the_same_text_twice():
    words = ["</script>", "\u2028", "a&b", '"', "\ud800", "кино"]
    numbers = rounded([1, 0.1234567, np.nan])
    content = {"words": words, "numbers": numbers}
    assert packed(content) == packed(content)
    assert read(packed(content)) == {
        "words": words,
        "numbers": [1, 0.12346, None],
    }


def multiply_values(path, times):
    table = pq.read_table(path)
    values = table["value"]
    factor = pa.scalar(times, values.type)
    place = table.column_names.index("value")
    multiplied = table.set_column(place, "value", pc.multiply(values, factor))
    pq.write_table(multiplied, path)


def weights_by_place(results, metric):
    """A metric's values by (example, position)."""
    rows = results[results["metric"] == metric]
    weights = rows.dropna(subset=["step", "value"]).astype({"step": int})
    by_place = weights.set_index(["example_id", "step"])["value"]
    return by_place.to_dict()


@pytest.mark.parametrize("times", [1, 4])
def test_weights_are_those_of_the_tables_position_by_position(make_run, times):
    """Also where they are beyond 1, as distances of scores are."""
    directory = make_run(count=23, probes=EVERYTHING)
    multiply_values(directory / "tables/leave_one_out.parquet", times)
    seal_again(directory)
    browser = browsed(directory)
    maps = maps_of(browser, first_run(browser))
    results = read_results(directory)
    examples = read_examples(directory)
    metrics = {f"{probe}-{metric}": metric for probe, metric in MAPS}
    assert set(maps) == {"attention", *metrics}
    assert len(maps["attention"]) == len(examples)
    attention = np.concatenate(maps["attention"])
    expected_attention = np.concatenate(examples["attention"])
    assert_allclose(attention, expected_attention, atol=6e-5)

    for key, metric in metrics.items():
        heat_map = maps[key]
        expected = weights_by_place(results, metric)
        examples_with_weights = {number for number, _ in expected}
        for number, words in enumerate(examples["tokens"]):
            size = len(words) if number in examples_with_weights else 0
            assert len(heat_map[number]) == size
        weights = {}
        for number, step in expected:
            weights[number, step] = heat_map[number][step]
        assert weights == pytest.approx(expected, abs=6e-5)


def test_numbers_are_those_of_the_tables_and_undefined_ones_stay_so(make_run):
    directory = make_run(count=23, probes=EVERYTHING)
    browser = browsed(directory)
    columns = columns_of(browser, first_run(browser))
    results = read_results(directory)

    def values_of(metric):
        rows = results[results["metric"] == metric]
        first_rows = rows.drop_duplicates("example_id")
        by_example = first_rows.set_index("example_id")["value"]
        return by_example.loc[:22]

    metrics = {
        "adversarial-optimum_jsd": "optimum_jsd",
        "erasure-removed_count_optimal": "removed_count_optimal",
        "erasure-never_flips": "never_flips",
        "permutation-median_tvd": "median_tvd",
        "max_attention": "max_attention",
    }
    for key, metric in metrics.items():
        assert_allclose(columns[key], values_of(metric), atol=1e-6)
    assert np.isnan(columns["erasure-removed_count_optimal"]).any()

    disagreement = columns["correlation-tau_attention_gradient"]
    tau = values_of("tau_attention_gradient")
    assert_allclose(disagreement, 1 - tau, atol=1e-6)


def test_margin_and_label_are_those_of_the_examples(make_run):
    directory = make_run(count=23, probes=EVERYTHING)
    browser = browsed(directory)
    columns = columns_of(browser, first_run(browser))
    examples = read_examples(directory)
    probability = np.stack(examples["probability"])
    *_, second, highest = np.sort(probability).T
    margin = highest - second
    assert_allclose(columns["margin"], margin, atol=1e-6)
    assert_array_equal(columns["label"], examples["label"])


@pytest.mark.parametrize("largest", [40.0, 1.0, 3e-3, 7e-12])
def test_weights_keep_four_decimals_and_three_digits_of_the_texts_largest(largest):
    draw = np.random.default_rng(3)
    texts = []
    for length in (7, 0, 1, 30):
        noise = draw.uniform(-1, 1, length)
        texts.append(largest * noise)
    texts[3][4] = np.nan
    packed_texts = in_whole_numbers(texts)
    for weights, row in zip(texts, packed_texts, strict=True):
        assert {type(number) for number in row} <= {int, type(None)}
        largest_of_text = np.nanmax(np.abs(weights), initial=0)
        finest = min(1e-4, largest_of_text / 100)
        assert_allclose(weights_of(*row), weights, atol=0.51 * finest, rtol=0)


def test_no_texts_and_weights_of_0_are_packed_too():
    nothing = np.zeros(2)
    assert in_whole_numbers([]) == []
    assert in_whole_numbers([nothing]) == [[4, 0, 0]]


@pytest.mark.parametrize("largest", [3e17, 2e250])
def test_weights_beyond_whole_numbers_of_the_script_keep_fifteen_digits(largest):
    weights = largest * np.array([1.0, -0.25, 1e-3])
    (row,) = in_whole_numbers([weights])
    assert max(map(abs, row)) < 2**53
    decimals, *numbers = row
    factor = 10.0**-decimals
    assert_allclose(np.array(numbers) * factor, weights, rtol=1e-11)


def test_weights_below_what_the_script_can_scale_are_nothing():
    weights = np.array([5e-324, 0.0])
    (row,) = in_whole_numbers([weights])
    assert row == [300, 0, 0]


def test_a_column_that_another_has_too_is_packed_once(make_run):
    """The farthest attention that is proved is its own upper bound."""
    browser = browsed(make_run(count=23, probes=EVERYTHING))
    run = first_run(browser)
    stored = read(browser.blocks[run["numbers"]])
    column_of = {measure["key"]: measure["column"] for measure in run["measures"]}
    shared = [key for key, column in column_of.items() if key != column]
    assert shared
    assert not set(shared) & set(stored)

    columns = set(column_of.values())
    different_contents = {str(stored[column]) for column in columns}
    assert len(different_contents) == len(columns) < len(stored)


def test_runs_that_read_the_same_texts_share_them(make_run, tmp_path):
    for model in ("lstm_additive", "cnn_additive"):
        make_run(model, model=model, count=9)
    make_run("other", data="imdb", count=8)
    browser = browsed(tmp_path)
    assert browser.index["texts"] == ["texts-0", "texts-1"]
    runs = browser.index["runs"]
    texts = {run["run_id"]: run["texts"] for run in runs}
    assert texts["lstm_additive"] == texts["cnn_additive"]
    assert texts["lstm_additive"] != texts["other"]


def test_texts_come_back_word_by_word(make_run):
    directory = make_run(count=12, hierarchical=True, questions=True)
    browser = browsed(directory)
    texts = read(browser.blocks["texts-0"])
    examples = read_examples(directory)
    words = texts["words"]
    lengths = texts["lengths"]
    for place, sentences in enumerate(examples["words"]):
        assert words[place] == [list(sentence) for sentence in sentences]
        assert lengths[place] == [len(sentence) for sentence in sentences]
    assert len(words) == len(lengths) == 12
    assert texts["question"] == examples["question"].map(list).tolist()

    word_attention = maps_of(browser, first_run(browser))["word_attention"]
    for weights, by_sentence in zip(word_attention, examples["word_attention"], strict=True):
        expected = np.concatenate(list(by_sentence))
        assert_allclose(weights, expected, atol=6e-5)


def test_without_words_positions_remain(make_run):
    secret = "sesame"
    directory = make_run(words=[secret], questions=True)
    browser = browsed(directory, words=False)
    for name, block in browser.blocks.items():
        assert secret not in str(read(block)), name
    texts = read(browser.blocks["texts-0"])
    assert set(texts) == {"lengths"}
    assert sum(texts["lengths"]) > 0


def test_a_page_that_would_be_too_large_keeps_weights_of_some_examples_and_all_numbers(make_run):
    directory = make_run(count=200)
    whole = browsed(directory)
    assert whole.remark == ""
    megabytes_of_texts = len(whole.blocks["texts-0"]) / 1e6
    fewer = browsed(directory, megabytes=megabytes_of_texts + 0.01)
    run = first_run(fewer)
    columns = columns_of(fewer, run)
    kept_rows = columns["kept"]
    assert 0 < len(kept_rows) < 200
    percent_kept = f"{len(kept_rows) / 200:.0%}"
    percent_told = fewer.remark.split("kept for ")[1]
    assert percent_told[0] == percent_kept[0]

    weights = maps_of(fewer, run)["attention"]
    all_weights = maps_of(whole, first_run(whole))["attention"]
    assert weights == [all_weights[row] for row in kept_rows]

    # the extremes of what the list can be sorted by are there
    jsd = columns["adversarial-optimum_jsd"]
    extremes = {np.nanargmax(jsd), np.nanargmin(jsd)}
    assert extremes <= set(kept_rows)
    assert len(jsd) == 200


def test_blocks_cover_all_examples_in_order(make_run):
    browser = browsed(make_run("long", count=BLOCK_SIZE + 3, longest=3))
    [heat_map, *_] = first_run(browser)["maps"]
    first, second = [read(browser.blocks[name]) for name in heat_map["blocks"]]
    assert len(first) == BLOCK_SIZE
    assert len(second) == 3


def test_several_labels_at_once_are_lists_and_have_no_margin(make_run):
    directory = make_run(count=4)
    path = directory / "examples/test.parquet"
    table = pq.read_table(path)
    sides = {
        "label": [[0, 1], [1, 1], [0, 0], [1, 0]],
        "prediction": [[0, 1], [1, 0], [0, 0], [0, 1]],
    }
    for side, rows in sides.items():
        place = table.column_names.index(side)
        table = table.set_column(place, side, pa.array(rows))
    pq.write_table(table, path)
    seal_again(directory)

    browser = browsed(directory)
    run = first_run(browser)
    columns = columns_of(browser, run)
    assert columns["label"] == [[1], [0, 1], [], [0]]
    assert columns["prediction"] == [[1], [0], [], [1]]
    assert "margin" not in columns
    assert "margin" not in {measure["key"] for measure in run["measures"]}


def test_a_readings_maps_and_columns_are_all_that_it_takes(make_run, monkeypatch):
    """As a probe of an installed package brings them."""
    maps = (HeatMap("gradient", "Theirs", "a number of theirs", relative=True),)
    columns = (Column("max_gradient", "theirs", one_minus=True, leads=True),)
    mine = Reading("gradient", maps=maps, columns=columns)
    monkeypatch.setattr(registry, "readings", lambda: {mine.probe: mine})
    directory = make_run(count=9, probes=EVERYTHING)
    browser = browsed(directory)
    run = first_run(browser)
    [attention, gradient] = run["maps"]
    assert attention["key"] == "attention"
    assert attention["title"] == "Attention"
    assert attention["relative"] is False
    assert gradient["key"] == "gradient-gradient"
    assert gradient["title"] == "Theirs"
    assert gradient["relative"] is True
    assert run["measures"][0]["key"] == "gradient-max_gradient"

    table = read_results(directory).sort_values(["example_id", "step"])
    expected_weights = table[table["metric"] == "gradient"]["value"]
    weights = np.concatenate(maps_of(browser, run)["gradient-gradient"])
    assert_allclose(weights, expected_weights, atol=6e-5)

    largest = table[table["metric"] == "max_gradient"]["value"]
    column = columns_of(browser, run)["gradient-max_gradient"]
    assert_allclose(column, 1 - largest, atol=1e-6)


def pieces_of(tokens):
    """Words of more than three letters in two pieces, between a start and an end; the weights sum
    to 1."""
    pieces = ["[CLS]"]
    words = [-1]
    for place, token in enumerate(tokens):
        pieces.append(token[:3])
        words.append(place)
        if len(token) > 3:
            pieces.append(f"##{token[3:]}")
            words.append(place)
    pieces.append("[SEP]")
    words.append(-1)
    numbers = np.arange(1, len(pieces) + 1, dtype=np.float32)
    weights = numbers / numbers.sum()
    return {
        "pieces": pieces,
        "piece_word": words,
        "piece_attention": weights.tolist(),
    }


def with_pieces(directory):
    """The run with pieces among its examples, and what they are."""
    path = directory / "examples/test.parquet"
    table = pq.read_table(path)
    rows = [pieces_of(tokens) for tokens in table["tokens"].to_pylist()]
    for name in rows[0]:
        column = pa.array([row[name] for row in rows])
        table = table.append_column(name, column)
    pq.write_table(table, path)
    seal_again(directory)
    return rows


@pytest.mark.parametrize("megabytes", [60, 0.03])
def test_every_kept_text_has_its_pieces_words_and_weights(make_run, megabytes):
    directory = make_run(count=300, probes=("performance", "permutation"))
    assert first_run(browsed(directory))["pieces"] is None
    rows = with_pieces(directory)
    silent = browsed(directory, words=False)
    assert first_run(silent)["pieces"] is None
    assert not any("pieces" in name for name in silent.blocks)

    browser = browsed(directory, megabytes=megabytes)
    run = first_run(browser)
    kept_rows = columns_of(browser, run)["kept"]
    assert (len(kept_rows) == 300) == (megabytes == 60)
    packed_texts = []
    for name in run["pieces"]:
        packed_texts += read(browser.blocks[name])
    for row, text_pieces in zip(kept_rows, packed_texts, strict=True):
        expected = rows[row]
        weights = pytest.approx(expected["piece_attention"], abs=4e-3)
        assert text_pieces == expected | {"piece_attention": weights}


def test_a_ticked_box_shows_the_pieces_of_each_word(make_run, visit, tmp_path, no_pictures):
    directory = make_run(count=30, words=("plain", "un", "<b>bold</b>"))
    rows = with_pieces(directory)
    driver = visit(write_report([directory], tmp_path / "page.html"))
    script = driver.execute_script
    assert not script("return document.querySelector('.pieces')")

    script("document.getElementById('browser-pieces').click()")
    shown_pieces = until(
        driver,
        "return [...document.querySelectorAll('.pieces .token')].map((token) => token.textContent)",
    )
    title = script("return document.getElementById('browser-detail-title').textContent")
    text = rows[int(title.removeprefix("Example "))]
    assert shown_pieces == text["pieces"]

    pieces_of_groups = script(
        "return [...document.querySelectorAll('.piece-word')].map((word) => word.children.length)"
    )
    words = [word for word in text["piece_word"] if word >= 0]
    _, pieces_of_words = np.unique(words, return_counts=True)
    assert pieces_of_groups == [1, *pieces_of_words, 1]  # start and end are groups of their own

    script("document.querySelectorAll('.pieces .token')[1].focus()")
    tip = script("return document.querySelector('.tip').innerText")
    is_first_word = np.array(text["piece_word"]) == 0
    weights = np.array(text["piece_attention"])[is_first_word]
    percent_of_word = 100 * weights[0] / weights.sum()
    assert f"{percent_of_word:.0f} %" in tip
    assert not driver.get_log("browser")
