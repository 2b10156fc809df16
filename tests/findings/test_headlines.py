import numpy as np
import pytest
from scipy import stats

from attnprobe.evidence.statistics import interval, wilson
from attnprobe.findings.headlines import compare
from attnprobe.results.pivot import ASKED
from attnprobe.results.table import SCALES, read_results
from tests.probes.tables import table


@pytest.fixture
def results(make_run):
    """The long table of a run of 50 examples."""
    return read_results(make_run(count=50))


@pytest.fixture
def rows(results):
    """The headline numbers, by probe, metric and group."""
    return compare(results).set_index(["probe", "metric", "group"])


def test_a_number_by_class_is_the_mean_of_the_examples_that_are_predicted_to_be_of_it(
    results, rows
):
    metrics = ["predicted_class", "found_jsd"]
    is_asked_for = (results["probe"] == "adversarial") & results["metric"].isin(metrics)
    examples = results[is_asked_for].astype({"metric": str})
    wide = examples.pivot(index="example_id", columns="metric", values="value")
    jsd = wide.loc[wide["predicted_class"] == 1, "found_jsd"]
    row = rows.loc["adversarial", "found_jsd", "class_1"]
    assert row["n"] == len(jsd)
    assert (row["mean"], row["low"], row["high"]) == pytest.approx(interval(jsd))


def test_a_published_number_stands_beside_the_measured_one(rows):
    row = rows.loc["adversarial", "found_jsd", "class_1"]
    assert row["published"] == pytest.approx(0.492716)
    assert row["difference"] == pytest.approx(row["mean"] - 0.492716)
    assert row["source"] == "Jain & Wallace 2019, figure"


def test_a_number_that_no_paper_has_stands_alone(rows):
    assert np.isnan(rows.loc[("adversarial", "optimum_jsd", "overall"), "published"])


def test_a_share_of_the_whole_split_has_wilsons_interval(rows):
    row = rows.loc["performance", "accuracy", "overall"]
    expected = wilson(50 * row["mean"], 50)
    assert row["low"] == pytest.approx(expected.low)
    assert row["high"] == pytest.approx(expected.high)


@pytest.mark.parametrize(
    ("metric", "unit", "upper_end"),
    [("flip_top_attention", "0/1", 0.0876), ("tau_attention_effect", "τ-b", np.nan)],
)
def test_a_decision_that_never_flips_in_forty_texts_may_yet_flip(metric, unit, upper_end):
    """Wilson's upper end of 0 of 40; a correlation of 0 in every text says nothing of others."""
    results = table("single_weight", {metric: np.zeros(40)})
    facts = {"unit": unit, "low": 0 if unit == "0/1" else -1, "high": 1}
    results.attrs[SCALES] = {"single_weight": {metric: facts}}
    row = compare(results).set_index("metric").loc[metric]
    assert row["mean"] == 0
    assert row["high"] == pytest.approx(upper_end, abs=1e-4, nan_ok=True)


def test_answers_about_one_text_count_as_if_all_were_right_or_all_wrong(results):
    """Ten texts of five answers: a share of ten, by Wilson's formula."""
    (run_id,) = results["run_id"].unique()
    first_answers = {}
    for first in range(0, 50, 5):
        for row in range(first + 1, first + 5):
            first_answers[str(row)] = first
    results.attrs[ASKED] = {run_id: first_answers}

    table = compare(results).set_index(["probe", "metric", "group"])

    accuracy = table.loc["performance", "accuracy", "overall"]
    assert accuracy["n"] == 50
    share = accuracy["mean"]
    texts = 10
    z = stats.norm.ppf(0.975)
    scale = 1 + z**2 / texts
    centre = (share + z**2 / (2 * texts)) / scale
    variance = share * (1 - share) / texts
    correction = (z / (2 * texts)) ** 2
    margin = z * np.sqrt(variance + correction) / scale
    assert accuracy["low"] == pytest.approx(centre - margin)
    assert accuracy["high"] == pytest.approx(centre + margin)


def test_another_number_of_the_whole_split_has_no_interval(rows):
    row = rows.loc["performance", "roc_auc", "overall"]
    assert np.isnan(row["low"])
    assert row["n"] == 50
