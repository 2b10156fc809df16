"""Whole experiments on real text: `make test-slow`, with ATTNPROBE_DATA_DIR naming the folder of
the data sets."""

import os
from pathlib import Path

import pytest

from attnprobe.results.directory import RunDirectory
from attnprobe.results.table import read_results
from attnprobe.runs.run import run
from tests.small_runs import composed

pytestmark = [pytest.mark.slow, pytest.mark.real_data]


def needs(folder):
    place = os.environ.get("ATTNPROBE_DATA_DIR")
    if place is None or not (Path(place) / folder).is_dir():
        pytest.skip(f"no {folder} below ATTNPROBE_DATA_DIR")


def wide(directory, probe):
    results = read_results(directory, probe=probe)
    return results[results["step"].isna()].pivot_table(
        index="example_id", columns="metric", values="value", observed=True
    )


def test_sst_is_the_papers_and_no_search_beats_the_optimum(tmp_path):
    needs("sst")
    directory = run(
        composed("+experiment=jain_adversarial", "data=sst", f"output={tmp_path}", "figures=false")
    )
    counts = RunDirectory(directory).manifest()["counts"]
    assert [counts[split]["loaded"] for split in ("train", "validation", "test")] == [
        6920,
        872,
        1821,
    ]
    assert [counts[split]["kept"] for split in ("train", "test")] == [6355, 1725]
    table = wide(directory, "adversarial")
    assert len(table) == 1725
    assert (table["is_exact"] == 1).all()
    assert (table["optimum_jsd"] >= table["found_jsd"]).all()
    assert (table["optimum_tvd"] <= 0.01).all()
    assert 0.4 < table["found_jsd"].mean() < table["optimum_jsd"].mean() < 0.68
    assert float(wide(directory, "performance")["accuracy"].iloc[0]) > 0.74


def test_babi_1_is_solved_with_attention_on_the_supporting_sentence(tmp_path):
    needs("babi1")
    overrides = [
        "task=qa",
        "data=babi1",
        "training.epochs=12",
        "probe=[plausibility]",
        "figures=false",
    ]
    directory = run(composed(*overrides, f"output={tmp_path}"))
    assert float(wide(directory, "performance")["accuracy"].iloc[0]) >= 0.99
    table = wide(directory, "plausibility")
    assert table["top_in_rationale_attention"].mean() > 0.9
    assert table["rationale_share"].mean() < 0.3
