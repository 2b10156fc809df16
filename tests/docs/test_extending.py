import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from pandas.testing import assert_series_equal
from scipy import stats

import attnprobe
from attnprobe.core.errors import UserError
from attnprobe.findings.headlines import compare, headline
from attnprobe.readings import registry
from attnprobe.report.page.build import write_report
from attnprobe.report.tables import write_tables
from attnprobe.report.terminal import print_summary
from attnprobe.results.directory import RunDirectory
from attnprobe.results.table import read_results
from attnprobe.runs.run import run
from attnprobe.runs.settings import resumed
from tests.docs.extending import (
    ANY_DATA,
    COMMANDS,
    FILES,
    FOREIGN,
    PAGE,
    carried_out,
    command,
    composed,
)
from tests.small_runs import SMALL, SMALL_ADVERSARY


@pytest.mark.parametrize(("name", "left_out"), [("hotels", 1), ("stays", 0)])
def test_a_data_set(mine, name, left_out):
    manifest = RunDirectory(carried_out(mine, f"data={name}", ANY_DATA)).manifest()
    assert (manifest["data"], manifest["classes"]) == (name, ["bad", "good"])
    counts = manifest["counts"]
    dropped = sum(
        counts[split]["dropped"].get("label is unseen", 0)
        for split in ("train", "validation", "test")
    )
    assert dropped == left_out
    assert counts["test"]["kept"] == pytest.approx(0.2 * 152, abs=1)


def test_a_model(mine):
    directory = carried_out(mine, "model=neighbours", (*SMALL, *SMALL_ADVERSARY))
    results = read_results(directory)
    assert set(results["model"]) == {"neighbours_cosine"}
    assert {"permutation", "adversarial", "leave_one_out"} <= set(results["probe"])
    assert results.loc[results["metric"] == "leave_one_out", "value"].notna().all()
    with pytest.raises(UserError, match=r"attnprobe_extra\..*outside the trusted"):
        attnprobe.load_run(directory)
    with pytest.raises(UserError, match=r"trusted=\[attnprobe_extra\]"):
        resumed(composed([f"run={directory}"]), [f"run={directory}"])
    trained = attnprobe.load_run(directory, trusted=FOREIGN)
    (attention,) = trained.explain(["the film was good"])["attention"]
    assert sum(attention) == pytest.approx(1)
    exec(FILES["test_neighbours.py"], done := {})  # the page's own test
    done["test_padding_changes_no_state"]()


@pytest.fixture(scope="module")
def probed(mine):
    return carried_out(mine, "sufficiency.keep")


def test_a_probe_and_its_reading(mine, probed, capsys):
    results = read_results(probed, probe="sufficiency")
    wide = results[results["step"].isna()].pivot(
        index="example_id", columns="metric", values="value"
    )
    assert wide[["tvd_top", "tvd_random"]].min().min() >= 0
    assert set(np.unique(wide[["same_top", "same_random"]])) <= {0, 1}
    weights = results[results["metric"] == "kept"].groupby("example_id")["value"]
    assert_allclose(weights.sum(), 1)
    assert (weights.agg(lambda values: (values > 0).sum()) == 2).all()  # keep=2
    assert headline(read_results(probed))["sufficiency/same_top"] == pytest.approx(
        wide["same_top"].mean()
    )
    print_summary(compare(read_results(probed)))
    assert "decision stays with the top items alone" in capsys.readouterr().out
    with pytest.raises(Exception, match=r"probe\.sufficiency\.keep=0: expected .* at least 1"):
        run(
            composed(
                [
                    *SMALL,
                    "probe=[sufficiency]",
                    "probe.sufficiency.keep=0",
                    f"output={mine / 'refused'}",
                ]
            )
        )


def test_without_a_reading_the_numbers_are_there_and_nothing_breaks(
    mine, probed, monkeypatch, capsys
):
    monkeypatch.setattr(registry, "entry_points", lambda group: [])
    registry.readings.cache_clear()
    results = read_results(probed)
    assert len(results.query("probe == 'sufficiency' and metric == 'tvd_top'")) == 30
    assert not any(name.startswith("sufficiency") for name in headline(results))
    print_summary(compare(results))
    write_tables(probed, mine / "tables2")
    write_report([probed], mine / "report2.html")
    registry.readings.cache_clear()


def test_every_file_of_the_page_was_used():
    settings = {name for name in FILES if name.startswith("conf/")}
    used = " ".join(COMMANDS)
    for name in settings - {"conf/probe/sufficiency.yaml", "conf/importance/by_letters.yaml"}:
        assert Path(name).stem in used, name
    assert len(FILES) == len(re.findall(r"^```\w+ title=", PAGE, re.M))


@pytest.fixture(scope="module")
def weighed(mine):
    return carried_out(mine, "importance.word_length.power")


