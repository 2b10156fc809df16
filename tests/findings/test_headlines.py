import numpy as np
import pytest

from attnprobe.evidence.statistics import interval, wilson
from attnprobe.findings.headlines import compare
from attnprobe.results.table import read_results


def test_measured_beside_published_with_interval_and_difference(make_run):
    results = read_results(make_run(count=50))
    table = compare(results).set_index(["probe", "metric", "group"])
    long = results[(results["probe"] == "adversarial") & (results["metric"] == "found_jsd")]
    predicted = results[
        (results["probe"] == "adversarial") & (results["metric"] == "predicted_class")
    ]
    ones = set(predicted[predicted["value"] == 1]["example_id"])
    expected = [v for e, v in zip(long["example_id"], long["value"], strict=True) if e in ones]
    row = table.loc[("adversarial", "found_jsd", "class_1")]
    assert row["n"] == len(expected)
    assert (row["mean"], row["low"], row["high"]) == pytest.approx(interval(expected))
    assert row["published"] == pytest.approx(0.492716)
    assert row["difference"] == pytest.approx(np.mean(expected) - 0.492716)
    assert row["source"] == "Jain & Wallace 2019, figure"
    assert np.isnan(table.loc[("adversarial", "optimum_jsd", "overall"), "published"])
    # accuracy has Wilson's interval, and other numbers of a whole split have none
    row = table.loc[("performance", "accuracy", "overall")]
    assert (row["low"], row["high"]) == wilson(50 * row["mean"], 50)[1:]
    assert np.isnan(table.loc[("performance", "roc_auc", "overall"), "low"])
    assert table.loc[("performance", "roc_auc", "overall"), "n"] == 50
