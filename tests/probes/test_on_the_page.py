"""Probes that compare importances, through one run: their tables, figures, findings, and a page."""

import pytest

from attnprobe.probes import agreement_matrix, faithfulness, subsets
from attnprobe.report.page.build import write_report
from attnprobe.results.table import read_results
from attnprobe.runs.run import run
from tests.runs import small_run

IMPORTANCES = ("attention", "random", "gradient_input", "shapley_sampling", "integrated_gradients")


def test_probes_of_importances_stand_in_tables_figures_and_on_the_page(tmp_path):
    settings = (f"importances=[{','.join(IMPORTANCES)}]", "importance.shapley_sampling.samples=20",
                "probe.subsets.most_words=12", "data.source.test_size=10", "data.max_tokens=12", "figures=true")  # fmt: skip
    directory = run(small_run(tmp_path, *settings, probes="[subsets,faithfulness,agreement_matrix]"))
    for figure in ("subsets_limits", "faithfulness_points", "agreement_matrix"):
        assert (directory / f"figures/{figure}.pdf").exists()
    results = read_results(directory)

    table = subsets.subsets_table(results).set_index("importance")
    assert 0 < table["n"].max() <= 10
    estimates = table["error against Shapley"].notna()
    assert estimates["Shapley, sampled"]
    assert not estimates[["attention", "random"]].any()

    table = faithfulness.faithfulness_table(results)
    assert set(table["operator"]) == {"delete", "zeros", "attention"}
    assert "integrated gradients" in set(table["importance"])

    table = agreement_matrix.agreement_table(results)
    pairs = len(IMPORTANCES) * (len(IMPORTANCES) - 1) // 2
    assert len(table) == pairs + 2 * len(IMPORTANCES)  # each pair, and each one's floor and ceiling
    ceiling = table[table["against"].str.contains("ceiling")].set_index("importance")["tau"]
    assert ceiling["attention"] == pytest.approx(1)
    assert ceiling["Shapley, sampled"] < 1

    page = write_report([directory], tmp_path / "report.html").read_text(encoding="utf-8")
    for title in ("how near do orders and attributions come", "who ranks the words alike?",
                  "Faithfulness: does the prediction rest on the words"):  # fmt: skip
        assert title in page
    findings = (tmp_path / "report_files/findings.csv").read_text(encoding="utf-8")
    assert "integrated gradients add up" in findings
    assert "Without its most attended words" in findings
