from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from attnprobe.findings.groups import read_run
from attnprobe.report.tracking import example_table
from attnprobe.results.numbers import numbers_of
from attnprobe.results.table import read_examples, read_results
from tests.runs import seal_again


def test_half_are_the_largest_of_each_class_and_half_evenly_spaced(make_run):
    run = make_run(count=50, classes=3)
    results, examples = read_results(run), read_examples(run)
    chosen = example_table(read_run(run), most=12, log_text=True)
    assert chosen["chosen"].tolist() == ["largest"] * 6 + ["evenly spaced"] * 6
    jsd = results[results["metric"] == "optimum_jsd"].set_index("example_id")["value"]
    decision = examples.set_index("example_id")["prediction"]
    expected = {int(number) for c in range(3) for number in jsd[decision == c].nlargest(2).index}
    assert set(chosen["example_id"][:6]) == expected
    assert sorted(decision[chosen["example_id"][:3]]) == [0, 1, 2]
    rest = [number for number in range(50) if number not in expected]
    assert chosen["example_id"].tolist()[6:] == [rest[round(k * 43 / 5)] for k in range(6)]


def test_without_the_adversary_the_largest_weight_counts(make_run):
    run = make_run(count=30, longest=10, probes=("performance", "permutation"))
    examples = read_examples(run)
    shown = example_table(read_run(run), most=3, log_text=True)["example_id"].iloc[0]
    assert any(len(weights) == 1 for weights in examples["attention"])
    largest = examples["attention"].map(lambda weights: max(weights) if len(weights) > 1 else 0)
    first = examples[examples["prediction"] == examples.loc[largest.idxmax(), "prediction"]]
    assert shown == examples.loc[largest[first.index].idxmax(), "example_id"]


def test_the_cells_are_those_of_the_tables_and_hold_no_words_on_request(make_run):
    run = make_run(count=6)
    results, examples = read_results(run), read_examples(run)
    gone = (results["metric"] == "found_attention") & (results["example_id"] == 2)
    table = example_table(replace(read_run(run), numbers=numbers_of(results[~gone])), most=6, log_text=True)
    assert [cell is not None for cell in table["Adversary, found by search"]] == [True, True, False, True, True, True]
    assert table["text"].tolist() == examples["text"].tolist()
    assert table["probability"][0].startswith("[0.")
    jsd = results[results["metric"] == "optimum_jsd"].sort_values("example_id")["value"]
    np.testing.assert_array_equal(table["optimum_jsd"], jsd)
    assert "gradient" not in table
    silent = example_table(read_run(run), most=6, log_text=False)
    assert set(table) - set(silent) == {"text"}
    tokens = {token for tokens in examples["tokens"] for token in tokens if len(token) > 2}
    assert not any(f">{token}<" in cell.html for token in tokens for cell in silent["Farthest attention"])
    assert ">0</i>" in silent["attention"][0].html


def test_several_labels_and_sentences(make_run):
    run = make_run(count=2)
    examples = read_examples(run).assign(
        label=pd.Series([[0, 1], [1, 1]]),
        prediction=pd.Series([[0, 1], [1, 0]]),
        attention=pd.Series([[0.4, 0.6], [1.0]]),
        tokens=pd.Series([["it rains .", "stay"], ["<b>"]]),
        words=pd.Series([[["it", "rains", "."], ["stay"]], [["<b>"]]]),
        word_attention=pd.Series([[[0.2, 0.7, 0.1], [1.0]], [[1.0]]]),
    )
    pq.write_table(pa.Table.from_pandas(examples, preserve_index=False), run / "examples/test.parquet")
    seal_again(run)
    bare = read_results(run)
    bare = bare[bare["step"].isna()]
    table = example_table(replace(read_run(run), numbers=numbers_of(bare)), most=2, log_text=True)
    assert table["label"].tolist() == ["[0, 1]", "[1, 1]"]
    first, second = (cell.html for cell in table["attention"])
    assert 'title="1: rains — 0.700"' in first
    assert "&lt;b&gt;" in second
    assert "<b>" not in second
