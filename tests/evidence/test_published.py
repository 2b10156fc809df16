import numpy as np
import pandas as pd
import pytest

from attnprobe.evidence.published import FILES, NUMBERS, compare, published
from attnprobe.evidence.statistics import interval, wilson
from attnprobe.results.table import read_results


def value(table: pd.DataFrame, metric: str, group: str = "overall") -> float:
    (found,) = table[(table["metric"] == metric) & (table["group"] == group)]["value"]
    return found


def test_the_numbers_of_the_paper_stand_under_our_names():
    sst = published("sst", "lstm_additive")
    assert list(sst.columns) == ["metric", "group", "value", "source"]
    for metric, group, expected in (
        ("accuracy", "overall", 0.808),
        ("f1_macro", "overall", 0.806),
        ("f1", "class_1", 0.784),
        ("n", "class_0", 863),
        ("adversarial_max_jsd_mean", "class_0", 0.480),
        ("adversarial_max_jsd_mean", "class_1", 0.493),
        ("tau_attention_gradient_mean", "overall", 0.351),
    ):
        assert value(sst, metric, group) == pytest.approx(expected, abs=5e-4)
    assert value(published("snli", "lstm_additive"), "accuracy") == pytest.approx(0.779, abs=5e-4)
    assert value(published("babi1", "lstm_additive"), "adversarial_max_jsd_mean") == pytest.approx(
        0.468, abs=5e-4
    )
    assert published("testbed", "lstm_additive").empty
    yelp = published("yelp", "hanconv")
    assert value(yelp, "fewer_gradient_than_attention") == pytest.approx(0.478, abs=5e-4)


def test_every_published_number_is_whole_and_unique():
    table = pd.concat(pd.read_csv(NUMBERS / name, comment="#") for name in FILES.values())
    assert table["value"].notna().all()
    assert not table.duplicated(["data", "model", "metric", "group"]).any()
    assert table["group"].str.fullmatch(r"overall|class_\d+").all()
    jain = {f"{e}_{a}" for e in ("lstm", "cnn", "average") for a in ("additive", "dot")}
    assert set(table["model"]) == jain | {"hanrnn", "hanconv", "flanrnn", "flanconv"}
    bounded = table[~table["metric"].isin(["n"])]
    assert bounded["value"].between(-1, 1).all()


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