def test_an_importance_and_its_title_in_the_summary_without_its_package(weighed, capsys):
    results = read_results(weighed)
    length_metrics = {
        str(metric) for metric in results["metric"].unique() if str(metric).endswith("_word_length")
    }
    expected = (
        "tau_attention",
        "tau_shuffled",
        "top_in_rationale",
        "flip_top",
        "removed_count",
        "regret",
    )
    assert {f"{name}_word_length" for name in expected} <= length_metrics
    facts = RunDirectory(weighed).manifest()["tables"]["erasure"]["importances"]["word_length"]
    assert (facts["title"], facts["colour"], facts["signed"]) == (
        "length of the word",
        "#117733",
        False,
    )
    assert facts["settings"]["power"] == 2
    print_summary(compare(results))
    printed = " ".join(capsys.readouterr().out.split())
    for words in (
        "tau(attention, length of the word)",
        "share removed: length of the word",
        "top token in the rationale, length of",
        "JS(top by length of the word)",
    ):
        assert words in printed


def test_it_explains_new_texts(weighed):
    explained = attnprobe.load_run(weighed, trusted=FOREIGN).explain(
        ["the film was good"], importance=["word_length"]
    )
    assert explained["word_length"][0] == [
        len(word) ** 2 for word in ("the", "film", "was", "good")
    ]
    assert "length of the word" in explained._repr_html_()


@pytest.fixture(scope="module")
def scored(mine, tmp_path_factory):
    directory = run(composed([*SMALL, "probe=[]", f"output={tmp_path_factory.mktemp('runs')}"]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["score_texts.py", str(directory)])
        exec(FILES["score_texts.py"], {})
    return directory


def test_a_file_and_a_package_are_taken_by_every_test_of_methods(scored, tmp_path):
    """The file holds what the package's method computes, so that they must have the same numbers
    everywhere."""
    directory = shutil.copytree(scored, tmp_path / "run")
    overrides = [
        argument.replace("DIRECTORY", str(directory))
        for argument in command("probe=[agreement_matrix,faithfulness")
    ]
    quick = [
        "probe.faithfulness.operators=[delete]",
        "probe.subsets.most_words=11",
        "probe.sanity.samples=1",
    ]
    settings = [*overrides, *quick]
    run(resumed(composed([*settings, "figures=false"]), settings))
    results = read_results(directory)
    plain = results[results["step"].isna()].astype({"metric": str})
    values = plain.pivot_table(index="example_id", columns="metric", values="value", dropna=False)
    vocabulary = set(json.loads((directory / "vocabulary.json").read_text()))
    texts = attnprobe.read_examples(directory).set_index("example_id")["tokens"]
    is_known = texts.map(lambda words: set(words) <= vocabulary)
    values = values.loc[texts.index[is_known]]
    wanted = {
        "agreement_matrix": ["rbo_attention_and_file"],
        "plausibility": ["auprc_rationale_file", "mass_in_rationale_file"],
        "faithfulness": ["comprehensiveness_file_by_delete", "sufficiency_file_by_delete"],
        "subsets": [
            "aopc_normalised_file",
            "shapley_tau_file",
            "shapley_top_file",
            "shapley_share_error_file",
        ],
        "sanity": ["floor_similarity_file"],
    }
    for metric in (metric for metrics in wanted.values() for metric in metrics):
        file_values = values[metric]
        probe_values = values[metric.replace("file", "word_length")]
        assert file_values.notna().any(), metric
        assert_series_equal(file_values, probe_values, check_names=False, obj=metric)
    columns = [
        *values.filter(regex="^random_weights_similarity_(file|word_length)$"),
        "tau_word_length_and_file",
    ]
    assert len(columns) == 3
    assert_allclose(values[columns], 1)  # whatever the model computes


def test_scores_from_a_file(mine, scored):
    overrides = [
        argument.replace("DIRECTORY", str(scored))
        for argument in command("'importance.file.title=length")
    ]
    run(resumed(composed([*overrides, "figures=false"]), overrides))
    results = read_results(scored)
    texts = attnprobe.read_examples(scored).set_index("example_id")
    tau = results[results["metric"] == "tau_attention_file"].set_index("example_id")["value"]
    assert len(tau) == len(texts)
    for number, tokens in texts["tokens"].items():
        expected = stats.kendalltau(
            texts["attention"][number], [len(word) for word in tokens]
        ).statistic
        assert tau[number] == pytest.approx(expected, nan_ok=True)
    facts = RunDirectory(scored).manifest()["tables"]["erasure"]["importances"]
    assert facts["file"]["title"] == "length by another tool"
    examples = attnprobe.read_examples(scored)
    examples["letters"] = [
        [sum(map(str.isalpha, word)) for word in words] for words in examples["tokens"]
    ]
    examples[["example_id", "letters"]].to_json(
        mine / "letters.jsonl", orient="records", lines=True
    )
    overrides = [
        f"run={scored}",
        "probe=[plausibility]",
        "importances=[attention,by_letters,file]",
        "importance.file.path=scores.parquet",
    ]
    run(resumed(composed(overrides), overrides))
    facts = RunDirectory(scored).manifest()["tables"]["plausibility"]["importances"]
    assert (facts["by_letters"]["title"], facts["file"]["title"]) == (
        "letters in the word",
        "scores from a file",
    )
