import pandas as pd
import pytest

from attnprobe.evidence.published import FILES, NUMBERS, published


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
